"""Delayed messages and messages with a time to live, as the state machine handles them (WRK-5)."""

from __future__ import annotations

from typing import Any

import pytest

from oncecast.broker import moves
from oncecast.broker.clock import SUSTAINED
from oncecast.broker.delays import position
from oncecast.broker.extent import Extent
from oncecast.broker.machine import Machine
from oncecast.broker.queue import BATCHES_MAX, DEAD_MAX, Death
from oncecast.broker.topic import Topic
from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire import results as done
from oncecast.wire.limits import LIMITS, Limits
from oncecast.wire.results import Already, Appended, Buried, Ticked
from oncecast.wire.retention import Policy
from oncecast.wire.sharing import EXHAUSTED, EXPIRED, LEASE_ENDED, Shared
from oncecast.wire.timing import DELAYED_MAX, RELEASED_MAX, TIMING_LEVEL, TIMING_MAX_US, Timing
from tests.broker.machine_steps import Steps
from tests.broker.test_machine_moves import NO, YES, Move
from tests.broker.test_machine_shared import DEAD, Work

S = 1_000_000
DAY = 86_400 * S
STEP = LIMITS.clock_step_us
SETTINGS = Shared(lease_us=10 * S, deliveries_max=2, backoff_min_us=S, backoff_max_us=S)


class Timed(Steps):
    """A machine at the feature level that adds delays.

    It has a producer, and a subscription that never reads.
    """

    def __init__(self, limits: Limits = Limits()) -> None:  # noqa: B008  # frozen
        super().__init__(limits)
        self.now = 1000 * DAY
        self.apply(do.SetLimits(limits, TIMING_LEVEL))
        self.subscribe()
        self.epoch = self.open()
        self.sequence = 0

    def put_timed(self, count: int = 1, *, sequence: int = -1, **timing: int) -> done.Result:
        first = self.sequence if sequence < 0 else sequence
        facts = ("t", "p", self.epoch, first, count, 100, self.now, b"bytes")
        result = self.apply(do.TimedPut(*facts, Timing(**timing)))
        if sequence < 0 and isinstance(result, Appended):
            self.sequence += count
        return result

    def put_now(self, count: int = 1) -> done.Result:
        result = self.put(self.epoch, self.sequence, count)
        self.sequence += count
        return result

    def tick_at(self, now: int, elapsed: int = 0) -> done.Result:
        self.now = now
        return self.apply(do.Tick(now, elapsed))

    @property
    def topic(self) -> Topic:
        return self.machine.registry.topics["t"]


class TimedWork(Work):
    """A machine with a shared subscription, whose messages can have a time to live."""

    def __init__(self, settings: Shared = SETTINGS, *, drop: bool = False) -> None:
        super().__init__(settings, messages=0, now=1000 * S)
        self.apply(do.SetLimits(Limits(), TIMING_LEVEL))
        if drop:
            self.apply(do.SetPolicy("t", self.now, Policy(drop_expired=True)))
        self.sequence = 0

    def add(self, count: int = 1, ttl: int = 0, delay: int = 0) -> done.Result:
        facts = ("t", "p", self.epoch, self.sequence, count, 100, self.now, b"bytes")
        self.sequence += count
        if not ttl and not delay:
            return self.apply(do.Put(*facts))
        return self.apply(do.TimedPut(*facts, Timing(delay_us=delay, ttl_us=ttl)))

    def runs(self, *gone: str, **wants: int) -> list[tuple[tuple[int, int], ...]]:
        return [each.runs for each in self.lease(*gone, **wants)]

    @property
    def dead(self) -> dict[int, Death]:
        return dict(self.queue.dead)


# Delays.


def test_delayed_message_enters_the_topic_when_it_is_due() -> None:
    """WRK-5: not a microsecond early, and in one step."""
    steps = Timed()
    begin = steps.now
    assert steps.put_timed(2, delay_us=10 * S) == Appended(-1, 2, kept=True)
    assert (steps.kept(), steps.topic.delays.messages) == ([], 2)
    assert steps.tick_at(begin + 10 * S - 1) == Ticked()
    assert steps.kept() == []
    assert steps.tick_at(begin + 10 * S) == Ticked(("t",))
    assert (steps.kept(), steps.topic.delays.messages) == ([0, 1], 0)
    assert steps.tick_at(begin + 11 * S) == Ticked()


