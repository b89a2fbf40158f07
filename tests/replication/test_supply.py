"""REP-1: a replica that is far behind fetches a snapshot and the entries that it refers to."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from oncecast.kernel.protocol import Effect, Snapshot, Trim, Value
from oncecast.replication.events import Compact, Decided, Installed, StateWanted
from oncecast.replication.messages import (
    Accept,
    Ahead,
    Beat,
    Behind,
    Checkpoint,
    Chosen,
    Lacking,
    Learned,
    Piece,
    Skipped,
    Unclaimed,
    Want,
    WantPiece,
)
from oncecast.replication.options import GroupOptions
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import NO_MEMBERS, Config
from oncecast.replication.supply import checksum
from tests.replication.replicas import (
    OPTIONS,
    THREE,
    A,
    B,
    C,
    ballot,
    command,
    events,
    hear,
    records,
    sends,
    started,
    sync,
    unstarted,
    vouch,
)

SMALL = GroupOptions(piece_bytes=4, compare_every=0.0)
FIVE = tuple(command(b"%d" % slot) for slot in range(1, 6))
AHEAD = Ahead(5, 4, 999, THREE, 3, checksum((b"state", b"x")))
PIECES = [Piece(5, 0, b"stat", False), Piece(5, 1, b"e", True), Piece(5, 2, b"x", True)]


def replica(known: int = 5) -> Paxos:
    """Return a replica with five slots on disk, accepted from A and applied up to `known`."""
    group = started(B, options=SMALL)
    kept: dict[int, Value] = {}
    group._records.read = kept.__getitem__
    effects = hear(group, A, Accept(ballot(1), 1, FIVE, 0))
    kept.update(enumerate(records(effects), 2))
    sync(group)
    hear(group, A, Beat(ballot(1), known, 1.0))
    return group


def saved(effects: list[Effect]) -> tuple[Checkpoint, int, int]:
    """Return the snapshot, the last record that it covers, and the first record that is kept."""
    ((state, number),) = [(e.state, e.number) for e in effects if isinstance(e, Snapshot)]
    (trim,) = [each.number for each in effects if isinstance(each, Trim)]
    assert isinstance(state, Checkpoint)
    return state, number, trim


def compact(group: Paxos, slot: int, needed: int) -> list[Effect]:
    group.request(Compact(slot, needed, (b"state", b"x")))
    return group.drain()


# -- saving --


def test_snapshot_covers_all_records_if_no_later_slot_is_accepted() -> None:
    state, number, trim = saved(compact(replica(), 5, 4))
    assert (state.slot, state.kept, state.runs) == (5, 4, ((4, 5, 2),))
    assert number == 6
    assert trim == 5


def test_snapshot_covers_only_records_before_the_first_later_slot() -> None:
    """A restart reads the later records again."""
    state, number, trim = saved(compact(replica(known=3), 3, 4))
    assert state.runs == ((4, 5, 2),)
    assert number == 4
    assert trim == 5


def test_snapshot_contains_the_membership_and_checksum_at_its_slot() -> None:
    group = replica()
    chain = dict(group.state.progress.chains)
    state, _, _ = saved(compact(group, 2, 3))
    assert (state.config, state.chain) == (THREE, chain[2])
    assert (state.incarnation, state.promised, state.vouch) == (1, ballot(1), vouch(5))


# -- giving --


def test_want_is_answered_with_chosen_slots() -> None:
    assert sends(hear(replica(), C, Want(2, 9))) == [(C, Chosen(2, FIVE[1:], 5))]


def test_want_is_not_answered_with_undecided_slots() -> None:
    assert sends(hear(replica(known=2), C, Want(2, 9))) == [(C, Chosen(2, FIVE[1:2], 2))]
    assert sends(hear(replica(known=2), C, Want(3, 9))) == [(C, Lacking(3, False))]


def test_readable_unapplied_slot_is_not_reported_as_lost() -> None:
    """The slot is not applied yet, so the peer may ask again."""
    group = replica(known=2)
    group.state.progress.certain = 5
    assert sends(hear(group, C, Want(4, 4))) == [(C, Lacking(4, False))]
    group.state.values.index.cut(4)
    group.state.values.items.clear()
    assert sends(hear(group, C, Want(4, 4))) == [(C, Lacking(4, True))]


def test_want_for_trimmed_slots_is_answered_with_a_snapshot() -> None:
    group = replica()
    compact(group, 5, 4)
    effects = hear(group, C, Want(1, 1))
    assert events(effects) == [StateWanted()]
    effects = compact(group, 5, 4)
    assert sends(effects) == [(C, msgspec.structs.replace(AHEAD, chain=group.state.progress.chain))]
    given = [hear(group, C, WantPiece(5, index)) for index in range(3)]
    assert [sends(each) for each in given] == [[(C, piece)] for piece in PIECES]


def test_entries_that_a_snapshot_needs_are_kept_while_a_peer_fetches_it() -> None:
    group = replica()
    compact(group, 5, 2)
    hear(group, C, Want(1, 5))
    compact(group, 5, 2)
    assert saved(compact(group, 5, 5))[2] == 3  # record 3 holds slot 2
    hear(group, C, WantPiece(5, 0))
    group.now += SMALL.unclaimed_after - 1
    hear(group, C, Want(2, 5))  # C now fetches the entries
    group.now += 2
    group.timeout(Unclaimed())
    assert group.supplier.giving is not None
    group.now += SMALL.unclaimed_after
    group.timeout(Unclaimed())
    assert group.supplier.giving is None
    assert saved(compact(group, 5, 5))[2] == 6


def test_replica_without_decided_slots_offers_no_snapshot() -> None:
    """The peer had begun to fetch a snapshot from an earlier incarnation."""
    group = started(B, options=SMALL)
    assert events(hear(group, C, WantPiece(5, 1))) == [StateWanted()]
    assert compact(group, -1, 0) == []
    assert events(hear(group, C, WantPiece(5, 1))) == [StateWanted()]


def test_newcomer_without_a_membership_does_not_send_snapshots() -> None:
    """REP-4: a member that installed such a snapshot forgot its group."""
    group = unstarted(C, NO_MEMBERS, options=SMALL)
    group.state.membership.contacts = (A, B)
    group.start()
    group.drain()
    hear(group, A, Chosen(1, FIVE, 5))
    sync(group)
    assert group.applied == 5
    compact(group, 5, 6)
    assert events(hear(group, B, Want(1, 5))) == [StateWanted()]
    assert sends(compact(group, 5, 6)) == []
    assert group.supplier.giving is None


def test_replica_that_installs_a_snapshot_stops_sending_an_older_snapshot() -> None:
    """The older snapshot's entries may be gone, so the peer is offered a newer one."""
    group = replica()
    compact(group, 3, 2)
    hear(group, C, Want(1, 5))
    compact(group, 3, 2)
    newer = Ahead(9, 8, 999, THREE, 1)
    hear(group, A, newer)
    hear(group, A, Piece(9, 0, b"state", True))
    hear(group, A, Chosen(8, (command(b"8"), command(b"9"))))
    assert group.applied == 9
    assert events(hear(group, C, Want(2, 3))) == [StateWanted()]


