"""Streams between live writers and readers, with quality of service (QoS)."""