def test_other_messages_overtake_a_delayed_one() -> None:
    """WRK-5"""
    steps = Timed()
    steps.put_timed(delay_us=5 * S)
    slot = steps.slot
    assert steps.put_now() == Appended(0, 1, kept=True)
    steps.tick_at(steps.now + 5 * S)
    late, other = reversed(steps.machine.fetch("t", 0, 10, 1000))
    assert other.offset == 0
    assert late == Extent(slot, 0, 1, 1)


def test_delayed_messages_enter_in_the_order_of_their_times() -> None:
    """WRK-5: messages with equal times keep the order of their puts."""
    steps = Timed()
    slots = []
    for delay in (30, 10, 20, 10):
        steps.put_timed(delay_us=delay * S)
        slots.append(steps.slot)
    steps.tick_at(steps.now + 30 * S)
    found = [each.slot for each in steps.machine.fetch("t", 0, 10, 1000)]
    assert found == [slots[1], slots[3], slots[2], slots[0]]


def test_message_with_a_due_time_enters_the_topic_at_that_time() -> None:
    """WRK-5"""
    steps = Timed()
    due = steps.now + 60 * S
    assert steps.put_timed(due_us=due) == Appended(-1, 1, kept=True)
    assert steps.tick_at(due - 1) == Ticked()
    assert steps.tick_at(due) == Ticked(("t",))
    assert steps.kept() == [0]


def test_message_whose_due_time_has_passed_is_not_delayed() -> None:
    steps = Timed()
    assert steps.put_timed(due_us=steps.now) == Appended(0, 1, kept=True)
    assert steps.put_timed(due_us=1) == Appended(1, 1, kept=True)
    assert steps.topic.delays.messages == 0


def test_copy_of_a_delayed_put_is_not_stored_again() -> None:
    """WRK-5 SVC-2: before and after the message is due."""
    steps = Timed()
    steps.put_now(2)
    steps.put_timed(3, delay_us=S)
    for _ in range(2):
        assert steps.put_timed(3, sequence=2, delay_us=S) == Already(-1, 3)
        assert steps.put_timed(1, sequence=1, delay_us=S) == Already(1, 1)
        steps.tick_at(steps.now + S)
    assert steps.kept() == [0, 1, 2, 3, 4]
    steps.put_now()
    assert steps.put(steps.epoch, 5) == Already(5, 1)
    assert steps.put(steps.epoch, 4) == Already(-1, 1)  # a delayed message
    assert steps.put(steps.epoch, 0) == Already(0, 1)


def test_consecutive_delayed_puts_share_a_run_of_the_producer() -> None:
    """SVC-2: so the offsets of earlier puts stay known."""
    steps = Timed()
    steps.put_now()
    for _ in range(20):
        steps.put_timed(delay_us=S)
    assert steps.put(steps.epoch, 0) == Already(0, 1)
    assert list(steps.topic.producers["p"].runs)[0::2] == [0, 1]


def test_partly_stored_delayed_batch_keeps_only_the_rest() -> None:
    """SVC-2"""
    steps = Timed()
    steps.put_now(2)
    assert steps.put_timed(5, sequence=0, delay_us=S) == Appended(-1, 3, kept=True)
    slot = steps.slot
    steps.tick_at(steps.now + S)
    assert steps.machine.fetch("t", 2, 10, 1000) == (Extent(slot, 2, 3, 2),)


def test_delayed_put_needs_an_open_producer_with_the_current_epoch() -> None:
    """SVC-2 SVC-8"""
    steps = Timed()
    assert steps.put_timed(sequence=1, delay_us=S) == errors.Gap(0)
    steps.epoch -= 1
    assert steps.put_timed(delay_us=S) == errors.Fenced(steps.epoch + 1)
    steps.apply(do.CloseProducer("t", "p", steps.epoch + 1))
    assert steps.put_timed(delay_us=S) == errors.Unopened("t", "p")
    assert steps.topic.delays.messages == 0