# -- taking --


def taking() -> Paxos:
    """Return a replica that has fetched a snapshot, and has voted for another value in slot 4."""
    group = started(B, options=SMALL)
    hear(group, A, Accept(ballot(1), 4, (command(b"never chosen"),), 0))
    assert sends(hear(group, C, AHEAD)) == [(C, WantPiece(5, 0))]
    assert sends(hear(group, C, PIECES[0])) == [(C, WantPiece(5, 1))]
    assert sends(hear(group, C, PIECES[1])) == [(C, WantPiece(5, 2))]
    # A vote does not replace the chosen value.
    assert sends(hear(group, C, PIECES[2])) == [(C, Want(4, 5))]
    return group


def test_snapshot_is_installed_once_all_its_entries_have_arrived() -> None:
    group = taking()
    effects = hear(group, C, Chosen(4, FIVE[3:]))
    assert records(effects) == [Learned(4, 0, b"4"), Learned(5, 0, b"5"), Skipped(5)]
    assert Installed(5, (b"state", b"x")) in events(effects)
    state, number, trim = saved(effects)
    assert (state.slot, state.kept, state.chain) == (5, 4, 999)
    assert number == 5
    assert trim <= 3  # record 3 holds slot 4, which the snapshot needs
    assert (group.applied, group.state.progress.chain) == (5, 999)
    assert group.entry(4) == b"4"  # even before it is on disk


