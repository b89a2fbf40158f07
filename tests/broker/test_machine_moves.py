"""An arc moves to another group with all its topics, and no key has two owners.

The order on the ring is: group g-2, topic t, group g-a, topic u.
"""

from __future__ import annotations

import pytest

from oncecast.broker import moves, state
from oncecast.broker.clock import Dispute
from oncecast.broker.holdings import Holdings, PeerGroup
from oncecast.broker.machine import Machine
from oncecast.broker.topic import Topic
from oncecast.dht.identifiers import key_of, up_to
from oncecast.wire import commands as do
from oncecast.wire.errors import Fenced, NotHere, NotStaged
from oncecast.wire.limits import LIMITS
from oncecast.wire.results import (
    Already,
    Appended,
    MoveStep,
    Opened,
    Published,
    TopicDeleted,
    Unsubscribed,
)
from oncecast.wire.retention import Policy
from tests.broker.machine_steps import Steps

GIVER, TAKER = PeerGroup("g-2", ()), PeerGroup("g-a", ())
UNTIL = key_of("g-a")
YES, NO = MoveStep(True), MoveStep(False)


def holdings(steps: Steps) -> Holdings:
    found = steps.machine.registry.holdings
    assert found is not None
    return found


def topic(steps: Steps, name: str = "t") -> Topic:
    return steps.machine.registry.topics[name]


class Move:
    """Both groups of a move, with the actions of their leaders."""

    def __init__(self) -> None:
        self.exporter, self.importer = Steps(), Steps()
        assert self.exporter.apply(moves.Found("g-2", True)) == YES
        assert self.importer.apply(moves.Found("g-a", False)) == YES
        self.epoch = self.exporter.open()
        self.exporter.subscribe()
        self.reading = self.exporter.attach()
        for sequence in range(0, 10, 2):
            self.exporter.put(self.epoch, sequence, 2)
        self.exporter.ack(self.reading.epoch, 3)

    def claim(self) -> None:
        assert self.importer.apply(moves.Claim("m", GIVER)) == YES

    def copy(self, name: str = "t") -> None:
        exporter = holdings(self.exporter)
        source = exporter.outgoing.get(name) or topic(self.exporter, name)
        for each in source.index.entries(0):
            put = do.Put(name, "p", 1, 0, each.messages, each.size, 0, b"bytes")
            facts = (each.offset, each.messages, each.size, each.time, each.skip, each.sequence)
            assert self.importer.apply(moves.Import("m", name, source.id, *facts, put)) == YES

    def freeze(self) -> None:
        assert self.exporter.apply(moves.Freeze("m", UNTIL, TAKER)) == YES

    def adopt(self) -> MoveStep:
        exporter, low = self.exporter.machine.registry, holdings(self.exporter).low
        assert low is not None
        arc = holdings(self.exporter)
        answers = exporter.answered.about(lambda name: arc.in_part(name, UNTIL))
        rows = state.moved_out(arc, answers)
        counters = (exporter.clock.trusted, exporter.last_topic_id, exporter.last_epoch)
        done = self.importer.apply(
            moves.Adopt("m", low, UNTIL, *counters, rows, exporter.clock.now)
        )
        assert isinstance(done, MoveStep)
        return done

    def whole(self) -> None:
        self.claim()
        self.copy()
        self.freeze()
        assert self.adopt() == YES
        assert self.exporter.apply(moves.Release("m")) == YES
        assert self.importer.apply(moves.Finish("m")) == YES


def test_topic_moves_with_messages_cursors_and_producers() -> None:
    """REP-6: the importer continues where the exporter stopped."""
    move = Move()
    move.whole()
    assert move.importer.kept() == list(range(3, 10))
    again = move.importer.put(move.epoch, 8, 2)
    assert again == Already(8, 2)
    assert move.importer.put(move.epoch, 10, 2) == Appended(10, 2, kept=True)
    assert topic(move.importer).subscriptions["s"].cursor == 3
    assert topic(move.importer).subscriptions["s"].epoch == move.reading.epoch
    assert move.importer.ack(move.reading.epoch, 5) != NotHere("t")