@pytest.mark.parametrize(
    ("timing", "fact"),
    [
        ({"delay_us": -1}, "the delay is -1e-06 s (limits 0 and 366 days)"),
        ({"delay_us": TIMING_MAX_US + 1}, "the delay is 3.16224e+07 s (limits 0 and 366 days)"),
        ({"ttl_us": -S}, "the time to live is -1 s (limits 0 and 366 days)"),
        ({"ttl_us": TIMING_MAX_US + 1}, "the time to live is 3.16224e+07 s (limits 0 and"),
        ({"due_us": -5}, "the due time is -5 µs (minimum 0)"),
        ({"due_us": 1 << 60}, "days away (limit 366)"),
        ({"delay_us": S, "due_us": 9999 * S}, "both a delay and a due time"),
        ({"delay_us": S, "ttl_us": S}, "the time to live is 1 s, but the delay is 1 s"),
    ],
)
def test_invalid_timing_is_refused(timing: dict[str, int], fact: str) -> None:
    steps = Timed()
    refused = steps.put_timed(**timing)
    assert isinstance(refused, errors.InvalidArgument)
    assert fact in refused.fact
    assert (steps.kept(), steps.topic.producers["p"].next) == ([], 0)


def test_longest_delay_and_time_to_live_are_accepted() -> None:
    steps = Timed()
    assert steps.put_timed(ttl_us=TIMING_MAX_US, delay_us=TIMING_MAX_US - 1) == Appended(
        -1, 1, True
    )
    assert steps.put_timed(due_us=steps.now + TIMING_MAX_US) == Appended(-1, 1, True)


def test_copy_is_recognised_even_if_its_due_time_is_too_far_away() -> None:
    """SVC-2: the clock was ahead when the put was stored."""
    steps = Timed()
    due = steps.now + TIMING_MAX_US
    steps.put_timed(due_us=due)
    steps.machine.registry.clock.now -= S
    steps.machine.registry.clock.trusted -= S
    steps.now -= S
    assert steps.put_timed(sequence=0, due_us=due) == Already(-1, 1)


def test_delayed_batches_of_a_topic_are_limited() -> None:
    """WRK-5: a copy of a stored put still gets its answer."""
    steps = Timed()
    steps.put_timed(delay_us=S)
    only = steps.topic.delays.batches[1]
    full = dict.fromkeys(range(DELAYED_MAX), only)
    steps.topic.delays.batches = full
    what = "delayed batches of the topic"
    assert steps.put_timed(delay_us=S) == errors.TooMany(what, DELAYED_MAX)
    assert steps.put_timed(sequence=0, delay_us=S) == Already(-1, 1)
    assert steps.put_timed(ttl_us=S) == Appended(0, 1, kept=True)


def test_one_tick_releases_a_limited_number_of_batches_of_a_topic() -> None:
    steps = Timed()
    for _ in range(RELEASED_MAX + 1):
        steps.put_timed(delay_us=S)
    assert steps.tick_at(steps.now + S) == Ticked(("t",))
    assert len(steps.kept()) == RELEASED_MAX
    assert steps.tick_at(steps.now) == Ticked(("t",))
    assert len(steps.kept()) == RELEASED_MAX + 1


def test_topic_stays_until_its_delayed_messages_have_entered_it() -> None:
    """WRK-5: without a subscription or retention, the topic then drops them."""
    steps = Timed()
    steps.put_timed(delay_us=S)
    steps.apply(do.Unsubscribe("t", "s", steps.now))
    steps.apply(do.CloseProducer("t", "p", steps.epoch))
    assert "t" in steps.machine.registry.topics
    assert steps.tick_at(steps.now + S) == Ticked(("t",))
    assert "t" not in steps.machine.registry.topics
    assert len(steps.machine.registry.live_slots) == 0


