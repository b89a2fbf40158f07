"""REP-1: who is far behind takes a state, then the entries that it refers to, then goes on."""

from __future__ import annotations

from dataclasses import replace

import msgspec

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
from oncecast.replication.supply import checksum
from tests.replication.replicas import (
    OPTIONS,
    THREE,
    A,
    B,
    C,
    awake,
    ballot,
    command,
    events,
    hear,
    records,
    sends,
    sync,
    vouch,
)

SMALL = GroupOptions(piece_bytes=4, compare_every=0.0)
FIVE = tuple(command(b"%d" % slot) for slot in range(1, 6))
AHEAD = Ahead(5, 4, 999, THREE, 3, checksum((b"state", b"x")))
PIECES = [Piece(5, 0, b"stat", False), Piece(5, 1, b"e", True), Piece(5, 2, b"x", True)]


def replica(known: int = 5) -> Paxos:
    """It has five slots on disk, accepted from A and applied up to `known`."""
    group = awake(B, options=SMALL)
    kept: dict[int, Value] = {}
    group._records.read = kept.__getitem__
    effects = hear(group, A, Accept(ballot(1), 1, FIVE, 0))
    kept.update(enumerate(records(effects), 2))
    sync(group)
    hear(group, A, Beat(ballot(1), known, 1.0))
    return group


def saved(effects: list[Effect]) -> tuple[Checkpoint, int, int]:
    """What was saved, for which records it stands, and the first record that is kept."""
    ((state, number),) = [(e.state, e.number) for e in effects if isinstance(e, Snapshot)]
    (trim,) = [each.number for each in effects if isinstance(each, Trim)]
    assert isinstance(state, Checkpoint)
    return state, number, trim


def compact(group: Paxos, slot: int, needed: int) -> list[Effect]:
    group.request(Compact(slot, needed, (b"state", b"x")))
    return group.drain()


# -- saving --


def test_a_state_stands_for_all_records_if_nothing_lies_behind_it() -> None:
    state, number, trim = saved(compact(replica(), 5, 4))
    assert (state.slot, state.kept, state.runs) == (5, 4, ((4, 5, 2),))
    assert number == 6
    assert trim == 5


def test_what_is_accepted_behind_a_state_is_read_again_after_a_restart() -> None:
    """The state stands only for the records before the first of them."""
    state, number, trim = saved(compact(replica(known=3), 3, 4))
    assert state.runs == ((4, 5, 2),)
    assert number == 4
    assert trim == 5


def test_a_state_holds_the_membership_and_the_checksum_of_its_place() -> None:
    group = replica()
    chain = dict(group.state.progress.chains)
    state, _, _ = saved(compact(group, 2, 3))
    assert (state.config, state.chain) == (THREE, chain[2])
    assert (state.incarnation, state.promised, state.vouch) == (1, ballot(1), vouch(5))


# -- giving --


def test_who_wants_what_is_here_gets_it() -> None:
    assert sends(hear(replica(), C, Want(2, 9))) == [(C, Chosen(2, FIVE[1:], 5))]


def test_who_wants_what_is_only_accepted_does_not_get_it() -> None:
    assert sends(hear(replica(known=2), C, Want(2, 9))) == [(C, Chosen(2, FIVE[1:2], 2))]
    assert sends(hear(replica(known=2), C, Want(3, 9))) == [(C, Lacking(3, False))]


def test_what_lies_behind_a_lost_slot_is_not_lost_itself() -> None:
    """It is only not applied yet: who wants it may ask again."""
    group = replica(known=2)
    group.state.progress.certain = 5
    assert sends(hear(group, C, Want(4, 4))) == [(C, Lacking(4, False))]
    group.state.values.index.cut(4)
    group.state.values.items.clear()
    assert sends(hear(group, C, Want(4, 4))) == [(C, Lacking(4, True))]


def test_who_wants_what_is_gone_is_told_of_a_state() -> None:
    group = replica()
    compact(group, 5, 4)
    effects = hear(group, C, Want(1, 1))
    assert events(effects) == [StateWanted()]
    effects = compact(group, 5, 4)
    assert sends(effects) == [(C, msgspec.structs.replace(AHEAD, chain=group.state.progress.chain))]
    given = [hear(group, C, WantPiece(5, index)) for index in range(3)]
    assert [sends(each) for each in given] == [[(C, piece)] for piece in PIECES]


def test_nothing_that_a_given_state_needs_is_trimmed_until_nobody_fetches_it() -> None:
    group = replica()
    compact(group, 5, 2)
    hear(group, C, Want(1, 5))
    compact(group, 5, 2)
    assert saved(compact(group, 5, 5))[2] == 3  # the record of slot 2
    hear(group, C, WantPiece(5, 0))
    group.now += SMALL.unclaimed_after - 1
    hear(group, C, Want(2, 5))  # now its entries
    group.now += 2
    group.timeout(Unclaimed())
    assert group.supplier.giving is not None
    group.now += SMALL.unclaimed_after
    group.timeout(Unclaimed())
    assert group.supplier.giving is None
    assert saved(compact(group, 5, 5))[2] == 6


