"""The service proposes commands, reports results and frees disk space."""

from __future__ import annotations

from random import Random

import msgspec

from oncecast.broker.events import Changed, Execute, Executed, FlushAcks
from oncecast.broker.service import ACKS_IN_FLIGHT_MAX, Service
from oncecast.kernel.protocol import Ask, Emit, Later, NodeId
from oncecast.replication.events import Decided, LeaderChanged, Propose
from oncecast.wire import commands as do
from oncecast.wire.errors import TooLarge
from oncecast.wire.limits import Limits
from oncecast.wire.results import TopicCreated
from oncecast.wire.retention import Policy
from tests.broker.desk import ANN, BOB, Alone, Desk, fetch, packed, producing, put, reading, values

ME = NodeId("node")
encode = msgspec.msgpack.encode


def bare() -> Service:
    rng = Random(0)
    # These limits are current, so none are proposed.
    service = Service(ME, rng, group=Alone(), epoch_us=7, limits=Limits())
    service.observe(LeaderChanged(ME))
    return service


def small(**options: int) -> Desk:
    return Desk(service={"snapshot_bytes": 20_000, **options})


def test_command_gets_a_timestamp_and_is_answered_once_decided() -> None:
    service = bare()
    service.now = 0.5
    service.request(Execute(3, do.CreateTopic("topic", at=0)))
    stamped = do.CreateTopic("topic", at=500_007)
    assert service.drain() == [Ask(Propose(1, encode(stamped)))]
    service.observe(Decided(10, encode(stamped), 1))
    assert service.drain() == [Emit(Executed(3, TopicCreated(1, already=False)))]


def test_commands_from_other_leaders_are_applied_without_an_answer() -> None:
    service = bare()
    service.observe(Decided(10, encode(do.CreateTopic("topic", at=1)), -1))
    assert service.drain() == []
    service.observe(Decided(11, encode(do.DeleteTopic("topic", at=1)), -1))
    assert service.drain() == [Emit(Changed("topic"))]
    assert service.machine.bounds("topic") == (0, 0)


def test_only_the_newest_ack_per_subscription_is_proposed() -> None:
    service = bare()
    for upto in (3, 5, 4):
        service.request(do.Ack("topic", "sub", 1, upto))
    service.request(do.Ack("topic", "sub", 2, 1))
    assert service.drain() == [Later(0.005, FlushAcks())]
    service.timeout(FlushAcks())
    acks = do.Acks((do.Ack("topic", "sub", 1, 5), do.Ack("topic", "sub", 2, 1)), at=7)
    assert service.drain() == [Ask(Propose(1, encode(acks)))]
    service.timeout(FlushAcks())
    assert service.drain() == []


def test_acks_wait_while_many_acks_are_in_flight() -> None:
    """SEC-3: a reader that acknowledges faster than the group decides cannot fill the memory."""
    service = bare()
    for upto in range(100):
        service.request(do.Ack("topic", "sub", 1, upto))
        service.timeout(FlushAcks())
    asked = [each.request for each in service.drain() if isinstance(each, Ask)]
    proposed = [each for each in asked if isinstance(each, Propose)]
    assert len(proposed) == len(service._proposed) == ACKS_IN_FLIGHT_MAX
    service.observe(Decided(10, proposed[0].value, proposed[0].token))
    newest = do.Acks((do.Ack("topic", "sub", 1, 99),), at=7)
    assert service.drain() == [Ask(Propose(ACKS_IN_FLIGHT_MAX + 1, encode(newest)))]
    service.observe(Decided(11, proposed[1].value, proposed[1].token))
    assert service.drain() == []


def test_new_leader_can_propose_acks() -> None:
    service = bare()
    for upto in range(100):
        service.request(do.Ack("topic", "sub", 1, upto))
        service.timeout(FlushAcks())
    service.observe(LeaderChanged(NodeId("other")))
    service.observe(LeaderChanged(ME))
    service.drain()
    service.request(do.Ack("topic", "sub", 1, 100))
    service.timeout(FlushAcks())
    assert any(isinstance(each, Ask) for each in service.drain())


def test_idle_node_does_not_write_to_disk() -> None:
    desk = Desk()
    desk.call(ANN, do.CreateTopic("topic", 0, Policy(age_us=10_000_000)))
    last = desk.journal.log.last
    for _ in range(100):
        desk.pass_time(1.0)
    assert desk.journal.log.last == last


