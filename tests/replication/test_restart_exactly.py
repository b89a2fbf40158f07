"""REP-1: test the exact state of a replica after a restart."""

from __future__ import annotations

import pytest

from oncecast.errors import NoSuchRecord
from oncecast.kernel.protocol import Append, Emit, NodeId, Send
from oncecast.replication.ballot import BOTTOM
from oncecast.replication.events import Added, Compare, Decided, Missing, Removed
from oncecast.replication.messages import (
    CHECK,
    CONFIG,
    NOOP,
    Accept,
    Accepted,
    Again,
    Beat,
    Born,
    Checkpoint,
    Chosen,
    Entry,
    Heard,
    Item,
    Learned,
    NewIncarnation,
    Prepare,
    Promise,
    Promised,
    Skipped,
    Stored,
    Vouch,
)
from oncecast.replication.options import GroupOptions
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import NO_MEMBERS, Config, Member, encode_config
from oncecast.replication.votes import FAR, FORGOT
from tests.replication.replicas import (
    OPTIONS,
    THREE,
    A,
    B,
    C,
    D,
    ballot,
    command,
    events,
    hear,
    leading,
    records,
    restored,
    started,
    sync,
    unstarted,
    vouch,
)
from tests.replication.test_restart import applied_values, damage, entry

FOUR = THREE.added(Member(D, 4))


def state(slot: int = 5, **changes: object) -> Checkpoint:
    fields: dict[str, object] = {
        "chunks": (b"state",),
        "slot": slot,
        "kept": 3,
        "incarnation": 9,
        "promised": ballot(7, C),
        "vouch": Vouch(8, 2, 4),
        "config": FOUR,
        "chain": 123,
        "runs": ((3, 40, 3),),
        "lost": ((7, 8),),
    }
    return Checkpoint(**{**fields, **changes})  # type: ignore[arg-type]


# -- a snapshot --


def test_snapshot_restores_every_field() -> None:
    group = restored(state())
    assert (
        group.state.membership.incarnation,
        group.recovery.born,
        group.state.votes.promised,
    ) == (9, True, ballot(7, C))
    assert group.state.votes.vouch == Vouch(8, 2, 4)
    assert (
        group.applied,
        group.state.progress.certain,
        group.state.values.kept,
        group.state.progress.chain,
    ) == (5, 5, 3, 123)
    assert (group.state.membership.config, group.state.votes.lost) == (FOUR, [(7, 8)])
    assert [group.state.values.index.get(slot) for slot in (2, 3, 5, 6)] == [None, 40, 42, None]
    assert group.state.progress.chain_at(5) == 123
    assert group.learner.machine.state == (5, (b"state",))  # type: ignore[union-attr]


def test_replica_restored_from_a_snapshot_writes_no_born_record() -> None:
    group = unstarted()
    group.restore(state(config=Config(1, (Member(B, 9), Member(C, 1)), 2)))
    group.start()
    assert group.state.membership.incarnation == 9
    assert not any(isinstance(each, Born) for each in records(group.drain()))


def test_slot_covered_by_a_snapshot_is_neither_reapplied_nor_kept_in_memory() -> None:
    group = restored(state(), entry(5), Learned(4, 0, b"4"), Learned(5, 0, b"5"), entry(6))
    assert applied_values(group) == []
    assert list(group.state.values.items) == [6]
    assert group.state.progress.learned == {}
    assert list(group.state.votes.ballots) == [6]
    assert group.state.values.held_bytes == 1


def test_older_record_does_not_replace_a_record_from_a_snapshot() -> None:
    group = restored(state(runs=((3, 1, 3),)), Learned(4, 0, b"4"))
    assert group.state.values.index.get(4) == 3
    group = restored(state(runs=((3, 40, 3),)), Learned(4, 0, b"4"), Learned(5, 0, b"5"))
    assert [group.state.values.index.get(slot) for slot in (4, 5)] == [41, 42]


def test_learned_record_is_indexed_if_the_snapshot_omits_its_slot() -> None:
    group = restored(state(runs=()), Learned(4, 0, b"4"), Learned(5, 0, b"5"))
    assert [group.state.values.index.get(slot) for slot in (4, 5)] == [3, 4]
    assert (group.state.values.items, group.state.progress.learned) == ({}, {})


# -- counts --


