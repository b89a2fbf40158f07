"""SVC-3: a flow tracks the next offset and the credit of a reader."""

from __future__ import annotations

import pytest

from oncecast.broker.delivery import Flow, Flows, Window, readable_subscription
from oncecast.broker.moves import Found
from oncecast.kernel.protocol import NodeId
from oncecast.wire import commands as do
from oncecast.wire.errors import (
    Fenced,
    InvalidTopic,
    NoSuchTopic,
    NotHere,
    NotSubscribed,
    Repositioned,
)
from tests.broker.machine_steps import Steps

ANN, BOB = NodeId("ann"), NodeId("bob")


def flow(window: Window | None = None, topic: str = "t", subscription: str = "s") -> Flow:
    return Flow(ANN, window or Window(), topic, subscription, 1)


def left(found: Flow) -> tuple[int, int, int, int]:
    """Return the next offset, the credit left, and all bytes in flight."""
    return found.next, found.messages_left, found.bytes_left, found.window.outstanding


def test_new_flow_has_no_credit() -> None:
    """SVC-3"""
    assert left(flow()) == (-1, 0, 0, 0)


def test_sent_messages_use_credit_until_they_arrive() -> None:
    """SVC-3"""
    found = flow()
    found.renew(10, 8, 100)
    assert left(found) == (10, 8, 100, 0)
    found.sent(12, 30)
    found.sent(15, 20)
    assert left(found) == (15, 3, 50, 50)
    found.renew(11, 8, 100)  # part of the first chunk has arrived
    assert left(found) == (15, 4, 50, 50)
    found.renew(12, 8, 100)
    assert left(found) == (15, 5, 80, 20)
    found.renew(15, 8, 100)
    assert left(found) == (15, 8, 100, 0)


@pytest.mark.parametrize("offset", [9, 10, 16])
def test_fetch_at_another_offset_resets_the_flow(offset: int) -> None:
    """SVC-3: a repeated fetch also resets the flow, because the client has received nothing."""
    found = flow()
    found.renew(10, 8, 100)
    found.sent(15, 20)
    found.renew(offset, 4, 60)
    assert left(found) == (offset, 4, 60, 0)
    found.sent(offset + 1, 7)
    assert left(found) == (offset + 1, 3, 53, 7)
    found.renew(offset + 1, 4, 60)
    assert left(found) == (offset + 1, 4, 60, 0)


def test_flows_to_the_same_client_share_its_window() -> None:
    """SVC-3"""
    window = Window()
    one, two = flow(window), flow(window, subscription="other")
    for each, size in ((one, 30), (two, 12)):
        each.renew(0, 10, 100)
        each.sent(1, size)
    assert (one.bytes_left, two.bytes_left, window.outstanding) == (70, 88, 42)
    one.forget()
    one.forget()
    assert (one.bytes_left, two.bytes_left, window.outstanding) == (100, 88, 12)


def test_credit_renewal_is_due_when_half_of_it_is_used() -> None:
    """SVC-3: the credit is 40 messages, so a renewal is due at 20."""
    found = flow()
    found.renew(100, 40, 1000)
    assert [found.soon_renewed(offset) for offset in (100, 119, 120, 140)] == [
        False,
        False,
        True,
        True,
    ]


def test_dropped_flow_is_removed_from_all_indexes() -> None:
    """SVC-3"""
    flows, windows = Flows(), (Window(), Window())
    one, two = flow(windows[0]), flow(windows[0], subscription="other")
    three = Flow(BOB, windows[1], "u", "s", 1)
    for each in (one, two, three):
        flows.add(each)
        each.renew(0, 1, 50)
        each.sent(1, 10)
        each.window.starved[each] = None
    assert (len(flows), "t" in flows, "u" in flows, "v" in flows) == (3, True, True, False)
    assert (flows.of_topic("t"), flows.of_client(ANN)) == ([one, two], [one, two])
    assert (flows.find("t", "other"), flows.find("t", "no"), flows.find("v", "s")) == (
        two,
        None,
        None,
    )
    flows.drop(one)
    assert (len(flows), "t" in flows, flows.find("t", "s")) == (2, True, None)
    assert (flows.of_topic("t"), flows.of_client(ANN)) == ([two], [two])
    assert (windows[0].outstanding, list(windows[0].starved)) == (10, [two])
    flows.drop(two)
    assert (len(flows), "t" in flows, flows.of_topic("t"), flows.of_client(ANN)) == (
        1,
        False,
        [],
        [],
    )
    assert (flows._by_topic, flows._by_client) == ({"u": {"s": three}}, {BOB: {three: None}})


def test_only_the_attached_reader_may_read() -> None:
    """SVC-8"""
    steps = Steps()
    steps.subscribe()
    machine = steps.machine
    first = steps.attach().epoch
    assert (
        readable_subscription(machine, "t", "s", first)
        is machine.registry.topics["t"].subscriptions["s"]
    )
    assert readable_subscription(machine, "no", "s", first) == NoSuchTopic("no")
    assert readable_subscription(machine, "", "s", first) == InvalidTopic()
    assert readable_subscription(machine, "t", "no", first) == NotSubscribed("t", "no")
    second = steps.attach(incarnation="other").epoch
    assert readable_subscription(machine, "t", "s", first) == Fenced(second)
    steps.apply(do.Seek("t", "s", do.FromEarliest(), 0, "token"))
    assert readable_subscription(machine, "t", "s", second) == Repositioned(second + 1, 0)
    steps.apply(do.Detach("t", "s", second + 1, 0))
    assert readable_subscription(machine, "t", "s", second + 1) == Fenced(second + 1)


def test_reading_a_topic_owned_by_another_group_returns_not_here() -> None:
    """REP-6"""
    steps = Steps()
    steps.apply(Found("g", first=False))
    assert readable_subscription(steps.machine, "t", "s", 1) == NotHere("t")
