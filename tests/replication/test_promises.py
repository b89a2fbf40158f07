"""REP-1: a candidate proposes values that may have been chosen, for slots that it knows."""

from __future__ import annotations

from oncecast.replication.messages import NOOP, Item, Promise, Vote
from oncecast.replication.promises import Promises
from oncecast.replication.quorum import Member
from tests.replication.replicas import THREE, A, B, C, ballot, command

ME, OTHER, THIRD = Member(A, 1), Member(B, 1), Member(C, 1)


def promise_with(*votes: Vote, known: int = 0, lost: tuple[tuple[int, int], ...] = ()) -> Promise:
    return Promise(ballot(9), 1, 1, known, votes, lost)


def test_candidate_without_promises_covers_no_slots() -> None:
    """REP-1"""
    promises = Promises()
    assert (promises.known, promises.horizon, promises.cover(1, THREE)) == (0, 0, False)


def test_value_with_the_highest_ballot_is_proposed() -> None:
    promises = Promises()
    promises.add(ME, promise_with(Vote(1, ballot(2), command(b"old"))))
    promises.add(OTHER, promise_with(Vote(1, ballot(5), command(b"new"))))
    promises.add(THIRD, promise_with(Vote(1, ballot(3), command(b"between"))))
    assert promises.value(1, THREE) == command(b"new")


def test_vote_from_a_non_member_does_not_count() -> None:
    promises = Promises()
    promises.add(ME, promise_with(Vote(1, ballot(2), command(b"member's"))))
    promises.add(Member(B, 2), promise_with(Vote(1, ballot(5), command(b"non-member's"))))
    assert promises.value(1, THREE) == command(b"member's")


def test_slot_without_votes_is_filled_with_a_noop() -> None:
    promises = Promises()
    promises.add(ME, promise_with(Vote(3, ballot(2), command(b"three"))))
    assert promises.value(2, THREE) == Item(NOOP, b"")
    assert promises.horizon == 3


def test_promises_from_a_majority_cover_a_slot() -> None:
    promises = Promises()
    promises.add(ME, promise_with())
    assert not promises.cover(1, THREE)
    promises.add(OTHER, promise_with())
    assert promises.cover(1, THREE)


def test_member_with_a_trimmed_log_does_not_cover_trimmed_slots() -> None:
    promises = Promises()
    promises.add(ME, promise_with())
    promises.add(OTHER, promise_with(known=4))
    assert promises.known == 4
    assert [promises.cover(slot, THREE) for slot in (4, 5)] == [False, True]


def test_member_that_has_lost_a_vote_does_not_cover_its_slot() -> None:
    promises = Promises()
    promises.add(ME, promise_with())
    promises.add(OTHER, promise_with(lost=((2, 3),)))
    assert [promises.cover(slot, THREE) for slot in (1, 2, 3, 4)] == [True, False, False, True]
    promises.add(THIRD, promise_with())
    assert promises.cover(2, THREE)


def test_promise_from_another_incarnation_does_not_count() -> None:
    promises = Promises()
    promises.add(ME, promise_with())
    promises.add(Member(B, 2), promise_with())
    assert not promises.cover(1, THREE)
