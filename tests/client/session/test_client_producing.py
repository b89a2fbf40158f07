"""Test the exact effects of puts."""

from __future__ import annotations

from oncecast.client.session import producing
from oncecast.client.session.local import AllDone, Finish, NotStored, Produce, Stored
from oncecast.client.session.records import Based, ClientState, Named, Queued, Settled
from oncecast.kernel.protocol import Append, Send, Snapshot
from oncecast.wire import commands as do
from oncecast.wire import errors, results
from oncecast.wire.frames import Call
from tests.client.session.lone import NODE, Lone, packed

A, B, C = packed(b"a"), packed(b"b1", b"b2"), packed(b"c")


def put(sequence: int, count: int, batch: bytes, epoch: int = 7) -> do.Put:
    return do.Put("t", "p", epoch, sequence, count, len(batch), 0, batch)


def opened(next_sequence: int = 0, *, durable: bool = False, topic_id: int = 1) -> Lone:
    """Return a session with an open producer and an unanswered put of A."""
    lone = Lone(durable=durable).start().ask(Produce(1, "t", 1, A))
    return lone.answer(lone.call, opening(7, next_sequence, topic_id))


def opening(
    epoch: int,
    next_sequence: int,
    topic_id: int,
    mine: tuple[int, int] | None = None,
    record: int = 0,
) -> results.Opened:
    """Return the answer to an open under a name that no other process uses."""
    return results.Opened(epoch, next_sequence, topic_id, mine or (0, next_sequence), record)


def commands(lone: Lone) -> list[object]:
    return [each.command for each in lone.sent if isinstance(each, Call)]


def test_first_put_opens_the_producer() -> None:
    """SVC-2"""
    lone = Lone().start().ask(Produce(1, "t", 1, A))
    assert commands(lone) == [do.OpenProducer("t", "p", "inc", 0, expected=0)]
    lone.ask(Produce(2, "t", 2, B))
    assert lone.sent == []


def test_pipelined_puts_continue_the_sequence_on_the_node() -> None:
    """SVC-2"""
    lone = opened(40)
    assert commands(lone) == [put(40, 1, A)]
    lone.ask(Produce(2, "t", 2, B))
    assert commands(lone) == [put(41, 2, B)]
    lone.ask(Produce(3, "t", 1, C))
    assert commands(lone) == [put(43, 1, C)]


def test_answer_settles_only_its_own_batch() -> None:
    """SVC-2"""
    lone = opened()
    first = lone.call
    second = lone.ask(Produce(2, "t", 2, B)).call
    assert lone.answer(second, results.Appended(11, 2, True)).events == [Stored(2, 11, True)]
    assert lone.answer(first, results.Already(10, 1)).events == [Stored(1, 10, None)]
    assert lone.answer(first, results.Already(10, 1)).events == []


def test_gap_triggers_a_single_resend_from_the_missing_batch() -> None:
    """SVC-2 SVC-13"""
    lone = opened()
    calls = [lone.call]
    for ticket, count, batch in ((2, 2, B), (3, 1, C)):
        calls.append(lone.ask(Produce(ticket, "t", count, batch)).call)
    lone.answer(calls[0], results.Appended(0, 1, True))
    lone.answer(calls[2], errors.Gap(1))
    assert commands(lone) == [put(1, 2, B), put(3, 1, C)]
    assert lone.answer(calls[1], errors.Gap(1)).sent == []


def test_window_limits_the_batches_in_flight() -> None:
    """SVC-2"""
    lone = opened()
    first = lone.call
    for ticket in range(2, producing.WINDOW_BATCHES + 3):
        lone.ask(Produce(ticket, "t", 1, A))
    assert lone.sent == []
    lone.answer(first, results.Appended(0, 1, True))
    assert commands(lone) == [put(producing.WINDOW_BATCHES, 1, A)]


def test_silent_node_is_probed_with_the_first_unanswered_batch() -> None:
    """SVC-2"""
    lone = opened()
    lone.ask(Produce(2, "t", 2, B))
    lone.wait(0.6)
    assert commands(lone) == [put(0, 1, A)]
    probe = lone.call
    lone.wait(20.0)
    assert 3 <= len(lone.sent) <= 6
    lone.answer(probe, results.Already(0, 1))
    assert commands(lone) == [put(1, 2, B)]


def test_batch_is_not_resent_while_bytes_are_moving() -> None:
    """SVC-2: the first batch is still being sent over a slow link."""
    lone = opened()
    lone.measure(lambda _: int(1000 * lone.now))
    assert lone.wait(30.0).sent == []
    lone.measure(lambda _: 30_000)  # the link has stalled
    assert commands(lone.wait(1.0)) == [put(0, 1, A)]


