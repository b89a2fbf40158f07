"""Logical clocks give a cause a lower stamp than its effect."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncecast.coordination.protocols.clock import LamportClock, Stamp
from oncecast.kernel.protocol import NodeId

A, B = NodeId("a"), NodeId("b")


def test_each_clock_tick_is_later_than_the_previous_one() -> None:
    clock = LamportClock(A)
    assert [clock.tick(), clock.tick()] == [Stamp(1, A), Stamp(2, A)]


def test_event_after_a_message_has_a_later_stamp() -> None:
    clock = LamportClock(A)
    clock.witness(Stamp(7, B))
    assert clock.tick() == Stamp(8, A)


def test_old_message_does_not_set_the_clock_back() -> None:
    clock = LamportClock(A)
    clock.time = 9
    clock.witness(Stamp(2, B))
    assert clock.tick() == Stamp(10, A)


def test_node_name_breaks_ties_between_equal_times() -> None:
    assert Stamp(1, B) < Stamp(2, A)
    assert Stamp(2, A) < Stamp(2, B)


@pytest.mark.parametrize(
    ("time", "possible"), [(0, False), (1, True), (2**62, True), (2**62 + 1, False)]
)
def test_stamp_is_possible_only_inside_the_valid_range(time: int, possible: bool) -> None:
    assert Stamp(time, A).possible == possible


@pytest.mark.long
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=40))
def test_stamps_follow_causality(talk: list[tuple[int, int]]) -> None:
    """DDS-4: stamps grow along every chain of messages, and no two are equal."""
    clocks = [LamportClock(NodeId(f"n{index}")) for index in range(4)]
    seen: list[Stamp] = []
    for sender, receiver in talk:
        sent = clocks[sender].tick()
        clocks[receiver].witness(sent)
        received = clocks[receiver].tick()
        assert sent < received
        seen += [sent, received]
    assert len(set(seen)) == len(seen)
