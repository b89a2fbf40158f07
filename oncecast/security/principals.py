"""Principals: the names of authenticated clients."""

from __future__ import annotations

ANONYMOUS = ""  # a client without credentials
NODE = "oncecast:node"  # a node that connects as a client before it joins

NAME_BYTES_MAX = 128
RESERVED = "oncecast:"


def is_principal(name: str) -> bool:
    """Return whether a user can have this name."""
    size = len(name.encode(errors="replace"))
    return 1 <= size <= NAME_BYTES_MAX and name.isprintable() and not name.startswith(RESERVED)
