"""A leader sets timestamps from its group's time, and reports elapsed time."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from oncecast.broker.events import (
    ClockDisputed,
    ClockOutvoted,
    ClockRead,
    Execute,
    ReadClock,
    Upkept,
)
from oncecast.broker.moves import AnyCommand
from oncecast.broker.queue import Queue
from oncecast.broker.service import DISPUTE_TICK_US, Service
from oncecast.broker.timekeeping import ASK_EVERY, FRESH, SLACK
from oncecast.client.session import local
from oncecast.kernel.protocol import Ask, Emit, NodeId, Send, Value
from oncecast.kernel.stack import Stack
from oncecast.node.assemble import assemble
from oncecast.replication.events import Decided, LeaderChanged, Propose
from oncecast.simulator.simulated import Build
from oncecast.wire import commands as do
from oncecast.wire.limits import LIMITS
from oncecast.wire.retention import Policy
from oncecast.wire.sharing import SHARED_LEVEL, Settle, Shared
from tests.broker.desk import Alone
from tests.client.session.client_world import FAST, NODE, TOPIC, Publisher, World

SECOND = 1_000_000
YEAR = 365 * 86_400 * SECOND
STEP = LIMITS.clock_step_us
NOON = 50 * YEAR
A, B, C = map(NodeId, "abc")
decode = msgspec.msgpack.Decoder(AnyCommand).decode


class Members(Alone):
    def __init__(self, *nodes: NodeId) -> None:
        self._nodes = nodes

    def nodes(self) -> tuple[NodeId, ...]:
        return self._nodes


class Leader:
    """A service that decides immediately, with clocks that the test controls."""

    def __init__(self, *others: NodeId, wrong: int = 0, answered: bool = True) -> None:
        self.service = Service(A, Random(0), group=Members(A, *others))
        self.wrong = wrong
        self.service.wall = lambda: NOON + int(self.service.now * 1e6) + self.wrong
        self.slot = 0
        self.events: list[Value] = []
        self.asked: list[NodeId] = []
        self.decided: list[AnyCommand] = []
        self.service.observe(LeaderChanged(A))
        self._work()
        if answered:
            for node in others:
                self.hear(node)
            self.asked.clear()
        self.do(do.CreateTopic("t", 0, Policy(age_us=100 * SECOND)))
        self.do(do.OpenProducer("t", "p", "inc-1", 0))
        self.sequence = 0

    def do(self, command: do.Command) -> None:
        self.service.request(Execute(1, command))
        self._work()

    def put(self) -> None:
        self.do(do.Put("t", "p", 1, self.sequence, 1, 1, 0, b"x"))
        self.sequence += 1

    def wait(self, seconds: float) -> None:
        """Advance the time, and run maintenance."""
        self.service.now += seconds
        self.service.timeout(Upkept())
        self._work()

    def hear(self, node: NodeId, wrong: int = 0) -> None:
        """Deliver another replica's time."""
        right = NOON + int(self.service.now * 1e6)
        self.service.receive(node, ClockRead(right + wrong))
        self._work()

    def _work(self) -> None:
        for effect in self.service.drain():
            match effect:
                case Ask(Propose(token, value)):
                    self.slot += 1
                    self.decided.append(decode(value))
                    self.service.observe(Decided(self.slot, value, token))
                    self._work()
                case Send(to, ReadClock()):
                    self.asked.append(to)
                case Emit(ClockDisputed() | ClockOutvoted() as event):
                    self.events.append(event)
                case _:
                    pass

    @property
    def trusted(self) -> float:
        """Return the trusted time in seconds since noon."""
        return (self.service.machine.registry.clock.trusted - NOON) / SECOND

    @property
    def kept(self) -> int:
        first, end = self.service.machine.bounds("t")
        return end - first


def test_idle_leader_reports_elapsed_time() -> None:
    """SVC-9"""
    leader = Leader()
    leader.put()
    leader.wait(1.0)
    before = len(leader.decided)
    leader.service.now += 7200.0
    leader.put()
    tick, put = leader.decided[before:]
    assert tick == do.Tick(NOON + 7201 * SECOND, 7201 * SECOND)
    assert isinstance(put, do.Put)
    assert (leader.trusted, leader.events, leader.kept) == (7201.0, [], 1)


