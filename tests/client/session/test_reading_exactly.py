"""Test the exact effects of reads: limits at their boundaries, and every way a reader can end."""

from __future__ import annotations

from typing import Any

import pytest

from oncecast.client.session.local import (
    Again,
    Arrived,
    Ended,
    Finished,
    Leave,
    Move,
    NoAnswer,
    Positioned,
    Read,
    Settle,
    Skipped,
    Want,
)
from oncecast.kernel.protocol import Emit, NodeId, Send, Watch
from oncecast.kernel.stack import Output
from oncecast.wire import batch, errors, results
from oncecast.wire import commands as do
from oncecast.wire.frames import (
    Call,
    Chunk,
    Delivery,
    Fetch,
    FlowEnded,
    Look,
    Owned,
    TopicView,
    Tune,
    View,
)
from oncecast.wire.retention import Policy
from tests.client.session.lone import NODE, Lone, chunk, packed
from tests.client.session.test_client_reading import (
    UNREPORTED_BYTES_MAX,
    WINDOW,
    attached,
    broken,
    delivered,
)
from tests.dice import HighDice

LEADER = NodeId("other/g")
BAD = errors.BadBatch("offset 6 of topic 't' is lost")
GONE = errors.NotSubscribed("t", "s")
A_BYTES = batch.opened_bytes(packed(b"a"))


def reading(*, start_at: int = -1, push: bool = False) -> Lone:
    """Return a session whose reader awaits the answer to its Attach.

    Its random waits are as long as possible.
    """
    return Lone(rng=HighDice(1)).start().ask(Read("t", "s", start_at, push))


def at_five(**options: Any) -> Lone:
    """Return a session that reads from offset 5."""
    lone = reading(**options)
    return lone.answer(lone.call, results.Attached(3, 5, 0, 9, 0, 1))


def fetch(
    offset: int, ack: int = 5, messages: int = 100, space: int = WINDOW, epoch: int = 3
) -> Send:
    return Send(NODE, Fetch("t", "s", epoch, offset, ack, messages, space))


def positioned(offset: int, end: int = 9, epoch: int = 3) -> Emit:
    return Emit(Positioned("t", "s", offset, end, epoch))


def skipped(first: int, end: int) -> Emit:
    return Emit(Skipped("t", "s", first, end))


def ended(why: errors.AnyRefusal) -> Emit:
    return Emit(Ended("t", "s", why))


def finished(outcome: Any, ticket: int = 9) -> Emit:
    return Emit(Finished(ticket, outcome))


def over(why: errors.AnyRefusal) -> FlowEnded:
    return FlowEnded("t", "s", 3, why)


def commands(lone: Lone) -> list[object]:
    return [each.command for each in lone.sent if isinstance(each, Call)]


# Attaching.


@pytest.mark.parametrize(
    ("start_at", "first", "outputs"),
    [
        (-1, 0, [positioned(5), fetch(5)]),
        (-1, 5, [positioned(5), fetch(5)]),
        (-1, 7, [positioned(5), skipped(5, 7), fetch(7, messages=100), fetch(7)]),
        (5, 0, [positioned(5), fetch(5)]),
        (9, 0, [positioned(9), fetch(9, 9)]),
        (10, 0, [ended(errors.OutOfRange(9))]),
    ],
)
def test_reader_starts_at_the_requested_offset(
    start_at: int, first: int, outputs: list[Output]
) -> None:
    """SVC-3 SVC-9"""
    lone = reading(start_at=start_at)
    lone.answer(lone.call, results.Attached(3, 5, first, 9, 0, 77))
    assert lone.outputs == outputs
    if start_at < 10:
        assert lone.session.readers["t", "s"].topic_id == 77


@pytest.mark.parametrize(
    ("start_at", "landed", "outputs"),
    [
        (0, 0, [positioned(0, epoch=4), fetch(0, 0, epoch=4)]),
        (4, 4, [positioned(4, epoch=4), fetch(4, 4, epoch=4)]),
        (
            2,
            4,
            [positioned(4, epoch=4), fetch(4, 4, epoch=4), skipped(2, 4), fetch(4, 4, epoch=4)],
        ),
    ],
)
def test_reader_seeks_back_to_the_application_offset(
    start_at: int, landed: int, outputs: list[Output]
) -> None:
    """SVC-3"""
    lone = at_five(start_at=start_at)
    assert commands(lone) == [do.Seek("t", "s", do.FromOffset(start_at), 0, "inc.1.1", 3)]
    assert lone.events == []
    assert lone.answer(lone.call, results.Sought(4, landed, False)).outputs == outputs


