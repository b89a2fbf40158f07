"""Test the exact effects of each input to Chord. NET-4"""

from __future__ import annotations

from random import Random

import pytest

from oncecast.dht.chord import Chord
from oncecast.dht.events import FindRoot, RangeChanged, RootFound, Route, Routed
from oncecast.dht.identifiers import Key, Position
from oncecast.dht.messages import (
    NUMBER_MAX,
    POSITIONS_MAX,
    Again,
    ChordMessage,
    Confirm,
    Found,
    Hop,
    Hopped,
    Hurry,
    Locate,
    Near,
    Nearer,
    Notify,
    Probe,
    Report,
    Silent,
    Stabilize,
    Unsure,
)
from oncecast.kernel.protocol import Cancel, Effect, Emit, Later, NodeId, Send, Unwatch, Watch
from tests.dht.rings import Dice, chord_at, k, only, p


def called(effects: list[Effect]) -> list[Effect]:
    """Return the effects without timers."""
    return [each for each in effects if not isinstance(each, Later | Cancel)]


# -- stabilize --


def test_stabilize_asks_the_head_of_the_successor_list() -> None:
    chord = chord_at(0x10, (0x20, 0x30))
    chord.stabilization.stabilize(only(chord))
    assert chord.drain() == [Send(p(0x20).node, Probe(k(0x20), 1)), Later(0.5, Silent(1))]


def test_report_from_the_head_replaces_the_successor_list_and_notifies_the_head() -> None:
    chord = chord_at(0x10, (0x20, 0x30, 0x40))
    chord.stabilization.stabilize(only(chord))
    chord.drain()
    chord.receive(p(0x20).node, Report(1, p(0x10), (p(0x35), p(0x50), p(0x60))))
    assert chord.drain() == [Cancel(Silent(1)), Send(p(0x20).node, Notify(k(0x20), p(0x10)))]
    assert only(chord).successors == (p(0x20), p(0x35), p(0x50))


def test_nearer_successor_is_followed_only_after_it_answers() -> None:
    chord = chord_at(0x10, (0x20, 0x30))
    chord.stabilization.stabilize(only(chord))
    chord.drain()
    chord.receive(p(0x20).node, Report(1, p(0x18), (p(0x30),)))
    assert called(chord.drain()) == [Send(p(0x18).node, Probe(k(0x18), 2))]
    assert only(chord).successors == (p(0x20), p(0x30))
    chord.receive(p(0x18).node, Report(2, p(0x08), (p(0x20), p(0x30))))
    assert called(chord.drain()) == [Send(p(0x18).node, Notify(k(0x18), p(0x10)))]
    assert only(chord).successors == (p(0x18), p(0x20), p(0x30))


def test_silent_nearer_successor_is_not_followed() -> None:
    chord = chord_at(0x10, (0x20, 0x30))
    chord.stabilization.stabilize(only(chord))
    chord.receive(p(0x20).node, Report(1, p(0x18), (p(0x30),)))
    chord.drain()
    chord.timeout(Silent(2))
    assert chord.drain() == [Send(p(0x20).node, Notify(k(0x20), p(0x10)))]
    assert only(chord).successors == (p(0x20), p(0x30))


def test_dead_head_is_dropped_and_the_next_successor_is_asked() -> None:
    chord = chord_at(0x10, (0x20, 0x30))
    chord.stabilization.stabilize(only(chord))
    chord.drain()
    chord.timeout(Silent(1))
    assert called(chord.drain()) == [Send(p(0x30).node, Probe(k(0x30), 2))]
    assert only(chord).successors == (p(0x30),)


def test_ring_position_runs_one_operation_at_a_time() -> None:
    chord = chord_at(0x10, (0x20,), 0x05)
    chord.stabilization.stabilize(only(chord))
    chord.drain()
    chord.stabilization.stabilize(only(chord))
    chord.receive(p(0x08).node, Notify(k(0x10), p(0x08)))
    assert chord.drain() == []
    chord.receive(p(0x20).node, Report(1, p(0x10), ()))
    assert only(chord).predecessor == p(0x08)


