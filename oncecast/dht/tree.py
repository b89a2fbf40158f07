"""A node's part in the tree of one topic, and what nodes of a tree say to each other."""

from __future__ import annotations

import msgspec

from oncecast.dht.identifiers import BYTES, NODE_LENGTH_MAX, Key, key_of
from oncecast.dht.messages import NUMBER_MAX
from oncecast.kernel.protocol import NodeId, Value

TOPIC_BYTES_MAX = 255
TOPICS_MAX = 10_000  # in one message


class JoinTree(Value):
    """Request: have what is multicast on `topic`."""

    topic: str


class LeaveTree(Value):
    topic: str


class Multicast(Value):
    """Request: to all nodes that have joined the tree of `topic`."""

    topic: str
    payload: bytes


class Multicasted(Value):
    """A payload has come, and this node has joined the tree of its topic."""

    topic: str
    payload: bytes


class Enlist(Value):
    """Routed towards the root until somebody adopts the child, which is at this position."""

    topic: str
    child: NodeId
    at: Key


class Publication(Value):
    """Routed to the root, which spreads it."""

    topic: str
    origin: NodeId
    number: int
    payload: bytes


class Adopted(Value, tag="Adopted"):
    """You are a child of mine."""

    topic: str


class Orphaned(Value, tag="Orphaned"):
    """You are none any more: find another parent."""

    topic: str


class Quit(Value, tag="Quit"):
    """I am no child of yours."""

    topic: str


class Copy(Value, tag="Copy"):
    """What comes down the tree."""

    topic: str
    origin: NodeId
    number: int
    payload: bytes


class Pulse(Value, tag="Pulse"):
    """I am alive; `feeds`: topics on which you are my child, `fed`: on which I am yours."""

    feeds: tuple[str, ...]
    fed: tuple[str, ...]


ScribeMessage = Adopted | Orphaned | Quit | Copy | Pulse

encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Enlist | Publication).decode


def decode(payload: bytes) -> Enlist | Publication | None:
    """What was routed; None if it is not ours, or makes no sense."""
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


class Tree:
    """Who feeds us, and whom we feed. An edge always leads nearer to the key, so none goes round;
    only the root, which lies beyond the key, may have children that are nearer than itself."""

    __slots__ = ("children", "joined", "key", "parent", "root", "seeking", "topic")

    def __init__(self, topic: str) -> None:
        self.topic, self.key = topic, key_of(topic)
        self.joined = False  # what comes is for us, and not only for our children
        self.root = False
        self.parent: NodeId | None = None
        self.seeking = False  # a parent
        self.children: dict[NodeId, Key] = {}  # with their positions

    @property
    def needed(self) -> bool:
        return self.joined or bool(self.children)
