"""The data source that Spark imports for `format("oncecast")`."""

from oncecast.spark.register import OncecastSource as DefaultSource

__all__ = ["DefaultSource"]
