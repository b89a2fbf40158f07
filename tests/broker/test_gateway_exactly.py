"""Test the exact effects of the gateway at its limits and when it loses its lease."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from random import Random
from typing import Any

import pytest

from oncecast.broker import gateway as gateway_module
from oncecast.broker.accounts import Budget
from oncecast.broker.delivery import Flows
from oncecast.broker.events import Changed, Executed, LeaseDue, Pump
from oncecast.broker.gateway import Gateway
from oncecast.broker.service import Service
from oncecast.errors import Corrupt
from oncecast.kernel.protocol import Ask, Later, NodeId, Send
from oncecast.replication.events import LeaderChanged, Mended, Missing
from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire.frames import Answer, Call, Delivery, Elsewhere, FlowEnded, Look, View
from oncecast.wire.limits import Limits
from oncecast.wire.results import Staged, TopicDeleted
from tests.broker.desk import ANN, BOB, ME, Alone, fetch, packed, put
from tests.broker.test_gateway_flows import filled

OTHER = NodeId("other")
DELETE = do.DeleteTopic("topic", 0)


class Group(Alone):
    """A group whose lease the test controls."""

    leased = True

    def leads(self, now: float) -> bool:
        return self.leased

    def follows(self, now: float) -> bool:
        return False


def bare(limits: Limits | None = None, **options: Any) -> Gateway:
    service = Service(ME, Random(0), group=Group())
    service.observe(LeaderChanged(ME))
    service.machine.registry.limits = limits or Limits()
    return Gateway(ME, Random(0), service=service, **options)


def flowing(count: int = 3, **options: Any) -> tuple[Gateway, int]:
    """Return a gateway whose topic has one-letter batches, and the epoch of its reader."""
    desk, epoch = filled(count, **options)
    group = Group()
    desk.service.group = group
    desk.gateway.drain()
    return desk.gateway, epoch


def lease(gateway: Gateway, lease_queue: bool) -> None:
    group = gateway._service.group
    assert isinstance(group, Group)
    group.leased = lease_queue


def offsets(effects: list[Any]) -> list[int]:
    deliveries = [each.message for each in effects if isinstance(each, Send)]
    return [
        chunk.offset for each in deliveries if isinstance(each, Delivery) for chunk in each.chunks
    ]


# -- limits --


def test_gateway_has_the_expected_default_limits() -> None:
    """SVC-7"""
    gateway = bare()
    assert gateway.accounts.budget == Budget(
        calls=10_000, bytes=64 << 20, rate=inf, total_bytes=512 << 20
    )
    assert (gateway._delivery_bytes, gateway._window_bytes) == (1 << 20, 8 << 20)
    assert gateway._free_disk_bytes_min == 8 << 20


def test_batch_at_the_limit_is_accepted() -> None:
    """SVC-7: a larger batch is refused before it is executed."""
    size = len(packed(b"x"))
    for limit, taken in ((size, True), (size - 1, False)):
        gateway = bare(Limits(batch_bytes_max=limit))
        gateway.receive(ANN, Call(1, put(1, 0, b"x")))
        _, effect = gateway.drain()
        assert isinstance(effect, Ask) == taken
        assert taken or effect == Send(ANN, Answer(1, errors.TooLarge("bytes", limit)))


def test_total_bytes_of_concurrent_calls_are_limited() -> None:
    """SVC-7: calls without messages use no bytes."""
    size = len(packed(b"x"))
    gateway = bare(budget=Budget(bytes=2 * size))
    gateway.receive(ANN, Call(1, DELETE))
    assert gateway._clients[ANN].bytes == 0
    for id in (2, 3, 4):
        gateway.receive(ANN, Call(id, put(1, id, b"x")))
    refused = Answer(4, errors.Overloaded("bytes in flight from one client"))
    assert [each for each in gateway.drain() if isinstance(each, Send)] == [Send(ANN, refused)]
    assert (gateway._clients[ANN].bytes, gateway.refused) == (2 * size, 1)


def test_disk_counts_as_full_below_the_reserved_space() -> None:
    """SVC-7: staging the same part again is still answered."""
    gateway = bare(free_disk_bytes_min=100)
    for space, full in ((100, False), (99, True)):
        gateway.free_disk_bytes = lambda space=space: space
        assert gateway.disk_is_full == full
    data = packed(b"x")
    stage = do.Stage("query", 0, "part", "topic", 1, len(data), 0, data)
    gateway.receive(ANN, Call(1, stage))
    gateway._service.machine.apply(1, stage)
    gateway.receive(ANN, Call(2, stage))
    gateway.receive(ANN, Call(3, do.Put("topic", "p", 1, 0, 1, len(data), 0, data)))
    refused = errors.Overloaded(errors.DISK)
    assert [each for each in gateway.drain() if isinstance(each, Send)] == [
        Send(ANN, Answer(1, refused)),
        Send(ANN, Answer(2, Staged(already=True))),
        Send(ANN, Answer(3, refused)),
    ]


def test_view_shows_at_least_one_topic_and_whether_more_exist() -> None:
    """SVC-1"""
    assert gateway_module.LOOK_MAX == 100
    gateway = bare()
    for slot, name in enumerate("abc"):
        gateway._service.machine.apply(slot, do.CreateTopic(name, 0))
    shown = []
    for limit in (0, 1, 2, 3, 4):
        gateway.receive(ANN, Look(1, limit=limit))
        (view,) = [each.message for each in gateway.drain() if isinstance(each, Send)]
        assert isinstance(view, View)
        shown.append((len(view.topics), view.more))
    assert shown == [(1, True), (1, True), (2, True), (3, False), (3, False)]


def test_lag_counts_only_kept_messages() -> None:
    """SVC-9: dropped messages do not count."""
    gateway, _ = flowing(3)
    topic = gateway._service.machine.registry.topics["topic"]
    topic.index.drop_below(2)
    view = gateway_module.topic_view(topic, True, Flows())
    assert [each.lag for each in view.subscriptions] == [1]
    topic.subscriptions["sub"].cursor = 3
    view = gateway_module.topic_view(topic, True, Flows())
    assert [each.lag for each in view.subscriptions] == [0]


# -- calls --


def test_result_for_another_layer_is_ignored() -> None:
    """SVC-1"""
    gateway = bare()
    gateway.observe(Executed(99, TopicDeleted(already=True)))
    assert gateway.drain() == []


def test_answers_to_puts_are_not_retained() -> None:
    """SVC-2: a repeated put is recognized by its sequence."""
    assert gateway_module.ANSWERED_MAX == 1000
    gateway = bare()
    for id, command in ((1, DELETE), (2, put(1, 0, b"x"))):
        gateway.receive(ANN, Call(id, command))
        gateway.observe(Executed(id, TopicDeleted(already=True)))
    assert list(gateway._clients[ANN].answered) == [1]
    gateway.receive(BOB, Call(1, DELETE))
    gateway.down(BOB)
    gateway.drain()
    gateway.observe(Executed(3, TopicDeleted(already=True)))
    assert gateway.drain() == []


# -- leading --


def test_clients_learn_that_this_node_leads_and_their_calls_continue() -> None:
    """REP-5"""
    gateway = bare()
    gateway.receive(ANN, Call(1, DELETE))
    gateway.drain()
    gateway.observe(LeaderChanged(ME))
    assert gateway.drain() == [Send(ANN, Elsewhere(ME, (ME,)))]
    gateway.observe(Executed(1, TopicDeleted(already=True)))
    assert gateway.drain() == [Send(ANN, Answer(1, TopicDeleted(already=True)))]


def test_calls_in_flight_are_dropped_when_another_node_leads() -> None:
    """REP-5"""
    gateway, epoch = flowing()
    gateway.receive(ANN, fetch(epoch, 3))
    lease(gateway, lease_queue=False)
    gateway.observe(Changed("topic"))
    gateway.receive(ME, Pump())
    gateway.receive(BOB, Call(99, put(1, 3, b"x")))
    gateway.drain()
    assert (len(gateway.flows), len(gateway._ready), len(gateway._calls)) == (1, 1, 1)
    gateway._service.observe(LeaderChanged(OTHER))
    gateway.observe(LeaderChanged(OTHER))
    elsewhere = Elsewhere(OTHER, (ME,))
    assert gateway.drain() == [Send(ANN, elsewhere), Send(BOB, elsewhere)]
    assert (len(gateway.flows), gateway._ready, gateway._calls) == (0, {}, {})
    assert [(state.calls, state.bytes) for state in gateway._clients.values()] == [({}, 0)] * 2


def test_flow_continues_when_the_lease_is_renewed() -> None:
    """REP-5: no message is delivered without a lease."""
    gateway, epoch = flowing()
    lease(gateway, lease_queue=False)
    flow = gateway._flow(ANN, fetch(epoch, 0))
    flow.renew(0, 10, 1000)
    gateway._serve(flow)
    assert gateway.drain() == [Later(0.02, LeaseDue())]
    gateway.timeout(LeaseDue())
    assert gateway.drain() == [Send(ME, Pump())]
    gateway.receive(ME, Pump())
    assert gateway.drain() == [Later(0.02, LeaseDue())]
    lease(gateway, lease_queue=True)
    gateway.timeout(LeaseDue())
    gateway.receive(ME, Pump())
    assert offsets(gateway.drain()) == [0, 1, 2]
    gateway.timeout(LeaseDue())
    assert gateway.drain() == []


# -- flows --


def test_flow_at_the_end_of_the_topic_waits() -> None:
    """SVC-4"""
    gateway, epoch = flowing(1)
    gateway.receive(ANN, fetch(epoch, 0))
    assert [type(each) for each in gateway.drain()] == [Send]
    gateway.receive(ANN, fetch(epoch, 1))
    assert gateway.drain() == []


@pytest.mark.parametrize(
    ("messages", "size", "delivered"),
    [(0, 1000, []), (-5, 1000, []), (1, 0, []), (1, -5, []), (1, 1, [2])],
)
def test_flow_without_credit_delivers_no_messages(
    messages: int, size: int, delivered: list[int]
) -> None:
    """SVC-3: such a flow does not even report dropped messages."""
    gateway, epoch = flowing()
    gateway._service.machine.registry.topics["topic"].index.drop_below(2)
    gateway.receive(ANN, fetch(epoch, 0, messages=messages, size=size))
    assert offsets(gateway.drain()) == delivered
    if not delivered:
        flow = gateway.flows.find("topic", "sub")
        assert flow is not None
        assert (flow.messages_left, flow.bytes_left) == (max(messages, 0), max(size, 0))


def test_window_with_one_free_byte_accepts_one_batch() -> None:
    """SVC-3"""
    size = len(packed(b"a"))
    for window, delivered in ((size, [0]), (size + 1, [0, 1])):
        gateway, epoch = flowing(gateway={"window_bytes": window, "delivery_bytes": 1})
        gateway.receive(ANN, fetch(epoch, 0))
        found = offsets(gateway.drain())
        gateway.receive(ME, Pump())
        assert found + offsets(gateway.drain()) == delivered


def test_offset_is_not_checked_for_a_fenced_reader() -> None:
    """SVC-7"""
    gateway, epoch = flowing()
    gateway.receive(ANN, fetch(epoch + 1, 99))
    fenced = errors.Fenced(epoch)
    assert gateway.drain() == [Send(ANN, FlowEnded("topic", "sub", epoch + 1, fenced))]


def test_flow_to_a_fenced_reader_ends_before_the_last_message() -> None:
    """SVC-8"""
    gateway, epoch = flowing()
    gateway.receive(ANN, fetch(epoch, 3))
    flow = gateway.flows.find("topic", "sub")
    assert flow is not None
    flow.renew(0, 10, 1000)
    machine = gateway._service.machine
    machine.apply(machine.registry.last_slot + 1, do.Attach("topic", "sub", "inc-2"))
    gateway.drain()
    gateway._serve(flow)
    fenced = errors.Fenced(machine.registry.last_epoch)
    assert gateway.drain() == [Send(ANN, FlowEnded("topic", "sub", epoch, fenced))]


def unreadable(error: Exception) -> Callable[[int, str], None]:
    def source(slot: int, topic: str) -> None:
        raise error

    return source


def test_flow_waits_for_a_batch_from_another_replica(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SVC-10"""
    gateway, epoch = flowing(1)
    with monkeypatch.context() as patched:
        patched.setattr(gateway._service, "stored_batch", unreadable(Missing(3)))
        gateway.receive(ANN, fetch(epoch, 0))
    assert gateway.drain() == []
    assert len(gateway._unreadable) == 1
    gateway.observe(Mended(3))
    assert gateway.drain() == [Send(ME, Pump())]
    assert gateway._unreadable == {}
    gateway.receive(ME, Pump())
    assert offsets(gateway.drain()) == [0]