def test_vote_restores_its_promise_and_counts() -> None:
    group = restored(entry(4, round=3, top=6, replaced=2), entry(2, round=2, top=5, replaced=1))
    assert (group.state.votes.promised, group.state.votes.top, group.state.votes.replaced) == (
        ballot(3),
        6,
        2,
    )
    assert group.state.votes.counted == 1
    assert group.state.votes.ballots == {4: ballot(3), 2: ballot(2)}


def test_learned_value_for_a_voted_slot_counts_as_a_replacement() -> None:
    group = restored(entry(1), entry(2), Learned(2, 0, b"new"))
    assert (group.state.votes.replaced, group.state.votes.counted) == (1, None)
    group = restored(entry(1), Learned(2, 0, b"new"))
    assert (group.state.votes.replaced, group.state.votes.counted) == (0, 0)
    group = started()
    hear(group, A, Accept(ballot(1), 1, (command(b"a"), command(b"b")), 0))
    hear(group, C, Chosen(2, (command(b"other"), command(b"c"), command(b"d"))))
    assert group.state.votes.replaced == 1


def test_installed_snapshot_counts_as_more_than_one_replacement() -> None:
    group = restored(entry(1), Skipped(4), Skipped(3))
    assert (group.state.progress.skipped, group.state.progress.certain) == (4, 4)
    assert (group.state.votes.replaced, group.state.votes.counted) == (2 * FORGOT, None)
    assert FORGOT > 1


def test_highest_slot_known_to_be_chosen_never_decreases() -> None:
    group = restored(entry(9, applied=5), Skipped(3), entry(10, applied=4))
    assert group.state.progress.certain == 5


def test_repeated_vote_counts_only_after_a_first_vote() -> None:
    group = restored(entry(1), Again(1, ballot(4), vouch(1, replaced=1)))
    assert group.state.votes.ballots == {1: ballot(4)}
    group = restored(Again(1, ballot(4), vouch(1, replaced=1)))
    assert group.state.votes.ballots == {}
    assert group.state.votes.promised == ballot(4)


def test_replica_remembers_that_a_new_incarnation_record_is_lost() -> None:
    group = restored(Promised(ballot(1), vouch(0, renewals=3)))
    assert (group.state.votes.renewals, group.state.votes.incarnation_lost) == (3, True)
    group = restored(
        Promised(ballot(1), vouch(0, renewals=3)),
        Promised(ballot(1), vouch(0, renewals=2)),
    )
    assert group.state.votes.renewals == 3


# -- damage --


def test_damage_loses_all_slots_not_known_to_be_chosen() -> None:
    group = damage(restored(entry(4, applied=2)))
    assert group.state.votes.lost == [(3, FAR)]
    assert group.state.votes.damage == "records 3 to 3 of its log cannot be read"


def test_next_vote_limits_the_lost_slots() -> None:
    group = damage(restored(entry(1), entry(3)), entry(6, applied=1, top=7))
    assert group.state.votes.lost == [(2, 2), (4, 5), (7, 7)]


def test_damage_loses_no_slots_if_the_next_record_names_no_later_slot() -> None:
    group = damage(restored(entry(2, applied=2)), Promised(ballot(3), vouch(2)))
    assert group.state.votes.lost == []
    assert not group.state.votes.promise_uncertain


def test_doubtful_votes_and_values_are_discarded_unless_they_are_applied() -> None:
    group = damage(
        restored(entry(1), entry(2, applied=1), entry(3)),
        Promised(ballot(5), vouch(3, replaced=1)),
    )
    assert applied_values(group) == [(1, b"1")]
    assert (group.state.votes.ballots, group.state.values.items, group.state.values.held_bytes) == (
        {},
        {},
        0,
    )
    assert [group.state.values.index.get(slot) for slot in (1, 2, 3)] == [2, None, None]
    assert group.state.votes.replaced == 1 + FORGOT


def test_applied_values_are_kept_when_votes_are_doubtful() -> None:
    doubtful = Promised(ballot(5), vouch(2, replaced=9))
    group = damage(restored(entry(1), entry(2)), Learned(1, 0, b"1"), doubtful)
    assert applied_values(group) == [(1, b"1")]
    assert [group.state.values.index.get(slot) for slot in (1, 2)] == [5, None]


def test_votes_before_the_first_of_several_damaged_records_are_doubtful() -> None:
    group = damage(restored(entry(1), entry(2)))
    group._records.last += 1
    group.restore(Skipped(5))
    damage(group, Promised(ballot(5), vouch(2, replaced=9)))
    assert [group.state.values.index.get(slot) for slot in (1, 2)] == [None, None]


