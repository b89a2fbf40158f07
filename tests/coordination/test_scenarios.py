"""The toolkit in storms; `oncecast sim run mutex --seeds 0..9999` goes through many more."""

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


def all_kept(scenario: Scenario, first: int) -> None:
    for seed in range(first, first + PER_TEST):
        outcome = run(scenario, seed)
        assert outcome.ok, f"{outcome.violation}\nreplay: {outcome.replay}"


@seeds(100)
def test_all_have_one_view_and_one_leader_in_the_end(first: int) -> None:
    """DDS-4"""
    all_kept(ELECTION, first)


@seeds(200)
def test_lamports_mutex_has_one_holder_at_a_time_and_a_turn_for_all(first: int) -> None:
    """DDS-4"""
    all_kept(MUTEX_LAMPORT, first)


@seeds(50)
def test_lock_with_leases_has_one_holder_and_growing_tokens_in_a_storm(first: int) -> None:
    """DDS-4"""
    all_kept(MUTEX, first)


@seeds(200)
def test_first_queue_gives_each_element_to_one_and_in_the_end_to_someone(first: int) -> None:
    """DDS-5"""
    all_kept(QUEUE_FIFO, first)


@seeds(50)
def test_second_queue_gives_each_element_to_one_whoever_of_a_minority_crashes(first: int) -> None:
    """DDS-5"""
    all_kept(QUEUE_PAXOS, first)