def test_put_reports_whether_the_topic_would_keep_a_delayed_message_now() -> None:
    """SVC-5"""
    steps = Timed()
    steps.apply(do.Unsubscribe("t", "s", steps.now))
    assert steps.put_timed(delay_us=S) == Appended(-1, 1, kept=False)
    steps.subscribe()
    steps.tick_at(steps.now + S)
    assert steps.kept() == [0]


def test_deleting_a_topic_drops_its_delayed_messages() -> None:
    steps = Timed()
    steps.put_timed(delay_us=S)
    steps.put_now()
    steps.apply(do.DeleteTopic("t", steps.now))
    assert len(steps.machine.registry.live_slots) == 0
    assert steps.machine.registry.due is None
    assert steps.tick_at(steps.now + S) == Ticked()


def test_log_keeps_the_slots_of_delayed_messages() -> None:
    """SVC-10: a delayed batch can be carried forward, like any other."""
    steps = Timed()
    steps.put_timed(3, delay_us=S)
    old = steps.slot
    assert steps.machine.needed() == old
    assert list(steps.machine.extents_before(old + 1)) == [("t", Extent(old, 0, 3, position(1)))]
    put = do.Put("t", "p", steps.epoch, 0, 3, 100, 0, b"bytes")
    assert steps.apply(do.Carry(old, position(1), put)) == done.Carried(True)
    new = steps.slot
    assert steps.machine.needed() == new
    assert steps.apply(do.Carry(old, position(1), put)) == done.Carried(False)
    assert steps.apply(do.Carry(new, position(2), put)) == done.Carried(False)
    steps.tick_at(steps.now + S)
    assert steps.apply(do.Carry(new, position(1), put)) == done.Carried(False)
    assert steps.machine.fetch("t", 0, 10, 1000) == (Extent(new, 0, 3, 0),)


def test_idle_producer_with_a_delayed_put_counts_as_used() -> None:
    steps = Timed(LIMITS)
    before = steps.topic.producers["p"].used
    steps.now += S
    steps.put_timed(delay_us=S)
    assert steps.topic.producers["p"].used == before + S


# The clock.


def restored(steps: Any) -> None:
    """Continue with a copy of the machine that a snapshot has made."""
    before = b"".join(steps.machine.state())
    steps.machine = Machine.restore(list(steps.machine.state()))
    assert b"".join(steps.machine.state()) == before


def test_delays_and_lifetimes_survive_a_snapshot() -> None:
    """WRK-5 SVC-10"""
    steps = Timed()
    begin = steps.now
    steps.put_timed(2, delay_us=S, ttl_us=5 * S)
    steps.put_timed(ttl_us=9 * S)
    steps.put_timed(due_us=begin + 3 * S)
    steps.apply(do.SetPolicy("t", begin, Policy(drop_expired=True)))
    restored(steps)
    assert steps.topic.policy == Policy(drop_expired=True)
    assert steps.topic.delays.messages == 3
    assert steps.topic.delays.size == 200
    assert steps.tick_at(begin + S) == Ticked(("t",))
    assert steps.topic.index.expired(0, begin + 9 * S) == 1
    assert steps.topic.index.expired(1, begin + 5 * S - 1) == 0
    restored(steps)
    assert steps.topic.index.expired(2, begin + 5 * S) == 1
    assert steps.tick_at(begin + 3 * S) == Ticked(("t",))
    steps.put_timed(delay_us=S)
    assert list(steps.topic.delays.batches) == [3]


def test_snapshot_without_delays_is_as_before() -> None:
    """OPS-2: groups with members of both versions compare their states."""
    steps = Timed()
    steps.put_now()
    state = b"".join(steps.machine.state())
    assert b"TimingRow" not in state
    assert bytes([0x96]) + b"\xa6Policy" in state  # the tag and the five fields of level 1


def test_wrong_clock_makes_no_message_due_early() -> None:
    """WRK-5: one timestamp that is a day ahead is disputed, and then corrected."""
    steps = Timed(LIMITS)
    begin = steps.now
    steps.put_timed(delay_us=3600 * S)
    assert steps.tick_at(begin + DAY) == Ticked()
    assert steps.tick_at(begin + DAY + S) == Ticked()
    assert steps.tick_at(begin + 2 * S) == Ticked()
    assert steps.tick_at(begin + 3600 * S - 1, elapsed=3600 * S) == Ticked()
    assert steps.tick_at(begin + 3600 * S) == Ticked(("t",))