def test_reader_ends_if_it_cannot_seek_back() -> None:
    """SVC-7"""
    lone = at_five(start_at=2)
    assert lone.answer(lone.call, GONE).outputs == [ended(GONE)]


def test_reader_that_left_during_a_seek_reports_nothing() -> None:
    """SVC-11: the application may have started another reader."""
    lone = at_five(start_at=2)
    seek = lone.call
    lone.ask(Leave(9, "t", "s", 5, 5))
    lone.ask(Read("t", "s"))
    assert lone.answer(seek, results.Sought(4, 4, False)).outputs == []


def test_seek_back_survives_a_lost_link() -> None:
    """SVC-13"""
    lone = at_five(start_at=2)
    seek = lone.call
    assert lone.down().sent == [seek, Fetch("t", "s", 3, 5, 0, 95, WINDOW)]


def test_unattached_reader_fetches_nothing() -> None:
    """SVC-3"""
    lone = reading()
    attach = lone.call
    assert lone.session.readers["t", "s"].topic_id == 0
    assert lone.ask(Want("t", "s", 5, 5)).outputs == []
    assert lone.ask(Again("t", "s", 0, 5)).outputs == []
    assert lone.down().sent == [attach]
    assert set(map(type, lone.wait(20.0).sent)) == {Call}


def test_first_message_in_a_topic_is_not_marked_as_redelivered() -> None:
    """SVC-11"""
    lone = attached(cursor=0)
    assert delivered(lone.deliver(3, chunk(0, b"a"))) == [(0, b"a", False)]


# Fetching.


def of_ring(*, push: bool) -> Lone:
    """Return a session whose topic belongs to a group in a ring."""
    lone = reading(push=push)
    lone.hear(Owned("t", "g", LEADER, (LEADER,))).wait(0.0)
    ((to, attach),) = lone.addressed
    assert to == LEADER
    assert isinstance(attach, Call)
    return lone.answer(attach, results.Attached(3, 5, 0, 9, 0, 1), LEADER)


def test_push_reader_asks_its_process_and_other_readers_ask_the_group() -> None:
    """SVC-3"""
    asked = Fetch("t", "s", 3, 5, 5, 100, WINDOW)
    assert of_ring(push=True).outputs == [positioned(5), Send(NODE, Tune(asked))]
    assert of_ring(push=False).outputs == [positioned(5), Send(LEADER, asked)]
    assert at_five(push=True).outputs == [positioned(5), fetch(5)]


@pytest.mark.parametrize(("push", "sent"), [(True, [Tune]), (False, [])])
def test_push_reader_repeats_its_request_after_a_lost_link(push: bool, sent: list[type]) -> None:
    """SVC-13"""
    assert [type(each) for each in of_ring(push=push).down().sent] == sent


def test_stalled_delivery_is_fetched_again_with_backoff() -> None:
    """SVC-3"""
    lone = at_five()
    for silence in (0.5, 1.0, 2.0):
        assert lone.wait(silence - 0.01).outputs == []
        assert lone.wait(0.01).outputs == [fetch(5)]
    lone.deliver(3, chunk(5, b"a"))
    assert lone.wait(0.49).outputs == []
    space = WINDOW - A_BYTES
    assert lone.wait(0.01).outputs == [fetch(6, 5, 99, space), fetch(6, 5, 99, space)]


def test_timeout_starts_at_the_last_delivery() -> None:
    """SVC-3"""
    lone = at_five().wait(0.4).deliver(3, chunk(5, b"a"))
    assert lone.wait(0.49).outputs == []
    assert {each.offset for each in lone.wait(0.01).sent if isinstance(each, Fetch)} == {6}


def test_acks_are_sent_in_time_despite_an_earlier_timer() -> None:
    """SVC-3"""
    lone = at_five().wait(0.3).deliver(3, chunk(5, b"a")).wait(0.15)
    assert lone.ask(Want("t", "s", 6, 6)).outputs == []
    assert lone.wait(0.09).outputs == []
    assert lone.wait(0.02).outputs == [fetch(6, 6)]


# Deliveries.


