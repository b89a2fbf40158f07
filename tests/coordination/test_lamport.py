"""Test Lamport's mutual exclusion: one holder at a time, in request order, with 3(N-1) messages."""

from __future__ import annotations

from random import Random

import pytest

from oncecast.coordination.protocols.clock import Stamp
from oncecast.coordination.protocols.events import Acquire, Acquired, Release
from oncecast.coordination.protocols.lamport import Given, LamportMutex, Noted, Wanted
from oncecast.kernel.protocol import Emit, NodeId, Send
from tests.coordination.wires import Wires, names

LOCK = "door"
A, B, C = NodeId("a"), NodeId("b"), NodeId("c")


def group(count: int, rng: Random | None = None) -> Wires:
    members = names(count)
    return Wires({me: LamportMutex(me, Random(0), members=members) for me in members}, rng)


def one_entry(count: int) -> int:
    """Return the number of messages for one entry, from request to release."""
    wires = group(count)
    me = names(count)[count // 2]
    wires.ask(me, Acquire(LOCK))
    wires.run()
    assert wires.events == [(me, Acquired(LOCK, 1))]
    wires.ask(me, Release(LOCK))
    wires.run()
    return len(wires.sent)


@pytest.mark.long
def test_entry_costs_three_messages_per_peer() -> None:
    """DDS-4: the cost is exactly 3(N-1), for 2 to 200 members."""
    for count in range(2, 201):
        assert one_entry(count) == 3 * (count - 1)


@pytest.mark.parametrize("count", range(2, 10))
def test_contention_does_not_increase_the_cost_of_an_entry(count: int) -> None:
    """DDS-4: all members ask at once, and each entry costs 3(N-1) messages."""
    wires = group(count, Random(count))
    for node in names(count):
        wires.ask(node, Acquire(LOCK))
    for turn in range(1, count + 1):
        wires.run()
        assert len(wires.events) == turn
        wires.ask(wires.events[-1][0], Release(LOCK))
    wires.run()
    assert len(wires.sent) == 3 * (count - 1) * count
    assert [event for _, event in wires.events] == [
        Acquired(LOCK, token) for token in range(1, count + 1)
    ]


def test_only_member_of_a_group_enters_at_once() -> None:
    wires = group(1)
    wires.ask(names(1)[0], Acquire(LOCK))
    assert wires.events == [(names(1)[0], Acquired(LOCK, 1))]


def test_request_goes_to_all_other_members_and_the_reply_has_a_later_stamp() -> None:
    mutex = LamportMutex(A, Random(0), members=[A, B, C])
    mutex.request(Acquire(LOCK))
    wanted = Wanted(LOCK, Stamp(1, A))
    assert mutex.drain() == [Send(B, wanted), Send(C, wanted)]
    mutex.receive(B, Wanted(LOCK, Stamp(5, B)))
    assert mutex.drain() == [Send(B, Noted(Stamp(6, A)))]


def test_member_enters_after_a_later_message_from_every_other_member() -> None:
    mutex = LamportMutex(A, Random(0), members=[A, B, C])
    mutex.request(Acquire(LOCK))
    mutex.drain()
    mutex.receive(B, Noted(Stamp(2, B)))
    assert mutex.drain() == []
    mutex.receive(C, Noted(Stamp(2, C)))
    assert mutex.drain() == [Emit(Acquired(LOCK, 1))]


def test_older_request_is_served_first_even_if_it_arrives_later() -> None:
    mutex = LamportMutex(B, Random(0), members=[A, B])
    mutex.request(Acquire(LOCK))
    mutex.receive(A, Wanted(LOCK, Stamp(1, A)))
    mutex.receive(A, Noted(Stamp(2, A)))
    assert Emit(Acquired(LOCK, 1)) not in mutex.drain()
    mutex.receive(A, Given(LOCK, Stamp(4, A)))
    assert Emit(Acquired(LOCK, 2)) in mutex.drain()


def test_holding_or_waiting_member_does_not_send_a_second_request() -> None:
    wires = group(2)
    me = names(2)[0]
    wires.ask(me, Acquire(LOCK))
    wires.ask(me, Acquire(LOCK))
    wires.run()
    wires.ask(me, Acquire(LOCK))
    assert len(wires.sent) == 2


def test_member_that_has_released_the_lock_can_acquire_it_again() -> None:
    """DDS-4"""
    wires = group(2)
    me = names(2)[0]
    for request in (Acquire(LOCK), Release(LOCK), Release(LOCK), Acquire(LOCK)):
        wires.ask(me, request)
        wires.run()
    assert wires.events == [(me, Acquired(LOCK, 1)), (me, Acquired(LOCK, 2))]


def test_different_locks_can_be_held_at_the_same_time() -> None:
    wires = group(2)
    one, other = names(2)
    wires.ask(one, Acquire("left"))
    wires.ask(other, Acquire("right"))
    wires.run()
    assert sorted(node for node, _ in wires.events) == [one, other]


def test_crashed_member_blocks_all_other_members() -> None:
    """DDS-4: this limit is documented."""
    wires = group(3)
    one, other, dead = names(3)
    wires.crash(dead)
    wires.ask(one, Acquire(LOCK))
    wires.ask(other, Acquire(LOCK))
    wires.run()
    assert wires.events == []


def test_unknown_senders_and_invalid_stamps_are_ignored_and_counted() -> None:
    mutex = LamportMutex(A, Random(0), members=[A, B])
    mutex.receive(C, Wanted(LOCK, Stamp(1, C)))
    mutex.receive(B, Wanted(LOCK, Stamp(2**63 - 1, B)))
    assert (mutex.drain(), mutex.dropped) == ([], 2)
