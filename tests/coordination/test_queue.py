"""The eventual queue: both implementations pass the same tests, and differ where members crash."""

from __future__ import annotations

import pytest

from tests.coordination.queues import MAKES, Room

both = pytest.mark.parametrize("make", MAKES)


@both
def test_element_is_taken_at_another_node_and_gone_everywhere(make: str) -> None:
    """DDS-5"""
    room = Room(make)
    room.put(0, b"job")
    room.run()
    assert room.lengths() == [1, 1, 1]
    ticket = room.take(1)
    room.run()
    assert room.answers == {ticket: (room.names[1], b"job")}
    assert room.lengths() == [0, 0, 0]


@both
def test_dequeue_of_an_empty_queue_gives_none_at_once(make: str) -> None:
    """DDS-5"""
    room = Room(make)
    ticket = room.take(1)
    room.run(0.0)
    assert room.answers == {ticket: (room.names[1], None)}


@both
def test_sdequeue_waits_for_an_element(make: str) -> None:
    """DDS-5"""
    room = Room(make)
    ticket = room.take(1, wait=True)
    room.run()
    assert room.answers == {}
    room.put(2, b"job")
    room.run()
    assert room.answers == {ticket: (room.names[1], b"job")}


@both
def test_each_element_is_taken_once_however_many_want_it(make: str) -> None:
    """DDS-5"""
    room = Room(make)
    jobs = [b"job %d" % index for index in range(6)]
    room.put(0, *jobs[:3])
    room.put(2, *jobs[3:])
    for _ in range(3):
        for node in range(3):
            room.take(node, wait=True)
    room.run(6.0)
    assert room.taken() == jobs
    assert len(room.answers) == len(jobs)


@both
def test_who_does_not_wait_and_loses_the_last_element_gets_none(make: str) -> None:
    """DDS-5"""
    room = Room(make)
    room.put(0, b"job")
    room.run()
    for node in range(3):
        room.take(node)
    room.run()
    assert sorted(data or b"" for _, data in room.answers.values()) == [b"", b"", b"job"]


@both
def test_queues_have_names_and_do_not_mix(make: str) -> None:
    room = Room(make)
    room.put(0, b"left", queue="left")
    room.put(0, b"right", queue="right")
    room.run()
    left, right = room.take(1, queue="left"), room.take(1, queue="right")
    room.run()
    assert (room.answers[left][1], room.answers[right][1]) == (b"left", b"right")


@both
@pytest.mark.parametrize("after", [0.0, 0.02, 0.05, 0.1])
def test_element_on_its_way_to_one_who_withdraws_stays_in_the_queue(
    make: str, after: float
) -> None:
    room = Room(make)
    room.put(0, b"job")
    room.run()
    ticket = room.take(1)
    room.run(after)
    room.withdraw(1, ticket)
    room.run()
    if ticket not in room.answers:
        room.take(2)
        room.run()
    assert room.taken() == [b"job"]


@both
def test_group_of_one_has_a_queue(make: str) -> None:
    room = Room(make, 1)
    room.put(0, b"job")
    ticket = room.take(0, wait=True)
    room.run()
    assert room.answers == {ticket: (room.names[0], b"job")}


# -- where members crash: POINT 1 and POINT 2 of the source --


def acknowledgement_missing(make: str) -> Room:
    """POINT 1: a member crashes, and never acknowledges the request of another."""
    room = Room(make)
    room.put(0, b"job")
    room.run()
    room.sim.crash(room.names[2])
    room.take(1, wait=True)
    room.run(10.0)
    return room


def pop_never_sent(make: str) -> Room:
    """POINT 2: a member whose turn it is crashes before it says what it has taken."""
    room = Room(make)
    *others, holder = room.names
    room.put(0, b"one", b"two")
    room.run()
    room.sim.hold(others, [holder], one_way=True)  # it never hears that it may
    room.take(2, wait=True)
    room.run(0.2)
    room.take(1, wait=True)
    room.run(0.2)
    room.sim.crash(holder)
    room.run(10.0)
    return room


def test_missing_acknowledgement_blocks_the_first_implementation() -> None:
    """DDS-5: as documented, though the element is there."""
    assert acknowledgement_missing("fifo").answers == {}


def test_second_implementation_goes_on_without_the_acknowledgement_of_one() -> None:
    """DDS-5"""
    assert acknowledgement_missing("paxos").taken() == [b"job"]


def test_pop_that_is_never_sent_blocks_the_first_implementation() -> None:
    """DDS-5: as documented; the next in line waits for ever."""
    assert pop_never_sent("fifo").answers == {}


def test_second_implementation_goes_on_when_the_holder_of_the_grant_crashes() -> None:
    """DDS-5"""
    room = pop_never_sent("paxos")
    assert [node for node, _ in room.answers.values()] == [room.names[1]]
