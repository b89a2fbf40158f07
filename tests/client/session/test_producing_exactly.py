"""Test the exact effects of puts: limits, pauses, and every case of renumbering."""

from __future__ import annotations

import pytest

from oncecast.client.session.local import AllDone, Finish, NotStored, Produce, Stored
from oncecast.client.session.producing import WINDOW_BATCHES
from oncecast.client.session.records import Based, ClientState, Named, Queued, Settled, Withdrawn
from oncecast.kernel.protocol import Append, Emit, Send, Snapshot, Value
from oncecast.wire import commands as do
from oncecast.wire import errors, results
from oncecast.wire.frames import Call
from tests.client.session.lone import NODE, Lone
from tests.client.session.test_client_producing import A, B, C, commands, opening, opens, put
from tests.dice import HighDice

MIB = 1 << 20
SECOND = 64 * 1024  # minimum bytes per second that a node stores
REFUSED = errors.TooLarge("bytes", 1)
BUSY = errors.Overloaded("calls")
UNOPENED = errors.Unopened("t", "p")
FORGOTTEN = errors.Forgotten("t", "p")


def putting(*batches: bytes, durable: bool = False, sequence: int = 0, epoch: int = 7) -> Lone:
    """Return a session with an open producer that has sent batches of one message each."""
    lone = Lone(durable=durable, rng=HighDice(1)).start()
    for ticket, batch in enumerate(batches or (A,), 1):
        lone.ask(Produce(ticket, "t", 1, batch))
    return lone.answer(opens(lone), opening(epoch, sequence, 1))


def next_process(*records: Value) -> Lone:
    """Return a session that has restored these records.

    If the records contain batches, the session opens its producer.
    """
    lone = Lone(durable=True, incarnation="next", rng=HighDice(1))
    return lone.start(Named("p", "directory"), *records)


def calls(lone: Lone) -> list[Call]:
    return [each for each in lone.sent if isinstance(each, Call)]


def expecting(epoch: int, incarnation: str = "inc") -> do.OpenProducer:
    return do.OpenProducer("t", "p", incarnation, 0, expected=epoch)


# Windows and records.


def test_client_without_a_state_directory_puts_without_waiting_for_the_disk() -> None:
    """SVC-2"""
    lone = putting()
    assert lone.outputs == [Send(NODE, lone.call)]


def test_resent_put_waits_only_for_its_own_record() -> None:
    """SVC-2"""
    lone = putting(A, durable=True)
    put_a = lone.call
    assert lone.outputs == [Append(Based("t", 1, 0, 0), 3), Send(NODE, put_a, 3)]
    lone.ask(Produce(2, "t", 2, B))
    assert lone.outputs == [Append(Queued("t", 1, 2, 0, B), 4), Send(NODE, lone.call, 4)]
    lone.wait(0.51)
    assert lone.outputs == [Send(NODE, lone.call, 3)]
    assert lone.call.command == put_a.command


@pytest.mark.parametrize(("size", "sent"), [(4 * MIB, 2), (4 * MIB - 1, 3)])
def test_window_limits_the_bytes_in_flight(size: int, sent: int) -> None:
    """SVC-2: the last batch may exceed the window."""
    assert len(calls(putting(bytes(4 * MIB), bytes(size), C))) == sent


def test_byte_window_advances_with_each_answer() -> None:
    """SVC-2"""
    large = bytes(4 * MIB)
    lone = putting(large, large, large, large, C)
    for sequence, call in enumerate(calls(lone)):
        lone.answer(call, results.Appended(sequence, 1, True))
        assert commands(lone) == [put(sequence + 2, 1, large)]


def test_rewound_batches_do_not_count_as_in_flight() -> None:
    """SVC-2"""
    large = bytes(4 * MIB)
    lone = putting(large, large, large).down()
    assert commands(lone) == [put(0, 1, large)]
    lone.answer(lone.call, results.Appended(0, 1, True))
    assert commands(lone) == [put(1, 1, large), put(2, 1, large)]


# Time.