def test_unread_messages_in_a_partly_read_batch_keep_their_offsets() -> None:
    """SVC-3: the first messages in the batch were read earlier or by another reader."""
    lone = at_five().deliver(3, chunk(5, b"a"))
    whole = packed(b"x", b"a", b"b", b"c")
    lone.deliver(3, Chunk(5, 1, 3, "p", 41, whole))
    numbers = {"topic": "t", "offset": 6, "producer": "p", "sequence": 42}
    new = batch.messages(whole, **numbers, skip=2)  # type: ignore[arg-type]
    assert [each.value for each in new] == [b"b", b"c"]
    assert lone.outputs == [Emit(Arrived("t", "s", new, 8, False))]


def test_redelivery_mark_spans_batches_and_is_permanent() -> None:
    """SVC-11"""
    lone = at_five()
    lone.deliver(3, chunk(5, b"a", b"b"), suspect_below=8)
    assert delivered(lone) == [(5, b"a", True), (6, b"b", True)]
    lone.deliver(3, chunk(7, b"c", b"d"), suspect_below=0)
    assert delivered(lone) == [(7, b"c", True), (8, b"d", False)]


def test_duplicate_delivery_uses_no_credit() -> None:
    """SVC-4"""
    lone = at_five()
    for _ in range(2):
        lone.deliver(3, chunk(5, b"a"))
    assert lone.down().outputs == [Watch(NODE), fetch(6, 5, 99, WINDOW - A_BYTES)]


def test_missing_messages_are_fetched_once_even_if_later_ones_arrive() -> None:
    """SVC-3"""
    lone = at_five()
    assert lone.deliver(3, chunk(6, b"b"), chunk(5, b"a")).outputs == [fetch(5)]


def test_batches_after_a_corrupt_one_are_ignored() -> None:
    """SVC-10"""
    lone = at_five()
    assert lone.deliver(3, broken(5, b"a"), chunk(6, b"b")).outputs == [fetch(5)]
    assert lone.deliver(3, broken(5, b"a"), chunk(5, b"a")).outputs == [fetch(5)]


def test_batch_is_reported_as_bad_after_three_corrupt_deliveries() -> None:
    """SVC-10"""
    lone = at_five()
    for offset, space in ((5, WINDOW), (6, WINDOW - A_BYTES)):
        renewed = [fetch(offset, 5, 105 - offset, space)]
        again = lone.deliver(3, broken(offset, b"x")).outputs
        assert again == renewed * (1 if offset == 5 else 2)
        assert lone.deliver(3, broken(offset, b"x")).outputs == renewed
        lone.deliver(3, chunk(offset, b"a"))
    lone.ask(Want("t", "s", 7, 7))
    for _ in range(2):
        assert lone.deliver(3, broken(7, b"x")).events == []
    assert [type(each) for each in lone.deliver(3, broken(7, b"x")).events] == [Ended]


def test_batch_with_fewer_messages_than_announced_counts_as_corrupt() -> None:
    """SVC-10"""
    lone = at_five()
    short = Chunk(5, 0, 3, "p", 5, packed(b"a", b"b"))
    assert lone.deliver(3, short).outputs == [fetch(5)]


@pytest.mark.parametrize(
    ("size", "sent"), [(UNREPORTED_BYTES_MAX - 1, []), (UNREPORTED_BYTES_MAX, [6])]
)
def test_arrivals_are_reported_after_an_eighth_of_the_window(size: int, sent: list[int]) -> None:
    """SVC-3"""
    header = batch.opened_bytes(packed(bytes(size))) - size
    large = chunk(5, bytes(size - header))
    assert batch.opened_bytes(large.batch) == size
    lone = at_five().deliver(3, large)
    assert [each.offset for each in lone.sent if isinstance(each, Fetch)] == sent


# Requests from the application.


def test_application_cannot_take_or_acknowledge_more_than_has_arrived() -> None:
    """SVC-3"""
    lone = at_five().deliver(3, chunk(5, b"a", b"b"))
    lone.ask(Want("t", "s", 100, 100)).ask(Want("t", "s", 5, 5))
    assert lone.down().outputs == [Watch(NODE), fetch(7, 7)]
    lone = at_five().deliver(3, chunk(5, b"a", b"b"))
    lone.ask(Want("t", "s", 6, 100))
    space = WINDOW - batch.opened_bytes(packed(b"a", b"b"))
    assert lone.down().outputs == [Watch(NODE), fetch(7, 6, 99, space)]


