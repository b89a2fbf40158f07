"""Check that removing any rule about partitions and consumer groups makes a test fail."""

from __future__ import annotations

from typing import Any

import pytest

from oncecast.broker import administering, state
from oncecast.broker.administering import Administering
from oncecast.broker.dividing import Dividing
from oncecast.broker.guard import Guard
from oncecast.broker.machine import Machine
from oncecast.broker.moving import Aside, Moving
from oncecast.broker.partitioning import ConsumerGroup
from oncecast.broker.publishing import Publishing
from oncecast.broker.registry import Registry
from oncecast.broker.subscribing import Subscribing
from oncecast.broker.topic import Topic
from oncecast.client.membership import Membership
from oncecast.client.partitioning import Partitions
from oncecast.client.putting import Putting
from oncecast.client.routing import Router
from oncecast.client.session.producing import Flow
from tests.broker import test_assignment as choice
from tests.broker import test_guard_partitions as guard
from tests.broker import test_machine_partitions as machine
from tests.client import test_membership as member
from tests.client import test_partitions as client
from tests.client import test_routing as routing
from tests.client.group_storm import Storm
from tests.mutants import Mutant, assert_detected, exact, replaced

STORMS = 30  # maximum number of seeds


def storm(seed: int) -> None:
    Storm(seed).run()


