"""Spark looks for a module of this name when it is asked for `format("oncecast")`."""

from oncecast.spark.register import OncecastSource as DefaultSource

__all__ = ["DefaultSource"]
