"""A share of a transaction across groups is held until it is decided (TXN-2)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from oncecast.broker.holding import outcome_of, output_part
from oncecast.broker.queue import HOLDER
from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire import results as done
from oncecast.wire.limits import Limits
from oncecast.wire.partitions import PARTITION_LEVEL
from oncecast.wire.results import MoveStep, PublishedRange, TransactionEnded
from oncecast.wire.ring_transactions import (
    HELD_MAX,
    PARTICIPANTS_MAX,
    RESULTS_MAX,
    DecideTransaction,
    PrepareTransaction,
    Share,
)
from oncecast.wire.sharing import Settle
from oncecast.wire.transactions import Accepted, Output
from tests.broker.machine_steps import Steps
from tests.broker.ring_desk import AGAIN, ELSEWHERE, PREPARED, SETTINGS, SOURCE, RingDesk
from tests.broker.ring_transaction_pair import ring_transaction_run
from tests.seeds import seeds

ABORTED = TransactionEnded(False, (), already=False)
YES, NO = MoveStep(True), MoveStep(False)
OUT = "{t}out"


def committed(*ranges: PublishedRange, already: bool = False) -> TransactionEnded:
    return TransactionEnded(True, ranges, already)


# Prepare


def test_prepared_share_is_invisible_and_acknowledges_nothing() -> None:
    """TXN-2: nothing is visible before the decision."""
    desk = RingDesk()
    desk.stage_part(0, "a")
    assert desk.prepare(parts=("a",), outputs=desk.output(), consumed=desk.read(0, 3)) == PREPARED
    assert (desk.kept(OUT), desk.cursor) == ([], 0)
    assert desk.held[0].parts == ("a", output_part(OUT))
    assert desk.held[0].coordinator == ELSEWHERE
    assert (desk.machine.registry.staging.parts, desk.machine.registry.staging.bytes) == (2, 60)


def test_committed_share_becomes_visible_and_acknowledges_in_one_command() -> None:
    """TXN-2: a share is published as a whole."""
    desk = RingDesk()
    desk.stage_part(0, "a")
    desk.prepare(parts=("a",), outputs=desk.output(3), consumed=desk.read(0, 3))
    assert desk.resolve(commit=True) == committed(PublishedRange(OUT, 0, 5, kept=True))
    assert (desk.kept(OUT), desk.cursor) == ([0, 1, 2, 3, 4], 3)
    assert not desk.held
    assert not desk.machine.registry.staging.unsettled
    assert (desk.machine.registry.staging.parts, desk.machine.registry.staging.bytes) == (0, 0)


def test_aborted_share_leaves_nothing_behind() -> None:
    desk = RingDesk()
    before = desk.machine.needed()
    desk.stage_part(0, "a")
    desk.prepare(parts=("a",), outputs=desk.output(), consumed=desk.read(0, 3))
    assert desk.resolve(commit=False) == ABORTED
    assert (desk.kept(OUT), desk.cursor, desk.held) == ([], 0, {})
    assert desk.machine.registry.staging.parts == 0
    assert desk.machine.needed() == before


def test_parts_that_a_share_does_not_name_are_dropped_when_it_is_prepared() -> None:
    desk = RingDesk()
    desk.stage_part(0, "a")
    desk.stage_part(0, "b")
    desk.prepare(parts=("b",))
    assert list(desk.source.staged[0]) == ["b"]
    assert desk.machine.registry.staging.parts == 1


def test_copy_of_prepare_changes_nothing() -> None:
    """TXN-2: a repeated prepare of a held or ended share has the first result."""
    desk = RingDesk()
    assert desk.prepare(outputs=desk.output()) == PREPARED
    assert desk.prepare(outputs=desk.output()) == AGAIN
    assert desk.machine.registry.staging.parts == 1
    assert desk.resolve(commit=True) == committed(PublishedRange(OUT, 0, 2, kept=True))
    again = committed(PublishedRange(OUT, 0, 2, kept=True), already=True)
    assert desk.prepare(outputs=desk.output()) == again
    assert desk.resolve(commit=True) == again
    assert desk.kept(OUT) == [0, 1]


def test_copy_of_prepare_after_the_client_has_the_result_is_refused() -> None:
    desk = RingDesk()
    desk.prepare(outputs=desk.output())
    desk.resolve(commit=False)
    desk.end(1, finished=1, commit=False)
    assert desk.prepare(outputs=desk.output()) == errors.OldNumber(SOURCE, 0, 0)
    assert not desk.held


def test_refused_prepare_is_final() -> None:
    """TXN-2: a copy of a refused prepare never takes effect."""
    desk = RingDesk()
    refusal = errors.NotAcknowledged("{t}in", "s", 4, "the next offset of the topic is 5")
    assert desk.prepare(consumed=desk.read(4, 6)) == refusal
    desk.put(desk.open("{t}in"), 5, 3, topic="{t}in")
    assert desk.prepare(consumed=desk.read(4, 6)) == refusal
    assert not desk.held


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"coordinator": Share("", 1, 1)}, "no valid tag"),
        ({"coordinator": Share("a{b}", 1, 1)}, "no valid tag"),
        ({"coordinator": Share("orders", 0, 1)}, "no valid tag"),
        ({"coordinator": Share("orders", 1, -1)}, "no valid tag"),
        ({"coordinator": Share("t", 1, 1)}, "has this tag itself"),
        ({"commit": False}, "cannot be prepared"),
        ({"number": -1}, "use a number of at least 0"),
        ({"outputs": (Output("u", 1, 1, b"x"),)}, "different groups"),
    ],
)
def test_invalid_prepare_is_refused(fields: dict[str, Any], word: str) -> None:
    desk = RingDesk()
    refused = desk.prepare(**fields)
    assert isinstance(refused, errors.InvalidArgument)
    assert word in refused.fact
    assert not desk.held


def test_source_may_not_have_too_many_undecided_transactions() -> None:
    """TXN-2 SEC-3: a share takes memory even if it is empty."""
    desk = RingDesk()
    for number in range(HELD_MAX):
        assert desk.prepare(number, finished=number) == PREPARED
    full = errors.TooMany("undecided transactions of one source", HELD_MAX)
    assert desk.prepare(HELD_MAX, finished=HELD_MAX) == full
    assert len(desk.held) == HELD_MAX


def test_share_may_not_use_the_name_of_its_own_output_for_a_part() -> None:
    desk = RingDesk()
    desk.stage_part(0, output_part(OUT))
    refused = desk.prepare(outputs=desk.output())
    assert isinstance(refused, errors.InvalidArgument)
    assert not desk.held


@pytest.mark.parametrize("limit", ["staged_parts_max", "staged_bytes_max"])
def test_share_within_the_limits_of_staged_messages_only(limit: str) -> None:
    desk = RingDesk(Limits(**{limit: 1 if limit == "staged_parts_max" else 10}))
    assert desk.prepare(outputs=desk.output()) == PREPARED
    assert isinstance(desk.prepare(1, outputs=desk.output()), errors.TooMany)
    assert list(desk.held) == [0]


@pytest.mark.parametrize("kind", [PrepareTransaction, DecideTransaction])
def test_cluster_that_is_not_a_ring_refuses_two_phases(kind: type) -> None:
    steps = Steps()
    opened = steps.apply(do.OpenSource(SOURCE, "inc", "t", 0))
    assert isinstance(opened, done.SourceOpened)
    extra = {"coordinator": ELSEWHERE} if kind is PrepareTransaction else {}
    refused = steps.apply(kind(SOURCE, "t", opened.epoch, 0, 0, 0, **extra))
    assert refused == errors.InvalidArgument("the cluster is not a ring; use EndTransaction")


# What a held share keeps from others


def test_no_other_reader_attaches_while_messages_are_held() -> None:
    """TXN-2: a new reader would get messages that the transaction has consumed."""
    desk = RingDesk()
    desk.prepare(consumed=desk.read(0, 3))
    busy = errors.Overloaded(errors.UNDECIDED)
    assert desk.attach_reader("reader-2") == busy
    assert desk.attach_reader("reader-1").epoch == desk.reader
    desk.apply(do.Detach("{t}in", "s", desk.reader, 3))
    assert desk.attach_reader("reader-2") == busy
    desk.resolve(commit=True)
    assert desk.attach_reader("reader-2").cursor == 3


def test_new_reader_gets_the_messages_of_an_aborted_share() -> None:
    desk = RingDesk()
    desk.prepare(consumed=desk.read(0, 3))
    desk.resolve(commit=False)
    assert desk.attach_reader("reader-2").cursor == 0


def test_other_subscriptions_stay_free() -> None:
    desk = RingDesk()
    desk.apply(do.Subscribe("{t}in", "other", do.FromEarliest(), desk.now))
    desk.prepare(consumed=desk.read(0, 3))
    assert isinstance(desk.apply(do.Attach("{t}in", "other", "x")), done.Attached)
    assert isinstance(desk.apply(do.Attach("u", "s", "x")), done.Attached)


def test_held_messages_belong_to_one_transaction() -> None:
    desk = RingDesk()
    desk.prepare(consumed=desk.read(0, 3))
    fact = "another transaction of the reader is not decided yet"
    refused = errors.NotAcknowledged("{t}in", "s", 3, fact)
    assert desk.prepare(1, consumed=desk.read(3, 4)) == refused
    assert desk.end(2, consumed=desk.read(3, 4)) == refused


def test_seek_ends_the_hold_of_an_exclusive_subscription() -> None:
    """TXN-2: the order is that of a transaction that committed just before the seek."""
    desk = RingDesk()
    desk.prepare(outputs=desk.output(), consumed=desk.read(0, 3))
    desk.apply(do.Seek("{t}in", "s", do.FromOffset(1), desk.now, "token"))
    attached = desk.attach_reader("reader-2")
    assert isinstance(attached, done.Attached)
    assert attached.cursor == 1
    assert desk.resolve(commit=True) == committed(PublishedRange(OUT, 0, 2, kept=True))
    assert desk.cursor == 1


def test_deleted_subscription_and_topic_do_not_stop_a_commit() -> None:
    desk = RingDesk()
    desk.prepare(outputs=desk.output(), consumed=desk.read(0, 3))
    desk.apply(do.Unsubscribe("{t}in", "s", desk.now))
    desk.apply(do.DeleteTopic(OUT, desk.now))
    assert desk.resolve(commit=True) == committed(PublishedRange(OUT, 0, 2, kept=False))


def test_producer_may_not_take_the_name_of_a_held_share() -> None:
    desk = RingDesk()
    desk.prepare(outputs=desk.output())
    desk.apply(do.DeleteTopic(OUT, desk.now))
    open_ = do.OpenProducer(OUT, SOURCE, "inc", desk.now)
    assert desk.apply(open_) == errors.NameInUse(OUT, SOURCE)
    other = do.OpenProducer("{t}other", SOURCE, "inc", desk.now)
    assert isinstance(desk.apply(other), done.Opened)
    desk.resolve(commit=False)
    assert isinstance(desk.apply(open_), done.Opened)


def test_topic_that_a_held_share_puts_to_gets_no_partitions() -> None:
    """TXN-2 KAF-1: a topic with partitions has no messages of its own."""
    desk = RingDesk()
    desk.apply(do.SetLimits(Limits(), PARTITION_LEVEL))
    desk.prepare(outputs=desk.output(topic="{t}new"))
    create = do.CreateTopic("{t}new", desk.now, partitions=3)
    assert desk.apply(create) == errors.TopicExists("{t}new")
    assert isinstance(desk.apply(msgspec.structs.replace(create, topic="{t}x")), done.TopicCreated)
    desk.resolve(commit=False)
    assert isinstance(desk.apply(create), done.TopicCreated)


# Jobs


def with_jobs(deliveries_max: int = 0) -> tuple[RingDesk, int]:
    """Return a desk whose worker `ann` holds the messages 0 to 2, and their token."""
    desk = RingDesk()
    settings = (
        SETTINGS
        if not deliveries_max
        else SETTINGS.__class__(
            lease_us=1000, backoff_min_us=500, backoff_max_us=500, deliveries_max=deliveries_max
        )
    )
    desk.apply(do.SubscribeShared("{t}in", "w", do.FromEarliest(), desk.now, settings))
    leased = desk.apply(do.Lease("{t}in", "w", desk.now, (("ann", 3),)))
    assert isinstance(leased, done.Leased)
    return desk, leased.grants[0].token


def job(token: int, first: int = 0, count: int = 2) -> tuple[Accepted, ...]:
    return (Accepted("{t}in", "w", "ann", ((token, first, count),)),)


def test_held_job_outlives_its_lease_and_its_worker() -> None:
    """TXN-2: no other worker gets a job that a transaction holds."""
    desk, token = with_jobs()
    assert desk.prepare(accepted=job(token)) == PREPARED
    queue = desk.machine.registry.topics["{t}in"].subscriptions["w"].queue
    assert queue is not None
    assert (queue.workers["ann"].held, queue.workers[HOLDER].held) == (1, 2)
    desk.now += 100_000
    leased = desk.apply(do.Lease("{t}in", "w", desk.now, (("bob", 9),), ("ann",)))
    assert isinstance(leased, done.Leased)
    assert dict(queue.held("bob")) == {leased.grants[0].token: [3, 4]}
    assert queue.until(0) == queue.until(1) > desk.now + 10**15
    stale = desk.apply(do.Settles((Settle("{t}in", "w", "ann", 1, ((token, 0, 2),)),), desk.now))
    assert isinstance(stale, done.SettlesDone)
    assert stale.results == (done.Settled(0, ((token, 0, 2),)),)
    desk.resolve(commit=True)
    assert queue.cursor == 2
    assert HOLDER not in queue.workers


def test_aborted_share_gives_jobs_back_after_their_backoff() -> None:
    desk, token = with_jobs()
    desk.prepare(accepted=job(token))
    assert desk.resolve(commit=False) == ABORTED
    queue = desk.machine.registry.topics["{t}in"].subscriptions["w"].queue
    assert queue is not None
    assert [(each.offset, each.condition, each.time) for each in queue.messages()] == [
        (0, 0, desk.now + 500),
        (1, 0, desk.now + 500),
        (2, -1, desk.now + 1000),
    ]


def test_job_on_its_last_delivery_dies_if_its_share_is_aborted() -> None:
    desk, token = with_jobs(deliveries_max=1)
    desk.prepare(accepted=job(token))
    desk.resolve(commit=False)
    queue = desk.machine.registry.topics["{t}in"].subscriptions["w"].queue
    assert queue is not None
    assert sorted(queue.dead) == [0, 1]


def test_seek_of_a_shared_subscription_ends_the_hold() -> None:
    desk, token = with_jobs()
    desk.prepare(accepted=job(token))
    desk.apply(do.Seek("{t}in", "w", do.FromOffset(1), desk.now, "token"))
    assert desk.resolve(commit=True) == committed()
    queue = desk.machine.registry.topics["{t}in"].subscriptions["w"].queue
    assert queue is not None
    assert queue.cursor == 1


def test_snapshot_keeps_held_jobs_with_the_token_of_their_worker() -> None:
    desk, token = with_jobs()
    desk.prepare(accepted=job(token, 1, 1), outputs=desk.output())
    desk.restart()
    queue = desk.machine.registry.topics["{t}in"].subscriptions["w"].queue
    assert queue is not None
    assert dict(queue.held("ann")) == {token: [0, 2]}
    assert dict(queue.held(HOLDER)) == {token: [1]}
    assert desk.resolve(commit=True) == committed(PublishedRange(OUT, 0, 2, kept=True))
    assert queue.open_offsets(9) == [0, 2]


# What does not end a held share


def test_new_process_leaves_held_shares_and_starts_above_them() -> None:
    """TXN-2: the parts of a held share survive a process that takes over the source."""
    desk = RingDesk()
    desk.stage_part(4, "a")
    desk.prepare(4, parts=("a",), finished=4)
    desk.stage_part(5, "a")
    old = desk.epoch
    opened = desk.begin("inc-2")
    assert opened.next == 5
    assert list(desk.source.staged) == [4]
    assert desk.begin("inc-2") == opened
    desk.epoch = opened.epoch
    assert desk.end(4, outputs=desk.output()) == errors.OldNumber(SOURCE, 4, 4)
    assert desk.prepare(4, epoch=old) == AGAIN
    result = committed(PublishedRange(OUT, 0, 2, kept=True))
    assert desk.resolve(4, commit=True, epoch=old) == result
    assert desk.resolve(4, commit=True, epoch=old).ranges == result.ranges


def test_resolve_of_another_epoch_leaves_a_held_share() -> None:
    desk = RingDesk()
    desk.prepare(outputs=desk.output())
    assert desk.resolve(commit=True, epoch=desk.epoch + 1) == committed(already=True)
    assert list(desk.held) == [0]
    assert desk.kept(OUT) == []


def test_closed_or_idle_source_keeps_its_held_shares() -> None:
    day = 86_400_000_000
    desk = RingDesk(Limits(source_idle_us=7 * day, staged_age_us=7 * day))
    desk.stage_part(0, "a")
    desk.stage_part(1, "a")
    desk.prepare(parts=("a",))
    desk.apply(do.CloseSource(SOURCE, desk.now, "t"))
    assert list(desk.source.staged) == [0]
    desk.now += 100 * day
    desk.apply(do.Tick(desk.now, producers=True))
    assert list(desk.held) == [0]
    assert desk.resolve(commit=True) == committed(PublishedRange(OUT, 0, 2, kept=True))


def test_late_stage_for_a_held_share_is_ignored() -> None:
    desk = RingDesk()
    desk.prepare(outputs=desk.output())
    assert desk.stage_part(0, "late") == done.Staged(already=True)
    assert desk.machine.registry.staging.parts == 1


def test_finished_numbers_do_not_drop_held_shares() -> None:
    desk = RingDesk()
    desk.stage_part(0, "a")
    desk.prepare(parts=("a",))
    desk.end(1, finished=1)
    assert desk.resolve(commit=True) == committed(PublishedRange(OUT, 0, 2, kept=True))
    assert (desk.epoch, 0) not in desk.source.opening.results  # type: ignore[union-attr]


def test_client_may_abort_but_not_commit_a_held_share_alone() -> None:
    """TXN-2: only the coordinator decides."""
    desk = RingDesk()
    desk.prepare(outputs=desk.output())
    refused = desk.end(0, outputs=desk.output())
    assert isinstance(refused, errors.InvalidArgument)
    assert list(desk.held) == [0]
    assert desk.end(0, commit=False) == ABORTED
    assert not desk.held


# The coordinator


def test_decision_commits_the_own_share_and_names_the_participants() -> None:
    desk = RingDesk()
    others = (Share("u", 9, 0), Share("v", 9, 1))
    desk.stage_part(0, "a")
    decided = desk.decide(parts=("a",), consumed=desk.read(0, 2), participants=others)
    assert decided == committed(PublishedRange(OUT, 0, 2, kept=True))
    assert desk.cursor == 2
    assert desk.source.decisions == {(desk.epoch, 0): {"u": others[0], "v": others[1]}}
    assert outcome_of(desk.source, desk.epoch, 0) is True
    assert desk.decide(participants=others).already


def test_refused_decision_is_an_abort() -> None:
    """TXN-2: if the coordinator's own share fails, the whole transaction fails."""
    desk = RingDesk()
    assert outcome_of(desk.source, desk.epoch, 0) is None
    refused = desk.decide(consumed=desk.read(4, 6), participants=(Share("u", 9, 0),))
    assert isinstance(refused, errors.NotAcknowledged)
    assert not desk.source.decisions
    assert outcome_of(desk.source, desk.epoch, 0) is False


