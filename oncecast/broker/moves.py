"""Commands by which arcs of the ring change hands; `estate` tells in which order."""

from __future__ import annotations

from oncecast.broker.holdings import PeerGroup
from oncecast.dht.identifiers import Key
from oncecast.kernel.protocol import Value
from oncecast.wire.commands import Command, Put, Stage


class Found(Value, tag="Found"):
    """This group is `group`: the first of a ring, which owns all, or one that has to claim."""

    group: str
    first: bool


class Retire(Value, tag="Retire"):
    """This group takes nothing more, and gives all it has to the one after it."""


class Claim(Value, tag="Claim"):
    """Take from `giver` what it may give to this group."""

    move: str
    exporter: PeerGroup


class Import(Value, tag="Import"):
    """A batch of the giver's: an entry of its index, and the command that has the messages."""

    move: str
    topic: str
    topic_id: int  # of the topic
    offset: int
    count: int
    size: int
    time: int
    skip: int
    sequence: int
    command: Put | Stage


class Adopt(Value, tag="Adopt"):
    """What was claimed is here: `low` is its low end and `until` its high one; `rows` are topics,
    producers and subscriptions as the giver had them at its Freeze, and its counters.

    `clock` is the trusted time of the giver, and `newest` its last stamp, which may be disputed.
    A command of an older version has the last stamp as its `clock`, and no `newest`.
    """

    move: str
    low: Key
    until: Key
    clock: int
    last_topic_id: int
    last_epoch: int
    rows: bytes
    newest: int = 0


class Abandon(Value, tag="Abandon"):
    move: str


class Finish(Value, tag="Finish"):
    """The giver has released what was adopted."""

    move: str


class Freeze(Value, tag="Freeze"):
    """Serve no more what lies up to `until`: `taker` will."""

    move: str
    until: Key
    importer: PeerGroup


class Thaw(Value, tag="Thaw"):
    """The taker has abandoned its claim."""

    move: str


class Release(Value, tag="Release"):
    """The taker has adopted what was frozen."""

    move: str


Move = Found | Retire | Claim | Import | Adopt | Abandon | Finish | Freeze | Thaw | Release
AnyCommand = Command | Move
