"""Compute tables and figures from the traces of experiments."""
