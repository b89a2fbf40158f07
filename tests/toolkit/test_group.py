"""Group: who is in the view, who is suspected, and how a wrong suspicion is healed."""

from __future__ import annotations

from random import Random

from oncecast.kernel.protocol import Effect, Emit, Later, NodeId, Send, Watch
from oncecast.toolkit.events import Join, Leave, ViewChanged
from oncecast.toolkit.group import KNOWN_MAX, Alive, Beat, Group, Silent

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
HERE = Alive(True, ())


class FixedDice(Random):
    def uniform(self, a: float, b: float) -> float:
        return 1.0


def started(*, member: bool = True) -> Group:
    group = Group(
        A,
        FixedDice(),
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


def test_start_tells_every_peer_and_sees_itself() -> None:
    group = Group(A, FixedDice(), peers=[A, B], heartbeat=1.0)
    group.start()
    assert group.drain() == [Send(B, Alive(True, ())), Later(1.0, Beat()), Emit(ViewChanged((A,)))]


def test_who_says_that_it_is_alive_is_in_the_view() -> None:
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


def test_guest_sees_the_members_and_is_none() -> None:
    group = started(member=False)
    group.receive(B, HERE)
    assert list(group.view) == [B]
    group.request(Join())
    assert list(group.view) == [A, B]


def test_who_leaves_tells_so_and_is_not_suspected_for_it() -> None:
    """DDS-4"""
    group = with_b()
    group.request(Leave())
    assert group.drain() == [Send(B, Alive(False, (B,))), Emit(ViewChanged((B,)))]
    group.receive(B, Alive(False, ()))
    assert list(group.view) == []
    assert not group.known[B].suspected


def test_silence_is_suspected_and_the_next_word_heals_it_with_more_patience() -> None:
    """DDS-4: a wrong suspicion is made once for each length of silence."""
    group = with_b()
    group.timeout(Silent(B))
    assert events(group.drain()) == [ViewChanged((A,))]
    group.receive(B, HERE)
    effects = group.drain()
    assert events(effects) == [ViewChanged((A, B))]
    assert Later(5.0, Silent(B)) in effects


def test_link_that_breaks_is_suspected_at_once_and_costs_no_patience() -> None:
    group = with_b()
    del group.watched[B]  # as the stack does
    group.down(B)
    assert events(group.drain()) == [ViewChanged((A,))]
    group.receive(B, HERE)
    assert Later(4.0, Silent(B)) in group.drain()


def test_members_are_found_through_those_who_know_them() -> None:
    group = started()
    group.receive(B, Alive(True, (A, C)))
    assert Send(C, Alive(True, ())) in group.drain()
    assert list(group.view) == [A, B]  # nobody is in it by hearsay
    group.receive(C, HERE)
    assert list(group.view) == [A, B, C]


def test_who_was_only_met_is_forgotten_and_who_was_named_never() -> None:
    group = with_b()
    group.receive(C, HERE)
    for node in (B, C):
        group.timeout(Silent(node))
        group.timeout(Silent(node))
    assert list(group.known) == [B]


def test_crowd_is_bounded() -> None:
    group = started()
    group.receive(B, Alive(True, tuple(NodeId(f"x{index}") for index in range(2 * KNOWN_MAX))))
    group.receive(C, HERE)
    assert (len(group.known), group.dropped) == (KNOWN_MAX, 1)