def test_votes_that_the_damage_may_have_replaced_are_dropped() -> None:
    log = [entry(1), entry(2), entry(3)]
    group = damage(restored(*log, Learned(2, 0, b"2")), entry(9, applied=0, top=9, replaced=7))
    assert group.state.votes.ballots == {9: ballot(1)}
    assert group.state.values.index.get(1) is None


def test_new_incarnation_keeps_only_slots_known_to_be_chosen() -> None:
    group = restored(entry(1), entry(2), entry(3), entry(4, applied=2))
    group.state.votes.begin_incarnation(77, 1)
    assert (
        group.state.membership.incarnation,
        group.state.votes.renewals,
        group.state.votes.incarnation_lost,
    ) == (77, 1, False)
    assert (group.state.votes.ballots, group.state.votes.lost) == ({}, [])
    assert [group.state.values.index.get(slot) for slot in (1, 2, 3, 4)] == [2, 3, None, None]
    assert group.state.votes.counted == group.state.votes.replaced == FORGOT


def test_new_incarnation_keeps_chosen_values_after_a_gap() -> None:
    group = restored(entry(2), entry(3), entry(4, applied=3))
    group.state.votes.incarnation_lost = True
    group.state.votes.begin_incarnation(77, 1)
    assert not group.state.votes.incarnation_lost
    assert [group.state.values.index.get(slot) for slot in (2, 3, 4)] == [2, 3, None]


def test_new_incarnation_record_without_a_number_increments_the_count() -> None:
    group = restored(NewIncarnation(42), NewIncarnation(43))
    assert (group.state.membership.incarnation, group.state.votes.renewals) == (43, 2)


def test_new_incarnation_drops_values_after_the_first_lost_slot() -> None:
    group = damage(restored(entry(1), entry(2), entry(3)))
    group.state.progress.certain = 3
    group.state.votes.begin_incarnation(77, 5)
    assert group.state.votes.renewals == 5
    assert [group.state.values.index.get(slot) for slot in (1, 2, 3)] == [None, None, None]


# -- memberships in the log --


def test_replica_knows_the_latest_membership_in_its_log_before_it_is_applied() -> None:
    five = FOUR.added(Member(NodeId("e"), 5))
    group = restored(
        Entry(5, ballot(1), CONFIG, encode_config(five), 0, vouch(5)),
        Learned(4, CONFIG, encode_config(FOUR)),
    )
    assert group.state.membership.latest_in_log == five
    assert group.state.membership.config == THREE
    assert restored(entry(1)).state.membership.latest_in_log == NO_MEMBERS


# -- promising after damage --


def promised_to_c(group: Paxos) -> Promise:
    group.start()
    group.drain()
    group.now = 100.0
    promise = [
        each.message for each in hear(group, C, Prepare(ballot(99, C), 1)) if isinstance(each, Send)
    ]
    assert isinstance(promise[0], Promise)
    return promise[0]


def test_learned_value_for_a_lost_slot_is_reported() -> None:
    group = damage(restored(entry(5, applied=1)), Learned(4, 0, b"4"), entry(6, applied=1, top=7))
    promise = promised_to_c(group)
    assert [vote.slot for vote in promise.votes] == [4, 5, 6]
    assert promise.lost == ((2, 3), (7, 7))


def test_vote_with_an_unreadable_value_is_reported_as_lost() -> None:
    group = restored(entry(1), entry(2))
    group.state.values.items.clear()
    group.state.values.index.cut(2)
    promise = promised_to_c(group)
    assert [vote.slot for vote in promise.votes] == [1]
    assert promise.lost == ((2, 2),)


def test_lost_slots_are_dropped_once_applied() -> None:
    group = damage(restored(entry(1)), entry(3, applied=1, top=4))
    assert group.state.votes.lost == [(2, 2), (4, 4)]
    group.start()
    group.now = 100.0
    hear(group, A, Chosen(2, (command(b"2"), command(b"3"))))
    hear(group, C, Prepare(ballot(99, C), 1))
    assert (group.applied, group.state.votes.lost) == (3, [(4, 4)])


def test_leader_known_before_a_restart_is_answered_without_a_disk_wait() -> None:
    group = restored(Promised(ballot(1), vouch(0)))
    group.start()
    hear(group, A, Accept(ballot(1), 1, (command(b"x"),), 0))
    heard = [each for each in hear(group, A, Beat(ballot(1), 0, 7.5)) if isinstance(each, Send)]
    assert heard == [Send(A, Heard(ballot(1), 7.5, 1, 0, OPTIONS.suspicion), after=0)]


