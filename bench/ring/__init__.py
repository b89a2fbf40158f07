"""Compare a ring of three processes with one node."""
