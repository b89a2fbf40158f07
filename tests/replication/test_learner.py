"""REP-1: a value is chosen once a majority has accepted it with one ballot."""

from __future__ import annotations

from typing import Any

import pytest

from oncecast.errors import Corrupt, Crippled
from oncecast.kernel.protocol import Later
from oncecast.replication.ballot import Ballot
from oncecast.replication.events import Added, Decided, Mended, Missing, Removed
from oncecast.replication.messages import (
    CONFIG,
    Accept,
    Accepted,
    Beat,
    Behind,
    Chosen,
    Entry,
    Item,
    Lacking,
    Learned,
    Prepare,
    Recall,
    Recalled,
    Stored,
    Vote,
    Want,
)
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import Member, encode_config
from tests.replication.replicas import (
    THREE,
    A,
    B,
    C,
    D,
    ballot,
    command,
    events,
    hear,
    records,
    restored,
    sends,
    started,
    sync,
    vouch,
)


def test_value_stored_on_two_of_three_disks_is_decided() -> None:
    group = started()
    hear(group, A, Accept(ballot(1), 1, (command(b"x"),), 0))
    assert events(hear(group, A, Accepted(ballot(1), 1, 1, 1))) == []
    assert events(sync(group)) == [Decided(1, b"x")]


def test_slot_missing_on_all_known_members_is_requested_from_the_leader() -> None:
    """REP-4: the replica and all members that it knows are several memberships behind."""
    group = started()
    hear(group, D, Beat(ballot(1, D), 9, 0.0))
    for node in (A, C):
        hear(group, node, Lacking(1, False))
    group.timeout(Behind())
    assert (D, Want(1, 9)) in sends(group.drain())


def test_value_stored_by_both_peers_is_decided() -> None:
    group = started()
    hear(group, A, Accept(ballot(1), 1, (command(b"x"),), 0))
    hear(group, A, Accepted(ballot(1), 1, 1, 1))
    assert events(hear(group, C, Accepted(ballot(1), 1, 1, 1))) == [Decided(1, b"x")]


def test_votes_with_different_ballots_are_not_added_up() -> None:
    group = started()
    hear(group, A, Accept(ballot(1), 1, (command(b"x"),), 0))
    hear(group, A, Accepted(ballot(1), 1, 1, 1))
    assert events(hear(group, C, Accepted(ballot(2, C), 1, 1, 1))) == []


def test_vote_from_another_incarnation_does_not_count() -> None:
    group = started()
    hear(group, A, Accept(ballot(1), 1, (command(b"x"),), 0))
    hear(group, A, Accepted(ballot(1), 1, 1, 1))
    assert events(hear(group, C, Accepted(ballot(1), 1, 1, 2))) == []


def test_slots_are_applied_in_order() -> None:
    group = started()
    hear(group, A, Accept(ballot(1), 2, (command(b"two"),), 0))
    hear(group, A, Accepted(ballot(1), 2, 2, 1))
    assert events(sync(group)) == []
    hear(group, A, Accept(ballot(1), 1, (command(b"one"),), 0))
    hear(group, A, Accepted(ballot(1), 1, 1, 1))
    assert events(sync(group)) == [Decided(1, b"one"), Decided(2, b"two")]


def test_beat_decides_slots_accepted_with_its_ballot() -> None:
    group = started()
    hear(group, A, Accept(ballot(1), 1, (command(b"x"),), 0))
    assert events(hear(group, A, Beat(ballot(1), 1, 5.0)))[-1] == Decided(1, b"x")


def test_beat_does_not_decide_slots_accepted_with_another_ballot() -> None:
    """Leaders with other ballots, lower or higher, may have proposed another value."""
    group = started()
    hear(group, A, Accept(ballot(1), 1, (command(b"x"),), 0))
    effects = hear(group, C, Beat(ballot(2, C), 1, 5.0))
    assert Decided(1, b"x") not in events(effects)
    group = started()
    hear(group, A, Beat(ballot(1), 1, 5.0))
    effects = hear(group, C, Accept(ballot(2, C), 1, (command(b"y"),), 0))
    assert Decided(1, b"y") not in events(effects)


def test_votes_on_a_slot_count_under_the_membership_decided_before_it() -> None:
    group = started()
    added = Item(CONFIG, encode_config(THREE.added(Member(D, 9))))
    hear(group, A, Accept(ballot(1), 1, (added, command(b"x")), 0))
    hear(group, A, Accepted(ballot(1), 1, 2, 1))
    assert events(sync(group)) == [Added(D)]  # two of three are a majority; two of four are not
    assert events(hear(group, D, Accepted(ballot(1), 2, 2, 9))) == [Decided(2, b"x")]