def test_timeout_grows_with_each_lost_link_until_the_node_answers() -> None:
    """SVC-2"""
    lone = opened()
    for _ in range(4):
        lone.down()
    assert lone.wait(2.0).sent == []
    assert commands(lone.wait(6.0)) == [put(0, 1, A)]
    lone.answer(lone.call, results.Appended(0, 1, True))
    assert commands(lone.ask(Produce(2, "t", 2, B))) == [put(1, 2, B)]
    assert commands(lone.wait(0.6)) == [put(1, 2, B)]


def test_busy_node_is_retried_even_while_bytes_are_moving() -> None:
    """SVC-7"""
    lone = opened()
    lone.measure(lambda _: int(1000 * lone.now))
    assert lone.answer(lone.call, errors.Overloaded("calls")).sent == []
    assert commands(lone.wait(0.6)) == [put(0, 1, A)]


def test_producer_keeps_its_epoch_after_a_lost_link() -> None:
    """SVC-2 SVC-8"""
    lone = opened().down()
    assert commands(lone) == [put(0, 1, A)]


def test_deleted_producer_reopens_and_renumbers_unsettled_batches() -> None:
    """SVC-2"""
    lone = opened(40)
    lone.answer(lone.call, results.Appended(0, 1, True))
    lone.ask(Produce(2, "t", 2, B))
    lone.answer(lone.call, errors.Unopened("t", "p"))
    assert commands(lone) == [do.OpenProducer("t", "p", "inc", 0, expected=0)]
    lone.answer(lone.call, opening(8, 0, 2))
    assert commands(lone) == [put(0, 2, B, epoch=8)]


def test_producer_reopens_if_the_node_lost_acknowledged_batches() -> None:
    lone = opened(40)
    lone.answer(lone.call, results.Appended(0, 1, True))
    lone.ask(Produce(2, "t", 2, B))
    lone.answer(lone.call, errors.Gap(0))
    lone.answer(lone.call, opening(8, 0, 1))
    assert commands(lone) == [put(0, 2, B, epoch=8)]


def test_fenced_producer_fails_all_pending_and_later_batches() -> None:
    """SVC-8"""
    lone = opened()
    first = lone.call
    lone.ask(Produce(2, "t", 2, B))
    why = errors.Fenced(9)
    assert lone.answer(first, why).events == [NotStored(1, why), NotStored(2, why)]
    lone.ask(Produce(3, "t", 1, C))
    assert (lone.events, lone.sent) == ([NotStored(3, why)], [])


def test_new_process_takes_over_the_producer_name() -> None:
    """SVC-8: the process names the epoch that it replaces, and retries after a concurrent open."""
    lone = Lone().start().ask(Produce(1, "t", 1, A))
    for epoch in (5, 6):
        lone.answer(lone.call, errors.Fenced(epoch))
        assert lone.events == []
        assert commands(lone) == [do.OpenProducer("t", "p", "inc", 0, expected=epoch)]
    lone.answer(lone.call, opening(7, 0, 1))
    assert commands(lone) == [put(0, 1, A)]


def test_fenced_process_does_not_reclaim_its_name() -> None:
    """SVC-8: another process holds the name when this process reopens after a refused batch."""
    lone = opened()
    lone.answer(lone.call, errors.TooLarge("bytes", 1))
    lone.ask(Produce(2, "t", 1, A))
    why = errors.Fenced(9)
    lone.answer(lone.call, why)
    assert (lone.events, lone.sent) == ([NotStored(2, why)], [])
    assert lone.ask(Produce(3, "t", 1, C)).events == [NotStored(3, why)]


def test_failed_open_fails_pending_batches_and_is_retried_on_the_next_put() -> None:
    """SVC-7"""
    lone = Lone().start().ask(Produce(1, "t", 1, A))
    why = errors.TooMany("topics", 1)
    assert lone.answer(lone.call, why).events == [NotStored(1, why)]
    lone.ask(Produce(2, "t", 2, B))
    assert commands(lone) == [do.OpenProducer("t", "p", "inc", 0, expected=0)]


