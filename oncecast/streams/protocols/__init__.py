"""Pure protocols and caches of streams."""