def test_flush_before_a_bad_batch_waits_for_the_node() -> None:
    """SVC-7"""
    lone = at_five().deliver(3, chunk(5, b"a", b"b")).hear(over(BAD))
    lone.ask(Settle(9, "t", "s", 6, 6))
    assert (lone.events, commands(lone)) == ([], [do.Ack("t", "s", 3, 6)])


def test_reader_ended_by_a_bad_batch_acknowledges_and_detaches_within_eight_seconds() -> None:
    """SVC-10"""
    lone = at_five().deliver(3, chunk(5, *[b"a"] * 60)).hear(over(BAD))
    lone.ask(Want("t", "s", 65, 65))
    ack = Call(lone.call.id, do.Ack("t", "s", 3, 65))
    assert lone.outputs == [ended(BAD), Send(NODE, ack)]
    assert set(lone.wait(7.9).sent) == {ack}
    assert lone.wait(30.0).outputs == []
    for ask in (Want("t", "s", 65, 65), Again("t", "s", 64, 65)):
        assert lone.ask(ask).outputs == []


@pytest.mark.parametrize(
    ("offset", "outputs"),
    [
        (5, []),
        (6, [fetch(6, 6), fetch(6, 6)]),
        (7, [fetch(7, 6), fetch(7, 6)]),
        (8, []),
    ],
)
def test_only_arrived_unacknowledged_messages_are_redelivered(
    offset: int, outputs: list[Output]
) -> None:
    """SVC-3: messages up to the last delivered one are marked, and use no credit."""
    lone = at_five().deliver(3, chunk(5, b"a", b"b", b"c"), suspect_below=7)
    lone.ask(Want("t", "s", 7, 6))
    assert lone.ask(Again("t", "s", offset, 6)).outputs == outputs
    if outputs:
        assert lone.deliver(3, chunk(8, b"d")).outputs == []
        lone.deliver(3, chunk(offset, *[b"x"] * (8 - offset)))
        assert [mark for _, _, mark in delivered(lone)] == [each < 7 for each in range(offset, 8)]


def test_reader_that_nacks_and_leaves_reports_all_delivered_messages() -> None:
    """SVC-11"""
    lone = at_five().deliver(3, chunk(5, b"a", b"b", b"c"))
    lone.ask(Want("t", "s", 8, 5)).ask(Again("t", "s", 5, 8))
    lone.ask(Leave(9, "t", "s", 5, 5))
    assert lone.answer(lone.call, results.Acked(5)).call.command == do.Detach("t", "s", 3, 8)


# Refused acks.


def test_ack_refused_after_a_seek_by_another_client_moves_the_reader() -> None:
    """SVC-3"""
    lone = at_five().deliver(3, chunk(5, b"a"))
    ack = lone.ask(Settle(9, "t", "s", 6, 6)).call
    assert lone.answer(ack, errors.Repositioned(4, 2)).outputs == [
        finished(results.Acked(2)),
        positioned(2, 6, 4),
        fetch(2, 2, epoch=4),
    ]


def test_refused_ack_ends_the_reader() -> None:
    """SVC-7 SVC-8"""
    lone = at_five().deliver(3, chunk(5, b"a"))
    ack = lone.ask(Settle(9, "t", "s", 6, 6)).call
    assert lone.answer(ack, GONE).outputs == [finished(GONE), ended(GONE)]


@pytest.mark.parametrize("why", [errors.Repositioned(4, 2), errors.Fenced(4)])
def test_refusal_of_an_ack_sent_before_a_seek_is_ignored(why: errors.AnyRefusal) -> None:
    """SVC-8"""
    lone = at_five().deliver(3, chunk(5, b"a"))
    ack = lone.ask(Settle(9, "t", "s", 6, 6)).call
    lone.hear(over(errors.Repositioned(4, 2)))
    assert lone.answer(ack, why).outputs == []
    assert delivered(lone.deliver(4, chunk(2, b"x"))) == [(2, b"x", False)]


def test_impossible_answer_to_an_ack_raises_an_assertion_error() -> None:
    lone = at_five().deliver(3, chunk(5, b"a")).ask(Settle(9, "t", "s", 6, 6))
    with pytest.raises(AssertionError, match="does not answer an ack"):
        lone.answer(lone.call, results.Detached(0))


# Moves.


