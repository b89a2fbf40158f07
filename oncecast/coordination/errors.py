"""What can go wrong between processes that act together.

CoordinationError
├── NotReached    the group did not reach the size that was waited for
├── NotDeposited  an element is not known to be put in
├── Lapse         the lease of a lock ran out while it was held
└── Stopped       this node has stopped
"""

from __future__ import annotations

from oncecast.kernel.protocol import NodeId


class CoordinationError(Exception):
    pass


class NotReached(CoordinationError):
    def __init__(self, size: int, view: tuple[NodeId, ...]) -> None:
        there = ", ".join(view) or "nobody"
        super().__init__(
            f"the group has not reached {size} members, there are {len(view)}: {there}; "
            "start the others, name a peer that is up, or wait for fewer"
        )
        self.size, self.view = size, view


class NotDeposited(CoordinationError):
    def __init__(self, queue: str, *, perhaps: bool) -> None:
        fact = "nobody has answered: it may be put in" if perhaps else "no acceptor is up"
        super().__init__(
            f"queue {queue!r}: {fact}; see that a majority of the acceptors is up, and try again"
        )
        self.queue, self.perhaps = queue, perhaps


class Lapse(CoordinationError):
    def __init__(self, lock: str, token: int) -> None:
        super().__init__(
            f"lock {lock!r} is held no longer: the lease of token {token} ran out; "
            "acquire it anew, and look what is half done"
        )
        self.lock, self.token = lock, token


class Stopped(CoordinationError):
    def __init__(self) -> None:
        super().__init__("this node has stopped; join again")