def test_decision_without_participants_keeps_no_record() -> None:
    desk = RingDesk()
    assert desk.decide() == committed()
    assert not desk.source.decisions


@pytest.mark.parametrize(
    ("participants", "word"),
    [
        ((Share("u", 1, 0), Share("u", 1, 1)), "two shares"),
        ((Share("t", 1, 0),), "two shares"),
        ((Share("a{b}", 1, 0),), "no valid tag"),
        (tuple(Share(f"u{n}", 1, 0) for n in range(PARTICIPANTS_MAX + 1)), "limit 101"),
    ],
)
def test_invalid_decision_is_refused(participants: tuple[Share, ...], word: str) -> None:
    desk = RingDesk()
    refused = desk.decide(participants=participants)
    assert isinstance(refused, errors.InvalidArgument)
    assert word in refused.fact
    assert outcome_of(desk.source, desk.epoch, 0) is None


def test_decision_is_deleted_once_all_participants_have_confirmed() -> None:
    """TXN-2: a decision takes disk space only until then."""
    desk = RingDesk()
    desk.decide(participants=(Share("u", 9, 0), Share("v", 9, 1)))
    assert desk.confirm("u") == YES
    assert list(desk.source.decisions[desk.epoch, 0]) == ["v"]
    assert desk.confirm("u", "x") == YES
    assert desk.machine.registry.staging.decisions == 1
    assert desk.confirm("v") == YES
    assert desk.confirm("v") == NO
    assert not desk.source.decisions
    assert desk.machine.registry.staging.decisions == 0
    assert not desk.machine.registry.staging.unsettled
    assert outcome_of(desk.source, desk.epoch, 0) is True


