"""Without an idle limit, a node reports no record ids, but a client still detects a deleted
record."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from oncecast.client.session import local
from oncecast.client.session.records import Based, Named, Queued
from oncecast.kernel.protocol import Value
from oncecast.wire import commands as do
from oncecast.wire.errors import Forgotten
from oncecast.wire.frames import Call
from oncecast.wire.limits import LIMITS
from tests.broker.desk import BOB, Desk
from tests.client.session.lone import Lone, packed

NEVER_IDLE = msgspec.structs.replace(LIMITS, producer_idle_us=0)
A, B = packed(b"a"), packed(b"b")


def talk(client: Lone, desk: Desk) -> list[Value]:
    """Forward the client's calls until none are left, and return its events."""
    reported = client.events
    while calls := [each for each in client.sent if isinstance(each, Call)]:
        for answer in desk.send(BOB, calls[0]):
            client.hear(answer)
            reported += client.events
    return reported


def node() -> Desk:
    """Return a node that keeps the records of idle producers and all messages of the topic."""
    desk = Desk(service={"limits": NEVER_IDLE})
    desk.call(BOB, do.Subscribe("t", "s", do.FromEarliest(), 0))
    return desk


def client(name: str, *records: Value) -> Lone:
    """Start a process with the state directory `name` and these records in its outbox."""
    lone = Lone(durable=True, incarnation=name, rng=Random(name))
    return lone.start(*records)


def stored_without_an_answer(desk: Desk) -> list[Value]:
    """Put a message whose answer is lost, kill the process, and return its outbox."""
    lone = client("first").ask(local.Produce(1, "t", 1, A))
    (opened,) = desk.send(BOB, lone.call)
    lone.hear(opened)
    records = lone.records
    desk.send(BOB, lone.call)
    assert desk.service.machine.bounds("t") == (0, 1)
    based = next(each for each in records if isinstance(each, Based))
    assert based.record == 0
    return [Named("p", "first"), Queued("t", 0, 1, 0, A), based]


def messages(desk: Desk) -> int:
    first, end = desk.service.machine.bounds("t")
    return end - first


def test_process_keeps_a_record_that_another_state_directory_needs() -> None:
    """SVC-2: the other directory still finds that its message is stored."""
    desk = node()
    outbox = stored_without_an_answer(desk)
    second = client("second").ask(local.Produce(1, "t", 1, B))
    assert talk(second, desk) == [local.Stored(1, 1, kept=True)]
    assert talk(second.ask(local.Finish(2, forget=True)), desk) == [local.AllDone(2)]
    assert "p" in desk.service.machine.registry.topics["t"].producers
    assert talk(client("first again", *outbox), desk) == [local.Stored(0, -1, None)]
    assert messages(desk) == 2


def test_process_deletes_a_record_that_no_other_state_directory_has_used() -> None:
    """SVC-9"""
    desk = node()
    lone = client("only").ask(local.Produce(1, "t", 1, A))
    talk(lone, desk)
    assert talk(lone.ask(local.Finish(2, forget=True)), desk) == [local.AllDone(2)]
    assert not desk.service.machine.registry.topics["t"].producers


@pytest.mark.parametrize("more", [False, True])
def test_message_is_not_stored_again_if_the_record_was_deleted(more: bool) -> None:
    """SVC-2: an open that expects no record and succeeds finds a new record."""
    desk = node()
    outbox = stored_without_an_answer(desk)
    epoch = desk.service.machine.registry.topics["t"].producers["p"].epoch
    desk.call(BOB, do.CloseProducer("t", "p", epoch))  # older clients send this command
    if more:
        outbox.append(Queued("t", 1, 1, 0, B))
    unknown = local.NotStored(0, Forgotten("t", "p"))
    assert talk(client("first again", *outbox), desk) == [unknown] * (1 + more)
    assert messages(desk) == 1


def test_client_stores_new_messages_after_its_record_was_deleted() -> None:
    """SVC-2 SVC-7"""
    desk = node()
    outbox = stored_without_an_answer(desk)
    epoch = desk.service.machine.registry.topics["t"].producers["p"].epoch
    desk.call(BOB, do.CloseProducer("t", "p", epoch))
    again = client("first again", *outbox)
    talk(again, desk)
    assert talk(again.ask(local.Produce(5, "t", 1, B)), desk) == [local.Stored(5, 1, kept=True)]
