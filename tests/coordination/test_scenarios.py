"""Run coordination in storms; `oncecast sim run mutex --seeds 0..9999` runs many more seeds."""

from __future__ import annotations

import pytest

from oncecast.lab.scenarios.election import ELECTION
from oncecast.lab.scenarios.mutex import MUTEX, MUTEX_LAMPORT
from oncecast.lab.scenarios.queue import QUEUE_FIFO, QUEUE_PAXOS
from oncecast.lab.scenarios.scenario import Scenario, run

pytestmark = pytest.mark.long

PER_TEST = 25


def seeds(count: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("first", range(0, count, PER_TEST))


def assert_no_violation(scenario: Scenario, first: int) -> None:
    for seed in range(first, first + PER_TEST):
        outcome = run(scenario, seed)
        assert outcome.ok, f"{outcome.violation}\nreplay: {outcome.replay}"


@seeds(100)
def test_nodes_agree_on_view_and_leader_after_a_storm(first: int) -> None:
    """DDS-4"""
    assert_no_violation(ELECTION, first)


@seeds(200)
def test_lamport_mutex_has_one_holder_at_a_time_and_serves_every_request(first: int) -> None:
    """DDS-4"""
    assert_no_violation(MUTEX_LAMPORT, first)


@seeds(50)
def test_lease_mutex_has_one_holder_and_increasing_tokens_in_a_storm(first: int) -> None:
    """DDS-4"""
    assert_no_violation(MUTEX, first)


def test_lock_is_kept_once_timeouts_have_adapted_to_slow_heartbeats() -> None:
    """DDS-4: a single wrong suspicion could delay a renewal for longer than the lease."""
    outcome = run(MUTEX, 700130)
    assert outcome.ok, f"{outcome.violation}\n{outcome.replay}"


@seeds(200)
def test_fifo_queue_delivers_each_element_exactly_once(first: int) -> None:
    """DDS-5"""
    assert_no_violation(QUEUE_FIFO, first)


def test_withdrawn_nonwaiting_request_may_get_an_empty_answer() -> None:
    """DDS-5"""
    outcome = run(QUEUE_FIFO, 1000324)
    assert outcome.ok, outcome.violation


@seeds(50)
def test_paxos_queue_delivers_each_element_at_most_once_while_a_minority_crashes(
    first: int,
) -> None:
    """DDS-5"""
    assert_no_violation(QUEUE_PAXOS, first)
