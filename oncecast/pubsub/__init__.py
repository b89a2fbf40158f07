"""Publish and subscribe: record batches, and what nodes and clients do with them."""