def test_jumping_wall_clock_is_disputed_and_later_trusted() -> None:
    """SVC-9: a single node has no other replicas."""
    leader = Leader()
    leader.put()
    leader.wrong = YEAR
    leader.wait(60.0)  # a message ages, so the dispute begins
    assert leader.events == [ClockDisputed(YEAR + 60 * SECOND)]
    assert (leader.trusted, leader.kept) == (0.0, 1)
    for _ in range(60):
        leader.put()  # a message always ages
        leader.wait(60.0)
    assert leader.events[1:] == [ClockDisputed(0)]
    assert leader.trusted == YEAR / SECOND + 61 * 60


def test_corrected_wall_clock_ends_the_dispute() -> None:
    """SVC-9"""
    leader = Leader()
    leader.put()
    leader.wrong = YEAR
    leader.wait(1.0)
    leader.put()
    leader.wrong = 0
    leader.wait(1.0)
    leader.put()
    assert leader.events == [ClockDisputed(YEAR + SECOND), ClockDisputed(0)]
    assert (leader.trusted, leader.kept) == (2.0, 3)
    leader.wait(101.0)
    assert leader.kept == 0


def test_idle_leader_ends_a_dispute_when_its_clock_is_corrected() -> None:
    """SVC-9: otherwise messages put during the dispute would stay for a year."""
    leader = Leader()
    leader.put()
    leader.wrong = YEAR
    leader.put()
    leader.wrong = 0
    leader.wait(60.0)
    assert leader.events == [ClockDisputed(YEAR), ClockDisputed(0)]
    leader.wait(101.0)
    assert leader.kept == 0


def test_dispute_without_aging_messages_does_not_cause_disk_writes() -> None:
    """SVC-9: an idle node does not write to its disk."""
    leader = Leader()
    before = len(leader.decided)
    leader.wrong = YEAR
    for _ in range(10):
        leader.wait(60.0)
    assert len(leader.decided) == before


def test_leader_with_a_wrong_clock_is_outvoted() -> None:
    """SVC-9"""
    leader = Leader(B, C)
    leader.put()
    leader.wrong = YEAR
    leader.wait(2.0)
    assert leader.asked == [B, C]
    for node in (B, C):
        leader.hear(node)
    leader.put()
    assert leader.trusted == 2.0
    leader.wait(1.0)
    assert leader.events == [ClockOutvoted(YEAR)]
    leader.wrong = 0
    leader.wait(3.0)
    assert leader.events == [ClockOutvoted(YEAR), ClockOutvoted(0)]


def outvoted() -> Leader:
    """Return a leader with a clock a year ahead, and correct readings from both replicas."""
    leader = Leader(B, C)
    leader.put()
    leader.wrong = YEAR
    leader.wait(1.0)
    for node in (B, C):
        leader.hear(node)
    leader.put()
    assert leader.trusted == 1.0
    leader.events.clear()
    return leader


def test_corrected_wall_clock_is_used_at_once() -> None:
    """SVC-9: the leader does not wait for the next maintenance."""
    leader = outvoted()
    leader.wrong = 0
    leader.service.now += 0.5
    leader.put()
    assert (leader.trusted, leader.events) == (1.5, [])


def test_wall_clock_is_corrected_by_its_current_error_after_another_jump() -> None:
    """SVC-9"""
    leader = outvoted()
    leader.wrong = -YEAR
    leader.service.now += 0.5
    leader.put()
    assert (leader.trusted, leader.events) == (1.5, [])


