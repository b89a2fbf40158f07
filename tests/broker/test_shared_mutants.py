"""Check that removing any rule of shared subscriptions makes a test fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oncecast.broker import letters, service
from oncecast.broker.crews import Crews
from oncecast.broker.dispatching import Dispatcher
from oncecast.broker.endings import Endings
from oncecast.broker.moving import Aside
from oncecast.broker.queue import Queue
from oncecast.broker.retries import Retries
from oncecast.broker.service import Service
from oncecast.broker.sharing import Sharing
from oncecast.client.dead_letters import DeadLetters
from oncecast.client.jobs import Job, SharedSubscription
from oncecast.client.session.settling import Settlements
from oncecast.client.session.working import Worker, Works
from oncecast.wire import commands as do
from tests.broker import test_dispatching as dispatching
from tests.broker import test_dispatching_edges as edges
from tests.broker import test_endings as endings
from tests.broker import test_machine_shared as machine
from tests.broker import test_shared_edges as limits
from tests.broker.shared_pair import shared_run
from tests.client import test_dead_letters as dead_letters
from tests.client import test_jobs_exactly as jobs
from tests.client.session import test_working as working
from tests.mutants import Detector, Mutant, Plant, assert_detected, exact, replaced

pytestmark = pytest.mark.mutants


def patched(test: Callable[..., None]) -> Detector:
    """Return a detector that runs one test, which replaces parts of the program."""

    def detector(seed: int) -> None:
        with pytest.MonkeyPatch.context() as patch:
            test(patch)

    detector.__name__ = test.__name__
    return detector


def of_each(test: Callable[[Any], None], *values: Any) -> Detector:
    """Return a detector that runs one test for each of these values."""

    def detector(seed: int) -> None:
        test(values[seed % len(values)])

    detector.__name__ = test.__name__
    return detector


def ends_no_leases(command: type) -> Plant:
    """Return a mutant that does not tell workers about this command."""
    return lambda patch: patch.setattr(service, "ENDING", service.ENDING - {command})


def models(seed: int) -> None:
    shared_run(seed)


RULES: dict[str, tuple[Detector, Any, str, str, str]] = {
    # Leases in the machine.
    "two workers get the same token": (
        exact(machine.test_each_message_is_leased_to_one_worker),
        Sharing, "_grant", "self._registry.new_epoch(), taken", "self._registry.last_epoch, taken",
    ),
    "a lease ends by the stamp of one leader": (
        exact(machine.test_leader_with_a_wrong_clock_ends_no_leases),
        Sharing, "lease", "now = clock.trusted", "now = clock.now",
    ),
    "a window has no limit": (
        exact(limits.test_worker_holds_no_more_messages_than_the_limit),
        Sharing, "_grant", "min(window, WINDOW_MAX)", "window",
    ),
    "open messages have no limit": (
        patched(limits.test_number_of_open_messages_is_limited),
        Queue, "take", ", OPEN_MAX - len(self.open))", ")",
    ),
    "blocked messages have no limit": (
        patched(limits.test_number_of_blocked_messages_is_limited),
        Queue, "_take_by_key", "or opened >= OPEN_MAX ", "",
    ),
    "the record of a worker with messages is deleted": (
        exact(limits.test_record_of_a_worker_with_a_long_lease_is_kept),
        Queue, "idle_workers", "not each.held and ", "",
    ),
    "a corrected clock ages the records of workers": (
        of_each(
            limits.test_clock_correction_does_not_age_the_records_of_workers, 10 * limits.DAY
        ),
        Queue, "shift", "worker.used += by", "pass",
    ),
    "keys of other offsets are used": (
        exact(machine.test_fresh_messages_with_unknown_keys_are_not_leased),
        Sharing, "_grant", "command.keys if command.keys_from == queue.next else ()",
        "command.keys",
    ),
    "a dead letter of a snapshot does not block its key": (
        exact(limits.test_dead_letter_in_a_snapshot_blocks_its_key),
        Queue, "restore", "if each.key:", "if each.key and each.condition != DEAD:",
    ),
    "a snapshot forgets when retries are due": (
        exact(machine.test_leases_survive_a_snapshot),
        Queue, "restore", "self._wait(offset, each.time)", "self._wait(offset, 0)",
    ),
    "a move does not keep the time that a lease has left": (
        exact(machine.test_topic_moves_with_its_leases_and_dead_letters),
        Aside, "put_back", "queue.shift(shift)", "pass",
    ),
    # Settlements in the machine.
    "a renewal takes over the lease of another worker": (
        models, Queue, "_renew", "self._current(worker, run, stale)",
        "self._current(getattr(self.open.get(run[1]), 'worker', worker), run, stale)",
    ),
    "the backoff starts at the end of the lease": (
        exact(machine.test_backoff_doubles_up_to_its_maximum),
        Queue, "_put_back", "self._wait(offset, now +", "self._wait(offset, grant.until +",
    ),
    "a delay starts at the stamp of one leader": (
        exact(limits.test_delay_of_a_release_is_added_to_the_trusted_time),
        Sharing, "_settle", "clock.trusted)", "clock.now)",
    ),
    "a copy of a stale settlement gets another result": (
        exact(machine.test_repeated_settlement_gets_the_same_result),
        Queue, "settle", "if known is not None:\n        known.number",
        "if known is not None and not found:\n        known.number",
    ),
    "a lowered maximum of deliveries is missed": (
        exact(limits.test_lowered_maximum_of_deliveries_applies_to_messages_in_flight),
        Queue, "_put_back", "count >= most", "count == most",
    ),
    "a new dead-letter topic need not keep its letters": (
        exact(limits.test_new_dead_letter_topic_must_keep_its_messages),
        Sharing, "_change", "dead is not None and not dead.keeps", "False",
    ),
    "a leaving worker releases the messages of others": (
        models, Queue, "settle", "self.lose(settle.worker, now)",
        "[self.lose(each, now) for each in list(self.workers)]",
    ),
    "a dead letter that was written is not settled": (
        exact(machine.test_message_becomes_a_dead_letter_after_its_last_delivery),
        Sharing, "bury", "queue.close(each)", "queue.dead.pop(each)",
    ),
    # The leader.
    "a leader without a lease accepts workers": (
        exact(edges.test_request_of_a_worker_waits_until_the_leader_has_its_lease),
        Dispatcher, "receive", "not self._service.group.leads(self.now)", "False",
    ),
    "a disconnected worker joins later": (
        exact(edges.test_worker_that_disconnects_before_the_leader_has_its_lease_is_forgotten),
        Dispatcher, "down", "self._awaiting_lease.forget(client)", "pass",
    ),
    "connections of workers are not watched": (
        exact(edges.test_connection_of_a_worker_is_watched_once),
        Dispatcher, "_work", "self.watch(client)", "pass",
    ),
    "workers wait at a deposed leader": (
        exact(edges.test_workers_are_sent_to_a_new_leader_once),
        Dispatcher, "_lead", "self.send(client, self._elsewhere())", "pass",
    ),
    "a deposed leader keeps its workers": (
        exact(edges.test_workers_are_sent_to_a_new_leader_once),
        Dispatcher, "_lead", "self.crews.clear()", "pass",
    ),
    "a new leader waits for a settlement of the last one": (
        exact(edges.test_settlement_of_an_earlier_term_does_not_hold_up_later_ones),
        Service, "_follow", "self._settling = Settling()", "pass",
    ),
    "jobs that are sent again promise a whole lease": (
        exact(edges.test_jobs_that_are_sent_again_contain_the_time_left),
        Dispatcher, "_send_grant", "lease_us=max(left, 0)", "lease_us=queue.settings.lease_us",
    ),
    "jobs that are sent again promise shorter renewals": (
        exact(edges.test_jobs_that_are_sent_again_contain_the_time_left),
        Dispatcher, "_send_grant", "renewal_us=queue.settings.lease_us", "renewal_us=max(left, 0)",
    ),
    "the end of an old connection releases the worker's messages": (
        exact(edges.test_worker_on_a_new_connection_keeps_its_messages_when_the_old_one_ends),
        Crews, "join", "self.leave(where, hand)", "pass",
    ),
    "a crew is forgotten while its lease is in flight": (
        exact(
            edges
            .test_only_worker_that_disconnects_while_its_lease_is_decided_loses_it_after_a_while
        ),
        Crews, "tidy", "crew.leasing or crew.burying or ", "",
    ),
    "an earlier deadline does not move the timer": (
        exact(edges.test_retry_is_delivered_as_soon_as_it_is_due),
        Dispatcher, "_wake_in", " or at < self._due", "",
    ),
    "a worker without permission keeps its messages": (
        exact(edges.test_worker_without_permission_loses_its_messages_at_once),
        Dispatcher, "_check_workers", "self.crews.make(where).gone[hand.worker] = self.now", "pass",
    ),
    "workers of a moved topic are not told": (
        exact(edges.test_workers_are_notified_when_the_topic_moves),
        Service, "_tell_changes", "self.machine.registry.holdings.outgoing[name].shared", "False",
    ),
    "published parts wait for the timer": (
        exact(edges.test_published_parts_are_delivered_at_once),
        Service, "_tell_changed", "if topic in self.machine.registry.sharing:", "if False:",
    ),
    "jobs of a missing batch are never sent": (
        patched(edges.test_jobs_are_sent_once_a_missing_batch_is_fetched),
        Dispatcher, "_send_unsent", "self._send(where, crew, crew.hands[worker])", "pass",
    ),
    "a retry waits for a missing batch": (
        patched(edges.test_retry_does_not_wait_for_a_missing_batch),
        Dispatcher, "_lease", " or queue.leasable(now, queue.next, expiry)", "",
    ),
    "the bytes that a worker holds do not count": (
        exact(dispatching.test_worker_holds_no_more_bytes_than_its_window),
        Dispatcher, "_wants", " - hand.bytes", "",
    ),
    # Letters.
    "a lost message stops its whole grant": (
        exact(edges.test_worker_gets_the_messages_around_a_lost_batch),
        letters, "chunks_from", "continue", "return",
    ),
    "a lost batch stops the leases of its subscription": (
        exact(edges.test_messages_of_a_lost_batch_have_no_key),
        letters, "keys_from", "found += [0] * extent.count", "break",
    ),
    "a letter keeps the reason of an earlier death": (
        exact(edges.test_dead_letter_of_a_retried_dead_letter_has_only_its_own_headers),
        letters, "add_letter", " if name not in DEAD_HEADERS", "",
    ),
    "a letter may have too many headers": (
        exact(edges.test_dead_letter_of_a_message_with_many_headers_leaves_out_the_last_ones),
        letters, "add_letter", "own[: HEADERS_MAX - len(why)]", "own",
    ),
    "a letter that is too large holds up smaller ones": (
        patched(edges.test_letter_that_is_too_large_does_not_hold_up_smaller_ones),
        letters, "bury", "continue", "break",
    ),
    "a part of a batch has no headers": (
        exact(edges.test_part_of_a_large_batch_keeps_its_headers),
        letters, "narrowed", "headers=[each.headers for each in found],", "",
    ),
    "neighbours share a delivery count": (
        exact(edges.test_neighbours_with_different_delivery_counts_arrive_in_separate_chunks),
        letters, "runs_by_deliveries", " and found == deliveries", "",
    ),
    # The session of the client.
    "a worker leaves before its settlements": (
        exact(working.test_leaving_worker_sends_all_settlements_before_it_leaves),
        Settlements, "_next", "self.leave and not any(verb.waiting for verb in self._verbs)",
        "self.leave",
    ),
    "a renewed lease counts from the answer": (
        exact(working.test_renewed_lease_counts_from_the_first_request),
        Worker, "_renewed", "grant.last(self._sent_at,", "grant.last(self._host.now,",
    ),
    "a lost lease is renewed": (
        exact(working.test_refused_renewal_reports_a_lost_lease),
        Worker, "_lose", "self._drop(token, offset, [])", "pass",
    ),
    "a revived worker keeps its messages": (
        exact(working.test_messages_of_an_ended_worker_are_returned),
        Works, "receive", "self._give_back(message)", "pass",
    ),
    "settled messages are kept behind an open one": (
        exact(endings.test_settled_grants_are_dropped_behind_one_that_is_not_settled),
        Endings, "add", "len(self) >= self._limit", "False",
    ),
    "early ends wait for later ones": (
        exact(endings.test_grants_end_in_the_order_of_their_ends),
        Endings, "add", "self._queue[-1].until <= grant.until", "True",
    ),
    "offsets are kept behind an open one": (
        exact(endings.test_messages_settled_behind_a_slow_job_are_forgotten),
        Queue, "take", "2 * len(self.open)", "10**9 + 2 * len(self.open)",
    ),
    "times of retries are kept": (
        exact(endings.test_messages_that_no_longer_wait_are_forgotten),
        Retries, "add", "2 * len(self._due)", "10**9 + 2 * len(self._due)",
    ),
    "the messages of earlier processes are kept": (
        exact(working.test_messages_of_many_ended_workers_are_dropped),
        Works, "_give_back", " and len(self._returning) < RETURNING_MAX", "",
    ),
    "a worker leaves twice under one number": (
        exact(working.test_messages_of_an_ended_worker_are_returned),
        Works, "_give_back", "ENDED + jobs.token", "ENDED + 1",
    ),
    "only the first gap is noticed": (
        exact(working.test_each_gap_triggers_a_request),
        Worker, "given", "incoming.asked != (jobs.token, incoming.seen)",
        "incoming.asked == (0, 0)",
    ),
    # The jobs of the client.
    "a message that has expired is started": (
        exact(jobs.test_job_that_expires_before_it_is_started_is_returned),
        SharedSubscription, "expired", "self._give_back(self._dequeue(set(event.leases)))", "pass",
    ),
    "a message that is lost is started": (
        exact(jobs.test_job_that_is_lost_before_it_is_started_is_dropped),
        SharedSubscription, "lost", "self._dequeue(set(event.leases))", "pass",
    ),
    "a cancelled job counts as done": (
        of_each(jobs.test_job_of_a_stopped_handler_is_returned_at_once, SystemExit),
        Job, "_leave", "if error is None:", "if not isinstance(error, Exception):",
    ),
    "a delay of 0 means the backoff": (
        exact(jobs.test_job_that_is_returned_without_delay_does_not_wait_for_the_backoff),
        Job, "nack", "if delay is None", "if not delay",
    ),
    "a draining worker keeps late messages": (
        exact(jobs.test_job_that_arrives_while_the_worker_drains_is_returned),
        SharedSubscription, "given", "self._give_back(jobs)", "pass",
    ),
    "a draining worker asks for messages": (
        exact(jobs.test_job_that_arrives_while_the_worker_drains_is_returned),
        SharedSubscription, "stop", "self._requests.send(Window(*self.where, 0))", "pass",
    ),
    "settlements of the last iteration are not stored": (
        exact(jobs.test_close_sends_the_last_settlements_before_it_leaves),
        SharedSubscription, "close", "self._tell()", "pass",
    ),
    "a thread settles without the event loop": (
        exact(jobs.test_settlement_in_a_thread_is_sent_by_the_event_loop),
        SharedSubscription, "settle", "threading.get_ident() == self._thread", "True",
    ),
    "concurrent calls share the worker for dead letters": (
        exact(dead_letters.test_concurrent_calls_handle_their_own_letters),
        DeadLetters, "_handle", "async with self._client.parts.handling[name]:", "if True:",
    ),
}  # fmt: skip

MUTANTS = [
    *(Mutant(rule, replaced(*change), detector, 5) for rule, (detector, *change) in RULES.items()),
    Mutant(
        "workers of a deleted topic are not told",
        ends_no_leases(do.DeleteTopic),
        exact(edges.test_workers_are_notified_when_the_topic_is_deleted),
        1,
    ),
    Mutant(
        "messages after a seek wait for the timer",
        ends_no_leases(do.Seek),
        exact(edges.test_worker_gets_messages_at_once_after_a_seek),
        1,
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_shared_subscription_mutant_is_detected(mutant: Mutant) -> None:
    """WRK-1 WRK-2 WRK-3 WRK-4 WRK-6"""
    assert_detected(mutant)