# -- memory --


def held(options: GroupOptions, sizes: list[int]) -> list[int]:
    log = [
        Entry(2 + at, ballot(1), 0, bytes(size), 0, vouch(2 + at)) for at, size in enumerate(sizes)
    ]
    group = restored(*log, options=options)
    assert group.state.values.held_bytes == sum(
        len(item.data) for item in group.state.values.items.values()
    )
    return list(group.state.values.items)


def test_replica_keeps_at_most_two_windows_of_values_that_it_cannot_apply() -> None:
    slots = GroupOptions(compare_every=0.0, window_slots=2)
    assert held(slots, [1, 1, 1, 1, 1, 1]) == [2, 3, 4, 5]
    size = GroupOptions(compare_every=0.0, window_bytes=50)
    assert held(size, [40, 40, 40, 40, 40]) == [2, 3, 4]
    assert held(size, [50, 50, 1]) == [2, 3]


def test_values_not_kept_in_memory_are_applied_from_the_log() -> None:
    options = GroupOptions(compare_every=0.0, window_slots=1)
    log = [entry(slot) for slot in (2, 3, 4, 5, 1)]
    group = restored(*log, entry(6, applied=5), options=options)
    group.start()
    assert applied_values(group) == [(slot, b"%d" % slot) for slot in range(1, 6)]


def test_value_leaves_memory_once_it_is_applied_and_on_disk() -> None:
    group = started()
    hear(group, A, Accept(ballot(1), 1, (command(b"x"),), 0))
    assert list(group.state.values.items) == [1]
    hear(group, A, Accepted(ballot(1), 1, 1, 1))
    hear(group, C, Accepted(ballot(1), 1, 1, 1))
    # The value is not on disk yet.
    assert (group.applied, list(group.state.values.items)) == (1, [1])
    sync(group)
    assert (
        group.state.values.items,
        list(group.state.values.storing),
        group.state.votes.ballots,
    ) == ({}, [], {})
    assert group.state.values.stored == group._records.last


def test_undecided_value_stays_in_memory_when_it_is_on_disk() -> None:
    group = started()
    hear(group, A, Accept(ballot(1), 1, (command(b"x"),), 0))
    sync(group)
    assert list(group.state.values.items) == [1]
    hear(group, A, Accepted(ballot(1), 1, 1, 1))
    assert (group.applied, group.state.values.items) == (1, {})


def test_applied_value_leaves_memory_while_later_ones_are_being_stored() -> None:
    group = started()
    hear(group, A, Accept(ballot(1), 1, (command(b"x"),), 0))
    sync(group)
    hear(group, A, Accept(ballot(1), 2, (command(b"y"),), 1))
    assert (group.applied, list(group.state.values.items)) == (1, [2])


def test_last_record_on_disk_never_decreases() -> None:
    group = started()
    hear(group, B, Stored(7))
    hear(group, B, Stored(3))
    assert group.state.values.stored == 7


# -- applying --


def test_decided_command_has_no_token_if_it_was_not_proposed_here() -> None:
    group = started()
    hear(group, A, Accept(ballot(1), 1, (command(b"x"),), 0))
    assert events(hear(group, A, Accept(ballot(1), 2, (), 1))) == [Decided(1, b"x", -1)]
    leader = leading()
    leader.leader.tokens[5] = 3
    assert events(hear(leader, B, Chosen(1, (command(b"x"),)))) == [Decided(1, b"x", -1)]
    assert leader.leader.tokens == {5: 3}


def chosen(group: Paxos, *items: Item) -> list[object]:
    return list(events(hear(group, A, Chosen(group.applied + 1, items))))


def test_noop_is_applied_without_an_event() -> None:
    group = started()
    assert chosen(group, Item(NOOP, b"")) == []
    assert group.applied == 1
    assert group.state.progress.learned == {}


def test_check_requests_a_comparison_at_once() -> None:
    group = started()
    effects = hear(group, A, Chosen(1, (Item(CHECK, b""),)))
    assert Emit(Compare(1), after=0) in effects
    assert list(group.state.progress.checks) == [(1, group.state.progress.chain)]


def test_last_eight_checks_are_kept() -> None:
    group = started()
    for _ in range(9):
        chosen(group, Item(CHECK, b""))
    assert [slot for slot, _ in group.state.progress.checks] == list(range(2, 10))


def test_restored_check_does_not_request_a_comparison() -> None:
    group = restored(Learned(1, CHECK, b""))
    assert group.applied == 1
    assert (list(group.state.progress.checks), group.drain()) == ([], [])


