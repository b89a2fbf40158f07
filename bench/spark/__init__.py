"""Speed of topics in Spark, beside Parquet and beside rows one by one."""
