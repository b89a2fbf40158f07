"""Test the exact effects of calls and the inbox."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from oncecast.client.session.inbox import Inbox
from oncecast.client.session.local import Do, Finished, NoAnswer, Ring, Show, Shown
from oncecast.client.session.records import Tick
from oncecast.kernel.protocol import Send
from oncecast.kernel.values import Wake
from oncecast.wire import batch, errors, results
from oncecast.wire import commands as do
from oncecast.wire.frames import Answer, Call, Look, LookRing, RingView, View
from oncecast.wire.retention import DEFAULT
from tests.client.session.lone import NODE, Lone
from tests.dice import HighDice

CREATE = do.CreateTopic("t", 0)
DONE = results.TopicCreated(1, False)


def test_call_is_resent_with_the_same_id_until_answered() -> None:
    """SVC-3 SVC-13"""
    lone = Lone().start().ask(Do(9, CREATE))
    call = lone.call
    assert call.command == replace(CREATE, token=f"inc.{call.id}")
    assert lone.wait(5.0).sent == [call] * len(lone.sent)
    assert 2 <= len(lone.sent) <= 5
    assert lone.answer(call, DONE).events == [Finished(9, DONE)]
    assert lone.wait(30.0).sent == []


ONCE = [
    CREATE,
    do.SetPolicy("t", 0, DEFAULT),
    do.DeleteTopic("t", 0),
    do.Subscribe("t", "s", do.FromNew(), 0),
    do.Unsubscribe("t", "s", 0),
    do.DropStaged("source", 0),
    do.CloseSource("source", 0),
]


@pytest.mark.parametrize("command", ONCE, ids=lambda each: type(each).__name__)
def test_each_call_has_a_unique_token_that_its_copies_share(command: do.Once) -> None:
    """SVC-13: tokens differ even between identical calls and after a restart."""
    calls: list[Call] = []
    for incarnation in ("first", "second"):
        lone = Lone(incarnation=incarnation).start()
        for ticket in (1, 2):
            calls.append(lone.ask(Do(ticket, command)).call)
            assert calls[-1] in lone.down().sent
    tokens = [call.command.token for call in calls if isinstance(call.command, do.Once)]
    assert [replace(command, token=token) for token in tokens] == [each.command for each in calls]
    assert len({*tokens}) == 4


def test_late_and_repeated_answers_are_dropped() -> None:
    """SVC-3"""
    lone = Lone().start().ask(Do(9, CREATE))
    call = lone.call
    lone.answer(call, DONE)
    assert lone.answer(call, DONE).outputs == []
    assert lone.hear(Answer(call.id + 1000, DONE)).outputs == []


def test_call_that_times_out_reports_no_answer() -> None:
    """SVC-7"""
    lone = Lone().start().ask(Do(9, CREATE, timeout=2.0))
    call = lone.call
    assert lone.wait(1.9).events == []
    assert lone.wait(0.2).events == [Finished(9, NoAnswer(2.0))]
    assert lone.answer(call, DONE).outputs == []


def test_call_to_a_busy_node_is_retried_until_the_timeout() -> None:
    """SVC-7"""
    lone = Lone().start().ask(Do(9, CREATE, timeout=2.0))
    busy = errors.Overloaded("calls")
    call = lone.call
    assert lone.answer(call, busy).outputs == []
    assert lone.wait(0.6).call == call
    assert lone.wait(2.0).events == [Finished(9, busy)]


def test_call_is_retried_with_backoff_after_silence_or_a_busy_answer() -> None:
    """SVC-7"""
    lone = Lone(rng=HighDice(1)).start().ask(Do(9, CREATE))
    call = lone.call
    assert lone.wakes == [Wake(0.5, Tick())]
    for silence in (0.5, 1.0, 2.0):
        assert lone.wait(silence - 0.01).outputs == []
        assert lone.wait(0.01).outputs == [Send(NODE, call)]
    lone = Lone(rng=HighDice(1)).start().ask(Do(9, CREATE))
    call = lone.call
    assert lone.wait(0.4).answer(call, errors.Overloaded("calls")).outputs == []
    assert lone.wait(0.49).outputs == []
    assert lone.wait(0.01).outputs == [Send(NODE, call)]


def test_call_ids_start_at_a_random_number() -> None:
    """SVC-3: late answers meant for an earlier process with this name match no call."""
    assert Lone().session.calls.new_id() == Random(1).getrandbits(48) + 1


def test_ring_request_is_answered_only_by_a_ring_view() -> None:
    """SVC-3"""
    lone = Lone().start().ask(Ring(9))
    (look,) = lone.sent
    assert isinstance(look, LookRing)
    assert lone.hear(Answer(look.id, errors.InvalidArgument("no ring"))).outputs == []
    view = RingView(look.id, "node", (), (), None)
    assert lone.hear(view).events == [Shown(9, view)]


PUBLISH = do.PublishStaged("source", 0, ("a",), 0, expected=0)


def test_publish_carries_its_source_epoch() -> None:
    """PIPE-2: if the answer names another epoch, the client repeats the call with that epoch."""
    asked = do.PublishStaged("source", 0, ("a",), 0)
    lone = Lone().start().ask(Do(9, asked))
    assert lone.call.command == PUBLISH
    for epoch in (5, 8):
        lone.answer(lone.call, errors.Fenced(epoch))
        assert (lone.events, lone.call.command) == ([], replace(PUBLISH, expected=epoch))
    why = errors.NotStaged("source", 0, "a")
    assert lone.answer(lone.call, why).events == [Finished(9, why)]


def test_retried_publish_keeps_its_deadline() -> None:
    """SVC-7"""
    lone = Lone().start().ask(Do(9, PUBLISH, timeout=2.0))
    call = lone.call
    lone.wait(1.5).answer(call, errors.Fenced(5))
    assert lone.wait(0.4).events == []
    assert lone.wait(0.2).events == [Finished(9, NoAnswer(2.0))]


def test_failed_status_request_reports_the_error() -> None:
    """SVC-7: a ring process does not store topics itself."""
    lone = Lone().start().ask(Show(9, prefix="a"))
    (look,) = lone.sent
    assert isinstance(look, Look)
    why = errors.InvalidArgument("name a topic")
    assert lone.hear(Answer(look.id, why)).events == [Finished(9, why)]


def test_all_requests_in_flight_are_resent_over_a_new_link() -> None:
    """SVC-13"""
    lone = Lone().start().ask(Do(9, CREATE))
    call = lone.call
    lone.ask(Show(10, "t"))
    (look,) = lone.sent
    assert lone.down().sent == [call, look]


def test_view_is_accepted_only_in_answer_to_a_request() -> None:
    """SVC-3"""
    lone = Lone().start().ask(Do(9, CREATE))
    call = lone.call
    view = View(call.id, (), False, "node", "1")
    assert lone.hear(view).outputs == []
    (look,) = lone.ask(Show(10, "t", timeout=1.0)).sent
    assert not isinstance(look, Call)
    view = View(call.id + 1, (), False, "node", "1")
    assert lone.hear(view).events == [Shown(10, view)]


# The inbox.


def messages(first: int, count: int) -> list[batch.Message]:
    packed = batch.encode([b"%d" % each for each in range(count)], timestamps=1)
    return batch.messages(packed, topic="t", offset=first, producer="p", sequence=0)


def inbox(*, auto_ack: bool = True) -> Inbox:
    made = Inbox(auto_ack=auto_ack)
    made.position(5)
    assert made.arrive(messages(5, 4))
    return made


def test_each_message_is_delivered_once_in_order() -> None:
    """SVC-3"""
    box = inbox()
    first, rest = box.take(), box.take_many(10)
    assert first is not None
    assert [first.offset, *(each.offset for each in rest)] == [5, 6, 7, 8]
    assert box.take() is None
    assert box.take_many(3) == []
    assert box.delivered == 9


def test_taking_a_message_acknowledges_earlier_messages() -> None:
    """SVC-3"""
    box = inbox()
    assert box.ack == 5
    box.take()
    assert box.ack == 5
    box.take_many(2)
    assert box.ack == 6
    box.take()
    assert box.ack == 8
    box.acknowledge_all()
    assert box.ack == 9


def test_inbox_without_auto_ack_waits_for_explicit_acks() -> None:
    """SVC-3"""
    box = inbox(auto_ack=False)
    box.take_many(3)
    assert box.ack == 5
    box.acknowledge(6)
    assert box.ack == 7
    box.acknowledge(5)
    assert box.ack == 7
    with pytest.raises(ValueError, match="offset 8"):
        box.acknowledge(8)


def test_seeking_back_drops_queued_messages() -> None:
    """SVC-3"""
    box = inbox(auto_ack=False)
    box.take_many(3)
    box.acknowledge(5)
    with pytest.raises(ValueError, match="6 to 7"):
        box.back(5)
    assert box.back(6) == 8
    assert (box.delivered, box.take()) == (6, None)
    assert not box.arrive(messages(8, 1))
    assert box.arrive(messages(6, 1))


SEEK = do.Seek("t", "s", do.FromOffset(2), 0, "token", expected=0)


def test_seek_names_the_epoch_that_it_replaces() -> None:
    """SVC-6: if the answer names another epoch, the client retries with it and the same token."""
    lone = Lone().start().ask(Do(9, replace(SEEK, expected=do.ANY_EPOCH)))
    assert lone.call.command == SEEK
    for epoch in (5, 8):
        lone.answer(lone.call, errors.Fenced(epoch))
        assert (lone.events, lone.call.command) == ([], replace(SEEK, expected=epoch))
    done = results.Sought(9, 2, already=False)
    assert lone.answer(lone.call, done).events == [Finished(9, done)]


def test_retried_seek_keeps_its_deadline() -> None:
    """SVC-7"""
    lone = Lone().start().ask(Do(9, SEEK, timeout=2.0))
    call = lone.call
    lone.wait(1.5).answer(call, errors.Fenced(5))
    assert lone.wait(0.6).events == [Finished(9, NoAnswer(2.0))]
