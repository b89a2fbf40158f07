"""Streams with quality of service: live readers and writers."""
