"""The viewer shows the ring as seen by a process, and refuses group requests."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncecast.dht.identifiers import Key, key_of
from oncecast.dht.tree import Tree
from oncecast.kernel.protocol import Ask, NodeId, Send
from oncecast.replication.events import HandOver
from oncecast.ring.events import GroupFacts, Leave
from oncecast.ring.roster import Card
from oncecast.ring.viewer import Viewer
from oncecast.wire.errors import InvalidArgument
from oncecast.wire.frames import (
    Answer,
    ArcView,
    Govern,
    LeaveRing,
    LookGroup,
    LookRing,
    ProcessView,
    RingView,
    TreeView,
)

ME, ANN = NodeId("me:1"), NodeId("client/ann")
LEADER, PARENT, CHILD = NodeId("me:1/a"), NodeId("b:1"), NodeId("c:1")
FIRST, SECOND = sorted(("a", "b"), key=key_of)  # in ring order
LOW = key_of("low")
OWNER = GroupFacts(FIRST, LOW, LEADER, (LEADER,), 9)


class World:
    """A stand-in for the roster, Scribe and the relay."""

    def __init__(self) -> None:
        groups = [
            GroupFacts(SECOND, None, NodeId(""), (), 3),
            GroupFacts("gone", None, NodeId(""), (), 5, retired=True),
            OWNER,
        ]
        cards = [Card(ME, 1, "1.0", name, (), (name,)) for name in (SECOND, FIRST)]
        self.groups = {facts.group: facts for facts in groups}
        self.cards = {card.group: card for card in cards}
        self.trees: dict[str, Tree] = {}
        self.owners: dict[Key, GroupFacts] = {}
        self.flows = SimpleNamespace(of_topic=lambda topic: [topic, topic])

    def owner(self, key: Key) -> GroupFacts | None:
        return self.owners.get(key)

    def look(self, look: Any) -> list[Any]:
        me = cast("Any", self)
        viewer = Viewer(ME, Random(1), roster=me, scribe=me, relay=me)
        viewer.receive(ANN, look)
        return viewer.drain()


def view(tree: TreeView | None = None) -> Send:
    processes = (
        ProcessView(ME, "1.0", FIRST, key_of(FIRST).hex(), (FIRST,)),
        ProcessView(ME, "1.0", SECOND, key_of(SECOND).hex(), (SECOND,)),
    )
    groups = (
        ArcView(FIRST, LOW.hex(), key_of(FIRST).hex(), LEADER, (LEADER,), 9, False),
        ArcView(SECOND, "", key_of(SECOND).hex(), "", (), 3, False),
    )
    return Send(ANN, RingView(7, ME, processes, groups, tree))


def test_processes_and_groups_are_shown_in_ring_order() -> None:
    """REP-5"""
    assert World().look(LookRing(7)) == [view()]


def test_leaving_process_still_shows_the_ring() -> None:
    """REP-6"""
    assert World().look(LeaveRing(7)) == [Ask(Leave()), view()]


def test_process_outside_a_tree_shows_its_readers() -> None:
    """NET-5"""
    assert World().look(LookRing(7, "t")) == [view(TreeView("t", "", False, "", (), 2))]


@pytest.mark.parametrize("parent", [None, PARENT])
def test_process_shows_its_position_in_a_tree(parent: NodeId | None) -> None:
    """NET-5"""
    world = World()
    world.owners[key_of("t")] = OWNER
    tree = world.trees["t"] = Tree("t")
    tree.root, tree.parent = parent is None, parent
    tree.children[CHILD] = key_of("child")
    shown = TreeView("t", FIRST, parent is None, parent or "", (CHILD,), 2)
    assert world.look(LookRing(7, "t")) == [view(shown)]


@pytest.mark.parametrize("question", [LookGroup(7), Govern(7, HandOver(ME))])
def test_ring_process_refuses_group_requests(question: Any) -> None:
    """SVC-7"""
    fact = "me:1 is a ring process, not a replica; ask a replica of the group"
    assert World().look(question) == [Send(ANN, Answer(7, InvalidArgument(fact)))]
