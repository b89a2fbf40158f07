"""Measure topics in Spark, compared with Parquet and with a source of single rows."""
