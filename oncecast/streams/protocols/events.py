"""What streams are asked for, what they tell, and what their nodes say to each other.

OpenWriter, OpenReader, Write, Took, Feed, CloseWriter, CloseReader ↓
Arrived, Written, NotWritten, Stable, Matched, Mismatched, Unmatched, DeadlineMissed, Liveliness,
LimitReached, SamplesLost, SamplesRejected ↑
Endpoints, Data, Beat, Acks, Known ↔

Many values travel as columns. A column of numbers or of keys has one for each value, or a single
one: the first of numbers that follow each other, the key of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Literal

from oncecast.kernel.protocol import NodeId, Value
from oncecast.streams.protocols.cache import Sample
from oncecast.streams.protocols.policies import QoS

STREAMS_MAX = 1000  # of a node
NUMBER_MAX = 1 << 62  # leaves room to count on from it in 64 bits
NOT_MINE = -1

# -- requests --


class OpenWriter(Value):
    stream: str
    qos: QoS


class OpenReader(Value):
    stream: str
    qos: QoS


class Write(Value):
    """Answered by Written, at once or when there is room for all of them; or by NotWritten."""

    stream: str
    ticket: int  # 0: no answer is wanted
    keys: tuple[bytes, ...]
    values: tuple[bytes, ...]


class Took(Value):
    """There is room again in the cache of this reader."""

    stream: str


class Feed(Value):
    """What the durable topic of a persistent stream holds, for the cache of its reader."""

    stream: str
    samples: tuple[Sample, ...]


class CloseWriter(Value):
    stream: str


class CloseReader(Value):
    stream: str


# -- events --

Side = Literal["writer", "reader"]


class Arrived(Value):
    """There is something new in the cache of this stream's reader."""

    stream: str


class Written(Value):
    """The last of them has this number."""

    stream: str
    ticket: int
    number: int


class NotWritten(Value):
    """There was no room for it in time: readers that must have all lag behind."""

    stream: str
    ticket: int
    why: str


class Stable(Value):
    """All reliable readers have what was written before this number."""

    stream: str
    number: int


class Matched(Value):
    """As a `side` of this stream, this node is matched with what `peer` has opened."""

    stream: str
    side: Side
    peer: NodeId


class Mismatched(Value):
    """It is not, because less is offered than requested in these qualities."""

    stream: str
    side: Side
    peer: NodeId
    qualities: tuple[str, ...]


class Unmatched(Value):
    stream: str
    side: Side
    peer: NodeId


class DeadlineMissed(Value):
    """Nothing new of this key for longer than was offered, or requested."""

    stream: str
    side: Side
    key: bytes


class Liveliness(Value):
    """A matched writer shows no life for as long as was requested; or does again."""

    stream: str
    writer: NodeId
    alive: bool


class LimitReached(Value):
    """The cache of this side is full: a writer waits, a reliable reader lets its writers wait."""

    stream: str
    side: Side


class SamplesLost(Value):
    """So many values of this writer will never be read here."""

    stream: str
    writer: NodeId
    count: int


class SamplesRejected(Value):
    """So many values came with best effort, and there was no room for them."""

    stream: str
    writer: NodeId
    count: int


# -- messages --


class Endpoint(Value, tag=False):
    stream: str
    life: int  # no other writer or reader of this stream has it
    qos: QoS


class Endpoints(Value, tag="Endpoints"):
    """All that I have opened."""

    writers: tuple[Endpoint, ...]
    readers: tuple[Endpoint, ...]
    answer: bool = False  # is wanted: what have you opened?


class Data(Value, tag="Data"):
    """All that is of use of the numbers from `since` to `last`; others came after the rest."""

    stream: str
    writer: NodeId
    life: int
    since: int
    last: int
    numbers: tuple[int, ...]
    keys: tuple[bytes, ...]
    values: tuple[bytes, ...]

    @property
    def possible(self) -> bool:
        """Whether an honest peer could have made it."""
        count = len(self.values)
        if not 1 <= self.since <= self.last <= NUMBER_MAX:
            return False
        if not count:
            return True
        if len(self.keys) not in (1, count) or len(self.numbers) not in (1, count):
            return False
        numbers = self.every_number
        return self.since <= numbers[0] and numbers[-1] <= self.last

    @property
    def every_number(self) -> Sequence[int]:
        if len(self.numbers) == 1:
            return range(self.numbers[0], self.numbers[0] + len(self.values))
        return self.numbers

    def samples(self, skip: int = 0) -> list[Sample]:
        """All but the first `skip`."""
        keys, numbers, values = self.keys, self.every_number, self.values
        if skip:
            numbers, values = numbers[skip:], values[skip:]
        every_key = repeat(keys[0]) if len(keys) == 1 else keys[skip:]
        return list(map(Sample, repeat(self.writer), numbers, every_key, values))


class Beat(Value, tag="Beat"):
    """I am alive; your first number is `start`, the last one sent to you is `last`. All readers
    have what comes before `stable`."""

    stream: str
    life: int
    start: int
    last: int
    stable: int

    @property
    def possible(self) -> bool:
        """Whether an honest peer could have made it."""
        return 1 <= self.start <= NUMBER_MAX and 0 <= self.last < NUMBER_MAX


class Acks(Value, tag="Acks"):
    """I have all before `next`; send again what comes from there to `until`, if that is more."""

    stream: str
    life: int
    next: int
    until: int


class Known(Value, tag="Known"):
    """Of a writer that somebody suspects I have all before `next`. 0: I have heard nothing of it;
    NOT_MINE: nor would I have to."""

    stream: str
    writer: NodeId
    life: int
    next: int
    answer: bool  # is wanted: what do you have?


StreamMessage = Endpoints | Data | Beat | Acks | Known
StreamRequest = OpenWriter | OpenReader | Write | Took | Feed | CloseWriter | CloseReader