def test_membership_based_on_an_outdated_membership_changes_nothing() -> None:
    group = started()
    first = Item(CONFIG, encode_config(THREE.removed(C)))
    stale = Item(CONFIG, encode_config(THREE.removed(A)))
    hear(group, A, Accept(ballot(1), 1, (first, stale), 0))
    assert Removed(C) in events(hear(group, A, Beat(ballot(1), 2, 5.0)))
    assert group.applied == 2
    assert group.state.membership.config == THREE.removed(C)


# -- missing slots --


def test_missing_slots_are_requested_from_the_leader_first() -> None:
    group = started()
    effects = hear(group, C, Beat(ballot(1, C), 3, 5.0))
    assert any(isinstance(each, Later) and each.timer == Behind() for each in effects)
    group.timeout(Behind())
    assert (C, Want(1, 3)) in sends(group.drain())
    group.timeout(Behind())
    assert (A, Want(1, 3)) in sends(group.drain())


def test_fetched_slots_are_stored_and_applied() -> None:
    group = started()
    hear(group, C, Beat(ballot(1, C), 2, 5.0))
    effects = hear(group, C, Chosen(1, (command(b"one"), command(b"two"))))
    assert records(effects) == [Learned(1, 0, b"one"), Learned(2, 0, b"two")]
    assert events(effects) == [Decided(1, b"one"), Decided(2, b"two")]


def test_already_stored_value_is_not_stored_again_when_fetched() -> None:
    group = started()
    hear(group, A, Accept(ballot(1), 1, (command(b"one"),), 0))
    effects = hear(group, C, Chosen(1, (command(b"one"),)))
    assert records(effects) == []
    assert events(effects) == [Decided(1, b"one")]


def test_chosen_value_replaces_an_accepted_value() -> None:
    group = started()
    hear(group, A, Accept(ballot(1), 1, (command(b"mine"),), 0))
    effects = hear(group, C, Chosen(1, (command(b"theirs"),)))
    assert records(effects) == [Learned(1, 0, b"theirs")]
    assert events(effects) == [Decided(1, b"theirs")]


# -- unreadable slots --


class Bad:
    """A disk that has lost a record."""

    def __init__(self, number: int) -> None:
        self.number = number

    def read(self, number: int) -> Entry:
        if number == self.number:
            raise Corrupt("00000001.log", 4096, number, number, "checksum mismatch")
        return Entry(1, ballot(1), 0, b"whole", 0, vouch(1))


def test_unreadable_entry_is_fetched_and_repaired() -> None:
    group = restored(
        Entry(1, ballot(1), 0, b"one", 0, vouch(1)), Entry(2, ballot(1), 0, b"two", 1, vouch(2))
    )
    group._records.read = Bad(2).read
    group.start()
    group.drain()
    with pytest.raises(Missing):
        group.entry(1)
    group.timeout(Behind())
    assert Want(1, 1) in [message for _, message in sends(group.drain())]
    effects = hear(group, A, Chosen(1, (command(b"one"),)))
    assert records(effects) == [Learned(1, 0, b"one")]
    assert events(effects) == [Mended(1)]
    assert group.entry(1) == b"one"


def with_a_hole() -> Paxos:
    """Return a replica that has applied slot 1, and cannot read it."""
    group = restored(
        Entry(1, ballot(1), 0, b"one", 0, vouch(1)), Entry(2, ballot(1), 0, b"two", 1, vouch(2))
    )
    group._records.read = Bad(2).read
    group.start()
    with pytest.raises(Missing):
        group.entry(1)
    group.drain()
    return group


def test_unreadable_slot_is_recovered_from_votes_of_other_members() -> None:
    group = with_a_hole()
    assert sends(hear(group, A, Lacking(1, False))) == [(A, Recall(1))]
    assert not records(hear(group, A, Recalled(1, 1, Vote(1, ballot(3), command(b"one")))))
    effects = hear(group, C, Recalled(1, 1, Vote(1, ballot(2), command(b"before"))))
    assert records(effects) == [Learned(1, 0, b"one")]
    assert events(effects) == [Mended(1)]


