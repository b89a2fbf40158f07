"""Commands that start, inspect and change a cluster."""
