"""Check that removing any gateway rule makes a test fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oncecast.broker.gateway import Gateway
from oncecast.broker.governing import Governor
from oncecast.broker.lease_queue import LeaseQueue
from oncecast.broker.producing import Producing
from oncecast.broker.scanning import Scanner
from tests.broker import test_gateway as calls
from tests.broker import test_lease_reads as reads
from tests.client.session import test_lowered_limits as lowered_limits
from tests.mutants import Detector, Mutant, assert_detected, exact, replaced

pytestmark = pytest.mark.mutants

SEEDS = 5


def cut_off(seed: int) -> None:
    looker, _ = reads.cut_off(seed)
    assert looker.stale == []


def lowers_a_limit(seed: int) -> None:
    lowered_limits.lowered(lowered_limits.LOWERED[seed % 2])


def of_each(test: Callable[[Any], None]) -> Detector:
    """Return a detector that runs a test for every kind of read."""

    def detector(seed: int) -> None:
        test(reads.READS[seed])

    detector.__name__ = test.__name__
    return detector


RULES: dict[str, tuple[Detector, Any, str, str, str]] = {
    "a deposed leader shows old topics": (
        cut_off, Gateway, "receive", "elif not self._leased:", "elif False:",
    ),
    "a deposed leader shows old messages": (
        of_each(reads.test_leader_answers_a_read_when_its_lease_is_renewed),
        Scanner, "receive", "if not service.group.leads(self.now):", "if False:",
    ),
    "a deposed leader confirms changes": (
        of_each(reads.test_leader_answers_a_read_when_its_lease_is_renewed),
        Governor, "receive", "elif not self.group.leads(self.now):", "elif False:",
    ),
    "a read without a lease is dropped": (
        of_each(reads.test_leader_answers_a_read_when_its_lease_is_renewed),
        LeaseQueue, "add", "self._questions[client, question] = None", "pass",
    ),
    "a read waits at a deposed leader": (
        of_each(reads.test_deposed_leader_redirects_waiting_reads_to_the_new_leader),
        Scanner, "timeout", "self.receive(client, scan)", "self._awaiting_lease.add(client, scan)",
    ),
    "a late copy of a call is executed again": (
        exact(calls.test_late_duplicate_of_a_call_gets_the_same_answer),
        Gateway, "_call", "if id in state.answered:", "if False:",
    ),
    "a lower byte limit refuses a stored put": (
        lowers_a_limit, Gateway, "_answer_to_large", "self._known(command) or ", "",
    ),
    "a lower message limit refuses a stored put": (
        lowers_a_limit, Producing, "put", "topic.already(command) or fault", "fault",
    ),
    "a deposed leader refuses a stored put": (
        exact(lowered_limits.test_node_without_a_lease_does_not_refuse_an_oversized_put),
        Gateway, "_answer_to_large", "not self._leased", "False",
    ),
}  # fmt: skip

MUTANTS = [
    Mutant(rule, replaced(*change), detector, SEEDS) for rule, (detector, *change) in RULES.items()
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_gateway_mutant_is_detected(mutant: Mutant) -> None:
    """REP-5 SVC-10"""
    assert_detected(mutant)
