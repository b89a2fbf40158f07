"""Check that removing any client session rule makes a test fail."""

from __future__ import annotations

from typing import Any

import pytest

from oncecast.broker.machine import Machine
from oncecast.broker.producing import Producing
from oncecast.client.session.acks import Acks
from oncecast.client.session.calls import Calls
from oncecast.client.session.client import ClientSession
from oncecast.client.session.inbox import Inbox
from oncecast.client.session.producing import Flow
from oncecast.client.session.reading import Reader
from tests.client.session import test_client_calls as calls
from tests.client.session import test_client_producing as puts
from tests.client.session import test_client_reading as reads
from tests.client.session import test_denied_copies as copies
from tests.client.session import test_forgotten_record as records
from tests.client.session import test_idle_clients as idle
from tests.client.session import test_late_messages as late
from tests.client.session import test_producing_exactly as numbers
from tests.client.session import test_reading_exactly as rules
from tests.client.session import test_replaced_topics as topics
from tests.client.session import test_state_directories as shared
from tests.client.session import test_withdrawn_permission as denied
from tests.client.session.test_client_storms import fencing, storm
from tests.mutants import Detector, Mutant, assert_detected, exact, replaced

pytestmark = pytest.mark.mutants

SEEDS = 40


def weather(seed: int) -> None:
    assert len(storm(seed, crashes=False).finish()) == 120


def crashes(seed: int) -> None:
    storm(seed).finish()


def two_processes(seed: int) -> None:
    world, older, newer = fencing(seed)
    world.finish()
    assert not newer.fenced
    assert older.fenced or len(older.promised) == 60


def directories(seed: int) -> None:
    shared.directories(seed).finish()


