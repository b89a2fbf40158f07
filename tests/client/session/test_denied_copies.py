"""A repeated request is denied. An earlier copy may have run, so the outcome is unknown."""

from __future__ import annotations

import pytest

from oncecast.client.session import local
from oncecast.errors import Revoked
from oncecast.kernel.protocol import NodeId, Value
from oncecast.replication.events import Change
from oncecast.wire import commands as do
from oncecast.wire.errors import Denied, Fenced
from oncecast.wire.frames import Answer, Call, ClientCommand, Fetch, FlowEnded
from oncecast.wire.results import Acked, Attached, Detached
from tests.broker.desk import BOB
from tests.client.session.lone import Lone, chunk, packed
from tests.client.session.test_withdrawn_permission import guarded

UNKNOWN = local.NoAnswer(local.NEVER, denied=True)
COMMANDS: list[ClientCommand] = [
    do.CreateTopic("t", 0),
    do.DeleteTopic("t", 0),
    do.Subscribe("t", "s", do.FromNew(), 0),
    do.Seek("t", "s", do.FromEarliest(), 0, "token"),
    do.Stage("source", 1, "part", "t", 1, 1, 0, b"x"),
    do.PublishStaged("source", 1, ("part",), 0),
    do.CloseSource("source", 0),
    do.RevokeToken("id"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_outcome_of_a_request_with_a_denied_copy_is_unknown(command: ClientCommand) -> None:
    """SVC-7 SEC-2"""
    lone = Lone().start().ask(local.Do(1, command)).wait(10.0)
    again = [each for each in lone.sent if isinstance(each, Call)]
    assert again
    assert lone.answer(again[0], Denied()).events == [local.Finished(1, UNKNOWN)]
    assert isinstance(UNKNOWN.raised(), Revoked)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_denied_request_that_was_sent_once_is_reported_as_denied(command: ClientCommand) -> None:
    """SEC-2"""
    lone = Lone().start().ask(local.Do(1, command))
    assert lone.answer(lone.call, Denied()).events == [local.Finished(1, Denied())]


def test_publish_after_a_fenced_publish_counts_only_its_own_copies() -> None:
    """SVC-7: a fenced publish has no effect, so the next one starts to count again."""
    lone = Lone().start().ask(local.Do(1, do.PublishStaged("source", 1, ("part",), 0), 30.0))
    lone.wait(10.0)
    lone.answer(next(each for each in lone.sent if isinstance(each, Call)), Fenced(4))
    assert lone.answer(lone.call, Denied()).events == [local.Finished(1, Denied())]


def test_unknown_publish_outcome_names_the_whole_timeout() -> None:
    lone = Lone().start().ask(local.Do(1, do.PublishStaged("source", 1, ("part",), 0), 30.0))
    lone.wait(10.0)
    lone.answer(next(each for each in lone.sent if isinstance(each, Call)), Fenced(4))
    lone.wait(10.0)
    again = next(each for each in lone.sent if isinstance(each, Call))
    unknown = local.NoAnswer(30.0, denied=True)
    assert lone.answer(again, Denied()).events == [local.Finished(1, unknown)]


def test_outcome_of_a_group_change_with_a_denied_copy_is_unknown() -> None:
    """SVC-7"""
    lone = Lone().start().ask(local.Group(1, Change(NodeId("node")))).wait(10.0)
    asked = lone.sent[-1]
    lone.hear(denial(asked))
    assert lone.events == [local.Finished(1, UNKNOWN)]


def test_request_without_effect_is_reported_as_denied() -> None:
    """SEC-2: a request that changes nothing has no outcome to doubt."""
    lone = Lone().start().ask(local.Show(1, "t")).wait(10.0)
    lone.hear(denial(lone.sent[-1]))
    assert lone.events == [local.Finished(1, Denied())]


def denial(asked: Value) -> Value:
    return Answer(asked.id, Denied())  # type: ignore[attr-defined]


def test_unsent_put_is_reported_as_denied() -> None:
    """SVC-7: copies of an open store nothing."""
    lone = Lone().start().ask(local.Produce(1, "t", 1, packed(b"a"))).wait(10.0)
    again = [each for each in lone.sent if isinstance(each, Call)]
    assert lone.answer(again[0], Denied()).events == [local.NotStored(1, Denied())]


def reading() -> Lone:
    """Return a client that reads from offset 0 and has received three messages."""
    lone = Lone().start().ask(local.Read("t", "s"))
    lone.answer(lone.call, Attached(5, 0, 0, 3, 0, 1))
    return lone.deliver(5, chunk(0, b"a", b"b", b"c"))


def acks(lone: Lone) -> list[Call]:
    return [
        each for each in lone.sent if isinstance(each, Call) and isinstance(each.command, do.Ack)
    ]


def test_denied_ack_that_was_sent_once_is_reported_as_denied() -> None:
    """SEC-2"""
    lone = reading().ask(local.Settle(7, "t", "s", 2, 2))
    (ack,) = acks(lone)
    assert lone.answer(ack, Denied()).events == [
        local.Finished(7, Denied()),
        local.Ended("t", "s", Denied()),
    ]


def test_outcome_of_an_ack_with_a_denied_copy_is_unknown() -> None:
    """SVC-7: the reader ends because of the denial."""
    lone = reading().ask(local.Settle(7, "t", "s", 2, 2)).wait(10.0)
    assert lone.answer(acks(lone)[0], Denied()).events == [
        local.Finished(7, UNKNOWN),
        local.Ended("t", "s", Denied()),
    ]


def test_outcome_of_an_ack_in_flight_is_unknown_if_its_reader_is_denied() -> None:
    """SVC-7"""
    lone = reading().ask(local.Settle(7, "t", "s", 2, 2))
    assert lone.hear(FlowEnded("t", "s", 5, Denied())).events == [
        local.Finished(7, UNKNOWN),
        local.Ended("t", "s", Denied()),
    ]


def test_outcome_of_an_ack_sent_with_a_fetch_is_unknown() -> None:
    """SVC-7"""
    lone = reading().ask(local.Want("t", "s", 2, 2))
    fetched = [each for each in lone.sent if isinstance(each, Fetch)]
    lone.wait(0.2)
    fetched += [each for each in lone.sent if isinstance(each, Fetch)]
    assert fetched[-1].ack == 2
    lone.ask(local.Settle(7, "t", "s", 2, 2))
    assert lone.answer(acks(lone)[0], Denied()).events[0] == local.Finished(7, UNKNOWN)


def test_leaving_reader_detaches_even_if_its_repeated_ack_is_denied() -> None:
    """SVC-5"""
    lone = reading().ask(local.Leave(9, "t", "s", 2, 2)).wait(10.0)
    lone.answer(acks(lone)[0], Denied())
    assert isinstance(lone.call.command, do.Detach)


def left(lone: Lone, answer: Value) -> list[Value]:
    """Answer the ack of a reader that leaves, then its detach. Return the events."""
    assert lone.answer(acks(lone)[0], answer).events == []
    assert isinstance(lone.call.command, do.Detach)
    return lone.answer(lone.call, Detached(2)).events


def test_leaving_reader_reports_that_its_ack_was_denied() -> None:
    """SVC-4 SEC-2: otherwise the application believes that the ack is stored."""
    lone = reading().ask(local.Leave(9, "t", "s", 2, 2))
    assert left(lone, Denied()) == [local.Finished(9, Denied())]


def test_outcome_of_a_leave_with_a_denied_copy_of_its_ack_is_unknown() -> None:
    """SVC-7"""
    lone = reading().ask(local.Leave(9, "t", "s", 2, 2)).wait(10.0)
    assert left(lone, Denied()) == [local.Finished(9, UNKNOWN)]


def test_outcome_of_a_leave_is_unknown_if_a_fetch_has_sent_its_ack() -> None:
    """SVC-7"""
    lone = reading().ask(local.Want("t", "s", 2, 2)).wait(0.2)
    lone.ask(local.Leave(9, "t", "s", 2, 2))
    assert left(lone, Denied()) == [local.Finished(9, UNKNOWN)]


def test_reader_without_acks_may_leave_without_the_permission_to_ack() -> None:
    """SEC-2"""
    lone = reading().ask(local.Leave(9, "t", "s", 2, 0))
    assert left(lone, Denied()) == [local.Finished(9, Detached(2))]


def test_reader_with_confirmed_acks_may_leave_without_the_permission_to_ack() -> None:
    """SEC-2"""
    lone = reading().ask(local.Settle(7, "t", "s", 2, 2))
    lone.answer(acks(lone)[0], Acked(2))
    lone.ask(local.Leave(9, "t", "s", 2, 2))
    assert left(lone, Denied()) == [local.Finished(9, Detached(2))]


def test_reader_ends_if_a_copy_of_its_first_seek_is_denied() -> None:
    lone = Lone().start().ask(local.Read("t", "s", 0))
    lone.answer(lone.call, Attached(5, 2, 0, 3, 0, 1)).wait(10.0)
    seeks = [each for each in lone.sent if isinstance(each, Call)]
    assert isinstance(seeks[0].command, do.Seek)
    assert local.Ended("t", "s", Denied()) in lone.answer(seeks[0], Denied()).events


def test_created_topic_is_not_reported_as_denied() -> None:
    """SVC-7: the node executed the first copy before the permission was withdrawn."""
    desk = guarded()
    desk.allow("bob", "manage", topic="new")
    lone = Lone().start().ask(local.Do(1, do.CreateTopic("new", 0)))
    desk.send(BOB, lone.call)
    desk.leave(BOB)
    desk.disallow("bob", "manage", topic="new")
    again = next(each for each in lone.wait(10.0).sent if isinstance(each, Call))
    (denied,) = desk.send(BOB, again)
    assert lone.hear(denied).events == [local.Finished(1, UNKNOWN)]
    assert "new" in desk.service.machine.registry.topics
