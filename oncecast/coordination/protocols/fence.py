"""A fence rejects stale lock tokens at the protected resource.

A process can be paused while it holds a lock, and continue after its lease has expired. The lock
cannot prevent this, but the resource can: it stores the highest token and rejects lower tokens.
"""

from __future__ import annotations

from oncecast.errors import Stale


class Fence:
    """Check the tokens for a resource. Store `highest` together with the protected data."""

    def __init__(self, highest: int = 0) -> None:
        self.highest = highest

    def admit(self, token: int) -> None:
        """Accept `token`. Raise Stale if a higher token was used before."""
        if token < self.highest:
            raise Stale(token, self.highest)
        self.highest = token