RULES: dict[str, tuple[Detector, Any, str, str, str]] = {
    # Putting.
    "a gap is ignored": (
        exact(puts.test_gap_triggers_a_single_resend_from_the_missing_batch),
        Flow, "_resend_from", "self._rewind(each.number)", "pass",
    ),
    "puts are resent from the wrong batch": (
        exact(puts.test_gap_triggers_a_single_resend_from_the_missing_batch),
        Flow, "_resend_from", "(each.number)", "(each.number + each.count)",
    ),
    "every Gap triggers another resend": (
        exact(puts.test_gap_triggers_a_single_resend_from_the_missing_batch),
        Flow, "_rewind", "self._mark = self._calls.new_id()", "pass",
    ),
    "a stored batch is reported as a failure": (
        weather, Flow, "answered", "self._stored(id_, outgoing, offset, None)",
        "self._fail_all(Fenced(0))",
    ),
    "a stored put fails if a copy is refused": (
        exact(denied.refused_copy), Flow, "_drop_refused", "if first.sends <= 1:", "if True:",
    ),
    "a refusal settles a put that was sent again": (
        exact(denied.resent_after_a_refusal), Flow, "_send", "outgoing.refused = None", "pass",
    ),
    "a put of an earlier process is withdrawn": (
        exact(numbers.test_batch_of_an_earlier_process_stays_after_a_refused_one),
        Flow, "_withdraw", "each.ticket and not each.sent", "not each.sent",
    ),
    "a stored put is not recognised after a refused copy": (
        exact(denied.refused_copy), Flow, "_judge_refused", "> next_sequence", "> -1",
    ),
    "the next process puts a refused batch": (
        exact(numbers.test_restarted_client_does_not_resend_refused_batches), Flow, "_give_up",
        "self._host.append(Settled(self.topic, self.settled)) if durable else 0", "0",
    ),
    "a silent node is never probed": (
        weather, Flow, "tick", "self._probe()", "pass",
    ),
    "a batch is resent under another number": (
        weather, Flow, "_send", "outgoing.number + self._numbers.shift",
        "outgoing.number + self._numbers.shift + (len(outgoing.ids) > 1)",
    ),
    "the node's sequence number is ignored": (
        crashes, Flow, "_rebase", "= opened.topic_id, opened.next_sequence",
        "= opened.topic_id, 0",
    ),
    "a batch is sent before it is on disk": (
        exact(puts.test_durable_client_logs_batches_and_sequence_numbers),
        Flow, "_send", "max(outgoing.record, self._numbers.logged)", "0",
    ),
    "the outbox is not restored": (
        crashes, Flow, "restore",
        "self.unsettled[number] = outgoing\n", "pass\n",
    ),
    "stored batches in the outbox are put again": (
        crashes, Flow, "_rebase", "elif self._agrees(opened):", "elif False:",
    ),
    "the next process never sends the outbox": (
        crashes, ClientSession, "start", "flow.go_on()", "pass",
    ),
    "a snapshot lacks the unsettled batches": (
        exact(puts.test_busy_outbox_is_compacted_without_losing_unsettled_batches),
        Flow, "records", "self.unsettled.values()", "()",
    ),
    "a snapshot lacks the sequence numbers": (
        crashes, Flow, "_based", "numbers.topic_id, first, numbers.base", "0, 0, 0",
    ),
    "the sequence number is not restored": (
        crashes, Flow, "restore", "self.number = number + count", "pass",
    ),
    "puts from another state directory are overwritten": (
        exact(puts.test_batches_from_another_outbox_do_not_count_as_stored),
        Flow, "_agrees", "first.sent or", "True or",
    ),
    "another outbox's numbers count as own numbers": (
        exact(puts.test_outbox_is_sent_even_if_another_outbox_used_its_sequence_numbers),
        Flow, "_agrees", "opened.mine", "0, opened.next_sequence",
    ),
    "own numbers continue after another outbox's numbers": (
        exact(puts.test_outbox_is_sent_even_if_another_outbox_used_its_sequence_numbers),
        Flow, "_agrees", "known == opened.next_sequence", "True",
    ),
    "a newer incarnation is ignored": (
        two_processes, Flow, "answered", "self._fail_all(result)", "self._held = 0; self._reopen()",
    ),
    "batches settled before a rebase are put again": (
        directories, Flow, "restore", "self._forget(number)  #", "pass  #",
    ),
    "only the last few state directories are known": (
        directories, Producing, "open", "forget=not registry.limits.directories_max", "forget=True",
    ),
    "forgotten messages are put again": (
        idle.away_for_long, Flow, "_rebase",
        "elif created or (known and opened.record not in (0, known)):", "elif False:",
    ),
    "messages are put again under another producer record": (
        exact(numbers.test_restarted_client_does_not_put_batches_again_under_another_record),
        Flow, "_rebase",
        "elif created or (known and opened.record not in (0, known)):", "elif created:",
    ),
    "messages are put again after a record without an id is deleted": (
        exact(records.test_client_stores_new_messages_after_its_record_was_deleted),
        Flow, "_opened", "created = not self._current and not outcome.next_sequence",
        "created = False",
    ),
    "a record that another state directory needs is deleted": (
        exact(records.test_process_keeps_a_record_that_another_state_directory_needs),
        Flow, "close_command", "if not self.epoch or not self._alone:", "if not self.epoch:",
    ),
    "a denied copy counts as the outcome of a call": (
        exact(copies.test_created_topic_is_not_reported_as_denied),
        Calls, "answered", "isinstance(answer.result, Denied) and waiting.may_have_run", "False",
    ),
    "a denied copy counts as the outcome of an ack": (
        exact(copies.test_outcome_of_an_ack_with_a_denied_copy_is_unknown),
        Acks, "void", "isinstance(outcome, Denied) and upto <= self._sent", "False",
    ),
    "acknowledged messages are put to a recreated topic": (
        topics.replaced, Flow, "_rebase", "if self._numbers.topic_id:", "if False:",
    ),
    "messages that were never sent count as acknowledged": (
        exact(puts.test_unsent_batches_are_put_even_to_a_recreated_topic),
        Flow, "_rebase", "if self._numbers.topic_id:", "if True:",
    ),
    "an idle client gets an unknown outcome": (
        exact(puts.test_client_can_put_after_a_long_idle_period),
        Flow, "answered", "self._nothing_is_stored()", "pass",
    ),
    "a producer's record is not restored": (
        exact(numbers.test_restarted_client_does_not_put_batches_again_under_another_record),
        Flow, "restore",
        "numbers.topic_id, numbers.record = topic_id, known_by", "numbers.topic_id = topic_id",
    ),
    "a producer takes its name over from any process": (
        late.late_open, Flow, "_open", "expected=self._current", "expected=-1",
    ),
    "a reader takes over from any other reader": (
        late.late_attach, Reader, "_attach",
        "self._incarnation, expected, term)", "self._incarnation, -1, term)",
    ),
    "a fenced process reclaims its name": (
        exact(puts.test_fenced_process_does_not_reclaim_its_name),
        Flow, "_held_by_another", "if 0 < self._held < fenced.epoch:", "if False:",
    ),
    "nothing is resent after a lost link": (
        exact(puts.test_producer_keeps_its_epoch_after_a_lost_link),
        ClientSession, "resend", "flow.link_lost()", "pass",
    ),
    "a refused batch leaves a gap": (
        exact(puts.test_refused_batch_leaves_no_gap_in_the_sequence),
        Flow, "_drop_refused", "self._reopen()", "self.go_on()",
    ),
    # Staged puts.
    "a publish does not check the source's epoch": (
        exact(late.test_late_duplicate_of_a_refused_publish_has_no_effect),
        ClientSession, "_do", "expected=0", "expected=-1",
    ),
    # Reading.
    "a leaving reader's ack is never answered": (
        exact(reads.test_refused_ack_is_reported_even_after_the_reader_has_left),
        Reader, "_ack_refused", "acks.void(outcome)", "pass",
    ),
    "the epoch of a delivery is not checked": (
        exact(reads.test_stale_delivery_is_dropped),
        Reader, "delivered", "delivery.epoch != self.epoch", "False",
    ),
    "the end of an older flow is accepted": (
        exact(reads.test_fenced_reader_reports_the_error_and_stops),
        Reader, "flow_ended", "if ended.epoch != self.epoch:", "if False:",
    ),
    "a gap is skipped": (
        weather, Reader, "delivered", "if chunk.offset > self._at.expected:",
        "self._at.expected = max(self._at.expected, chunk.offset)\n        if False:",
    ),
    "a gap is not fetched": (
        exact(reads.test_missing_messages_are_fetched_again_once),
        Reader, "_missing", "self._refetch()", "pass",
    ),
    "a lost delivery is never fetched again": (
        weather, Reader, "tick", "self._refetch()", "self._patience.begin()",
    ),
    "a repeated message is delivered again": (
        exact(reads.test_messages_arrive_once_and_in_order),
        Reader, "delivered", "end <= self._at.expected",
        "setattr(self._at, 'expected', chunk.offset)",
    ),
    "possible redeliveries are not marked": (
        crashes, Reader, "delivered", "max(self._suspect_below, delivery.suspect_below)", "0",
    ),
    "nacked messages are not marked": (
        weather, Reader, "again",
        "max(self._suspect_below, again.delivered)", "self._suspect_below",
    ),
    "arrived messages move the cursor": (
        crashes, Reader, "want", "min(want.ack, self._at.delivered)", "self._at.expected",
    ),
    "the reader's own seek is executed twice": (
        exact(reads.test_reader_continues_in_the_new_epoch_after_its_seek),
        Reader, "_repositioned", "self._moving or", "False or",
    ),
    "a seek from a former reader moves the next reader": (
        exact(reads.test_late_seek_answer_does_not_move_the_next_reader),
        Reader, "_seek", "if self.ended:", "if False:",
    ),
    "a reader that has left seeks back": (
        exact(rules.test_reader_that_left_during_a_seek_reports_nothing),
        Reader, "_went_back", "if self.ended:", "if False:",
    ),
    "a reader attaches again after a lost link": (
        exact(reads.test_reader_keeps_its_epoch_after_a_lost_link),
        Reader, "link_lost", "self._fetch()",
        "self._attach(0)",
    ),
    "the application's offset is ignored": (
        exact(reads.test_reading_starts_at_the_application_offset),
        Reader, "_attached", "start = self._read.start_at", "start = -1",
    ),
    "a message is acknowledged as soon as it is taken": (
        exact(calls.test_taking_a_message_acknowledges_earlier_messages),
        Inbox, "take", "self.last = 1", "self.last = 0",
    ),
    "a bad batch ends the reader before it delivers earlier messages": (
        exact(reads.test_messages_before_a_bad_batch_are_taken_and_acknowledged_first),
        Reader, "_end_in_order", "self._at.delivered == self._at.expected and", "True and",
    ),
    "acks are lost at a bad batch": (
        exact(reads.test_messages_before_a_bad_batch_are_taken_and_acknowledged_first),
        Reader, "_end_in_order", "self._detach(lambda _: None, RETRY_MAX)", "pass",
    ),
    "an unanswered ack counts as confirmed": (
        exact(reads.test_leaving_reader_reports_an_unanswered_ack),
        Reader, "_detach", "isinstance(outcome, NoAnswer)", "False",
    ),
    "a leaving reader hides that its acks were denied": (
        exact(copies.test_leaving_reader_reports_that_its_ack_was_denied),
        Acks, "denied", "return outcome if", "return None if",
    ),
    "a leaving reader reports acks with unknown outcomes as denied": (
        exact(copies.test_outcome_of_a_leave_is_unknown_if_a_fetch_has_sent_its_ack),
        Acks, "denied", "self._sent <= self.confirmed", "True",
    ),
    "a leaving reader without acks is denied": (
        exact(copies.test_reader_without_acks_may_leave_without_the_permission_to_ack),
        Acks, "denied", "self.upto <= self.confirmed or", "",
    ),
    "a denied copy of a leaving reader's ack is ignored": (
        exact(copies.test_outcome_of_a_leave_with_a_denied_copy_of_its_ack_is_unknown),
        Acks, "denied", "copied or", "",
    ),
    "a stale arrival is accepted": (
        exact(calls.test_seeking_back_drops_queued_messages),
        Inbox, "arrive", "if messages[0].offset != self._end:", "if False:",
    ),
    "a put that may be stored is reported as refused": (
        exact(puts.test_failed_reopen_reports_an_unknown_outcome_for_puts_in_flight),
        Flow, "_not_opened", "self._forgotten()", "pass",
    ),
    # Calls.
    "calls are never resent": (
        weather, Calls, "tick", "self._send(waiting)", "pass",
    ),
    "copies of a call have no token": (
        exact(late.late_delete), Calls, "do", "token=token", "token=''",
    ),
    "a late copy of a call is executed again": (
        late.late_unsubscribe, Machine, "_once", "if token:", "if False:",
    ),
    "a late answer is accepted": (
        exact(calls.test_late_and_repeated_answers_are_dropped),
        Calls, "answered", "del self._waiting[answer.id]", "pass",
    ),
}  # fmt: skip


MUTANTS = [
    Mutant(rule, replaced(*change), detector, SEEDS) for rule, (detector, *change) in RULES.items()
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_session_mutant_is_detected(mutant: Mutant) -> None:
    """SVC-2 SVC-3 SVC-8 SVC-11 SVC-13"""
    assert_detected(mutant)