def test_disputed_exporter_time_stays_disputed_in_a_new_group() -> None:
    """REP-6 SVC-9: a new group has no time yet, and would trust the first timestamp."""
    move = Move()
    exporter, importer = move.exporter.machine.registry, move.importer.machine.registry
    exporter.limits = importer.limits = LIMITS
    trusted = exporter.clock.trusted = exporter.clock.stamp = exporter.clock.now = 1000
    ahead = trusted + 100 * LIMITS.clock_step_us
    exporter.pass_time(ahead)
    assert (exporter.clock.trusted, exporter.clock.now) == (trusted, ahead)
    importer.clock.restore(0, None)
    move.claim()
    move.copy()
    move.freeze()
    move.adopt()
    assert (importer.clock.trusted, importer.clock.now) == (trusted, ahead)
    assert importer.clock.dispute is Dispute.AHEAD


def test_only_the_topic_owner_accepts_puts() -> None:
    """REP-6: at no time do both groups accept a put."""
    move = Move()
    assert move.importer.put(move.epoch, 10) == NotHere("t")
    move.claim()
    move.copy()
    assert move.importer.put(move.epoch, 10) == NotHere("t")
    move.freeze()
    assert move.exporter.put(move.epoch, 10) == NotHere("t")
    assert move.importer.put(move.epoch, 10) == NotHere("t")
    move.adopt()
    assert move.exporter.put(move.epoch, 10) == NotHere("t")
    assert isinstance(move.importer.put(move.epoch, 10), Appended)
    move.exporter.apply(moves.Release("m"))
    assert move.exporter.put(move.epoch, 10) == NotHere("t")


@pytest.mark.parametrize(
    "command",
    [
        do.CreateTopic("t", 0),
        do.DeleteTopic("t", 0),
        do.Subscribe("t", "new", do.FromNew(), 0),
        do.Unsubscribe("t", "s", 0),
        do.Attach("t", "s", "inc-1"),
        do.OpenProducer("t", "p", "other", 0),
        do.CloseProducer("t", "p", 1),
        do.Seek("t", "s", do.FromEarliest(), 0, "token"),
        do.Stage("query", 0, "part", "t", 1, 5, 0, b"bytes"),
    ],
)
def test_commands_for_a_frozen_or_moved_part_change_nothing(command: do.Command) -> None:
    """REP-6"""
    move = Move()
    move.claim()
    move.copy()
    move.freeze()
    before = state.moved_out(holdings(move.exporter))
    assert move.exporter.apply(command) == NotHere("t")
    assert state.moved_out(holdings(move.exporter)) == before
    move.adopt()
    move.exporter.apply(moves.Release("m"))
    assert move.exporter.apply(command) == NotHere("t")


def test_acks_after_the_freeze_drop_no_messages() -> None:
    """REP-6: the importer still has to copy these messages."""
    move = Move()
    move.claim()
    move.freeze()
    move.exporter.apply(do.Acks((do.Ack("t", "s", move.reading.epoch, 9),), 0))
    move.copy()
    assert move.adopt() == YES
    assert move.importer.kept() == list(range(3, 10))


def test_topics_outside_the_moved_part_stay_available() -> None:
    """REP-6"""
    move = Move()
    epoch = move.exporter.open("u")
    move.exporter.subscribe(topic="u")
    move.whole()
    assert isinstance(move.exporter.put(epoch, 0, topic="u"), Appended)
    assert move.importer.put(epoch, 0, topic="u") == NotHere("u")


def test_part_with_missing_messages_is_not_adopted() -> None:
    """REP-6"""
    move = Move()
    move.claim()
    move.copy()
    move.exporter.put(move.epoch, 10)
    move.freeze()
    assert move.adopt() == NO
    move.copy()
    assert move.adopt() == YES
    assert move.importer.kept()[-1] == 10


def test_messages_dropped_during_the_copy_are_not_required() -> None:
    """REP-6"""
    move = Move()
    move.claim()
    move.copy()
    move.exporter.ack(move.reading.epoch, 10)
    for sequence in (10, 12):
        move.exporter.put(move.epoch, sequence, 2)
    move.exporter.ack(move.reading.epoch, 12)
    move.copy()
    move.freeze()
    assert move.adopt() == YES
    assert move.importer.kept() == [12, 13]


