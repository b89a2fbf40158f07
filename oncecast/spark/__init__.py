"""Read and write topics with Spark, and run jobs on them."""
