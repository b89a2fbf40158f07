"""A node's role in a topic's tree."""

from __future__ import annotations

from oncecast.dht.identifiers import Key, key_of
from oncecast.kernel.protocol import NodeId


class Tree:
    """This node's parent and children in one tree.

    Each edge leads nearer to the key, so the tree has no cycle. Only the root, which lies after the
    key, may have children that are nearer to the key than itself.
    """

    __slots__ = ("children", "joined", "key", "parent", "root", "seeking", "topic")

    def __init__(self, topic: str) -> None:
        self.topic, self.key = topic, key_of(topic)
        # Whether this node receives the payloads itself, besides forwarding them.
        self.joined = False
        self.root = False
        self.parent: NodeId | None = None
        self.seeking = False  # whether this node looks for a parent and was not adopted yet
        self.children: dict[NodeId, Key] = {}  # the position of each child

    @property
    def needed(self) -> bool:
        return self.joined or bool(self.children)
