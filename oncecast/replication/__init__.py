"""A group of replicas that agrees on one order of opaque bytes."""