def test_topic_deleted_during_the_copy_is_not_adopted() -> None:
    """REP-6"""
    move = Move()
    move.claim()
    move.copy()
    move.exporter.apply(do.DeleteTopic("t", 0))
    move.freeze()
    assert move.adopt() == YES
    assert "t" not in move.importer.machine.registry.topics
    assert (
        move.importer.machine.needed() == move.importer.slot + 1
    )  # no slot is needed for the topic


def test_topic_recreated_during_the_copy_moves_with_its_new_id() -> None:
    """REP-6"""
    move = Move()
    move.claim()
    move.copy()
    move.exporter.apply(do.DeleteTopic("t", 0))
    epoch = move.exporter.open()
    move.exporter.subscribe()
    move.exporter.put(epoch, 0, 1)
    move.freeze()
    assert move.adopt() == NO
    move.copy()
    assert move.adopt() == YES
    assert move.importer.kept() == [0]
    assert topic(move.importer).id == 2
    assert (
        move.importer.machine.needed() == move.importer.slot - 1
    )  # copies of the old topic are dropped


def test_copies_with_an_earlier_topic_id_are_not_adopted() -> None:
    """REP-6: the topics may have the same offsets."""
    move = Move()
    move.claim()
    move.copy()
    move.exporter.apply(do.DeleteTopic("t", 0))
    epoch = move.exporter.open()
    move.exporter.subscribe()
    for sequence in range(0, 10, 2):
        move.exporter.put(epoch, sequence, 2)
    move.exporter.ack(move.exporter.attach().epoch, 3)
    move.freeze()
    assert move.adopt() == NO


@pytest.mark.parametrize("copied", [slice(0), slice(1), slice(1, None)])
def test_part_with_incomplete_copies_is_not_adopted(copied: slice) -> None:
    """REP-6"""
    move = Move()
    move.claim()
    for each in list(topic(move.exporter).index.entries(0))[copied]:
        put = do.Put("t", "p", 1, 0, each.messages, each.size, 0, b"bytes")
        facts = (each.offset, each.messages, each.size, each.time, each.skip, each.sequence)
        assert move.importer.apply(moves.Import("m", "t", 1, *facts, put)) == YES
    move.freeze()
    assert move.adopt() == NO
    assert not move.importer.machine.registry.topics


def test_fully_read_topic_moves_without_copies() -> None:
    """REP-6"""
    move = Move()
    move.exporter.ack(move.reading.epoch, 10)
    move.claim()
    move.freeze()
    assert move.adopt() == YES
    assert move.importer.put(move.epoch, 10) == Appended(10, 1, kept=True)


def test_only_the_owner_expires_messages_by_age() -> None:
    """REP-6 SVC-9"""
    move = Move()
    move.exporter.apply(do.SetPolicy("t", 0, Policy(age_us=1000)))
    exporter, importer = move.exporter.machine.registry, move.importer.machine.registry
    move.claim()
    move.copy()
    move.freeze()
    assert (list(exporter.aging), list(importer.aging)) == ([], [])
    move.exporter.apply(moves.Thaw("m"))
    assert list(exporter.aging) == ["t"]
    move.freeze()
    assert move.adopt() == YES
    assert importer.aging == {"t": topic(move.importer)}


@pytest.mark.parametrize("ahead", [-500, 0, 500])
def test_importer_continues_from_the_higher_counters(ahead: int) -> None:
    """REP-6: the counters are times, topic ids and epochs."""
    move = Move()
    importer, exporter = move.importer.machine.registry, move.exporter.machine.registry
    importer.clock.restore(1000 + ahead, (1000 + ahead, 2000, Dispute.AHEAD, 0, 0))
    importer.limits = LIMITS
    importer.last_topic_id, importer.last_epoch = (
        exporter.last_topic_id + ahead,
        exporter.last_epoch + ahead,
    )
    move.claim()
    move.copy()
    move.freeze()
    assert move.adopt() == YES
    assert importer.clock.trusted == 1000 + max(ahead, 0)
    assert importer.clock.dispute == (Dispute.NONE if ahead < 0 else Dispute.AHEAD)
    assert (importer.last_topic_id, importer.last_epoch) == (
        exporter.last_topic_id + max(ahead, 0),
        exporter.last_epoch + max(ahead, 0),
    )


