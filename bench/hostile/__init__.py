"""Attack running nodes, and measure honest clients meanwhile."""
