"""Commands that run Spark jobs and experiments."""
