"""The checker for replicas in a storm compares values, not only ballots."""

from __future__ import annotations

import pytest

from oncecast.kernel.protocol import Send, Value
from oncecast.lab.scenarios.paxos_checks import Durability, Reports
from oncecast.lab.scenarios.paxos_history import Disk, GroupHistory
from oncecast.replication.messages import Again, Entry, Item, Promise, Recalled, Vote
from oncecast.replication.options import GroupOptions
from oncecast.replication.paxos import Paxos
from oncecast.simulator.checkers import Violation
from tests.replication.replicas import THREE, B, C, ballot, command, restored
from tests.replication.test_restart import entry, promise_of

SMALL = GroupOptions(compare_every=0.0, window_slots=2)
PENDING = [entry(slot) for slot in range(1, 8)]
LOG = [*PENDING, entry(2, 5, b"new"), Again(7, ballot(5), PENDING[-1].vouch)]


def kept(log: list[Value]) -> GroupHistory:
    """Return the checker for a group in which B has this log on disk."""
    history = GroupHistory(THREE)
    disk = history.disks[B] = Disk()
    disk.incarnation = 1
    for record in log:
        if isinstance(record, Entry):
            disk.values[record.slot] = Item(record.kind, record.data)
        if isinstance(record, Entry | Again):
            disk.votes[record.slot] = disk.promised = record.ballot
            history.propose(B, record.slot, record.ballot, disk.values[record.slot])
    return history


def judge(history: GroupHistory, group: Paxos) -> None:
    """Check a restart, and the first promise after it."""
    Durability(history).started(group.status)
    reports = Reports(history)
    reports.started(group.status)
    promise = promise_of(group)
    history.disks[B].promised = promise.ballot
    reports.effects()[Promise](Send(C, promise, 0), group.status)


def judge_a_restart() -> None:
    """Check a restart with more pending slots than a replica holds in memory."""
    judge(kept(list(LOG)), restored(*LOG, options=SMALL))


def test_checker_accepts_a_restart_that_keeps_all_values() -> None:
    """REP-1"""
    judge_a_restart()


def test_checker_rejects_a_restart_with_an_older_value_for_a_vote() -> None:
    """REP-1"""
    group = restored(*LOG, options=SMALL)
    group.state.values.items[2] = command(b"2")
    with pytest.raises(Violation, match="for slot 2, but it accepted"):
        judge(kept(list(LOG)), group)


def test_checker_rejects_a_promise_with_an_unproposed_value() -> None:
    """REP-1: this includes a vote that is not yet on disk."""
    group, history = restored(*LOG, options=SMALL), kept(list(LOG))
    reports = Reports(history)
    reports.started(group.status)
    promise = promise_of(group)
    history.disks[B].promised = promise.ballot
    wrong = [vote._replace(item=command(b"wrong")) for vote in promise.votes]
    for at in range(len(wrong)):
        votes = (*promise.votes[:at], wrong[at], *promise.votes[at + 1 :])
        sent = Promise(promise.ballot, 1, 1, 0, votes, ())
        with pytest.raises(Violation, match="but the proposed value was"):
            reports.effects()[Promise](Send(C, sent, 0), group.status)


def test_checker_rejects_a_recalled_vote_with_an_unproposed_value() -> None:
    """REP-1"""
    group, history = restored(*LOG, options=SMALL), kept(list(LOG))
    recalled = Recalled(2, 1, Vote(2, ballot(5), command(b"2")))
    with pytest.raises(Violation, match="but the proposed value was"):
        Reports(history).effects()[Recalled](Send(C, recalled, 0), group.status)