def test_timeout_starts_at_the_last_answer_and_grows_with_unstored_bytes() -> None:
    """SVC-2"""
    lone = putting(A, bytes(SECOND))
    first = calls(lone)[0]
    assert lone.wait(0.4).answer(first, results.Appended(0, 1, True)).sent == []
    assert lone.wait(1.49).outputs == []
    assert commands(lone.wait(0.02)) == [put(1, 1, bytes(SECOND))]


def test_busy_node_is_retried_with_backoff() -> None:
    """SVC-7: the refusals of all batches in flight count as one."""
    lone = putting(A, C)
    for pause in (0.5, 2.0, 8.0):
        for call in calls(lone):
            assert lone.answer(call, BUSY).outputs == []
        assert lone.session.busy == BUSY
        assert lone.wait(pause - 0.01).outputs == []
        assert commands(lone.wait(0.02)) == [put(0, 1, A)]
    lone.answer(lone.call, results.Appended(0, 1, True))
    assert commands(lone) == [put(1, 1, C)]
    assert lone.session.busy is None
    assert lone.wait(0.49).outputs == []
    assert commands(lone.wait(0.02)) == [put(1, 1, C)]


def test_answer_during_a_pause_reopens_the_window() -> None:
    """SVC-2"""
    large = bytes(SECOND)
    lone = putting(large, large)
    first = calls(lone)[0]
    lone.answer(first, BUSY)
    assert lone.answer(first, errors.Gap(0)).outputs == []
    lone.answer(first, results.Appended(0, 1, True))
    assert (lone.events, commands(lone)) == ([Stored(1, 0, True)], [put(1, 1, large)])
    assert lone.wait(1.49).outputs == []
    assert commands(lone.wait(0.02)) == [put(1, 1, large)]


def test_answer_to_a_batch_sent_before_the_timeout_widens_the_window_by_one() -> None:
    """SVC-2: later batches may still be in flight, so not all of them are resent."""
    lone = putting(A, C, A, C, A, C)
    first, second, *_ = calls(lone)
    assert commands(lone.wait(0.51)) == [put(0, 1, A)]
    assert commands(lone.answer(first, results.Appended(0, 1, True))) == [
        put(1, 1, C),
        put(2, 1, A),
    ]
    assert commands(lone.answer(second, results.Appended(1, 1, True))) == [
        put(3, 1, C),
        put(4, 1, A),
    ]
    again = calls(lone)[0]
    assert commands(lone.answer(again, results.Already(3, 1))) == [put(5, 1, C)]


def test_window_is_never_wider_than_its_limit() -> None:
    """SVC-2"""
    lone = putting(*[A] * (WINDOW_BATCHES + 2))
    first, _, third, *_ = calls(lone)
    lone.answer(third, errors.Gap(1))
    assert len(calls(lone)) == WINDOW_BATCHES - 1
    lone.answer(first, results.Appended(0, 1, True))
    assert commands(lone) == [put(WINDOW_BATCHES, 1, A)]


def test_answer_to_a_batch_sent_after_the_timeout_reopens_the_window() -> None:
    """SVC-2"""
    lone = putting(A, C, A, C, A)
    lone.wait(0.51)
    assert commands(lone.answer(lone.call, results.Already(0, 1))) == [
        put(1, 1, C),
        put(2, 1, A),
        put(3, 1, C),
        put(4, 1, A),
    ]


def test_puts_to_a_moved_topic_wait_until_it_is_found() -> None:
    """REP-6"""
    lone = putting(A, C)
    for call in calls(lone):
        assert lone.answer(call, errors.NotHere("t")).outputs == []
    assert lone.ask(Produce(3, "t", 2, B)).outputs == []
    assert commands(lone.wait(0.0)) == [put(0, 1, A)]
    assert lone.wait(1.99).outputs == []
    assert commands(lone.wait(0.02)) == [put(0, 1, A)]


def test_failed_open_is_retried_with_backoff_if_an_outbox_is_pending() -> None:
    """SVC-7"""
    lone = next_process(Queued("t", 0, 1, 0, A))
    for pause in (0.5, 1.0, 2.0):
        assert lone.answer(lone.call, errors.TooMany("topics", 1)).outputs == []
        assert lone.wait(pause - 0.01).outputs == []
        assert commands(lone.wait(0.02)) == [
            do.OpenProducer("t", "p", "next", 0, directory_id="directory", expected=0)
        ]