def test_lone_member_follows_a_node_that_notifies_it() -> None:
    chord = chord_at(0x10, ())
    chord.receive(p(0x80).node, Notify(k(0x10), p(0x80)))
    assert called(chord.drain()) == [
        Emit(RangeChanged(k(0x10), k(0x80))),
        Send(p(0x80).node, Probe(k(0x80), 1)),
    ]
    chord.receive(p(0x80).node, Report(1, None, (p(0x10),)))
    assert only(chord).successors == (p(0x80),)


def test_successor_list_ends_before_it_wraps_around_the_ring() -> None:
    chord = chord_at(0x10, (0x20,))
    chord.stabilization.stabilize(only(chord))
    chord.receive(p(0x20).node, Report(1, p(0x10), (p(0x80), p(0x10), p(0x20))))
    assert only(chord).successors == (p(0x20), p(0x80))


# -- rectify --


def test_nearer_predecessor_is_adopted_and_learns_about_the_old_one() -> None:
    chord = chord_at(0x10, (0x20,), 0x05)
    chord.receive(p(0x08).node, Notify(k(0x10), p(0x08)))
    assert chord.drain() == [
        Send(p(0x08).node, Notify(k(0x08), p(0x05))),
        Emit(RangeChanged(k(0x10), k(0x08))),
    ]


def test_farther_predecessor_is_adopted_only_if_the_old_one_is_dead() -> None:
    chord = chord_at(0x10, (0x20,), 0x08)
    chord.receive(p(0x05).node, Notify(k(0x10), p(0x05)))
    assert called(chord.drain()) == [Send(p(0x08).node, Probe(k(0x08), 1))]
    chord.receive(p(0x08).node, Report(1, p(0x05), (p(0x10),)))
    assert only(chord).predecessor == p(0x08)
    chord.receive(p(0x05).node, Notify(k(0x10), p(0x05)))
    chord.drain()
    chord.timeout(Silent(2))
    assert chord.drain() == [Emit(RangeChanged(k(0x10), k(0x05)))]


# -- join --


def test_joining_node_copies_its_predecessors_successor_list() -> None:
    me, contact = NodeId("joiner"), p(0x20).node
    chord = Chord(me, Dice(1), contacts=[me, contact], successors_max=3)
    at = only(chord).position.id
    chord.start()
    assert called(chord.drain()) == [Send(contact, Locate(at, 2, (), itself=True))]
    before, head, after = (
        Position(at_step(at, step), NodeId(f"near {step}")) for step in (-1, 1, 2)
    )
    chord.receive(contact, Near(2, before, (head, after)))
    effects = called(chord.drain())
    assert effects[:2] == [
        Emit(RangeChanged(at, None)),  # it owns no keys until its successor knows it
        Send(head.node, Probe(head.id, 3)),
    ]
    assert only(chord).successors == (head, after)
    assert only(chord).predecessor == before
    chord.receive(head.node, Report(3, Position(at, me), (after,)))
    assert Emit(RangeChanged(at, before.id)) in chord.drain()


def at_step(id: Key, step: int) -> Key:
    return Key((int.from_bytes(id) + step).to_bytes(len(id)))


def test_node_waits_for_a_position_held_by_another_node() -> None:
    chord = Chord(NodeId("joiner"), Dice(1), contacts=[p(0x20).node], stabilize_every=2.0)
    at = only(chord).position.id
    chord.start()
    chord.drain()
    chord.receive(p(0x20).node, Near(2, p(0x20), (Position(at, NodeId("older")),)))
    assert chord.drain() == [Cancel(Silent(2)), Later(2.0, Stabilize(at))]
    assert not only(chord).joined


def test_silent_contact_is_skipped_and_tried_again_later() -> None:
    one, two = p(0x20).node, p(0x30).node
    chord = Chord(NodeId("joiner"), Dice(1), contacts=[one, two])
    at = only(chord).position.id
    chord.start()
    chord.drain()
    chord.timeout(Silent(2))
    assert called(chord.drain()) == [Send(two, Locate(at, 3, (one,), itself=True))]
    chord.timeout(Silent(3))
    assert chord.drain() == [Later(0.5, Again(1))]
    chord.timeout(Again(1))
    assert called(chord.drain()) == [Send(one, Locate(at, 4, (), itself=True))]