@pytest.mark.parametrize(
    ("cursor", "end"), [(2, 9), (20, 20)], ids=["back", "behind the known end"]
)
def test_moved_reader_drops_earlier_messages(cursor: int, end: int) -> None:
    """SVC-3"""
    moved = over(errors.Repositioned(4, cursor))
    after = [positioned(cursor, end, 4), fetch(cursor, cursor, epoch=4)]
    lost = Delivery("t", "s", 3, (), 0, 9)
    for news in (lost, over(BAD)):
        lone = at_five().deliver(3, Chunk(5, 0, 1, "p", 5, packed(b"a")))
        lone.hear(Delivery("t", "s", 3, (chunk(5, b"a"),), 0, 9)).hear(news)
        assert lone.hear(moved).outputs == after
        assert lone.ask(Want("t", "s", cursor, cursor)).outputs == []


def test_moved_reader_reports_the_last_known_end_of_the_topic() -> None:
    lone = at_five().deliver(3, chunk(5, *[b"a"] * 8))
    assert lone.hear(over(errors.Repositioned(4, 2))).events == [
        Positioned("t", "s", 2, 13, epoch=4)
    ]


def test_gap_is_refetched_if_a_seek_returns_to_it() -> None:
    """SVC-3"""
    lone = attached(cursor=0).deliver(3, chunk(1, b"b"))
    assert lone.outputs == [fetch(0, 0)]
    lone.hear(over(errors.Repositioned(4, 0)))
    assert lone.deliver(4, chunk(1, b"b")).outputs == [fetch(0, 0, epoch=4)]


def test_seek_in_an_older_epoch_does_not_move_the_reader() -> None:
    """SVC-8"""
    lone = at_five()
    for epoch in (2, 3):
        assert lone.hear(over(errors.Repositioned(epoch, 0))).outputs == []


def test_seek_is_repeated_after_a_concurrent_seek() -> None:
    """SVC-1: the token is the same, so the seek is executed once."""
    lone = at_five().ask(Move(9, "t", "s", do.FromEarliest()))
    lone.answer(lone.call, errors.Repositioned(6, 2))
    assert (lone.events, commands(lone)) == (
        [],
        [do.Seek("t", "s", do.FromEarliest(), 0, "inc.1.1", 6)],
    )
    sought = results.Sought(7, 0, False)
    assert lone.answer(lone.call, sought).outputs == [
        positioned(0, epoch=7),
        fetch(0, 0, epoch=7),
        finished(sought),
    ]


def test_unanswered_seek_is_followed_by_a_fetch() -> None:
    """SVC-7: the answer to the fetch shows whether the seek was executed."""
    lone = at_five().ask(Move(9, "t", "s", do.FromEarliest(), 0.4))
    assert lone.wait(0.4).outputs == [fetch(5), finished(NoAnswer(0.4))]
    moved = over(errors.Repositioned(4, 0))
    assert lone.hear(moved).outputs == [positioned(0, epoch=4), fetch(0, 0, epoch=4)]


def test_refused_seek_does_not_move_the_reader() -> None:
    """SVC-7"""
    lone = at_five().ask(Move(9, "t", "s", do.FromOffset(99)))
    why = errors.OutOfRange(9)
    assert lone.answer(lone.call, why).outputs == [finished(why)]


def test_repeated_seek_does_not_move_the_reader() -> None:
    lone = at_five().ask(Move(9, "t", "s", do.FromEarliest()))
    done = results.Sought(3, 5, True)
    assert lone.answer(lone.call, done).outputs == [finished(done)]


def test_reader_survives_a_busy_node_and_looks_up_a_moved_topic() -> None:
    """SVC-7 REP-6"""
    lone = at_five()
    assert lone.hear(over(errors.Overloaded("flows"))).outputs == []
    assert lone.hear(over(errors.NotHere("t"))).outputs == []
    assert lone.wait(0.0).outputs == [fetch(5)]


# Deleted messages.


def test_skipped_messages_are_reported_once() -> None:
    """SVC-9"""
    lone = at_five().hear(Delivery("t", "s", 3, (), 0, 7))
    assert lone.outputs == [skipped(5, 7), fetch(7)]
    assert lone.ask(Want("t", "s", 7, 7)).outputs == []