def test_link_lost_before_the_open_does_not_count_as_a_timeout() -> None:
    """SVC-2"""
    lone = Lone(rng=HighDice(1)).start().ask(Produce(1, "t", 1, A)).down()
    lone.answer(lone.call, opening(7, 0, 1))
    assert lone.wait(0.49).outputs == []
    assert commands(lone.wait(0.02)) == [put(0, 1, A)]


def test_link_lost_while_no_put_is_in_flight_does_not_close_the_window() -> None:
    """SVC-2"""
    lone = putting()
    lone.answer(lone.call, results.Appended(0, 1, True)).down()
    assert commands(lone.ask(Produce(2, "t", 1, C))) == [put(1, 1, C)]
    assert commands(lone.ask(Produce(3, "t", 2, B))) == [put(2, 2, B)]


def test_idle_producer_sets_no_timer() -> None:
    """SVC-9"""
    lone = putting()
    lone.measure(lambda _: int(1000 * lone.now))
    lone.answer(lone.call, results.Appended(0, 1, True))
    assert lone.wait(10.0).wakes == []


# Answers.


def test_batches_are_resent_from_the_first_missing_one() -> None:
    """SVC-2: the answer to the first batch and all later batches were lost."""
    lone = putting(A, C, C, sequence=40)
    last = calls(lone)[-1]
    lone.answer(last, errors.Gap(41))
    assert commands(lone) == [put(41, 1, C), put(42, 1, C)]
    assert lone.answer(last, errors.Gap(41)).outputs == []


def test_batch_answered_after_a_rewind_is_not_resent() -> None:
    """SVC-2"""
    lone = putting(A, C, B, C)
    _, second, third, _ = calls(lone)
    lone.wait(0.51)
    probe = lone.call
    for ticket, call in ((2, second), (3, third)):
        lone.answer(call, results.Appended(ticket, 1, True))
        assert lone.events == [Stored(ticket, ticket, True)]
    lone.answer(probe, results.Already(0, 1))
    assert lone.outputs == [Emit(Stored(1, 0, None))]


def test_answers_from_an_earlier_epoch_are_ignored() -> None:
    """SVC-2"""
    lone = putting(A, C)
    first, second = calls(lone)
    assert commands(lone.answer(first, UNOPENED)) == [expecting(0)]
    for call in (first, second):
        assert lone.answer(call, results.Appended(0, 1, True)).outputs == []


def test_impossible_answer_to_a_put_raises_an_assertion_error() -> None:
    lone = putting()
    with pytest.raises(AssertionError, match="does not answer a put"):
        lone.answer(lone.call, results.Detached(0))


def test_batches_after_a_refused_batch_are_renumbered() -> None:
    """SVC-7"""
    lone = putting(A, C, B)
    second = calls(lone)[1]
    probe = lone.wait(0.51).call
    lone.answer(second, REFUSED)
    assert lone.outputs == []
    lone.answer(probe, results.Appended(0, 1, True))
    assert lone.events == [Stored(1, 0, True), NotStored(2, REFUSED)]
    assert commands(lone) == [expecting(7, "inc.1")]


def test_refusal_does_not_settle_a_batch_that_is_sent_again_after_a_deletion() -> None:
    """SVC-2: the refused batch waits behind one that finds the topic deleted."""
    lone = putting(A, C)
    first, second = calls(lone)
    assert lone.answer(second, REFUSED).outputs == []
    lone.answer(first, UNOPENED)
    first, second = calls(lone.answer(lone.call, opening(8, 0, 2)))
    assert lone.answer(first, results.Appended(0, 1, True)).outputs == [Emit(Stored(1, 0, True))]
    assert lone.answer(second, results.Appended(1, 1, True)).outputs == [Emit(Stored(2, 1, True))]


