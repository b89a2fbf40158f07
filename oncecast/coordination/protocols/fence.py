"""The other half of a lock: what it protects must know when somebody is late.

No lock can keep a process from acting that was stopped while it held it, and goes on later. A
resource that remembers the highest token it has seen can: it refuses the late one.
"""

from __future__ import annotations

from oncecast.errors import Stale


class Fence:
    """Stands before a resource; `highest` must be stored with what it protects."""

    def __init__(self, highest: int = 0) -> None:
        self.highest = highest

    def admit(self, token: int) -> None:
        """Raises Stale."""
        if token < self.highest:
            raise Stale(token, self.highest)
        self.highest = token
