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
from tests.broker import test_timekeeping as leader
from tests.broker.machine_pair import random_run
from tests.mutants import Mutant, exact, must_be_noticed, replaced

SEEDS = 200

RULES: dict[str, tuple[Any, str, str, str]] = {
    # Puts.
    "no deduplication": (Topic, "put", "known = producer.next - put.sequence", "known = 0"),
    "gap not detected": (Topic, "put", "if known < 0:", "if False:"),
    "partly stored batch appended in full": (Topic, "put", "- known\n", "* (put.count > known)\n"),
    "overlap not skipped by readers": (Topic, "put", "(known, -1) if known else PLAIN", "PLAIN"),
    "epoch of puts ignored": (Topic, "put", "if put.epoch != producer.epoch:", "if False:"),
    "newer incarnation not recognised": (
        Producing, "_take_over", "producer.incarnation == command.incarnation", "True",
    ),
    "repeated open fences its own incarnation": (
        Producing, "_take_over", "if not same:", "if True:",
    ),
    "late open takes a name over": (
        Producing, "_take_over", "command.expected not in (ANY_EPOCH, producer.epoch)", "False",
    ),
    "open ignores a deleted record": (
        Producing, "open", "if producer is None and command.expected > 0:", "if False:",
    ),
    "late attach takes a subscription over": (
        Subscribing, "attach", "if command.expected not in (ANY_EPOCH, current):", "if False:",
    ),
    "each record counts its own epochs": (
        Producing, "open", "Producer(registry.new_epoch(), ", "Producer(1, ",
    ),
    "state directories not distinguished": (
        Producing, "open",
        "producer.keep(command.directory_id, forget=not registry.limits.directories_max)",
        "(0, producer.next)",
    ),
    "state directory forgotten when others put": (
        Producer, "keep", "self.earlier[self.directory_id] = (self.since, self.next)", "pass",
    ),
    "range of a state directory restarted without other puts": (
        Producer, "keep", "self.since = first", "pass",
    ),
    "fenced client can close a producer": (
        Producing, "close", "if command.epoch != producer.epoch:", "if False:",
    ),
    # Subscriptions.
    "epoch of acks ignored": (Topic, "ack", "if ack.epoch != subscription.epoch:", "if False:"),
    "acks not monotone": (Subscription, "acknowledge", "max(self.cursor, upto)", "upto"),
    "acks beyond the end accepted": (Topic, "ack", "if ack.upto > self.index.next:", "if False:"),
    "incarnation of readers ignored": (
        Subscribing, "attach", "if subscription.incarnation != command.incarnation:",
        "if not subscription.incarnation:",
    ),
    "possible redeliveries not marked after a crash": (
        Subscription, "attach", "if self.incarnation:", "if False:",
    ),
    "detach forgets delivered messages": (
        Subscription, "detach", "max(self.suspect_below, delivered)", "self.suspect_below",
    ),
    "ack undoes a seek": (Subscription, "seek", "self.epoch = epoch", "pass"),
    "repeated seek is executed again": (
        Topic, "seek", "if seek.token == subscription.seek_token and", "if False and",
    ),
    "repeated subscribe starts again": (
        Subscribing, "subscribe", "if known is not None:", "if False:",
    ),
    # Collection.
    "collected above the low-water mark": (
        Topic, "floor", "min(floor, self.low_water())", "min(floor, self.low_water() + 1)",
    ),
    "low-water mark of the fastest subscription": (
        Topic, "floor", "self.low_water()", "max(s.cursor for s in self.subscriptions.values())",
    ),
    "low-water mark forgets a seek back": (
        Topic, "seek", "self._note_cursor(subscription.cursor, seek.subscription)", "pass",
    ),
    "unsubscribe keeps unread messages": (Topic, "unsubscribe", "self.collect(clock)", "pass"),
    "hard limits wait for readers": (Topic, "floor", "and not self.policy.drop_unread", ""),
    "age ends one tick early": (Index, "floor", "- policy.age_us + 1", "- policy.age_us + 2"),
    "bytes count one batch too few": (Index, "newest", "self._head) + 1", "self._head)"),
    "live slots never dropped": (Index, "drop_below", "self._live_slots.drop(slot)", "pass"),
    "carried batch still needed at its old slot": (
        Administering, "carry", "self._registry.live_slots.drop(command.old)", "pass",
    ),
    "idle topics stay": (Registry, "release", "if topic.idle:", "if False:"),
    "idle producers are not deleted": (
        Administering, "tick", "if command.producers:", "if False:",
    ),
    "idle sources are not deleted": (
        Administering, "tick", "registry.delete_source(source)", "pass",
    ),
    "used source counts as idle": (Registry, "use_source", "self.clock.now", "1"),
    "source with staged parts counts as idle": (Staging, "unused", "not known.staged and", ""),
    "producers of an idle source stay": (
        Registry, "delete_source", "del topic.producers[source]", "pass",
    ),
    "use of sources not in the snapshot": (state, "_read", "source.used = row.used", "pass"),
    "producer that puts counts as idle": (Topic, "put", "producer.used = clock.now", "pass"),
    "producer that opens counts as idle": (
        Producing, "open", "producer.used = clock.now if producer.record else 0", "pass",
    ),
    "use of producers not in the snapshot": (state, "_producer", "row.record, row.used", "1, 0"),
    "clock runs backwards": (
        Clock, "pass_time", "self.trusted = max(self.trusted, at)", "self.trusted = at",
    ),
    # Staged puts.
    "publish not idempotent": (
        Publishing, "publish", "command.number <= source.published", "False",
    ),
    "publish skips missing parts": (
        Publishing, "_parts", "return NotStaged(command.source, command.number, name)", "continue",
    ),
    "late copy of a refused publish takes effect": (
        Publishing, "publish", "staging.refuse(key, registry.new_epoch())", "pass",
    ),
    "epoch of a publish ignored": (
        Publishing, "publish", "command.expected not in (ANY_EPOCH, staging.epoch(key))", "False",
    ),
    "refusal forgotten with the record of its source": (
        Staging, "_delete", "self.floor = max(self.floor, known.epoch)", "pass",
    ),
    "late copies of a closed source publish again": (
        Registry, "delete_source", "self.staging.floor = self.last_epoch", "pass",
    ),
    "late publish publishes parts that were staged after a drop": (
        Publishing, "drop", "if command.renew:", "if False:",
    ),
    "late publish publishes parts that were staged after a close": (
        Publishing, "close", "if command.renew:", "if False:",
    ),
    "refusal of a source without a record forgotten": (
        Staging, "_known", "Source(self.floor)", "Source()",
    ),
    "late parts are accepted": (
        publishing, "known_part", "command.number <= source.published", "False",
    ),
    "repeated part is staged again": (
        publishing, "known_part", "command.part in source.staged.get(command.number, {})", "False",
    ),
    "parts of failed attempts stay": (Staging, "drop_up_to", "each <= number", "each < number"),
    "source takes a producer's name": (
        Publishing, "_publish_fault", "if producer is not None and producer.incarnation:",
        "if False:",
    ),
    # Snapshots.
    "sequences not in the snapshot": (state, "_producer", "row.next, ", "0, "),
    "incarnation not in the snapshot": (state, "_subscription", ", row.incarnation", ', ""'),
    "redelivery marks not in the snapshot": (state, "_subscription", "row.suspect_below, ", "0, "),
    "epochs not in the snapshot": (
        state, "restored", "head.last_topic_id, head.last_epoch", "head.last_topic_id, 0",
    ),
    "published not in the snapshot": (state, "_read", "row.published, row.ranges", "-1, ()"),
    "refused publish not in the snapshot": (state, "_read", "Source(row.epoch)", "Source()"),
    "refusals without a record not in the snapshot": (
        state, "restored", "= head.sources_floor", "= 0",
    ),
    "notes not in the snapshot": (state, "_read", "(row.index, row.notes)", "(row.index, ())"),
    "cursors not rebuilt": (
        Topic, "_gather_cursors", "heapify(self._cursors)", "self._cursors.clear()",
    ),
}  # fmt: skip