def test_message_that_is_put_during_a_dispute_is_delayed_by_its_delay() -> None:
    """WRK-5: the wrong time of its put is corrected, and its delay stays."""
    steps = Timed(LIMITS)
    begin = steps.now
    steps.tick_at(begin + DAY)
    steps.now = begin + DAY + S
    steps.put_timed(delay_us=60 * S)
    assert steps.tick_at(begin + 2 * S) == Ticked()  # the clock is right again
    trusted = steps.machine.registry.clock.trusted
    assert steps.machine.registry.due == trusted + 60 * S
    assert steps.tick_at(trusted + 60 * S - 1) == Ticked()
    assert steps.tick_at(trusted + 60 * S) == Ticked(("t",))


def test_message_that_is_put_after_a_long_pause_is_delayed_by_its_delay() -> None:
    """WRK-5: all nodes were down for a week, and the new time is disputed for a while."""
    steps = Timed(LIMITS)
    now = steps.now + 7 * DAY
    steps.tick_at(now)
    steps.now = now = now + S
    steps.put_timed(delay_us=DAY)
    assert steps.topic.delays.due == now + DAY
    while steps.machine.registry.clock.dispute:
        now += STEP
        assert steps.tick_at(now) == Ticked()
    assert now < steps.topic.delays.due
    assert steps.tick_at(steps.topic.delays.due - 1, elapsed=DAY) == Ticked()
    assert steps.tick_at(steps.topic.delays.due or 0) == Ticked(("t",))


def test_delay_goes_on_while_all_nodes_are_down() -> None:
    """WRK-5: the pause counts once the new time is accepted."""
    steps = Timed(LIMITS)
    steps.put_timed(delay_us=DAY)
    now = steps.now + 7 * DAY
    assert steps.tick_at(now) == Ticked()
    for _ in range(SUSTAINED - 1):
        now += STEP
        assert steps.tick_at(now) == Ticked()
    assert steps.tick_at(now + STEP) == Ticked(("t",))


def test_correction_of_a_clock_that_was_ahead_keeps_delays_but_not_due_times() -> None:
    """WRK-5: a due time means the right time."""
    steps = Timed(LIMITS)
    now = steps.now
    steps.put_timed(delay_us=DAY)
    steps.put_timed(due_us=now + DAY)
    right = now - 30 * DAY  # the clock was 30 days ahead
    for turn in range(SUSTAINED + 1):
        steps.tick_at(right + turn * STEP)
    clock = steps.machine.registry.clock
    assert (clock.dispute, clock.trusted) == (0, right + SUSTAINED * STEP)
    delayed, fixed = steps.topic.delays.batches.values()
    passed = SUSTAINED * STEP  # during the dispute
    assert delayed.due - clock.trusted == DAY - passed
    assert fixed.due == now + DAY
    assert steps.machine.registry.due == delayed.due


# Moves between the groups of a ring.


def moved(**clocks: int) -> Move:
    """Move a topic with delayed messages and lifetimes to another group."""
    move = Move()
    exporter, importer = move.exporter, move.importer
    for group in (exporter, importer):
        group.apply(do.SetLimits(Limits(), TIMING_LEVEL))
        group.apply(do.Tick(clocks.get("before", 1000)))
    for sequence, timing in ((10, Timing(delay_us=S)), (12, Timing(ttl_us=9 * S))):
        facts = ("t", "p", move.epoch, sequence, 2, 100, exporter.now, b"bytes")
        exporter.apply(do.TimedPut(*facts, timing))
    due = Timing(due_us=7 * S)
    exporter.apply(do.TimedPut("t", "p", move.epoch, 14, 1, 100, exporter.now, b"bytes", due))
    importer.apply(do.Tick(clocks.get("importer", 1000)))
    move.claim()
    move.copy()
    move.freeze()
    return move