def test_checksum_depends_on_value_kind_and_slot() -> None:
    group = started()
    chains = [0]
    for item in (command(b"x"), command(b"x"), Item(NOOP, b""), command(b"")):
        chosen(group, item)
        chains.append(group.state.progress.chain)
    assert len(set(chains)) == 5
    assert [group.state.progress.chain_at(slot) for slot in (1, 2, 4)] == [
        chains[1],
        chains[2],
        chains[4],
    ]
    assert group.state.progress.chain_at(0) == 0


def test_checksums_from_the_last_two_steps_are_kept() -> None:
    group = started(options=GroupOptions(compare_every=0.0, window_slots=2))
    assert group.options.step_slots == 64
    for _ in range(130):
        chosen(group, command(b"x"))
    assert [slot for slot, _ in group.state.progress.chains] == list(range(3, 131))


def test_membership_is_written_twice_and_reported() -> None:
    group = started()
    item = Item(CONFIG, encode_config(FOUR))
    effects = hear(group, A, Chosen(1, (item,)))
    assert effects[:4] == [
        Append(Learned(1, CONFIG, item.data), 2),
        Send(B, Stored(2), after=2),
        Append(Learned(1, CONFIG, item.data), 3),
        Emit(Added(D), after=0),
    ]
    removed = Item(CONFIG, encode_config(FOUR.removed(C)))
    effects = hear(group, A, Chosen(2, (removed,)))
    assert [each for each in effects if isinstance(each, Emit)] == [Emit(Removed(C), after=0)]


def test_membership_that_skips_a_version_changes_nothing() -> None:
    group = started()
    later = Config(3, FOUR.members, 3)
    assert chosen(group, Item(CONFIG, encode_config(later))) == []
    assert group.state.membership.config == THREE


def test_learned_value_is_written_once() -> None:
    group = started()
    first = records(hear(group, A, Chosen(2, (command(b"x"),))))
    assert first == [Learned(2, 0, b"x")]
    assert records(hear(group, C, Chosen(2, (command(b"x"),)))) == []
    assert list(group.state.progress.learned) == [2]


def test_error_for_an_unreadable_slot_names_the_slot() -> None:
    group = started(A, Config(1, (Member(A, 1),), 1))
    with pytest.raises(NoSuchRecord, match="slot 4 is not in this replica's log"):
        group.entry(4)
    with pytest.raises(Missing, match="this replica cannot read entry 4"):
        started().entry(4)


def test_known_nodes_are_the_members_or_the_contacts_if_there_are_none() -> None:
    assert started().nodes() == (A, B, C)
    outside = started(D, NO_MEMBERS)
    outside.state.membership.history.start(0, NO_MEMBERS)
    outside.state.membership.contacts = (A,)
    assert outside.nodes() == (A,)


def test_new_replica_has_promised_stored_and_applied_nothing() -> None:
    group = unstarted()
    assert (
        group.state.votes.promised,
        group.state.votes.promised_in,
        group.state.votes.ballots,
        group.state.votes.top,
    ) == (BOTTOM, 0, {}, 0)
    assert (
        group.state.values.stored,
        group.applied,
        group.state.progress.certain,
        group.state.progress.skipped,
    ) == (0, 0, 0, 0)
    assert (
        group.state.values.kept,
        group.state.votes.replaced,
        group.state.votes.renewals,
        group.state.progress.chain,
    ) == (1, 0, 0, 0)
    assert (
        group.state.progress.known,
        group.state.fetching.applied_when_set,
        group.learner.leader_knows,
    ) == (
        0,
        -1,
        (BOTTOM, 0),
    )
    assert (
        group.state.following.heard,
        group.state.following.leader,
        group.state.membership.adopted,
        group.comparison.compared,
    ) == (0.0, "", 0, 0.0)


def test_repaired_slot_is_not_treated_as_open() -> None:
    group = started()
    chosen(group, command(b"x"))
    group.state.fetching.note_hole(1)
    group.state.values.index.cut(1)
    hear(group, A, Chosen(1, (command(b"x"),)))
    assert (group.state.progress.learned, group.applied) == ({}, 1)


def test_founders_start_with_the_given_membership_and_a_lone_node_with_its_own() -> None:
    group = started()
    assert group.state.membership.config is THREE
    alone = unstarted(A, NO_MEMBERS)
    alone.start()
    assert alone.state.membership.config == Config(1, (Member(A, 1),), OPTIONS.size, 1)
