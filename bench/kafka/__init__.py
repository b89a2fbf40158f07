"""Torture and measure the front end for Kafka clients with unmodified clients."""