def test_recall_counts_answers_from_members_without_a_vote_but_not_from_non_members() -> None:
    group = with_a_hole()
    hear(group, A, Recalled(1, 1, Vote(1, ballot(3), command(b"one"))))
    assert not records(hear(group, C, Recalled(1, 2, Vote(1, ballot(5), command(b"other")))))
    assert not records(hear(group, D, Recalled(1, 1, None)))
    assert records(hear(group, C, Recalled(1, 1, None))) == [Learned(1, 0, b"one")]


def after_a_snapshot(second: Item, *, damaged: tuple[int, ...] = (2,)) -> Paxos:
    """Build a replica that has applied slots 1 to 3, cannot read slot 1, and knows no membership
    before slot 4."""
    one, three = command(b"one"), command(b"three")
    group = restored(
        *(
            Entry(slot, ballot(1), *item, slot - 1, vouch(slot))
            for slot, item in enumerate((one, second, three, three), 1)
        )
    )
    read = group._records.read

    def reads(number: int) -> Any:
        if number in damaged:
            raise Corrupt("00000001.log", 4096, number, number, "checksum mismatch")
        return read(number)

    group._records.read = reads
    group.state.membership.history.start(3, group.state.membership.config)
    group.start()
    assert group.applied == 3
    hear(group, C, Want(1, 3))
    return group


@pytest.mark.parametrize("slot", [1, 3])
def test_slot_is_recovered_with_the_next_known_membership(slot: int) -> None:
    """REP-1: a snapshot at this slot no longer has the memberships before it."""
    group = after_a_snapshot(command(b"two"))
    group.state.membership.history.start(slot, THREE)
    assert not records(hear(group, A, Recalled(1, 1, Vote(1, ballot(3), command(b"one")))))
    assert records(hear(group, C, Recalled(1, 1, None))) == [Learned(1, 0, b"one")]


FOUR = THREE.added(Member(D, 1))


@pytest.mark.parametrize(
    ("second", "damaged"), [(Item(CONFIG, encode_config(FOUR)), (2,)), (command(b"two"), (2, 3))]
)
def test_slot_with_unknown_membership_is_not_recovered(
    second: Item, damaged: tuple[int, ...]
) -> None:
    """REP-1: the membership may have changed twice since."""
    group = after_a_snapshot(second, damaged=damaged)
    group.state.membership.history.start(3, FOUR.removed(C))
    for node in (A, C, D):
        assert not records(hear(group, node, Recalled(1, 1, Vote(1, ballot(3), command(b"one")))))


def test_later_unreadable_slot_is_recovered_first() -> None:
    """REP-1: it may have changed the membership."""
    group = after_a_snapshot(command(b"two"), damaged=(2, 3))
    one, two = (Vote(slot, ballot(3), command(value)) for slot, value in ((1, b"one"), (2, b"two")))
    for node, vote in ((A, one), (C, None)):
        assert not records(hear(group, node, Recalled(1, 1, vote)))
    group.timeout(Behind())
    assert [message for _, message in sends(group.drain())] == [Want(2, 2), Want(1, 1)]
    assert not records(hear(group, A, Recalled(2, 1, two)))
    assert records(hear(group, C, Recalled(2, 1, None))) == [Learned(2, 0, b"two")]
    assert records(hear(group, C, Recalled(1, 1, None))) == [Learned(1, 0, b"one")]


def test_slot_is_recovered_after_one_membership_change() -> None:
    """REP-1: a majority of the next membership overlaps every majority of the previous one."""
    group = after_a_snapshot(Item(CONFIG, encode_config(FOUR)))
    assert group.status.config == FOUR
    for node in (C, D):
        assert not records(hear(group, node, Recalled(1, 1, None)))
    effects = hear(group, A, Recalled(1, 1, Vote(1, ballot(3), command(b"one"))))
    assert records(effects) == [Learned(1, 0, b"one")]


def test_unreadable_entry_is_recalled_if_a_peer_does_not_have_it() -> None:
    """REP-1: the leader may lose the only copy of a decided entry that its followers need."""
    group = after_a_snapshot(command(b"two"))
    group.timeout(Behind())
    asked = [node for node, message in sends(group.drain()) if message == Want(1, 1)]
    assert asked
    assert sends(hear(group, asked[0], Lacking(1, False))) == [(asked[0], Recall(1))]