def test_refusal_does_not_settle_a_batch_that_is_sent_again_after_a_drop() -> None:
    """SVC-2: the first batch is refused too. The batch between them gets its sequence."""
    lone = putting(A, C, A)
    third = calls(lone)[2]
    probe = lone.wait(0.51).call
    assert lone.answer(third, REFUSED).outputs == []
    lone.answer(probe, REFUSED)
    assert commands(lone) == [expecting(7, "inc.1")]
    lone.answer(lone.call, opening(8, 0, 1))
    assert (lone.events, commands(lone)) == ([NotStored(1, REFUSED)], [expecting(8, "inc.2")])
    lone.answer(lone.call, opening(9, 0, 1))
    assert commands(lone) == [put(0, 1, C, epoch=9), put(1, 1, A, epoch=9)]
    second, third = calls(lone)
    assert lone.answer(second, results.Appended(0, 1, True)).outputs == [Emit(Stored(2, 0, True))]
    assert lone.answer(third, results.Appended(1, 1, True)).outputs == [Emit(Stored(3, 1, True))]


def test_batch_after_a_refused_batch_is_put_to_a_recreated_topic() -> None:
    """SVC-2: the deleted topic cannot contain it, because the batch before it was refused."""
    lone = putting(A, C)
    lone.answer(calls(lone)[0], REFUSED)
    assert lone.events == [NotStored(1, REFUSED)]
    lone.answer(lone.call, opening(8, 0, 2))
    assert (lone.events, commands(lone)) == ([], [put(0, 1, C, epoch=8)])


# The name is held by another process.


@pytest.mark.parametrize(("held", "reported"), [(7, False), (6, False), (8, True)])
def test_process_reclaims_its_name_unless_a_newer_process_holds_it(
    held: int, reported: bool
) -> None:
    """SVC-8"""
    lone = putting(A, C)
    lone.answer(calls(lone)[0], REFUSED)
    why = errors.Fenced(held)
    lone.answer(lone.call, why)
    assert lone.events == ([NotStored(2, why)] if reported else [])
    assert commands(lone) == ([] if reported else [expecting(held, "inc.1")])


def test_fenced_first_epoch_producer_does_not_reclaim_its_name() -> None:
    """SVC-8"""
    lone = putting(A, C, epoch=1)
    lone.answer(calls(lone)[0], REFUSED)
    why = errors.Fenced(2)
    assert lone.answer(lone.call, why).outputs == [Emit(NotStored(2, why))]


@pytest.mark.parametrize(("durable", "kept"), [(False, 0), (True, 2)])
def test_fenced_client_keeps_its_batches_only_on_disk(durable: bool, kept: int) -> None:
    """SVC-8"""
    lone = putting(A, C, durable=durable)
    first, why = calls(lone)[0], errors.Fenced(9)
    lone.answer(first, why)
    assert lone.outputs == [Emit(NotStored(ticket, why)) for ticket in (1, 2)]
    assert lone.session.unsettled == kept
    assert lone.answer(first, results.Appended(0, 1, True)).outputs == []
    assert lone.wait(30.0).sent == []
    assert lone.down().sent == []
    assert lone.ask(Finish(9, forget=True)).events == [AllDone(9)]
    assert lone.sent == []


def test_failed_open_settles_batches_on_disk_too() -> None:
    """SVC-7: the application got the error and may put the message again."""
    lone = Lone(durable=True).start().ask(Produce(1, "t", 1, A))
    why = errors.TooMany("topics", 1)
    lone.answer(lone.call, why)
    assert lone.session.unsettled == 0
    assert lone.outputs == [
        Append(Settled("t", 1), number=3),
        Emit(NotStored(1, why), after=3),
    ]


def test_refused_put_leaves_the_outbox_while_older_batches_stay() -> None:
    """SVC-7, SVC-2: the refused put is no longer in the outbox; the next put is."""
    outbox = [Named("p", "directory"), Queued("t", 0, 2, 0, B)]
    lone = Lone(durable=True, incarnation="next").start(*outbox)
    why = errors.TooMany("producers in the topic", 1)
    lone.ask(Produce(1, "t", 1, A))
    lone.answer(calls(lone.wait(1.0))[0], why)
    assert lone.outputs == [
        Append(Withdrawn("t", 2), number=4),
        Emit(NotStored(1, why), after=4),
    ]
    lone.ask(Produce(2, "t", 1, C))
    assert lone.records == [Queued("t", 2, 1, 0, C)]
    lone.answer(lone.call, opening(7, 0, 1))
    assert commands(lone) == [put(0, 2, B), put(2, 1, C)]
    written = [Queued("t", 2, 1, 0, A), Withdrawn("t", 2), Queued("t", 2, 1, 0, C)]
    later = Lone(durable=True, incarnation="last").start(*outbox, *written)
    later.answer(later.call, opening(8, 0, 1))
    assert commands(later) == [put(0, 2, B, epoch=8), put(2, 1, C, epoch=8)]