def test_refused_batch_leaves_no_gap_in_the_sequence() -> None:
    """SVC-7: later batches get new numbers under a new epoch, so old copies have no effect."""
    lone = opened()
    first = lone.call
    second = lone.ask(Produce(2, "t", 2, B)).call
    lone.ask(Produce(3, "t", 1, C))
    why = errors.TooLarge("bytes", 1)
    assert lone.answer(second, why).events == []
    assert lone.answer(first, results.Appended(0, 1, True)).events == [
        Stored(1, 0, True),
        NotStored(2, why),
    ]
    assert commands(lone) == [do.OpenProducer("t", "p", "inc.1", 0, expected=7)]
    lone.answer(lone.call, opening(8, 1, 1))
    assert commands(lone) == [put(1, 1, C, epoch=8)]


def test_client_sends_no_puts_to_a_busy_node_during_backoff() -> None:
    """SVC-7"""
    lone = opened()
    first = lone.call
    second = lone.ask(Produce(2, "t", 2, B)).call
    assert lone.answer(first, errors.Overloaded("calls")).sent == []
    assert lone.answer(second, errors.Gap(0)).sent == []
    lone.wait(0.6)
    assert commands(lone) == [put(0, 1, A)]


# Restart.


def test_durable_client_logs_batches_and_sequence_numbers() -> None:
    """SVC-2"""
    lone = Lone(durable=True).start()
    assert lone.records == [Named("p", "inc")]
    lone.ask(Produce(1, "t", 1, A))
    assert lone.records == [Queued("t", 0, 1, 0, A)]
    lone.answer(lone.call, opening(7, 40, 3))
    assert lone.records == [Based("t", 3, 0, 40)]
    (sent,) = [each for each in lone.outputs if isinstance(each, Send)]
    (based,) = [each for each in lone.outputs if isinstance(each, Append)]
    assert sent.after == based.number == 3
    lone.answer(lone.call, results.Appended(0, 1, True))
    lone.ask(Produce(2, "t", 2, B))
    assert lone.records == [Queued("t", 1, 2, 1, B)]


def test_restarted_client_drops_stored_batches_and_sends_the_rest() -> None:
    """SVC-2"""
    queued = [Queued("t", 0, 1, 0, A), Based("t", 3, 0, 40), Queued("t", 1, 2, 0, B)]
    lone = Lone(durable=True, incarnation="next").start(
        Named("p", "directory"), *queued, Queued("t", 3, 1, 1, C)
    )
    assert commands(lone) == [
        do.OpenProducer("t", "p", "next", 0, directory_id="directory", expected=0)
    ]
    lone.answer(lone.call, opening(8, 43, 3))
    assert commands(lone) == [put(43, 1, C, epoch=8)]
    lone.ask(Produce(1, "t", 1, A))
    assert commands(lone) == [put(44, 1, A, epoch=8)]


def test_batches_from_another_outbox_do_not_count_as_stored() -> None:
    """SVC-2: the directory may be an old copy, or another directory may use the same name."""
    lone = Lone(durable=True).start(Named("p", "directory"), Based("t", 3, 0, 40), Settled("t", 2))
    lone.ask(Produce(1, "t", 1, A))
    lone.answer(lone.call, opening(8, 50, 3))
    assert commands(lone) == [put(50, 1, A, epoch=8)]


def test_outbox_is_sent_even_if_another_outbox_used_its_sequence_numbers() -> None:
    """SVC-2: only sequences 40 and 41 belong to this outbox; the later batches are not stored."""
    queued = [Queued("t", 0, 1, 0, A), Based("t", 3, 0, 40), Queued("t", 1, 1, 1, A)]
    more = [Queued("t", 2, 2, 1, B), Queued("t", 4, 1, 1, C)]
    lone = Lone(durable=True, incarnation="next").start(Named("p", "directory"), *queued, *more)
    lone.answer(lone.call, opening(8, 50, 3, mine=(40, 42)))
    assert lone.records == [Based("t", 3, 2, 50)]
    assert commands(lone) == [put(50, 2, B, epoch=8), put(52, 1, C, epoch=8)]


def test_whole_outbox_is_sent_if_the_node_does_not_recognize_it() -> None:
    """SVC-2: losing a batch that may not be stored is worse than storing it twice."""
    queued = [Based("t", 3, 0, 40), Queued("t", 1, 2, 1, B)]
    lone = Lone(durable=True, incarnation="next").start(Named("p", "directory"), *queued)
    lone.answer(lone.call, opening(8, 50, 3, mine=(50, 50)))
    assert commands(lone) == [put(50, 2, B, epoch=8)]


