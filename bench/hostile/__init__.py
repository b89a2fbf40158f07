"""Attack running nodes, and measure how well they serve honest clients during the attack."""
