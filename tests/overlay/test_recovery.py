"""Test the exact effects of each input to Recovery. NET-3"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from oncecast.kernel.protocol import (
    Append,
    Ask,
    Effect,
    Emit,
    Later,
    NodeId,
    Send,
    Snapshot,
    Trim,
    Value,
)
from oncecast.overlay.events import (
    NUMBER_MAX,
    Broadcast,
    Delivered,
    Discard,
    Disregard,
    Lost,
    MessageId,
    NeighborDown,
    NeighborUp,
    Publish,
    Received,
)
from oncecast.overlay.messages import (
    ANY,
    Archive,
    Compare,
    Compared,
    GivenUp,
    GiveUp,
    Holding,
    Ledger,
    Repair,
    Round,
    Stored,
)
from oncecast.overlay.recovery import Recovery

A, B, C, FAR = NodeId("a"), NodeId("b"), NodeId("c"), NodeId("far")
NOTHING_OF_MINE = Holding(A, 1, 0, ())


class FixedDice(Random):
    def uniform(self, a: float, b: float) -> float:
        return 1.0


def make(*, far: tuple[int, ...] = (), **options: Any) -> Recovery:
    """Return a node `a` that has stored these numbers from `far`."""
    recovery = Recovery(A, FixedDice(1), **options)
    for number in far:
        recovery.observe(received(number))
    let_settle(recovery)
    return recovery


def let_settle(recovery: Recovery) -> None:
    """Run two rounds, so that Plumtree no longer spreads the messages."""
    recovery.timeout(Round())
    recovery.timeout(Round())
    recovery.drain()


def key(number: int) -> MessageId:
    return MessageId(FAR, number)


def received(number: int) -> Received:
    return Received(key(number), b"%d" % number)


def stored(number: int) -> Stored:
    return Stored(key(number), b"%d" % number)


def delivered(number: int) -> Delivered:
    return Delivered(key(number), b"%d" % number)


def ledger(*holdings: Holding) -> Ledger:
    return Ledger(ANY, ANY, holdings)


def empty_ledger() -> Ledger:
    return ledger(NOTHING_OF_MINE)


def sent(effects: list[Effect]) -> list[Value]:
    return [effect.message for effect in effects if isinstance(effect, Send)]


def appended(effect: Effect) -> Stored | None:
    record = effect.record if isinstance(effect, Append) else None
    return record if isinstance(record, Stored) else None


# Publishing and storing.


def test_publish_numbers_then_stores_then_delivers_then_broadcasts() -> None:
    recovery = make()
    recovery.request(Publish(b"x"))
    mine = MessageId(A, 1)
    assert recovery.drain() == [
        Append(Stored(mine, b"x"), 1),
        Emit(Delivered(mine, b"x"), after=1),
        Ask(Broadcast(mine, b"x"), after=1),
    ]


def test_messages_are_numbered_without_gaps() -> None:
    recovery = make()
    for _ in range(3):
        recovery.request(Publish(b""))
    asked = [effect.request for effect in recovery.drain() if isinstance(effect, Ask)]
    assert asked == [Broadcast(MessageId(A, number), b"") for number in (1, 2, 3)]


def test_new_message_is_stored_and_delivered_after_it_is_on_disk() -> None:
    recovery = make()
    recovery.observe(received(7))
    assert recovery.drain() == [Append(stored(7), 1), Emit(delivered(7), after=1)]


def test_duplicate_message_is_ignored() -> None:
    recovery = make(far=(7,))
    recovery.observe(received(7))
    recovery.receive(B, Repair((stored(7),), more=True))
    assert recovery.drain() == []


# Discarding.


def test_discarded_message_is_neither_kept_nor_sent_to_peers() -> None:
    recovery = make(far=(1, 2))
    recovery.request(Discard(key(1)))
    assert list(recovery.held) == [key(2)]
    assert recovery.kept.bytes == 1
    recovery.receive(B, Compare(empty_ledger()))
    assert sent(recovery.drain()) == [Repair((stored(2),), more=False)]


def test_discarded_or_disregarded_message_is_not_stored() -> None:
    recovery = make()
    recovery.request(Discard(key(2)))
    recovery.request(Disregard(FAR, 4, ((1, 3),)))
    for number in range(1, 5):
        recovery.observe(received(number))
    assert [each.id.number for each in map(appended, recovery.drain()) if each] == [1, 3]


def test_discard_and_disregard_do_not_renumber_own_messages() -> None:
    recovery = make()
    recovery.request(Discard(MessageId(A, 7)))
    recovery.request(Disregard(A, 9, ()))
    recovery.request(Publish(b"x"))
    assert [each.id for each in map(appended, recovery.drain()) if each] == [MessageId(A, 1)]


def test_memory_for_discarded_messages_is_bounded() -> None:
    recovery = make(far=(1, 3), gaps_max=1, origins_max=2)
    recovery.request(Discard(key(9)))
    recovery.request(Discard(MessageId(B, 1)))
    recovery.request(Disregard(B, 9, ()))
    assert [each.top for each in recovery.inventory.holdings()] == [0, 3]


# Surviving crashes.


def test_restored_message_counts_as_delivered_and_is_kept() -> None:
    recovery = make()
    recovery.restore(stored(1))
    recovery.start()
    recovery.observe(received(1))
    assert recovery.drain() == [Later(1.0, Round())]
    assert dict(recovery.held) == {key(1): b"1"}


def test_restarted_node_never_reuses_a_number() -> None:
    recovery = make()
    recovery.restore(Archive((Holding(A, 5, 4, ()),), ()))
    recovery.restore(Stored(MessageId(A, 5), b""))
    recovery.request(Publish(b""))
    assert recovery.drain()[-1] == Ask(Broadcast(MessageId(A, 6), b""), after=1)


def test_snapshot_contains_all_messages_and_trims_earlier_records() -> None:
    recovery = make(far=(1, 3), snapshot_every=3, kept_max=2)
    recovery.request(Publish(b"x"))
    mine = Stored(MessageId(A, 1), b"x")
    archive = Archive((Holding(A, 1, 1, ()), Holding(FAR, 2, 3, ((2, 2),))), (stored(3), mine))
    assert recovery.drain() == [
        Append(mine, 3),
        Emit(Delivered(mine.id, b"x"), after=3),
        Snapshot(archive, 3),
        Trim("recovery", 4),
        Ask(Broadcast(mine.id, b"x"), after=3),
    ]


def test_next_snapshot_is_taken_after_the_same_number_of_records() -> None:
    recovery = make(snapshot_every=3)
    snapshots = []
    for number in range(1, 10):
        recovery.observe(received(number))
        if any(isinstance(effect, Snapshot) for effect in recovery.drain()):
            snapshots.append(number)
    assert snapshots == [3, 6, 9]


def test_records_since_the_snapshot_count_across_a_restart() -> None:
    recovery = make(snapshot_every=3)
    recovery.restore(Archive((), ()))
    recovery.restore(stored(1))
    recovery.restore(stored(2))
    recovery.observe(received(3))
    assert Trim("recovery", 2) in recovery.drain()


def test_large_records_trigger_an_earlier_snapshot() -> None:
    recovery = make(kept_bytes_max=100)
    recovery.observe(Received(key(1), bytes(60)))
    assert len(recovery.drain()) == 2
    recovery.observe(Received(key(2), bytes(60)))
    assert recovery.drain()[-1] == Trim("recovery", 3)


def test_node_restored_from_its_snapshot_equals_the_original() -> None:
    recovery = make(far=(1, 2, 5, 9), snapshot_every=5, kept_max=3)
    recovery.observe(Received(MessageId(C, 4), b"c"))
    (saved,) = [effect for effect in recovery.drain() if isinstance(effect, Snapshot)]
    assert isinstance(saved.state, Archive)
    again = make(kept_max=3)
    again.restore(saved.state)
    assert again.inventory.holdings() == recovery.inventory.holdings()
    assert list(again.held.items()) == list(recovery.held.items())


# Comparing.


def test_each_round_sends_the_ledger_to_a_neighbour() -> None:
    recovery = make(far=(1, 2, 5), compare_every=3.0)
    recovery.observe(NeighborUp(B))
    recovery.timeout(Round())
    here = ledger(NOTHING_OF_MINE, Holding(FAR, 1, 5, ((3, 4),)))
    assert recovery.drain() == [Send(B, Compare(here), after=3), Later(3.0, Round())]


def test_node_without_neighbours_waits_for_the_next_round() -> None:
    recovery = make()
    recovery.observe(NeighborUp(B))
    recovery.observe(NeighborDown(B))
    recovery.timeout(Round())
    assert recovery.drain() == [Later(1.0, Round())]


def test_rounds_reach_every_neighbour() -> None:
    recovery = make()
    for peer in (B, C, FAR):
        recovery.observe(NeighborUp(peer))
    for _ in range(50):
        recovery.timeout(Round())
    reached = {effect.to for effect in recovery.drain() if isinstance(effect, Send)}
    assert reached == {B, C, FAR}


def test_equal_ledgers_are_not_answered() -> None:
    recovery = make(far=(1, 2, 5))
    same = ledger(NOTHING_OF_MINE, Holding(FAR, 1, 5, ((3, 4),)))
    recovery.receive(B, Compare(same))
    recovery.receive(B, Compared(same))
    assert recovery.drain() == []


def test_peer_gets_missing_messages_with_the_lowest_numbers_first() -> None:
    recovery = make(far=(5, 3, 2, 1, 6))
    recovery.receive(B, Compare(ledger(NOTHING_OF_MINE, Holding(FAR, 1, 4, ((1, 2),)))))
    batch = (stored(1), stored(2), stored(5), stored(6))
    assert sent(recovery.drain())[0] == Repair(batch, more=False)


def test_peer_gets_all_messages_from_an_origin_that_it_does_not_know() -> None:
    recovery = make(far=(1, 2))
    recovery.receive(B, Compare(ledger()))
    assert sent(recovery.drain()) == [Repair((stored(1), stored(2)), more=False)]


def test_node_with_missing_messages_answers_with_its_own_ledger() -> None:
    recovery = make(far=(1,))
    recovery.receive(B, Compare(ledger(NOTHING_OF_MINE, Holding(FAR, 1, 2, ()))))
    here = ledger(NOTHING_OF_MINE, Holding(FAR, 1, 1, ()))
    assert sent(recovery.drain()) == [Compared(here)]


def test_compared_message_is_not_answered_with_another_ledger() -> None:
    recovery = make(far=(1,))
    recovery.receive(B, Compared(ledger(NOTHING_OF_MINE, Holding(FAR, 1, 3, ((1, 1),)))))
    assert sent(recovery.drain()) == [Repair((stored(1),), more=False)]


def test_repair_is_bounded_by_count_and_sets_more() -> None:
    recovery = make(far=(1, 2, 3), batch_max=2)
    recovery.receive(B, Compare(empty_ledger()))
    assert sent(recovery.drain()) == [Repair((stored(1), stored(2)), more=True)]


def test_repair_is_bounded_by_bytes_but_never_empty() -> None:
    recovery = make(batch_bytes_max=10)
    for number, size in ((1, 11), (2, 5), (3, 5), (4, 1)):
        recovery.observe(Received(key(number), bytes(size)))
    let_settle(recovery)
    recovery.receive(B, Compare(empty_ledger()))
    recovery.receive(B, Compare(ledger(NOTHING_OF_MINE, Holding(FAR, 1, 1, ()))))
    first, second = sent(recovery.drain())
    assert first == Repair((Stored(key(1), bytes(11)),), more=True)
    assert second == Repair((Stored(key(2), bytes(5)), Stored(key(3), bytes(5))), more=True)


def test_repaired_messages_are_stored_and_delivered_and_the_rest_is_requested() -> None:
    recovery = make()
    recovery.receive(B, Repair((stored(1), stored(2)), more=True))
    here = Ledger(FAR, ANY, (Holding(FAR, 1, 2, ()),))
    assert recovery.drain() == [
        Append(stored(1), 1),
        Emit(delivered(1), after=1),
        Append(stored(2), 2),
        Emit(delivered(2), after=2),
        Send(B, Compare(here), after=2),
    ]


def test_last_repair_is_not_answered() -> None:
    recovery = make()
    recovery.receive(B, Repair((stored(1),), more=False))
    assert sent(recovery.drain()) == []


def test_many_origins_are_compared_in_turn() -> None:
    recovery = make(ledger_origins_max=2)
    for name in "edcb":
        recovery.observe(Received(MessageId(NodeId(name), 1), b""))
    recovery.observe(NeighborUp(B))
    recovery.drain()
    for _ in range(4):
        recovery.timeout(Round())
    parts = [
        (message.ledger.low, message.ledger.high, [each.origin for each in message.ledger.holdings])
        for message in sent(recovery.drain())
        if isinstance(message, Compare)
    ]
    thrice = [("", "c", ["a", "b"]), ("c", "e", ["c", "d"]), ("e", "", ["e"])]
    assert parts == [*thrice, thrice[0]]


def test_repair_contains_no_messages_outside_the_ledger() -> None:
    recovery = make(far=(1,))
    recovery.observe(Received(MessageId(B, 1), b"b"))
    let_settle(recovery)
    recovery.receive(C, Compare(Ledger(A, C, (NOTHING_OF_MINE,))))
    assert sent(recovery.drain()) == [Repair((Stored(MessageId(B, 1), b"b"),), more=False)]


def test_ledger_omits_the_highest_gaps_and_repair_skips_known_messages() -> None:
    lagging = make(far=(2, 4, 6), ledger_gaps_max=1)
    lagging.observe(NeighborUp(B))
    lagging.timeout(Round())
    (compare,) = sent(lagging.drain())
    assert compare == Compare(ledger(NOTHING_OF_MINE, Holding(FAR, 1, 6, ((1, 1),))))
    full = make(far=(1, 2, 3, 4, 5, 6))
    full.receive(A, compare)
    assert sent(full.drain()) == [Repair((stored(1),), more=False)]


def test_repair_omits_messages_that_plumtree_is_still_spreading() -> None:
    recovery = make(far=(1, 2))
    recovery.observe(received(3))
    recovery.timeout(Round())
    recovery.observe(received(4))
    recovery.drain()
    repairs = []
    for _ in range(3):
        recovery.receive(B, Compare(empty_ledger()))
        repairs += sent(recovery.drain())
        recovery.timeout(Round())
        recovery.drain()
    assert repairs == [
        Repair((stored(1), stored(2)), more=False),
        Repair((stored(1), stored(2), stored(3)), more=False),
        Repair((stored(1), stored(2), stored(3), stored(4)), more=False),
    ]


def test_repair_sends_the_older_half_if_all_messages_are_new() -> None:
    recovery = make()
    for number in range(1, 6):
        recovery.observe(received(number))
    recovery.drain()
    recovery.receive(B, Compare(empty_ledger()))
    assert sent(recovery.drain()) == [Repair((stored(1), stored(2)), more=False)]


# Losing.


def test_peer_gets_our_ledger_if_its_missing_messages_are_no_longer_kept() -> None:
    recovery = make(far=(1, 2, 3), kept_max=2)
    recovery.receive(B, Compare(empty_ledger()))
    assert sent(recovery.drain()) == [
        Repair((stored(2), stored(3)), more=False),
        Compared(ledger(NOTHING_OF_MINE, Holding(FAR, 2, 3, ()))),
    ]


def test_message_no_longer_kept_by_a_peer_is_reported_lost_after_a_timeout() -> None:
    recovery = make(far=(2, 9), lost_after=5.0)
    peer = ledger(NOTHING_OF_MINE, Holding(FAR, 8, 9, ()))
    recovery.receive(B, Compared(peer))
    assert recovery.drain() == [Later(5.0, GiveUp(FAR))]
    recovery.receive(C, Compared(peer))
    assert recovery.drain() == []
    recovery.observe(received(5))
    recovery.drain()
    recovery.timeout(GiveUp(FAR))
    assert recovery.drain() == [
        Append(GivenUp(FAR, 7), 4),
        Emit(Lost(FAR, 1, 1), after=4),
        Emit(Lost(FAR, 3, 4), after=4),
        Emit(Lost(FAR, 6, 7), after=4),
    ]


def test_message_that_arrives_in_time_is_not_lost() -> None:
    recovery = make(far=(2,))
    recovery.receive(B, Compared(ledger(NOTHING_OF_MINE, Holding(FAR, 2, 2, ()))))
    recovery.observe(received(1))
    recovery.drain()
    recovery.timeout(GiveUp(FAR))
    assert recovery.drain() == []


def test_lost_message_is_never_delivered_even_after_a_restart() -> None:
    recovery = make()
    recovery.restore(GivenUp(FAR, 7))
    recovery.observe(received(7))
    assert recovery.drain() == []
    recovery.observe(received(8))
    assert recovery.drain() == [Append(stored(8), 1), Emit(delivered(8), after=1)]


def test_lost_messages_are_not_offered_to_other_nodes() -> None:
    recovery = make()
    recovery.restore(GivenUp(FAR, 7))
    recovery.receive(B, Compare(empty_ledger()))
    answer = Compared(ledger(NOTHING_OF_MINE, Holding(FAR, 8, 7, ())))
    assert sent(recovery.drain()) == [answer]


# Invalid messages and limits.


def test_impossible_ids_are_dropped_and_counted() -> None:
    recovery = make()
    bad = [key(0), key(-1), key(NUMBER_MAX + 1), MessageId(NodeId(""), 1)]
    recovery.receive(B, Repair(tuple(Stored(each, b"") for each in bad), more=True))
    assert (recovery.drain(), recovery.dropped) == ([], 4)


@pytest.mark.parametrize(
    "holding",
    [
        Holding(FAR, 1, -1, ()),
        Holding(FAR, 1, NUMBER_MAX + 1, ()),
        Holding(FAR, 0, 5, ()),
        Holding(FAR, 7, 5, ()),
        Holding(FAR, 1, 5, ((4, 9),)),
        Holding(FAR, 1, 5, ((-3, 2),)),
        Holding(NodeId("x" * 256), 1, 5, ()),
    ],
    ids=repr,
)
def test_invalid_ledger_is_dropped_and_counted(holding: Holding) -> None:
    recovery = make(far=(1, 2))
    recovery.receive(B, Compare(ledger(holding)))
    recovery.receive(B, Compared(ledger(holding)))
    assert (recovery.drain(), recovery.dropped) == ([], 2)


def test_gaps_are_bounded_and_the_lowest_missing_number_is_always_accepted() -> None:
    recovery = make(far=(3, 6), gaps_max=2)
    recovery.observe(received(9))
    assert (recovery.drain(), recovery.dropped) == ([], 1)
    recovery.receive(B, Repair((stored(1), stored(2), stored(7), stored(9)), more=False))
    assert [number for number in range(1, 10) if key(number) in recovery.inventory] == [
        *(1, 2, 3, 6, 7, 9)
    ]


def test_origins_are_bounded_and_own_messages_always_fit() -> None:
    recovery = make(far=(1,), origins_max=2)
    recovery.observe(Received(MessageId(B, 1), b""))
    recovery.receive(B, Compared(Ledger(C, NodeId("d"), (Holding(C, 9, 9, ()),))))
    assert (recovery.drain(), recovery.dropped) == ([], 1)
    recovery.request(Publish(b""))
    assert len(recovery.drain()) == 3


def test_jump_in_the_numbers_adds_one_gap_that_later_messages_fill() -> None:
    recovery = make(far=(1, NUMBER_MAX))
    assert recovery.inventory.of(FAR).gaps == [(2, NUMBER_MAX - 1)]
    recovery.observe(received(2))
    assert recovery.drain() == [Append(stored(2), 3), Emit(delivered(2), after=3)]


def test_peer_claims_about_own_messages_are_dropped() -> None:
    """A node has all its own messages, so a forgery must neither raise nor lose its numbers."""
    recovery = make(lost_after=1.0)
    recovery.receive(B, Repair((Stored(MessageId(A, NUMBER_MAX), b"lie"),), more=False))
    assert (recovery.drain(), recovery.dropped) == ([], 1)
    recovery.receive(B, Compared(ledger(Holding(A, 9, 20, ()))))
    assert recovery.drain() == []
    recovery.request(Publish(b"first"))
    assert recovery.drain()[0] == Append(Stored(MessageId(A, 1), b"first"), 1)