def test_commands_from_another_move_are_ignored() -> None:
    """REP-6"""
    move = Move()
    move.claim()
    move.copy()
    move.freeze()
    before = [group.machine.checksum() for group in (move.exporter, move.importer)]
    rows = state.moved_out(holdings(move.exporter))
    low = holdings(move.exporter).low
    assert low is not None
    assert move.importer.apply(moves.Adopt("other", low, UNTIL, 0, 0, 0, rows)) == NO
    put = do.Put("t", "p", 1, 0, 1, 1, 0, b"bytes")
    assert move.importer.apply(moves.Import("other", "t", 1, 10, 1, 1, 0, 0, -1, put)) == NO
    for group, command in (
        (move.importer, moves.Abandon("other")),
        (move.importer, moves.Finish("other")),
        (move.exporter, moves.Thaw("other")),
        (move.exporter, moves.Release("other")),
    ):
        assert group.apply(command) == YES
    for group, checksum in zip((move.exporter, move.importer), before, strict=True):
        assert group.machine.registry.last_slot == group.slot
        group.machine.registry.last_slot -= 2 if group is move.exporter else 4
        assert group.machine.checksum() == checksum


def test_import_after_the_adoption_is_refused() -> None:
    """REP-6"""
    move = Move()
    move.claim()
    move.copy()
    move.freeze()
    move.adopt()
    put = do.Put("t", "p", 1, 0, 1, 1, 0, b"bytes")
    assert move.importer.apply(moves.Import("m", "t", 1, 10, 1, 1, 0, 0, -1, put)) == NO


def test_group_can_claim_again_after_an_abandoned_claim() -> None:
    """REP-6"""
    move = Move()
    move.claim()
    move.importer.apply(moves.Abandon("m"))
    assert move.importer.apply(moves.Claim("other", GIVER)) == YES


def test_exporter_keeps_nothing_from_a_released_part() -> None:
    """REP-6"""
    move = Move()
    move.exporter.stage(0, "a")
    move.freeze()
    move.exporter.apply(moves.Release("m"))
    assert (holdings(move.exporter).outgoing, holdings(move.exporter).sources) == ({}, {})
    assert move.exporter.machine.needed() == move.exporter.slot + 1


def test_new_topics_can_be_created_outside_the_frozen_part() -> None:
    """REP-6"""
    move = Move()
    move.freeze()
    assert isinstance(move.exporter.apply(do.OpenProducer("u", "p", "inc-1", 0)), Opened)


def test_group_without_an_arc_exports_nothing() -> None:
    """REP-6"""
    nothing = Holdings("g-a", None)
    assert not nothing.in_part("t", UNTIL)
    assert not nothing.may_export(nothing.position)
    assert not nothing.owns("t")


def test_topics_from_before_the_ring_stay_available() -> None:
    """REP-6"""
    steps = Steps()
    steps.create()
    steps.apply(moves.Found("g-a", first=False))
    assert steps.machine.registry.elsewhere("t") is None
    assert steps.machine.registry.elsewhere("u") == NotHere("u")


def test_abandoned_claim_leaves_no_trace() -> None:
    """REP-6: the exporter thaws and serves again."""
    move = Move()
    move.claim()
    move.copy()
    move.freeze()
    assert move.importer.apply(moves.Abandon("m")) == YES
    assert move.adopt() == NO
    assert move.exporter.apply(moves.Thaw("m")) == YES
    assert isinstance(move.exporter.put(move.epoch, 10), Appended)
    assert move.exporter.kept() == list(range(3, 11))
    assert move.importer.machine.needed() == move.importer.slot + 1
    assert not holdings(move.importer).incoming


def test_adopted_part_cannot_be_abandoned_and_released_part_cannot_be_thawed() -> None:
    """REP-6: a move cannot be undone once the importer serves."""
    move = Move()
    move.claim()
    move.copy()
    move.freeze()
    move.adopt()
    move.importer.apply(moves.Abandon("m"))
    assert isinstance(move.importer.put(move.epoch, 10), Appended)
    move.exporter.apply(moves.Release("m"))
    move.exporter.apply(moves.Thaw("m"))
    assert move.exporter.put(move.epoch, 11) == NotHere("t")


def test_every_move_command_is_idempotent() -> None:
    """REP-6: a leader repeats an unanswered command."""
    move = Move()
    for _ in range(2):
        move.claim()
        move.copy()
    for _ in range(2):
        move.freeze()
    rows = holdings(move.exporter).outgoing
    assert move.adopt() == YES
    assert move.adopt() == YES
    assert rows
    for _ in range(2):
        assert move.exporter.apply(moves.Release("m")) == YES
        assert move.importer.apply(moves.Finish("m")) == YES
    assert move.importer.kept() == list(range(3, 10))


