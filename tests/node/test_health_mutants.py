"""Check that removing any rule of /health makes a test fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oncecast.broker import governing
from oncecast.node import process
from oncecast.node.replica import Replica
from oncecast.replication.paxos import Paxos
from oncecast.replication.roster import Roster
from tests.broker import test_governing as views
from tests.mutants import Mutant, assert_detected, exact, replaced
from tests.node import test_health as pages
from tests.replication import test_membership_exactly as membership

pytestmark = pytest.mark.mutants

RULES: dict[str, tuple[Callable[..., None], Any, str, str, str]] = {
    "a node with a full disk is not ready": (
        pages.test_node_without_disk_space_for_puts_is_not_ready,
        Replica, "health", "if self.parts.gateway.disk_is_full:", "if False:",
    ),
    "a node without a leader is not ready": (
        pages.test_node_without_a_leader_is_not_ready,
        Replica, "health", "elif not group.leader:", "elif False:",
    ),
    "a node without a quorum is not ready": (
        pages.test_node_without_a_leader_is_not_ready,
        Replica, "health", "elif not quorum:", "elif False:",
    ),
    "a failed node does not report that it is draining": (
        pages.test_failed_node_reports_the_reason,
        process, "ending", "if error is None:", "if True:",
    ),
    "a silent member does not count as reachable": (
        views.test_node_without_a_leader_shows_silent_members,
        governing, "reachable", "now > group.heard + within", "False",
    ),
    "every message updates the time of the last message": (
        views.test_any_message_from_a_member_updates_its_last_message_time,
        Paxos, "receive", "self.last_message[sender] = self.now", "pass",
    ),
    "other senders do not displace members": (
        views.test_unknown_senders_do_not_evict_the_last_message_times_of_members,
        Paxos, "_forget_sender", "node in replicas, ", "",
    ),
    "the times of other senders are dropped": (
        views.test_unknown_senders_do_not_evict_the_last_message_times_of_members,
        Paxos, "receive", "self._forget_sender()", "pass",
    ),
    "nodes with an expired offer are dropped": (
        membership.test_leader_forgets_non_members_without_a_kept_offer,
        Roster, "forget_old", "del self.last_heard[node]", "pass",
    ),
}  # fmt: skip

MUTANTS = [
    Mutant(rule, replaced(*change), exact(test), 1) for rule, (test, *change) in RULES.items()
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_health_mutant_is_detected(mutant: Mutant) -> None:
    """OPS-1"""
    assert_detected(mutant)