def import_delayed(move: Move, number: int) -> done.Result:
    put = do.Put("t", "p", move.epoch, 10, 2, 100, 0, b"bytes")
    topic_id = 1
    facts = ("t", topic_id, -1, 2, 100, 0, 0, number)
    return move.importer.apply(moves.Import("m", *facts, put))


def test_delayed_messages_move_with_their_topic() -> None:
    """WRK-5 REP-6: the importer adopts the topic only if it has all of them."""
    move = moved(importer=1000 + 5 * S)
    assert import_delayed(move, 1) == YES
    assert move.adopt() == NO
    assert import_delayed(move, 2) == YES
    slot = move.importer.slot
    assert import_delayed(move, 2) == YES  # a copy
    assert move.adopt() == YES
    importer = move.importer.machine
    topic = importer.registry.topics["t"]
    assert topic.delays.batches[2].slot == slot
    delayed, fixed = topic.delays.batches.values()
    assert delayed.due == importer.registry.clock.trusted + S  # by the importer's clock
    assert fixed.due == 7 * S
    assert topic.index.lifetimes.of(10) == 9 * S
    assert importer.registry.due == 1000 + 6 * S
    assert move.importer.apply(do.Tick(1000 + 6 * S)) == Ticked(("t",))
    exporter = move.exporter.machine.registry
    assert exporter.due is None
    move.exporter.apply(moves.Release("m"))
    assert len(exporter.live_slots) == 0


def test_frozen_topic_releases_nothing_until_it_is_thawed() -> None:
    """REP-6"""
    move = moved()
    assert move.exporter.apply(do.Tick(1000 + S)) == Ticked()
    assert move.exporter.apply(moves.Thaw("m")) == YES
    assert move.exporter.apply(do.Tick(1000 + S)) == Ticked(("t",))


def test_moving_delayed_messages_survive_a_snapshot() -> None:
    move = moved()
    import_delayed(move, 1)
    for group in (move.exporter, move.importer):
        restored(group)
    import_delayed(move, 2)
    assert move.adopt() == YES


def test_group_below_the_level_imports_no_delayed_message() -> None:
    """OPS-2"""
    move = Move()
    move.claim()
    assert import_delayed(move, 1) == NO


def test_abandoned_move_drops_copies_of_delayed_messages() -> None:
    """REP-6"""
    move = moved()
    import_delayed(move, 1)
    move.importer.apply(moves.Abandon("m"))
    assert len(move.importer.machine.registry.live_slots) == 0


# Time to live.


def test_expired_message_is_not_leased_and_becomes_a_dead_letter() -> None:
    """WRK-5"""
    work = TimedWork()
    work.add(2, ttl=10 * S)
    work.add(1)
    work.now += 10 * S
    assert work.runs(ann=5) == [((2, 1),)]
    assert work.dead == {0: Death(EXPIRED), 1: Death(EXPIRED)}
    assert [work.queue.deliveries(each) for each in (0, 1)] == [0, 0]
    assert work.bury(0, 1) == Buried(True, 0)
    assert (work.cursor, work.kept(DEAD)) == (2, [0, 1])


def test_message_is_leased_until_its_time_to_live_is_over() -> None:
    work = TimedWork()
    work.add(ttl=10 * S)
    work.now += 10 * S - 1
    assert work.runs(ann=1) == [((0, 1),)]


def test_expired_message_is_dropped_if_the_topic_says_so() -> None:
    """WRK-5: in one command, without a record of each message."""
    work = TimedWork(drop=True)
    work.add(1000, ttl=10 * S)
    work.add(1)
    work.now += 10 * S
    assert work.runs(ann=5) == [((1000, 1),)]
    assert (work.dead, list(work.queue.open), work.cursor) == ({}, [1000], 1000)
    assert work.kept() == [1000]


def test_message_expires_without_any_worker() -> None:
    """WRK-5"""
    work = TimedWork()
    work.add(ttl=10 * S)
    work.now += 10 * S
    assert work.lease() == ()
    assert work.dead == {0: Death(EXPIRED)}


