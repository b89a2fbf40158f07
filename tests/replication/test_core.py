"""REP-1: values in memory, votes, and votes that a replica may have lost."""

from __future__ import annotations

import pytest

from oncecast.kernel.protocol import Append
from oncecast.replication.messages import Accept, Entry, Learned, Promised, Skipped, Vote
from oncecast.replication.votes import FAR, FORGOT, after, within, without
from tests.replication.replicas import (
    A,
    ballot,
    command,
    hear,
    leading,
    restored,
    started,
    vouch,
)


def test_constants_written_to_disk_do_not_change() -> None:
    """REP-1: later versions read these constants from snapshots and records of this version."""
    group = restored()
    group.damaged(2, 3)
    assert group.state.votes.lost == [(1, FAR)] == [(1, 1 << 62)]
    group.state.votes._doubt(1)
    assert group.state.votes.replaced == FORGOT == 2


def test_memory_use_counts_only_the_newest_value_in_a_slot() -> None:
    """REP-1"""
    group = started()
    group.state.values.hold(5, command(b"four"))
    group.state.values.hold(5, command(b"five!"))
    group.state.values.hold(6, command(b"six"))
    assert group.state.values.held_bytes == 8
    group.state.values.let_go(5)
    group.state.values.let_go(5)
    assert (group.state.values.held_bytes, list(group.state.values.items)) == (3, [6])


def test_durable_slots_end_before_the_first_unsynced_value() -> None:
    """REP-1"""
    group = started()
    items = tuple(command(b"%d" % slot) for slot in range(1, 5))
    hear(group, A, Accept(ballot(1), 1, items, 0))
    assert (group.applied, group.state.values.durable) == (0, 0)
    hear(group, A, Accept(ballot(1), 5, (), 3))
    assert (group.applied, group.state.values.durable) == (3, 0)
    group.state.values.on_disk(group.state.values.storing[0][0])
    assert group.state.values.durable == 1
    group.state.values.on_disk(group.state.values.storing[1][0])
    assert group.state.values.durable == 3


def test_learned_value_for_a_trimmed_slot_is_written_even_if_it_is_in_memory() -> None:
    """REP-1: a snapshot from another replica may need it."""
    group = started()
    hear(group, A, Accept(ballot(1), 1, (command(b"one"),), 1))
    assert (group.applied, 1 in group.state.values.items) == (1, True)
    group.state.values.index.trim(2)
    group.state.votes.store_learned(1, command(b"one"))
    (append,) = group.drain()
    assert append == Append(Learned(1, 0, b"one"), group._records.last)
    assert group.state.values.index.get(1) == group._records.last


@pytest.mark.parametrize(("top", "lost"), [(0, []), (1, [(1, 1)]), (2, [(1, 2)])])
def test_next_readable_record_bounds_the_range_of_lost_slots(
    top: int, lost: list[tuple[int, int]]
) -> None:
    """REP-1"""
    group = restored()
    group.damaged(2, 3)
    assert group.state.votes.lost == [(1, FAR)]
    group.restore(Promised(ballot(1), vouch(top)))
    assert group.state.votes.lost == lost


def test_born_record_sets_the_membership_starting_at_the_first_slot() -> None:
    """REP-2"""
    group = restored()
    assert (group.state.membership.history.since, group.state.membership.history.knows(1)) == (
        0,
        True,
    )


def test_promise_reports_votes_up_to_its_byte_limit() -> None:
    """REP-1: the remaining votes count as lost."""
    group = restored(
        Entry(1, ballot(1), 0, b"four", 0, vouch(1)), Entry(2, ballot(1), 0, b"more", 0, vouch(2))
    )
    votes = tuple(
        Vote(slot, ballot(1), command(data)) for slot, data in ((1, b"four"), (2, b"more"))
    )
    for bytes_max, reported, lost in ((5, 2, ()), (4, 1, ((2, 2),))):
        promise = group.state.votes.report(ballot(2), 1, bytes_max)
        assert (promise.votes, promise.lost) == (votes[:reported], lost)


def test_vote_for_a_skipped_slot_is_not_treated_as_chosen() -> None:
    """REP-1"""
    group = restored(Entry(1, ballot(1), 0, b"voted", 0, vouch(1)), Skipped(1))
    assert (group.applied, group.state.progress.skipped, group.state.progress.certain) == (0, 1, 1)


def test_leader_does_not_step_down_for_its_own_ballot() -> None:
    """REP-1"""
    group = leading()
    assert group.leader.term is not None
    won = group.leader.term.ballot
    group.leader.outrun(won)
    assert group.leader.term is not None
    group.leader.outrun(ballot(won.round + 1, A))
    assert group.leader.term is None
    assert group.leader.seen == ballot(won.round + 1, A)


def test_slot_ranges_support_removal_trimming_and_lookup() -> None:
    """REP-1"""
    ranges = [(1, 3), (5, 5), (7, 9)]
    assert without(ranges, 5) == [(1, 3), (7, 9)]
    assert without(ranges, 1) == [(2, 3), (5, 5), (7, 9)]
    assert without(ranges, 8) == [(1, 3), (5, 5), (7, 7), (9, 9)]
    assert without(ranges, 9) == [(1, 3), (5, 5), (7, 8)]
    assert without(ranges, 4) == ranges
    assert after(2, ranges) == [(3, 3), (5, 5), (7, 9)]
    assert after(5, ranges) == [(7, 9)]
    assert [within(ranges, slot) for slot in (0, 1, 3, 4, 9, 10)] == [
        False,
        True,
        True,
        False,
        True,
        False,
    ]