def test_outbox_survives_a_restart_and_a_failed_open() -> None:
    """SVC-2 SVC-7: the earlier process has ended and cannot put the messages again."""
    queued = [Based("t", 3, 0, 40), Queued("t", 1, 2, 1, B)]
    lone = Lone(durable=True, incarnation="next").start(Named("p", "directory"), *queued)
    for _ in range(3):
        assert lone.answer(opens(lone), errors.TooMany("topics", 1)).events == []
        lone.wait(9.0)
    lone.answer(opens(lone), opening(8, 41, 3))
    assert commands(lone) == [put(41, 2, B, epoch=8)]


def test_fenced_client_keeps_its_outbox_for_the_next_process() -> None:
    """SVC-2 SVC-8"""
    lone = opened(40, durable=True)
    why = errors.Fenced(9)
    assert lone.answer(lone.call, why).events == [NotStored(1, why)]
    assert lone.ask(Produce(2, "t", 2, B)).events == [NotStored(2, why)]
    lone.ask(Finish(9, forget=False))
    (taken,) = [each for each in lone.outputs if isinstance(each, Snapshot)]
    next_process = Lone(durable=True, incarnation="next").start(taken.state)
    next_process.answer(next_process.call, opening(10, 50, 1, mine=(40, 40)))
    assert commands(next_process) == [put(50, 1, A, epoch=10)]


def opens(lone: Lone) -> Call:
    """Return the only unanswered call."""
    (call,) = [each.message for each in lone.session.calls._waiting.values()]
    assert isinstance(call, Call)
    return call


def test_restarted_client_does_not_resend_batches_to_a_recreated_topic() -> None:
    """SVC-2: a client does not log acks, so any sent batch may already be stored."""
    queued = [Queued("t", 0, 1, 0, A), Based("t", 3, 0, 40), Queued("t", 1, 2, 1, B)]
    lone = Lone(durable=True, incarnation="next").start(Named("p", "directory"), *queued)
    first_open = lone.call
    lone.ask(Produce(1, "t", 1, C))
    lone.answer(first_open, opening(8, 0, 4))
    assert lone.events == [NotStored(0, errors.Forgotten("t", "p"))]
    assert commands(lone) == [put(0, 1, C, epoch=8)]
    assert lone.records == [Settled("t", 3), Based("t", 4, 3, 0)]


def test_unsent_batches_are_put_even_to_a_recreated_topic() -> None:
    """SVC-2: the client stopped before it knew the topic."""
    for known in ([], [Based("t", 0, 0, 0)]):
        lone = Lone(durable=True, incarnation="next").start(
            Named("p", "directory"), *known, Queued("t", 0, 1, 0, A)
        )
        lone.answer(lone.call, opening(8, 5, 4))
        assert lone.events == []
        assert commands(lone) == [put(5, 1, A, epoch=8)]


def test_retried_put_is_not_resent_to_a_recreated_topic() -> None:
    """SVC-2: the first attempt may be stored in the deleted topic."""
    lone = opened().down()
    lone.answer(lone.call, errors.Unopened("t", "p"))
    lone.answer(lone.call, opening(8, 0, 2))
    assert lone.events == [NotStored(1, errors.Forgotten("t", "p"))]
    assert commands(lone.ask(Produce(2, "t", 2, B))) == [put(0, 2, B, epoch=8)]


def test_restarted_client_skips_batches_settled_before_a_renumbering() -> None:
    """SVC-2: the killed process had learned that they are stored under earlier numbers."""
    batches = [Queued("t", 0, 1, 0, A), Queued("t", 1, 2, 0, B)]
    based = [Based("t", 1, 0, 10), *batches, Based("t", 1, 1, 20)]
    lone = Lone(durable=True, incarnation="next").start(Named("p", "directory"), *based)
    lone.answer(lone.call, opening(8, 20, 1, mine=(10, 11)))
    assert commands(lone) == [put(20, 2, B, epoch=8)]


def test_sent_batches_are_not_resent_if_the_producer_record_was_deleted() -> None:
    """SVC-2: sent batches may be stored and are reported; later batches are put."""
    outbox = [Based("t", 1, 0, 10, record=5), Queued("t", 0, 1, 0, A), Queued("t", 1, 2, 0, B)]
    lone = Lone(durable=True, incarnation="next").start(Named("p", "directory"), *outbox)
    first_open = lone.call
    lone.ask(Produce(1, "t", 1, C))
    lone.answer(first_open, opening(8, 0, 1, record=8))
    why = errors.Forgotten("t", "p")
    assert lone.events == [NotStored(0, why), NotStored(0, why)]
    assert commands(lone) == [put(0, 1, C, epoch=8)]
    assert lone.records == [Settled("t", 3), Based("t", 1, 3, 0, record=8)]


