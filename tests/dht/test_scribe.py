"""Test the exact effects of each input to Scribe. NET-5"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from oncecast.dht.events import RangeChanged, Route, Routed
from oncecast.dht.identifiers import BITS, BYTES, Key, key_of
from oncecast.dht.scribe import Scribe
from oncecast.dht.tree_messages import (
    TOPICS_MAX,
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
)
from oncecast.kernel.protocol import Ask, Cancel, Emit, Later, NodeId, Send, Unwatch, Watch

ME, A, B, C = NodeId("me"), NodeId("a"), NodeId("b"), NodeId("c")
T = "topic"
KEY = key_of(T)


def before(steps: int) -> Key:
    """Return the position `steps` before the key."""
    return Key(((int.from_bytes(KEY) - steps) % 2**BITS).to_bytes(BYTES))


HERE, FARTHER, NEARER = before(100), before(200), before(50)


def make(**options: Any) -> Scribe:
    scribe = Scribe(ME, Random(1), **options)
    scribe.observe(RangeChanged(HERE, FARTHER))
    return scribe


def enlist(child: NodeId, at: Key = FARTHER, *, root: bool = False) -> Routed:
    return Routed(KEY, encode(Enlist(T, child, at)), child, root)


def forwarder(**options: Any) -> Scribe:
    """Return a node with parent A and child B. The node is not a member of the topic."""
    scribe = make(**options)
    scribe.observe(enlist(B))
    scribe.receive(A, Adopted(T))
    scribe.drain()
    return scribe


def root() -> Scribe:
    scribe = make()
    scribe.observe(enlist(B, root=True))
    scribe.observe(enlist(C, NEARER, root=True))
    scribe.drain()
    return scribe


MINE = Ask(Route(KEY, encode(Enlist(T, ME, HERE))))


def test_joining_node_enlists_until_it_is_adopted() -> None:
    scribe = make(adopt_within=3.0)
    scribe.request(JoinTree(T))
    assert scribe.drain() == [MINE, Later(3.0, Unadopted(T))]
    scribe.timeout(Unadopted(T))
    assert scribe.drain() == [MINE, Later(3.0, Unadopted(T))]
    scribe.receive(A, Adopted(T))
    assert scribe.drain() == [Watch(A), Cancel(Unadopted(T))]
    scribe.request(JoinTree(T))
    assert scribe.drain() == []


def test_node_on_the_way_adopts_the_child_and_enlists_itself() -> None:
    scribe = make()
    scribe.observe(enlist(B))
    assert scribe.drain() == [Watch(B), Send(B, Adopted(T)), MINE, Later(2.0, Unadopted(T))]
    scribe.observe(enlist(C))
    assert scribe.drain() == [Watch(C), Send(C, Adopted(T))]


def test_root_adopts_every_child_and_has_no_parent() -> None:
    scribe = make()
    scribe.observe(enlist(B, NEARER, root=True))
    assert scribe.drain() == [Cancel(Unadopted(T)), Watch(B), Send(B, Adopted(T))]


def test_child_nearer_to_the_key_is_passed_on() -> None:
    """Otherwise two nodes could be each other's parents."""
    scribe = make()
    scribe.observe(enlist(B, NEARER))
    assert scribe.drain()[0] == Ask(Route(KEY, encode(Enlist(T, B, NEARER))))
    assert scribe.trees == {}


def test_copies_go_down_the_tree_and_are_emitted_only_at_members() -> None:
    scribe = forwarder()
    scribe.receive(A, Copy(T, C, 1, b"x"))
    assert scribe.drain() == [Send(B, Copy(T, C, 1, b"x"))]
    scribe.request(JoinTree(T))
    scribe.receive(A, Copy(T, C, 2, b"y"))
    assert scribe.drain() == [Emit(Multicasted(T, b"y")), Send(B, Copy(T, C, 2, b"y"))]
    scribe.receive(A, Copy(T, C, 2, b"y"))
    assert scribe.drain() == []


def test_copy_from_a_node_other_than_the_parent_is_answered_with_quit() -> None:
    scribe = forwarder()
    scribe.receive(C, Copy(T, C, 1, b"x"))
    scribe.receive(C, Copy("other", C, 1, b"x"))
    assert scribe.drain() == [Send(C, Quit(T)), Send(C, Quit("other"))]


def test_multicast_is_routed_to_the_root_which_spreads_it_once() -> None:
    scribe = root()
    number = scribe.published + 1
    payload = encode(Publication(T, ME, number, b"x"))
    scribe.request(Multicast(T, b"x"))
    assert scribe.drain() == [Ask(Route(KEY, payload))]
    scribe.observe(Routed(KEY, payload, ME, root=False))
    assert scribe.drain() == [Ask(Route(KEY, payload))]
    scribe.observe(Routed(KEY, payload, A, root=True))
    copy = Copy(T, ME, number, b"x")
    assert scribe.drain() == [Cancel(Unadopted(T)), Send(B, copy), Send(C, copy)]
    scribe.observe(Routed(KEY, payload, A, root=True))
    assert scribe.drain() == [Cancel(Unadopted(T))]


def test_publications_from_a_restarted_node_are_not_dropped_as_duplicates() -> None:
    """NET-5: nodes drop the numbers that they have seen."""
    forwards = forwarder()
    for seed in range(2):
        publisher = Scribe(ME, Random(seed))
        publisher.request(Multicast(T, b"x"))
        [ask] = publisher.drain()
        assert isinstance(ask, Ask)
        assert isinstance(ask.request, Route)
        publication = decode(ask.request.payload)
        assert isinstance(publication, Publication)
        copy = Copy(T, publication.origin, publication.number, b"x")
        forwards.receive(A, copy)
        assert forwards.drain() == [Send(B, copy)]