def test_decision_outlives_its_process_and_its_result() -> None:
    """TXN-2: a participant learns the decision, whatever happens to the client."""
    desk = RingDesk()
    desk.decide(participants=(Share("u", 9, 0),))
    old = desk.epoch
    desk.end(1, finished=1)
    assert outcome_of(desk.source, old, 0) is True
    desk.epoch = desk.begin("inc-2").epoch
    desk.end(0)
    desk.apply(do.CloseSource(SOURCE, desk.now, "t"))
    assert outcome_of(desk.source, old, 0) is True
    desk.restart()
    assert outcome_of(desk.source, old, 0) is True
    assert desk.machine.registry.staging.decisions == 1
    assert list(desk.machine.registry.staging.unsettled)


def test_undecided_transaction_of_an_older_process_is_aborted() -> None:
    desk = RingDesk()
    old = desk.epoch
    assert outcome_of(desk.source, old, 0) is None
    desk.begin("inc-2")
    assert outcome_of(desk.source, old, 0) is False
    assert desk.decide(participants=(Share("u", 9, 0),)) == errors.Fenced(desk.source.opened)


def test_unknown_source_never_committed() -> None:
    assert outcome_of(None, 1, 0) is False


def test_expired_transaction_can_no_longer_commit() -> None:
    """TXN-2: an undecided transaction is aborted after a time limit."""
    desk = RingDesk()
    desk.stage_part(0, "a")
    assert desk.expire() == YES
    assert outcome_of(desk.source, desk.epoch, 0) is False
    assert desk.decide(parts=("a",), participants=(Share("u", 9, 0),)) == errors.NotDecided(SOURCE)
    assert desk.expire() == NO
    assert desk.kept(OUT) == []
    assert desk.machine.registry.staging.parts == 0