def test_new_member_owns_no_keys_until_its_successor_knows_it() -> None:
    chord = chord_at(0x10, (0x20,), 0x05, settled=False)
    chord.receive(NodeId("x"), Confirm(k(0x08), k(0x10), 7, (), k(0x05)))
    assert chord.drain() == [Send(NodeId("x"), Unsure(7))]
    chord.stabilization.stabilize(only(chord))
    chord.drain()
    chord.receive(p(0x20).node, Report(1, p(0x10), ()))
    assert called(chord.drain()) == [
        Send(p(0x05).node, Hurry(k(0x05))),
        Send(p(0x20).node, Notify(k(0x20), p(0x10))),
        Emit(RangeChanged(k(0x10), k(0x05))),
    ]
    chord.receive(NodeId("x"), Confirm(k(0x08), k(0x10), 8, (), k(0x05)))
    assert chord.drain() == [Send(NodeId("x"), Found(8))]


def test_hurry_makes_a_member_stabilize() -> None:
    chord = chord_at(0x10, (0x20,), 0x05)
    chord.receive(NodeId("x"), Hurry(k(0x11)))
    assert chord.drain() == []
    chord.receive(NodeId("x"), Hurry(k(0x10)))
    assert called(chord.drain()) == [Send(p(0x20).node, Probe(k(0x20), 1))]


# -- lookups --


def test_lookup_approaches_the_key_and_asks_the_owner_last() -> None:
    chord = chord_at(0x10, (0x20,), 0x05, successors_max=1)
    only(chord).set_finger(254, p(0x60))
    key = k(0x75)
    chord.request(FindRoot(key))
    assert called(chord.drain()) == [Send(p(0x60).node, Locate(key, 2, (), itself=False))]
    chord.receive(p(0x60).node, Nearer(2, (p(0x70), p(0x68))))
    assert called(chord.drain()) == [Send(p(0x70).node, Locate(key, 3, (), itself=False))]
    chord.receive(p(0x70).node, Near(3, p(0x70), (p(0x78), p(0x80))))
    assert called(chord.drain()) == [Send(p(0x78).node, Confirm(key, k(0x78), 4, (), k(0x70)))]
    chord.receive(p(0x78).node, Found(4))
    assert called(chord.drain()) == [Emit(RootFound(key, p(0x78).node, 2, 0))]
    assert (chord.status.lookups, chord.status.calls) == (0, {})


def test_lookup_avoids_dead_nodes_and_asks_the_nearest_live_node_again() -> None:
    chord = chord_at(0x10, (0x60,), 0x05, successors_max=1)
    key = k(0x75)
    chord.request(FindRoot(key))
    chord.receive(p(0x60).node, Nearer(2, (p(0x70),)))
    chord.drain()
    chord.timeout(Silent(3))
    dead = (p(0x70).node,)
    assert called(chord.drain()) == [Send(p(0x60).node, Locate(key, 4, dead, itself=False))]
    chord.receive(p(0x60).node, Near(4, p(0x60), (p(0x70), p(0x78))))
    assert called(chord.drain()) == [Send(p(0x78).node, Confirm(key, k(0x78), 5, dead, k(0x60)))]
    chord.receive(p(0x78).node, Unsure(5))
    assert chord.drain() == [Cancel(Silent(5)), Later(0.1, Again(1))]
    chord.timeout(Again(1))
    assert called(chord.drain()) == [Send(p(0x60).node, Locate(key, 6, (), itself=True))]
    chord.receive(p(0x60).node, Near(6, p(0x60), (p(0x78),)))
    assert called(chord.drain()) == [Send(p(0x78).node, Confirm(key, k(0x78), 7, (), k(0x60)))]
    chord.receive(p(0x78).node, Found(7))
    assert called(chord.drain()) == [Emit(RootFound(key, p(0x78).node, 1, 1, 1))]