def test_message_routed_by_a_hint_does_not_make_a_node_the_root() -> None:
    """NET-5: the node may not own the key. The child asks again, until a node is certain."""
    hint = Routed(KEY, encode(Enlist(T, C, NEARER)), C, root=False, hint=True)
    scribe = make()
    scribe.observe(hint)
    assert (scribe.drain(), scribe.trees) == ([], {})
    scribe = forwarder()
    scribe.observe(hint)
    assert scribe.drain() == []
    assert (scribe.trees[T].root, scribe.trees[T].parent) == (False, A)


def test_root_stays_root_when_it_is_no_longer_certain_of_its_key() -> None:
    """NET-5"""
    scribe = root()
    scribe.observe(RangeChanged(HERE, None))
    scribe.observe(Routed(KEY, encode(Enlist(T, A, NEARER)), A, root=False, hint=True))
    assert scribe.drain() == [Watch(A), Send(A, Adopted(T))]
    assert scribe.trees[T].root


def test_payload_that_arrives_on_a_hint_is_spread_to_the_children() -> None:
    """NET-5"""
    scribe = forwarder()
    payload = encode(Publication(T, C, 1, b"x"))
    scribe.observe(Routed(KEY, payload, C, root=False, hint=True))
    assert scribe.drain() == [Send(B, Copy(T, C, 1, b"x"))]
    assert not scribe.trees[T].root


def test_leaving_node_prunes_itself_unless_it_has_children() -> None:
    scribe = forwarder()
    scribe.request(JoinTree(T))
    scribe.request(LeaveTree(T))
    assert scribe.drain() == []
    scribe.receive(B, Quit(T))
    assert scribe.drain() == [Cancel(Unadopted(T)), Send(A, Quit(T))]
    assert scribe.trees == {}


def test_node_enlists_again_when_its_parent_is_dead() -> None:
    scribe = forwarder()
    scribe.down(A)
    assert [each for each in scribe.drain() if not isinstance(each, Unwatch)] == [
        MINE,
        Later(2.0, Unadopted(T)),
    ]


def test_dead_child_is_removed() -> None:
    scribe = forwarder()
    scribe.down(B)
    assert scribe.drain() == [Unwatch(B), Cancel(Unadopted(T)), Send(A, Quit(T))]


def test_root_that_loses_the_key_orphans_its_nearer_children() -> None:
    scribe = root()
    scribe.observe(RangeChanged(HERE, before(101)))
    assert scribe.drain() == [Send(C, Orphaned(T)), MINE, Later(2.0, Unadopted(T))]
    assert list(scribe.trees[T].children) == [B]


def test_new_key_owner_becomes_the_root_and_quits_its_parent() -> None:
    scribe = forwarder()
    at = before(-10)
    scribe.observe(RangeChanged(at, HERE))
    assert scribe.drain() == [Send(A, Quit(T)), Cancel(Unadopted(T))]
    assert scribe.trees[T].root


def test_orphan_enlists_again() -> None:
    scribe = forwarder()
    scribe.receive(C, Orphaned(T))
    assert scribe.drain() == []
    scribe.receive(A, Orphaned(T))
    assert scribe.drain() == [MINE, Later(2.0, Unadopted(T))]


def test_heartbeats_repair_one_sided_edges() -> None:
    scribe = forwarder()
    scribe.timeout(PulseDue())
    assert [each for each in scribe.drain() if isinstance(each, Send)] == [
        Send(B, Pulse((T,), ())),
        Send(A, Pulse((), (T,))),
    ]
    scribe.receive(C, Pulse((T,), (T,)))
    assert scribe.drain() == [Send(C, Quit(T)), Send(C, Orphaned(T))]


def test_silent_neighbour_counts_as_dead() -> None:
    scribe = forwarder(heartbeat_every=1.0)
    scribe.now = 2.0
    scribe.receive(B, Pulse((), (T,)))
    scribe.now = 2.6
    scribe.timeout(PulseDue())
    assert Unwatch(A) in scribe.drain()
    assert (scribe.trees[T].parent, list(scribe.trees[T].children)) == (None, [B])


LONG = "x" * 256
NONSENSE: list[ScribeMessage] = [
    Adopted(""),
    Quit(LONG),
    Orphaned("ä" * 128),
    Copy(T, NodeId(LONG), 1, b""),
    Copy(T, A, 0, b""),
    Pulse((T,) * (TOPICS_MAX + 1), ()),
]


@pytest.mark.parametrize("message", NONSENSE, ids=lambda each: type(each).__name__)
def test_invalid_messages_are_dropped_and_counted(message: ScribeMessage) -> None:
    scribe = forwarder()
    scribe.receive(A, message)
    assert (scribe.drain(), scribe.dropped) == ([], 1)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff",
        b"\x91" * 100_000,
        encode(Enlist("", A, HERE)),
        encode(Enlist(T, A, Key(b"short"))),
        encode(Publication(T, A, 0, b"")),
    ],
)
def test_invalid_payloads_are_dropped_and_counted(payload: bytes) -> None:
    assert decode(payload) is None
    scribe = make()
    scribe.observe(Routed(KEY, payload, A, root=True))
    assert (scribe.drain(), scribe.dropped) == ([], 1)


def test_memory_for_trees_children_and_copies_is_bounded() -> None:
    scribe = make(trees_max=2, children_max=2, seen_max=2)
    for number in range(1, 5):
        scribe.observe(enlist(NodeId(f"child {number}")))
        scribe.request(JoinTree(f"topic {number}"))
        scribe.receive(A, Copy(T, A, number, b""))
    assert (len(scribe.trees), len(scribe.trees[T].children), len(scribe.seen)) == (2, 2, 2)
