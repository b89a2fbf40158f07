"""REP-1: test the exact effects of sending and receiving a snapshot."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from oncecast.kernel.protocol import Append, Emit, Later, Send, Snapshot, Trim
from oncecast.replication.events import Added, Compact, Decided, Installed, Removed, StateWanted
from oncecast.replication.messages import (
    CONFIG,
    Accept,
    Accepted,
    Ahead,
    Beat,
    Behind,
    Canvass,
    Checkpoint,
    Chosen,
    Consent,
    Item,
    Lacking,
    Learned,
    Piece,
    Skipped,
    Stored,
    Unclaimed,
    Vote,
    Want,
    WantPiece,
)
from oncecast.replication.options import GroupOptions
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import Member, encode_config
from oncecast.replication.supply import in_pieces
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
    sends,
    started,
    sync,
    vouch,
)
from tests.replication.test_supply import (
    AHEAD,
    FIVE,
    PIECES,
    SMALL,
    compact,
    replica,
    saved,
    taking,
)

RESEND = SMALL.resend
FOUR = THREE.added(Member(D, 4))
X, Y = command(b"x"), command(b"y")


# -- saving --


def test_snapshot_contains_all_fields_that_a_restart_needs() -> None:
    group = replica(known=3)
    group.state.votes.lost = [(7, 8)]
    chain = group.state.progress.chain
    effects = compact(group, 3, 2)
    state = Checkpoint(
        (b"state", b"x"), 3, 2, 1, ballot(1), vouch(5), THREE, chain, ((2, 3, 4),), ((7, 8),), 2.0
    )
    assert effects == [Snapshot(state, 4), Trim("paxos", 3)]
    assert group.state.values.kept == 2


def test_snapshot_without_needed_entries_trims_all_records() -> None:
    group = replica()
    assert saved(compact(group, 5, 99))[1:] == (6, 7)
    assert group.state.values.kept == 6


def test_first_kept_slot_never_decreases() -> None:
    group = replica()
    compact(group, 5, 4)
    state, _, trim = saved(compact(group, 5, 2))
    assert (state.kept, trim) == (4, 5)


def test_snapshot_contains_the_membership_for_the_next_slot() -> None:
    group = started(B, options=SMALL)
    change = Item(CONFIG, encode_config(FOUR))
    hear(group, A, Chosen(1, (X, change, Y)))
    assert saved(compact(group, 1, 2))[0].config == THREE
    assert saved(compact(group, 3, 2))[0].config == FOUR
    assert not group.state.membership.history.knows(2)
    assert group.state.membership.history.knows(3)


def test_unreadable_slots_before_the_first_needed_slot_are_dropped() -> None:
    group = replica()
    for slot in (2, 3, 4):
        group.state.fetching.holes[slot] = {}
        group.state.fetching.recalled[slot] = {Member(A, 1): Vote(slot, ballot(1), X)}
    compact(group, 5, 4)
    assert (list(group.state.fetching.holes), list(group.state.fetching.recalled)) == ([4], [4])


def test_empty_snapshot_is_neither_saved_nor_offered() -> None:
    group = started(B, options=SMALL)
    group.supplier.askers[C] = None
    assert compact(group, 0, 0) == []
    assert group.supplier.askers == {}


def test_snapshot_at_the_first_slot_is_saved() -> None:
    assert saved(compact(replica(), 1, 1))[0].slot == 1


# -- giving --


def test_chosen_entries_fit_the_byte_limit_of_an_accept() -> None:
    sizes = GroupOptions(compare_every=0.0, accept_bytes=250_000)
    group = started(B, options=sizes)
    hear(group, A, Chosen(1, tuple(command(bytes(100_000)) for _ in range(5))))
    ((_, chosen),) = sends(hear(group, C, Want(1, 5)))
    assert isinstance(chosen, Chosen)
    assert len(chosen.items) == 3
    exactly = GroupOptions(compare_every=0.0, accept_bytes=200_000)
    group = started(B, options=exactly)
    hear(group, A, Chosen(1, tuple(command(bytes(100_000)) for _ in range(5))))
    ((_, chosen),) = sends(hear(group, C, Want(1, 5)))
    assert isinstance(chosen, Chosen)
    assert len(chosen.items) == 2


def test_chosen_entries_are_limited_to_one_step() -> None:
    group = started(B, options=GroupOptions(compare_every=0.0, window_slots=2))
    for slot in range(1, 81):
        hear(group, A, Chosen(slot, (X,)))
    assert sends(hear(group, C, Want(2, 80))) == [(C, Chosen(2, (X,) * 64, 80))]
    assert sends(hear(group, C, Want(70, 99))) == [(C, Chosen(70, (X,) * 11, 80))]


def test_entries_are_sent_up_to_the_first_unreadable_entry() -> None:
    group = replica()
    group.state.values.index.cut(3)
    assert hear(group, C, Want(1, 5)) == [Send(C, Chosen(1, FIVE[:2], 5), after=0)]
    lacking = Send(C, Lacking(3, True), after=0)
    assert hear(group, C, Want(3, 5)) == [lacking, Later(0.0, Behind())]
    assert hear(group, C, Want(3, 5)) == [lacking]
    assert list(group.state.fetching.holes) == [3]
    assert hear(group, C, Want(2, 2)) == [Send(C, Chosen(2, FIVE[1:2], 5), after=0)]


def test_lost_unapplied_entry_is_not_recorded_as_unreadable() -> None:
    """REP-1: a replica that catches up asks for it anyway."""
    group = replica(known=2)
    group.state.progress.certain = 4
    group.state.values.index.cut(3)
    group.state.values.items.clear()
    assert hear(group, C, Want(3, 5)) == [Send(C, Lacking(3, True), after=0)]
    assert group.state.fetching.holes == {}


def test_undecided_entry_is_missing_but_not_lost() -> None:
    group = replica(known=2)
    assert hear(group, C, Want(3, 3)) == [Send(C, Lacking(3, False), after=0)]


def test_snapshot_for_several_peers_is_requested_once() -> None:
    group = replica()
    compact(group, 5, 4)
    assert hear(group, C, Want(1, 5)) == [Emit(StateWanted(), after=6)]
    assert hear(group, A, Want(1, 5)) == []
    ahead = msgspec.structs.replace(AHEAD, chain=group.state.progress.chain)
    effects = compact(group, 5, 4)
    assert effects[:3] == [
        Send(C, ahead, after=0),
        Send(A, ahead, after=0),
        Later(SMALL.unclaimed_after, Unclaimed()),
    ]
    assert group.supplier.askers == {}
    assert hear(group, D, Want(1, 5)) == [Send(D, ahead, after=0)]


def giving() -> Paxos:
    group = replica()
    compact(group, 5, 4)
    hear(group, C, Want(1, 5))
    compact(group, 5, 4)
    return group


def test_only_existing_pieces_of_the_current_snapshot_are_sent() -> None:
    group = giving()
    assert hear(group, C, WantPiece(5, 0)) == [Send(C, PIECES[0], after=0)]
    assert hear(group, C, WantPiece(5, 2)) == [Send(C, PIECES[2], after=0)]
    assert hear(group, C, WantPiece(5, 3)) == []
    assert hear(group, C, WantPiece(5, -1)) == []
    assert [type(each) for _, each in sends(hear(group, C, WantPiece(4, 0)))] == [Ahead]


def test_snapshot_is_kept_while_its_pieces_or_entries_are_fetched() -> None:
    group = giving()
    began = group.now
    group.now = began + 4.0
    hear(group, C, WantPiece(5, 0))
    group.now = began + 6.0
    hear(group, C, Want(4, 5))
    hear(group, A, Want(4, 5))  # A fetches no snapshot
    group.now = began + 10.0
    group.timeout(Unclaimed())
    assert group.drain() == [Later(6.0, Unclaimed())]
    group.now = began + 15.9
    hear(group, A, Want(4, 5))
    group.timeout(Unclaimed())
    assert sends(hear(group, A, WantPiece(5, 3))) == []
    group.now = began + 16.0
    group.drain()
    group.timeout(Unclaimed())
    assert group.drain() == []
    group.timeout(Unclaimed())
    assert group.drain() == []
    assert sends(hear(group, C, WantPiece(5, 0))) == []


def test_removed_member_that_canvasses_gets_its_missing_slots() -> None:
    group = replica()
    group.state.following.leader, group.state.following.heard = A, group.now
    assert sends(hear(group, D, Canvass(5))) == [(D, Chosen(5, FIVE[4:], 5))]
    assert sends(hear(group, D, Canvass(6))) == []
    assert sends(hear(group, C, Canvass(1))) == []  # C is still a member
    group.now += SMALL.suspicion
    assert sends(hear(group, D, Canvass(5))) == [(D, Consent(1))]


def test_snapshot_is_cut_into_pieces_and_an_empty_chunk_is_one_piece() -> None:
    assert in_pieces((b"abcde", b"", b"wxyz"), 4) == [
        (b"abcd", False),
        (b"e", True),
        (b"", True),
        (b"wxyz", True),
    ]


# -- taking --


def test_snapshot_is_requested_piece_by_piece() -> None:
    group = started(B, options=SMALL)
    assert hear(group, C, AHEAD) == [
        Later(RESEND, Behind()),
        Send(C, WantPiece(5, 0), after=0),
    ]
    assert hear(group, C, PIECES[0]) == [
        Later(RESEND, Behind()),
        Send(C, WantPiece(5, 1), after=0),
    ]
    hear(group, C, PIECES[1])
    assert group.transfer.taking is not None
    assert (group.transfer.taking.chunks, group.transfer.taking.parts) == ([b"state"], [])
    assert hear(group, C, PIECES[2]) == [
        Later(RESEND, Behind()),
        Send(C, Want(4, 5), after=0),
    ]


@pytest.mark.parametrize("slot", [3, 5])
def test_snapshot_without_new_slots_or_without_pieces_is_ignored(slot: int) -> None:
    group = replica()
    assert hear(group, C, msgspec.structs.replace(AHEAD, slot=slot)) == []
    assert group.transfer.taking is None
    assert hear(started(B, options=SMALL), C, msgspec.structs.replace(AHEAD, pieces=0)) == []


def test_snapshot_offer_from_another_source_is_ignored_during_a_transfer() -> None:
    group = taking()
    assert hear(group, A, msgspec.structs.replace(AHEAD, slot=9)) == []
    assert group.transfer.taking is not None
    assert (group.transfer.taking.source, group.transfer.taking.ahead.slot) == (C, 5)


def test_repeated_snapshot_offer_continues_the_transfer() -> None:
    group = started(B, options=SMALL)
    hear(group, C, AHEAD)
    hear(group, C, PIECES[0])
    assert sends(hear(group, C, AHEAD)) == [(C, WantPiece(5, 1))]


def test_piece_from_another_snapshot_is_ignored() -> None:
    group = started(B, options=SMALL)
    hear(group, C, AHEAD)
    assert hear(group, C, Piece(6, 0, b"stat", False)) == []
    assert hear(group, C, Piece(5, 1, b"stat", False)) == []
    assert hear(started(B, options=SMALL), C, PIECES[0]) == []


def test_replica_asks_again_until_its_source_has_been_silent_for_too_long() -> None:
    group = started(B, options=SMALL)
    hear(group, C, AHEAD)
    for _ in range(10):
        group.timeout(Behind())
        assert sends(group.drain()) == [(C, WantPiece(5, 0))]
    hear(group, C, PIECES[0])  # an answer restarts the count
    for _ in range(19):
        group.timeout(Behind())
        assert sends(group.drain()) == [(C, WantPiece(5, 1))]
    group.state.progress.known = 5
    group.timeout(Behind())
    assert group.transfer.taking is None
    assert sends(group.drain()) == [(A, Want(1, 5))]


def test_replica_waits_for_a_silent_source_for_the_suspicion_time() -> None:
    """REP-2: `resend` may be shorter than the round trip."""
    group = started(B, options=replace(SMALL, resend=0.01, suspicion=2.0))
    hear(group, C, AHEAD)
    for _ in range(199):
        group.timeout(Behind())
        assert sends(group.drain()) == [(C, WantPiece(5, 0))]
    group.timeout(Behind())
    assert group.transfer.taking is None


def test_number_of_snapshot_pieces_is_bounded() -> None:
    """REP-2"""
    tiny = GroupOptions(piece_bytes=1)
    assert [tiny.piece_size(size) for size in (0, 1, 64, 65, 6400)] == [1, 1, 1, 2, 100]
    assert tiny.piece_size(1 << 30) == 1 << 16
    assert GroupOptions().piece_size(1 << 30) == 1 << 20
    group = started(B, options=tiny)
    hear(group, A, Accept(ballot(1), 1, FIVE, 0))
    sync(group)
    hear(group, A, Beat(ballot(1), 5, 1.0))
    group.supplier.askers[C] = None
    group.request(Compact(5, 6, (bytes(1000), bytes(280))))
    (ahead,) = [each for to, each in sends(group.drain()) if isinstance(each, Ahead)]
    assert ahead.pieces == 64


def test_only_entries_that_the_snapshot_needs_are_stored() -> None:
    group = taking()
    for _ in range(10):
        group.timeout(Behind())
    group.drain()
    assert records(hear(group, C, Chosen(3, (X,)))) == []
    assert group.transfer.taking is not None
    assert group.transfer.taking.tries == 10
    effects = hear(group, C, Chosen(4, FIVE[3:4]))
    assert records(effects) == [Learned(4, 0, b"4")]
    assert sends(effects) == [(B, Stored(group._records.last)), (C, Want(5, 5))]
    assert (group.transfer.taking.tries, group.transfer.taking.slot) == (0, 5)
    effects = hear(group, C, Chosen(5, (FIVE[4], X)))
    assert records(effects)[0] == Learned(5, 0, b"5")
    assert group.transfer.taking is None
    assert not any(isinstance(each, Learned) and each.slot == 6 for each in records(effects))


def test_entries_from_another_source_are_learned_as_usual() -> None:
    group = taking()
    assert events(hear(group, A, Chosen(1, FIVE[:1]))) == [Decided(1, b"1")]
    early = started(B, options=SMALL)
    hear(early, C, AHEAD)
    assert events(hear(early, C, Chosen(1, FIVE[:1]))) == [Decided(1, b"1")]


def test_installing_a_snapshot_produces_effects_in_order() -> None:
    group = taking()
    hear(group, C, Chosen(4, FIVE[3:4]))
    number = group._records.last + 1
    effects = hear(group, C, Chosen(5, FIVE[4:]))
    *first, snapshot, trim = effects
    assert first == [
        Append(Learned(5, 0, b"5"), number),
        Send(B, Stored(number), after=number),
        Later(RESEND, Behind()),
        Append(Skipped(5), number + 1),
        Emit(Installed(5, (b"state", b"x")), after=number + 1),
    ]
    assert isinstance(snapshot, Snapshot)
    assert trim == Trim("paxos", 2)
    assert (group.state.progress.chain_at(5), group.state.progress.certain, group.applied) == (
        999,
        5,
        5,
    )


def test_snapshot_with_another_membership_reports_added_and_removed_nodes() -> None:
    group = started(B, options=SMALL)
    other = FOUR.removed(C)
    hear(group, C, Ahead(5, 6, 999, other, 1))
    effects = hear(group, C, Piece(5, 0, b"s", True))
    assert [each for each in effects if isinstance(each, Emit)][1:] == [
        Emit(Added(D), after=0),
        Emit(Removed(C), after=0),
    ]
    assert group.state.membership.config == other
    assert not group.state.membership.history.knows(5)


def test_snapshot_clears_votes_and_tallies_up_to_its_slot_only() -> None:
    group = started(B, options=SMALL)
    hear(group, A, Accept(ballot(1), 4, (X, Y, X, Y), 0))
    hear(group, C, Accepted(ballot(1), 4, 7, 2))
    group.state.progress.learned[3] = None
    group.state.fetching.tried[A] = group.state.fetching.lost_by[A] = None
    hear(group, C, Ahead(5, 6, 999, THREE, 1))
    hear(group, C, Piece(5, 0, b"s", True))
    assert (
        list(group.state.votes.ballots),
        list(group.state.tallies),
        group.state.progress.learned,
    ) == ([6, 7], [6, 7], {})
    assert (group.state.fetching.tried, group.state.fetching.lost_by) == ({}, {})
    # These values stay until they are on disk.
    assert list(group.state.values.items) == [4, 5, 6, 7]
    sync(group)
    assert list(group.state.values.items) == [6, 7]
    hear(group, C, Ahead(7, 8, 999, THREE, 1))
    hear(group, C, Piece(7, 0, b"s", True))
    assert group.state.values.items == {}


def test_unsynced_value_stays_in_memory_when_a_snapshot_is_installed() -> None:
    group = started(B, options=SMALL)
    hear(group, C, AHEAD)
    for piece in PIECES:
        hear(group, C, piece)
    hear(group, C, Chosen(4, FIVE[3:]))
    assert [group.entry(slot) for slot in (4, 5)] == [b"4", b"5"]


def test_source_with_slots_after_its_snapshot_is_asked_for_them() -> None:
    group = taking()
    effects = hear(group, C, Chosen(4, FIVE[3:], 8))
    assert (group.applied, group.state.progress.known) == (5, 8)
    assert sends(effects)[-1] == (C, Want(6, 8))


def test_snapshot_is_dropped_if_its_slots_were_applied_during_the_transfer() -> None:
    group = started(B, options=SMALL)
    hear(group, C, AHEAD)
    hear(group, A, Chosen(1, FIVE))
    assert group.applied == 5
    reported = [event for piece in PIECES for event in events(hear(group, C, piece))]
    assert reported == []
    assert group.transfer.taking is None
    assert group.state.progress.chain != 999