def test_unsure_owner_is_asked_again_after_growing_delays() -> None:
    chord = chord_at(0x10, (0x20,), 0x05)
    chord.request(FindRoot(k(0x15)))
    waits = []
    for _ in range(1100):  # the delay must stay bounded
        call = max(chord.status.calls)  # the owner is asked last
        chord.receive(p(0x20).node, Unsure(call))
        waits += [each.delay for each in chord.drain() if isinstance(each, Later)][-1:]
        chord.timeout(Again(1))
    assert waits[:5] + waits[-1:] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def turn(chord: Chord, now: float) -> None:
    """Let the member stabilize once, and discard the effects."""
    chord.now = now
    chord.timeout(Stabilize(only(chord).position.id))
    chord.drain()


def test_member_without_a_predecessor_answers_with_a_hint_after_a_while() -> None:
    """NET-4: otherwise a lookup of the keys before it would never end."""
    chord = chord_at(0x10, (0x20,), 0x08)
    chord.down(p(0x08).node)
    ask = Confirm(k(0x09), k(0x10), 1, (), k(0x08))
    hop = Hop(k(0x09), b"x", 2, k(0x08))
    turn(chord, 4.0)
    chord.receive(NodeId("x"), ask)
    assert chord.drain() == [Send(NodeId("x"), Unsure(1))]
    turn(chord, 4.1)
    chord.receive(NodeId("x"), ask)
    assert chord.drain() == [Send(NodeId("x"), Found(1, certain=False))]
    chord.receive(NodeId("x"), hop)
    assert chord.drain() == [
        Send(NodeId("x"), Hopped(2)),
        Emit(Routed(k(0x09), b"x", NodeId("x"), root=False, hint=True)),
    ]
    # It gives no hint for keys before the predecessor that the caller names.
    chord.receive(NodeId("x"), Confirm(k(0x07), k(0x10), 3, (), k(0x08)))
    assert chord.drain() == [Send(NodeId("x"), Unsure(3))]


def test_member_not_recognized_by_its_successor_answers_with_a_hint() -> None:
    """NET-4: another member may own the same keys."""
    chord = chord_at(0x10, (0x20,), 0x08)
    chord.stabilization.stabilize(only(chord))
    chord.receive(p(0x20).node, Report(1, p(0x18), ()))
    chord.drain()
    chord.timeout(Silent(2))  # the link to 0x18 is cut
    assert Emit(RangeChanged(k(0x10), None)) in chord.drain()
    chord.receive(NodeId("x"), Confirm(k(0x09), k(0x10), 1, (), k(0x08)))
    chord.request(FindRoot(k(0x09)))
    chord.request(Route(k(0x09), b"x"))
    assert chord.drain() == [
        Send(NodeId("x"), Found(1, certain=False)),
        Emit(RootFound(k(0x09), p(0x10).node, 0, 0, certain=False)),
        Emit(Routed(k(0x09), b"x", p(0x10).node, root=False, hint=True)),
    ]
    chord.stabilization.stabilize(only(chord))
    chord.receive(p(0x20).node, Report(4, p(0x10), ()))
    assert Emit(RangeChanged(k(0x10), k(0x08))) in chord.drain()
    chord.request(FindRoot(k(0x09)))
    assert chord.drain() == [Emit(RootFound(k(0x09), p(0x10).node, 0, 0))]


def test_member_with_a_silent_predecessor_answers_with_a_hint() -> None:
    """NET-4: without links, only its silence shows that it is dead."""
    chord = chord_at(0x10, (0x20,), 0x08)
    ask = Confirm(k(0x09), k(0x10), 1, (), k(0x08))
    chord.now = 3.0
    chord.receive(p(0x08).node, Notify(k(0x10), p(0x08)))
    turn(chord, 7.0)
    chord.receive(NodeId("x"), ask)
    assert chord.drain() == [Send(NodeId("x"), Found(1))]
    turn(chord, 7.1)
    chord.receive(NodeId("x"), ask)
    assert chord.drain() == [Send(NodeId("x"), Found(1, certain=False))]
    chord.receive(p(0x08).node, Notify(k(0x10), p(0x08)))
    chord.receive(NodeId("x"), ask)
    assert chord.drain() == [
        Emit(RangeChanged(k(0x10), k(0x08))),
        Send(NodeId("x"), Found(1)),
    ]


