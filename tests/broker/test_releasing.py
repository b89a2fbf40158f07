"""A leader releases delayed messages when they are due, and ends expired ones (WRK-5)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from oncecast.broker.events import Changed, DelayedDue, Execute, Executed, SharedChanged, Upkept
from oncecast.kernel.protocol import Ask, Emit, Later
from oncecast.replication.events import Decided, LeaderChanged
from oncecast.wire import batch, errors
from oncecast.wire import commands as do
from oncecast.wire.limits import LIMITS
from oncecast.wire.results import Appended
from oncecast.wire.retention import Policy
from oncecast.wire.sharing import DEAD_DELIVERIES, DEAD_REASON, Settle, Shared, dead_letter_topic
from oncecast.wire.timing import TIMING_LEVEL, Timing
from tests.broker.desk import ANN, BOB, Desk, fetch, packed, reading, values
from tests.broker.test_dispatching import SharedNode, offsets
from tests.broker.test_levels import decide, leader, proposed
from tests.broker.test_timekeeping import NOON, SECOND, Leader

S = 1_000_000
LETTERS = dead_letter_topic("topic", "sub")


def timed(epoch: int, sequence: int, *messages: bytes, **timing: int) -> do.TimedPut:
    data = packed(*messages)
    facts = ("topic", "p", epoch, sequence, len(messages), len(data), 0, data)
    return do.TimedPut(*facts, Timing(**timing))


class TimedNode(SharedNode):
    """A node with a shared subscription, and an exclusive one that ANN reads."""

    def fill_timed(self, *messages: bytes, **timing: int) -> Any:
        result = self.call(BOB, timed(self.epoch, self.sequence, *messages, **timing))
        self.sequence += len(messages)
        return result


def test_waiting_worker_gets_a_delayed_message_when_it_is_due() -> None:
    """WRK-5: a timer on the leader releases it, between two rounds of maintenance."""
    node = TimedNode()
    node.work()
    assert node.fill_timed(b"late", delay_us=300_000) == Appended(-1, 1, kept=True)
    node.pass_time(0.299)
    assert node.took(ANN) == []
    node.pass_time(0.001)
    assert offsets(node.took(ANN)) == [0]


def test_worker_gets_a_message_with_a_long_delay() -> None:
    """WRK-5"""
    node = TimedNode()
    node.work()
    node.fill_timed(b"late", delay_us=100 * S)
    for _ in range(99):
        node.pass_time(1.0)
    assert node.took(ANN) == []
    node.pass_time(0.999)
    assert node.took(ANN) == []
    node.pass_time(0.001)
    assert offsets(node.took(ANN)) == [0]


def test_ordered_reader_gets_a_delayed_message_when_it_is_due() -> None:
    """WRK-5: at the offset that it gets then."""
    node = Desk()
    epoch = reading(node)
    opened = node.call(BOB, do.OpenProducer("topic", "p", "inc-1", 0))
    node.send(ANN, fetch(epoch, 0))
    node.call(BOB, timed(opened.epoch, 0, b"late", delay_us=300_000))
    node.call(BOB, timed(opened.epoch, 1, b"now", ttl_us=S))
    assert values(node.took(ANN)) == [b"now"]
    node.pass_time(0.3)
    (delivery,) = node.took(ANN)
    assert values([delivery]) == [b"late"]


def test_delayed_message_survives_a_restart_before_it_is_due() -> None:
    """WRK-5 SVC-10"""
    node = TimedNode()
    node.fill_timed(b"late", delay_us=5 * S)
    node.pass_time(1.0)
    node.restart()
    node.pass_time(3.9)
    assert node.service.machine.bounds("topic") == (0, 0)
    node.pass_time(0.1)
    node.pass_time(1.0)
    assert node.service.machine.bounds("topic") == (0, 1)
    assert offsets(node.work()) == [0]


def test_message_expires_without_a_worker_and_its_letter_says_why() -> None:
    """WRK-5"""
    node = TimedNode()
    node.fill_timed(b"old", ttl_us=5 * S)
    node.pass_time(4.0)
    assert node.service.machine.bounds(LETTERS) == (0, 0)
    node.pass_time(1.0)
    node.pass_time(1.0)
    assert node.service.machine.bounds(LETTERS) == (0, 1)
    (extent,) = node.service.machine.fetch(LETTERS, 0, 1, 1)
    stored = node.service.stored_batch(extent.slot, LETTERS).batch
    facts = {"topic": "", "offset": 0, "producer": "", "sequence": 0}
    (letter,) = batch.messages(stored, **facts)  # type: ignore[arg-type]
    assert (letter.value, letter.headers[DEAD_REASON]) == (b"old", b"expired")
    assert letter.headers[DEAD_DELIVERIES] == b"0"


def test_expired_messages_of_a_dropping_topic_leave_no_letter() -> None:
    """WRK-5"""
    node = TimedNode()
    node.call(BOB, do.SetPolicy("topic", 0, Policy(drop_expired=True)))
    node.fill_timed(b"old", ttl_us=S)
    node.pass_time(1.0)
    node.pass_time(1.0)
    assert node.service.machine.bounds("topic") == (1, 1)
    assert node.service.machine.bounds(LETTERS) == (0, 0)


def test_expired_messages_with_keys_are_ended_without_a_worker() -> None:
    """WRK-4 WRK-5"""
    node = TimedNode(Shared(by_key=True))
    node.fill_timed(b"old", ttl_us=S)
    node.fill(b"new")
    node.pass_time(2.0)
    assert node.service.machine.bounds(LETTERS) == (0, 1)
    assert offsets(node.work()) == [1]


# The service.


class Delaying(Leader):
    """A leader that decides at once, at the feature level that adds delays."""

    def __init__(self) -> None:
        super().__init__()
        self.do(do.SetLimits(LIMITS, TIMING_LEVEL))
        self.decided.clear()

    def put_timed(self, **timing: int) -> None:
        self.do(do.TimedPut("t", "p", 1, self.sequence, 1, 1, 0, b"x", Timing(**timing)))
        self.sequence += 1

    @property
    def ticks(self) -> list[do.Tick]:
        return [each for each in self.decided if isinstance(each, do.Tick)]

    @property
    def end(self) -> int:
        return self.service.machine.bounds("t")[1]

    def fire(self) -> None:
        self.service.timeout(DelayedDue())
        self._work()


def test_idle_leader_proposes_nothing_before_a_message_is_due() -> None:
    """WRK-5: and one Tick when it is due, although it was idle for an hour."""
    node = Delaying()
    node.put_timed(delay_us=3600 * SECOND)
    for _ in range(3599):
        node.wait(1.0)
    assert node.ticks == []
    node.wait(1.0)
    assert node.ticks == [do.Tick(NOON + 3600 * SECOND, 3600 * SECOND)]
    assert node.end == 1


def test_wrong_clock_of_a_lone_leader_releases_nothing() -> None:
    """WRK-5"""
    node = Delaying()
    node.put_timed(delay_us=3600 * SECOND)
    node.wrong = 86_400 * SECOND
    node.wait(1.0)
    node.wrong = 0
    node.wait(1.0)
    assert node.end == 0
    assert node.service.machine.registry.due == NOON + 3600 * SECOND


def test_dispute_ends_while_messages_are_delayed() -> None:
    """WRK-5: the leader stamps Ticks although nothing else happens."""
    node = Delaying()
    node.put_timed(delay_us=3 * 86_400 * SECOND)
    node.wrong = 30 * 86_400 * SECOND  # the group was down for a month
    for _ in range(59):
        node.wait(60.0)
    assert node.end == 0
    for _ in range(11):
        node.wait(60.0)
    assert node.end == 1


@pytest.mark.parametrize("waits_for", ["lease", "retry", "time to live", "nothing"])
def test_leases_of_an_idle_group_end_although_the_clock_is_behind(waits_for: str) -> None:
    """WRK-1 WRK-5: a Tick begins the dispute at once, and the trusted time advances from then."""
    node = Delaying()
    node.do(do.SetPolicy("t", 0, Policy()))
    node.do(do.SubscribeShared("t", "s", do.FromNew(), 0, Shared(lease_us=100 * SECOND)))
    if waits_for == "time to live":
        node.put_timed(ttl_us=100 * SECOND)
    else:
        node.put()
    if waits_for in ("lease", "retry"):
        node.do(do.Lease("t", "s", 0, (("ann", 1),)))
    if waits_for == "retry":
        token = node.service.machine.registry.last_epoch
        settle = Settle("t", "s", "ann", 1, release=((token, 0, 1, 100 * SECOND, ""),))
        node.do(do.Settles((settle,), 0))
    node.wrong = -30 * 86_400 * SECOND
    node.wait(1.0)
    node.wait(50.0)
    assert len(node.ticks) == (waits_for != "nothing")
    passed = node.service.expected_time() - node.service.machine.registry.clock.trusted
    assert passed == (50 * SECOND if waits_for != "nothing" else 0)


def timers(effects: list[Any]) -> list[float]:
    later = [each for each in effects if isinstance(each, Later)]
    return [each.delay for each in later if isinstance(each.timer, DelayedDue)]


def test_timer_is_set_only_for_messages_that_are_due_soon() -> None:
    service = Delaying().service
    due: list[float] = []
    slot = service.machine.registry.last_slot
    for sequence, delay in enumerate((5 * S, S // 2, S // 4, S // 3)):
        put = do.TimedPut("t", "p", 1, sequence, 1, 1, NOON, b"x", Timing(delay_us=delay))
        service.observe(Decided(slot + sequence + 1, encoded(put)))
        due += timers(service.drain())
    assert due == [0.5, 0.25]
    service.now += 0.25
    service.timeout(DelayedDue())
    effects = service.drain()
    assert [type(each) for each in effects] == [Ask]  # the Tick
    service.now += 4.0
    service.timeout(Upkept())
    assert timers(service.drain()) == []  # a message is due, so the service proposes another Tick


def encoded(command: do.Command) -> bytes:
    return msgspec.msgpack.encode(command)


def test_follower_sets_no_timer() -> None:
    node = Delaying()
    node.service.observe(LeaderChanged(BOB))
    node.service.drain()
    put = do.TimedPut("t", "p", 1, 0, 1, 1, NOON, b"x", Timing(delay_us=S // 2))
    node.service.observe(Decided(node.slot + 1, encoded(put)))
    assert timers(node.service.drain()) == []
    node.fire()
    assert node.ticks == []


def test_readers_are_told_when_delayed_messages_enter_a_topic() -> None:
    """WRK-5"""
    service = leader()
    commands: tuple[do.Command, ...] = (
        do.SetLimits(LIMITS, TIMING_LEVEL),
        do.SubscribeShared("t", "s", do.FromNew(), NOON),
        do.OpenProducer("t", "p", "inc-1", NOON),
        do.TimedPut("t", "p", 2, 0, 1, 1, NOON, b"x", Timing(delay_us=S)),
    )
    for slot, command in enumerate(commands, 1):
        decide(service, slot, command)
    assert decide(service, 5, do.Tick(NOON + S - 1)) == []
    assert decide(service, 6, do.Tick(NOON + S)) == [Changed("t"), SharedChanged("t")]


def test_delayed_put_needs_its_feature_level() -> None:
    """WRK-5 OPS-2"""
    service = leader()
    decide(service, 1, do.SetLimits(LIMITS, TIMING_LEVEL - 1))
    service.request(Execute(7, timed(1, 0, b"x", delay_us=S)))
    refusal = errors.LevelTooLow(TIMING_LEVEL, TIMING_LEVEL - 1)
    assert service.drain() == [Emit(Executed(7, refusal))]


@pytest.mark.parametrize("kind", [do.CreateTopic, do.SetPolicy])
def test_policy_that_drops_expired_messages_needs_its_feature_level(kind: type) -> None:
    """WRK-5 OPS-2: a member that does not know the field would keep them."""
    service = leader()
    decide(service, 1, do.SetLimits(LIMITS, TIMING_LEVEL - 1))
    service.request(Execute(7, kind("t", 0, Policy(drop_expired=True))))
    refusal = errors.LevelTooLow(TIMING_LEVEL, TIMING_LEVEL - 1)
    assert service.drain() == [Emit(Executed(7, refusal))]
    service.request(Execute(8, kind("t", 0, Policy(keep_all=True))))
    assert [type(each) for each in proposed(service)] == [kind]
    decide(service, 2, do.SetLimits(LIMITS, TIMING_LEVEL))
    service.request(Execute(9, kind("t", 0, Policy(drop_expired=True))))
    assert [type(each) for each in proposed(service)] == [kind]


def test_carried_delayed_batch_is_a_plain_put() -> None:
    """Its times are in the state. So `Carry` and `Import` need no new kind of command."""
    node = TimedNode()
    node.fill_timed(b"late", delay_us=S)
    (batch_of_topic,) = node.service.machine.registry.topics["topic"].delays.batches.values()
    found = node.service.batch_at(batch_of_topic.slot, "topic")
    assert type(found) is do.Put
    assert batch.values(found.batch) == [b"late"]