def test_only_one_move_is_allowed_at_a_time() -> None:
    """REP-6"""
    move = Move()
    move.claim()
    move.freeze()
    assert move.importer.apply(moves.Claim("other", GIVER)) == NO
    assert move.exporter.apply(moves.Freeze("other", UNTIL, TAKER)) == NO


def test_only_an_owned_and_adjacent_part_can_move() -> None:
    """REP-6: otherwise arcs would not stay contiguous."""
    move = Move()
    move.whole()
    assert holdings(move.exporter).low == UNTIL
    assert move.exporter.apply(moves.Freeze("n", UNTIL, TAKER)) == NO
    assert move.importer.apply(moves.Claim("n", GIVER)) == YES
    low = holdings(move.importer).low
    assert low is not None
    wrong = moves.Adopt("n", low, key_of("u"), 0, 0, 0, state.moved_out(Holdings("g-2", None)))
    assert move.importer.apply(wrong) == NO


def test_group_that_exports_its_whole_arc_owns_nothing() -> None:
    """REP-6: a group leaves the ring."""
    move = Move()
    move.whole()
    importer, exporter = move.exporter, move.importer  # move the arc back
    importer.apply(moves.Claim("back", TAKER))
    for each in topic(exporter).index.entries(0):
        put = do.Put("t", "p", 1, 0, each.messages, each.size, 0, b"bytes")
        facts = (each.offset, each.messages, each.size, each.time, each.skip, each.sequence)
        importer.apply(moves.Import("back", "t", topic(exporter).id, *facts, put))
    position = holdings(exporter).position
    assert exporter.apply(moves.Freeze("back", position, GIVER)) == YES
    low, registry = holdings(exporter).low, exporter.machine.registry
    assert low is not None
    counters = (registry.clock.now, registry.last_topic_id, registry.last_epoch)
    rows = state.moved_out(holdings(exporter))
    assert importer.apply(moves.Adopt("back", low, position, *counters, rows)) == YES
    exporter.apply(moves.Release("back"))
    assert holdings(exporter).low is None
    assert holdings(importer).low == holdings(importer).position
    assert importer.kept() == list(range(3, 10))
    assert exporter.put(1, 0, topic="u") == NotHere("u")


@pytest.mark.parametrize("until", range(6))
def test_snapshot_during_a_move_is_restored(until: int) -> None:
    """REP-6, SVC-10: the test takes a snapshot in both groups at each step of the move."""
    move = Move()
    steps = [move.claim, move.copy, move.freeze, move.adopt]
    for step in steps[:until]:
        step()
    if until > 4:
        move.exporter.apply(moves.Release("m"))
    for group in (move.exporter, move.importer):
        restored = Machine.restore(group.machine.state())
        assert restored.checksum() == group.machine.checksum()
        group.machine = restored
    for step in steps[until:]:
        step()
    assert move.exporter.apply(moves.Release("m")) == YES
    assert move.importer.kept() == list(range(3, 10))


def test_no_part_is_adopted_while_part_of_the_arc_is_frozen() -> None:
    """REP-6: otherwise the parts would not be adjacent."""
    move = Move()
    move.whole()
    importer = move.exporter  # it imports the whole arc of the other group
    importer.apply(moves.Claim("back", TAKER))
    assert importer.apply(moves.Freeze("away", key_of("u"), PeerGroup("g-u", ()))) == YES
    low, until = holdings(move.importer).low, holdings(move.importer).position
    assert low is not None
    adopt = moves.Adopt("back", low, until, 0, 0, 0, state.moved_out(Holdings("g-a", None)))
    assert importer.apply(adopt) == NO
    importer.apply(moves.Thaw("away"))
    assert importer.apply(adopt) == YES