def test_flow_ends_at_a_batch_that_no_replica_can_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """SVC-10: the error names the offset, and the reader may skip it."""
    gateway, epoch = flowing()
    damage = Corrupt("0001.log", 17, 2, 2, "checksum")
    monkeypatch.setattr(gateway._service, "stored_batch", unreadable(damage))
    gateway.receive(ANN, fetch(epoch, 1))
    why = errors.BadBatch("offset 1 of topic 'topic' is lost: 0001.log: checksum at byte 17")
    assert gateway.drain() == [Send(ANN, FlowEnded("topic", "sub", epoch, why))]
    assert len(gateway.flows) == 0


def test_disconnected_client_is_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """SVC-3"""
    gateway, epoch = flowing()
    lease(gateway, lease_queue=False)
    flow = gateway._flow(ANN, fetch(epoch, 0))
    gateway._serve(flow)
    gateway._unreadable[flow] = None
    gateway.down(ANN)
    assert (gateway._ready, gateway._unreadable, len(gateway.flows)) == ({}, {}, 0)


def test_losing_all_unread_messages_is_reported_once() -> None:
    """SVC-9"""
    gateway, epoch = flowing()
    gateway._service.machine.registry.topics["topic"].index.clear()
    gateway.receive(ANN, fetch(epoch, 0))
    gone = Delivery("topic", "sub", epoch, (), suspect_below=0, next=3)
    assert gateway.drain() == [Send(ANN, gone)]
    assert gateway._clients[ANN].window.outstanding == 0
    gateway.observe(Changed("topic"))
    gateway.receive(ME, Pump())
    assert offsets(gateway.drain()) == []
    flow = gateway.flows.find("topic", "sub")
    assert flow is not None
    assert flow.next == 3
