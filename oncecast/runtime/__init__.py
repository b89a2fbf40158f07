"""What drives a stack: a real network, or a simulator of many nodes in one thread."""