def test_message_expires_when_it_is_its_turn() -> None:
    """A message with a record for each later one would cost memory."""
    work = TimedWork()
    work.add(1)
    work.add(1, ttl=S)
    work.now += S
    assert work.lease() == ()
    assert (work.dead, work.queue.next) == ({}, 0)
    assert work.runs(ann=5) == [((0, 1),)]
    assert work.dead == {1: Death(EXPIRED)}


@pytest.mark.parametrize("drop", [False, True])
def test_leased_message_expires_only_if_it_has_to_be_delivered_again(drop: bool) -> None:
    """WRK-5: a worker that finishes late has still finished."""
    work = TimedWork(drop=drop)
    work.add(2, ttl=5 * S)
    (grant,) = work.lease(ann=2)
    work.now += 6 * S
    work.settle(accept=((grant.token, 0, 1),), release=((grant.token, 1, 1, 0, ""),))
    assert work.cursor == 1
    assert work.dead == {}
    assert work.lease(ann=1) == ()
    assert work.dead == ({} if drop else {1: Death(EXPIRED)})
    assert work.cursor == (2 if drop else 1)
    assert work.queue.leased == 0


def test_expired_retry_behind_a_living_one_is_not_leased() -> None:
    """WRK-5"""
    work = TimedWork()
    work.add(1)
    work.add(1, ttl=S)
    (grant,) = work.lease(ann=2)
    work.settle(release=((grant.token, 0, 2, 0, ""),))
    work.now += S
    assert work.lease() == ()
    assert work.dead == {}
    assert work.runs(ann=2) == [((0, 1),)]
    assert work.dead == {1: Death(EXPIRED)}


