"""A topic moves to another group while clients write, read and describe it."""

from __future__ import annotations

import pytest

from oncecast.client.session.local import (
    Arrived,
    Do,
    Finished,
    Leave,
    NoAnswer,
    Produce,
    Read,
    Settle,
    Show,
    Stored,
    Survey,
)
from oncecast.client.session.routes import MISS_MIN
from oncecast.kernel.protocol import NodeId, Value
from oncecast.wire import commands as do
from oncecast.wire import errors, results
from oncecast.wire.frames import Answer, Call, Fetch, FlowEnded, Look, Owned, Scan
from tests.client.session.lone import NODE, Lone, chunk, packed
from tests.client.session.test_routes import A, C, asked, bound, create, of_g, shown

NOWHERE = errors.NotHere("t")
MOVED = Owned("t", "h", C, (C,))  # from group g to group h
ONE, TWO = packed(b"1"), packed(b"2")


def question(lone: Lone) -> Call | Look | Scan:
    (asked,) = lone.sent
    assert isinstance(asked, Call | Look | Scan)
    return asked


def not_here(lone: Lone, id: int, sender: NodeId = A) -> Lone:
    """Answer NotHere, and run the timers that are due now."""
    return lone.hear(Answer(id, NOWHERE), sender).wait(0.0)


# Calls


@pytest.mark.parametrize(
    "ask",
    [
        create("t"),
        Do(1, do.Stage("source", 1, "part", "t", 1, len(ONE), 0, ONE)),
        Do(1, do.PublishStaged("source", 1, ("part",), 0, "t")),
        Show(1, "t"),
        Survey(1, Scan(0, "t", do.FromNew())),
    ],
    ids=("a call", "a stage", "its publication", "a look", "a scan"),
)
def test_request_about_a_moved_topic_is_rerouted_to_the_new_group(ask: Value) -> None:
    """SVC-13"""
    lone = bound(of_g()).ask(ask)
    asked = question(lone)
    assert lone.addressed == [(A, asked)]
    assert not_here(lone, asked.id).addressed == [(NODE, asked)]
    assert shown(lone, MOVED).addressed == [(C, asked)]
    assert lone.events == []


def test_only_requests_about_the_topic_move_with_it() -> None:
    lone = bound(of_g("t"), of_g("u"))
    first = lone.ask(create("t", 1)).call
    second = lone.ask(create("t", 2)).call
    lone.ask(create("u", 3))
    assert not_here(lone, first.id).addressed == [(NODE, first), (NODE, second)]
    assert not_here(lone, second.id).addressed == []  # the move is already known
    assert shown(lone, MOVED).addressed == [(C, first), (C, second)]


def test_late_answer_from_the_old_group_has_no_effect() -> None:
    lone = bound(of_g())
    first = lone.ask(create("t", 1)).call
    second = lone.ask(create("t", 2)).call
    not_here(lone, first.id)
    shown(lone, MOVED)
    assert not_here(lone, second.id).outputs == []
    assert asked(lone.ask(create("t")), Call) == [C]


def test_lookups_in_an_inconsistent_ring_back_off() -> None:
    lone = bound(of_g())
    call = lone.ask(create("t", 1, timeout=300.0)).call
    rounds: list[float] = []
    while lone.now < 299.0 and len(rounds) < 1000:
        if NODE in asked(lone, Call):
            rounds.append(lone.now)
            shown(lone, of_g())
        elif A in asked(lone, Call):
            lone.hear(Answer(call.id, NOWHERE), A).wait(0.0)
        else:
            lone.wait(0.01)
    assert rounds[0] == 0.0  # the entry is asked at once the first time
    assert rounds[1] >= MISS_MIN
    assert 30 <= len(rounds) <= 110
    assert lone.wait(2.0).events == [Finished(1, NoAnswer(300.0))]


def test_old_inconsistency_does_not_slow_down_lookups() -> None:
    lone = bound(of_g())
    for _ in range(3):
        call = lone.ask(create("t")).call
        assert asked(not_here(lone, call.id), Call) == [NODE]
        shown(lone, of_g())
        lone.answer(call, results.TopicCreated(1, False), A)
        lone.wait(20.0)


def test_configured_node_is_asked_again_if_it_does_not_have_the_topic() -> None:
    """The application has named a replica instead of a ring process."""
    lone = Lone().start().ask(create("t", 1, timeout=60.0))
    call = lone.call
    assert not_here(lone, call.id, NODE).addressed == [(NODE, call)]
    assert not_here(lone, call.id, NODE).addressed == []
    assert lone.wait(1.0).addressed[0] == (NODE, call)
    assert lone.wait(60.0).events == [Finished(1, NoAnswer(60.0))]


# Puts


def put(sequence: int, batch: bytes) -> do.Put:
    return do.Put("t", "p", 4, sequence, 1, len(batch), 0, batch)


def putting() -> tuple[Lone, list[Call]]:
    """Put two batches to group g. The first is stored, but its answer is lost."""
    lone = bound(of_g())
    opening = lone.ask(Produce(1, "t", 1, ONE)).call
    assert isinstance(opening.command, do.OpenProducer)
    first = lone.answer(opening, results.Opened(4, 0, 1, (0, 0)), A).call
    second = lone.ask(Produce(2, "t", 1, TWO)).call
    assert [first.command, second.command] == [put(0, ONE), put(1, TWO)]
    return lone, [first, second]