def test_decided_or_held_number_does_not_expire() -> None:
    desk = RingDesk()
    desk.decide(participants=(Share("u", 9, 0),))
    assert desk.expire(0) == NO
    assert outcome_of(desk.source, desk.epoch, 0) is True
    desk.prepare(1, outputs=desk.output())
    assert desk.expire(1) == NO
    assert outcome_of(desk.source, desk.epoch, 1) is False
    assert list(desk.held) == [1]
    assert desk.expire(2, epoch=desk.epoch + 1) == NO


def test_too_many_expired_transactions_fence_the_source() -> None:
    desk = RingDesk()
    for number in range(RESULTS_MAX):
        assert desk.expire(number) == YES
    assert desk.expire(RESULTS_MAX) == YES
    assert desk.source.opened > desk.epoch
    assert len(desk.source.opening.results) == RESULTS_MAX  # type: ignore[union-attr]
    assert outcome_of(desk.source, desk.epoch, RESULTS_MAX) is False
    assert desk.decide(RESULTS_MAX, finished=RESULTS_MAX) == errors.Fenced(desk.source.opened)


def test_snapshot_restores_held_shares_and_decisions() -> None:
    desk = RingDesk()
    desk.stage_part(0, "a")
    desk.prepare(parts=("a",), outputs=desk.output(), consumed=desk.read(0, 3))
    desk.decide(1, participants=(Share("u", 9, 0),))
    desk.restart()
    assert desk.attach_reader("reader-2") == errors.Overloaded(errors.UNDECIDED)
    assert desk.machine.registry.staging.decisions == 1
    assert desk.resolve(commit=True) == committed(PublishedRange(OUT, 0, 4, kept=True))
    assert desk.cursor == 3


# A model


@pytest.mark.parametrize("seed", seeds(40, 2000))
def test_shares_and_decisions_agree_with_a_model_after_every_command(seed: int) -> None:
    """TXN-2"""
    ring_transaction_run(seed)


def test_random_commands_reach_all_outcomes() -> None:
    """Otherwise the comparison with the model proves little."""
    found: dict[str, int] = {}
    for seed in range(20):
        for outcome, count in ring_transaction_run(seed).outcomes.items():
            found[outcome] = found.get(outcome, 0) + count
    for kind in ("PrepareTransaction", "DecideTransaction", "EndTransaction"):
        for result in ("NotAcknowledged", "Fenced", "OldNumber"):
            assert found[f"{kind}: {result}"] > 5
    assert found["PrepareTransaction: TransactionPrepared"] > 100
    assert found["DecideTransaction: TransactionEnded"] > 100
    assert found["DecideTransaction: NotDecided"] > 1
