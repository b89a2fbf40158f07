"""Protocols as pure state machines, and the stack that composes them into a node."""
