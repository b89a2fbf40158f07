"""Check that removing any rule about delays and times to live makes a test fail (WRK-5)."""

from __future__ import annotations

from typing import Any

import pytest

from oncecast.broker import state
from oncecast.broker.administering import Administering
from oncecast.broker.delays import Delays
from oncecast.broker.dispatching import Dispatcher
from oncecast.broker.index import Index
from oncecast.broker.lifetimes import Lifetimes
from oncecast.broker.machine import Machine
from oncecast.broker.moving import Aside, Moving
from oncecast.broker.producer import Producer
from oncecast.broker.producing import Producing
from oncecast.broker.queue import Queue
from oncecast.broker.registry import Registry
from oncecast.broker.releasing import Releaser
from oncecast.broker.service import Service
from oncecast.broker.sharing import Sharing
from oncecast.broker.topic import Topic
from oncecast.wire import commands as do
from tests.broker import test_machine_timing as machine
from tests.broker import test_releasing as node
from tests.mutants import Mutant, assert_detected, exact, replaced

RULES: dict[str, tuple[Any, Any, str, str, str]] = {
    # Delays.
    "a delayed message is due at once": (
        machine.test_delayed_message_enters_the_topic_when_it_is_due,
        Topic, "put_timed", "if due <= clock.trusted:", "if True:",
    ),
    "a delayed message is released early": (
        machine.test_delayed_message_enters_the_topic_when_it_is_due,
        Delays, "take", "self._order[0][0] <= now", "self._order[0][0] <= now + 1",
    ),
    "a delayed message is released late": (
        machine.test_delayed_message_enters_the_topic_when_it_is_due,
        Delays, "take", "self._order[0][0] <= now", "self._order[0][0] < now",
    ),
    "delayed messages follow the newest stamp": (
        machine.test_wrong_clock_makes_no_message_due_early,
        Topic, "release", "clock.trusted", "clock.now",
    ),
    "delays begin at the trusted time": (
        machine.test_message_that_is_put_after_a_long_pause_is_delayed_by_its_delay,
        Topic, "put_timed", "put.size, known, clock.now", "put.size, known, clock.trusted",
    ),
    "the time of a delayed put is not corrected": (
        machine.test_message_that_is_put_during_a_dispute_is_delayed_by_its_delay,
        Delays, "retime", "batch.time = retiming.rule(batch.time)", "pass",
    ),
    "the order of delayed messages is not corrected": (
        machine.test_message_that_is_put_during_a_dispute_is_delayed_by_its_delay,
        Delays, "retime", "self._sort()", "pass",
    ),
    "due times are corrected": (
        machine.test_correction_of_a_clock_that_was_ahead_keeps_delays_but_not_due_times,
        Delays, "add", "self.last += 1",
        "self.last += 1; batch.fixed, batch.delay = 0, batch.due - batch.time",
    ),
    "equal times are released in any order": (
        machine.test_delayed_messages_enter_in_the_order_of_their_times,
        Delays, "_put", "(batch.due, number)", "(batch.due, -number)",
    ),
    "one Tick releases all messages": (
        machine.test_one_tick_releases_a_limited_number_of_batches_of_a_topic,
        Delays, "take", "most > 0 and", "",
    ),
    "delayed batches are not limited": (
        machine.test_delayed_batches_of_a_topic_are_limited,
        Topic, "put_timed", ">= DELAYED_MAX", "< 0",
    ),
    "copies of delayed puts are stored again": (
        machine.test_copy_of_a_delayed_put_is_not_stored_again,
        Topic, "put_timed", "producer.delayed(count)", "pass",
    ),
    "copies of delayed puts get offsets": (
        machine.test_copy_of_a_delayed_put_is_not_stored_again,
        Producer, "offset_of", " or offset == NO_OFFSET", "",
    ),
    "delayed puts push out the runs of a producer": (
        machine.test_consecutive_delayed_puts_share_a_run_of_the_producer,
        Producer, "delayed", "if not runs or runs[-1] != NO_OFFSET:", "if True:",
    ),
    "a partly stored delayed batch is stored in full": (
        machine.test_partly_stored_delayed_batch_keeps_only_the_rest,
        Topic, "release", "(batch.skip, -1) if batch.skip else PLAIN", "PLAIN",
    ),
    "the epoch of a delayed put is ignored": (
        machine.test_delayed_put_needs_an_open_producer_with_the_current_epoch,
        Topic, "put_timed", " and put.epoch == producer.epoch", "",
    ),
    "a delayed put does not use its producer": (
        machine.test_idle_producer_with_a_delayed_put_counts_as_used,
        Topic, "put_timed", "producer.used = clock.now", "pass",
    ),
    "an invalid timing is stored": (
        lambda: machine.test_invalid_timing_is_refused({"delay_us": -1}, "the delay is -1e-06 s"),
        Producing, "_put_timed", "if fault:", "if False:",
    ),
    "a copy with an invalid timing is refused": (
        machine.test_copy_is_recognised_even_if_its_due_time_is_too_far_away,
        Producing, "_put_timed", "topic.already(command) or ", "",
    ),
    "an idle topic outlives its delayed messages": (
        machine.test_topic_stays_until_its_delayed_messages_have_entered_it,
        Registry, "release_delayed", "self.release(topic)", "pass",
    ),
    "a deleted topic keeps the slots of delayed messages": (
        machine.test_deleting_a_topic_drops_its_delayed_messages,
        Topic, "clear", "self._live_slots.drop(slot)", "pass",
    ),
    "the log forgets delayed messages": (
        machine.test_log_keeps_the_slots_of_delayed_messages,
        Topic, "put_timed", "self._live_slots.add(slot)", "pass",
    ),
    "delayed batches are not carried": (
        machine.test_log_keeps_the_slots_of_delayed_messages,
        Machine, "extents_before", "if batch.slot < slot:", "if False:",
    ),
    "a carry moves a delayed batch from any slot": (
        machine.test_log_keeps_the_slots_of_delayed_messages,
        Delays, "move", "batch is None or batch.slot != old", "batch is None",
    ),
    "a carried delayed batch is looked up in the index": (
        machine.test_log_keeps_the_slots_of_delayed_messages,
        Administering, "_move", "command.offset < -1", "False",
    ),
    "a snapshot lacks the delayed messages": (
        machine.test_delays_and_lifetimes_survive_a_snapshot,
        state, "_topic_rows", "yield from _timing_rows(topic)", "pass",
    ),
    "a restored machine does not look at delayed messages": (
        machine.test_delays_and_lifetimes_survive_a_snapshot,
        state, "restored", "registry.follow_delays(topic)", "pass",
    ),
    "a restored topic counts delayed batches again": (
        machine.test_delays_and_lifetimes_survive_a_snapshot,
        state, "_read_timing", "topic.delays.last = row.last", "pass",
    ),
    # Moves.
    "delayed messages do not move": (
        machine.test_delayed_messages_move_with_their_topic,
        state, "moved_out", "*_timing_rows(topic), ", "*(), ",
    ),
    "a topic is adopted without its delayed messages": (
        machine.test_delayed_messages_move_with_their_topic,
        Moving, "adopt",
        "names_of_parts(sources, topics)", "names_of_parts(sources, ())",
    ),
    "moved delays follow the exporter's clock": (
        machine.test_delayed_messages_move_with_their_topic,
        Aside, "put_back", "delays.shift(shift)", "pass",
    ),
    "lifetimes do not move": (
        machine.test_delayed_messages_move_with_their_topic,
        Moving, "_adopt_topic", "copied.index.lifetimes = topic.index.lifetimes", "pass",
    ),
    "a frozen topic releases delayed messages": (
        machine.test_frozen_topic_releases_nothing_until_it_is_thawed,
        Moving, "freeze", "registry.delaying.pop(name, None)", "pass",
    ),
    "a thawed topic releases no delayed messages": (
        machine.test_frozen_topic_releases_nothing_until_it_is_thawed,
        Moving, "_follow", "self._registry.follow_delays(topic)", "pass",
    ),
    "a group imports delayed messages below their level": (
        machine.test_group_below_the_level_imports_no_delayed_message,
        Moving, "_import_part", "registry.level >= TIMING_LEVEL", "True",
    ),
    # Time to live.
    "an expired message is leased": (
        machine.test_expired_message_is_not_leased_and_becomes_a_dead_letter,
        Index, "expired", "if span is None or", "if True or",
    ),
    "a message expires early": (
        machine.test_message_is_leased_until_its_time_to_live_is_over,
        Index, "expired", "+ span > now", "+ span > now + 1",
    ),
    "an expired message behind others is leased": (
        machine.test_fresh_expired_message_with_a_key_is_skipped,
        Queue, "_take_by_key",
        "if expiry is not None and expiry.messages.expired(self.next, now):", "if False:",
    ),
    "an expired message behind a living one is leased": (
        machine.test_message_expires_when_it_is_its_turn,
        Queue, "_take_living", "if expiry.messages.expired(self.next, now):", "if False:",
    ),
    "an expired retry is leased": (
        machine.test_expired_retry_behind_a_living_one_is_not_leased,
        Queue, "take",
        "if expiry is not None and expiry.messages.expired(offset, now):", "if False:",
    ),
    "messages expire only if a worker asks": (
        machine.test_message_expires_without_any_worker,
        Sharing, "lease", "queue.end_expired(now, expiry)", "pass",
    ),
    "a retry expires before it is due": (
        machine.test_message_that_waits_for_its_backoff_expires_when_it_is_due,
        Queue, "_front_retry_expired", " or first[0] > now", "",
    ),
    "a topic that drops expired messages keeps them": (
        machine.test_expired_message_is_dropped_if_the_topic_says_so,
        Queue, "_end_fresh", "if not expiry.drop:", "if True:",
    ),
    "a dropped retry becomes a dead letter": (
        lambda: machine.test_leased_message_expires_only_if_it_has_to_be_delivered_again(drop=True),
        Queue, "_end", "if expiry.drop:", "if False:",
    ),
    "time to live counts from the due time": (
        machine.test_time_to_live_counts_from_the_put_of_a_delayed_message,
        Topic, "release", "batch.time + batch.ttl", "clock.now + batch.ttl",
    ),
    "dead messages are not limited": (
        machine.test_workers_wait_while_many_expired_messages_wait_to_become_dead_letters,
        Queue, "_end_fresh", "DEAD_MAX - len(self.dead), ", "",
    ),
    "expired batches of one command are not limited": (
        machine.test_one_command_ends_a_limited_number_of_batches,
        Queue, "end_expired", "left > 0 and self._end_fresh", "self._end_fresh",
    ),
    "the reason of an ended lease is that of an expired message": (
        machine.test_dead_letter_says_that_the_last_lease_has_ended,
        Sharing, "lease", "LEASE_ENDED if new else EXPIRED", "EXPIRED",
    ),
    "lifetimes are never forgotten": (
        machine.test_lifetimes_of_dropped_batches_are_forgotten,
        Lifetimes, "add", "if dropped > PRUNE_MIN", "if False",
    ),
    "a dropped message has the lifetime of another one": (
        machine.test_dropped_retry_of_a_topic_with_lifetimes_is_released,
        Index, "expired", "if offset < self.first:", "if False:",
    ),
    # The node.
    "the leader waits for its maintenance": (
        node.test_waiting_worker_gets_a_delayed_message_when_it_is_due,
        Service, "_decided", "self._releaser.follow(command.topic)", "pass",
    ),
    "the maintenance does not look at delayed messages": (
        node.test_worker_gets_a_message_with_a_long_delay,
        Service, "_pass_time", "self._releaser.look()", "pass",
    ),
    "workers are not told of released messages": (
        node.test_readers_are_told_when_delayed_messages_enter_a_topic,
        Service, "_tell_changes", "for name in result.topics:", "for name in ():",
    ),
    "a later message delays the timer": (
        node.test_timer_is_set_only_for_messages_that_are_due_soon,
        Releaser, "_wake_at", " and at < self._at", "",
    ),
    "a follower sets the timer": (
        node.test_follower_sets_no_timer,
        Releaser, "follow", " and self._service.leading", "",
    ),
    "a dispute lasts while only delayed messages wait": (
        node.test_dispute_ends_while_messages_are_delayed,
        Service, "_dispute_due", " or registry.delaying", "",
    ),
    "a policy is proposed below its level": (
        lambda: node.test_policy_that_drops_expired_messages_needs_its_feature_level(
            do.SetPolicy
        ),
        Service, "_is_too_new", " or needed > self.machine.registry.level", "",
    ),
    "the node leaves expired messages alone": (
        node.test_message_expires_without_a_worker_and_its_letter_says_why,
        Dispatcher, "_consider", " or queue.front_expired(now, expiry)", "",
    ),
    "the node leaves expired messages with keys alone": (
        node.test_expired_messages_with_keys_are_ended_without_a_worker,
        Queue, "front_expired", "return fresh and", "return False and",
    ),
}  # fmt: skip


def only_its_clients_use_a_topic(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Topic, "idle", property(lambda each: not (each.subscriptions or each.producers)))


MUTANTS = [
    Mutant(rule, replaced(*change), exact(test), 1) for rule, (test, *change) in RULES.items()
] + [
    Mutant(
        "a topic with delayed messages is idle",
        only_its_clients_use_a_topic,
        exact(machine.test_topic_stays_until_its_delayed_messages_have_entered_it),
        1,
    )
]


@pytest.mark.mutants
@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_timing_mutant_is_detected(mutant: Mutant) -> None:
    """WRK-5"""
    assert_detected(mutant)
