"""Check that removing any state machine rule makes a random run or a test fail.

Each mutant replaces a piece of one function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oncecast.broker import publishing, state
from oncecast.broker.administering import Administering
from oncecast.broker.answered import Answered
from oncecast.broker.clock import Clock
from oncecast.broker.index import Index
from oncecast.broker.moving import Moving
from oncecast.broker.producer import Producer
from oncecast.broker.producing import Producing
from oncecast.broker.publishing import Publishing
from oncecast.broker.registry import Registry
from oncecast.broker.service import Service
from oncecast.broker.staging import Staging
from oncecast.broker.subscribing import Subscribing
from oncecast.broker.subscription import Subscription
from oncecast.broker.timekeeping import Timekeeper
from oncecast.broker.topic import Topic
from tests.broker import test_clock as clock
from tests.broker import test_machine_answered as answered
from tests.broker import test_machine_moves as moves
from tests.broker import test_machine_puts as puts
from tests.broker import test_machine_runs as runs
from tests.broker import test_machine_seeks as seeks
from tests.broker import test_timekeeping as leader
from tests.broker.machine_pair import random_run
from tests.mutants import Mutant, assert_detected, exact, replaced

SEEDS = 200

RULES: dict[str, tuple[Any, str, str, str]] = {
    # Puts.
    "puts are not deduplicated": (
        Topic, "put", "known = producer.next - put.sequence", "known = 0",
    ),
    "a gap is not detected": (Topic, "put", "if known < 0:", "if False:"),
    "a partly stored batch is appended in full": (
        Topic, "put", "- known\n", "* (put.count > known)\n",
    ),
    "readers do not skip an overlap": (Topic, "put", "(known, -1) if known else PLAIN", "PLAIN"),
    "the epoch of a put is ignored": (Topic, "put", "if put.epoch != producer.epoch:", "if False:"),
    "a newer incarnation is not recognised": (
        Producing, "_take_over", "producer.incarnation == command.incarnation", "True",
    ),
    "a repeated open fences its own incarnation": (
        Producing, "_take_over", "if not same:", "if True:",
    ),
    "a late open takes over a name": (
        Producing, "_take_over", "command.expected not in (ANY_EPOCH, producer.epoch)", "False",
    ),
    "an open ignores a deleted record": (
        Producing, "open", "if producer is None and command.expected > 0:", "if False:",
    ),
    "a late attach takes over a subscription": (
        Subscribing, "attach", "if command.expected not in (ANY_EPOCH, current):", "if False:",
    ),
    "each record counts its own epochs": (
        Producing, "open", "Producer(registry.new_epoch(), ", "Producer(1, ",
    ),
    "state directories are not distinguished": (
        Producing, "open",
        "producer.keep(command.directory_id, forget=not registry.limits.directories_max)",
        "(0, producer.next)",
    ),
    "a state directory is forgotten when another one puts": (
        Producer, "keep", "self.earlier[self.directory_id] = (self.since, self.next)", "pass",
    ),
    "a directory's range restarts without other puts": (
        Producer, "keep", "self.since = first", "pass",
    ),
    "a fenced client can close a producer": (
        Producing, "close", "if command.epoch != producer.epoch:", "if False:",
    ),
    # Subscriptions.
    "the epoch of an ack is ignored": (
        Topic, "ack", "if ack.epoch != subscription.epoch:", "if False:",
    ),
    "an ack can move the cursor back": (
        Subscription, "acknowledge", "max(self.cursor, upto)", "upto",
    ),
    "acks beyond the end are accepted": (
        Topic, "ack", "if ack.upto > self.index.next:", "if False:",
    ),
    "the incarnation of a reader is ignored": (
        Subscribing, "attach", "if subscription.incarnation != command.incarnation:",
        "if not subscription.incarnation:",
    ),
    "possible redeliveries are not marked after a crash": (
        Subscription, "attach", "if self.incarnation:", "if False:",
    ),
    "a detach forgets delivered messages": (
        Subscription, "detach", "max(self.suspect_below, delivered)", "self.suspect_below",
    ),
    "an ack undoes a seek": (Subscription, "seek", "self.epoch = epoch", "pass"),
    "a repeated seek is executed again": (
        Topic, "seek", "if seek.token == subscription.seek_token and", "if False and",
    ),
    "a seek's expected epoch is ignored": (
        Topic, "seek",
        "if not seek.epoch and seek.expected not in", "if False and seek.expected in",
    ),
    "a copy of a reader's seek is executed again": (
        Subscribing, "seek", "registry.level >= SEEK_LEVEL", "False",
    ),
    "a seek checks its expected epoch below the level": (
        Subscribing, "_seek", "if registry.level < SEEK_LEVEL:", "if False:",
    ),
    "a repeated subscribe starts again": (
        Subscribing, "subscribe", "if known is not None:", "if False:",
    ),
    # Collection.
    "messages above the low-water mark are deleted": (
        Topic, "floor", "min(floor, self.low_water())", "min(floor, self.low_water() + 1)",
    ),
    "the fastest subscription sets the low-water mark": (
        Topic, "floor", "self.low_water()", "max(s.cursor for s in self.subscriptions.values())",
    ),
    "the low-water mark ignores a seek back": (
        Topic, "seek", "self._note_cursor(subscription.cursor, seek.subscription)", "pass",
    ),
    "an unsubscribe keeps unread messages": (Topic, "unsubscribe", "self.collect(clock)", "pass"),
    "hard limits wait for readers": (Topic, "floor", "and not self.policy.drop_unread", ""),
    "messages expire one tick early": (
        Index, "floor", "- policy.age_us + 1", "- policy.age_us + 2",
    ),
    "the byte limit counts one batch too few": (Index, "newest", "self._head) + 1", "self._head)"),
    "live slots are never dropped": (Index, "drop_below", "self._live_slots.drop(slot)", "pass"),
    "a carried batch is still needed at its old slot": (
        Administering, "carry", "self._registry.live_slots.drop(command.old)", "pass",
    ),
    "idle topics are not deleted": (Registry, "release", "if topic.idle:", "if False:"),
    "idle producers are not deleted": (
        Administering, "tick", "if command.producers:", "if False:",
    ),
    "idle sources are not deleted": (
        Administering, "tick", "registry.delete_source(source)", "pass",
    ),
    "a source in use counts as idle": (Registry, "use_source", "self.clock.now", "1"),
    "a source with staged parts counts as idle": (Staging, "unused", "not known.staged and", ""),
    "an idle source's producers are not deleted": (
        Registry, "delete_source", "del topic.producers[source]", "pass",
    ),
    "a snapshot lacks the last use of sources": (state, "_read", "source.used = row.used", "pass"),
    "a producer that puts counts as idle": (Topic, "put", "producer.used = clock.now", "pass"),
    "a producer that opens counts as idle": (
        Producing, "open", "producer.used = clock.now if producer.record else 0", "pass",
    ),
    "a snapshot lacks the last use of producers": (
        state, "_producer", "row.record, row.used", "1, 0",
    ),
    "the clock runs backwards": (
        Clock, "pass_time", "self.trusted = max(self.trusted, at)", "self.trusted = at",
    ),
    # Staged puts.
    "a publish is not idempotent": (
        Publishing, "publish", "command.number <= source.published", "False",
    ),
    "a publish skips missing parts": (
        Publishing, "_parts", "return NotStaged(command.source, command.number, name)", "continue",
    ),
    "a late copy of a refused publish takes effect": (
        Publishing, "publish", "staging.refuse(key, registry.new_epoch())", "pass",
    ),
    "the epoch of a publish is ignored": (
        Publishing, "publish", "command.expected not in (ANY_EPOCH, staging.epoch(key))", "False",
    ),
    "a refusal is forgotten with its source's record": (
        Staging, "_delete", "self.floor = max(self.floor, known.epoch)", "pass",
    ),
    "late copies publish again for a closed source": (
        Registry, "delete_source", "self.staging.floor = self.last_epoch", "pass",
    ),
    "a late publish takes parts staged after a drop": (
        Publishing, "drop", "if command.renew:", "if False:",
    ),
    "a late publish takes parts staged after a close": (
        Publishing, "close", "if command.renew:", "if False:",
    ),
    "a refusal is forgotten if its source has no record": (
        Staging, "_known", "Source(self.floor)", "Source()",
    ),
    "late parts are accepted": (
        publishing, "known_part", "command.number <= source.published", "False",
    ),
    "a repeated part is staged again": (
        publishing, "known_part", "command.part in source.staged.get(command.number, {})", "False",
    ),
    "parts from failed attempts are kept": (
        Staging, "drop_up_to", "each <= number", "each < number",
    ),
    "a source takes a producer's name": (
        Publishing, "refusal_to_append", "if producer is not None and producer.incarnation:",
        "if False:",
    ),
    # Snapshots.
    "a snapshot lacks the sequences": (state, "_producer", "row.next, ", "0, "),
    "a snapshot lacks the incarnation": (state, "_subscription", ", row.incarnation", ', ""'),
    "a snapshot lacks the redelivery marks": (state, "_subscription", "row.suspect_below, ", "0, "),
    "a snapshot lacks the epochs": (
        state, "restored", "head.last_topic_id, head.last_epoch", "head.last_topic_id, 0",
    ),
    "a snapshot lacks the last published number": (
        state, "_read", "row.published, row.ranges", "-1, ()",
    ),
    "a snapshot lacks a refused publish": (state, "_read", "Source(row.epoch)", "Source()"),
    "a snapshot lacks refusals without a record": (
        state, "restored", "= head.sources_floor", "= 0",
    ),
    "a snapshot lacks the notes": (state, "_read", "(row.index, row.notes)", "(row.index, ())"),
    "the cursors are not rebuilt": (
        Topic, "_gather_cursors", "heapify(self._cursors)", "self._cursors.clear()",
    ),
}  # fmt: skip


# Rules that random commands rarely need: their own tests must fail.
EXACT: dict[str, tuple[Callable[[], None], Any, str, str, str]] = {
    "a refusal with another epoch is kept as a seek's answer": (
        seeks.test_later_reader_seek_takes_effect_in_the_new_epoch,
        Subscribing, "seek",
        "isinstance(result, Fenced | Repositioned)", "isinstance(result, Fenced)",
    ),
    "another digest counts as a replay": (
        runs.test_republishing_a_number_with_another_digest_is_refused,
        publishing, "published_again", "command.digest != source.digest", "False",
    ),
    "a snapshot lacks the digest": (
        runs.test_republishing_a_number_with_another_digest_is_refused,
        state, "_read", "row.runs, row.digest", "row.runs, b''",
    ),
    "a run may continue below the last number": (
        runs.test_run_that_publishes_an_old_number_is_refused,
        publishing, "run_fault", "command.number < source.published", "False",
    ),
    "an earlier run is not fenced": (
        runs.test_newer_run_fences_earlier_runs,
        publishing, "run_fault", "source.has_fenced(command.run)", "False",
    ),
    "a drop ends the fencing of a run": (
        runs.test_fenced_run_stays_fenced_after_the_newer_run_drops_its_parts,
        Staging, "drop", "known.idle", "known.published < 0 and not known.staged",
    ),
    "a replaying run does not take over": (
        runs.test_run_that_replays_the_last_number_takes_over,
        publishing, "published_again", "source.enter(command.run)", "pass",
    ),
    "messages that must be kept are dropped": (
        runs.test_publish_with_keep_is_refused_without_retention_or_subscription,
        Publishing, "refusal_to_append", "if keep else ()", "if False else ()",
    ),
    "only the last few state directories are kept": (
        puts.test_every_state_directory_under_a_name_is_kept,
        Producing, "open", "forget=not registry.limits.directories_max", "forget=True",
    ),
    "more state directories are accepted than can be kept": (
        puts.test_state_directory_above_the_limit_is_refused,
        Producing, "_take_over", "0 < directories_max <= len(producer.earlier)", "False",
    ),
    "a refused publish takes effect after a move": (
        moves.test_late_duplicate_of_a_refused_publish_has_no_effect_after_a_move,
        Moving, "adopt", "registry.staging.floor = registry.last_epoch", "pass",
    ),
    # Time.
    "one timestamp moves the clock anywhere": (
        clock.test_timestamp_a_year_ahead_does_not_expire_messages,
        Clock, "pass_time", "if not step or", "if True or",
    ),
    "a disputed timestamp expires messages": (
        clock.test_timestamp_a_year_ahead_does_not_expire_messages,
        Topic, "collect", "clock.trusted", "clock.now",
    ),
    "a disputed timestamp expires staged parts": (
        clock.test_timestamp_a_year_ahead_does_not_expire_staged_parts,
        Administering, "tick", "clock.trusted - registry", "clock.now - registry",
    ),
    "future timestamps are not corrected": (
        clock.test_future_timestamps_are_corrected_once_the_clock_is_right,
        Registry, "pass_time", "self._retime(retiming)", "pass",
    ),
    "the group never counts the time while it was down": (
        clock.test_restarted_group_catches_up_after_consistent_timestamps,
        Clock, "_ahead", "if self.sustained < SUSTAINED * step:", "if True:",
    ),
    "an idle group's time is disputed": (
        clock.test_idle_group_has_no_disputed_time,
        Administering, "tick", ", command.elapsed", "",
    ),
    "a fast clock is never corrected": (
        clock.test_correcting_a_fast_clock_preserves_message_ages,
        Clock, "_behind", "if self.sustained < SUSTAINED * step:", "if True:",
    ),
    "messages do not age while the clock is ahead": (
        clock.test_correcting_a_fast_clock_preserves_message_ages,
        Clock, "_go_on", "self.trusted += passed", "pass",
    ),
    "correcting a slow clock ages messages": (
        clock.test_correcting_a_slow_clock_does_not_expire_messages,
        Clock, "_ahead", "min(at - before, self.moved_back)", "0",
    ),
    "an older version's log is read by the newer rule": (
        clock.test_clock_without_a_step_limit_follows_the_highest_timestamp,
        Clock, "pass_time", "if not step or not self.trusted:", "if not self.trusted:",
    ),
    "a snapshot lacks the trusted time": (
        lambda: clock.random_stamps(0),
        state, "restored", "(head.clock, head.clock_state)", "(head.clock, None)",
    ),
    "a leader with a wrong clock is not outvoted": (
        leader.test_leader_with_a_wrong_clock_is_outvoted,
        Timekeeper, "_agreed", "return min(max(expected, times[-1 - others]), times[others])",
        "return wall",
    ),
    "time follows the later of two clocks": (
        lambda: leader.test_one_of_two_clocks_does_not_move_the_time(leader.YEAR),
        Timekeeper, "_agreed", "times[-1 - others]", "times[-1]",
    ),
    "time follows the earlier of two clocks": (
        lambda: leader.test_one_of_two_clocks_does_not_move_the_time(-leader.YEAR),
        Timekeeper, "_agreed", "times[-1 - others]), times[others])", "times[0]), times[0])",
    ),
    "a leader without answers follows its wall clock": (
        leader.test_leader_goes_on_with_its_monotonic_clock_when_answers_expire,
        Timekeeper, "_agreed", "return expected or wall", "return wall",
    ),
    "a clock near the last timestamp needs no answers": (
        leader.test_several_wrong_clocks_in_turn_do_not_move_the_time,
        Timekeeper, "stamp", "<= SLACK", "<= step // 2",
    ),
    "small differences between clocks add up": (
        leader.test_small_differences_between_clocks_need_no_answers,
        Timekeeper, "go_on_from",
        "if self._time is None or abs(at - self._passed(*self._time)) > SLACK:", "if True:",
    ),
    "the first timestamp may be behind a majority": (
        leader.test_first_timestamp_is_one_that_a_majority_has_not_passed,
        Timekeeper, "_agreed", "return times[others]", "return times[-1 - others]",
    ),
    "a new leader does not wait for a majority's clocks": (
        leader.test_new_leader_proposes_nothing_with_a_timestamp_before_a_majority_answers,
        Timekeeper, "ready", "return not step or", "return True or",
    ),
    "held commands are overtaken": (
        leader.test_new_leader_proposes_nothing_with_a_timestamp_before_a_majority_answers,
        Service, "_propose", "type(command) is not do.SetLimits", "type(command) in STAMPED",
    ),
    "held commands outlive the term": (
        leader.test_leader_that_steps_down_forgets_what_it_has_not_proposed,
        Service, "_follow", "self._held.clear()", "pass",
    ),
    "answers from an earlier term count": (
        leader.test_each_term_needs_new_answers,
        Service, "_follow", "self.time.begin_term()", "pass",
    ),
    "stamps jump forward during a dispute": (
        leader.test_jumps_during_a_dispute_do_not_move_the_time,
        Timekeeper, "_goes_on", "return at > clock.trusted + step", "return False",
    ),
    "stamps that are behind jump forward during a dispute": (
        leader.test_stamps_that_are_behind_do_not_move_the_time_when_they_jump_forward,
        Timekeeper, "_goes_on",
        "return clock.dispute is Dispute.BEHIND and at < clock.trusted - step", "return False",
    ),
    "answers do not expire": (
        leader.test_expired_answers_do_not_count,
        Timekeeper, "_fresh", "if 0 <= now - at <= FRESH", "",
    ),
    "a snapshot lacks the answered calls": (
        lambda: answered.late_copy(answered.LATE["delete"], restored=True),
        state, "_rows", "yield from _answered_rows(registry.answered.items())", "pass",
    ),
    "answered calls stay with the former owner": (
        moves.test_answered_calls_move_even_with_deleted_topics,
        state, "moved_out", "rows += _answered_rows(answers)", "pass",
    ),
    "answered calls are not bounded": (
        answered.test_only_the_last_1000_answered_calls_are_kept,
        Answered, "add", "len(self._answers) > ANSWERED_MAX", "False",
    ),
    "an idle leader does not end a dispute": (
        leader.test_idle_leader_ends_a_dispute_when_its_clock_is_corrected,
        Service, "_dispute_due", "(dispute or ", "(",
    ),
    "leases wait for a dispute": (
        leader.test_lease_ends_although_the_time_is_disputed,
        Service, "_dispute_due", "any(each.has_deadlines for each in registry.sharing.values())",
        "False",
    ),
    "an idle leader disputes without leases": (
        leader.test_dispute_without_jobs_in_flight_does_not_cause_disk_writes,
        Service, "_dispute_due", "any(each.has_deadlines for each in registry.sharing.values())",
        "bool(registry.sharing)",
    ),
    "a clock that jumps reports elapsed time": (
        leader.test_leader_reports_no_elapsed_time_after_a_clock_jump,
        Timekeeper, "elapsed", "if self._confirmed() else 0", "",
    ),
}  # fmt: skip


def random_commands(seed: int) -> None:
    random_run(seed, 150)


MUTANTS = [
    Mutant(rule, replaced(*change), random_commands, SEEDS) for rule, change in RULES.items()
] + [Mutant(rule, replaced(*change), exact(test), 1) for rule, (test, *change) in EXACT.items()]


@pytest.mark.mutants
@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_machine_mutant_is_detected(mutant: Mutant) -> None:
    """SVC-2 SVC-3 SVC-6 SVC-8 SVC-9 SVC-10"""
    assert_detected(mutant)
