"""Reproductions of the measurements in the papers."""
