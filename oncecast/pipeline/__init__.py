"""Topics and Spark: a source, a sink, and pipelines of them."""
