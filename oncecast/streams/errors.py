"""What can go wrong between processes that act together.

CoordinationError
├── NotReached      the group did not reach the size that was waited for
├── NotDeposited    an element is not known to be put in
├── Lapse           the lease of a lock ran out while it was held
├── StreamError
│   ├── NoRoom          a writer that keeps all is at its limit, and no room came in time
│   ├── NotMatched      too few writers or readers came, or they offer or request something else
│   ├── NotReceived     readers have not acknowledged all in time
│   ├── NotOpen         a stream that is closed, or open already
│   └── NoCluster       persistent values need a cluster that stores them
├── BadName         no stream, lock or queue can be called that
└── Stopped         this node has stopped
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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


class StreamError(CoordinationError):
    def __init__(self, stream: str, fact: str) -> None:
        super().__init__(f"stream {stream!r}: {fact}")
        self.stream, self.fact = stream, fact


class NoRoom(StreamError):
    pass


class NotMatched(StreamError):
    def __init__(
        self,
        stream: str,
        wanted: str,
        there: int,
        mismatched: Mapping[NodeId, tuple[str, ...]],
        known: Sequence[str],
    ) -> None:
        fact = f"waited for {wanted}, there are {there}"
        if mismatched:
            each = (f"{peer} in {', '.join(less)}" for peer, less in sorted(mismatched.items()))
            fact += (
                f"; less is offered than requested: {'; '.join(each)}; offer more, or request less"
            )
        elif known:
            fact += f"; others have opened {', '.join(known)}; open one of these, or wait longer"
        else:
            fact += "; nobody else has a stream; start the others, or name a peer that is up"
        super().__init__(stream, fact)
        self.there, self.mismatched = there, dict(mismatched)


class NotReceived(StreamError):
    pass


class NotOpen(StreamError):
    pass


class NoCluster(StreamError):
    def __init__(self, stream: str) -> None:
        super().__init__(
            stream,
            "persistent values are stored by a cluster, and this node was told of none; join with "
            "through='HOST:PORT' of one of its nodes, or be content with TRANSIENT_LOCAL",
        )


class BadName(CoordinationError):
    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name!r:.80}: a name is text of 1 to 255 bytes in UTF-8; choose another one"
        )
        self.name = name


class Stopped(CoordinationError):
    def __init__(self) -> None:
        super().__init__("this node has stopped; join again")