def test_owner_names_a_nearer_member() -> None:
    chord = chord_at(0x10, (0x20,), 0x08)
    chord.receive(NodeId("x"), Confirm(k(0x06), k(0x10), 1, (), k(0x01)))
    assert chord.drain() == [Send(NodeId("x"), Nearer(1, (p(0x08),)))]


def test_owner_probes_its_predecessor_when_a_lookup_found_it_dead() -> None:
    chord = chord_at(0x10, (0x20,), 0x08)
    chord.receive(NodeId("x"), Confirm(k(0x06), k(0x10), 9, (p(0x08).node,), k(0x01)))
    assert called(chord.drain()) == [
        Send(NodeId("x"), Unsure(9)),
        Send(p(0x08).node, Probe(k(0x08), 1)),
    ]
    chord.timeout(Silent(1))
    assert chord.drain() == [Emit(RangeChanged(k(0x10), None))]
    chord.receive(NodeId("x"), Confirm(k(0x06), k(0x10), 10, (), k(0x01)))
    assert chord.drain() == [Send(NodeId("x"), Unsure(10))]
    chord.receive(p(0x01).node, Notify(k(0x10), p(0x01)))
    chord.receive(NodeId("x"), Confirm(k(0x06), k(0x10), 11, (), k(0x01)))
    assert chord.drain() == [
        Emit(RangeChanged(k(0x10), k(0x01))),
        Send(NodeId("x"), Found(11)),
    ]


def test_strict_locate_makes_the_member_before_the_key_stabilize() -> None:
    chord = chord_at(0x10, (0x20, 0x30), 0x08)
    chord.receive(NodeId("x"), Locate(k(0x15), 1, (), itself=True))
    assert called(chord.drain()) == [
        Send(p(0x20).node, Probe(k(0x20), 1)),
        Send(NodeId("x"), Near(1, p(0x10), (p(0x20), p(0x30)))),
    ]


def test_member_stabilizes_if_a_lookup_found_all_its_successors_dead() -> None:
    chord = chord_at(0x10, (0x20,), 0x08)
    chord.receive(NodeId("x"), Locate(k(0x25), 1, (p(0x20).node,), itself=True))
    assert called(chord.drain()) == [
        Send(p(0x20).node, Probe(k(0x20), 1)),
        Send(NodeId("x"), Nearer(1, ())),
    ]


def test_member_names_an_owner_from_its_successor_list_except_to_a_joining_node() -> None:
    chord = chord_at(0x10, (0x20, 0x30, 0x40), 0x08)
    chord.receive(NodeId("x"), Locate(k(0x35), 1, (), itself=False))
    chord.receive(NodeId("x"), Locate(k(0x35), 2, (), itself=True))
    assert chord.drain() == [
        Send(NodeId("x"), Near(1, p(0x30), (p(0x40),))),
        Send(NodeId("x"), Nearer(2, (p(0x30), p(0x20)))),
    ]


def test_member_looks_up_its_own_key_without_messages() -> None:
    chord = chord_at(0x10, (0x20,), 0x08)
    chord.request(FindRoot(k(0x09)))
    assert chord.drain() == [Emit(RootFound(k(0x09), p(0x10).node, 0, 0))]


# -- payloads --