# Rules that random commands rarely need: their own tests must fail.
EXACT: dict[str, tuple[Callable[[], None], Any, str, str, str]] = {
    "another digest counts as a replay": (
        runs.test_republishing_a_number_with_another_digest_is_refused,
        publishing, "published_again", "command.digest != source.digest", "False",
    ),
    "digest not in the snapshot": (
        runs.test_republishing_a_number_with_another_digest_is_refused,
        state, "_read", "row.runs, row.digest", "row.runs, b''",
    ),
    "run may continue below the last number": (
        runs.test_run_that_publishes_an_old_number_is_refused,
        publishing, "run_fault", "command.number < source.published", "False",
    ),
    "earlier run is not fenced": (
        runs.test_newer_run_fences_earlier_runs,
        publishing, "run_fault", "source.has_fenced(command.run)", "False",
    ),
    "drop ends the fencing of a run": (
        runs.test_fenced_run_stays_fenced_after_the_newer_run_drops_its_parts,
        Staging, "drop", "known.idle", "known.published < 0 and not known.staged",
    ),
    "replaying run does not take over": (
        runs.test_run_that_replays_the_last_number_takes_over,
        publishing, "published_again", "source.enter(command.run)", "pass",
    ),
    "messages that must be kept are dropped": (
        runs.test_publish_with_keep_is_refused_without_retention_or_subscription,
        Publishing, "_publish_fault", "if command.keep else ()", "if False else ()",
    ),
    "only the last few state directories kept": (
        puts.test_every_state_directory_under_a_name_is_kept,
        Producing, "open", "forget=not registry.limits.directories_max", "forget=True",
    ),
    "more state directories accepted than can be kept": (
        puts.test_state_directory_above_the_limit_is_refused,
        Producing, "_take_over", "0 < directories_max <= len(producer.earlier)", "False",
    ),
    "late copy of a refused publish takes effect after a move": (
        moves.test_late_duplicate_of_a_refused_publish_has_no_effect_after_a_move,
        Moving, "adopt", "registry.staging.floor = registry.last_epoch", "pass",
    ),
    # Time.
    "one timestamp moves the clock anywhere": (
        clock.test_timestamp_a_year_ahead_does_not_expire_messages,
        Clock, "pass_time", "if not step or", "if True or",
    ),
    "messages expire by a disputed timestamp": (
        clock.test_timestamp_a_year_ahead_does_not_expire_messages,
        Topic, "collect", "clock.trusted", "clock.now",
    ),
    "staged parts expire by a disputed timestamp": (
        clock.test_timestamp_a_year_ahead_does_not_expire_staged_parts,
        Administering, "tick", "clock.trusted - registry", "clock.now - registry",
    ),
    "future timestamps are not corrected": (
        clock.test_future_timestamps_are_corrected_once_the_clock_is_right,
        Registry, "pass_time", "self._retime(retiming)", "pass",
    ),
    "time while the group was down never passes": (
        clock.test_restarted_group_catches_up_after_consistent_timestamps,
        Clock, "_ahead", "if self.sustained < SUSTAINED * step:", "if True:",
    ),
    "time of an idle group is disputed": (
        clock.test_idle_group_has_no_disputed_time,
        Administering, "tick", ", command.elapsed", "",
    ),
    "fast clock is never corrected": (
        clock.test_correcting_a_fast_clock_preserves_message_ages,
        Clock, "_behind", "if self.sustained < SUSTAINED * step:", "if True:",
    ),
    "messages do not age while the clock is ahead": (
        clock.test_correcting_a_fast_clock_preserves_message_ages,
        Clock, "_go_on", "self.trusted += passed", "pass",
    ),
    "messages age by the correction of a slow clock": (
        clock.test_correcting_a_slow_clock_does_not_expire_messages,
        Clock, "_ahead", "min(at - before, self.moved_back)", "0",
    ),
    "log of an older version read by the newer rule": (
        clock.test_older_log_uses_its_highest_timestamp,
        Clock, "pass_time", "if not step or not self.trusted:", "if not self.trusted:",
    ),
    "trusted time not in the snapshot": (
        lambda: clock.random_stamps(0),
        state, "restored", "(head.clock, head.clock_state)", "(head.clock, None)",
    ),
    "leader with a wrong clock is not outvoted": (
        leader.test_leader_with_a_wrong_clock_is_outvoted,
        Timekeeper, "_median", "if not self._confirmed():", "if True:",
    ),
    "higher of two clocks wins": (
        lambda: leader.test_clock_nearer_to_the_trusted_time_wins(leader.YEAR),
        Timekeeper, "_median", "key=lambda each: abs(each - clock.trusted)",
        "key=lambda each: -each",
    ),
    "corrected clock is corrected again": (
        leader.test_corrected_wall_clock_is_used_at_once,
        Timekeeper, "stamp", "wall if self._near(wall, clock, step) else self._median(wall, clock)",
        "wall + self.__dict__.setdefault(str(self._readings), self._median(wall, clock) - wall)",
    ),
    "correction outlives its readings": (
        leader.test_correction_ends_when_its_readings_expire,
        Timekeeper, "_fresh", "if 0 <= now - at <= FRESH", "",
    ),
    "answered calls not in the snapshot": (
        lambda: answered.late_copy(answered.LATE["delete"], restored=True),
        state, "_rows", "yield from _answered_rows(registry.answered.items())", "pass",
    ),
    "answered calls stay at the former owner": (
        moves.test_answered_calls_move_even_with_deleted_topics,
        state, "moved_out", "rows += _answered_rows(answers)", "pass",
    ),
    "answered calls are not bounded": (
        answered.test_only_the_last_1000_answered_calls_are_kept,
        Answered, "add", "len(self._answers) > ANSWERED_MAX", "False",
    ),
    "idle leader does not end a dispute": (
        leader.test_idle_leader_ends_a_dispute_when_its_clock_is_corrected,
        Service, "_dispute_due", "registry.clock.dispute or", "",
    ),
    "clock that jumps reports elapsed time": (
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
    must_be_noticed(mutant)
