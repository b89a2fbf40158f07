"""A transaction puts and acknowledges in one command, or does nothing (TXN-1)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from oncecast.broker import moves
from oncecast.broker.extent import Extent
from oncecast.broker.machine import Machine
from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire import results as done
from oncecast.wire.limits import Limits
from oncecast.wire.results import GrantMade, Leased, PublishedRange, Staged, TransactionEnded
from oncecast.wire.sharing import Shared
from oncecast.wire.transactions import (
    JOBS_MAX,
    STAGED_MAX,
    SUBSCRIPTIONS_MAX,
    TOPICS_MAX,
    UNFINISHED_MAX,
    Accepted,
    Consumed,
    EndTransaction,
    Output,
)
from tests.broker.machine_steps import ALL, Steps
from tests.broker.transaction_pair import transaction_run
from tests.seeds import seeds

SOURCE = "copier"


class Desk(Steps):
    """A machine with input in topic `t`, an open source, and subscriptions of the output."""

    def __init__(self, limits: Limits = Limits()) -> None:  # noqa: B008  # frozen
        super().__init__(limits)
        self.subscribe()
        self.subscribe(topic="u")
        self.subscribe(topic="v")
        self.put(self.open(), 0, 5)
        self.reader = self.attach().epoch
        self.epoch = self.begin("inc-1")

    def begin(self, incarnation: str, expected: int = do.ANY_EPOCH) -> int:
        opened = self.apply(do.OpenSource(SOURCE, incarnation, "t", self.now, expected))
        assert isinstance(opened, done.SourceOpened)
        return opened.epoch

    def end(self, number: int = 0, **fields: Any) -> done.Result:
        fields = {"epoch": self.epoch, "finished": 0, "at": self.now} | fields
        return self.apply(EndTransaction(SOURCE, "t", number=number, **fields))

    def stage_part(self, number: int, part: str, topic: str = "u", epoch: int = 0) -> done.Result:
        epoch = epoch or self.epoch
        return self.apply(
            do.Stage(SOURCE, number, part, topic, 2, 50, self.now, b"part", epoch=epoch)
        )

    def read(self, first: int, upto: int) -> tuple[Consumed, ...]:
        return (Consumed("t", "s", self.reader, first, upto),)

    @property
    def cursor(self) -> int:
        return self.machine.registry.topics["t"].subscriptions["s"].cursor


def out(topic: str = "u", count: int = 1) -> Output:
    return Output(topic, count, 10 * count, b"batch")


def committed(*ranges: tuple[str, int, int]) -> TransactionEnded:
    return TransactionEnded(True, tuple(PublishedRange(*each, kept=True) for each in ranges), False)


def refused(offset: int, fact: str, topic: str = "t", name: str = "s") -> errors.NotAcknowledged:
    return errors.NotAcknowledged(topic, name, offset, fact)


# -- commit --


def test_transaction_puts_and_acknowledges_in_one_command() -> None:
    """TXN-1"""
    desk = Desk()
    done = desk.end(outputs=(out("u", 2), out("v")), consumed=desk.read(0, 3))
    assert done == committed(("u", 0, 2), ("v", 0, 1))
    assert desk.cursor == 3
    assert desk.machine.fetch("u", 0, ALL, ALL) == (Extent(desk.slot, 0, 2, 0, sequence=0),)
    assert desk.machine.fetch("v", 0, ALL, ALL) == (Extent(desk.slot, 0, 1, 0, sequence=0),)


def test_staged_parts_precede_the_messages_of_the_command() -> None:
    """TXN-1: a large transaction stages its first messages."""
    desk = Desk()
    desk.stage_part(0, "a")
    desk.stage_part(0, "b", "v")
    desk.stage_part(0, "c")
    slot = desk.slot
    assert desk.kept("u") == []
    done = desk.end(parts=("a", "b", "c"), outputs=(out(),))
    assert done == committed(("u", 0, 5), ("v", 0, 2))
    found = [(each.slot, each.offset, each.sequence) for each in desk.machine.fetch("u", 0, 9, ALL)]
    assert found == [(slot - 2, 0, 0), (slot, 2, 2), (slot + 1, 4, 4)]
    assert (desk.machine.registry.staging.parts, desk.machine.registry.staging.bytes) == (0, 0)


def test_commit_drops_parts_that_it_does_not_name() -> None:
    """TXN-1"""
    desk = Desk()
    desk.stage_part(0, "a")
    desk.stage_part(0, "b")
    desk.stage_part(1, "c")
    desk.end(parts=("b",))
    assert desk.kept("u") == [0, 1]
    assert [*desk.machine.registry.staging.sources[SOURCE].staged] == [1]
    assert desk.stage_part(0, "late") == Staged(already=True)
    assert desk.machine.registry.staging.parts == 1


def test_transaction_can_create_topics() -> None:
    desk = Desk()
    ended = desk.end(outputs=(out("new"),))
    assert ended == TransactionEnded(True, (PublishedRange("new", 0, 1, kept=False),), False)
    assert list(desk.machine.registry.topics["new"].producers) == [SOURCE]


def test_copy_of_a_commit_gets_the_result_of_the_original() -> None:
    """TXN-1: a client repeats a commit until it has an answer."""
    desk = Desk()
    first = desk.end(outputs=(out(),), consumed=desk.read(0, 1))
    assert isinstance(first, TransactionEnded)
    assert desk.end(outputs=(out(),), consumed=desk.read(0, 1)) == replace(first, already=True)
    assert (desk.kept("u"), desk.cursor) == ([0], 1)


def test_copy_of_a_refused_commit_stays_refused() -> None:
    """TXN-1: otherwise it could take effect after the application has done the work again."""
    desk = Desk()
    why = refused(4, "the next offset of the topic is 5")
    assert desk.end(outputs=(out(),), consumed=desk.read(4, 6)) == why
    desk.put(1, 5)
    assert desk.end(outputs=(out(),), consumed=desk.read(4, 6)) == why
    assert desk.kept("u") == []


def test_transactions_of_one_source_commit_in_any_order() -> None:
    """TXN-1: an application runs several transactions at the same time."""
    desk = Desk()
    assert desk.end(2, outputs=(out(),)) == committed(("u", 0, 1))
    assert desk.end(0, outputs=(out(),)) == committed(("u", 1, 1))
    assert desk.end(1, outputs=(out(),)) == committed(("u", 2, 1))
    again = TransactionEnded(True, (PublishedRange("u", 1, 1, kept=True),), already=True)
    assert desk.end(0, outputs=(out(),)) == again


def test_finished_results_are_forgotten_and_late_copies_refused() -> None:
    desk = Desk()
    for number in range(3):
        desk.end(number, outputs=(out(),))
    desk.stage_part(3, "a")
    desk.end(4, finished=4)
    assert desk.end(3, outputs=(out(),)) == errors.OldNumber(SOURCE, 3, 3)
    assert desk.stage_part(3, "b") == Staged(already=True)
    opening = desk.machine.registry.staging.sources[SOURCE].opening
    assert opening is not None
    assert list(opening.results) == [(desk.epoch, 4)]
    assert desk.machine.registry.staging.parts == 0
    desk.end(5, finished=2)
    assert opening.finished == 4


# -- abort --


def test_abort_drops_the_parts_and_puts_nothing() -> None:
    """TXN-1"""
    desk = Desk()
    desk.stage_part(0, "a")
    aborted = TransactionEnded(committed=False, ranges=(), already=False)
    assert desk.end(commit=False, parts=("a",), consumed=desk.read(0, 1)) == aborted
    assert (desk.kept("u"), desk.cursor) == ([], 0)
    assert desk.machine.needed() < desk.slot - 1
    assert desk.stage_part(0, "a") == Staged(already=True)
    assert desk.end(outputs=(out(),)) == replace(aborted, already=True)


def test_refused_commit_drops_its_parts_and_keeps_the_epoch() -> None:
    desk = Desk()
    desk.stage_part(0, "a")
    assert desk.end(parts=("a", "b")) == errors.NotStaged(SOURCE, 0, "b")
    assert desk.machine.registry.staging.parts == 0
    assert desk.begin("inc-1") == desk.epoch


# -- fencing --


def test_newer_process_fences_the_older_one() -> None:
    """TXN-1: a commit or a part of the older process has no effect."""
    desk = Desk()
    desk.stage_part(0, "old")
    old, new = desk.epoch, desk.begin("inc-2")
    assert new > old
    assert desk.end(outputs=(out(),)) == errors.Fenced(new)
    assert desk.end(commit=False) == errors.Fenced(new)
    assert desk.stage_part(0, "late", epoch=old) == errors.Fenced(new)
    assert desk.machine.registry.staging.parts == 0
    assert desk.end(epoch=new, outputs=(out(),)) == committed(("u", 0, 1))


def test_fenced_process_still_learns_the_outcome_of_its_commit() -> None:
    """TXN-1: until the newer process ends a transaction."""
    desk = Desk()
    desk.end(outputs=(out(),))
    new = desk.begin("inc-2")
    ended = TransactionEnded(True, (PublishedRange("u", 0, 1, kept=True),), already=True)
    assert desk.end(outputs=(out(),)) == ended
    assert desk.end(1, outputs=(out(),)) == errors.Fenced(new)
    desk.end(0, epoch=new)
    assert desk.end(outputs=(out(),)) == errors.Fenced(new)


def test_repeated_open_keeps_the_epoch_and_the_parts() -> None:
    desk = Desk()
    desk.stage_part(0, "a")
    assert desk.begin("inc-1", expected=99) == desk.epoch
    assert desk.machine.registry.staging.parts == 1


def test_late_open_does_not_fence_its_successor() -> None:
    """TXN-1: it expects an epoch that has passed."""
    desk = Desk()
    opened = do.OpenSource(SOURCE, "inc-2", "t", 0, expected=desk.epoch)
    new = desk.begin("inc-3", expected=desk.epoch)
    assert desk.apply(opened) == errors.Fenced(new)
    assert desk.apply(replace(opened, expected=0)) == errors.Fenced(new)
    assert desk.end(epoch=new, outputs=(out(),)) == committed(("u", 0, 1))


def test_open_source_refuses_commands_without_an_epoch() -> None:
    """TXN-1: staging without an epoch is not fenced."""
    desk = Desk()
    desk.stage_part(0, "a")
    plain = do.Stage(SOURCE, 0, "b", "u", 1, 10, 0, b"")
    assert desk.apply(plain) == errors.TakenOver(SOURCE)
    assert desk.apply(do.PublishStaged(SOURCE, 0, ("a",), 0)) == errors.TakenOver(SOURCE)
    assert desk.apply(do.DropStaged(SOURCE, 0)) == done.StagedDropped(0)
    assert desk.machine.registry.staging.parts == 1


def test_source_without_a_record_accepts_no_transaction() -> None:
    """TXN-1: the record was deleted, or has expired."""
    desk = Desk()
    desk.stage_part(0, "a")
    assert desk.apply(do.CloseSource(SOURCE, 0)) == done.SourceClosed(already=False)
    assert desk.end(outputs=(out(),)) == errors.Fenced(0)
    assert desk.stage_part(0, "a") == errors.Fenced(0)
    assert SOURCE not in desk.machine.registry.staging.sources
    assert desk.begin("inc-1") > desk.epoch


def test_unused_source_expires() -> None:
    desk = Desk(Limits(source_idle_us=500))
    desk.now += 499
    desk.apply(do.Tick(desk.now, producers=True))
    assert desk.end(outputs=(out(),)) == committed(("u", 0, 1))
    desk.now += 500
    desk.apply(do.Tick(desk.now, producers=True))
    assert desk.end(1, outputs=(out(),)) == errors.Fenced(0)
    assert desk.machine.registry.topics["u"].producers == {}


# -- exclusive subscriptions --


@pytest.mark.parametrize(
    ("command", "offset", "fact"),
    [
        (do.Attach("t", "s", "inc-2"), 1, "another reader has taken over"),
        (do.Seek("t", "s", do.FromOffset(0), 0, "k"), 1, "the subscription was moved"),
        (do.Ack("t", "s", 3, 2), 1, "it is already acknowledged"),
        (do.Unsubscribe("t", "s", 0), 1, "the subscription does not exist"),
        (do.DeleteTopic("t", 0), 1, "the topic does not exist"),
    ],
)
def test_stale_reader_aborts_the_transaction(command: Any, offset: int, fact: str) -> None:
    """TXN-1: nothing is put, and the error names the first message."""
    desk = Desk()
    if isinstance(command, do.Ack):
        command = replace(command, epoch=desk.reader)
    desk.apply(command)
    result = desk.end(outputs=(out(),), consumed=desk.read(1, 3))
    assert result == refused(offset, fact)
    assert desk.kept("u") == []


def test_one_stale_message_aborts_the_whole_transaction() -> None:
    """TXN-1: the valid acknowledgements have no effect either."""
    desk = Desk()
    desk.apply(do.Subscribe("t", "other", do.FromEarliest(), 0))
    stale = Consumed("t", "other", 99, 0, 1)
    why = refused(0, "another reader has taken over", name="other")
    assert desk.end(outputs=(out(),), consumed=(*desk.read(0, 2), stale)) == why
    assert (desk.kept("u"), desk.cursor) == ([], 0)


def test_messages_before_the_transaction_are_acknowledged_with_it() -> None:
    """SVC-3: an acknowledgement covers all messages before it."""
    desk = Desk()
    assert desk.end(consumed=desk.read(2, 4)) == TransactionEnded(True, (), already=False)
    assert desk.cursor == 4
    assert desk.end(1, consumed=desk.read(3, 5)) == refused(3, "it is already acknowledged")
    assert desk.end(2, consumed=desk.read(4, 5)) == TransactionEnded(True, (), already=False)


def test_acknowledged_messages_are_deleted() -> None:
    desk = Desk()
    desk.end(consumed=desk.read(0, 5))
    assert desk.kept() == []


# -- shared subscriptions --


class Workshop(Desk):
    def __init__(self) -> None:
        super().__init__()
        settings = Shared(lease_us=1000, deliveries_max=0, backoff_min_us=0)
        self.apply(do.SubscribeShared("t", "w", do.FromEarliest(), self.now, settings))
        self.token = self.lease("ann", 3)

    def lease(self, worker: str, count: int) -> int:
        leased = self.apply(do.Lease("t", "w", self.now, ((worker, count),)))
        assert isinstance(leased, Leased)
        return leased.grants[0].token if leased.grants else 0

    def jobs(self, *offsets: int, worker: str = "ann") -> tuple[Accepted, ...]:
        return (Accepted("t", "w", worker, tuple((self.token, each, 1) for each in offsets)),)


def test_transaction_settles_the_jobs_of_a_worker() -> None:
    """TXN-1"""
    desk = Workshop()
    desk.now += 5
    done = desk.end(outputs=(out(),), accepted=desk.jobs(0, 2))
    assert done == committed(("u", 0, 1))
    subscription = desk.machine.registry.topics["t"].subscriptions["w"]
    assert subscription.cursor == 1
    queue = subscription.queue
    assert queue is not None
    assert (list(queue.open), queue.leased, queue.workers["ann"].used) == ([1], 1, desk.now)
    assert desk.end(1, accepted=desk.jobs(1)) == TransactionEnded(True, (), already=False)
    assert subscription.cursor == 3


def test_lost_lease_aborts_the_transaction() -> None:
    """TXN-1: the error names the first stale message."""
    desk = Workshop()
    desk.end(accepted=desk.jobs(1))
    why = refused(1, "its lease has ended", name="w")
    assert desk.end(1, outputs=(out(),), accepted=desk.jobs(0, 1, 2)) == why
    assert desk.end(2, accepted=desk.jobs(0, worker="bob")) == replace(why, offset=0)
    desk.now += 1000
    desk.lease("bob", 1)
    assert desk.end(3, accepted=desk.jobs(2)) == replace(why, offset=2)
    assert desk.kept("u") == []


def test_late_jobs_count_as_long_as_no_command_has_ended_their_lease() -> None:
    """WRK-3"""
    desk = Workshop()
    desk.now += 5000
    assert desk.end(accepted=desk.jobs(0)) == TransactionEnded(True, (), already=False)


def test_wrong_kind_of_subscription_aborts_the_transaction() -> None:
    desk = Workshop()
    wrong = Consumed("t", "w", 1, 0, 1)
    assert desk.end(consumed=(wrong,)) == refused(0, "the subscription is shared", name="w")
    jobs = (Accepted("t", "s", "ann", ((1, 4, 1),)),)
    assert desk.end(1, accepted=jobs) == refused(4, "the subscription is exclusive")


def test_key_is_free_after_the_transaction() -> None:
    """WRK-4"""
    desk = Desk()
    settings = Shared(by_key=True)
    desk.apply(do.SubscribeShared("t", "w", do.FromEarliest(), 0, settings))
    first = desk.apply(do.Lease("t", "w", 0, (("ann", 2),), keys=(7, 7)))
    assert first == Leased((GrantMade("ann", desk.machine.registry.last_epoch, ((0, 1),)),))
    token = desk.machine.registry.last_epoch
    desk.end(accepted=(Accepted("t", "w", "ann", ((token, 0, 1),)),))
    assert desk.apply(do.Lease("t", "w", 0, (("ann", 2),))) == Leased(
        (GrantMade("ann", token + 1, ((1, 1),)),)
    )


# -- refusals --


def test_topics_are_checked_before_anything_is_put() -> None:
    """TXN-1"""
    desk = Desk(Limits(topics_max=3))
    put = {"consumed": desk.read(0, 1)}
    refusals = [
        desk.end(0, outputs=(out("u"), out("w")), **put),
        desk.end(1, outputs=(out("u"), out("")), **put),
        desk.end(2, outputs=(out("u"), replace(out("v"), count=0)), **put),
        desk.end(3, outputs=(out("u"), replace(out("v"), size=1 << 40)), **put),
    ]
    desk.open("v", SOURCE)
    refusals.append(desk.end(4, outputs=(out("u"), out("v")), **put))
    assert refusals == [
        errors.TooMany("topics", 3),
        errors.InvalidTopic(),
        errors.InvalidArgument(
            "the batch has 0 messages and 10 bytes (minimum 1 and 0); send the real counts"
        ),
        errors.TooLarge("bytes", 64 << 20),
        errors.NameInUse("v", SOURCE),
    ]
    assert (desk.kept("u"), desk.kept("v"), desk.cursor) == ([], [], 0)


@pytest.mark.parametrize(
    ("fields", "fact"),
    [
        ({"finished": 1}, "number 0 and finished 1"),
        ({"number": -1, "finished": -1}, "number -1 and finished -1"),
        ({"number": 100}, "101 unfinished transactions (limit 100)"),
        ({"parts": ("a",) * 2}, "the part 'a' is listed twice"),
        ({"parts": tuple(map(str, range(5001)))}, "5,001 staged parts (limit 5,000)"),
        ({"outputs": (out(), out())}, "topic 'u' has two batches"),
        ({"outputs": tuple(out(str(n)) for n in range(501))}, "501 topics (limit 500)"),
        ({"consumed": (Consumed("t", "s", 1, 2, 2),)}, "the range 2 to 2 of topic 't' is empty"),
        ({"consumed": (Consumed("t", "s", 1, -1, 2),)}, "the range -1 to 2 of topic 't' is empty"),
        ({"consumed": (Consumed("t", "s", 1, 0, 1),) * 2}, "'s' of topic 't' is listed twice"),
        (
            {"consumed": tuple(Consumed("t", str(n), 1, 0, 1) for n in range(501))},
            "501 subscriptions (limit 500)",
        ),
        ({"accepted": (Accepted("t", "w", "ann", ()),)}, "a run of topic 't' is empty"),
        ({"accepted": (Accepted("t", "w", "ann", ((1, 0, 0),)),)}, "a run of topic 't' is empty"),
        ({"accepted": (Accepted("t", "w", "ann", ((1, -1, 1),)),)}, "a run of topic 't' is empty"),
        (
            {"accepted": (Accepted("t", "w", "ann", ((1, 0, 2), (1, 1, 1))),)},
            "offset 1 of topic 't' is listed twice",
        ),
        (
            {"accepted": (Accepted("t", "w", "ann", ((1, 0, 2001), (1, 0, -1))),)},
            "2,001 acknowledged jobs (limit 2,000)",
        ),
    ],
)
def test_invalid_transaction_is_refused(fields: dict[str, Any], fact: str) -> None:
    desk = Desk()
    result = desk.end(**fields)
    assert isinstance(result, errors.InvalidArgument)
    assert fact in result.fact
    assert desk.kept("u") == []


def test_transaction_at_its_limits_is_valid() -> None:
    desk = Desk()
    end = EndTransaction(
        SOURCE,
        "t",
        desk.epoch,
        UNFINISHED_MAX - 1,
        0,
        0,
        parts=tuple(map(str, range(STAGED_MAX))),
        outputs=tuple(out(str(n)) for n in range(TOPICS_MAX)),
        consumed=tuple(Consumed("t", str(n), 1, 0, 1) for n in range(SUBSCRIPTIONS_MAX - 1)),
        accepted=(Accepted("t", "w", "ann", tuple((1, n, 1) for n in range(JOBS_MAX))),),
    )
    assert end.fault == ""
    assert desk.apply(end) == errors.NotStaged(SOURCE, UNFINISHED_MAX - 1, "0")


def test_invalid_names_are_refused() -> None:
    desk = Desk()
    assert desk.apply(do.OpenSource("", "i", "t", 0)) == errors.InvalidName("source")
    assert desk.apply(do.OpenSource("s", "", "t", 0)) == errors.InvalidName("incarnation")
    assert desk.apply(do.OpenSource("s", "i", "", 0)) == errors.InvalidTopic()
    assert desk.apply(EndTransaction("", "t", 1, 0, 0, 0)) == errors.InvalidName("source")


def test_number_of_sources_is_limited() -> None:
    desk = Desk(Limits(sources_max=1))
    assert desk.apply(do.OpenSource("s", "i", "t", 0)) == errors.TooMany("sources", 1)
    assert desk.begin("inc-2") > desk.epoch


# -- the log --


def test_slot_is_needed_until_each_topic_has_dropped_its_messages() -> None:
    """SVC-9: one slot of the log has messages of several topics."""
    desk = Desk()
    desk.end(outputs=(out("u"), out("v"), out("w")), consumed=desk.read(0, 5))
    slot = desk.slot
    assert desk.machine.needed() == slot
    assert list(desk.machine.extents_before(slot + 1)) == [
        ("u", Extent(slot, 0, 1, 0, 0)),
        ("v", Extent(slot, 0, 1, 0, 0)),
    ]
    desk.apply(do.Unsubscribe("u", "s", 0))
    assert desk.machine.needed() == slot
    stage = do.Stage(SOURCE, 0, "", "v", 1, 10, 0, b"batch", epoch=desk.epoch)
    assert desk.apply(do.Carry(slot, 0, stage)) == done.Carried(moved=True)
    assert desk.machine.needed() == desk.slot
    desk.apply(do.DeleteTopic("v", 0))
    assert desk.machine.needed() == desk.slot + 1


def test_staged_part_of_a_transaction_is_carried() -> None:
    """SVC-9"""
    desk = Desk()
    stage = do.Stage(SOURCE, 0, "a", "u", 2, 50, 0, b"part", epoch=desk.epoch)
    desk.apply(stage)
    assert desk.apply(do.Carry(desk.slot, -1, stage)) == done.Carried(moved=True)
    slot = desk.slot
    desk.end(parts=("a",))
    assert desk.machine.fetch("u", 0, ALL, ALL) == (Extent(slot, 0, 2, 0, sequence=0),)


def test_snapshot_contains_open_transactions_and_results() -> None:
    """SVC-9"""
    desk = Workshop()
    desk.end(0, outputs=(out("u"), out("v")), accepted=desk.jobs(0))
    desk.end(1, consumed=desk.read(0, 99))
    desk.stage_part(2, "a")
    machine = Machine.restore(list(desk.machine.state()))
    assert machine.checksum() == desk.machine.checksum()
    desk.machine = machine
    assert desk.end(1) == refused(0, "the next offset of the topic is 5")
    assert desk.end(2, finished=1, parts=("a",), accepted=desk.jobs(1)) == committed(("u", 1, 2))
    assert desk.end(0) == errors.OldNumber(SOURCE, 0, 0)
    assert desk.begin("inc-1") == desk.epoch


# -- rings --


def on_ring() -> Desk:
    desk = Desk.__new__(Desk)
    Steps.__init__(desk)
    desk.apply(moves.Found("g", True))
    desk.apply(do.SetLimits(Limits(), 3))
    for topic in ("{shop}.in", "{shop}.out", "other"):
        desk.subscribe(topic=topic)
    return desk


def open_at(desk: Desk, topic: str, incarnation: str = "inc-1") -> int:
    opened = desk.apply(do.OpenSource(SOURCE, incarnation, topic, desk.now))
    assert isinstance(opened, done.SourceOpened)
    assert opened.ring
    return opened.epoch


def test_source_has_one_record_per_tag_on_a_ring() -> None:
    """TXN-1: the topics of a transaction always have the same owner."""
    desk = on_ring()
    epoch = open_at(desk, "{shop}.in")
    assert open_at(desk, "shop") == epoch
    assert open_at(desk, "other") > epoch
    part = do.Stage(SOURCE, 0, "a", "{shop}.out", 2, 50, 0, b"", epoch=epoch)
    assert desk.apply(part) == Staged(already=False)
    end = EndTransaction(SOURCE, "shop", epoch, 0, 0, 0, parts=("a",), outputs=(out("{shop}.in"),))
    assert desk.apply(end) == committed(("{shop}.out", 0, 2), ("{shop}.in", 0, 1))
    assert desk.apply(do.CloseSource(SOURCE, 0, "shop")) == done.SourceClosed(already=False)
    topics = desk.machine.registry.topics
    assert [*topics["{shop}.out"].producers, *topics["{shop}.in"].producers] == []


def test_topics_with_other_tags_are_refused_on_a_ring() -> None:
    """TXN-1: the error names the topics and the remedy."""
    desk = on_ring()
    epoch = open_at(desk, "shop")
    for number, fields in enumerate(
        (
            {"outputs": (out("{shop}.out"), out("other"))},
            {"consumed": (Consumed("other", "s", 1, 0, 1),)},
        )
    ):
        result = desk.apply(EndTransaction(SOURCE, "shop", epoch, number, 0, 0, **fields))  # type: ignore[arg-type]
        assert isinstance(result, errors.InvalidArgument)
        assert "topics 'shop' and 'other' can be in different groups" in result.fact
        assert "the same tag in braces" in result.fact
    assert desk.kept("{shop}.out") == []


def test_other_groups_answer_not_here() -> None:
    steps = Steps()
    steps.apply(moves.Found("g", False))
    steps.apply(do.SetLimits(Limits(), 3))
    assert steps.apply(do.OpenSource(SOURCE, "i", "t", 0)) == errors.NotHere("t")
    assert steps.apply(EndTransaction(SOURCE, "t", 1, 0, 0, 0)) == errors.NotHere("t")


# -- random commands --


@pytest.mark.parametrize("seed", seeds(30, 1000))
def test_transactions_agree_with_a_model_after_every_command(seed: int) -> None:
    """TXN-1: with late copies, replaced processes, readers and workers, and snapshots between."""
    transaction_run(seed)


def test_random_commands_reach_each_outcome() -> None:
    found: dict[str, int] = {}
    for seed in range(10):
        pair = transaction_run(seed)
        for key, each in pair.outcomes.items():
            found[key] = found.get(key, 0) + each
    assert found.keys() == {
        *("committed", "aborted", "already", "Fenced", "NotAcknowledged", "NotStaged", "OldNumber"),
        *("SourceOpened", "Staged"),
    }
    assert found["committed"] > 100


def test_open_advances_the_clock() -> None:
    """SVC-9: otherwise an unused record would look older than it is."""
    desk = Desk()
    desk.now += 500
    desk.begin("inc-2")
    assert desk.machine.registry.clock.now == desk.now


def test_epoch_that_no_process_has_is_fenced() -> None:
    """TXN-1"""
    desk = Desk()
    assert desk.end(outputs=(out(),), epoch=desk.epoch + 1) == errors.Fenced(desk.epoch)
    assert desk.kept("u") == []