@pytest.mark.parametrize("config", [NO_MEMBERS, msgspec.structs.replace(THREE, version=0)])
def test_snapshot_with_an_earlier_membership_is_not_fetched(config: Config) -> None:
    """REP-4: the membership of a later slot is never older, so the source does not know it."""
    group = started(B, options=SMALL)
    assert hear(group, C, Ahead(5, 4, 999, config, 1)) == []
    assert group.transfer.taking is None


def test_slots_after_an_installed_snapshot_are_applied() -> None:
    group = taking()
    hear(group, C, Chosen(4, FIVE[3:]))
    effects = hear(group, C, Chosen(6, (command(b"6"),)))
    assert events(effects) == [Decided(6, b"6")]


def test_duplicate_pieces_and_pieces_from_another_source_are_ignored() -> None:
    group = started(B, options=SMALL)
    hear(group, C, AHEAD)
    hear(group, C, PIECES[0])
    assert hear(group, C, PIECES[0]) == []
    assert hear(group, A, PIECES[1]) == []
    assert group.transfer.taking is not None
    assert group.transfer.taking.index == 1


def test_pieces_from_two_snapshots_are_not_mixed() -> None:
    """REP-4: the source has restarted, and its snapshot at the same slot has another layout."""
    group = started(B, options=SMALL)
    hear(group, C, AHEAD)
    hear(group, C, PIECES[0])
    hear(group, C, msgspec.structs.replace(PIECES[1], data=b"?"))
    assert sends(hear(group, C, PIECES[2])) == []
    assert group.transfer.taking is None
    assert sends(hear(group, C, AHEAD)) == [(C, WantPiece(5, 0))]


def test_replica_abandons_a_silent_snapshot_source() -> None:
    group = started(B, options=SMALL)
    hear(group, C, AHEAD)
    for _ in range(20):
        assert group.transfer.taking is not None
        group.timeout(Behind())
    assert group.transfer.taking is None


def test_newer_snapshot_from_the_same_source_restarts_the_transfer() -> None:
    group = taking()
    newer = msgspec.structs.replace(AHEAD, slot=9, needed=8)
    assert sends(hear(group, C, newer)) == [(C, WantPiece(9, 0))]


def test_snapshot_checksum_is_never_0() -> None:
    """REP-1: 0 means that an older version sent no checksum."""
    assert checksum(()) == 1
    assert checksum((b"ab", b"c")) != checksum((b"a", b"bc"))


def test_entries_are_sent_up_to_a_byte_limit() -> None:
    """REP-1: the limit is at least 64 kibibytes."""
    for size, given in ((65_535, 2), (65_536, 1)):
        group = started(options=replace(OPTIONS, accept_bytes=1))
        items = (command(bytes(size)), command(b"x"), command(b"y"))
        hear(group, A, Accept(ballot(1), 1, items, 3))
        (chosen,) = [m for _, m in sends(hear(group, C, Want(1, 3))) if isinstance(m, Chosen)]
        assert chosen.items == items[:given]


def test_no_snapshot_is_offered_for_an_unreadable_slot_that_is_still_kept() -> None:
    """REP-1: the slot is known here, but cannot be read."""
    group = started()
    group.state.values.kept, group.state.progress.certain = 4, 4
    assert sends(hear(group, C, Want(4, 4))) == [(C, Lacking(4, True))]
    assert sends(hear(group, C, Want(5, 5))) == [(C, Lacking(5, False))]
    hear(group, C, Want(3, 3))
    assert list(group.supplier.askers) == [C]
