"""Scribe: a multicast tree for each topic, formed by the routes from its members to the root.

Castro, Druschel, Kermarrec and Rowstron, "Scribe: A large-scale and decentralized application-level
multicast infrastructure", JSAC 2002. The root is the owner of the topic's key. A joining node sends
Enlist towards the root. The first node on the route adopts the joining node and forwards to it.

Needs Chord's Route, Routed and RangeChanged, and links. Serves JoinTree, LeaveTree and Multicast.
Emits Multicasted at nodes that have joined.

Best effort, as in the paper: while a tree is being repaired, a message may not reach all members.
Messages may arrive in any order. The layer above can add offsets to detect gaps.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import ClassVar, assert_never

from oncecast.dht.events import RangeChanged, Route, Routed
from oncecast.dht.identifiers import Key, distance, up_to
from oncecast.dht.messages import FIRST_NUMBER_BITS
from oncecast.dht.status import TreeStatus
from oncecast.dht.tree import Tree
from oncecast.dht.tree_messages import (
    Adopted,
    Copy,
    Enlist,
    JoinTree,
    LeaveTree,
    Multicast,
    Multicasted,
    Orphaned,
    Publication,
    Pulse,
    PulseDue,
    Quit,
    ScribeMessage,
    Unadopted,
    decode,
    encode,
    possible,
)
from oncecast.kernel.protocol import NodeId, Protocol

PATIENCE = 2.5  # number of heartbeat periods after which a silent neighbour counts as dead


class Scribe(Protocol):
    name = "scribe"
    Request: ClassVar = JoinTree | LeaveTree | Multicast
    Message = ScribeMessage
    Observed: ClassVar = Routed | RangeChanged
    Timer: ClassVar = Unadopted | PulseDue

    def __init__(
        self,
        me: NodeId,
        rng: Random,
        *,
        heartbeat_every: float = 2.0,
        adopt_within: float = 2.0,
        trees_max: int = 10_000,
        children_max: int = 10_000,
        seen_max: int = 4096,
    ) -> None:
        super().__init__(me, rng)
        self.heartbeat_every, self.adopt_within = heartbeat_every, adopt_within
        self.trees_max, self.children_max, self.seen_max = trees_max, children_max, seen_max
        self._trees: dict[str, Tree] = {}
        self.ranges: dict[Key, Key | None] = {}  # ranges of our positions, as in RangeChanged
        self.heard: dict[NodeId, float] = {}  # when each neighbour last sent a message
        self.seen: dict[tuple[NodeId, int], None] = {}  # recent copies, by origin and number
        # A restarted node must not reuse numbers that other nodes may have seen.
        self.published = rng.getrandbits(FIRST_NUMBER_BITS)
        self.dropped = 0  # number of messages that were invalid or exceeded a limit

    @property
    def trees(self) -> Mapping[str, TreeStatus]:
        """Return the trees that this node has joined or forwards, by topic."""
        return self._trees

    # -- inputs --

    def start(self) -> None:
        self._pulse_later()

    def request(self, request: JoinTree | LeaveTree | Multicast) -> None:
        match request:
            case JoinTree(topic):
                tree = self._tree(topic)
                if tree is not None and not tree.joined:
                    tree.joined = True
                    self._find_parent(tree)
            case LeaveTree(topic):
                tree = self._trees.get(topic)
                if tree is not None:
                    tree.joined = False
                    self._prune(tree)
            case Multicast(topic, payload):
                self.published += 1
                publication = Publication(topic, self.me, self.published, payload)
                self.ask(Route(Tree(topic).key, encode(publication)))
            case _:
                assert_never(request)

    def observe(self, event: Routed | RangeChanged) -> None:
        match event:
            case Routed(key, payload, _, root, hint):
                match decode(payload):
                    case Enlist() as enlist if hint:
                        self._enlist_on_hint(enlist, key)
                    case Enlist() as enlist:
                        self._enlist(enlist, key, root)
                    case Publication() as publication if root or hint:
                        self._publish(publication, root)
                    case Publication():
                        self.ask(Route(key, payload))
                    case None:
                        self.dropped += 1
            case RangeChanged(at, after):
                self.ranges[at] = after
                for tree in list(self._trees.values()):
                    self._update_root(tree)
            case _:
                assert_never(event)

    def receive(self, sender: NodeId, message: ScribeMessage) -> None:
        if not possible(message):
            self.dropped += 1
            return
        if sender in self.heard:
            self.heard[sender] = self.now
        match message:
            case Copy():
                self._receive_copy(sender, message)
            case Adopted(topic):
                self._adopted(sender, topic)
            case Orphaned(topic):
                tree = self._trees.get(topic)
                if tree is not None and tree.parent == sender:
                    self._seek_parent(tree)
            case Quit(topic):
                tree = self._trees.get(topic)
                if tree is not None and tree.children.pop(sender, None) is not None:
                    self._prune(tree)
            case Pulse():
                self._receive_pulse(sender, message)
            case _:
                assert_never(message)

    def timeout(self, timer: Unadopted | PulseDue) -> None:
        match timer:
            case Unadopted(topic):
                tree = self._trees.get(topic)
                if tree is not None and tree.parent is None and not tree.root:
                    self._seek_parent(tree)
            case PulseDue():
                self._pulse()
            case _:
                assert_never(timer)

    def down(self, peer: NodeId) -> None:
        self._lose(peer)

    # -- parents and children --

    def _tree(self, topic: str) -> Tree | None:
        tree = self._trees.get(topic)
        if tree is None:
            if len(self._trees) >= self.trees_max:
                self.dropped += 1
                return None
            tree = self._trees[topic] = Tree(topic)
        return tree

    def _find_parent(self, tree: Tree) -> None:
        if tree.parent is None and not tree.root and not tree.seeking:
            self._seek_parent(tree)

    def _seek_parent(self, tree: Tree) -> None:
        tree.parent, tree.seeking = None, True
        at = self._nearest_position(tree.key)
        if at is not None:  # otherwise this node is not on the ring yet; the timer will retry
            self.ask(Route(tree.key, encode(Enlist(tree.topic, self.me, at))))
        self.later(self.adopt_within, Unadopted(tree.topic))

    def _nearest_position(self, key: Key) -> Key | None:
        return min(self.ranges, key=lambda at: distance(at, key), default=None)

    def _enlist(self, enlist: Enlist, key: Key, root: bool) -> None:
        tree = self._tree(enlist.topic)
        if tree is None or tree.key != key:
            self.dropped += 1
            return
        if root:
            self._be_root(tree)
        if enlist.child == self.me:
            return
        if root or self._farther(enlist.at, tree):
            self._adopt(tree, enlist)
        else:
            self.ask(Route(key, encode(enlist)))
        if tree.needed:
            self._find_parent(tree)
        else:
            self._prune(tree)

    def _enlist_on_hint(self, enlist: Enlist, key: Key) -> None:
        """Adopt the child if this node is already the root. Otherwise the child will ask again."""
        tree = self._trees.get(enlist.topic)
        if tree is not None and tree.root and tree.key == key and enlist.child != self.me:
            self._adopt(tree, enlist)

    def _farther(self, at: Key, tree: Tree) -> bool:
        """Return whether the position `at` is farther from the key than this node."""
        here = self._nearest_position(tree.key)
        return here is not None and distance(at, tree.key) > distance(here, tree.key)

    def _adopt(self, tree: Tree, enlist: Enlist) -> None:
        if len(tree.children) >= self.children_max:
            self.dropped += 1
            return
        tree.children[enlist.child] = enlist.at
        self._meet(enlist.child)
        self.send(enlist.child, Adopted(tree.topic))

    def _adopted(self, sender: NodeId, topic: str) -> None:
        tree = self._trees.get(topic)
        if tree is not None and tree.parent is None and not tree.root:
            tree.parent, tree.seeking = sender, False
            self._meet(sender)
            self.cancel(Unadopted(topic))
        elif tree is None or tree.parent != sender:
            self.send(sender, Quit(topic))

    def _meet(self, peer: NodeId) -> None:
        self.heard[peer] = self.now
        self.watch(peer)

    def _prune(self, tree: Tree) -> None:
        """Leave a tree in which this node is neither a member nor a forwarder."""
        if not tree.needed and self._trees.pop(tree.topic, None) is not None:
            self.cancel(Unadopted(tree.topic))
            if tree.parent is not None:
                self.send(tree.parent, Quit(tree.topic))

    # -- the root --

    def _be_root(self, tree: Tree) -> None:
        if tree.parent is not None:
            self.send(tree.parent, Quit(tree.topic))
        tree.root, tree.parent, tree.seeking = True, None, False
        self.cancel(Unadopted(tree.topic))

    def _update_root(self, tree: Tree) -> None:
        """Become the root, or cease to be, after one of this node's key ranges has changed."""
        if None in self.ranges.values():
            return  # the ranges are not certain yet
        owned = any(
            after is not None and up_to(after, tree.key, at) for at, after in self.ranges.items()
        )
        if owned and not tree.root:
            self._be_root(tree)
        elif tree.root and not owned:
            tree.root = False
            for child, at in list(tree.children.items()):
                if not self._farther(at, tree):
                    del tree.children[child]
                    self.send(child, Orphaned(tree.topic))
            if tree.needed:
                self._seek_parent(tree)
            else:
                self._prune(tree)

    # -- down the tree --

    def _publish(self, publication: Publication, root: bool) -> None:
        tree = self._trees.get(publication.topic)
        if tree is not None:
            if root:
                self._be_root(tree)
            origin, number = publication.origin, publication.number
            self._spread(tree, Copy(tree.topic, origin, number, publication.payload))

    def _receive_copy(self, sender: NodeId, copy: Copy) -> None:
        tree = self._trees.get(copy.topic)
        if tree is None or tree.root or tree.parent not in (sender, None):
            self.send(sender, Quit(copy.topic))
        else:
            self._spread(tree, copy)

    def _spread(self, tree: Tree, copy: Copy) -> None:
        id = (copy.origin, copy.number)
        if id in self.seen:
            return
        self.seen[id] = None
        if len(self.seen) > self.seen_max:
            del self.seen[next(iter(self.seen))]
        if tree.joined:
            self.emit(Multicasted(copy.topic, copy.payload))
        for child in tree.children:
            self.send(child, copy)

    # -- heartbeats: neighbours compare their views of the tree --

    def _pulse_later(self) -> None:
        self.later(self.heartbeat_every * self.rng.uniform(0.9, 1.1), PulseDue())

    def _pulse(self) -> None:
        self._pulse_later()
        overdue = self.now - PATIENCE * self.heartbeat_every
        for peer in [peer for peer, heard in self.heard.items() if heard < overdue]:
            self._lose(peer)
        feeds: dict[NodeId, list[str]] = {}
        fed: dict[NodeId, list[str]] = {}
        for tree in self._trees.values():
            for child in tree.children:
                feeds.setdefault(child, []).append(tree.topic)
            if tree.parent is not None:
                fed.setdefault(tree.parent, []).append(tree.topic)
        for peer in list(self.heard):
            if peer in feeds or peer in fed:
                self.send(peer, Pulse(tuple(feeds.get(peer, ())), tuple(fed.get(peer, ()))))
            else:
                del self.heard[peer]
                self.unwatch(peer)

    def _receive_pulse(self, sender: NodeId, pulse: Pulse) -> None:
        for topic in pulse.feeds:
            self._adopted(sender, topic)
        for topic in pulse.fed:
            tree = self._trees.get(topic)
            if tree is None or sender not in tree.children:
                self.send(sender, Orphaned(topic))

    def _lose(self, peer: NodeId) -> None:
        self.heard.pop(peer, None)
        self.unwatch(peer)
        for tree in list(self._trees.values()):
            tree.children.pop(peer, None)
            if not tree.needed:
                self._prune(tree)
            elif tree.parent == peer:
                self._seek_parent(tree)
