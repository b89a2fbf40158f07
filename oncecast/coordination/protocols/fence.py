"""A fence rejects stale lock tokens on the side of the protected resource.

A process can be paused while it holds a lock, and continue after its lease has expired. The lock
cannot prevent this. A resource can, if it stores the highest token and rejects lower ones.
"""

from __future__ import annotations

from oncecast.errors import Stale


class Fence:
    """Checks tokens for a resource. Store `highest` together with the protected data."""

    def __init__(self, highest: int = 0) -> None:
        self.highest = highest

    def admit(self, token: int) -> None:
        """Accept `token`; raise Stale if a higher one was used before."""
        if token < self.highest:
            raise Stale(token, self.highest)
        self.highest = token