RULES: dict[str, tuple[Any, Any, str, str, str]] = {
    # Assignments.
    "a member that has fewest gets the odd partition": (
        choice.test_member_that_has_most_keeps_the_odd_partition,
        choice, "assigned", "quotas(members, current)", "quotas(members, ())",
    ),
    "partitions are not sticky": (
        choice.test_new_member_gets_the_last_partitions_of_each_member,
        choice, "assigned", "if quota.get(member, 0):", "if False:",
    ),
    "a partition is taken before it is released": (
        machine.test_moved_partitions_are_released_before_they_are_taken,
        ConsumerGroup, "_assign", "if target and not each.holder:", "if target:",
    ),
    "a release of an earlier term counts": (
        machine.test_late_release_of_an_earlier_term_changes_nothing,
        ConsumerGroup, "enlist", "(each.holder, each.term) == (member, term)",
        "each.holder == member",
    ),
    "a dead member keeps its partitions": (
        machine.test_partitions_of_a_dead_member_are_free_when_its_time_ends,
        Dividing, "enlist", "group.expire(now)", "pass",
    ),
    "a member is dropped one microsecond late": (
        machine.test_partitions_of_a_dead_member_are_free_when_its_time_ends,
        ConsumerGroup, "expire", "if until <= now", "if until < now",
    ),
    "a member that leaves keeps its partitions": (
        machine.test_partitions_of_a_member_that_leaves_are_free_at_once,
        ConsumerGroup, "_drop", "if each.holder == member:", "if False:",
    ),
    "new partitions are not assigned": (
        machine.test_new_partitions_are_assigned_without_moving_others,
        ConsumerGroup, "grow", "self._assign(new_term)", "pass",
    ),
    "deadlines do not move with the trusted time": (
        machine.test_jump_of_the_trusted_time_ends_no_membership_early,
        Topic, "retime", "self.descriptor.shift(retiming.shift)", "pass",
    ),
    # Fencing.
    "a lower term attaches": (
        machine.test_late_member_cannot_take_a_partition_back,
        Subscribing, "attach", "if command.term < subscription.term and command.term:", "if False:",
    ),
    "terms are forgotten": (
        machine.test_late_member_cannot_take_a_partition_back,
        Subscribing, "attach", "max(subscription.term, command.term)", "0",
    ),
    # Topics.
    "growth does not wait for new groups": (
        machine.test_growth_waits_until_all_groups_are_subscribed_to_the_new_partitions,
        Dividing, "set_partitions", "if command.expected != found.epoch:", "if False:",
    ),
    "partitions shrink": (
        machine.test_partitions_grow_and_never_shrink,
        Dividing, "set_partitions", "if command.count < found.count:", "if False:",
    ),
    "a closed topic accepts groups": (
        machine.test_topic_is_closed_before_it_is_deleted,
        Dividing, "_open", "found.closing", "False",
    ),
    "an open topic is deleted": (
        machine.test_topic_is_closed_before_it_is_deleted,
        Administering, "delete", "(command.partition_of and descriptor.closing)",
        "command.partition_of",
    ),
    "a plain topic is deleted as a partition": (
        machine.test_plain_topic_with_the_name_of_a_partition_stays_plain,
        administering, "belongs", "base == (", "True or base == (",
    ),
    "a plain topic becomes a partition": (
        machine.test_plain_topic_with_the_name_of_a_partition_stays_plain,
        administering, "same_kind", "(count, topic.partition_of) == wanted", "count == wanted[0]",
    ),
    "a partition is deleted alone": (
        machine.test_partition_is_deleted_only_with_its_topic,
        Administering, "delete", "if base and not command.partition_of:", "if False:",
    ),
    "transactions put to the descriptor": (
        machine.test_staged_and_transacted_messages_go_to_a_partition,
        Publishing, "refusal_to_append", "if divided is not None:", "if False:",
    ),
    "a refused command passes no time": (
        machine.test_refused_command_passes_the_time,
        Machine, "_refuse", "self.registry.pass_time(at)", "pass",
    ),
    # Snapshots and moves.
    "a restored machine forgets its descriptors": (
        machine.test_snapshot_keeps_partitions_groups_and_terms,
        state, "restored", "registry.follow_partitions(topic)", "pass",
    ),
    "an exported descriptor stays": (
        machine.test_descriptor_moves_with_its_groups,
        Moving, "freeze", "registry.divided.pop(name, None)", "pass",
    ),
    "an imported descriptor is unknown": (
        machine.test_descriptor_moves_with_its_groups,
        Moving, "_follow", "self._registry.follow_partitions(topic)", "pass",
    ),
    "deadlines keep the clock of the exporter": (
        machine.test_descriptor_moves_with_its_groups,
        Aside, "put_back", "descriptor.shift(shift)", "pass",
    ),
    # Permissions.
    "a rule covers plain topics with the name of a partition": (
        lambda: guard.test_manager_of_a_topic_may_create_and_delete_its_partitions(
            guard.prepared()
        ),
        Guard, "_permits", "base = base if is_partition(topic, base) else \"\"", "pass",
    ),
    "lists hide partitions": (
        lambda: guard.test_list_shows_the_partitions_of_visible_topics(guard.prepared()),
        Registry, "base_of", "topic.partition_of", "\"\"",
    ),
    # The client.
    "a member waits for a third of its lifetime before it reports a release": (
        member.test_released_partition_is_reported_until_the_answer_no_longer_has_it,
        Membership, "_report", "self.due = now", "pass",
    ),
    "a released partition is taken again": (
        member.test_partition_that_returns_before_it_is_released_is_still_released,
        Membership, "_takes", " and (partition, term) not in self.released", "",
    ),
    "an empty key decides the partition": (
        routing.test_messages_without_a_key_stay_in_one_partition_until_their_batch_is_sent,
        Router, "choose", "if key else", "if key is not None else",
    ),
    "refused messages are overtaken": (
        routing.test_messages_wait_until_all_batches_of_the_topic_are_refused,
        Putting, "_divide", "if any(each.topic == topic for each in self._flying.values()):",
        "if False:",
    ),
    "flush forgets refused messages": (
        routing.test_messages_wait_until_all_batches_of_the_topic_are_refused,
        Putting, "_divide",
        "self._flushing = [(self._tickets, waiter) for _, waiter in self._flushing]", "pass",
    ),
    "batches of an earlier process are not divided": (
        routing.test_next_process_puts_what_an_earlier_one_left,
        Flow, "_not_opened", " or isinstance(why, Partitioned)", "",
    ),
    "growth does not subscribe the groups": (
        client.test_group_that_is_added_during_growth_gets_the_new_partitions,
        Partitions, "grow", "await self.subscribe(topic, group.name, new, do.FromEarliest())",
        "pass",
    ),
}  # fmt: skip

STORMY: dict[str, tuple[Any, str, str, str]] = {
    "targets follow the holders": (
        ConsumerGroup, "_assign", "each.target or each.holder", "each.holder or each.target",
    ),
    "a member reads on when its time is over": (Membership, "over", "now >= self.until", "False"),
    "a member does not drop partitions of other members": (
        Membership, "enlisted", "known.get(each) != term", "False",
    ),
    "all terms attach": (
        Subscribing, "attach", "if command.term < subscription.term and command.term:", "if False:",
    ),
}  # fmt: skip

MUTANTS = [
    Mutant(rule, replaced(*change), exact(test), 1) for rule, (test, *change) in RULES.items()
] + [
    Mutant(f"{rule}, in a storm", replaced(*change), storm, STORMS)
    for rule, change in STORMY.items()
]


@pytest.mark.mutants
@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_partition_mutant_is_detected(mutant: Mutant) -> None:
    """PART-1 PART-2"""
    assert_detected(mutant)
