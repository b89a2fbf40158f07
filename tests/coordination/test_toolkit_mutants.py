"""Check that a storm or a test detects each missing rule of the coordination protocols."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from oncecast.coordination.protocols.clock import LamportClock
from oncecast.coordination.protocols.election import LeaderElection
from oncecast.coordination.protocols.fence import Fence
from oncecast.coordination.protocols.fifo_queue import FifoQueue
from oncecast.coordination.protocols.group import Group
from oncecast.coordination.protocols.lamport import LamportMutex
from oncecast.coordination.protocols.mutex import LeaseMutex
from oncecast.coordination.protocols.paxos_queue import PaxosQueue
from oncecast.coordination.protocols.synod import Synod
from oncecast.lab.scenarios.election import ELECTION
from oncecast.lab.scenarios.mutex import MUTEX, MUTEX_LAMPORT
from oncecast.lab.scenarios.queue import QUEUE_FIFO, QUEUE_PAXOS
from oncecast.lab.scenarios.scenario import Scenario, run
from oncecast.overlay.recovery import Recovery
from tests.coordination import test_mutex, test_paxos_queue, test_synod
from tests.mutants import Detector, Mutant, Plant, assert_detected, replaced

pytestmark = pytest.mark.mutants


def storm(scenario: Scenario) -> Detector:
    def detector(seed: int) -> None:
        outcome = run(scenario, seed)
        assert outcome.ok, outcome.violation

    detector.__name__ = scenario.name
    return detector


def checked(test: Callable[[], None]) -> Detector:
    def detector(seed: int) -> None:
        test()

    detector.__name__ = getattr(test, "func", test).__name__
    return detector


def by_storm(
    scenario: Scenario,
    rule: str,
    owner: Any,
    name: str,
    text: str,
    replacement: str = "pass",
    seeds: int = 100,
) -> Mutant:
    return Mutant(rule, replaced(owner, name, text, replacement), storm(scenario), seeds)


def by_test(
    test: Callable[[], None], rule: str, owner: Any, name: str, text: str, replacement: str = "pass"
) -> Mutant:
    return Mutant(rule, replaced(owner, name, text, replacement), checked(test), 1)


def constructed(owner: Any, change: Callable[[Any], None]) -> Plant:
    """Return a mutant that changes each object after its construction."""
    original = owner.__init__

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **options)
        change(self)

    return lambda patch: patch.setattr(owner, "__init__", init)


MUTANTS = [
    # -- group and leader --
    by_storm(
        ELECTION,
        "the lowest member of the view leads",
        LeaderElection,
        "observe",
        "lowest(event.view, self.candidates)",
        "self.leader if self.leader in event.view else min(event.view, default=NO_NODE)",
    ),
    by_storm(
        ELECTION,
        "a wrong suspicion ends",
        Group,
        "_on_alive",
        "each.suspected = False",
    ),
    by_storm(
        ELECTION,
        "members learn of each other from Alive messages",
        Group,
        "receive",
        "(sender, *message.known)",
        "(sender,)",
    ),
    by_storm(
        ELECTION,
        "a wrongly suspected node gets more time",
        Group,
        "timeout",
        "self.known[node].timeout += self.heartbeat",
    ),
    # -- LamportMutex --
    by_storm(
        MUTEX_LAMPORT,
        "the clock advances on receive",
        LamportClock,
        "witness",
        "self.time = max(self.time, stamp.time)",
    ),
    by_storm(
        MUTEX_LAMPORT,
        "every member must have sent a later message",
        LamportMutex,
        "_enter_if_first",
        "all(",
        "any(",
    ),
    by_storm(
        MUTEX_LAMPORT,
        "the oldest request is first",
        LamportMutex,
        "_enter_if_first",
        "mine == min(queue.requests.values())",
        "True",
    ),
    by_storm(
        MUTEX_LAMPORT,
        "each entry has a higher token",
        LamportMutex,
        "_remove",
        "queue.entries += 1",
    ),
    # -- LeaseMutex --
    by_storm(
        MUTEX,
        "a process waits for the lease of the holder",
        LeaseMutex,
        "_ask_if_vacant",
        "self.now < lock.vacant_at",
        "False",
    ),
    by_storm(
        MUTEX,
        "a process asks for the next token",
        LeaseMutex,
        "_ask",
        "lock.token + 1",
        "max(lock.token, 1)",
    ),
    by_storm(
        MUTEX,
        "a late token is not held",
        LeaseMutex,
        "_settled",
        "in_time and lock.wanted",
        "lock.wanted",
    ),
    by_storm(
        MUTEX,
        "a lock is given up when its lease ends",
        LeaseMutex,
        "_lapse",
        "self._let_go(name, lock)",
    ),
    by_storm(
        MUTEX,
        "a stale token is rejected",
        Fence,
        "admit",
        "token < self.highest",
        "False",
    ),
    by_test(
        partial(test_mutex.test_waiting_process_allows_for_clock_drift_in_the_holder_lease, 10.0),
        "the leases of other processes are extended by the drift",
        LeaseMutex,
        "_lease_of",
        "* (1 + self.drift)",
        "",
    ),
    by_storm(
        MUTEX,
        "processes may have different leases",
        LeaseMutex,
        "_lease_of",
        "stated_lease(holder, self.longest)",
        "self.longest",
    ),
    by_storm(
        MUTEX,
        "a token is not freed before work under the lock has stopped",
        LeaseMutex,
        "_settled",
        "elif self.now >= lock.stopped_at:",
        "else:",
        seeds=300,
    ),
    by_test(
        partial(
            test_mutex.test_process_with_a_short_lease_waits_for_a_holder_with_a_long_lease,
            True,
        ),
        "a process waits for the lease of the holder, not its own",
        LeaseMutex,
        "_lease_of",
        "stated_lease(holder, self.longest)",
        "self.longest",
    ),
    Mutant(
        "a process waits for the holder's grace period",
        constructed(LeaseMutex, lambda mutex: vars(mutex).update(identity=f"holder {mutex.lease}")),
        checked(test_mutex.test_lock_is_vacant_after_the_holder_lease_and_grace_period),
        1,
    ),
    by_test(
        test_mutex.test_free_lock_is_requested_at_once_and_held_when_its_token_is_settled,
        "a lease starts with the request",
        LeaseMutex,
        "_hold",
        "lock.asked_at + self.lease",
        "self.now + self.lease",
    ),
    # -- FifoQueue --
    by_storm(
        QUEUE_FIFO,
        "all members remove a taken element",
        FifoQueue,
        "_take",
        "self._tell_others(Pop(queue, element, self.clock.tick()))",
    ),
    by_storm(
        QUEUE_FIFO,
        "the pop is sent before the acknowledgement",
        FifoQueue,
        "_enter_if_all_acked",
        "self._take()\n        self._end_turn()",
        "self._end_turn()\n        self._take()",
    ),
    by_storm(
        QUEUE_FIFO,
        "a later request waits for its turn",
        FifoQueue,
        "receive",
        "NOT_ASKING != self.asking < stamp",
        "False",
    ),
    by_storm(
        QUEUE_FIFO,
        "every other member must acknowledge",
        FifoQueue,
        "_enter_if_all_acked",
        "len(self.acks) == len(self.others)",
        "len(self.acks) == len(self.others) - 1",
    ),
    by_storm(
        QUEUE_FIFO,
        "a pop may arrive before its element",
        FifoQueue,
        "receive",
        "self.popped[element] = None",
    ),
    # -- Synod and PaxosQueue --
    Mutant(
        "a choice needs a majority",
        constructed(Synod, lambda synod: vars(synod).update(majority=synod.majority - 1)),
        storm(QUEUE_PAXOS),
        100,
    ),
    by_storm(
        QUEUE_PAXOS,
        "a value that may be settled is not replaced",
        Synod,
        "_propose",
        "bound.value if bound else value",
        "value",
        seeds=300,
    ),
    by_test(
        test_synod.test_promise_contains_votes_and_settled_numbers,
        "a promise contains the settled numbers",
        Synod,
        "_obey",
        "votes, self._columns()",
        "votes, ()",
    ),
    by_storm(
        QUEUE_PAXOS,
        "a petition is repeated",
        Synod,
        "timeout",
        "self._petition((series, number), self.acceptors)",
    ),
    by_test(
        test_synod.test_vote_is_on_disk_before_it_is_sent,
        "a vote is on disk before it is sent",
        Synod,
        "_vote",
        "self._save(vote)",
    ),
    Mutant(
        "a restarted process has a new incarnation",
        constructed(PaxosQueue, lambda queue: vars(queue).update(incarnation=str(queue.me))),
        storm(QUEUE_PAXOS),
        100,
    ),
    by_storm(
        QUEUE_PAXOS,
        "an element for a withdrawn request returns to the queue",
        PaxosQueue,
        "_deliver",
        "self._publish(queue, data)",
    ),
    by_test(
        test_paxos_queue.test_taken_elements_are_dropped_unless_this_node_asked_for_them,
        "an element with a petition is not dropped",
        PaxosQueue,
        "_drop_settled",
        "id not in copy.asked",
        "True",
    ),
    by_storm(
        QUEUE_PAXOS,
        "a repeated deposit is added once",
        PaxosQueue,
        "receive",
        "deposit not in self.entrusted",
        "True",
    ),
    by_storm(
        QUEUE_PAXOS,
        "a repeated deposit is added once after a restart",
        PaxosQueue,
        "receive",
        "self.append(deposit)",
        seeds=400,
    ),
    by_storm(
        QUEUE_PAXOS,
        "a deposit is confirmed when it is on disk",
        PaxosQueue,
        "receive",
        "self._publish(queue, data, sender, depositor, ticket)",
        "self.send(sender, Kept(ticket, depositor), after=0); self._publish(queue, data)",
    ),
    by_test(
        test_paxos_queue.test_answer_to_an_earlier_incarnation_does_not_confirm_a_deposit,
        "a deposit is confirmed only to the incarnation that made it",
        PaxosQueue,
        "receive",
        'depositor in ("", self.incarnation)',
        "True",
    ),
    Mutant(
        "a process without a disk numbers its elements differently after a restart",
        constructed(Recovery, lambda recovery: vars(recovery).update(origin=recovery.me)),
        checked(test_paxos_queue.test_elements_from_a_restarted_diskless_process_can_be_taken),
        1,
    ),
    by_storm(
        QUEUE_PAXOS,
        "a settled element is discarded",
        PaxosQueue,
        "_settled",
        "self.ask(Discard(id), after=0)",
    ),
    by_test(
        test_synod.test_acceptor_refuses_lower_ballots,
        "lower ballots are refused",
        Synod,
        "_obey",
        "message.ballot < self.promised",
        "False",
    ),
    by_test(
        test_synod.test_leader_promises_itself_on_disk_before_it_asks_for_promises,
        "a ballot is on disk before it is used",
        Synod,
        "_start_leadership",
        "self._promise(self.highest)",
    ),
    by_test(
        test_synod.test_choice_needs_a_majority_and_is_announced_to_all_nodes,
        "the leader announces the choice to all",
        Synod,
        "_announce",
        "self.audience",
        "[self.me]",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_mutant_is_detected(mutant: Mutant) -> None:
    """DDS-4 DDS-5"""
    assert_detected(mutant)
