"""Both queues pass the same tests, and differ only when members crash."""

from __future__ import annotations

import pytest

from tests.coordination.queues import MAKES, QueueGroup

both = pytest.mark.parametrize("make", MAKES)


@both
def test_element_taken_at_another_node_is_removed_everywhere(make: str) -> None:
    """DDS-5"""
    group = QueueGroup(make)
    group.put(0, b"job")
    group.run()
    assert group.lengths() == [1, 1, 1]
    ticket = group.take(1)
    group.run()
    assert group.answers == {ticket: (group.names[1], b"job")}
    assert group.lengths() == [0, 0, 0]


@both
def test_dequeue_from_an_empty_queue_returns_none_at_once(make: str) -> None:
    """DDS-5"""
    group = QueueGroup(make)
    ticket = group.take(1)
    group.run(0.0)
    assert group.answers == {ticket: (group.names[1], None)}


@both
def test_sdequeue_waits_for_an_element(make: str) -> None:
    """DDS-5"""
    group = QueueGroup(make)
    ticket = group.take(1, wait=True)
    group.run()
    assert group.answers == {}
    group.put(2, b"job")
    group.run()
    assert group.answers == {ticket: (group.names[1], b"job")}


@both
def test_each_element_is_taken_once_under_contention(make: str) -> None:
    """DDS-5"""
    group = QueueGroup(make)
    jobs = [b"job %d" % index for index in range(6)]
    group.put(0, *jobs[:3])
    group.put(2, *jobs[3:])
    for _ in range(3):
        for node in range(3):
            group.take(node, wait=True)
    group.run(6.0)
    assert group.taken() == jobs
    assert len(group.answers) == len(jobs)


@both
def test_dequeue_that_loses_the_last_element_returns_none(make: str) -> None:
    """DDS-5"""
    group = QueueGroup(make)
    group.put(0, b"job")
    group.run()
    for node in range(3):
        group.take(node)
    group.run()
    assert sorted(data or b"" for _, data in group.answers.values()) == [b"", b"", b"job"]


@both
def test_queues_with_different_names_are_separate(make: str) -> None:
    group = QueueGroup(make)
    group.put(0, b"left", queue="left")
    group.put(0, b"right", queue="right")
    group.run()
    left, right = group.take(1, queue="left"), group.take(1, queue="right")
    group.run()
    assert (group.answers[left][1], group.answers[right][1]) == (b"left", b"right")


@both
@pytest.mark.parametrize("after", [0.0, 0.02, 0.05, 0.1])
def test_element_for_a_withdrawn_request_stays_in_the_queue(make: str, after: float) -> None:
    group = QueueGroup(make)
    group.put(0, b"job")
    group.run()
    ticket = group.take(1)
    group.run(after)
    group.withdraw(1, ticket)
    group.run()
    if ticket not in group.answers:
        group.take(2)
        group.run()
    assert group.taken() == [b"job"]


@both
def test_queue_works_in_a_single_member_group(make: str) -> None:
    group = QueueGroup(make, 1)
    group.put(0, b"job")
    ticket = group.take(0, wait=True)
    group.run()
    assert group.answers == {ticket: (group.names[0], b"job")}


# -- crashes: POINT 1 and POINT 2 of the paper --


def acknowledgement_missing(make: str) -> QueueGroup:
    """POINT 1: a member crashes and never acknowledges a request."""
    group = QueueGroup(make)
    group.put(0, b"job")
    group.run()
    group.sim.crash(group.names[2])
    group.take(1, wait=True)
    group.run(10.0)
    return group


def pop_never_sent(make: str) -> QueueGroup:
    """POINT 2: a member crashes during its turn, before it announces the taken element."""
    group = QueueGroup(make)
    *others, holder = group.names
    group.put(0, b"one", b"two")
    group.run()
    group.sim.hold(others, [holder], one_way=True)  # it never gets its turn
    group.take(2, wait=True)
    group.run(0.2)
    group.take(1, wait=True)
    group.run(0.2)
    group.sim.crash(holder)
    group.run(10.0)
    return group


def test_missing_acknowledgement_blocks_the_fifo_queue() -> None:
    """DDS-5: this is documented."""
    assert acknowledgement_missing("fifo").answers == {}


def test_paxos_queue_works_despite_a_missing_acknowledgement() -> None:
    """DDS-5"""
    assert acknowledgement_missing("paxos").taken() == [b"job"]


def test_pop_that_is_never_sent_blocks_the_fifo_queue() -> None:
    """DDS-5: as documented, the next member waits forever."""
    assert pop_never_sent("fifo").answers == {}


def test_paxos_queue_survives_if_the_member_crashes_during_its_turn() -> None:
    """DDS-5"""
    group = pop_never_sent("paxos")
    assert [node for node, _ in group.answers.values()] == [group.names[1]]