def test_batch_of_an_earlier_process_stays_after_a_refused_one() -> None:
    """SVC-2: the node refuses the batch before it, then an open."""
    lone = next_process(Queued("t", 0, 1, 0, A), Queued("t", 1, 1, 0, C))
    lone.answer(lone.call, opening(7, 0, 1))
    lone.answer(calls(lone)[0], REFUSED)
    lone.answer(lone.call, opening(8, 0, 1))
    assert lone.events == [NotStored(0, REFUSED)]
    assert lone.answer(lone.call, REFUSED).outputs == []
    lone.answer(calls(lone.wait(1.0))[0], opening(9, 0, 1))
    assert (lone.events, commands(lone)) == ([], [put(0, 1, C, epoch=9)])


def test_restarted_client_does_not_resend_refused_batches() -> None:
    """SVC-2: the application has seen the error and may have put the message again."""
    lone = Lone(durable=True).start()
    records = [*lone.records, *lone.ask(Produce(1, "t", 1, A)).records]
    records += lone.answer(lone.call, opening(7, 0, 1)).records
    first = lone.call
    records += lone.ask(Produce(2, "t", 1, C)).records
    records += lone.answer(first, REFUSED).records
    assert lone.events == [NotStored(1, REFUSED)]
    later = Lone(durable=True, incarnation="next").start(*records)
    later.answer(later.call, errors.Fenced(7))
    later.answer(later.call, opening(8, 0, 1))
    assert commands(later) == [put(0, 1, C, epoch=8)]


# Renumbering.


def test_sequence_numbers_are_kept_if_the_node_stored_only_batches_from_the_outbox() -> None:
    """SVC-2: no record needs to be written."""
    for known, stored in ((0, 0), (1, 1), (3, 2)):
        outbox = [Based("t", 3, 0, 40), Queued("t", 0, 1, 0, A), Queued("t", 1, 2, 0, B)]
        lone = next_process(*outbox)
        lone.answer(lone.call, opening(8, 40 + known, 3, mine=(40, 40 + known)))
        assert lone.events == [Stored(0, -1, None)] * stored
        assert lone.records == []
        assert commands(lone) == [put(40, 1, A, 8), put(41, 2, B, 8)][stored:]
        assert all(each.after == 0 for each in lone.outputs if isinstance(each, Send))


@pytest.mark.parametrize(
    ("known", "sequence", "records"),
    [(42, 42, []), (41, 41, [Based("t", 3, 2, 41)]), (43, 43, [Based("t", 3, 2, 43)])],
    ids=["all", "less than it acknowledged", "more than was sent"],
)
def test_unsent_batch_continues_the_sequence_on_the_node(
    known: int, sequence: int, records: list[Value]
) -> None:
    """SVC-2"""
    lone = next_process(Based("t", 3, 0, 40), Settled("t", 2))
    lone.ask(Produce(1, "t", 1, A))
    lone.answer(lone.call, opening(8, known, 3, mine=(40, known)))
    assert lone.records == records
    assert commands(lone) == [put(sequence, 1, A, epoch=8)]


def test_put_that_may_be_stored_keeps_its_sequence_number() -> None:
    """SVC-2: under another number it would be stored twice."""
    lone = putting(sequence=40).down()
    lone.answer(lone.call, UNOPENED)
    lone.answer(lone.call, opening(8, 41, 1, mine=(40, 41)))
    assert (lone.events, commands(lone)) == ([], [put(40, 1, A, epoch=8)])


