"""Requests (↓), events (↑) and messages (↔) of streams.

OpenWriter, OpenReader, Write, Took, Feed, CloseWriter, CloseReader ↓
Arrived, Written, NotWritten, Stable, Matched, Mismatched, Unmatched, DeadlineMissed, Liveliness,
LimitReached, SamplesLost, SamplesRejected ↑
Endpoints, Data, Beat, Acks, Known ↔

Data carries values as columns. The columns of numbers and keys have one entry per value, or a
single entry: the first of consecutive numbers, or the key that all values share.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Literal

from oncecast.kernel.protocol import NodeId, Value
from oncecast.streams.protocols.cache import Sample
from oncecast.streams.protocols.policies import QoS

STREAMS_MAX = 1000  # maximum number of writers, and of readers, per node
NUMBER_MAX = 1 << 62  # leaves space for higher numbers in a 64-bit integer
NOT_READING = -1

# -- requests --


class OpenWriter(Value):
    stream: str
    qos: QoS


class OpenReader(Value):
    stream: str
    qos: QoS


class Write(Value):
    """Write values. The answer is Written when all of them fit into the cache, or NotWritten."""

    stream: str
    ticket: int  # repeated in the answer; 0 to get no answer
    keys: tuple[bytes, ...]
    values: tuple[bytes, ...]


class Took(Value):
    """The application has taken values, so this reader's cache has space again."""

    stream: str


class Feed(Value):
    """Values from a persistent stream's topic, for its reader's cache."""

    stream: str
    samples: tuple[Sample, ...]


class CloseWriter(Value):
    stream: str


class CloseReader(Value):
    stream: str


# -- events --

Side = Literal["writer", "reader"]


class Arrived(Value):
    """The cache of this stream's reader has new values."""

    stream: str


class Written(Value):
    """The values were written. `number` is the number of the last value."""

    stream: str
    ticket: int
    number: int


class NotWritten(Value):
    """The values were not written. Usually the reason is that readers are too slow."""

    stream: str
    ticket: int
    reason: str


class Stable(Value):
    """All reliable readers have the values before this number."""

    stream: str
    number: int


class Matched(Value):
    """The local writer or reader is matched with a reader or writer of `peer`."""

    stream: str
    side: Side
    peer: NodeId


class Mismatched(Value):
    """The writer offers less than the reader requests in these qualities."""

    stream: str
    side: Side
    peer: NodeId
    qualities: tuple[str, ...]


class Unmatched(Value):
    stream: str
    side: Side
    peer: NodeId


class DeadlineMissed(Value):
    """This key had no new value for longer than the deadline."""

    stream: str
    side: Side
    key: bytes


class Liveliness(Value):
    """A matched writer was silent for longer than the requested time, or is alive again."""

    stream: str
    writer: NodeId
    alive: bool


class LimitReached(Value):
    """The local cache is full. A writer now waits, and a reader accepts no more values."""

    stream: str
    side: Side


class SamplesLost(Value):
    """This reader will never get `count` values from a writer."""

    stream: str
    writer: NodeId
    count: int


class SamplesRejected(Value):
    """The reader dropped `count` best-effort values because its cache was full."""

    stream: str
    writer: NodeId
    count: int


# -- messages --


class Endpoint(Value, tag=False):
    stream: str
    incarnation: int  # random id of the writer or reader
    qos: QoS


class Endpoints(Value, tag="Endpoints"):
    """All writers and readers of the sender."""

    writers: tuple[Endpoint, ...]
    readers: tuple[Endpoint, ...]
    answer: bool = False  # whether the receiver should answer with its own Endpoints


class Data(Value, tag="Data"):
    """The values with numbers from `since` to `last`, without values that were dropped."""

    stream: str
    writer: NodeId
    incarnation: int
    since: int
    last: int
    numbers: tuple[int, ...]
    keys: tuple[bytes, ...]
    values: tuple[bytes, ...]

    @property
    def possible(self) -> bool:
        """Return whether a correct peer could have sent this message."""
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
        """Return the values as samples, without the first `skip`."""
        keys, numbers, values = self.keys, self.every_number, self.values
        if skip:
            numbers, values = numbers[skip:], values[skip:]
        every_key = repeat(keys[0]) if len(keys) == 1 else keys[skip:]
        return list(map(Sample, repeat(self.writer), numbers, every_key, values))


class Beat(Value, tag="Beat"):
    """A writer's heartbeat, with the first and last numbers that it sent to the receiver."""

    stream: str
    incarnation: int
    start: int
    last: int
    stable: int  # all reliable readers have received all values before this number

    @property
    def possible(self) -> bool:
        """Return whether a correct peer could have sent this message."""
        return 1 <= self.start <= NUMBER_MAX and 0 <= self.last < NUMBER_MAX


class Acks(Value, tag="Acks"):
    """The reader has all values before `next`, and requests those from `next` to `until`."""

    stream: str
    incarnation: int
    next: int
    until: int


class Known(Value, tag="Known"):
    """The sender has all values of a suspected writer before `next`."""

    stream: str
    writer: NodeId
    incarnation: int
    next: int  # 0 if it has no values; NOT_READING if the sender does not read this writer
    answer: bool  # whether the receiver should answer with its own Known


StreamMessage = Endpoints | Data | Beat | Acks | Known
StreamRequest = OpenWriter | OpenReader | Write | Took | Feed | CloseWriter | CloseReader
