"""A group of one: what its only member has on disk is decided.

It goes the way of a Paxos leader that votes for itself: a proposal is appended, the vote is a
message to itself, and the kernel holds that back until the record is on disk. So whoever is above
hears only of what survives, has nothing to wait for, and reads never wait for the disk. A place is
the number of its record.
"""

from __future__ import annotations

from collections import deque
from random import Random

from oncecast.kernel.protocol import Chunked, NodeId, Protocol, Value
from oncecast.replication.events import Compact, Decided, LeaderChanged, Learner, Propose


class Entry(Value):
    """Record: what stands at a place."""

    place: int
    value: bytes


class Checkpoint(Chunked):
    """State: what all up to `place` has led to."""

    place: int


class Stored(Value):
    """Message, to itself: the entry at `place` is on disk."""

    place: int


class Solo(Protocol):
    name = "solo"
    Request = Propose | Compact
    Message = Stored
    Record = Entry
    State = Checkpoint

    def __init__(self, me: NodeId, rng: Random) -> None:
        super().__init__(me, rng)
        self.learner: Learner | None = None
        self._undecided: deque[Decided] = deque()

    # -- an earlier life: all that it appended and that is still there was on disk --

    def restore(self, record: Entry | Checkpoint) -> None:
        assert self.learner is not None, "a log to learn from, and nobody to learn it"
        if isinstance(record, Checkpoint):
            self.learner.install(record.place, record.chunks)
        else:
            self.learner.learn(record.place, record.value)

    def entry(self, place: int) -> bytes:
        record = self.recall(place)
        assert isinstance(record, Entry)
        return record.value

    def leads(self, now: float) -> bool:
        return True

    def nodes(self) -> tuple[NodeId, ...]:
        return (self.me,)

    # -- this life --

    def start(self) -> None:
        self.emit(LeaderChanged(self.me))

    def request(self, request: Propose | Compact) -> None:
        if isinstance(request, Propose):
            self._propose(request.token, request.value)
        else:
            self._compact(request)

    def _propose(self, token: int, value: bytes) -> None:
        place = self._records.last + 1
        self.append(Entry(place, value))
        self._undecided.append(Decided(place, value, token))
        self.send(self.me, Stored(place))

    def receive(self, sender: NodeId, message: Stored) -> None:
        if sender != self.me:
            return  # only our own disk can say so
        undecided = self._undecided
        while undecided and undecided[0].place <= message.place:
            self.emit(undecided.popleft(), after=0)

    def _compact(self, compact: Compact) -> None:
        """What is appended and not yet decided is not in the state: it must stay behind it."""
        self.snapshot(Checkpoint(compact.state, compact.place), compact.place)
        self.trim(min(compact.needed, compact.place + 1))
