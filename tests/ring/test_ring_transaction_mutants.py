"""Check that removing any rule of transactions across groups makes a test fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oncecast.broker import holding, service, state
from oncecast.broker.contents import Contents
from oncecast.broker.gateway import Gateway
from oncecast.broker.holding import Holding
from oncecast.broker.producing import Producing
from oncecast.broker.queue import Queue
from oncecast.broker.registry import Registry
from oncecast.broker.staging import HeldShare, Staging
from oncecast.broker.subscribing import Subscribing
from oncecast.broker.transacting import Transacting
from oncecast.client.session.ring_transacting import RingTransactions
from oncecast.client.session.transacting import Transactions
from oncecast.lab.scenarios.ring_transactions import RING_TRANSACTIONS
from oncecast.lab.scenarios.scenario import run
from oncecast.ring import resolver as module
from oncecast.ring.resolver import Resolver
from oncecast.wire.ring_transactions import DecideTransaction
from tests.broker import test_held_shares as shares
from tests.broker import test_ring_transactions_on_node as node
from tests.client.session import test_ring_transacting as session
from tests.mutants import Mutant, assert_detected, exact, replaced
from tests.ring import test_resolver as resolver

RULES: dict[str, tuple[Callable[..., None], Any, str, str, str]] = {
    "a prepared share is published at once": (
        shares.test_prepared_share_is_invisible_and_acknowledges_nothing,
        Transacting, "_commit", "if isinstance(command, PrepareTransaction):", "if False:",
    ),
    "a copy of a prepare holds the share again": (
        shares.test_copy_of_prepare_changes_nothing,
        Transacting, "end", "if share is not None and share.epoch == command.epoch:", "if False:",
    ),
    "a client commits a held share alone": (
        shares.test_client_may_abort_but_not_commit_a_held_share_alone,
        Transacting, "end", "if command.commit:\n", "if False:\n",
    ),
    "a single group prepares shares": (
        lambda: shares.test_cluster_that_is_not_a_ring_refuses_two_phases(DecideTransaction),
        Transacting, "end", "registry.holdings is None", "False",
    ),
    "another reader attaches while messages are held": (
        shares.test_no_other_reader_attaches_while_messages_are_held,
        Subscribing, "attach",
        "registry.is_held(command.topic, command.subscription, subscription.epoch)", "False",
    ),
    "a share holds the messages of every epoch": (
        shares.test_seek_ends_the_hold_of_an_exclusive_subscription,
        HeldShare, "holds", "each.subscription, each.epoch) == (topic, subscription, epoch)",
        "each.subscription) == (topic, subscription)",
    ),
    "two transactions hold the same reader": (
        shares.test_held_messages_belong_to_one_transaction,
        Contents, "_input", "self._registry.is_held(*reader_of(consumed))", "False",
    ),
    "an old reader moves the cursor": (
        shares.test_seek_ends_the_hold_of_an_exclusive_subscription,
        Contents, "end_hold", "elif accept and found.epoch == consumed.epoch:", "elif accept:",
    ),
    "an aborted share acknowledges": (
        shares.test_new_reader_gets_the_messages_of_an_aborted_share,
        Contents, "end_hold", "elif accept and", "elif",
    ),
    "a held job stays with its worker": (
        shares.test_held_job_outlives_its_lease_and_its_worker,
        Contents, "hold", "subscription.queue.hold(", "id if True else (",
    ),
    "the lease of a held job ends": (
        shares.test_held_job_outlives_its_lease_and_its_worker,
        Queue, "hold", "NEVER_ENDS", "now",
    ),
    "an aborted share settles its jobs": (
        shares.test_aborted_share_gives_jobs_back_after_their_backoff,
        Queue, "end_hold", "if accept:", "if True:",
    ),
    "a snapshot mixes up the holders of a token": (
        shares.test_snapshot_keeps_held_jobs_with_the_token_of_their_worker,
        Queue, "restore", "grants.setdefault((each.token, each.time, each.worker), [])",
        "grants.setdefault((each.token, 0, 'ann'), [])",
    ),
    "a producer takes the name of a held share": (
        shares.test_producer_may_not_take_the_name_of_a_held_share,
        Producing, "open", "registry.is_reserved(command.topic, command.producer)", "False",
    ),
    "a new process drops held shares": (
        shares.test_new_process_leaves_held_shares_and_starts_above_them,
        Staging, "open", "if each not in known.held", "",
    ),
    "a new process uses the numbers of held shares": (
        shares.test_new_process_leaves_held_shares_and_starts_above_them,
        Staging, "open", "max(known.held, default=-1) + 1", "0",
    ),
    "a closed source drops held shares": (
        shares.test_closed_or_idle_source_keeps_its_held_shares,
        Staging, "close", "if not known.unsettled:", "if True:",
    ),
    "an old held share is dropped": (
        shares.test_closed_or_idle_source_keeps_its_held_shares,
        Staging, "abandoned", "if not held and", "if",
    ),
    "a finished number drops its held share": (
        shares.test_finished_numbers_do_not_drop_held_shares,
        Transacting, "_finish", "and each not in source.held", "",
    ),
    "a resolve of an older process ends a share": (
        shares.test_resolve_of_another_epoch_leaves_a_held_share,
        Holding, "resolve", "share is None or share.epoch != command.epoch", "share is None",
    ),
    "parts that are not named are held": (
        shares.test_parts_that_a_share_does_not_name_are_dropped_when_it_is_prepared,
        Staging, "hold", "if each not in share.parts", "if False",
    ),
    "held messages are not counted": (
        lambda: shares.test_share_within_the_limits_of_staged_messages_only("staged_parts_max"),
        Holding, "begin", "staging.parts + len(names) > limits.staged_parts_max", "False",
    ),
    "a decision names no participants": (
        shares.test_decision_commits_the_own_share_and_names_the_participants,
        Transacting, "_commit", "staging.decide(", "id if True else (",
    ),
    "a confirmed participant ends the decision": (
        shares.test_decision_is_deleted_once_all_participants_have_confirmed,
        Staging, "confirm", "if not participants:", "if True:",
    ),
    "an expired transaction commits": (
        shares.test_expired_transaction_can_no_longer_commit,
        Holding, "expire", "source.opening.results[epoch, number] = NotDecided(command.source)",
        "pass",
    ),
    "a decided transaction expires": (
        shares.test_decided_or_held_number_does_not_expire,
        holding, "is_undecided", "return not opening.has_ended(number)", "return True",
    ),
    "an undecided transaction counts as aborted": (
        shares.test_undecided_transaction_of_an_older_process_is_aborted,
        shares, "outcome_of", "return None if is_undecided(source, epoch, number) else False",
        "return False",
    ),
    "a decision is forgotten with its result": (
        shares.test_decision_outlives_its_process_and_its_result,
        shares, "outcome_of", "if (epoch, number) in source.decisions:", "if False:",
    ),
    "a snapshot lacks held shares": (
        shares.test_snapshot_restores_held_shares_and_decisions,
        state, "_read", "source.held[row.number] = share", "pass",
    ),
    "a snapshot lacks decisions": (
        shares.test_decision_outlives_its_process_and_its_result,
        state, "_read", "source.decisions[row.epoch, row.number] = participants", "pass",
    ),
    "a snapshot forgets the unsettled sources": (
        shares.test_snapshot_restores_held_shares_and_decisions,
        Staging, "follow_all", "self.follow(key)", "pass",
    ),
    "a moved share is not held": (
        node.test_held_share_and_decision_move_with_their_tag,
        Staging, "take_over", "self.follow(source)", "pass",
    ),
    "a refused attach is never tried again": (
        node.test_reader_attaches_once_the_transaction_is_decided,
        Gateway, "_answer", "errors.NotHere | errors.Overloaded", "errors.NotHere",
    ),
    "workers do not learn of a resolved share": (
        node.test_worker_gets_jobs_that_a_share_puts_and_gives_back,
        service, "changes_of_share", "yield SharedChanged(name)", "pass",
    ),
    "readers do not learn of a resolved share": (
        node.test_reader_gets_the_messages_of_a_share_once_it_is_resolved,
        service, "changes_of_share", "yield Changed(each.topic)", "pass",
    ),
    "a carried output has no name": (
        node.test_held_share_is_carried_forward_in_the_log,
        service, "carried", "output_part(topic)", '""',
    ),
    "held shares of other tags keep readers away": (
        shares.test_other_subscriptions_stay_free,
        Registry, "is_held", "share.holds(topic, subscription, epoch)", "True",
    ),
    "the session decides before all are prepared": (
        session.test_all_participants_are_prepared_before_the_coordinator_decides,
        RingTransactions, "_prepared", "if not ending.waiting:", "if True:",
    ),
    "the session decides after a refusal": (
        lambda: session.test_refused_share_aborts_the_transaction_everywhere(
            session.REFUSED, session.REFUSED
        ),
        RingTransactions, "_prepared", "if not isinstance(outcome, TransactionPrepared):",
        "if False:",
    ),
    "the session aborts what may be committed": (
        session.test_unknown_decision_is_left_to_the_leaders,
        RingTransactions, "_decided", "if isinstance(outcome, NoAnswer):", "if False:",
    ),
    "the session waits without a limit for a prepare": (
        session.test_unanswered_prepare_aborts_the_transaction,
        RingTransactions, "end", "PREPARE_WITHIN,\n", "",
    ),
    "the session reuses the numbers of held shares": (
        session.test_numbers_start_where_the_node_says,
        Transactions, "_opened", "made.next = opened.next", "pass",
    ),
    "a stranger resolves a share": (
        resolver.test_outcome_counts_only_from_the_owner_and_for_this_share,
        Resolver, "_resolve", "if self._trusts(sender, each.coordinator.topic)", "",
    ),
    "a stranger confirms a decision": (
        resolver.test_decision_is_confirmed_by_the_owners_of_its_participants,
        Resolver, "_confirm", "if self._trusts(sender, each.participant.topic):", "if True:",
    ),
    "a stranger expires a transaction": (
        resolver.test_stranger_cannot_expire_a_transaction,
        Resolver, "_doubt", "if self._trusts(sender, tag):", "if True:",
    ),
    "a group that does not own the tag knows the outcome": (
        resolver.test_coordinator_tells_what_it_has_decided,
        Resolver, "_tell_outcomes", "if not self._owns(tag):", "if False:",
    ),
    "a group that does not own the tag has settled the share": (
        resolver.test_group_tells_which_shares_it_has_settled,
        Resolver, "_tell_settled", "if not self._owns(tag):", "if False:",
    ),
    "a held share counts as settled": (
        resolver.test_group_tells_which_shares_it_has_settled,
        Resolver, "_tell_settled", "if share is None or share.epoch != epoch:", "if True:",
    ),
    "a replica without a lease answers": (
        resolver.test_replica_without_a_lease_is_silent,
        Resolver, "receive", "if not self._has_lease:", "if False:",
    ),
    "any node names the owner of a tag": (
        resolver.test_only_the_own_process_names_the_owner_of_a_tag,
        Resolver, "receive", "if sender == self._process:", "if True:",
    ),
    "a question is late at once": (
        resolver.test_question_is_late_once_the_share_was_held_for_the_limit,
        Resolver, "_questions", "waited >= HOLD_US", "True",
    ),
}  # fmt: skip

MUTANTS = [
    Mutant(rule, replaced(*change), exact(test), 1) for rule, (test, *change) in RULES.items()
]


def storm(seed: int) -> None:
    outcome = run(RING_TRANSACTIONS, seed)
    assert outcome.ok, outcome.violation


# Random runs must detect these. A storm takes about a second.
STORMS: dict[str, tuple[Any, str, str, str]] = {
    "leaders do not resolve shares": (Resolver, "_resolve", "committed is not None", "False"),
    "leaders do not confirm decisions": (
        Resolver, "_confirm", "if self._trusts(sender, each.participant.topic):", "if False:",
    ),
    "an aborted transaction is published": (
        Holding, "end", "if commit:", "if True:",
    ),
    "a participant aborts what is committed": (
        module, "outcome_of",
        "return result.committed\n    if (epoch, number) in source.decisions:\n        return True",
        "return False\n    if (epoch, number) in source.decisions:\n        return False",
    ),
}  # fmt: skip
MUTANTS += [Mutant(rule, replaced(*change), storm, 40) for rule, change in STORMS.items()]


@pytest.mark.mutants
@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_ring_transaction_mutant_is_detected(mutant: Mutant) -> None:
    """TXN-2"""
    assert_detected(mutant)