def test_payload_is_sent_over_one_hop_and_emitted_there() -> None:
    chord = chord_at(0x10, (0x20, 0x30), 0x08)
    chord.request(Route(k(0x25), b"x"))
    assert chord.drain() == [
        Send(p(0x30).node, Hop(k(0x25), b"x", 1, k(0x20))),
        Later(0.5, Silent(1)),
    ]
    chord.receive(p(0x30).node, Hopped(1))
    assert (chord.drain(), chord.status.payloads) == ([Cancel(Silent(1))], 0)
    chord.receive(NodeId("y"), Hop(k(0x25), b"x", 7, k(0x01)))
    chord.receive(NodeId("y"), Hop(k(0x09), b"z", 8, k(0x01)))
    assert chord.drain() == [
        Send(NodeId("y"), Hopped(7)),
        Emit(Routed(k(0x25), b"x", NodeId("y"), root=False)),
        Send(NodeId("y"), Hopped(8)),
        Emit(Routed(k(0x09), b"z", NodeId("y"), root=True)),
    ]


def test_payload_avoids_a_silent_node() -> None:
    chord = chord_at(0x10, (0x20, 0x30), 0x08)
    chord.request(Route(k(0x25), b"x"))
    chord.drain()
    chord.timeout(Silent(1))
    assert called(chord.drain()) == [Send(p(0x20).node, Hop(k(0x25), b"x", 1, k(0x10)))]
    chord.timeout(Silent(1))
    assert chord.drain() == [Later(0.5, Again(1))]  # no other node is known
    chord.timeout(Again(1))
    assert called(chord.drain()) == [Send(p(0x30).node, Hop(k(0x25), b"x", 1, k(0x20)))]


@pytest.mark.parametrize("silences", [1, 2])
def test_late_answer_ends_the_retries_for_a_payload(silences: int) -> None:
    """NET-4: otherwise a payload would be sent many times if answers are slow."""
    chord = chord_at(0x10, (0x20, 0x30), 0x08)
    chord.request(Route(k(0x25), b"x"))
    for _ in range(silences):
        chord.timeout(Silent(1))
    chord.drain()
    chord.receive(p(0x30).node, Hopped(1))
    assert chord.drain() == [Cancel(Silent(1) if silences == 1 else Again(1))]
    assert (chord.status.payloads, chord.status.calls) == (0, {})
    chord.receive(p(0x20).node, Hopped(1))
    assert (chord.drain(), chord.status.dropped) == ([], 1)


def test_second_copy_of_a_payload_waits_for_the_answer_to_the_first() -> None:
    """NET-4: otherwise copies would multiply at each node on the way."""
    chord = chord_at(0x10, (0x20,), 0x08)
    for _ in range(2):
        chord.request(Route(k(0x15), b"x"))
        chord.receive(NodeId("y"), Hop(k(0x06), b"x", 7, k(0x01)))
    assert called(chord.drain()) == [
        Send(p(0x20).node, Hop(k(0x15), b"x", 1, k(0x10))),
        Send(NodeId("y"), Hopped(7)),
        Send(p(0x08).node, Hop(k(0x06), b"x", 2, k(0x01))),
        Send(NodeId("y"), Hopped(7)),
    ]
    chord.receive(p(0x20).node, Hopped(1))  # the second copy is sent now
    assert called(chord.drain()) == [Send(p(0x20).node, Hop(k(0x15), b"x", 3, k(0x10)))]
    chord.receive(p(0x20).node, Hopped(3))
    assert called(chord.drain()) == []


def test_payload_waits_at_a_new_owner_until_its_successor_knows_it() -> None:
    """NET-4: a payload passed back would travel around the whole ring."""
    chord = chord_at(0x10, (0x20,), 0x08, settled=False)
    member = only(chord)
    chord.receive(p(0x08).node, Hop(k(0x09), b"x", 7, k(0x08)))
    assert chord.drain() == [Send(p(0x08).node, Hopped(7)), Later(0.5, Again(1))]
    member.settled = member.recognized = True
    chord.timeout(Again(1))
    assert chord.drain() == [Emit(Routed(k(0x09), b"x", p(0x10).node, root=True))]


def test_restarted_node_ignores_answers_to_its_earlier_incarnation() -> None:
    """NET-4"""
    earlier, later = (Chord(NodeId("x"), Random(seed)) for seed in range(2))
    assert earlier.calls.next_number() != later.calls.next_number()