def test_message_that_waits_for_its_backoff_expires_when_it_is_due() -> None:
    work = TimedWork()
    work.add(1, ttl=S // 2)
    (grant,) = work.lease(ann=1)
    work.settle(release=((grant.token, 0, 1, -1, ""),))
    work.now += S - 1
    work.lease()
    assert work.dead == {}
    work.now += 1
    work.lease()
    assert work.dead == {0: Death(EXPIRED)}


def test_time_to_live_counts_from_the_put_of_a_delayed_message() -> None:
    """WRK-5"""
    work = TimedWork()
    begin = work.now
    work.add(1, ttl=10 * S, delay=6 * S)
    work.tick(begin + 7 * S)
    work.now = begin + 10 * S - 1
    assert work.runs(ann=1) == [((0, 1),)]
    work.add(1, ttl=10 * S, delay=6 * S)
    work.tick(work.now + 6 * S)
    work.now += 4 * S
    assert work.runs(ann=2) == []
    assert work.dead == {1: Death(EXPIRED)}


def test_delayed_message_can_be_expired_when_it_enters_its_topic() -> None:
    """WRK-5: for example, because the group was down when it was due."""
    work = TimedWork()
    work.add(1, ttl=2 * S, delay=S)
    work.tick(work.now + 60 * S)
    assert work.kept() == [0]
    assert work.runs(ann=1) == []
    assert work.dead == {0: Death(EXPIRED)}


def test_ordered_reader_gets_expired_messages() -> None:
    """WRK-5: an exclusive subscription reads the topic as it is."""
    work = TimedWork()
    work.subscribe("exclusive")
    work.add(1, ttl=S)
    work.now += S
    work.lease()
    work.bury(0)
    assert work.kept() == [0]
    reader = work.attach("exclusive")
    assert (reader.cursor, reader.next) == (0, 1)


def test_message_with_a_key_frees_its_key_when_it_expires() -> None:
    """WRK-4 WRK-5"""
    work = TimedWork(Shared(lease_us=10 * S, backoff_min_us=0, backoff_max_us=0, by_key=True))
    work.add(1, ttl=5 * S)
    work.add(2)
    (grant,) = work.lease_keys(7, 7, 8, ann=5)
    assert grant.runs == ((0, 1), (2, 1))
    work.settle(release=((grant.token, 0, 1, 0, ""),))
    work.now += 5 * S
    assert work.lease_keys(ann=5) == ()
    assert work.dead == {0: Death(EXPIRED)}
    work.bury(0)
    (after,) = work.lease_keys(ann=5)
    assert after.runs == ((1, 1),)


def test_fresh_expired_message_with_a_key_is_skipped() -> None:
    """WRK-4 WRK-5"""
    work = TimedWork(Shared(lease_us=10 * S, by_key=True))
    work.add(1)
    work.add(1, ttl=S)
    work.add(1)
    work.now += S
    (grant,) = work.lease_keys(7, 7, 7, ann=5)
    assert grant.runs == ((0, 1),)
    assert work.dead == {1: Death(EXPIRED)}
    assert work.queue.next == 3
    work.settle(accept=((grant.token, 0, 1),))
    (after,) = work.lease_keys(ann=5)
    assert after.runs == ((2, 1),)


def test_workers_wait_while_many_expired_messages_wait_to_become_dead_letters() -> None:
    """WRK-5: so the number of records is limited."""
    work = TimedWork()
    work.add(DEAD_MAX + 5, ttl=S)
    work.add(1)
    work.now += S
    assert work.lease(ann=1) == ()
    assert (len(work.dead), work.queue.next) == (DEAD_MAX, DEAD_MAX)
    assert work.lease(ann=1) == ()
    assert (len(work.dead), work.queue.next) == (DEAD_MAX, DEAD_MAX)
    work.bury(*range(10))
    assert work.runs(ann=1) == [((DEAD_MAX + 5, 1),)]
    assert len(work.dead) == DEAD_MAX - 5


def test_one_command_ends_a_limited_number_of_batches() -> None:
    work = TimedWork(drop=True)
    for _ in range(BATCHES_MAX + 1):
        work.add(1, ttl=S)
    work.now += S
    work.lease()
    assert work.cursor == BATCHES_MAX
    work.lease()
    assert work.cursor == BATCHES_MAX + 1


def test_dead_letter_says_that_the_last_lease_has_ended() -> None:
    """WRK-2: below the level of times to live, the reason was `expired`."""
    work = TimedWork(Shared(lease_us=S, deliveries_max=1))
    work.add(2)
    (grant,) = work.lease(ann=2)
    work.settle(release=((grant.token, 1, 1, 0, ""),))
    work.now += S
    work.lease()
    assert work.dead == {0: Death(LEASE_ENDED), 1: Death(EXHAUSTED)}


def test_expired_messages_survive_a_snapshot() -> None:
    """WRK-5 SVC-10"""
    work = TimedWork()
    work.add(3, ttl=S)
    work.add(1, ttl=5 * S)
    work.now += S
    work.lease()
    restored(work)
    assert work.dead == dict.fromkeys(range(3), Death(EXPIRED))
    work.now += 4 * S
    work.lease()
    assert len(work.dead) == 4


def test_seek_to_expired_messages_ends_them_again() -> None:
    work = TimedWork()
    work.apply(do.SetPolicy("t", work.now, Policy(keep_all=True)))
    work.add(1, ttl=S)
    work.now += S
    work.lease()
    work.bury(0)
    work.apply(do.Seek("t", "s", do.FromEarliest(), work.now, "token"))
    work.lease()
    assert work.dead == {0: Death(EXPIRED)}


def test_lifetimes_of_dropped_batches_are_forgotten() -> None:
    work = TimedWork(drop=True)
    for _ in range(300):
        work.add(1, ttl=S)
        work.now += S
        work.lease()
    assert len(list(work.machine.registry.topics["t"].index.lifetimes.rows(0))) < 150


def test_dropped_retry_of_a_topic_with_lifetimes_is_released() -> None:
    """A worker may still hold a message that the topic has dropped unread."""
    work = TimedWork()
    work.apply(do.SetPolicy("t", work.now, Policy(bytes_max=250, drop_unread=True)))
    work.add(1, ttl=1000 * S)
    (grant,) = work.lease(ann=1)
    for _ in range(4):
        work.add(1, ttl=100 * S)
    work.settle(release=((grant.token, 0, 1, 0, ""),))
    assert work.machine.registry.topics["t"].index.expired(0, work.now + 200 * S) == 0
    assert work.runs(bob=9) == [((3, 2),)]
