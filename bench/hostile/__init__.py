"""Attack running nodes, and measure how well they serve honest clients meanwhile."""