def test_staged_parts_move_and_are_published_once() -> None:
    """REP-6, PIPE-2: the importer publishes staged parts, and keeps published numbers."""
    move = Move()
    move.exporter.stage(0, "a", 2)
    publish = do.PublishStaged("query", 0, ("a",), 0, "t")
    assert isinstance(move.exporter.apply(publish), Published)
    move.exporter.stage(1, "b", 3)
    move.claim()
    move.copy()
    move.freeze()
    assert move.exporter.apply(do.PublishStaged("query", 1, ("b",), 0, "t")) == NotHere("t")
    assert move.adopt() == NO  # one part is still missing
    staged = do.Stage("query", 1, "b", "t", 3, 100, 0, b"bytes")
    part = moves.Import("m", "t", 0, -1, 3, 100, 1000, 0, -1, staged)
    for _ in range(2):
        assert move.importer.apply(part) == YES
    copied = move.importer.slot - 1
    exporter, importer = (each.machine.registry.staging for each in (move.exporter, move.importer))
    assert [(each.parts, each.bytes) for each in (exporter, importer)] == [(0, 0), (0, 0)]
    assert move.adopt() == YES
    assert (importer.parts, importer.bytes, holdings(move.importer).parts) == (1, 100, {})
    again = move.importer.apply(publish)
    assert isinstance(again, Published)
    assert again.already
    done = move.importer.apply(do.PublishStaged("query", 1, ("b",), 0, "t"))
    assert isinstance(done, Published)
    assert not done.already
    assert move.importer.kept() == list(range(3, 15))
    assert [each.slot for each in move.importer.machine.fetch("t", 12, 3, 1000)] == [copied]
    move.exporter.apply(moves.Release("m"))
    assert not move.exporter.machine.registry.staging.sources
    assert move.exporter.machine.needed() == move.exporter.slot + 1


def test_late_duplicate_of_a_refused_publish_has_no_effect_after_a_move() -> None:
    """REP-6, PIPE-2: the source may or may not have a record."""
    publish = do.PublishStaged("query", 0, ("a",), 0, "t", expected=0)
    for number, parts in ((0, ()), (1, ("b",))):
        move = Move()
        for part in parts:
            move.exporter.stage(1, part)
        assert move.exporter.apply(publish) == NotStaged("query", 0, "a")
        move.claim()
        move.copy()
        move.freeze()
        for part in parts:
            staged = do.Stage("query", number, part, "t", 1, 100, 0, b"bytes")
            move.importer.apply(moves.Import("m", "t", 0, -1, 1, 100, 1000, 0, -1, staged))
        assert move.adopt() == YES
        move.importer.stage(0, "a")
        assert isinstance(move.importer.apply(publish), Fenced)


def test_source_with_two_topics_has_two_records_on_a_ring() -> None:
    """REP-6, PIPE-2: the topics can move to different groups."""
    steps = Steps()
    steps.apply(moves.Found("g-2", True))
    steps.subscribe()
    steps.subscribe(topic="u")
    steps.stage(0, "a")
    steps.stage(0, "b", topic="u")
    steps.apply(do.PublishStaged("query", 0, ("a",), 0, "t"))
    assert (steps.kept(), steps.kept("u")) == ([0], [])
    steps.apply(do.PublishStaged("query", 0, ("b",), 0, "u"))
    assert (steps.kept(), steps.kept("u")) == ([0], [0])


def test_group_outside_a_ring_owns_all_topics() -> None:
    """SVC-1"""
    steps = Steps()
    assert isinstance(steps.put(steps.open(), 0), Appended)


def test_answered_calls_move_even_with_deleted_topics() -> None:
    """REP-6: the next copy of a call may reach the new owner."""
    move = Move()
    removed, kept = do.DeleteTopic("removed", 0, "x"), do.DeleteTopic("u", 0, "y")
    unsubscribe = do.Unsubscribe("t", "s", 0, "z")
    assert up_to(key_of("g-2"), key_of("removed"), UNTIL)
    for name in ("removed", "u"):
        move.exporter.create(name)
    for call in (removed, kept, unsubscribe):
        move.exporter.apply(call)
    move.exporter.subscribe()
    move.whole()
    assert [token for token, _ in move.importer.machine.registry.answered.items()] == ["x", "z"]
    move.importer.create("removed")
    assert move.importer.apply(removed) == TopicDeleted(already=True)
    assert move.importer.apply(unsubscribe) == Unsubscribed(already=True)
    assert [*topic(move.importer).subscriptions] == ["s"]
    assert "removed" in move.importer.machine.registry.topics
    assert move.exporter.apply(removed) == NotHere("removed")
