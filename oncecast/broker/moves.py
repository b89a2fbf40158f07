"""Commands that move arcs of the ring between groups. See `holdings` for their order."""

from __future__ import annotations

from oncecast.broker.holdings import PeerGroup
from oncecast.dht.identifiers import Key
from oncecast.kernel.protocol import Value
from oncecast.wire.commands import Command, Put, Stage

NUMBER_MAX = 1 << 62


class Found(Value, tag="Found"):
    """Name this group. The first group of a ring owns all topics; later groups claim their arcs."""

    group: str
    first: bool


class Retire(Value, tag="Retire"):
    """Stop claiming parts, and export everything to the next group on the ring."""


class Claim(Value, tag="Claim"):
    """Start importing from `exporter`."""

    move: str
    exporter: PeerGroup


class Import(Value, tag="Import"):
    """Store a copy of a batch: its entry in the exporter's index, and its command."""

    move: str
    topic: str
    topic_id: int
    offset: int
    count: int
    size: int
    time: int
    skip: int
    sequence: int
    command: Put | Stage

    @property
    def possible(self) -> bool:
        """Return whether the numbers are in range.

        A staged part has offset -1. So has a delayed batch; its `sequence` is its number.
        """
        numbers = (self.topic_id, self.count, self.size, self.time, self.skip)
        signed = (self.offset, self.sequence)
        return min(numbers) >= 0 and min(signed) >= -1 and max(*numbers, *signed) < NUMBER_MAX


class Adopt(Value, tag="Adopt"):
    """Take ownership of the part from `low` to `until`.

    `rows` contains the part's topics, producers and subscriptions as of the Freeze.

    `clock` is the exporter's trusted time. `newest` is its last stamp, which may be disputed. In a
    command from an older version, `clock` is the last stamp and `newest` is 0.

    `level` is the exporter's feature level. A group at a lower level does not adopt the part.
    """

    move: str
    low: Key
    until: Key
    clock: int
    last_topic_id: int
    last_epoch: int
    rows: bytes
    newest: int = 0
    level: int = 1


class Abandon(Value, tag="Abandon"):
    move: str


class Finish(Value, tag="Finish"):
    """End the move: the exporter has released the part."""

    move: str


class Freeze(Value, tag="Freeze"):
    """Stop serving the part up to `until`, which is moving to `importer`."""

    move: str
    until: Key
    importer: PeerGroup


class Thaw(Value, tag="Thaw"):
    """Serve the frozen part again: the importer has abandoned its claim."""

    move: str


class Release(Value, tag="Release"):
    """Drop the frozen part: the importer has adopted it."""

    move: str


class ShareAccess(Value, tag="ShareAccess"):
    """Replace users, tokens and rules with another group's, if those are newer."""

    rows: bytes


Move = (
    Found
    | Retire
    | Claim
    | Import
    | Adopt
    | Abandon
    | Finish
    | Freeze
    | Thaw
    | Release
    | ShareAccess
)
AnyCommand = Command | Move
