"""What streams are asked for, what they tell, and what their nodes say to each other.

OpenWriter, OpenReader, Write, CloseWriter, CloseReader ↓
Arrived, Written, NotWritten, Matched, Mismatched, Unmatched, DeadlineMissed, Liveliness ↑
Endpoints, Data, Gaps, Beat, Acks, Known ↔
"""

from __future__ import annotations

from typing import Literal

from oncecast.kernel.protocol import NodeId, Value
from oncecast.qos.policies import QoS

NUMBERS_MAX = 256  # named in one message
DATA_MAX = 64  # values in one message
STREAMS_MAX = 1000  # of a node


# -- requests --


class OpenWriter(Value):
    stream: str
    qos: QoS


class OpenReader(Value):
    stream: str
    qos: QoS


class Write(Value):
    """Answered by Written, at once or when there is room; or by NotWritten."""

    stream: str
    ticket: int
    key: bytes
    value: bytes


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
    stream: str
    ticket: int
    number: int


class NotWritten(Value):
    """There was no room for it in time: readers that must have all lag behind."""

    stream: str
    ticket: int
    why: str


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


# -- messages --


class Endpoint(Value, tag=False):
    stream: str
    life: int  # no other writer or reader of this stream has it
    qos: QoS


class Endpoints(Value):
    """All that I have opened."""

    writers: tuple[Endpoint, ...]
    readers: tuple[Endpoint, ...]


class Item(Value, tag=False):
    number: int
    key: bytes
    value: bytes


class Data(Value):
    """Values of the writer with this life, which `writer` runs; `start` is your first."""

    stream: str
    writer: NodeId
    life: int
    start: int
    items: tuple[Item, ...]


class Gaps(Value):
    """These numbers are of no more use: others came after them."""

    stream: str
    writer: NodeId
    life: int
    numbers: tuple[int, ...]


class Beat(Value):
    """I am alive; your first number is `start`, the last so far is `last`. All readers have what
    comes before `stable`."""

    stream: str
    life: int
    start: int
    last: int
    stable: int


class Acks(Value):
    """I have all before `next`, but lack these."""

    stream: str
    life: int
    next: int
    lacking: tuple[int, ...]


class Known(Value):
    """Of a writer that I suspect I have all before `next`; what do you have?"""

    stream: str
    writer: NodeId
    life: int
    next: int


StreamMessage = Endpoints | Data | Gaps | Beat | Acks | Known
