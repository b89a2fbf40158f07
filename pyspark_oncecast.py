"""Spark looks for a module of this name when it is asked for `format("oncecast")`."""

from oncecast.pipeline.spark import OncecastSource as DefaultSource

__all__ = ["DefaultSource"]