def test_messages_expire_by_age() -> None:
    """SVC-9"""
    desk = Desk()
    desk.call(ANN, do.CreateTopic("topic", 0, Policy(age_us=10_000_000)))
    desk.call(BOB, put(producing(desk), 0, b"a"))
    for second in range(15):
        assert desk.service.machine.bounds("topic") == ((0, 1) if second < 10 else (1, 1)), second
        desk.pass_time(1.0)


def test_unpublished_staged_parts_expire() -> None:
    desk = Desk(service={"limits": Limits(staged_age_us=5_000_000)})
    data = packed(b"a")
    desk.call(BOB, do.Stage("source", 0, "part", "topic", 1, len(data), 0, data))
    for _ in range(8):
        desk.pass_time(1.0)
    assert desk.service.machine.registry.staging.parts == 0


def test_restart_restores_the_state_from_log_and_snapshot() -> None:
    """SVC-10"""
    desk = small()
    reading(desk)
    epoch = producing(desk)
    for sequence in range(100):
        desk.call(BOB, put(epoch, sequence, bytes(500)))
        if sequence % 20 == 0:
            desk.pass_time(1.0)
            before = desk.service.machine.checksum()
            desk.restart()
            assert desk.service.machine.checksum() == before
    assert any(name.startswith("paxos-") for name in desk.disk.names()), "a snapshot was taken"


def read_all(desk: Desk, epoch: int, offset: int, end: int) -> None:
    while offset < end:
        got = values(desk.send(ANN, fetch(epoch, offset, ack=offset)))
        assert got == [bytes(500)] * len(got)
        offset += len(got)
    desk.send(ANN, fetch(epoch, end, ack=end, messages=0))
    desk.pass_time(1.0)


def test_disk_space_is_freed_after_messages_are_read() -> None:
    """SVC-9: the test measures the size of the log on disk."""
    desk = small()
    epoch, producer = reading(desk), producing(desk)
    most = 0
    for round_ in range(10):
        for at in range(100):
            desk.call(BOB, put(producer, 100 * round_ + at, bytes(500)))
        read_all(desk, epoch, 100 * round_, 100 * round_ + 100)
        most = max(most, desk.journal.log.last - desk.journal.log.first)
    assert most < 300


def test_slow_subscription_does_not_block_freeing_disk_space() -> None:
    desk = small()
    slow = reading(desk, ANN, "slow")
    desk.call(BOB, put(producing(desk, BOB, "slow"), 0, b"old", topic="slow"))
    data = packed(b"part")
    desk.call(BOB, do.Stage("source", 0, "part", "slow", 1, len(data), 0, data))
    epoch, producer = reading(desk), producing(desk)
    for round_ in range(10):
        for at in range(100):
            desk.call(BOB, put(producer, 100 * round_ + at, bytes(500)))
        read_all(desk, epoch, 100 * round_, 100 * round_ + 100)
    assert desk.journal.log.first > 500
    desk.restart()
    desk.call(BOB, do.PublishStaged("source", 0, ("part",), 0))
    assert values(desk.send(ANN, fetch(slow, 0, topic="slow"))) == [b"old", b"part"]


def test_recent_batches_are_cached() -> None:
    desk = Desk(service={"recent_bytes": 2000})
    epoch, producer = reading(desk), producing(desk)
    for sequence in range(20):
        desk.call(BOB, put(producer, sequence, bytes(500)))
    assert len(values(desk.send(ANN, fetch(epoch, 0)))) == 20
    assert len(desk.service._recent._sources) == 2


def test_lower_batch_limit_does_not_affect_stored_messages() -> None:
    """SVC-10: settings may change between two starts; acknowledged messages stay."""
    desk = small()
    reading(desk)
    epoch = producing(desk)
    for sequence in range(3):
        desk.call(BOB, put(epoch, sequence, bytes(1000)))
    desk.restart(limits=Limits(batch_bytes_max=500))
    assert desk.service.machine.bounds("topic") == (0, 3)
    assert desk.call(BOB, put(epoch, 3, bytes(1000))) == TooLarge("bytes", 500)


def test_old_unread_messages_do_not_cause_disk_writes() -> None:
    """SVC-9"""
    desk = small()
    desk.call(ANN, do.CreateTopic("topic", 0, Policy(age_us=1_000_000)))
    reading(desk)
    desk.call(BOB, put(producing(desk), 0, b"old"))
    last = desk.journal.log.last
    for _ in range(20):
        desk.pass_time(1.0)
    assert desk.journal.log.last == last
