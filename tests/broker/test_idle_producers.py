"""The machine deletes idle producer records and unused topics."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from oncecast.broker import moves, state
from oncecast.broker.events import Execute
from oncecast.broker.holdings import Holdings
from oncecast.broker.live_slots import LiveSlots
from oncecast.broker.machine import Machine
from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire.limits import LIMITS, Limits
from oncecast.wire.results import Appended, Opened, Published, SourceOpened, Staged
from oncecast.wire.transactions import EndTransaction
from tests.broker.machine_steps import Steps
from tests.broker.test_timekeeping import Leader

IDLE = LIMITS.producer_idle_us
DAY = 86_400 * 1_000_000


class Days(Steps):
    """A machine whose leader measures the elapsed time."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        super().__init__(limits)
        self.now = 50 * 365 * DAY

    def wait(self, time: int) -> None:
        self.now += time
        self.apply(do.Tick(self.now, time, producers=True))

    def topics(self) -> dict[str, list[str]]:
        """Return each topic's producers."""
        topics = self.machine.registry.topics.values()
        return {topic.name: list(topic.producers) for topic in topics}


def test_unused_topic_is_deleted_with_its_last_idle_producer() -> None:
    """SVC-9"""
    steps = Days()
    steps.put(steps.open(), 0)
    steps.wait(IDLE - 1)
    assert steps.topics() == {"t": ["p"]}
    steps.wait(1)
    assert steps.topics() == {}


def test_producer_that_opens_or_puts_is_not_idle() -> None:
    """SVC-2 SVC-9"""
    steps = Days()
    steps.subscribe()
    first, second = steps.open(), steps.open(producer="q")
    for number in range(10):
        steps.wait(IDLE - DAY)
        steps.put(first, number)
        steps.put(first, number)  # a repeated put counts as use
        steps.open(producer="q")
    assert steps.topics() == {"t": ["p", "q"]}
    assert steps.put(second, 0, producer="q") == Appended(10, 1, kept=True)


def test_topic_with_a_subscription_survives_its_idle_producers() -> None:
    """SVC-5 SVC-9"""
    steps = Days()
    steps.subscribe()
    epoch = steps.open()
    steps.put(epoch, 0)
    steps.wait(IDLE)
    assert steps.topics() == {"t": []}
    assert steps.kept() == [0]
    assert steps.put(epoch, 1) == errors.Unopened("t", "p")


def test_producer_reopened_after_deletion_gets_a_new_record_number() -> None:
    """SVC-2: the sequence restarts at 0, and the client must detect that."""
    steps = Days()
    steps.subscribe()
    opened = steps.apply(do.OpenProducer("t", "p", "inc-1", steps.now))
    again = steps.apply(do.OpenProducer("t", "p", "inc-2", steps.now))
    assert isinstance(opened, Opened)
    assert isinstance(again, Opened)
    assert opened.record == again.record != 0
    steps.wait(IDLE)
    anew = steps.apply(do.OpenProducer("t", "p", "inc-1", steps.now))
    assert isinstance(anew, Opened)
    assert anew.record not in (0, opened.record)
    assert anew.topic_id == opened.topic_id


def test_idle_source_is_deleted_with_its_producers() -> None:
    """PIPE-2 SVC-9"""
    steps = Days()
    steps.stage(0, "part")
    steps.stage(0, "other", topic="u")
    steps.publish(0, "part", "other")
    steps.subscribe(topic="u")
    steps.wait(IDLE - 1)
    assert steps.topics() == {"t": ["query"], "u": ["query"]}
    steps.machine = Machine.restore(list(steps.machine.state()))
    steps.wait(1)
    assert steps.topics() == {"u": []}
    assert not steps.machine.registry.staging.sources


def test_source_that_stages_or_publishes_is_not_idle() -> None:
    """PIPE-2: repeated commands count as use in all topics of the source."""
    steps = Days()
    steps.stage(0, "a")
    steps.stage(0, "b", topic="u")
    steps.publish(0, "a", "b")
    for number in range(1, 4):
        steps.wait(IDLE - 1)
        steps.publish(0, "a", "b")
        steps.wait(IDLE - 1)
        steps.stage(number, "a")
        steps.wait(1)
        steps.publish(number, "a")
    assert steps.topics() == {"t": ["query"], "u": ["query"]}
    assert steps.stage(3, "late") == Staged(already=True)


def test_source_with_staged_parts_is_not_idle_before_they_expire() -> None:
    """PIPE-2 SVC-9"""
    steps = Days(replace(LIMITS, source_idle_us=DAY))
    steps.stage(0, "a")
    steps.wait(2 * DAY)
    assert isinstance(steps.publish(0, "a"), Published)


def test_idle_source_on_a_ring_is_deleted_with_its_only_topic() -> None:
    """PIPE-2 SVC-9 REP-6"""
    steps = Days()
    steps.apply(moves.Found("g", True))
    for topic in ("t", "u"):
        steps.stage(0, topic, topic=topic)
        steps.apply(do.PublishStaged("query", 0, (topic,), steps.now, topic))
    steps.wait(IDLE - 1)
    steps.stage(1, "part")
    steps.wait(1)
    assert steps.topics() == {"t": ["query"]}


def test_existing_sources_start_aging_when_the_limit_is_set() -> None:
    """PIPE-2 SVC-9"""
    steps = Days(replace(LIMITS, source_idle_us=0))
    steps.stage(0, "part")
    steps.publish(0, "part")
    steps.wait(IDLE)
    assert steps.topics() == {"t": ["query"]}
    steps.apply(do.SetLimits(LIMITS))
    steps.wait(IDLE - 1)
    assert steps.topics() == {"t": ["query"]}
    steps.wait(1)
    assert steps.topics() == {}


