"""One wrong wall clock neither expires messages early nor keeps them too long."""

from __future__ import annotations

from bisect import bisect_right
from random import Random

import pytest

from oncecast.broker.clock import SUSTAINED, TIME_MAX, Clock, Dispute, Retiming
from oncecast.broker.machine import Machine
from oncecast.wire import commands as do
from oncecast.wire.limits import LIMITS, Limits
from oncecast.wire.results import Appended, Subscribed
from oncecast.wire.retention import Policy
from tests.broker.machine_steps import Steps

SECOND = 1_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
YEAR = 365 * DAY
STEP = LIMITS.clock_step_us
NOON = 50 * YEAR  # the time at which each test starts


class Aging(Steps):
    """A topic that keeps messages for a day and gets one every minute."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        super().__init__(limits)
        self.now = NOON
        self.create(policy=Policy(age_us=DAY))
        self.epoch, self.sequence = self.open(), 0

    def put_at(self, *stamps: int) -> None:
        for stamp in stamps:
            self.now = stamp
            assert isinstance(self.put(self.epoch, self.sequence), Appended)
            self.sequence += 1

    def minutes(self, start: int, count: int) -> None:
        self.put_at(*(start + minute * MINUTE for minute in range(count)))

    @property
    def clock(self) -> Clock:
        return self.machine.registry.clock

    @property
    def dispute(self) -> str:
        return self.clock.dispute.name

    def times(self) -> list[int]:
        """Return the times of all batches, which must not decrease."""
        found = [entry.time for entry in self.machine.registry.topics["t"].index.entries(0)]
        assert found == sorted(found)
        return found

    def nearest_offset(self, at: int) -> int:
        """Return the offset at which a read by time starts."""
        subscribed = self.subscribe(f"s{self.slot}", do.FromTime(at))
        assert isinstance(subscribed, Subscribed)
        self.apply(do.Unsubscribe("t", f"s{self.slot - 1}", self.now))
        return subscribed.cursor


def test_timestamp_a_year_ahead_does_not_expire_messages() -> None:
    """SVC-9"""
    steps = Aging()
    steps.minutes(NOON, 10)
    steps.tick(NOON + 10 * MINUTE + YEAR)
    assert steps.kept() == list(range(10))
    assert steps.dispute == "AHEAD"
    steps.minutes(NOON + 10 * MINUTE, 10)
    assert steps.kept() == list(range(20))
    assert steps.dispute == "NONE"
    steps.apply(do.Tick(NOON + DAY + 5 * MINUTE, elapsed=DAY))
    assert steps.kept()[0] == 6  # only messages older than a day are deleted


def test_timestamp_a_year_ahead_does_not_expire_staged_parts() -> None:
    """SVC-9"""
    steps = Aging()
    steps.stage(0, "part")
    steps.tick(NOON + YEAR)
    assert steps.machine.registry.staging.parts == 1


def test_future_timestamps_are_corrected_once_the_clock_is_right() -> None:
    """SVC-9: otherwise the messages would not expire for a year, and a search by time would miss
    them."""
    steps = Aging()
    steps.minutes(NOON, 3)
    steps.put_at(NOON + YEAR, NOON + YEAR + MINUTE)
    assert steps.nearest_offset(NOON + YEAR) == 3
    steps.put_at(NOON + 3 * MINUTE)
    assert steps.times()[3:] == [NOON + 3 * MINUTE] * 3
    assert steps.nearest_offset(NOON + 3 * MINUTE) == 3
    steps.tick(NOON + 3 * MINUTE + DAY // 2)  # the time is disputed because no leader measured it
    assert len(steps.kept()) == 6


def test_restarted_group_catches_up_after_consistent_timestamps() -> None:
    """SVC-9"""
    steps = Aging()
    steps.minutes(NOON, 10)
    back = NOON + 7 * DAY
    minutes = SUSTAINED * STEP // MINUTE
    steps.minutes(back, minutes)
    assert steps.nearest_offset(back) == 10  # a search by time finds it at once
    assert len(steps.kept()) == 10 + minutes
    assert steps.dispute == "AHEAD"
    steps.put_at(back + minutes * MINUTE)
    assert steps.dispute == "NONE"
    assert steps.clock.trusted == back + minutes * MINUTE
    assert steps.kept() == list(
        range(10, 11 + minutes)
    )  # only messages older than a week are deleted


def test_node_that_runs_briefly_each_day_catches_up_after_several_days() -> None:
    """SVC-9: each start advances the trusted time by at most one step."""
    steps = Aging()
    for day in range(SUSTAINED + 2):
        steps.put_at(NOON + day * DAY, NOON + day * DAY + SECOND)
    assert steps.dispute == "NONE"
    assert steps.kept()[-2:] == [2 * SUSTAINED + 2, 2 * SUSTAINED + 3]
    assert steps.kept()[0] > 0


def test_idle_group_has_no_disputed_time() -> None:
    """SVC-9: the leader has measured the elapsed time."""
    steps = Aging()
    steps.put_at(NOON)
    steps.apply(do.Tick(NOON + 30 * DAY, elapsed=30 * DAY))
    assert steps.dispute == "NONE"
    assert steps.kept() == []
    steps.put_at(NOON + 30 * DAY)
    # 32 days passed, but the leader measured only 30.
    steps.apply(do.Tick(NOON + 62 * DAY, elapsed=30 * DAY))
    assert steps.dispute == "AHEAD"
    assert len(steps.kept()) == 1


def test_correcting_a_fast_clock_preserves_message_ages() -> None:
    """SVC-9: the time was ahead because of an older version or a wrong majority."""
    steps = Aging(Limits())
    steps.tick(NOON + YEAR)
    steps.apply(do.SetLimits(LIMITS))
    steps.put_at(NOON)
    minutes = SUSTAINED * STEP // MINUTE
    for minute in range(1, minutes):
        steps.tick(NOON + minute * MINUTE)
    assert steps.dispute == "BEHIND"
    # The time continues from there.
    assert steps.clock.trusted == NOON + YEAR + (minutes - 1) * MINUTE
    steps.tick(NOON + minutes * MINUTE)
    assert steps.dispute == "NONE"
    assert steps.clock.now == steps.clock.trusted == NOON + minutes * MINUTE
    assert steps.times() == [NOON]
    steps.apply(do.Tick(NOON + DAY - SECOND, elapsed=DAY))
    assert steps.kept() == [0]
    steps.apply(do.Tick(NOON + DAY, elapsed=SECOND))
    assert steps.kept() == []


def test_correcting_a_slow_clock_does_not_expire_messages() -> None:
    """SVC-9: a machine without a clock battery starts in 1970 until it reaches a time server."""
    steps = Aging()
    steps.minutes(NOON, 3)
    minutes = SUSTAINED * STEP // MINUTE + 2
    long_ago = 5 * DAY
    steps.minutes(long_ago, minutes)
    assert steps.clock.trusted == long_ago + (minutes - 1) * MINUTE
    right = NOON + 3 * HOUR
    steps.minutes(right, minutes)
    assert steps.clock.trusted == right + (minutes - 1) * MINUTE
    assert len(steps.kept()) == 3 + 2 * minutes
    assert steps.clock.moved_back == 0
    steps.apply(do.Tick(right + 26 * HOUR, elapsed=25 * HOUR))
    assert steps.kept() == []


def test_clock_without_a_step_limit_follows_the_highest_timestamp() -> None:
    steps = Aging(Limits())
    steps.minutes(NOON, 3)
    steps.tick(NOON + YEAR)
    assert steps.kept() == []
    steps.tick(NOON)
    assert steps.clock.now == NOON + YEAR


def test_first_timestamp_is_trusted() -> None:
    steps = Steps(LIMITS)
    steps.now = NOON
    steps.create()
    assert steps.machine.registry.clock.trusted == NOON


# -- exact effects of one timestamp --

AHEAD, BEHIND, AGREED = Dispute.AHEAD, Dispute.BEHIND, Dispute.NONE
State = tuple[int, tuple[int, int, int, int, int]]  # now; trusted, stamp, dispute, sustained, back


def moved(retiming: Retiming | None, *times: int) -> tuple[int, list[int]] | None:
    """Return these times after a correction."""
    return None if retiming is None else (retiming.above, list(map(retiming.rule, times)))


@pytest.mark.parametrize(
    ("before", "stamp", "after"),
    [
        ((0, (0, 0, AGREED, 0, 0)), (-5, 0), (0, (0, 0, AGREED, 0, 0))),
        ((0, (0, 0, AGREED, 0, 0)), (77, 0), (77, (77, 77, AGREED, 0, 0))),
        ((1000, (1000, 1000, AGREED, 0, 0)), (1000, 0), (1000, (1000, 1000, AGREED, 0, 0))),
        ((1000, (1000, 1000, AGREED, 0, 0)), (1010, 0), (1010, (1010, 1010, AGREED, 0, 0))),
        ((1000, (1000, 1000, AGREED, 0, 0)), (1011, 0), (1011, (1000, 1011, AHEAD, 0, 0))),
        ((1000, (1000, 1000, AGREED, 0, 0)), (1050, 40), (1050, (1050, 1050, AGREED, 0, 0))),
        ((1000, (1000, 1000, AGREED, 0, 0)), (1051, 40), (1051, (1000, 1051, AHEAD, 0, 0))),
        ((1000, (1000, 1000, AGREED, 0, 0)), (990, 0), (1000, (1000, 990, AGREED, 0, 0))),
        ((1000, (1000, 1000, AGREED, 0, 0)), (989, 0), (1000, (1000, 989, BEHIND, 0, 0))),
        ((1000, (1000, 1000, AGREED, 0, 0)), (-5, 0), (1000, (1000, 0, BEHIND, 0, 0))),
        # ahead: time advances by at most a step plus the elapsed time
        ((5000, (1000, 5000, AHEAD, 30, 7)), (5011, 0), (5011, (1010, 5011, AHEAD, 40, 7))),
        ((5000, (1000, 5000, AHEAD, 30, 7)), (5011, -5), (5011, (1010, 5011, AHEAD, 40, 7))),
        ((5000, (1000, 5000, AHEAD, 0, 7)), (5049, 40), (5049, (1049, 5049, AHEAD, 49, 7))),
        ((5000, (1000, 5000, AHEAD, 0, 7)), (5099, 40), (5099, (1050, 5099, AHEAD, 50, 7))),
        ((5000, (1000, 5000, AHEAD, 30, 7)), (4990, 0), (5000, (1000, 4990, AHEAD, 30, 7))),
        ((5000, (1000, 5000, AHEAD, 30, 7)), (4989, 0), (5000, (1000, 4989, AHEAD, 0, 7))),
        ((1000, (1000, 1020, AHEAD, 30, 7)), (1010, -5), (1010, (1010, 1010, AGREED, 0, 7))),
        # the timestamp is behind the trusted time
        ((1000, (1000, 500, BEHIND, 30, 7)), (505, 0), (1005, (1005, 505, BEHIND, 35, 7))),
        ((1000, (1000, 500, BEHIND, 30, 7)), (995, 0), (1000, (1000, 995, AGREED, 0, 7))),
        # the largest possible time
        (
            (TIME_MAX, (TIME_MAX, TIME_MAX, AGREED, 0, 0)),
            (TIME_MAX + 5, 0),
            (TIME_MAX, (TIME_MAX, TIME_MAX, AGREED, 0, 0)),
        ),
    ],
)
def test_timestamp_updates_the_clock_state_exactly(
    before: State, stamp: tuple[int, int], after: State
) -> None:
    """SVC-9: the step is 10."""
    clock = Clock()
    clock.restore(*before)
    trusted = clock.trusted_after(stamp[0], 10, stamp[1])
    assert (clock.now, clock.state()) == before
    assert clock.pass_time(stamp[0], 10, stamp[1]) is None
    assert (clock.now, clock.state()) == after
    assert clock.trusted == trusted
    assert clock.disputed_us == (clock.stamp - trusted if clock.dispute else 0)


@pytest.mark.parametrize(
    ("before", "at", "after", "times"),
    [
        # sustained ahead: the time is trusted; no stored time is later
        (
            (6000, (1000, 5000, AHEAD, 55, 0)),
            5005,
            (5005, (5005, 5005, AGREED, 0, 0)),
            (5005, [5005] * 6),
        ),
        # times that were moved back earlier are moved forward again
        (
            (6000, (1000, 5000, AHEAD, 55, 100)),
            5005,
            (5005, (5005, 5005, AGREED, 0, 0)),
            (-1, [100, 600, 1105, 1105, 5000, 5005]),
        ),
        (
            (6000, (1000, 5000, AHEAD, 55, 9000)),
            5005,
            (5005, (5005, 5005, AGREED, 0, 5000)),
            (-1, [4000, 4500, 5005, 5005, 5005, 5005]),
        ),
        # ahead, then behind: times stamped ahead are moved back at once
        (
            (6000, (1000, 6000, AHEAD, 55, 0)),
            500,
            (1000, (1000, 500, BEHIND, 0, 0)),
            (1000, [1000] * 6),
        ),
        # sustained behind: everything is moved back, and the amount is recorded
        (
            (1000, (1000, 500, BEHIND, 55, 7)),
            505,
            (505, (505, 505, AGREED, 0, 507)),
            (-1, [0, 0, 505, 506, 4500, 5500]),
        ),
        # the clock agrees again
        (
            (6000, (1000, 6000, AHEAD, 55, 7)),
            1005,
            (1005, (1005, 1005, AGREED, 0, 7)),
            (1005, [1005] * 6),
        ),
    ],
)
def test_disputed_timestamps_are_corrected_when_the_dispute_ends(
    before: State, at: int, after: State, times: tuple[int, list[int]]
) -> None:
    """SVC-9: the step is 10, and a dispute ends after six steps."""
    clock = Clock()
    clock.restore(*before)
    retiming = clock.pass_time(at, 10)
    assert (clock.now, clock.state()) == after
    assert moved(retiming, 0, 500, 1005, 1006, 5000, 6000) == times


def test_dispute_lasts_until_timestamps_are_consistent_for_six_steps() -> None:
    """SVC-9"""
    for state, at in (((1000, 5000, AHEAD, 54, 0), 5005), ((1000, 500, BEHIND, 54, 0), 505)):
        clock = Clock()
        clock.restore(max(at, 1000), state)
        assert clock.pass_time(at, 10) is None
        assert (clock.dispute, clock.sustained) == (state[2], 59)


def test_timestamp_more_than_a_step_ahead_starts_a_dispute() -> None:
    """SVC-9"""
    clock = Clock()
    clock.restore(1000, None)
    clock.pass_time(1011, 10)
    assert clock.dispute is AHEAD


def test_new_clock_starts_at_zero_without_a_dispute() -> None:
    """SVC-9"""
    assert (Clock().now, Clock().state()) == (0, (0, 0, AGREED, 0, 0))


def random_stamps(seed: int) -> None:
    """Apply random timestamps, where every other leader may briefly have a wrong clock.

    No message may expire more than one step before its age limit."""
    rng, steps = Random(seed), Aging()
    true, put = NOON, list[int]()
    while true < NOON + 36 * HOUR:
        for wrong in (0, rng.choice([0, YEAR, -YEAR, 3 * HOUR, -3 * HOUR, DAY, STEP // 2])):
            for _ in range(rng.randint(1, 2 * SUSTAINED)):
                before = steps.clock.trusted
                true += rng.choice([SECOND, MINUTE, STEP // 3])
                put.append(true)
                steps.put_at(true + wrong)
                assert 0 <= steps.clock.trusted - before <= STEP
        steps.times()
        first, _ = steps.machine.bounds("t")
        assert first <= bisect_right(put, true - DAY + STEP)
        if rng.random() < 0.2:
            steps.machine = Machine.restore(list(steps.machine.state()))
    for _ in range(200):  # all clocks are correct from now on, so old messages expire
        true += STEP - SECOND
        steps.tick(true)
    assert steps.dispute == "NONE"
    assert steps.kept() == []


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_wrong_leader_clocks_do_not_expire_messages_early(seed: int) -> None:
    """SVC-9"""
    random_stamps(seed)