def test_recall_is_answered_with_the_vote_or_with_lacking() -> None:
    group = started()
    assert sends(hear(group, A, Recall(1))) == [(A, Recalled(1, 1, None))]
    hear(group, A, Accept(ballot(1), 1, (command(b"x"),), 0))
    mine = Vote(1, ballot(1), command(b"x"))
    assert sends(hear(group, C, Recall(1))) == [(C, Recalled(1, 1, mine))]
    group.state.votes.lost.append((2, 3))
    assert sends(hear(group, C, Recall(3))) == [(C, Lacking(3, True))]
    group.state.values.items.clear()
    group._records.read = Bad(group._records.last).read
    assert sends(hear(group, C, Recall(1))) == [(C, Lacking(1, True))]


def test_lost_vote_for_a_chosen_slot_is_not_reported_as_no_vote() -> None:
    group = restored(Entry(1, ballot(1), 0, b"one", 0, vouch(1)))
    group._records.last = 3
    group.damaged(3, 3)  # this record holds its vote for slot 2
    group._records.last = 4
    group.restore(Entry(3, ballot(1), 0, b"three", 2, vouch(3)))
    group.start()
    group.now = 100.0
    hear(group, C, Prepare(Ballot(9, C), 2))  # a promise forgets the lost votes of chosen slots
    assert sends(hear(group, A, Want(2, 2))) == [(A, Lacking(2, True))]
    assert sends(hear(group, A, Recall(2))) == []


def test_entry_that_all_members_have_lost_raises_an_error() -> None:
    group = restored(
        Entry(1, ballot(1), 0, b"one", 0, vouch(1)), Entry(2, ballot(1), 0, b"", 1, vouch(2))
    )
    group._records.read = Bad(2).read
    group.start()
    with pytest.raises(Missing):
        group.entry(1)
    hear(group, A, Lacking(1, True))
    with pytest.raises(Missing):
        group.entry(1)
    hear(group, C, Lacking(1, False))  # C is merely behind
    with pytest.raises(Missing):
        group.entry(1)
    hear(group, C, Lacking(1, True))
    with pytest.raises(Corrupt, match=r"00000001\.log.*record 2 cannot be read"):
        group.entry(1)


def test_replica_stops_if_all_members_have_lost_the_next_slot() -> None:
    group = restored(Entry(1, ballot(1), 0, b"one", 0, vouch(1)))
    group.damaged(3, 3)
    group._records.last = 4
    group.restore(Entry(3, ballot(1), 0, b"three", 2, vouch(3)))
    group.start()
    assert group.applied == 1
    hear(group, A, Lacking(2, True))
    with pytest.raises(Crippled, match="no other replica can read slot 2"):
        hear(group, C, Lacking(2, True))


def test_stored_message_from_another_node_does_not_count_as_a_vote() -> None:
    group = started()
    hear(group, A, Accept(ballot(1), 1, (command(b"x"),), 0))
    hear(group, A, Accepted(ballot(1), 1, 1, 1))
    assert events(hear(group, C, Stored(99))) == []
    assert group.me == B


def test_missing_slot_is_requested_even_while_later_slots_keep_arriving() -> None:
    """REP-2: under load, later slots arrive all the time."""
    group = started()
    waits = 0
    for slot in range(2, 50):
        effects = hear(group, A, Accept(ballot(1), slot, (command(b"x"),), slot - 1))
        waits += sum(isinstance(each, Later) and each.timer == Behind() for each in effects)
    assert waits == 1
    group.timeout(Behind())
    assert sends(group.drain()) == [(A, Want(1, 48))]


def test_replica_does_not_request_slots_while_it_makes_progress() -> None:
    group = started()
    hear(group, A, Accept(ballot(1), 2, (command(b"x"),), 1))
    hear(group, A, Accept(ballot(1), 1, (command(b"x"),), 1))
    hear(group, A, Accept(ballot(1), 4, (command(b"x"),), 3))
    assert group.applied == 2
    group.timeout(Behind())
    assert sends(group.drain()) == []


def test_replica_that_makes_progress_still_requests_unreadable_slots() -> None:
    """REP-1: otherwise a reader of such a slot would wait forever."""
    group = started()
    hear(group, A, Accept(ballot(1), 2, (command(b"x"),), 1))
    hear(group, A, Accept(ballot(1), 1, (command(b"x"),), 2))
    assert group.applied == 2
    group.state.fetching.note_hole(1)
    group.drain()
    group.timeout(Behind())
    assert sends(group.drain()) == [(A, Want(1, 1))]
