"""Run unmodified Kafka clients against a node, and show which of their features work."""
