"""A ring of three processes beside one node."""
