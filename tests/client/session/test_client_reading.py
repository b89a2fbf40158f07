"""Test the exact effects of reads."""

from __future__ import annotations

from oncecast.client.session import credit, reading
from oncecast.client.session.local import (
    NEVER,
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
from oncecast.client.session.patience import ANSWERED_WITHIN
from oncecast.kernel.protocol import Emit, NodeId
from oncecast.wire import batch, errors, results
from oncecast.wire import commands as do
from oncecast.wire.frames import Chunk, Delivery, Fetch, FlowEnded, Look, TopicView, View
from oncecast.wire.retention import Policy
from tests.client.session.lone import Lone, chunk

WINDOW, UNREPORTED_BYTES_MAX = credit.WINDOW_BYTES, credit.UNREPORTED_BYTES_MAX


def attached(*, cursor: int = 5) -> Lone:
    lone = Lone().start().ask(Read("t", "s"))
    assert lone.call.command == do.Attach("t", "s", "inc.1", expected=0)
    return lone.answer(lone.call, results.Attached(3, cursor, 0, 9, 0, 1))


def delivered(lone: Lone) -> list[tuple[int, bytes, bool]]:
    """Return the offset, value and redelivery mark of each arrived message."""
    return [
        (message.offset, message.value, message.redelivered)
        for event in lone.events
        if isinstance(event, Arrived)
        for message in event.messages
    ]


def test_reading_starts_at_the_cursor() -> None:
    """SVC-3"""
    lone = attached()
    assert lone.events == [Positioned("t", "s", 5, 9, epoch=3)]
    assert lone.fetch == Fetch("t", "s", 3, 5, 5, 100, WINDOW)


def test_messages_arrive_once_and_in_order() -> None:
    """SVC-3"""
    lone = attached()
    assert delivered(lone.deliver(3, chunk(5, b"a", b"b"))) == [(5, b"a", False), (6, b"b", False)]
    assert delivered(lone.deliver(3, chunk(5, b"a", b"b"))) == []
    assert delivered(lone.deliver(3, chunk(5, b"a", b"b", b"c"))) == [(7, b"c", False)]
    assert lone.sent == []


def test_refused_ack_is_reported_even_after_the_reader_has_left() -> None:
    """SVC-3: another process has moved the subscription."""
    lone = attached()
    lone.deliver(3, chunk(5, b"a"))
    ack = lone.ask(Settle(9, "t", "s", 6, 6)).call
    lone.ask(Leave(10, "t", "s", 6, 6))
    moved = errors.Repositioned(4, 0)
    assert lone.answer(ack, moved).events == [Finished(9, moved)]


def test_ack_refused_during_a_seek_fails_immediately() -> None:
    """SVC-3: the reader may leave, and time out, before its own seek is answered."""
    lone = attached()
    lone.deliver(3, chunk(5, b"a"))
    ack = lone.ask(Settle(9, "t", "s", 6, 6)).call
    lone.ask(Move(10, "t", "s", do.FromEarliest()))
    moved = errors.Repositioned(4, 0)
    assert lone.answer(ack, moved).outputs == [Emit(Finished(9, results.Acked(0)), after=0)]
    last_ack = lone.ask(Leave(11, "t", "s", 6, 6)).call
    assert Finished(9, moved) not in lone.answer(last_ack, moved).events


def test_late_seek_answer_does_not_move_the_next_reader() -> None:
    """SVC-11: the next reader of the same subscription is not attached yet."""
    lone = attached()
    seek = lone.ask(Move(9, "t", "s", do.FromEarliest())).call
    lone.ask(Leave(10, "t", "s", 5, 5))
    lone.ask(Read("t", "s"))
    sought = results.Sought(4, 0, already=False)
    assert lone.answer(seek, sought).events == [Finished(9, sought)]
    assert lone.sent == []


def test_stale_delivery_is_dropped() -> None:
    """SVC-3"""
    lone = attached()
    assert lone.deliver(2, chunk(5, b"a")).outputs == []


def test_missing_messages_are_fetched_again_once() -> None:
    """SVC-3 SVC-13"""
    lone = attached()
    lone.deliver(3, chunk(5, b"a"))
    lone.deliver(3, chunk(7, b"c"))
    # The first fetch only renews the credit: the node cannot know that a message is missing.
    assert [each.offset for each in lone.sent if isinstance(each, Fetch)] == [6, 6]
    assert lone.events == []
    assert lone.deliver(3, chunk(8, b"d")).outputs == []


def test_possible_redeliveries_are_marked() -> None:
    """SVC-11"""
    lone = attached()
    lone.deliver(3, chunk(5, b"a", b"b"), suspect_below=6)
    assert delivered(lone) == [(5, b"a", True), (6, b"b", False)]


def test_fetch_is_repeated_if_the_node_is_silent() -> None:
    """SVC-3 SVC-13"""
    lone = attached().wait(0.6)
    assert lone.fetch.offset == 5


def test_delivery_is_not_fetched_again_while_bytes_are_moving() -> None:
    """SVC-3: a large message is still arriving over a slow link."""
    lone = attached()
    moved = 0

    def moving(_: NodeId) -> int:
        nonlocal moved
        moved += 1000
        return moved

    lone.measure(moving)
    assert lone.wait(30.0).sent == []
    lone.measure(lambda _: moved)  # the link has stalled
    assert lone.wait(1.0).fetch.offset == 5


def test_delivery_counts_as_lost_after_too_many_other_bytes() -> None:
    """SVC-3: other traffic may keep the link busy forever."""
    lone = attached()
    lone.measure(lambda _: int(lone.now * ANSWERED_WITHIN / 10))
    assert lone.wait(9.0).sent == []
    assert lone.wait(4.0).fetch.offset == 5


def test_reader_keeps_its_epoch_after_a_lost_link() -> None:
    """SVC-8 SVC-11"""
    lone = attached()
    lone.deliver(3, chunk(5, b"a"))
    lone.ask(Want("t", "s", 6, 6)).down()
    assert lone.sent == [Fetch("t", "s", 3, 6, 6, 100, WINDOW)]


def test_credit_is_renewed_when_half_of_it_is_used() -> None:
    """SVC-3"""
    lone = attached(cursor=0)
    lone.deliver(3, chunk(0, *[b"x"] * 60))
    assert lone.ask(Want("t", "s", 49, 0)).sent == []
    lone.ask(Want("t", "s", 50, 0))
    assert (lone.fetch.offset, lone.fetch.messages) == (60, 90)


def test_arrivals_are_reported_before_any_message_is_taken() -> None:
    """SVC-3: all readers of a client share one limit on bytes in flight."""
    lone = attached(cursor=0)
    lone.ask(Read("t", "other"))
    lone.answer(lone.call, results.Attached(4, 0, 0, 0, 0, 1))
    assert lone.deliver(3, chunk(0, bytes(UNREPORTED_BYTES_MAX // 2 - 1000))).sent == []
    lone.deliver(3, chunk(1, bytes(1000)))
    assert lone.fetch.offset == 2
    assert (
        lone.fetch.bytes <= WINDOW - UNREPORTED_BYTES_MAX // 2
    )  # no credit for messages that have arrived


def test_compressed_batch_uses_credit_for_its_uncompressed_size() -> None:
    """SVC-4"""
    lone = attached(cursor=0)
    large = batch.encode([bytes(1_000_000)], timestamps=1, zstd=3)
    lone.deliver(3, Chunk(0, 0, 1, "p", 0, large), Chunk(1, 0, 1, "p", 1, large))
    assert lone.fetch.bytes < WINDOW - 2_000_000


def test_arrival_reports_that_half_of_the_credit_is_used() -> None:
    """SVC-3"""
    lone = attached(cursor=0)
    assert lows(lone.deliver(3, chunk(0, *[b"x"] * 49))) == [False]
    assert lows(lone.deliver(3, chunk(49, b"x"))) == [True]
    lone.ask(Want("t", "s", 50, 0))
    assert lows(lone.deliver(3, chunk(50, bytes(WINDOW // 2)))) == [True]


def lows(lone: Lone) -> list[bool]:
    return [event.low for event in lone.events if isinstance(event, Arrived)]


def test_acks_are_sent_with_a_fetch_or_in_one_call() -> None:
    """SVC-3"""
    lone = attached()
    lone.deliver(3, chunk(5, b"a", b"b"))
    lone.ask(Want("t", "s", 6, 6)).wait(0.15)
    assert lone.fetch.ack == 6
    lone.ask(Want("t", "s", 7, 7)).wait(0.15)
    assert lone.call.command == do.Ack("t", "s", 3, 7)


def test_flush_waits_for_the_node_to_confirm_the_ack() -> None:
    """SVC-3"""
    lone = attached()
    lone.deliver(3, chunk(5, b"a", b"b"))
    lone.ask(Settle(9, "t", "s", 7, 6))
    assert lone.call.command == do.Ack("t", "s", 3, 6)
    assert lone.answer(lone.call, results.Acked(6)).events == [Finished(9, results.Acked(6))]


def test_ack_sent_before_a_seek_confirms_no_later_messages() -> None:
    """SVC-3"""
    lone = attached()
    lone.deliver(3, chunk(5, b"a", b"b", b"c"))
    old = lone.ask(Settle(9, "t", "s", 8, 8)).call
    lone.hear(FlowEnded("t", "s", 3, errors.Repositioned(4, 2)))
    assert Finished(9, results.Acked(2)) in lone.events
    lone.deliver(4, chunk(2, b"x", b"y"))
    new = lone.ask(Settle(10, "t", "s", 4, 4)).call
    assert new.command == do.Ack("t", "s", 4, 4)
    assert lone.answer(old, results.Acked(8)).events == []
    assert lone.answer(new, results.Acked(4)).events == [Finished(10, results.Acked(4))]


def test_nacked_messages_are_redelivered_and_marked() -> None:
    """SVC-3"""
    lone = attached()
    lone.deliver(3, chunk(5, b"a", b"b", b"c"))
    lone.ask(Again("t", "s", 6, 7))
    offsets = [each.offset for each in lone.sent if isinstance(each, Fetch)]
    assert offsets == [6, 6], "a single fetch would only renew the credit"
    assert delivered(lone.deliver(3, chunk(8, b"d"))) == []
    assert delivered(lone.deliver(3, chunk(6, b"b", b"c"))) == [(6, b"b", True), (7, b"c", False)]


def test_reader_continues_in_the_new_epoch_after_its_seek() -> None:
    """SVC-1"""
    lone = attached()
    lone.ask(Move(9, "t", "s", do.FromEarliest()))
    assert lone.call.command == do.Seek("t", "s", do.FromEarliest(), 0, "inc.1.1", 3)
    call = lone.call
    # An earlier notice of the seek has no effect before the answer arrives.
    assert lone.hear(FlowEnded("t", "s", 3, errors.Repositioned(4, 0))).outputs == []
    lone.answer(call, results.Sought(4, 0, False))
    assert lone.events == [
        Positioned("t", "s", 0, 9, epoch=4),
        Finished(9, results.Sought(4, 0, False)),
    ]
    assert lone.fetch == Fetch("t", "s", 4, 0, 0, 100, WINDOW)
    assert lone.deliver(3, chunk(5, b"a")).outputs == []


def test_seek_by_another_client_moves_the_reader() -> None:
    """SVC-3"""
    lone = attached()
    lone.hear(FlowEnded("t", "s", 3, errors.Repositioned(4, 2)))
    assert lone.events == [Positioned("t", "s", 2, 9, epoch=4)]
    assert lone.fetch == Fetch("t", "s", 4, 2, 2, 100, WINDOW)
    assert lone.hear(FlowEnded("t", "s", 3, errors.Repositioned(4, 2))).outputs == []


def test_fenced_reader_reports_the_error_and_stops() -> None:
    """SVC-8"""
    lone = attached()
    assert lone.hear(FlowEnded("t", "s", 2, errors.Fenced(4))).outputs == []
    assert lone.hear(FlowEnded("t", "s", 3, errors.Fenced(4))).events == [
        Ended("t", "s", errors.Fenced(4))
    ]
    assert lone.deliver(3, chunk(5, b"a")).outputs == []
    assert lone.wait(30.0).sent == []
    gone = errors.NotSubscribed("t", "s")
    assert lone.ask(Settle(9, "t", "s", 5, 5)).events == [Finished(9, gone)]


def test_new_reader_takes_over_from_the_attached_reader() -> None:
    """SVC-8"""
    lone = Lone().start().ask(Read("t", "s"))
    for epoch in (2, 5):
        lone.answer(lone.call, errors.Fenced(epoch))
        assert lone.events == []
        assert lone.call.command == do.Attach("t", "s", "inc.1", expected=epoch)
    lone.answer(lone.call, results.Attached(6, 5, 0, 9, 9, 1))
    assert lone.events == [Positioned("t", "s", 5, 9, epoch=6)]


def test_leaving_reader_does_not_take_over_the_subscription() -> None:
    """SVC-8"""
    lone = Lone().start().ask(Read("t", "s"))
    attach = lone.call
    lone.ask(Leave(4, "t", "s", 0, 0, timeout=5.0))
    lone.answer(attach, errors.Fenced(2))
    assert (lone.sent, lone.events) == ([], [Finished(4, results.Detached(0))])


def test_rejected_attach_ends_the_reader() -> None:
    """SVC-7"""
    lone = Lone().start().ask(Read("t", "s"))
    why = errors.NotSubscribed("t", "s")
    assert lone.answer(lone.call, why).events == [Ended("t", "s", why)]


def test_corrupt_delivery_is_refetched_before_it_is_reported() -> None:
    """SVC-10"""
    lone = attached()
    good = chunk(5, b"a")
    bad = type(good)(5, 0, 1, "p", 5, good.batch[:-1] + b"?")
    for _ in range(reading.DAMAGED_MAX - 1):
        assert lone.deliver(3, bad).fetch.offset == 5
    (ended,) = lone.deliver(3, bad).events
    assert isinstance(ended, Ended)
    assert isinstance(ended.why, errors.BadBatch)


def broken(offset: int, *values: bytes) -> Chunk:
    """Return a chunk whose batch is unreadable."""
    good = chunk(offset, *values)
    return Chunk(offset, 0, len(values), "p", offset, good.batch[:-1] + b"?")


def test_messages_before_a_bad_batch_are_taken_and_acknowledged_first() -> None:
    """SVC-3 SVC-10: otherwise a slow application would never get these messages."""
    lone = attached()
    lone.deliver(3, chunk(5, b"a", b"b"))
    for _ in range(reading.DAMAGED_MAX + 1):
        assert lone.deliver(3, broken(7, b"c", b"d")).events == []
    assert lone.ask(Want("t", "s", 6, 5)).events == []
    (ended,) = lone.ask(Want("t", "s", 7, 7)).events
    assert isinstance(ended, Ended)
    assert "offsets 7 to 8 of topic 't' cannot be read" in str(ended.why)
    assert lone.call.command == do.Ack("t", "s", 3, 7)
    assert lone.answer(lone.call, results.Acked(7)).call.command == do.Detach("t", "s", 3, 7)


def test_loss_is_reported_after_the_messages_before_it_are_taken() -> None:
    """SVC-10"""
    lone = attached()
    lone.deliver(3, chunk(5, b"a"))
    why = errors.BadBatch("offset 6 of topic 't' is lost")
    assert lone.hear(FlowEnded("t", "s", 3, why)).events == []
    assert lone.ask(Want("t", "s", 6, 5)).events == [Ended("t", "s", why)]


def test_unreadable_batch_is_read_when_a_good_copy_arrives() -> None:
    """SVC-10: the batch was damaged in transit, not on disk."""
    lone = attached()
    lone.deliver(3, chunk(5, b"a"))
    for _ in range(reading.DAMAGED_MAX):
        lone.deliver(3, broken(6, b"b"))
    assert delivered(lone.deliver(3, chunk(6, b"b"))) == [(6, b"b", False)]
    assert lone.ask(Want("t", "s", 7, 6)).events == []


def test_reader_can_leave_before_a_bad_batch_is_reported() -> None:
    """SVC-11"""
    lone = attached()
    lone.deliver(3, chunk(5, b"a"))
    lone.hear(FlowEnded("t", "s", 3, errors.BadBatch("offset 6 is lost")))
    lone.ask(Leave(9, "t", "s", 6, 6))
    detach = lone.answer(lone.call, results.Acked(6)).call
    assert lone.answer(detach, results.Detached(6)).events == [Finished(9, results.Detached(6))]


def test_flush_at_a_bad_batch_reports_the_error() -> None:
    """SVC-7: the flush must not wait forever."""
    lone = attached()
    lone.deliver(3, chunk(5, b"a"))
    why = errors.BadBatch("offset 6 is lost")
    lone.hear(FlowEnded("t", "s", 3, why))
    assert lone.ask(Settle(9, "t", "s", 6, 6)).events == [Ended("t", "s", why), Finished(9, why)]


def test_leaving_reader_reports_an_unanswered_ack() -> None:
    """SVC-7: the outcome of the ack is unknown."""
    lone = attached()
    lone.deliver(3, chunk(5, b"a"))
    lone.ask(Leave(9, "t", "s", 6, 6, 1.0))
    assert lone.wait(1.5).events == [Finished(9, NoAnswer(1.0))]


def test_leaving_reader_acknowledges_and_reports_delivered_messages() -> None:
    """SVC-11"""
    lone = attached()
    lone.deliver(3, chunk(5, b"a", b"b", b"c"))
    lone.ask(Leave(9, "t", "s", 7, 6))
    ack = lone.call
    assert ack.command == do.Ack("t", "s", 3, 6)
    detach = lone.answer(ack, results.Acked(6)).call
    assert detach.command == do.Detach("t", "s", 3, 7)
    done = results.Detached(7)
    assert lone.answer(lone.call, done).events == [Finished(9, done)]
    assert lone.deliver(3, chunk(8, b"d")).outputs == []


# Readers that store their own offsets (E3), and lost messages.


def test_reading_starts_at_the_application_offset() -> None:
    """SVC-3"""
    lone = Lone().start().ask(Read("t", "s", 7))
    lone.answer(lone.call, results.Attached(3, 5, 0, 9, 9, 1))
    assert lone.events == [Positioned("t", "s", 7, 9, epoch=3)]
    assert lone.fetch == Fetch("t", "s", 3, 7, 7, 100, WINDOW)


def test_application_offset_may_precede_the_cursor() -> None:
    """SVC-3"""
    lone = Lone().start().ask(Read("t", "s", 2))
    lone.answer(lone.call, results.Attached(3, 5, 0, 9, 9, 1))
    seek = lone.call
    assert seek.command == do.Seek("t", "s", do.FromOffset(2), 0, "inc.1.1", 3)
    lone.answer(seek, results.Sought(4, 4, False))
    assert lone.events == [Positioned("t", "s", 4, 9, epoch=4), Skipped("t", "s", 2, 4)]
    assert {each.offset for each in lone.sent if isinstance(each, Fetch)} == {4}


def test_offset_beyond_the_end_is_refused() -> None:
    """SVC-7"""
    lone = Lone().start().ask(Read("t", "s", 10))
    lone.answer(lone.call, results.Attached(3, 5, 0, 9, 9, 1))
    assert lone.events == [Ended("t", "s", errors.OutOfRange(9))]


def test_messages_dropped_by_retention_are_reported_in_order() -> None:
    """SVC-9"""
    lone = attached()
    lone.deliver(3, chunk(5, b"a"))
    lone.deliver(3, chunk(8, b"d"))
    lone.wait(0.6)
    (look,) = [each for each in lone.sent if isinstance(each, Look)]
    topic = TopicView("t", 1, 8, 9, 0, Policy(), (), 0)
    assert lone.hear(View(look.id, (topic,), False, "node", "1")).events == []
    assert lone.call.command == do.Ack("t", "s", 3, 5)
    assert lone.answer(lone.call, results.Acked(5)).events == []
    lone.ask(Want("t", "s", 6, 6))
    assert lone.events == [Skipped("t", "s", 6, 8)]
    assert delivered(lone.deliver(3, chunk(8, b"d"))) == [(8, b"d", False)]


def test_deleted_messages_are_reported_even_if_none_follow() -> None:
    """SVC-4 SVC-9"""
    lone = attached()
    lone.deliver(3, chunk(5, b"a"))
    assert lone.hear(Delivery("t", "s", 3, (), 0, 9)).events == []
    lone.ask(Want("t", "s", 6, 6))
    assert lone.events == [Skipped("t", "s", 6, 9)]
    assert lone.fetch.offset == 9
    assert lone.hear(Delivery("t", "s", 3, (), 0, 9)).events == []


def test_messages_acknowledged_by_a_newer_reader_are_not_reported_as_dropped() -> None:
    """SVC-8"""
    lone = attached()
    lone.deliver(3, chunk(8, b"d"))
    lone.wait(0.6)
    (look,) = [each for each in lone.sent if isinstance(each, Look)]
    topic = TopicView("t", 1, 8, 9, 0, Policy(), (), 0)
    lone.hear(View(look.id, (topic,), False, "node", "1"))
    assert lone.answer(lone.call, errors.Fenced(4)).events == [Ended("t", "s", errors.Fenced(4))]


def test_leaving_reader_waits_for_a_pending_attach_until_its_timeout() -> None:
    """SVC-3: if the node answers in time, the reader detaches."""
    lone = Lone().start().ask(Read("t", "s"))
    attach = lone.call
    lone.ask(Leave(7, "t", "s", 0, 0, 5.0))
    assert lone.events == []
    assert Finished(7, NoAnswer(5.0)) in lone.wait(5.0).events
    assert lone.answer(attach, results.Attached(3, 5, 0, 9, 0, 1)).sent == []
    assert lone.wait(20.0).sent == [], "the attach is not repeated"

    lone = Lone().start().ask(Read("t", "s"))
    attach = lone.call
    lone.ask(Leave(7, "t", "s", 0, 0, 5.0))
    lone.answer(attach, results.Attached(3, 5, 0, 9, 0, 1))
    lone.answer(lone.call, results.Acked(5))
    assert isinstance(lone.call.command, do.Detach)


def test_each_reader_has_its_own_incarnation() -> None:
    """SVC-3: late messages for an earlier reader must not end the next one."""
    lone = attached()
    lone.ask(Leave(7, "t", "s", 5, 5))
    lone.ask(Read("t", "s"))
    assert lone.call.command == do.Attach("t", "s", "inc.2", expected=0)
    lone.ask(Leave(8, "t", "s", 5, 5))
    lone.ask(Read("t", "s"))
    assert Finished(8, NoAnswer(NEVER)) in lone.events
    assert lone.call.command == do.Attach("t", "s", "inc.3", expected=0)
