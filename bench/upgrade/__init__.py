"""Upgrade a live group of three nodes from an earlier revision."""
