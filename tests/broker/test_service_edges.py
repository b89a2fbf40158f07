"""SVC-9 SVC-10: the service proposes commands and maintains its log."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from oncecast.broker import moves
from oncecast.broker.events import Changed, Execute, Executed, FlushAcks, Upkept
from oncecast.broker.holdings import PeerGroup
from oncecast.broker.log_usage import MARK_EVERY, RECORD_BYTES, LogUsage
from oncecast.broker.service import (
    CARRY_BYTES,
    RecentBatches,
    Service,
    StoredBatch,
    carried,
    stored_batch_of,
)
from oncecast.errors import Corrupt
from oncecast.kernel.protocol import Ask, Emit, Later, NodeId
from oncecast.replication.events import (
    Compact,
    Compare,
    Decided,
    Digest,
    Installed,
    LeaderChanged,
    Missing,
    Propose,
    StateWanted,
)
from oncecast.wire import commands as do
from oncecast.wire.limits import Limits
from oncecast.wire.results import TopicDeleted
from oncecast.wire.retention import Policy
from tests.broker.test_service import ME, bare, encode

OTHER = NodeId("other")


def decide(service: Service, *commands: do.Command) -> list[object]:
    """Decide commands that other nodes propose, and return the effects."""
    for command in commands:
        slot = max(service.machine.registry.last_slot, 0) + 1
        service.observe(Decided(slot, encode(command), -1))
    return list(service.drain())


def proposals(service: Service) -> list[object]:
    found = [each.request for each in service.drain() if isinstance(each, Ask)]
    return [
        msgspec.msgpack.decode(each.value, type=moves.AnyCommand)
        for each in found
        if isinstance(each, Propose)
    ]


# -- leading --


def test_follower_service_proposes_nothing() -> None:
    service = bare()
    service.observe(LeaderChanged(OTHER))
    service.request(Execute(1, do.CreateTopic("topic", 0)))
    service.request(do.Ack("topic", "sub", 1, 1))
    service.timeout(FlushAcks())
    assert proposals(service) == []


def test_leader_change_drops_open_proposals() -> None:
    service = bare()
    service.request(Execute(3, do.CreateTopic("topic", 0)))
    service.request(do.Ack("topic", "sub", 1, 1))
    (ask,) = [each for each in service.drain() if isinstance(each, Ask)]
    assert isinstance(ask.request, Propose)
    service.observe(LeaderChanged(ME))
    service.observe(Decided(1, ask.request.value, ask.request.token))
    assert service.drain() == []  # no answer: the caller must repeat the request
    assert "topic" in service.machine.registry.topics
    service.timeout(FlushAcks())
    assert proposals(service) == []


def test_new_leader_proposes_its_limits_if_they_differ() -> None:
    service = bare()
    service.drain()
    service._limits = Limits(topics_max=7)
    service.observe(LeaderChanged(OTHER))
    assert proposals(service) == []
    service.observe(LeaderChanged(ME))
    assert proposals(service) == [do.SetLimits(Limits(topics_max=7))]


def test_only_commands_with_a_time_field_get_a_timestamp() -> None:
    service = bare()
    service.now = 2.0
    service.request(Execute(1, do.Attach("t", "s", "inc-1")))
    service.request(Execute(1, do.Tick(0)))
    assert proposals(service) == [do.Attach("t", "s", "inc-1"), do.Tick(2_000_007)]


def test_service_has_the_expected_default_limits() -> None:
    """SVC-10"""
    service = Service(ME, Random(0), group=Shelf())
    service.now = 2.0
    assert (service.wall(), service._pace) == (2_000_000, (0.005, 1000, 1.0))
    assert (service._log_usage.snapshot_bytes, service._recent._bytes_max) == (64 << 20, 32 << 20)


def test_request_with_token_0_is_answered() -> None:
    """SVC-1"""
    service = bare()
    service.request(Execute(0, do.DeleteTopic("topic", 0)))
    (ask,) = service.drain()
    assert isinstance(ask, Ask)
    assert isinstance(ask.request, Propose)
    service.observe(Decided(1, ask.request.value, ask.request.token))
    assert Emit(Executed(0, TopicDeleted(already=True))) in service.drain()


def test_idle_leader_with_an_older_log_proposes_no_ticks() -> None:
    """SVC-9: such a log has no trusted time."""
    service = bare()
    decide(service, do.CreateTopic("topic", 0))
    service.now = 1e6
    service.request(Execute(1, do.DeleteTopic("topic", 0)))
    assert proposals(service) == [do.DeleteTopic("topic", 1_000_000_000_007)]


def test_only_a_command_with_a_timestamp_resets_the_idle_time() -> None:
    """SVC-9"""
    service = bare()
    assert service.time.idle_us == 0
    service.now = 1.0
    decide(service, do.Subscribe("t", "s", do.FromNew(), 0))
    service.now = 4.0
    decide(service, do.Attach("t", "s", "inc-1"))
    assert service.time.idle_us == 3_000_000
    decide(service, do.Unsubscribe("t", "s", 0))
    assert service.time.idle_us == 0


def test_second_tick_does_not_report_the_same_elapsed_time() -> None:
    """SVC-9: this holds even before the first tick is decided."""
    service = bare()
    decide(service, do.SetLimits(Limits(clock_step_us=10)), do.CreateTopic("topic", 0))
    service.now = 5.0
    for _ in range(2):
        service.request(Execute(1, do.Tick(0)))
    assert proposals(service) == [do.Tick(5_000_007, 5_000_000), do.Tick(5_000_007, 0)]


def test_new_batch_is_cached() -> None:
    """SVC-3: readers need not read it from the log."""
    service = bare()
    decide(
        service, do.OpenProducer("t", "p", "inc-1", 0), do.Put("t", "p", 1, 0, 1, 5, 0, b"bytes")
    )
    assert service.stored_batch(2, "t") == StoredBatch("p", 0, b"bytes")


# -- events --


def test_commands_that_affect_readers_emit_changed() -> None:
    service = bare()
    decide(service, do.OpenProducer("t", "p", "inc-1", 0), do.Subscribe("t", "s", do.FromNew(), 0))
    reported = Emit(Changed("t"))
    assert decide(service, do.Put("t", "p", 1, 0, 1, 5, 0, b"bytes")) == [reported]
    assert decide(service, do.Attach("t", "s", "inc-1")) == [reported]
    assert decide(service, do.Detach("t", "s", 3, 0)) == [reported]
    assert decide(service, do.Seek("t", "s", do.FromEarliest(), 0, "token")) == [reported]
    assert decide(service, do.Unsubscribe("t", "s", 0)) == [reported]
    assert decide(service, do.DeleteTopic("t", 0)) == [reported]
    assert decide(service, do.Tick(0)) == []


def test_publish_emits_changed_for_each_topic() -> None:
    service = bare()
    decide(service, do.Subscribe("t", "s", do.FromNew(), 0))
    decide(service, do.Stage("q", 0, "a", "t", 1, 5, 0, b"bytes"))
    assert decide(service, do.PublishStaged("q", 0, ("a",), 0)) == [Emit(Changed("t"))]
    assert decide(service, do.PublishStaged("q", 1, ("missing",), 0)) == []


def test_freeze_emits_changed_for_its_topics() -> None:
    service = bare()
    decide(service, moves.Found("g-2", True))  # type: ignore[arg-type]
    decide(service, do.Subscribe("t", "s", do.FromNew(), 0))
    until = service.machine.registry.holdings.position  # type: ignore[union-attr]
    freeze = moves.Freeze("m", until, PeerGroup("g-a", ()))
    assert decide(service, freeze) == [Emit(Changed("t"))]  # type: ignore[arg-type]
    assert decide(service, do.Tick(0)) == []
    assert decide(bare(), freeze) == []  # type: ignore[arg-type]


# -- acks --


def test_full_ack_buffer_is_proposed_at_once() -> None:
    service = bare()
    service._pace = service._pace._replace(acks_max=3)
    for name in ("a", "b", "c"):
        service.request(do.Ack("topic", name, 1, 1))
    effects = service.drain()
    assert effects[0] == Later(0.005, FlushAcks())
    assert [type(each) for each in effects[1:]] == [Ask]
    service.request(do.Ack("topic", "a", 1, 1))
    assert service.drain() == [Later(0.005, FlushAcks())]


def test_older_ack_is_ignored() -> None:
    service = bare()
    for upto in (5, 5, 4):
        service.request(do.Ack("topic", "sub", 1, upto))
    service.drain()
    service.timeout(FlushAcks())
    assert proposals(service) == [do.Acks((do.Ack("topic", "sub", 1, 5),), at=7)]


# -- time --


def aged(service: Service) -> None:
    decide(
        service,
        do.CreateTopic("t", 0, Policy(age_us=1_000_000)),
        do.OpenProducer("t", "p", "inc-1", 0),
        do.Put("t", "p", 1, 0, 1, 5, 0, b"bytes"),
    )


def test_only_the_leader_proposes_a_tick_for_expired_messages() -> None:
    service = bare()
    aged(service)
    service.now = 0.5
    service.timeout(Upkept())
    assert service.drain() == [Later(1.0, Upkept())]
    service.now = 2.0
    service.timeout(Upkept())
    assert proposals(service) == [do.Tick(2_000_007)]
    service.observe(LeaderChanged(OTHER))
    service.timeout(Upkept())
    assert proposals(service) == []


def test_tick_is_proposed_for_abandoned_staged_parts() -> None:
    service = bare()
    decide(service, do.SetLimits(Limits(staged_age_us=1_000_000)))
    decide(service, do.Stage("q", 0, "a", "t", 1, 5, 0, b"bytes"))
    service.now = 0.9
    service.timeout(Upkept())
    assert proposals(service) == []
    service.now = 1.1
    service.timeout(Upkept())
    assert proposals(service) == [do.Tick(1_100_007)]


def test_idle_producers_are_checked_regularly() -> None:
    """SVC-9: the interval is a tenth of their idle limit, but at most an hour."""
    for idle, every in ((1_000, 100.0), (36_000, 3600.0), (36_010, 3600.0)):
        service = bare()
        decide(service, do.SetLimits(Limits(producer_idle_us=idle * 1_000_000)))
        decide(service, do.OpenProducer("t", "p", "inc-1", 0))
        looks = []
        for now in (0.0, 50.0, every - 0.1, every, 1.5 * every, 2 * every):
            service.now = now
            service.timeout(Upkept())
            looks.append(service._producers_due)
        assert looks == [every, every, every, 2 * every, 2 * every, 3 * every]
        service.drain()
        service.now = idle + 1.0 + every
        service.timeout(Upkept())
        assert proposals(service) == [
            do.Tick(int(service.now * 1e6) + 7, 0, producers=True),
        ]


def test_maintenance_expires_messages_before_it_takes_a_snapshot() -> None:
    """SVC-9"""
    service = bare()
    aged(service)
    service._log_usage = LogUsage(1)
    service._log_usage.add(1, 1)
    service.now = 2.0
    service.timeout(Upkept())
    effects = service.drain()
    kinds = [type(each.request) if isinstance(each, Ask) else type(each) for each in effects]
    assert kinds == [Propose, Compact, Later]
    service.timeout(Upkept())
    assert Compact not in [type(each.request) for each in service.drain() if isinstance(each, Ask)]


def test_maintenance_timer_is_set_at_the_start() -> None:
    service = bare()
    service.drain()
    service.start()
    assert service.drain() == [Later(1.0, Upkept())]


# -- states --


def test_state_is_sent_on_request_and_installed() -> None:
    service = bare()
    aged(service)
    service.observe(StateWanted())
    (ask,) = service.drain()
    assert isinstance(ask, Ask)
    compact = ask.request
    assert isinstance(compact, Compact)
    assert (compact.slot, compact.needed) == (3, 3)
    other = bare()
    other._recent.add(1, "t", StoredBatch("p", 0, b"old"))
    other.time.saw_stamp()
    other.now = 5.0
    other.observe(Installed(compact.slot, compact.state))
    assert other.machine.checksum() == service.machine.checksum()
    assert other._log_usage.state(3) == service._log_usage.state(3)
    assert other._log_usage._state_bytes == sum(map(len, compact.state))
    assert other.time.idle_us == 0
    assert other._recent.get(1, "t") is None
    other.drain()
    other.observe(Compare(9))
    digest = service.machine.checksum().to_bytes(8, "big")
    assert other.drain() == [Ask(Digest(9, digest))]


def test_maintenance_runs_after_a_mebibyte_of_commands() -> None:
    service = bare()
    service._log_usage = LogUsage(1000)
    decide(service, do.OpenProducer("t", "p", "inc-1", 0), do.Subscribe("t", "s", do.FromNew(), 0))
    assert not any(isinstance(each, Ask) for each in service.drain())
    half = bytes(600 * 1024)
    effects = decide(service, do.Put("t", "p", 1, 0, 1, len(half), 0, half))
    assert not any(isinstance(each, Ask) for each in effects)
    effects = decide(service, do.Put("t", "p", 1, 1, 1, len(half), 0, half))
    assert [type(each.request) for each in effects if isinstance(each, Ask)] == [Compact]


def test_maintenance_starts_at_exactly_one_mebibyte() -> None:
    """SVC-9"""
    service = bare()
    service._log_usage = LogUsage(100)
    command = do.CreateTopic("t", 0)
    size = len(encode(command))
    assert service._grown == 0
    service._grown = (1 << 20) - size - 1
    assert decide(service, command) == []
    service._grown = (1 << 20) - size
    effects = decide(service, command)
    assert [type(each.request) for each in effects if isinstance(each, Ask)] == [Compact]
    assert service._grown == 0


# -- carrying --


class Shelf:
    """A group whose entries can be made unreadable."""

    applied = 0
    level = 1

    def __init__(self) -> None:
        self.entries: dict[int, bytes | Exception] = {}

    def entry(self, slot: int) -> bytes:
        found = self.entries[slot]
        if isinstance(found, Exception):
            raise found
        return found

    def leads(self, now: float) -> bool:
        return True

    def follows(self, now: float) -> bool:
        return False

    def nodes(self) -> tuple[NodeId, ...]:
        return (ME,)


def leader_with_old_messages(sizes: list[int], snapshot_bytes: int = 2000) -> tuple[Service, Shelf]:
    """Return a leader with one old message of each size, followed by many dead entries."""
    service = bare()
    shelf = Shelf()
    service.group = shelf
    service._log_usage = LogUsage(snapshot_bytes)
    commands: list[do.Command] = [
        do.OpenProducer("old", "p", "inc-1", 0),
        do.Subscribe("old", "s", do.FromNew(), 0),
    ]
    commands += [
        do.Put("old", "p", 1, at, 1, size, 0, bytes(size)) for at, size in enumerate(sizes)
    ]
    commands += [do.Tick(at) for at in range(1000)]
    for command in commands:
        slot = max(service.machine.registry.last_slot, 0) + 1
        shelf.entries[slot] = encode(command)
        service.observe(Decided(slot, encode(command), -1))
    service.drain()
    return service, shelf


def carries(service: Service) -> list[tuple[int, int]]:
    service.timeout(Upkept())
    return [(each.old, each.offset) for each in proposals(service) if isinstance(each, do.Carry)]


def test_old_messages_are_carried_forward_once() -> None:
    service, _ = leader_with_old_messages([10, 20, 30])
    assert carries(service) == [(3, 0), (4, 1), (5, 2)]
    assert service._carrying == 3
    assert carries(service) == []  # the carry is in flight


def test_carrying_continues_when_the_last_carry_is_decided() -> None:
    service, shelf = leader_with_old_messages([10])
    service.timeout(Upkept())
    (carry,) = [
        each.request
        for each in service.drain()
        if isinstance(each, Ask) and isinstance(each.request, Propose)
    ]
    slot = service.machine.registry.last_slot + 1
    shelf.entries[slot] = carry.value
    service.observe(Decided(slot, carry.value, carry.token))
    assert service._carrying == 0
    assert service.machine.needed() == slot
    service.observe(LeaderChanged(OTHER))
    assert carries(service) == []


def test_new_leader_continues_carrying() -> None:
    """SVC-9"""
    service, _ = leader_with_old_messages([10])
    assert carries(service) == [(3, 0)]
    service.observe(LeaderChanged(OTHER))
    assert carries(service) == []
    assert service._carrying == 0
    service.observe(LeaderChanged(ME))
    assert carries(service) == [(3, 0)]


def test_staged_parts_count_as_needed() -> None:
    """SVC-9: staged parts are not garbage, so the leader carries nothing."""
    service, _ = leader_with_old_messages([10])
    service.machine.registry.staging.bytes = 1 << 20
    assert carries(service) == []


@pytest.mark.parametrize(("snapshot_bytes", "carried"), [(4000, 6), (5000, 8), (8000, 12)])
def test_carry_moves_about_half_the_snapshot_size_at_once(
    snapshot_bytes: int, carried: int
) -> None:
    """SVC-9: the amount is rounded up to the next mark."""
    service, _ = leader_with_old_messages([500] * 20, snapshot_bytes=snapshot_bytes)
    assert len(carries(service)) == carried


def test_carrying_stops_at_its_byte_limit_and_at_a_missing_entry() -> None:
    assert CARRY_BYTES == 2 << 20
    service, _ = leader_with_old_messages([CARRY_BYTES - 1, 1, 1], snapshot_bytes=4 * CARRY_BYTES)
    for slot in (2000, 2001):
        service._log_usage.add(slot, 20 * CARRY_BYTES)
    assert carries(service) == [(3, 0), (4, 1)]
    service, shelf = leader_with_old_messages([10, 20, 30])
    shelf.entries[4] = Missing(4)
    assert carries(service) == [(3, 0)]


def test_carrying_skips_a_corrupt_entry() -> None:
    service, shelf = leader_with_old_messages([10, 20, 30])
    shelf.entries[4] = Corrupt("00000001.log", 4096, 4, 4, "checksum mismatch")
    assert carries(service) == [(3, 0), (5, 2)]


def test_batch_in_a_carried_or_imported_command_is_found() -> None:
    put = do.Put("t", "p", 1, 7, 1, 5, 0, b"bytes")
    twice = do.Carry(9, 0, put)
    assert carried(moves.Import("m", "t", 1, 0, 1, 5, 0, 0, -1, put), "t") == put
    assert stored_batch_of(twice, "t") == StoredBatch("p", 7, b"bytes")
    stage = do.Stage("q", 0, "a", "t", 1, 5, 0, b"part")
    assert stored_batch_of(stage, "t") == StoredBatch("q", -1, b"part")


def test_batch_is_read_from_the_log_once_and_then_cached() -> None:
    service, shelf = leader_with_old_messages([10])
    service._recent.clear()
    assert service.stored_batch(3, "t") == StoredBatch("p", 0, bytes(10))
    shelf.entries.clear()
    assert service.stored_batch(3, "t") == StoredBatch("p", 0, bytes(10))


# -- cache --


def test_least_recently_used_batches_are_evicted_first() -> None:
    recent = RecentBatches(3 * 356)
    for slot in (1, 2, 3):
        recent.add(slot, "t", StoredBatch("p", slot, bytes(100)))
    assert recent.get(1, "t") is not None
    recent.add(4, "t", StoredBatch("p", 4, bytes(100)))
    assert [recent.get(slot, "t") is not None for slot in (1, 2, 3, 4)] == [True, False, True, True]
    recent.add(5, "t", StoredBatch("p", 5, bytes(456)))
    assert [recent.get(slot, "t") is not None for slot in (1, 3, 4, 5)] == [
        False,
        False,
        True,
        True,
    ]
    recent.clear()
    for slot in (6, 7, 8):
        recent.add(slot, "t", StoredBatch("p", slot, bytes(100)))
    assert all(recent.get(slot, "t") for slot in (6, 7, 8))


def test_cache_is_limited_in_bytes() -> None:
    """SVC-10: each batch counts as 256 bytes more than its size."""
    for bytes_max, remembered in ((712, [1, 2]), (711, [2])):
        recent = RecentBatches(bytes_max)
        for _ in range(2):
            for slot in (1, 2):
                recent.add(slot, "t", StoredBatch("p", slot, bytes(100)))
            assert [slot for slot, _ in recent._sources] == remembered
            assert recent._bytes == 356 * len(remembered)
            recent.clear()


# -- log usage --


def written(snapshot_bytes: int = 4000, entries: int = 100, size: int = 36) -> LogUsage:
    """Return the usage of a log whose entries are 100 bytes long, including overhead."""
    log_usage = LogUsage(snapshot_bytes)
    for slot in range(1, entries + 1):
        log_usage.add(slot, size)
    return log_usage


def test_log_bytes_are_counted_from_the_next_mark() -> None:
    assert RECORD_BYTES == 64
    log_usage = written()  # the log has a mark every 1,000 bytes
    assert log_usage.bytes_from(1) == 10_000
    assert log_usage.bytes_from(2) == log_usage.bytes_from(11) == 9_000
    assert log_usage.bytes_from(12) == 8_000
    assert log_usage.bytes_from(91) == 1_000
    assert log_usage.bytes_from(92) == log_usage.bytes_from(1000) == 0


def test_large_log_has_a_mark_per_mebibyte() -> None:
    assert MARK_EVERY == 1 << 20
    log_usage = written(1 << 40, 30, (MARK_EVERY // 10) - 64)
    assert list(log_usage._slots) == [1, 12, 23]


def test_slot_after_a_number_of_bytes_is_the_next_mark() -> None:
    log_usage = written()
    assert log_usage.slot_behind(1, 2_000) == 21
    assert log_usage.slot_behind(1, 2_001) == 31
    assert log_usage.slot_behind(21, 1_000) == 31
    assert log_usage.slot_behind(1, 9_001) == 0


def test_snapshot_is_due_after_enough_new_bytes_or_garbage() -> None:
    log_usage = written(entries=39)
    assert not log_usage.snapshot_due(1)
    log_usage.add(40, 36)
    assert log_usage.snapshot_due(1)
    log_usage.snapshot_taken(1, 0)
    assert not log_usage.snapshot_due(1)
    assert not log_usage.snapshot_due(31)
    assert log_usage.snapshot_due(41)


def test_first_snapshot_is_due_at_exactly_its_byte_limit() -> None:
    """SVC-9"""
    assert written(10_000).snapshot_due(1)
    assert not written(10_001).snapshot_due(1)
    new = LogUsage(1)
    assert (new._snapshot_total, new._state_bytes, new._trimmed) == (0, 0, 0)


def test_large_state_is_snapshotted_less_often() -> None:
    log_usage = written(entries=40)
    log_usage.snapshot_taken(1, 3_000)
    for slot in range(41, 100):
        log_usage.add(slot, 36)
    assert not log_usage.snapshot_due(1)
    log_usage.add(100, 36)
    assert log_usage.snapshot_due(1)


def test_carrying_is_due_when_most_of_the_log_is_garbage() -> None:
    log_usage = written()
    assert log_usage.carry_due(1, 2_999)
    assert not log_usage.carry_due(1, 3_000)
    assert not log_usage.carry_due(92, 0)


def test_snapshot_drops_unneeded_marks() -> None:
    log_usage = written()
    log_usage.snapshot_taken(25, 500)
    assert list(log_usage._slots) == list(range(21, 100, 10))
    assert log_usage.bytes_from(25) == 7_000
    again = LogUsage(4000)
    again.restore(log_usage.state(25), 500)
    assert (again._slots, again._totals) == (log_usage._slots, log_usage._totals)
    assert (again._total, again._snapshot_total) == (10_000, 10_000)
    assert (again._trimmed, again._state_bytes) == (25, 500)


@pytest.mark.parametrize("needed", [1, 2])
def test_first_mark_is_kept_while_it_is_needed(needed: int) -> None:
    log_usage = written()
    log_usage.snapshot_taken(needed, 0)
    assert log_usage._slots[0] == 1