def test_who_has_decided_nothing_has_no_state_to_give() -> None:
    """Whoever asks had begun to fetch one from an earlier life of it."""
    group = awake(B, options=SMALL)
    assert events(hear(group, C, WantPiece(5, 1))) == [StateWanted()]
    assert compact(group, -1, 0) == []
    assert events(hear(group, C, WantPiece(5, 1))) == [StateWanted()]


def test_who_takes_a_state_itself_gives_no_older_one_any_more() -> None:
    """What the older one needs may be gone; whoever was fetching it is told of a newer one."""
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
    """It has accepted something else for slot 4, is told of a state, and has fetched it."""
    group = awake(B, options=SMALL)
    hear(group, A, Accept(ballot(1), 4, (command(b"never chosen"),), 0))
    assert sends(hear(group, C, AHEAD)) == [(C, WantPiece(5, 0))]
    assert sends(hear(group, C, PIECES[0])) == [(C, WantPiece(5, 1))]
    assert sends(hear(group, C, PIECES[1])) == [(C, WantPiece(5, 2))]
    # What was only voted for is no substitute for what was chosen.
    assert sends(hear(group, C, PIECES[2])) == [(C, Want(4, 5))]
    return group


def test_a_state_becomes_ones_own_when_all_that_it_needs_is_here() -> None:
    group = taking()
    effects = hear(group, C, Chosen(4, FIVE[3:]))
    assert records(effects) == [Learned(4, 0, b"4"), Learned(5, 0, b"5"), Skipped(5)]
    assert Installed(5, (b"state", b"x")) in events(effects)
    state, number, trim = saved(effects)
    assert (state.slot, state.kept, state.chain) == (5, 4, 999)
    assert number == 5
    assert trim <= 3  # the record of slot 4
    assert (group.applied, group.state.progress.chain) == (5, 999)
    assert group.entry(4) == b"4"  # also before it is on disk


def test_slots_behind_a_state_go_on_from_there() -> None:
    group = taking()
    hear(group, C, Chosen(4, FIVE[3:]))
    effects = hear(group, C, Chosen(6, (command(b"6"),)))
    assert events(effects) == [Decided(6, b"6")]


def test_pieces_that_come_twice_or_from_elsewhere_change_nothing() -> None:
    group = awake(B, options=SMALL)
    hear(group, C, AHEAD)
    hear(group, C, PIECES[0])
    assert hear(group, C, PIECES[0]) == []
    assert hear(group, A, PIECES[1]) == []
    assert group.transfer.taking is not None
    assert group.transfer.taking.index == 1


def test_pieces_of_two_states_are_not_mixed() -> None:
    """REP-4: the source has restarted, and its state at the same place is laid out otherwise."""
    group = awake(B, options=SMALL)
    hear(group, C, AHEAD)
    hear(group, C, PIECES[0])
    hear(group, C, msgspec.structs.replace(PIECES[1], data=b"?"))
    assert sends(hear(group, C, PIECES[2])) == []
    assert group.transfer.taking is None
    assert sends(hear(group, C, AHEAD)) == [(C, WantPiece(5, 0))]


def test_a_source_that_is_silent_is_given_up() -> None:
    group = awake(B, options=SMALL)
    hear(group, C, AHEAD)
    for _ in range(20):
        assert group.transfer.taking is not None
        group.timeout(Behind())
    assert group.transfer.taking is None


def test_a_newer_state_of_the_same_source_is_taken_instead() -> None:
    group = taking()
    newer = msgspec.structs.replace(AHEAD, slot=9, needed=8)
    assert sends(hear(group, C, newer)) == [(C, WantPiece(9, 0))]


def test_a_state_that_is_not_ahead_is_not_taken() -> None:
    assert hear(replica(), C, AHEAD) == []


def test_checksum_of_a_state_is_never_0() -> None:
    """REP-1: 0 says that there is none, as from an older version."""
    assert checksum(()) == 1
    assert checksum((b"ab", b"c")) != checksum((b"a", b"bc"))


def test_entries_are_given_until_their_bytes_are_used_up() -> None:
    """REP-1: 64 kibibytes at least."""
    for size, given in ((65_535, 2), (65_536, 1)):
        group = awake(options=replace(OPTIONS, accept_bytes=1))
        items = (command(bytes(size)), command(b"x"), command(b"y"))
        hear(group, A, Accept(ballot(1), 1, items, 3))
        (chosen,) = [m for _, m in sends(hear(group, C, Want(1, 3))) if isinstance(m, Chosen)]
        assert chosen.items == items[:given]


def test_first_slot_that_is_kept_is_lacking_and_no_state_is_offered_for_it() -> None:
    """REP-1: it is known here, and cannot be read."""
    group = awake()
    group.state.values.kept, group.state.progress.certain = 4, 4
    assert sends(hear(group, C, Want(4, 4))) == [(C, Lacking(4, True))]
    assert sends(hear(group, C, Want(5, 5))) == [(C, Lacking(5, False))]
    hear(group, C, Want(3, 3))
    assert list(group.supplier.askers) == [C]
