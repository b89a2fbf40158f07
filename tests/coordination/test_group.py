"""Test a group's view, its suspicions, and how a wrong suspicion ends."""

from __future__ import annotations

from random import Random

import pytest

from oncecast.coordination.protocols.events import Join, Leave, ViewChanged
from oncecast.coordination.protocols.group import Alive, Beat, Group, Silent
from oncecast.kernel.protocol import Effect, Emit, Later, NodeId, Send, Unwatch, Watch
from tests.dice import HighDice, LowDice, MiddleDice

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
HERE = Alive(True, ())


def started(*, member: bool = True) -> Group:
    group = Group(
        A,
        MiddleDice(),
        peers=[A, B],
        member=member,
        heartbeat=1.0,
        suspect_after=4.0,
        forget_after=9,
    )
    group.start()
    group.drain()
    return group


def with_b() -> Group:
    group = started()
    group.receive(B, HERE)
    group.drain()
    return group


def events(effects: list[Effect]) -> list[object]:
    return [effect.event for effect in effects if isinstance(effect, Emit)]


def test_start_sends_alive_to_every_peer_and_emits_the_first_view() -> None:
    group = Group(A, MiddleDice(), peers=[A, B], heartbeat=1.0)
    group.start()
    assert group.drain() == [Send(B, Alive(True, ())), Later(1.0, Beat()), Emit(ViewChanged((A,)))]


@pytest.mark.parametrize(("dice", "delay"), [(LowDice(), 0.375), (HighDice(), 0.625)])
def test_alive_is_repeated_every_half_second_with_25_percent_jitter(
    dice: Random, delay: float
) -> None:
    group = Group(A, dice, peers=[B])
    group.timeout(Beat())
    assert group.drain() == [Send(B, Alive(True, ())), Later(delay, Beat())]


def test_silent_peer_is_suspected_after_two_seconds_and_forgotten_a_minute_later() -> None:
    """DDS-4"""
    group = Group(A, MiddleDice(), peers=[B])
    group.receive(B, Alive(False, ()))
    assert Later(2.0, Silent(B)) in group.drain()
    group.timeout(Silent(B))
    assert Later(60.0, Silent(B)) in group.drain()


def test_peer_that_sends_alive_is_in_the_view() -> None:
    """DDS-4"""
    group = started()
    group.receive(B, HERE)
    assert group.drain() == [
        Watch(B),
        Send(B, Alive(True, (B,))),
        Later(4.0, Silent(B)),
        Emit(ViewChanged((A, B))),
    ]
    group.receive(B, HERE)
    assert group.drain() == [Later(4.0, Silent(B))]


def test_node_that_has_not_joined_sees_the_members() -> None:
    group = started(member=False)
    group.receive(B, HERE)
    assert list(group.view) == [B]
    group.request(Join())
    assert list(group.view) == [A, B]


def test_leaving_node_announces_its_departure_and_is_not_suspected() -> None:
    """DDS-4"""
    group = with_b()
    group.request(Leave())
    assert group.drain() == [Send(B, Alive(False, (B,))), Emit(ViewChanged((B,)))]
    group.receive(B, Alive(False, ()))
    assert list(group.view) == []
    assert not group.known[B].suspected


def test_silent_node_is_suspected_until_its_next_message_and_then_gets_more_time() -> None:
    """DDS-4: the same length of silence causes only one wrong suspicion."""
    group = with_b()
    group.timeout(Silent(B))
    assert group.drain() == [Later(9, Silent(B)), Emit(ViewChanged((A,)))]
    group.receive(B, HERE)
    effects = group.drain()
    assert events(effects) == [ViewChanged((A, B))]
    assert Later(5.0, Silent(B)) in effects


def test_broken_link_causes_suspicion_at_once_without_lengthening_the_timeout() -> None:
    group = with_b()
    del group.watched[B]  # the stack does the same
    group.down(B)
    assert events(group.drain()) == [ViewChanged((A,))]
    group.receive(B, HERE)
    assert Later(4.0, Silent(B)) in group.drain()


def test_broken_link_to_a_suspected_or_dropped_peer_changes_nothing() -> None:
    group = started()
    for peer in (B, C):  # B has not sent anything yet, and C is unknown
        group.down(peer)
    assert group.drain() == []


def test_members_are_found_through_other_members() -> None:
    group = started()
    group.receive(B, Alive(True, (A, C)))
    assert group.drain()[:2] == [Send(C, Alive(True, ())), Later(9, Silent(C))]
    assert list(group.view) == [A, B]  # only nodes that sent Alive are in the view
    group.receive(C, HERE)
    assert list(group.view) == [A, B, C]


def test_silent_nodes_are_dropped_unless_they_are_configured_peers() -> None:
    group = with_b()
    group.receive(C, HERE)
    for node, effects in ((B, []), (C, [Unwatch(C)])):
        group.timeout(Silent(node))
        group.drain()
        group.timeout(Silent(node))
        assert group.drain() == effects
    assert list(group.known) == [B]


def test_number_of_known_nodes_is_bounded() -> None:
    group = started()
    group.receive(B, Alive(True, tuple(NodeId(f"x{index}") for index in range(2000))))
    group.receive(C, HERE)
    assert (len(group.known), group.dropped) == (1000, 1)