def test_payload_for_a_newer_owner_is_passed_on_to_it() -> None:
    chord = chord_at(0x10, (0x20,), 0x08)
    chord.receive(NodeId("y"), Hop(k(0x06), b"x", 7, k(0x01)))
    assert called(chord.drain()) == [
        Send(NodeId("y"), Hopped(7)),
        Send(p(0x08).node, Hop(k(0x06), b"x", 1, k(0x01))),
    ]


def test_payload_waits_while_its_owner_has_no_predecessor() -> None:
    chord = chord_at(0x10, (0x20,))
    chord.receive(NodeId("y"), Hop(k(0x06), b"x", 7, k(0x01)))
    assert chord.drain() == [Send(NodeId("y"), Hopped(7)), Later(0.5, Again(1))]
    chord.receive(p(0x01).node, Notify(k(0x10), p(0x01)))
    chord.drain()
    chord.timeout(Again(1))
    assert chord.drain() == [Emit(Routed(k(0x06), b"x", p(0x10).node, root=True))]


# -- links --


def test_broken_link_ends_calls_and_drops_the_peer() -> None:
    chord = chord_at(0x10, (0x20, 0x30), 0x08, links=True)
    chord.stabilization.stabilize(only(chord))
    chord.drain()
    chord.down(p(0x20).node)
    assert called(chord.drain()) == [
        Send(p(0x30).node, Probe(k(0x30), 2)),
        Watch(p(0x30).node),
        Watch(p(0x08).node),
    ]
    assert only(chord).successors == (p(0x30),)


def test_member_without_a_predecessor_owns_no_keys_until_it_is_notified() -> None:
    chord = chord_at(0x10, (0x20,), 0x08, links=True)
    chord._links.update()
    chord.drain()
    del chord.watched[p(0x08).node]
    chord.down(p(0x08).node)
    assert chord.drain() == [Emit(RangeChanged(k(0x10), None))]
    chord.receive(p(0x05).node, Notify(k(0x10), p(0x05)))
    assert chord.drain() == [Emit(RangeChanged(k(0x10), k(0x05))), Watch(p(0x05).node)]


def test_member_that_loses_all_other_members_owns_all_keys() -> None:
    chord = chord_at(0x10, (0x20,), 0x08, links=True)
    chord._links.update()
    for peer in (p(0x08).node, p(0x20).node):
        chord.down(peer)
    ranges = [each for each in chord.drain() if isinstance(each, Emit)]
    assert ranges == [Emit(RangeChanged(k(0x10), after)) for after in (None, k(0x10))]


def test_links_lead_to_neighbours_and_fingers_only() -> None:
    chord = chord_at(0x10, (0x20,), 0x08, links=True)
    only(chord).set_finger(255, p(0x90))
    chord._links.update()
    assert chord.drain() == [Watch(p(0x20).node), Watch(p(0x90).node), Watch(p(0x08).node)]
    only(chord).set_finger(255, p(0xA0))
    chord._links.update()
    assert chord.drain() == [Unwatch(p(0x90).node), Watch(p(0xA0).node)]


# -- members that lose all their successors at once --


def cut_off_at(at: int, fingers: tuple[int, ...]) -> Chord:
    """Return a node whose only successor, 0x20, has just died. It still has fingers."""
    chord = chord_at(at, (0x20,), 0x08)
    for index, finger in enumerate(fingers, 252):
        only(chord).set_finger(index, p(finger))
    chord.down(p(0x20).node)
    return chord


def test_member_without_successors_probes_its_nearest_finger_and_owns_no_keys() -> None:
    chord = cut_off_at(0x10, (0x50, 0x90))
    assert called(chord.drain()) == [Send(p(0x50).node, Probe(k(0x50), 1))]
    chord.timeout(Stabilize(k(0x10)))
    assert called(chord.drain()) == [Emit(RangeChanged(k(0x10), None))]
    chord.receive(NodeId("x"), Locate(k(0x70), 7, (), itself=False))
    chord.receive(NodeId("x"), Confirm(k(0x09), k(0x10), 8, (), k(0x08)))
    assert called(chord.drain()) == [
        Send(NodeId("x"), Nearer(7, (p(0x50),))),
        Send(NodeId("x"), Unsure(8)),
    ]


