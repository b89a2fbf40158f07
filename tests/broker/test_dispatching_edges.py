"""The dispatcher when leaders change, permissions end or batches are missing (WRK)."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from oncecast.broker import letters, moves
from oncecast.broker.dispatching import BURY_MIN, GRACE, Dispatcher
from oncecast.broker.events import Dispatched, Execute, Executed, WorkLeaseDue
from oncecast.broker.holdings import PeerGroup
from oncecast.broker.service import NO_ASKER, Service
from oncecast.dht.identifiers import key_of
from oncecast.errors import Corrupt
from oncecast.kernel.protocol import Ask, Emit, Later, NodeId, Send, Watch
from oncecast.replication.events import Decided, LeaderChanged, Mended, Missing, Propose
from oncecast.wire import batch, errors
from oncecast.wire import commands as do
from oncecast.wire.batch_layout import HEADERS_MAX
from oncecast.wire.frames import Chunk, Elsewhere, Jobs, Look, View, Work, WorkEnded
from oncecast.wire.results import Settled, SettlesDone
from oncecast.wire.sharing import (
    DEAD_DETAIL,
    DEAD_HEADERS,
    DEAD_OFFSET,
    DEAD_REASON,
    DEAD_TOPIC,
    Settle,
    Shared,
)
from tests.broker.desk import ANN, BOB, ME, Alone, packed
from tests.broker.guarded_desk import ROOT, GuardedDesk
from tests.broker.test_dispatching import CAT, SETTINGS, S, SharedNode, offsets, token
from tests.broker.test_levels import decide

OTHER, THIRD = NodeId("other"), NodeId("third")
WHERE = ("topic", "sub")
DEAD = "{topic}.dead.sub"
LONG = Shared(lease_us=3600 * S, backoff_min_us=S)
DAMAGE = Corrupt("0001.log", 17, 2, 2, "checksum")


class LeasedGroup(Alone):
    """A stub replica group whose leader may have lost its lease."""

    level = 2
    leased = True

    def leads(self, now: float) -> bool:
        return self.leased


class Office:
    """A dispatcher without a stack, on a node that leads a group with a shared subscription."""

    def __init__(self) -> None:
        self.group = LeasedGroup()
        self.service = Service(ME, Random(0), group=self.group, level=2)
        self.service.observe(LeaderChanged(ME))
        decide(self.service, 1, do.SetLimits(self.service.machine.registry.limits, 2))
        decide(self.service, 2, do.SubscribeShared(*WHERE, do.FromNew(), 0, SETTINGS))
        self.service.drain()
        self.dispatcher = Dispatcher(ME, Random(0), service=self.service)

    def work(self, client: NodeId = ANN) -> list[Any]:
        self.dispatcher.receive(client, Work(*WHERE, f"of {client}", 10))
        return self.dispatcher.drain()

    def lead(self, leader: NodeId) -> list[Any]:
        self.service.observe(LeaderChanged(leader))
        self.service.drain()
        self.dispatcher.observe(LeaderChanged(leader))
        return self.dispatcher.drain()


def observe(node: SharedNode, event: Mended) -> None:
    """Pass an event to the dispatcher, as another protocol of its stack does."""
    node.stack.effects.clear()
    node.dispatcher.observe(event)
    node._do(node.stack.finish(node.now))


def execute(node: SharedNode, command: moves.AnyCommand) -> None:
    node._do(node.stack.request(node.now, Execute(NO_ASKER, command)))


def dead_letters(node: SharedNode) -> list[batch.Message]:
    machine, found = node.service.machine, list[batch.Message]()
    for extent in machine.fetch(DEAD, 0, 1 << 20, 1 << 30):
        stored = node.service.stored_batch(extent.slot, DEAD)
        found += batch.messages(
            stored.batch, topic=DEAD, offset=extent.offset, producer="", sequence=0
        )
    return found


# Leaders.


def test_connection_of_a_worker_is_watched_once() -> None:
    """WRK-1: otherwise the messages of a disconnected worker would stay leased."""
    office = Office()
    assert office.work() == [Watch(ANN)]
    assert office.work() == []
    assert office.work(CAT) == [Watch(CAT)]


def test_request_of_a_worker_waits_until_the_leader_has_its_lease() -> None:
    """WRK-1: a deposed leader would send messages that another worker may hold."""
    office = Office()
    office.group.leased = False
    assert office.work() == [Later(0.02, WorkLeaseDue())]
    assert office.dispatcher.crews.places() == []
    office.group.leased = True
    office.dispatcher.timeout(WorkLeaseDue())
    assert office.dispatcher.drain() == [Watch(ANN)]


def test_worker_that_disconnects_before_the_leader_has_its_lease_is_forgotten() -> None:
    """WRK-1: messages that are leased to it would wait for the end of their leases."""
    office = Office()
    office.group.leased = False
    office.work()
    office.dispatcher.down(ANN)
    office.group.leased = True
    office.dispatcher.timeout(WorkLeaseDue())
    assert office.dispatcher.drain() == []
    assert office.dispatcher.crews.places() == []


def test_workers_are_sent_to_a_new_leader_once() -> None:
    """WRK-1: they would wait for messages from a follower."""
    office = Office()
    office.work(ANN)
    office.work(CAT)
    away = Elsewhere(OTHER, (ME,))
    assert office.lead(OTHER) == [Send(ANN, away), Send(CAT, away)]
    assert office.lead(THIRD) == []
    office.lead(ME)
    assert office.dispatcher.crews.places() == []


def test_settlement_of_an_earlier_term_does_not_hold_up_later_ones() -> None:
    """WRK-2: the command of the earlier term may never be decided."""
    office = Office()
    service = office.service
    first, second = (Settle(*WHERE, "w", number, ((1, 0, 1),)) for number in (1, 2))
    service.request(Execute(7, first))
    office.lead(OTHER)
    service.observe(LeaderChanged(ME))
    service.drain()
    service.request(Execute(8, second))
    effects: list[Any] = service.drain()
    ((token_, value),) = [
        (each.request.token, each.request.value)
        for each in effects
        if isinstance(each, Ask) and isinstance(each.request, Propose)
    ]
    settles = msgspec.msgpack.decode(value, type=moves.AnyCommand)
    assert isinstance(settles, do.Settles)
    assert settles.settles == (second,)
    service.observe(Decided(3, value, token_))
    answered = Settled(0, ((1, 0, 1),))
    assert service.drain() == [
        Emit(Dispatched(settles, SettlesDone((answered,)))),
        Emit(Executed(8, answered)),
    ]


def test_jobs_that_are_sent_again_contain_the_time_left() -> None:
    """WRK-1: a worker must not believe that its lease is longer than it is."""
    node = SharedNode()
    node.fill(b"a")
    node.work()
    node.pass_time(4.0)
    (jobs,) = node.work(seen=0)
    assert isinstance(jobs, Jobs)
    assert (jobs.lease_us, jobs.renewal_us) == (6 * S, 10 * S)


# Connections.


def test_worker_on_a_new_connection_keeps_its_messages_when_the_old_one_ends() -> None:
    """WRK-1"""
    node = SharedNode(LONG)
    node.fill(b"a")
    seen = token(node.work(ANN))
    assert node.send(CAT, Work(*WHERE, f"of {ANN}", 10, seen)) == []
    node.leave(ANN)
    node.pass_time(GRACE)
    node.pass_time(2.0)
    queue = node.service.machine.registry.topics["topic"].subscriptions["sub"].queue
    assert queue is not None
    assert list(queue.held(f"of {ANN}")) == [(seen, [0])]
    node.fill(b"b")
    assert offsets(node.took(CAT)) == [1]


def test_only_worker_that_disconnects_while_its_lease_is_decided_loses_it_after_a_while() -> None:
    """WRK-1"""
    node = SharedNode(LONG)
    node.fill(b"a")
    node.waiting = True
    node.work(ANN)
    node.leave(ANN)
    node.pass_time(1.1)  # The leader forgets workers that hold nothing.
    node.sync()
    node.pass_time(GRACE)
    node.pass_time(1.1)  # the backoff
    assert offsets(node.work(CAT)) == [0]


def test_retry_is_delivered_as_soon_as_it_is_due() -> None:
    """WRK-2: the timer was set for a later check."""
    node = SharedNode()
    node.fill(b"a")
    node.pass_time(0.02)
    node.settle(release=((token(node.work()), 0, 1, S // 5, ""),))
    node.pass_time(0.2)
    assert offsets(node.took(ANN)) == [0]


# Changes of topics, subscriptions and rules.


def test_workers_are_notified_when_the_topic_is_deleted() -> None:
    node = SharedNode()
    node.work(ANN)
    node.call(BOB, do.DeleteTopic("topic", 0))
    gone = errors.NoSuchTopic("topic")
    assert node.took(ANN) == [WorkEnded(*WHERE, f"of {ANN}", gone)]


def test_workers_are_notified_when_the_topic_moves() -> None:
    """WRK-1: they ask the importer, instead of waiting for the end of their patience."""
    node = SharedNode()
    node.work(ANN)
    execute(node, moves.Found("g-2", True))
    execute(node, moves.Freeze("m", key_of("g-2"), PeerGroup("g-a", ())))
    ended = [each for each in node.took(ANN) if isinstance(each, WorkEnded)]
    assert ended == [WorkEnded(*WHERE, f"of {ANN}", errors.NotHere("topic"))]


def test_worker_gets_messages_at_once_after_a_seek() -> None:
    node = SharedNode()
    node.fill(b"a", b"b")
    node.work()
    node.call(BOB, do.Seek(*WHERE, do.FromOffset(1), 0, "seek"))
    (jobs,) = node.took(ANN)
    assert offsets([jobs]) == [1]


def test_published_parts_are_delivered_at_once() -> None:
    """WRK-1"""
    node = SharedNode()
    node.work()
    data = packed(b"a", b"b")
    node.call(BOB, do.Stage("query", 1, "part", "topic", 2, len(data), 0, data))
    assert node.took(ANN) == []
    node.call(BOB, do.PublishStaged("query", 1, ("part",), 0))
    assert offsets(node.took(ANN)) == [0, 1]


def test_dead_letters_are_delivered_at_once_to_workers_of_the_dead_letter_topic() -> None:
    """WRK-6"""
    node = SharedNode()
    node.call(BOB, do.SubscribeShared(DEAD, "dead", do.FromNew(), 0))
    node.send(CAT, Work(DEAD, "dead", "of cat", 10))
    node.fill(b"a")
    node.settle(reject=((token(node.work()), 0, 1, ""),))
    assert offsets(node.took(CAT)) == [0]


def test_worker_without_permission_loses_its_messages_at_once() -> None:
    """WRK-1 SEC-2"""
    desk = GuardedDesk()
    desk.secure()
    for name in ("ann", "bob"):
        desk.allow(name, "read", topic="topic")
        desk.allow(name, name="sub")
    desk.call(ROOT, do.SubscribeShared(*WHERE, do.FromNew(), 0, LONG))
    opened = desk.call(ROOT, do.OpenProducer("topic", "p", "inc-1", 0))
    data = packed(b"a")
    desk.call(ROOT, do.Put("topic", "p", opened.epoch, 0, 1, len(data), 0, data))
    assert offsets(desk.send(ANN, Work(*WHERE, "w", 10))) == [0]
    desk.disallow("ann", "read", topic="topic")
    assert desk.took(ANN) == [WorkEnded(*WHERE, "w", errors.Denied())]
    assert desk.send(BOB, Work(*WHERE, "v", 10)) == []
    desk.pass_time(0.1)
    desk.pass_time(1.1)  # the backoff
    assert offsets(desk.took(BOB)) == [0]


# Batches that this replica cannot read.


def test_jobs_are_sent_once_a_missing_batch_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """WRK-1: the worker holds a lease on messages that it has not got."""
    node = SharedNode()
    read = letters.chunks_from

    def missing(*_: Any) -> list[Any]:
        raise Missing(1)

    monkeypatch.setattr(letters, "chunks_from", missing)
    node.fill(b"a")
    assert node.work() == []
    monkeypatch.setattr(letters, "chunks_from", read)
    observe(node, Mended(1))
    assert offsets(node.took(ANN)) == [0]
    observe(node, Mended(1))
    assert node.took(ANN) == []


def test_retry_does_not_wait_for_a_missing_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """WRK-2 WRK-4"""
    node = SharedNode(Shared(by_key=True))
    node.fill_keys(b"k")
    jobs = node.work()
    monkeypatch.setattr(letters, "keys_from", lambda *_: [])
    node.fill_keys(b"l")
    node.settle(release=((token(jobs), 0, 1, S, ""),))
    node.pass_time(1.0)
    assert offsets(node.took(ANN)) == [0]


def unreadable(node: SharedNode, slot: int) -> None:
    """Make the batch in this slot unreadable on all replicas."""
    read = node.service.stored_batch

    def stored_batch(wanted: int, topic: str = "") -> Any:
        if wanted == slot:
            raise DAMAGE
        return read(wanted, topic)

    node.service.stored_batch = stored_batch  # type: ignore[method-assign, assignment]


def slot_of(node: SharedNode, offset: int) -> int:
    return node.service.machine.fetch("topic", offset, 1, 1)[0].slot


def test_worker_gets_the_messages_around_a_lost_batch() -> None:
    """WRK-2: the lost message becomes a dead letter when its lease ends."""
    node = SharedNode(replace(SETTINGS, deliveries_max=1))
    for value in (b"a", b"b", b"c"):
        node.fill(value)
    unreadable(node, slot_of(node, 1))
    jobs = node.work()
    assert offsets(jobs) == [0, 2]
    node.settle(accept=((token(jobs), 0, 1), (token(jobs), 2, 1)))
    node.pass_time(10.0)
    node.pass_time(1.0)
    (letter,) = dead_letters(node)
    assert (letter.value, letter.headers[DEAD_OFFSET]) == (b"", b"1")
    assert letter.headers[DEAD_DETAIL] == f"{letters.UNREADABLE}{DAMAGE.where}".encode()


def test_messages_of_a_lost_batch_have_no_key() -> None:
    """WRK-4: later messages would never be leased."""
    node = SharedNode(Shared(by_key=True))
    node.fill_keys(b"k")
    node.fill_keys(b"k", b"l")
    unreadable(node, slot_of(node, 0))
    assert offsets(node.work()) == [1, 2]


# Dead letters.


def test_dead_letter_of_a_retried_dead_letter_has_only_its_own_headers() -> None:
    """WRK-2: a message that was put back with its headers dies again."""
    node = SharedNode()
    old = {"own": b"x", DEAD_DETAIL: b"old", DEAD_REASON: b"old", DEAD_TOPIC: b"old"}
    data = batch.encode([b"v"], timestamps=0, headers=[old])
    node.call(BOB, do.Put("topic", "p", node.epoch, 0, 1, len(data), 0, data))
    node.settle(reject=((token(node.work()), 0, 1, ""),))
    (letter,) = dead_letters(node)
    assert letter.headers["own"] == b"x"
    assert (letter.headers[DEAD_REASON], letter.headers[DEAD_TOPIC]) == (b"rejected", b"topic")
    assert DEAD_DETAIL not in letter.headers


def test_dead_letter_of_a_message_with_many_headers_leaves_out_the_last_ones() -> None:
    """WRK-2: a message with too many headers could never become a dead letter."""
    node = SharedNode()
    own = {f"h{number:05}": b"" for number in range(HEADERS_MAX)}
    data = batch.encode([b"v"], timestamps=0, headers=[own])
    node.call(BOB, do.Put("topic", "p", node.epoch, 0, 1, len(data), 0, data))
    node.settle(reject=((token(node.work()), 0, 1, "bad"),))
    (letter,) = dead_letters(node)
    assert len(letter.headers) == HEADERS_MAX
    assert [*letter.headers] == [*list(own)[: HEADERS_MAX - 6], *sorted_headers(letter.headers)]


def sorted_headers(headers: Any) -> list[str]:
    return [name for name in headers if name in DEAD_HEADERS]


def test_letter_that_is_too_large_does_not_hold_up_smaller_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """WRK-2"""
    add = letters.add_letter

    def add_letter(builder: Any, service: Any, topic: Any, sub: str, queue: Any, at: int) -> None:
        if at == 0:
            raise batch.Oversized("too large")
        add(builder, service, topic, sub, queue, at)

    monkeypatch.setattr(letters, "add_letter", add_letter)
    node = SharedNode()
    node.fill(b"a", b"b", b"c")
    node.settle(reject=((token(node.work()), 0, 3, ""),))
    assert [each.value for each in dead_letters(node)] == [b"b", b"c"]
    assert node.service.machine.bounds("topic") == (0, 3)


def test_dead_letter_write_waits_for_a_missing_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """WRK-2"""
    node = SharedNode()
    node.fill(b"a")
    jobs = node.work()
    read = letters.letter

    def missing(*_: Any) -> str:
        raise Missing(1)

    monkeypatch.setattr(letters, "letter", missing)
    node.settle(reject=((token(jobs), 0, 1, ""),))
    assert dead_letters(node) == []
    monkeypatch.setattr(letters, "letter", read)
    observe(node, Mended(1))
    assert [each.value for each in dead_letters(node)] == [b"a"]


def test_dead_letter_write_is_retried_after_the_dead_letter_topic_changes() -> None:
    """WRK-2: the leader proposes a letter for the old topic while the settings change."""
    node = SharedNode()
    node.call(BOB, do.CreateTopic("failed", 0))
    node.call(BOB, do.Subscribe("failed", "reader", do.FromNew(), 0))
    node.fill(b"a")
    jobs = node.work()
    node.waiting = True
    changed = do.SubscribeShared(*WHERE, do.FromNew(), 0, replace(SETTINGS, dead_letters="failed"))
    execute(node, changed)
    reject = Settle(*WHERE, f"of {ANN}", 1, reject=((token(jobs), 0, 1, ""),))
    execute(node, reject)  # type: ignore[arg-type]
    node.sync()
    node.pass_time(BURY_MIN)
    assert node.service.machine.bounds("failed") == (0, 1)
    assert node.service.machine.bounds(DEAD) == (0, 0)


def test_part_of_a_large_batch_keeps_its_headers() -> None:
    values = [bytes([n]) * 100 for n in range(100)]
    headers = [{"number": b"%d" % n} for n in range(100)]
    whole = batch.encode(values, timestamps=0, headers=headers)
    cut = letters.narrowed(Chunk(15, 5, 2, "p", 25, whole))
    found = batch.messages(cut.batch, topic="t", offset=15, producer="p", sequence=25)
    assert [each.headers for each in found] == headers[5:7]


def test_neighbours_with_different_delivery_counts_arrive_in_separate_chunks() -> None:
    """WRK-2"""
    node = SharedNode(Shared(backoff_min_us=0, backoff_max_us=0))
    node.fill(b"a", b"b", b"c")
    jobs = node.work()
    node.send(ANN, Work(*WHERE, f"of {ANN}", 0, token(jobs)))
    node.settle(release=((token(jobs), 1, 1, 0, ""),), unused=((token(jobs), 0, 1),))
    again = node.work(seen=token(jobs))
    found = [
        (chunk.offset, chunk.count, count)
        for each in again
        if isinstance(each, Jobs)
        for chunk, count in zip(each.chunks, each.deliveries, strict=True)
    ]
    assert found == [(0, 1, 1), (1, 1, 2)]


def test_view_counts_blocked_messages_as_waiting() -> None:
    """WRK-4 WRK-6"""
    node = SharedNode(Shared(by_key=True))
    node.fill_keys(b"k", b"k", b"l")
    node.work()
    (view,) = [each for each in node.send(BOB, Look(1, "topic")) if isinstance(each, View)]
    shared = view.topics[0].subscriptions[0].shared
    assert shared is not None
    assert (shared.leased, shared.waiting, shared.dead) == (2, 1, 0)
