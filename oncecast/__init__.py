"""Durable exactly-once publish/subscribe, from one process to a replicated cluster."""

__version__ = "0.1.0.dev0"
