"""Requests, events, messages and timers of the topic trees."""

from __future__ import annotations

import msgspec

from oncecast.dht.identifiers import BYTES, NODE_LENGTH_MAX, Key
from oncecast.dht.messages import NUMBER_MAX
from oncecast.kernel.protocol import NodeId, Value

TOPIC_BYTES_MAX = 255


TOPICS_MAX = 10_000  # maximum topics per message


class JoinTree(Value):
    """Request: receive messages multicast on `topic`."""

    topic: str


class LeaveTree(Value):
    topic: str


class Multicast(Value):
    """Request: send a payload to all nodes that have joined the tree of `topic`."""

    topic: str
    payload: bytes


class Multicasted(Value):
    """A payload has arrived on a topic that this node has joined."""

    topic: str
    payload: bytes


class Enlist(Value):
    """Travel towards the root until a node adopts the child at position `at`."""

    topic: str
    child: NodeId
    at: Key


class Publication(Value):
    """Carry a payload to the root, which sends it down the tree."""

    topic: str
    origin: NodeId
    number: int
    payload: bytes


class Adopted(Value, tag="Adopted"):
    """Tell a node that it is now a child of the sender."""

    topic: str


class Orphaned(Value, tag="Orphaned"):
    """Tell a node that it is not the sender's child and must find another parent."""

    topic: str


class Quit(Value, tag="Quit"):
    """Tell a node that it is not the sender's parent."""

    topic: str


class Copy(Value, tag="Copy"):
    """Send a payload down the tree."""

    topic: str
    origin: NodeId
    number: int
    payload: bytes


class Pulse(Value, tag="Pulse"):
    """A heartbeat. The sender is the parent for the topics in `feeds` and a child in `fed`."""

    feeds: tuple[str, ...]
    fed: tuple[str, ...]


ScribeMessage = Adopted | Orphaned | Quit | Copy | Pulse


encode = msgspec.msgpack.Encoder().encode


_decode = msgspec.msgpack.Decoder(Enlist | Publication).decode


def decode(payload: bytes) -> Enlist | Publication | None:
    """Return the routed value, or None if the payload is invalid."""
    try:
        value: Enlist | Publication = _decode(payload)
    except (ValueError, RecursionError):
        return None
    if not topic_possible(value.topic):
        return None
    if isinstance(value, Enlist):
        return value if len(value.at) == BYTES and node_possible(value.child) else None
    return value if node_possible(value.origin) and 0 < value.number < NUMBER_MAX else None


def possible(message: ScribeMessage) -> bool:
    """Return whether an honest node could have sent `message`."""
    if isinstance(message, Pulse):
        topics = (*message.feeds, *message.fed)
        return len(topics) <= TOPICS_MAX and all(topic_possible(topic) for topic in topics)
    if isinstance(message, Copy) and not (
        node_possible(message.origin) and 0 < message.number < NUMBER_MAX
    ):
        return False
    return topic_possible(message.topic)


def topic_possible(topic: str) -> bool:
    return 0 < len(topic) <= TOPIC_BYTES_MAX and len(topic.encode()) <= TOPIC_BYTES_MAX


def node_possible(node: NodeId) -> bool:
    return 0 < len(node) <= NODE_LENGTH_MAX


class Unadopted(Value):
    """Timer: no node has adopted this node yet."""

    topic: str


class PulseDue(Value):
    """Timer: send heartbeats and drop silent neighbours."""