def looking() -> tuple[Lone, Look]:
    """Return a session that is missing offset 5 and asks for the first offset in the topic."""
    lone = at_five().deliver(3, chunk(8, b"d")).wait(0.5)
    (look,) = [each for each in lone.sent if isinstance(each, Look)]
    assert lone.outputs == [Send(NODE, look), fetch(5)]
    assert look == Look(look.id, "t", subscriptions=False)
    return lone, look


def view(look: Look, *firsts: int) -> View:
    topics = [TopicView("t", 1, first, 9, 0, Policy(), (), 0) for first in firsts]
    return View(look.id, tuple(topics), False, "node", "1")


@pytest.mark.parametrize(("firsts", "asked"), [([], []), ([5], []), ([6, 2], [5])])
def test_reader_checks_its_epoch_only_if_messages_were_deleted(
    firsts: list[int], asked: list[int]
) -> None:
    """SVC-9"""
    lone, look = looking()
    lone.hear(view(look, *firsts))
    assert commands(lone) == [do.Ack("t", "s", 3, offset) for offset in asked]
    assert len(lone.outputs) == len(asked)
    if asked:
        assert lone.answer(lone.call, results.Acked(5)).outputs == [skipped(5, 6), fetch(6)]


def test_late_view_is_ignored() -> None:
    """SVC-9"""
    lone, look = looking()
    lone.hear(over(errors.Fenced(4)))
    assert lone.hear(view(look, 8)).outputs == []


def test_unanswered_offset_request_is_abandoned_after_eight_seconds() -> None:
    """SVC-9: by then a newer request has replaced it."""
    lone, look = looking()
    assert look in lone.wait(7.4).sent
    lone.wait(1.0)
    assert look not in lone.wait(60.0).sent
    assert lone.events == []


@pytest.mark.parametrize(
    "meanwhile", [over(errors.Repositioned(4, 2)), over(errors.Fenced(4))], ids=["moved", "ended"]
)
def test_answer_for_an_earlier_epoch_skips_nothing(meanwhile: FlowEnded) -> None:
    """SVC-9"""
    lone, look = looking()
    ack = lone.hear(view(look, 8)).call
    lone.hear(meanwhile)
    assert lone.answer(ack, results.Acked(5)).outputs == []


# Leaving.


@pytest.mark.parametrize("timeout", [0.0, 0.2])
def test_leaving_reader_waits_for_a_pending_attach_until_its_timeout(
    timeout: float,
) -> None:
    """SVC-7"""
    lone = reading().wait(0.1)
    lone.ask(Leave(9, "t", "s", 0, 0, timeout))
    if timeout:
        assert lone.outputs == []
        assert lone.wait(timeout - 0.01).outputs == []
        lone.wait(0.01)
    assert lone.outputs == [finished(NoAnswer(timeout))]
    assert lone.ask(Settle(10, "t", "s", 0, 0)).outputs == [finished(GONE, 10)]
    assert lone.wait(30.0).outputs == []


def test_reader_that_leaves_before_it_is_attached_reports_no_deliveries() -> None:
    """SVC-11"""
    lone = reading()
    attach = lone.call
    lone.ask(Leave(9, "t", "s", 3, 3))
    lone.answer(attach, results.Attached(3, 5, 0, 9, 0, 1))
    assert lone.answer(lone.call, results.Acked(5)).call.command == do.Detach("t", "s", 3, 0)


@pytest.mark.parametrize(
    ("answer", "outputs"),
    [
        (errors.Fenced(2), [finished(results.Detached(0))]),
        (GONE, [finished(GONE), ended(GONE)]),
    ],
)
def test_unattached_reader_leaves_without_a_detach(
    answer: errors.AnyRefusal, outputs: list[Output]
) -> None:
    """SVC-7 SVC-8"""
    lone = reading()
    attach = lone.call
    lone.ask(Leave(9, "t", "s", 0, 0))
    assert lone.answer(attach, answer).outputs == outputs
    assert lone.session.readers == {}


def test_each_call_by_a_leaving_reader_has_its_own_timeout() -> None:
    """SVC-7"""
    lone = at_five().ask(Leave(9, "t", "s", 5, 5, 0.3))
    assert commands(lone) == [do.Ack("t", "s", 3, 5)]
    ack = lone.call
    assert lone.wait(0.2).outputs == []
    assert commands(lone.answer(ack, errors.Fenced(4))) == [do.Detach("t", "s", 3, 5)]
    assert lone.wait(0.29).outputs == []
    assert lone.wait(0.01).outputs == [finished(NoAnswer(0.3))]
