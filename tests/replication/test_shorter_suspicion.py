"""A replica that restarts with a shorter suspicion time keeps the lease that it granted before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncecast.kernel.protocol import Append, NodeId, Send, Snapshot, Value
from oncecast.replication import messages as m
from oncecast.replication.ballot import Ballot
from oncecast.replication.paxos import Paxos
from tests.replication.replicas import OPTIONS, THREE, A, B, C, hear, unstarted

LONG, SHORT = replace(OPTIONS, suspicion=8.0), replace(OPTIONS, suspicion=2.0)
FIRST, SECOND = Ballot(1, A), Ballot(2, C)


def restarted(*records: Value, short: bool = True) -> Paxos:
    """Start a replica with a log from an earlier run that used the long suspicion time."""
    group = unstarted(B, THREE, SHORT if short else LONG)
    for number, record in enumerate(records, 1):
        group._records.last = number
        group.restore(record)  # type: ignore[arg-type]
    group.now = 100.0
    group.start()
    group.drain()
    return group


def written() -> list[Value]:
    """Return the log of a replica that follows the leader of the first ballot."""
    group = unstarted(B, THREE, LONG)
    group.start()
    log = [each.record for each in group.drain() if isinstance(each, Append)]
    group.now = 90.0
    effects = hear(group, A, m.Beat(FIRST, 0, 1.0, 1))
    return log + [each.record for each in effects if isinstance(each, Append)]


def promises(group: Paxos) -> bool:
    effects = hear(group, C, m.Prepare(SECOND, 1, 1))
    return any(isinstance(each, Send) and isinstance(each.message, m.Promise) for each in effects)


def appended(effects: list[object]) -> list[Value]:
    return [each.record for each in effects if isinstance(each, Append)]


def test_restarted_replica_makes_no_promise_during_the_old_lease() -> None:
    """REP-2: the deposed leader may still answer reads, because it relies on the longer time."""
    group = restarted(*written())
    group.now = 107.9
    assert not promises(group)
    group.now = 108.1
    assert promises(group)


def test_restarted_replica_stands_for_election_only_after_the_old_lease() -> None:
    """REP-2: a candidate promises its own ballot."""
    group = restarted(*written())
    group.now = 103.0
    group.timeout(m.Silence())
    assert not [each for each in group.drain() if isinstance(each, Send)]
    group.now = 108.1
    group.timeout(m.Silence())
    assert [each for each in group.drain() if isinstance(each, Send)]


def test_shorter_suspicion_time_is_stored_only_after_the_old_lease() -> None:
    """REP-2: another restart must not shorten the old lease."""
    group = restarted(*written())
    group.now = 107.9
    assert appended(list(hear(group, A, m.Beat(FIRST, 0, 2.0, 1)))) == []
    group.now = 108.1
    assert appended(list(hear(group, A, m.Beat(FIRST, 0, 3.0, 1)))) == [m.Bound(2.0)]
    again = restarted(*written(), m.Bound(2.0))
    again.now = 102.1
    assert promises(again)


def test_longer_suspicion_time_is_stored_before_the_replica_uses_it() -> None:
    """REP-2: the replica reports the longer time to the leader only once it is on disk."""
    group = unstarted(B, THREE, LONG)
    for number, record in enumerate((*written(), m.Bound(2.0)), 1):
        group._records.last = number
        group.restore(record)  # type: ignore[arg-type]
    group.now = 100.0
    group.start()
    (bound,) = [each for each in group.drain() if isinstance(each, Append)]
    assert bound.record == m.Bound(8.0)
    sends = [each for each in hear(group, A, m.Beat(FIRST, 0, 2.0, 1)) if isinstance(each, Send)]
    assert all(each.after >= bound.number for each in sends)


def test_snapshot_contains_the_suspicion_time_that_the_replica_must_honour() -> None:
    """REP-2"""
    group = restarted(*written())
    group.supplier.save(0, 0, (), 0)
    (snapshot,) = [each for each in group.drain() if isinstance(each, Snapshot)]
    assert isinstance(snapshot.state, m.Checkpoint)
    assert snapshot.state.suspicion == 8.0
    again = restarted(snapshot.state)
    again.now = 107.9
    assert not promises(again)


def test_released_lease_ends_at_once() -> None:
    """REP-2"""
    group = restarted(*written())
    group.now = 101.0
    hear(group, A, m.Release(FIRST, NodeId("")))
    assert promises(group)


@pytest.mark.parametrize("short", [False, True])
def test_restart_with_an_older_log_waits_for_the_current_suspicion_time(short: bool) -> None:
    """REP-2: such a log does not contain the suspicion time."""
    born = written()[0]
    assert isinstance(born, m.Born)
    group = restarted(m.Born(born.incarnation, born.config), short=short)
    group.now = 102.1 if short else 108.1
    assert promises(group)
