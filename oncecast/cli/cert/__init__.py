"""Commands that make and show certificates."""