def test_member_goes_back_from_a_finger_to_its_successor_in_one_turn() -> None:
    chord = cut_off_at(0x10, (0x50,))
    chord.drain()
    chord.receive(p(0x50).node, Report(1, p(0x40), (p(0x60),)))
    assert called(chord.drain()) == [Send(p(0x40).node, Probe(k(0x40), 2))]
    chord.receive(p(0x40).node, Report(2, p(0x30), (p(0x50), p(0x60))))
    assert called(chord.drain()) == [Send(p(0x30).node, Probe(k(0x30), 3))]
    chord.receive(p(0x30).node, Report(3, None, (p(0x40), p(0x50))))
    assert Send(p(0x30).node, Notify(k(0x30), p(0x10))) in chord.drain()
    assert only(chord).successors == (p(0x30), p(0x40), p(0x50))


def test_silent_finger_is_dropped_and_the_next_finger_is_probed() -> None:
    chord = cut_off_at(0x10, (0x50, 0x90))
    chord.drain()
    chord.timeout(Silent(1))
    assert called(chord.drain()) == [Send(p(0x90).node, Probe(k(0x90), 2))]
    chord.timeout(Silent(2))
    only(chord).predecessor = None
    assert only(chord).low == k(0x10), "alone, it owns all keys"


def test_finger_unknown_to_the_ring_is_asked_for_our_position() -> None:
    """Survivors of many failures may form their own ring. Old fingers lead out of it."""
    chord = chord_at(0x10, (0x20, 0x28), 0x08, lost=[NodeId("dead")])
    only(chord).set_finger(255, p(0x90))
    chord._fixed_finger(only(chord), 255, p(0x88), (p(0x08),))
    assert only(chord).fingers[255] == p(0x08)
    assert chord.status.lost == (p(0x90).node, NodeId("dead"))
    chord._fixed_finger(only(chord), 255, p(0x88), (p(0x95),))
    assert chord.status.lost == (p(0x90).node, NodeId("dead")), "a nearer finger is not added"


# -- strange peers --

LONG = NodeId("x" * 256)
NONSENSE: list[ChordMessage] = [
    Probe(Key(b"short"), 1),
    Probe(k(0x10), -1),
    Probe(k(0x10), NUMBER_MAX),
    Report(1, Position(Key(b""), NodeId("x")), ()),
    Report(1, None, (p(0x20),) * (POSITIONS_MAX + 1)),
    Notify(k(0x10), Position(k(0x08), LONG)),
    Hurry(Key(b"short")),
    Locate(k(0x10), 1, (LONG,), itself=False),
    Near(1, Position(k(0x08), NodeId("")), ()),
    Confirm(k(0x10), k(0x10), 1, (), Key(b"short")),
    Hop(Key(b"short"), b"", 1, k(0x10)),
    Found(5),
]


@pytest.mark.parametrize("message", NONSENSE, ids=repr)
def test_invalid_messages_are_dropped_and_counted(message: ChordMessage) -> None:
    chord = chord_at(0x10, (0x20,), 0x08)
    chord.receive(NodeId("x"), message)
    assert (chord.drain(), chord.status.dropped) == ([], 1)


def test_answer_with_the_wrong_type_counts_as_silence() -> None:
    chord = chord_at(0x10, (0x20, 0x30), 0x08)
    chord.stabilization.stabilize(only(chord))
    chord.drain()
    chord.receive(p(0x20).node, Found(1))
    assert called(chord.drain()) == [Send(p(0x30).node, Probe(k(0x30), 2))]
    assert chord.status.dropped == 1


def test_requests_beyond_lookups_max_are_refused_and_counted() -> None:
    chord = chord_at(0x10, (0x20,), 0x08, lookups_max=1)
    for _ in range(3):
        chord.request(FindRoot(k(0x75)))
        chord.request(Route(k(0x75), b""))
    status = chord.status
    assert (status.lookups, status.payloads, status.refused) == (1, 1, 4)