def test_clock_correction_does_not_keep_an_idle_source_alive() -> None:
    """SVC-9: the last use of the source has a future timestamp."""
    steps = Days()
    right = steps.now
    steps.stage(0, "part")
    steps.now += 365 * DAY
    steps.publish(0, "part")
    steps.now = right
    steps.wait(0)
    steps.wait(IDLE)
    assert steps.topics() == {}


def test_existing_producers_start_aging_when_the_limit_is_set() -> None:
    """SVC-9"""
    steps = Days(Limits())
    opened = steps.apply(do.OpenProducer("t", "p", "inc-1", steps.now))
    assert isinstance(opened, Opened)
    assert opened.record == 0
    steps.wait(IDLE)
    assert steps.topics() == {"t": ["p"]}
    steps.apply(do.SetLimits(LIMITS))
    again = steps.apply(do.OpenProducer("t", "p", "inc-1", steps.now))
    assert isinstance(again, Opened)
    assert again.record == opened.epoch
    steps.wait(IDLE - 1)
    assert steps.topics() == {"t": ["p"]}
    steps.machine = Machine.restore(list(steps.machine.state()))
    steps.wait(1)
    assert steps.topics() == {}


def test_clock_correction_does_not_keep_an_idle_producer_alive() -> None:
    """SVC-9: one of the producer's puts has a future timestamp."""
    steps = Days()
    epoch = steps.open()
    right = steps.now
    steps.now += 365 * DAY
    steps.put(epoch, 0)
    steps.now = right
    steps.put(epoch, 1)
    steps.wait(IDLE)
    assert steps.topics() == {}


def test_leader_checks_for_idle_producers_regularly() -> None:
    """SVC-9: an idle node does not write to its disk."""
    leader = Leader()
    before = len(leader.decided)
    for _ in range(29):
        leader.wait(IDLE / 30e6)
    assert leader.decided[before:] == []
    leader.wait(2 * IDLE / 30e6)
    (tick,) = leader.decided[before:]
    assert isinstance(tick, do.Tick)
    assert tick.producers
    assert leader.service.machine.registry.topics["t"].producers == {}
    for _ in range(3):
        leader.wait(IDLE / 1e6)
    assert len(leader.decided) == before + 1


def test_put_in_flight_keeps_its_producer_record() -> None:
    """SVC-2: the leader has received the put, and decides it before the Tick."""
    leader = Leader()
    leader.put()
    before = len(leader.decided)
    leader.service.now += 2 * IDLE / 1e6
    leader.service.request(Execute(1, do.Put("t", "p", 1, 1, 1, 1, 0, b"x")))
    leader.wait(0)
    found = [type(each) for each in leader.decided[before:]]
    assert found[-2:] == [do.Put, do.Tick]
    producer = leader.service.machine.registry.topics["t"].producers["p"]
    assert producer.next == 2


@pytest.mark.parametrize("sequence", [0, 1, 5], ids=["repeated", "next", "after a gap"])
def test_resending_client_keeps_its_producer_record(sequence: int) -> None:
    """SVC-2: each copy of an unacknowledged batch counts as use, whatever the answer."""
    steps = Days()
    epoch = steps.open()
    steps.put(epoch, 0)
    for _ in range(3):
        steps.wait(IDLE - 1)
        steps.put(epoch, sequence)
    steps.wait(IDLE - 1)
    assert steps.topics() == {"t": ["p"]}


def test_idle_producer_is_kept_without_a_limit() -> None:
    """SVC-2: `producer_idle` is inf."""
    steps = Days(replace(LIMITS, producer_idle_us=0))
    steps.put(steps.open(), 0)
    steps.wait(100 * 365 * DAY)
    assert steps.topics() == {"t": ["p"]}


def test_idle_time_moves_with_the_topic_to_another_group() -> None:
    """SVC-2 REP-6"""
    steps = Days()
    steps.subscribe()
    steps.put(steps.open(), 0)
    moved = state.moved_in(moved_rows(steps.machine), LiveSlots())
    (topic,) = moved.topics
    known = steps.machine.registry.topics["t"].producers["p"]
    copy = topic.producers["p"]
    assert (copy.record, copy.used, copy.next) == (known.record, known.used, known.next)


def moved_rows(machine: Machine) -> bytes:
    """Return a machine's metadata for all topics, as an exporter sends it."""
    holdings = Holdings("g", None)
    for name, topic in machine.registry.topics.items():
        holdings.outgoing[name] = topic
    return state.moved_out(holdings)


def test_leader_checks_for_idle_sources_regularly() -> None:
    """SVC-9 PIPE-2"""
    leader = Leader()
    leader.do(do.CloseProducer("t", "p", 1))
    leader.do(do.Stage("query", 0, "part", "u", 1, 5, 0, b"bytes"))
    leader.do(do.PublishStaged("query", 0, ("part",), 0))
    leader.wait(2 * IDLE / 1e6)
    assert not leader.service.machine.registry.staging.sources


def test_source_that_opens_or_ends_transactions_is_not_idle() -> None:
    """TXN-1 SVC-9"""
    steps = Days()

    def use(command: do.OpenSource | EndTransaction) -> int:
        steps.wait(IDLE - 1)
        found = steps.apply(replace(command, at=steps.now))
        return found.epoch if isinstance(found, SourceOpened) else 0

    open_source = do.OpenSource("copier", "inc", "t", 0)
    epoch = use(open_source)
    abort = EndTransaction("copier", "t", epoch, 0, 0, 0, commit=False)
    assert (use(abort), use(abort), use(open_source)) == (0, 0, epoch)
    steps.wait(IDLE - 1)
    assert "copier" in steps.machine.registry.staging.sources
    steps.wait(1)
    assert "copier" not in steps.machine.registry.staging.sources