def test_client_can_put_after_a_long_idle_period() -> None:
    """SVC-2: the new batch was never sent before, so it cannot be stored."""
    lone = opened_under(record=5)
    lone.answer(lone.call, results.Appended(0, 1, True))
    first = lone.ask(Produce(2, "t", 2, B)).call
    lone.ask(Produce(3, "t", 1, C))
    lone.answer(first, errors.Unopened("t", "p"))
    lone.answer(lone.call, opening(8, 0, 1, record=8))
    assert lone.events == []
    assert commands(lone) == [put(0, 2, B, epoch=8), put(2, 1, C, epoch=8)]


def test_client_reports_an_unknown_outcome_after_a_long_partition() -> None:
    """SVC-2: the first message was sent before the partition, and may be stored."""
    lone = opened_under(record=5).down()
    reopen = lone.answer(lone.call, errors.Unopened("t", "p")).call
    lone.ask(Produce(2, "t", 2, B))
    lone.answer(reopen, opening(8, 0, 1, record=8))
    assert lone.events == [NotStored(1, errors.Forgotten("t", "p"))]
    assert commands(lone) == [put(0, 2, B, epoch=8)]


def test_failed_reopen_reports_an_unknown_outcome_for_puts_in_flight() -> None:
    """SVC-2: the first attempt may be stored in the topic that was then deleted."""
    lone = opened().down()
    reopen = lone.answer(lone.call, errors.Unopened("t", "p")).call
    lone.ask(Produce(2, "t", 2, B))
    why = errors.TooMany("topics", 1)
    lone.answer(reopen, why)
    assert lone.events == [NotStored(1, errors.Forgotten("t", "p")), NotStored(2, why)]


def opened_under(record: int) -> Lone:
    lone = Lone().start().ask(Produce(1, "t", 1, A))
    return lone.answer(lone.call, opening(7, 0, 1, record=record))


def test_client_adopts_the_record_number_from_an_upgraded_node() -> None:
    """SVC-2: the sequence numbers of its batches do not change."""
    outbox = [Based("t", 1, 0, 10), Queued("t", 0, 1, 0, A), Queued("t", 1, 2, 0, B)]
    lone = Lone(durable=True, incarnation="next").start(Named("p", "directory"), *outbox)
    lone.answer(lone.call, opening(8, 11, 1, mine=(10, 11), record=5))
    assert lone.records == [Based("t", 1, 0, 10, record=5)]
    assert commands(lone) == [put(11, 2, B, epoch=8)]


def test_settled_batches_are_deleted_when_the_outbox_is_idle() -> None:
    """SVC-9"""
    lone = opened(40, durable=True)
    lone.answer(lone.call, results.Appended(0, 1, True))
    lone.wait(1.0)
    (taken,) = [each for each in lone.outputs if isinstance(each, Snapshot)]
    assert taken.state == ClientState("p", "inc", (Based("t", 1, 0, 40), Settled("t", 1)))
    assert taken.number == 3
    restored = Lone(durable=True, incarnation="next").start(taken.state)
    assert restored.sent == []
    restored.ask(Produce(1, "t", 2, B))
    assert restored.records == [Queued("t", 1, 2, 1, B)]


def test_busy_outbox_is_compacted_without_losing_unsettled_batches() -> None:
    """SVC-9"""
    lone = opened(durable=True)
    taken: list[Snapshot] = []
    ticket = 1
    while not taken:
        ticket += 1
        lone.answer(lone.call, results.Appended(ticket, 1, True)).ask(Produce(ticket, "t", 1, C))
        taken = [each for each in lone.outputs if isinstance(each, Snapshot)]
    last = Queued("t", ticket - 1, 1, ticket - 1, C)
    assert [each.state for each in taken] == [
        ClientState("p", "inc", (Based("t", 1, 0, 0), Settled("t", ticket - 1), last))
    ]
    next_process = Lone(durable=True, incarnation="next").start(taken[0].state)
    next_process.answer(next_process.call, opening(8, ticket - 1, 1))
    assert commands(next_process) == [put(ticket - 1, 1, C, epoch=8)]


def test_departing_client_closes_its_producers() -> None:
    """SVC-9"""
    lone = opened()
    lone.answer(lone.call, results.Appended(0, 1, True))
    lone.ask(Finish(9, forget=True))
    assert commands(lone) == [do.CloseProducer("t", "p", 7)]
    assert lone.answer(lone.call, results.ProducerClosed(False)).events == [AllDone(9)]
    assert lone.ask(Finish(10, forget=False)).events == [AllDone(10)]
    assert NODE in lone.session.watched