def test_puts_continue_at_the_new_group_with_the_same_numbers() -> None:
    """SVC-2"""
    lone, (_, second) = putting()
    probe = not_here(lone, second.id).call
    assert (asked(lone, Call), probe.command) == ([NODE], put(0, ONE))
    probe = shown(lone, MOVED).call
    assert (asked(lone, Call), probe.command) == ([C], put(0, ONE))
    lone.answer(probe, results.Already(0, 1), C)
    assert lone.events == [Stored(1, 0, None)]
    assert (asked(lone, Call), lone.call.command) == ([C], put(1, TWO))
    assert lone.answer(lone.call, results.Appended(1, 1, True), C).events == [Stored(2, 1, True)]


def test_several_batches_refused_by_the_old_group_are_resent_once() -> None:
    """SVC-2"""
    lone, (first, second) = putting()
    not_here(lone, first.id)
    assert not_here(lone, second.id).outputs == []
    lone.answer(shown(lone, MOVED).call, results.Already(0, 1), C)
    assert not_here(lone, second.id).outputs == []
    three = packed(b"3")
    assert lone.ask(Produce(3, "t", 1, three)).call.command == put(2, three)


def test_late_answer_from_the_old_group_settles_its_batch() -> None:
    """SVC-2: the answer may arrive after the move."""
    lone, (first, second) = putting()
    not_here(lone, second.id)
    shown(lone, MOVED)
    assert lone.answer(first, results.Appended(0, 1, True), A).events == [Stored(1, 0, True)]


def test_open_is_repeated_at_the_new_group() -> None:
    """SVC-2"""
    lone = bound(of_g())
    opening = lone.ask(Produce(1, "t", 1, ONE)).call
    assert not_here(lone, opening.id).addressed == [(NODE, opening)]
    assert shown(lone, MOVED).addressed == [(C, opening)]
    assert lone.answer(opening, results.Opened(4, 0, 1, (0, 0)), C).call.command == put(0, ONE)


def test_puts_refused_during_a_move_are_resent_unchanged() -> None:
    """SVC-2"""
    lone, (first, second) = putting()
    moving = errors.Overloaded("the topic is moving")
    lone.answer(first, moving, A)
    assert lone.answer(second, moving, A).outputs == []
    lone.wait(1.0)
    assert set(asked(lone, Call)) == {A}
    assert not_here(lone, lone.call.id).call.command == put(0, ONE)


# Reading


def reading() -> Lone:
    """Return a reader that starts at offset 5 and has received two messages."""
    lone = bound(of_g())
    lone.answer(lone.ask(Read("t", "s")).call, results.Attached(3, 5, 0, 9, 0, 1), A)
    lone.deliver(3, chunk(5, b"a", b"b"), sender=A)
    return lone


def arrived(lone: Lone) -> list[int]:
    return [
        message.offset
        for event in lone.events
        if isinstance(event, Arrived)
        for message in event.messages
    ]


def turned_away(lone: Lone) -> Lone:
    return lone.hear(FlowEnded("t", "s", 3, NOWHERE), A).wait(0.0)


def test_reader_continues_at_the_new_group_from_its_position() -> None:
    """SVC-3 SVC-11: no message is repeated or skipped."""
    lone = turned_away(reading())
    assert (asked(lone, Fetch), lone.fetch.epoch, lone.fetch.offset) == ([NODE], 3, 7)
    shown(lone, MOVED)
    assert (asked(lone, Fetch), lone.fetch.epoch, lone.fetch.offset) == ([C], 3, 7)
    assert arrived(lone.deliver(3, chunk(7, b"c"), sender=C)) == [7]
    # A late copy of an earlier delivery.
    assert arrived(lone.deliver(3, chunk(5, b"a", b"b", b"c"), sender=A)) == []
    assert arrived(lone.deliver(3, chunk(8, b"d"), sender=C)) == [8]


def test_late_flow_end_from_the_old_group_has_no_effect() -> None:
    """SVC-3"""
    lone = turned_away(reading())
    shown(lone, MOVED)
    assert turned_away(lone).outputs == []
    assert arrived(lone.deliver(3, chunk(7, b"c"), sender=C)) == [7]


def test_ack_refused_by_the_old_group_is_sent_to_the_new_group() -> None:
    """SVC-3"""
    lone = reading()
    ack = lone.ask(Settle(8, "t", "s", 7, 6)).call
    not_here(lone, ack.id)
    assert (NODE, ack) in lone.addressed
    assert (C, ack) in shown(lone, MOVED).addressed
    assert lone.answer(ack, results.Acked(6), C).events == [Finished(8, results.Acked(6))]


def test_reader_that_leaves_during_a_move_detaches_at_the_new_group() -> None:
    """SVC-3"""
    lone = reading()
    ack = lone.ask(Leave(8, "t", "s", 7, 7, timeout=30.0)).call
    not_here(lone, ack.id)
    shown(lone, MOVED)
    detach = lone.answer(ack, results.Acked(7), C).call
    assert (asked(lone, Call), detach.command) == ([C], do.Detach("t", "s", 3, 7))
    done = results.Detached(7)
    assert lone.answer(detach, done, C).events == [Finished(8, done)]