@pytest.mark.parametrize(
    ("record", "reported", "sequence"),
    [(0, [], 0), (5, [], 0), (1, [NotStored(1, FORGOTTEN)], 1)],
    ids=["not told", "the same", "another"],
)
@pytest.mark.parametrize("durable", [False, True])
def test_unknown_outcome_is_reported_if_the_node_has_another_record(
    record: int, reported: list[Value], sequence: int, durable: bool
) -> None:
    """SVC-2: durable clients log a changed record number."""
    lone = Lone(durable=durable).start().ask(Produce(1, "t", 1, A))
    lone.answer(lone.call, opening(7, 0, 1, record=5)).down()
    lone.answer(lone.call, errors.Gap(0))
    lone.answer(lone.call, opening(8, 0, 1, record=record))
    assert lone.events == reported
    based = Based("t", 1, sequence, 0, record)
    written = [*[Settled("t", 1)] * len(reported), based]
    assert lone.records == (written if durable and record != 5 else [])
    assert commands(lone) == [put(0, 1, A, epoch=8)][sequence:]


@pytest.mark.parametrize("record", [0, 5, 1])
def test_unknown_outcome_is_reported_if_an_open_creates_the_record(record: int) -> None:
    """SVC-2: an open that expects no process succeeds only if the earlier record was deleted."""
    lone = Lone().start().ask(Produce(1, "t", 1, A))
    lone.answer(lone.call, opening(7, 0, 1, record=5)).down()
    lone.answer(lone.call, UNOPENED)
    lone.answer(lone.call, opening(8, 0, 1, record=record))
    assert (lone.events, commands(lone)) == ([NotStored(1, FORGOTTEN)], [])


def test_restarted_client_does_not_put_batches_again_under_another_record() -> None:
    """SVC-2: the earlier record was deleted. Another process has created a new one since."""
    lone = next_process(Based("t", 1, 0, 0, 5), Queued("t", 0, 1, 0, A))
    lone.answer(opens(lone), errors.Fenced(7))
    lone.answer(lone.call, opening(8, 0, 1, record=6))
    assert (lone.events, commands(lone)) == ([NotStored(0, FORGOTTEN)], [])


def test_first_batch_is_put_again_each_time_the_topic_is_recreated() -> None:
    """SVC-2: the topic is created again each time."""
    lone = putting()
    for topic_id in (2, 3):
        lone.answer(lone.call, UNOPENED)
        lone.answer(lone.call, opening(8, 0, topic_id))
        assert (lone.events, commands(lone)) == ([], [put(0, 1, A, epoch=8)])


def test_outcome_of_a_batch_is_unknown_when_only_a_later_batch_is_refused() -> None:
    """SVC-2: the first batch may be stored in the deleted topic."""
    lone = putting(A, C)
    lone.answer(calls(lone)[1], UNOPENED)
    lone.answer(lone.call, opening(8, 0, 2))
    assert lone.events == [NotStored(ticket, FORGOTTEN) for ticket in (1, 2)]
    assert lone.sent == []


# Restart.


def test_snapshot_includes_batches_from_an_unopened_producer() -> None:
    """SVC-9"""
    lone = Lone(durable=True).start().ask(Produce(1, "t", 1, A))
    lone.ask(Finish(9, forget=False))
    outbox = (Based("t", 0, 0, 0), Settled("t", 0), Queued("t", 0, 1, 0, A))
    states = [each.state for each in lone.outputs if isinstance(each, Snapshot)]
    assert states == [ClientState("p", "inc", outbox)]


def test_restarted_client_continues_after_the_settled_batches() -> None:
    """SVC-2"""
    lone = next_process(Based("t", 3, 5, 45), Settled("t", 7))
    assert lone.ask(Produce(1, "t", 1, A)).records == [Queued("t", 7, 1, 7, A)]
    lone.answer(lone.call, opening(8, 47, 3, mine=(45, 47)))
    assert (lone.records, commands(lone)) == ([], [put(47, 1, A, epoch=8)])
    batches = [Queued("t", 0, 1, 0, A), Queued("t", 1, 2, 0, B)]
    lone = next_process(Based("t", 3, 0, 40), *batches, Settled("t", 1))
    lone.answer(lone.call, opening(8, 41, 3, mine=(40, 41)))
    assert (lone.events, commands(lone)) == ([], [put(41, 2, B, epoch=8)])
