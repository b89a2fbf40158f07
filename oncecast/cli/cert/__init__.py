"""Commands that create and show certificates."""
