"""Identities of clients and nodes, without I/O."""