def test_leader_goes_on_with_its_monotonic_clock_when_answers_expire() -> None:
    """SVC-9: the other replicas are gone, and the leader's wall clock may be wrong."""
    leader = outvoted()
    for wrong in (YEAR, 2 * YEAR, -YEAR, STEP // 2, -STEP // 2):
        leader.wrong = wrong
        before = leader.trusted
        leader.service.now += FRESH + 0.5
        leader.put()
        assert leader.trusted == before + FRESH + 0.5
    assert leader.events == []


def test_expired_answers_do_not_count() -> None:
    """SVC-9: the leader has extrapolated the answers with its monotonic clock for too long."""
    leader = outvoted()
    leader.wrong = 0
    leader.service.now += FRESH + 0.5
    leader.hear(B)
    assert [leader.service.time._confirmed(), len(leader.service.time._fresh())] == [True, 1]


def test_clock_readings_from_former_members_are_dropped() -> None:
    """SVC-9"""
    leader = outvoted()
    leader.service.group._nodes = (A, B)  # type: ignore[attr-defined]
    leader.hear(B)
    assert list(leader.service.time._readings) == [B]


@pytest.mark.parametrize("wrong", [YEAR, -YEAR])
def test_one_of_two_clocks_does_not_move_the_time(wrong: int) -> None:
    """SVC-9: the third replica is down."""
    leader = Leader(B, C)
    leader.put()
    leader.service.now += FRESH  # the reading from C expires
    leader.wrong = wrong
    leader.wait(1.0)
    leader.hear(B)
    leader.put()
    assert leader.trusted == FRESH + 1.0
    leader.wrong = 0
    leader.wait(1.0)
    leader.hear(B, wrong)
    leader.put()
    assert leader.trusted == FRESH + 2.0


def test_leader_near_the_trusted_time_does_not_ask_replicas() -> None:
    leader = Leader(B, C)
    for _ in range(10):
        leader.put()
        leader.wait(10.0)
    assert leader.asked == []


def test_leader_reports_no_elapsed_time_after_a_clock_jump() -> None:
    """SVC-9: a node's monotonic clock may jump, too."""
    leader = Leader(B, C)
    leader.put()
    leader.service.now += YEAR / SECOND
    leader.put()
    assert leader.decided[-2] == do.Tick(NOON + YEAR, 0)
    assert (leader.trusted, leader.kept) == (0.0, 2)
    assert leader.events == [ClockDisputed(YEAR)]


def test_clock_readings_from_other_replicas_expire() -> None:
    leader = Leader(B, C)
    leader.wait(STEP / SECOND)
    leader.hear(B)
    assert leader.service.time.elapsed() == STEP
    leader.service.now += FRESH + 1.0
    assert leader.service.time.elapsed() == 0


def test_any_replica_answers_with_its_time() -> None:
    service = Service(A, Random(0), group=Members(A, B), epoch_us=NOON)
    service.now = 2.0
    service.receive(B, ReadClock())
    assert service.drain() == [Send(B, ClockRead(NOON + 2 * SECOND), 0)]


# -- the rule for a leader's time --


def told_by(*times: int, others: int, own: int = 99, last: int | None = 0) -> int:
    """Return a new leader's timestamp, given the other replicas' times.

    `last` is the last timestamp, or None for a new group. Times are in seconds after noon."""
    leader = Leader(*map(NodeId, "bcdefg"[:others]), wrong=own * SECOND, answered=False)
    clock = leader.service.machine.registry.clock
    clock.trusted = clock.stamp = 0 if last is None else NOON + last * SECOND
    leader.service.time.saw_nothing()
    leader.service.time.begin_term()
    for node, each in zip("bcdefg", times, strict=False):
        leader.service.time.hear(NodeId(node), ClockRead(NOON + each * SECOND))
    return (leader.service.time.stamp(clock, STEP) - NOON) // SECOND


def test_first_timestamp_is_one_that_a_majority_has_not_passed() -> None:
    """SVC-9: a clock that is behind must not make the first messages too old."""
    assert told_by(others=0, last=None) == 99
    assert told_by(7, others=1, last=None) == 99
    assert told_by(7, others=2, last=None) == 99
    assert told_by(7, others=2, own=-99, last=None) == 7
    assert told_by(7, 9, others=2, last=None) == 9
    assert told_by(7, 9, others=3, last=None) == 99
    assert told_by(7, 9, 8, others=3, last=None) == 9
    assert told_by(-7, 9, others=4, own=-99, last=None) == 9
    assert told_by(7, 10, 9, 8, others=4, last=None) == 9


def test_time_moves_only_as_far_as_a_majority_of_all_clocks_agrees() -> None:
    """SVC-9"""
    assert told_by(others=0) == 99
    assert told_by(7, others=1) == 7  # the clocks of both replicas are later
    assert told_by(7, others=1, last=20) == 20
    assert told_by(7, others=1, last=200) == 99
    assert told_by(7, others=2) == 7
    assert told_by(7, others=2, last=20) == 20
    assert told_by(7, 9, others=2) == 9
    assert told_by(7, 9, others=2, last=20) == 9
    assert told_by(7, others=3) == 0  # two of four are not a majority
    assert told_by(7, 9, others=3) == 7
    assert told_by(7, 9, 8, others=3) == 8
    assert told_by(7, 9, 8, others=3, last=20) == 9
    assert told_by(7, 8, others=4) == 7
    assert told_by(7, 8, others=4, last=200) == 99
    assert told_by(7, 8, 9, 10, others=4) == 9


def test_new_leader_proposes_nothing_with_a_timestamp_before_a_majority_answers() -> None:
    """SVC-9: the group's limits need no timestamp."""
    leader = Leader(B, C, wrong=-YEAR, answered=False)
    leader.do(do.Attach("t", "s", "inc-1"))
    leader.wait(1.0)  # a question or its answer may be lost
    leader.wait(1.0)
    assert [type(each) for each in leader.decided] == [do.SetLimits]
    assert leader.asked == [B, C] * 3
    leader.hear(B)
    kinds = [do.SetLimits, do.CreateTopic, do.OpenProducer, do.Attach]
    assert [type(each) for each in leader.decided] == kinds
    leader.hear(C)
    leader.put()
    assert leader.trusted == 2.0
    assert (leader.events, leader.kept) == ([], 1)


def test_leader_that_steps_down_forgets_what_it_has_not_proposed() -> None:
    leader = Leader(B, C, answered=False)
    leader.service.observe(LeaderChanged(B))
    leader.hear(C)
    leader.service.observe(LeaderChanged(A))
    leader._work()
    leader.hear(C)
    assert [type(each) for each in leader.decided] == [do.SetLimits]


def test_each_term_needs_new_answers() -> None:
    """SVC-9: the node may have led long ago, and its clocks may have jumped since."""
    leader = Leader(B, C)
    leader.service.observe(LeaderChanged(B))
    leader.service.observe(LeaderChanged(A))
    leader.wrong = STEP // 2
    before = len(leader.decided)
    leader.put()
    assert len(leader.decided) == before
    leader.hear(C)
    assert len(leader.decided) == before + 1
    assert leader.trusted == 0.0


def test_held_commands_are_proposed_when_the_other_replicas_are_removed() -> None:
    leader = Leader(B, C, answered=False)
    leader.service.group._nodes = (A,)  # type: ignore[attr-defined]
    leader.wait(1.0)
    assert [type(each) for each in leader.decided][1:] == [do.CreateTopic, do.OpenProducer]


def test_jumps_during_a_dispute_do_not_move_the_time() -> None:
    """SVC-9: the clock of a node that runs alone jumps forward again and again."""
    leader = Leader()
    leader.put()
    for jumps in range(20):
        leader.wrong = jumps * YEAR
        leader.service.now += 1.0
        leader.put()
    assert leader.trusted == 19.0
    leader.wrong = 0
    leader.put()
    assert leader.events == [ClockDisputed(YEAR + SECOND), ClockDisputed(0)]
    assert (leader.trusted, leader.kept) == (20.0, 22)


def test_stamps_that_are_behind_do_not_move_the_time_when_they_jump_forward() -> None:
    """SVC-9"""
    leader = Leader()
    leader.put()
    for years in range(20, 0, -1):
        leader.wrong = -years * YEAR
        leader.service.now += 1.0
        leader.put()
    assert leader.trusted == 19.0
    leader.wrong = 0
    leader.put()
    assert (leader.trusted, leader.kept) == (20.0, 22)


def test_several_wrong_clocks_in_turn_do_not_move_the_time() -> None:
    """SVC-9: each is less than a step from the time that the previous one would have set."""
    leader = Leader(B, C)
    for turn in range(1, 20):
        leader.wrong = turn * STEP // 3
        leader.service.now += FRESH + 1.0
        leader.put()
        leader.hear(B)
        leader.put()
        leader.hear(C)
        leader.put()
    assert leader.trusted == 19 * (FRESH + 1.0)


def test_small_differences_between_clocks_need_no_answers() -> None:
    """SVC-9: the differences do not add up."""
    assert SLACK == SECOND
    leader = Leader(B, C)
    for turn in (1, 2, 3, 4):
        leader.wrong = turn * SLACK // 2
        leader.put()
        assert leader.trusted == min(turn, 2) / 2


def test_clock_reading_is_valid_for_ten_seconds() -> None:
    """SVC-9: the monotonic clock counts, and it may jump back."""
    assert FRESH == 10.0
    leader = Leader(B, C)
    leader.put()
    leader.service.now = 100.0
    leader.hear(B)
    counts = []
    for now in (99.5, 100.0, 110.0, 110.1):
        leader.service.now = now
        counts.append(leader.service.time.elapsed() > 0)
    assert counts == [False, True, True, False]


def test_leader_with_a_wrong_clock_asks_replicas_every_two_seconds() -> None:
    """SVC-9: its wall clock must be more than a second from the leader's time."""
    assert ASK_EVERY == 2.0
    leader = Leader(B, C)
    leader.wrong = SLACK
    leader.wait(2.0)
    assert leader.asked == []
    leader.wrong += 1
    asked = []
    for seconds in (0.0, 1.5, 0.5, 0.5, 2.0):
        leader.wait(seconds)
        asked.append(len(leader.asked))
    assert asked == [2, 2, 4, 4, 6]
    leader = Leader(B, C)
    leader.wrong = -SLACK
    leader.wait(2.0)
    assert leader.asked == []
    leader.service.receive(C, ReadClock())
    leader.wrong -= 1
    leader.service.timeout(Upkept())
    assert [each for each in leader.service.drain() if isinstance(each, Send)] == [
        Send(C, ClockRead(NOON + 2 * SECOND - SLACK)),
        Send(B, ReadClock()),
        Send(C, ReadClock()),
    ]


def test_leader_proposes_a_tick_after_half_a_step_of_idle_time() -> None:
    """SVC-9"""
    for extra, ticks in ((0, 0), (1, 1)):
        leader = Leader()
        leader.put()
        before = len(leader.decided)
        leader.service.now += (STEP // 2 + extra) / SECOND
        leader.put()
        assert len(leader.decided) == before + 1 + ticks


def test_tick_is_due_for_a_dispute_at_once_and_then_every_minute() -> None:
    """SVC-9: no tick is due while the clocks agree within a step."""
    assert DISPUTE_TICK_US == 60 * SECOND
    leader = Leader()
    leader.put()
    before = len(leader.decided)
    leader.wrong = YEAR
    leader.wait(0.0)  # no time has passed since the last timestamp
    assert len(leader.decided) == before + 1
    leader = Leader()
    leader.put()
    before = len(leader.decided)
    for wrong, seconds, ticks in (
        (0, 61.0, 0),
        (-STEP - 61 * SECOND, 0.0, 0),
        (-STEP - 61 * SECOND - 1, 0.0, 1),
        (-STEP - 61 * SECOND - 1, 59.5, 1),
        (-STEP - 61 * SECOND - 1, 0.5, 2),
    ):
        leader.wrong = wrong
        leader.wait(seconds)
        assert len(leader.decided) == before + ticks, (wrong, seconds)


def test_tick_is_due_for_a_dispute_if_a_message_or_staged_part_ages() -> None:
    """SVC-9: the message or part may be in any of several topics."""
    for command in (
        do.Stage("query", 0, "part", "t", 1, 5, 0, b"bytes"),
        do.Put("t", "p", 1, 0, 1, 1, 0, b"x"),
    ):
        leader = Leader()
        leader.do(do.CreateTopic("empty", 0, Policy(age_us=100 * SECOND)))
        leader.do(command)
        before = len(leader.decided)
        leader.wrong = YEAR
        leader.wait(60.0)
        assert len(leader.decided) == before + 1


def leased_by_a_worker() -> tuple[Leader, Queue]:
    """Return a leader on which the worker `ann` holds a message for ten seconds."""
    leader = Leader()
    leader.do(do.SetLimits(LIMITS, SHARED_LEVEL))
    settings = Shared(lease_us=10 * SECOND, backoff_min_us=0)
    leader.do(do.SubscribeShared("jobs", "w", do.FromNew(), 0, settings))
    leader.do(do.OpenProducer("jobs", "p", "inc-1", 0))
    jobs = leader.service.machine.registry.topics["jobs"]
    leader.do(do.Put("jobs", "p", jobs.producers["p"].epoch, 0, 1, 1, 0, b"x"))
    leader.do(do.Lease("jobs", "w", 0, (("ann", 1),)))
    queue = jobs.subscriptions["w"].queue
    assert queue is not None
    assert queue.leased == 1
    return leader, queue


def test_lease_ends_although_the_time_is_disputed() -> None:
    """WRK-1 SVC-9: the group was down for a month, and no client sends a command."""
    leader, queue = leased_by_a_worker()
    leader.wrong = 30 * 86_400 * SECOND
    for _ in range(2):
        assert not queue.ended(leader.service.expected_time())
        leader.wait(60.0)
    assert queue.ended(leader.service.expected_time())


def test_dispute_without_jobs_in_flight_does_not_cause_disk_writes() -> None:
    """WRK-1 SVC-9: a shared subscription without deadlines."""
    leader, queue = leased_by_a_worker()
    (grant,) = queue.workers["ann"].grants
    done = ((grant.token, 0, 1),)
    leader.do(do.Settles((Settle("jobs", "w", "ann", 1, accept=done),), 0))
    before = len(leader.decided)
    leader.wrong = YEAR
    for _ in range(10):
        leader.wait(60.0)
    assert len(leader.decided) == before


# -- three replicas --


class Replicas(World):
    """Three replicas with separate wall clocks."""

    def __init__(self, seed: int) -> None:
        self.wrong: dict[NodeId, int] = {}
        self.services: dict[NodeId, Service] = {}
        super().__init__(seed, replicas=3)

    def build(self, node: Build) -> None:
        super().build(self._replica)

    def _replica(self, me: NodeId, rng: Random) -> Stack:
        parts = assemble(me, rng, options=FAST, contacts=() if me == NODE else (NODE,))
        parts.service.wall = lambda: NOON + int(self.sim.now * 1e6) + self.wrong.get(me, 0)
        self.services[me] = parts.service
        return parts.stack

    def kept(self) -> list[int]:
        bounds = [each.machine.bounds(TOPIC) for each in self.services.values()]
        return [end - first for first, end in bounds]


def wrong_leader(seed: int) -> None:
    """Run a leader whose clock is a year ahead while clients put messages with an age limit."""
    world = Replicas(seed)
    sim, services = world.sim, world.services
    world.run_until(lambda: len(services[NODE].group.nodes()) == 3)
    creator = Publisher(world, "creator", 0)
    creator.ask(local.Do(9, do.CreateTopic(TOPIC, 0, Policy(age_us=100 * SECOND))))
    world.run_until(
        lambda: all(TOPIC in each.machine.registry.topics for each in services.values())
    )
    publisher = Publisher(world, "publisher", 60)
    (leader,) = [me for me, each in services.items() if each.leading]
    world.wrong[leader] = YEAR
    world.run_until(lambda: len(publisher.promised) == 60)
    sim.run(until=sim.now + 10.0)
    assert world.kept() == [60, 60, 60]
    for service in services.values():
        ahead = service.machine.registry.clock.trusted - NOON - sim.now * 1e6
        assert abs(ahead) < 60 * SECOND
    sim.run(until=sim.now + 120.0)
    assert world.kept() == [0, 0, 0]


@pytest.mark.long
def test_leader_clock_a_year_ahead_does_not_expire_messages_early() -> None:
    """SVC-9"""
    wrong_leader(1)
