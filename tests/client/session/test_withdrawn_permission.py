"""The permission to put is withdrawn while a client retries puts that are already stored."""

from __future__ import annotations

from oncecast.client.session import local
from oncecast.kernel.protocol import Value
from oncecast.wire import commands as do
from oncecast.wire.errors import Denied, Forgotten
from oncecast.wire.frames import Answer, Call
from tests.broker.desk import BOB
from tests.broker.guarded_desk import ROOT, GuardedDesk
from tests.client.session.lone import Lone, packed


def guarded() -> GuardedDesk:
    """Return a node on which bob may put to a topic that keeps its messages."""
    desk = GuardedDesk()
    desk.secure()
    desk.call(ROOT, do.Subscribe("topic", "s", do.FromEarliest(), 0))
    desk.allow("bob", "put", topic="topic")
    desk.allow("bob", name="p")
    return desk


def calls(lone: Lone) -> list[Call]:
    return [each for each in lone.sent if isinstance(each, Call)]


def talk(lone: Lone, desk: GuardedDesk) -> list[Value]:
    """Forward the client's calls until none are left, and return its events."""
    reported = lone.events
    while some := calls(lone):
        for answer in desk.send(BOB, some[0]):
            lone.hear(answer)
            reported += lone.events
    return reported


def stored() -> tuple[GuardedDesk, Lone]:
    """Return a client with two stored puts that have not been answered."""
    desk = guarded()
    lone = Lone().start().ask(local.Produce(1, "topic", 1, packed(b"a")))
    (opened,) = desk.send(BOB, lone.call)
    puts = lone.hear(opened).sent
    puts += lone.ask(local.Produce(2, "topic", 1, packed(b"b"))).sent
    for each in puts:
        desk.send(BOB, each)
    assert desk.service.machine.bounds("topic") == (0, 2)
    return desk, lone


def deny_first(desk: GuardedDesk, lone: Lone) -> None:
    """Withdraw the permission until the node has refused the client's first call."""
    desk.disallow("bob", "put", topic="topic")
    (denied,) = desk.send(BOB, calls(lone.wait(10.0))[0])
    assert isinstance(denied, Answer)
    assert denied.result == Denied()
    desk.allow("bob", "put", topic="topic")
    lone.hear(denied)


def refused_copy() -> None:
    desk, lone = stored()
    deny_first(desk, lone)
    assert talk(lone, desk) == [local.Stored(1, -1, None), local.Stored(2, 1, None)]
    assert desk.service.machine.bounds("topic") == (0, 2)


def test_stored_put_is_not_reported_as_denied_or_stored_again() -> None:
    """SVC-2: refusing one copy says nothing about an earlier copy."""
    refused_copy()


def test_refused_put_is_reported_if_no_copy_is_stored() -> None:
    """SVC-7: the puts behind it are stored once."""
    desk = guarded()
    lone = Lone().start().ask(local.Produce(1, "topic", 1, packed(b"a")))
    (opened,) = desk.send(BOB, lone.call)
    lone.hear(opened).ask(local.Produce(2, "topic", 1, packed(b"b")))
    deny_first(desk, lone)
    assert talk(lone, desk) == [
        local.NotStored(1, Denied()),
        local.Stored(2, 0, kept=True),
    ]
    assert desk.service.machine.bounds("topic") == (0, 1)


def send_all(lone: Lone, desk: GuardedDesk) -> list[Value]:
    """Send all calls of the client before it gets the first answer. Return its events."""
    answers = [answer for call in calls(lone) for answer in desk.send(BOB, call)]
    events, outputs = [], []
    for answer in answers:
        outputs += lone.hear(answer).outputs
        events += lone.events
    lone.outputs = outputs
    return events


def resent_after_a_refusal() -> None:
    desk = guarded()
    lone = Lone().start().ask(local.Produce(1, "topic", 1, packed(b"a")))
    (opened,) = desk.send(BOB, lone.call)
    lone.hear(opened)
    sent = [lone.ask(local.Produce(each, "topic", 1, packed(b"b"))).call for each in (2, 3, 4)]
    repeated = calls(lone.wait(10.0))[0]
    desk.disallow("bob", "put", topic="topic")
    denied = [answer for call in (sent[1], repeated) for answer in desk.send(BOB, call)]
    desk.allow("bob", "put", topic="topic")
    for answer in denied:
        lone.hear(answer)
    events = []
    while calls(lone):
        events += send_all(lone, desk)
    assert events == [
        local.NotStored(1, Denied()),
        local.Stored(2, 0, kept=True),
        local.Stored(3, 1, kept=True),
        local.Stored(4, 2, kept=True),
    ]
    assert desk.service.machine.bounds("topic") == (0, 3)


def test_put_that_is_sent_again_after_a_refusal_is_reported_as_stored() -> None:
    """SVC-2 SVC-7: the put behind it is stored once. A sent put is judged by its own answer."""
    resent_after_a_refusal()


def test_put_outcome_is_unknown_after_permission_is_withdrawn() -> None:
    """SVC-2"""
    desk, lone = stored()
    desk.disallow("bob", "put", topic="topic")
    lone.wait(10.0)
    unknown = Forgotten("topic", "p")
    assert talk(lone, desk) == [local.NotStored(1, unknown), local.NotStored(2, unknown)]
