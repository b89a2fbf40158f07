"""A ring of ids on which every key has an owner, and multicast trees over it."""
