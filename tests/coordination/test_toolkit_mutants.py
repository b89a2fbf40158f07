"""The toolkit without one of its rules is found out, by a storm or by a test of its effects."""

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
from tests.mutants import Mutant, Plant, Story, must_be_noticed, replaced

pytestmark = pytest.mark.mutants


def storm(scenario: Scenario) -> Story:
    def story(seed: int) -> None:
        outcome = run(scenario, seed)
        assert outcome.ok, outcome.violation

    story.__name__ = scenario.name
    return story


def told(test: Callable[[], None]) -> Story:
    def story(seed: int) -> None:
        test()

    story.__name__ = getattr(test, "func", test).__name__
    return story


def storming(
    scenario: Scenario,
    rule: str,
    owner: Any,
    name: str,
    text: str,
    replacement: str = "pass",
    seeds: int = 100,
) -> Mutant:
    return Mutant(rule, replaced(owner, name, text, replacement), storm(scenario), seeds)


def telling(
    test: Callable[[], None], rule: str, owner: Any, name: str, text: str, replacement: str = "pass"
) -> Mutant:
    return Mutant(rule, replaced(owner, name, text, replacement), told(test), 1)


def born(owner: Any, change: Callable[[Any], None]) -> Plant:
    """A mutant that differs from its birth on."""
    begin = owner.__init__

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **options)
        change(self)

    return lambda patch: patch.setattr(owner, "__init__", init)


MUTANTS = [
    # -- group and leader --
    storming(
        ELECTION,
        "the lowest leads, not who came first",
        LeaderElection,
        "observe",
        "lowest(event.view, self.candidates)",
        "self.leader if self.leader in event.view else min(event.view, default=NOBODY)",
    ),
    storming(
        ELECTION,
        "a wrong suspicion is healed",
        Group,
        "_hear",
        "each.suspected = False",
    ),
    storming(
        ELECTION,
        "members hear of each other",
        Group,
        "receive",
        "(sender, *message.known)",
        "(sender,)",
    ),
    storming(
        ELECTION,
        "who was suspected wrongly is given longer",
        Group,
        "timeout",
        "self.known[node].patience += self.heartbeat",
    ),
    # -- Lamport's mutex --
    storming(
        MUTEX_LAMPORT,
        "the clock advances on receive",
        LamportClock,
        "witness",
        "self.time = max(self.time, stamp.time)",
    ),
    storming(
        MUTEX_LAMPORT,
        "all must have said something later",
        LamportMutex,
        "_enter_if_first",
        "all(",
        "any(",
    ),
    storming(
        MUTEX_LAMPORT,
        "the oldest request is first",
        LamportMutex,
        "_enter_if_first",
        "mine == min(line.requests.values())",
        "True",
    ),
    storming(
        MUTEX_LAMPORT,
        "each entry has a higher token",
        LamportMutex,
        "_remove",
        "line.entries += 1",
    ),
    # -- the lock with leases --
    storming(
        MUTEX,
        "the lease of another is waited for",
        LeaseMutex,
        "_ask_if_vacant",
        "self.now < lock.vacant_at",
        "False",
    ),
    storming(
        MUTEX,
        "the next token is asked for",
        LeaseMutex,
        "_ask",
        "lock.token + 1",
        "max(lock.token, 1)",
    ),
    storming(
        MUTEX,
        "a token that comes late is not held",
        LeaseMutex,
        "_settled",
        "in_time and lock.wanted",
        "lock.wanted",
    ),
    storming(
        MUTEX,
        "a lease that ends is let go",
        LeaseMutex,
        "_lapse",
        "self._let_go(name, lock)",
    ),
    storming(
        MUTEX,
        "the late one's token is refused",
        Fence,
        "admit",
        "token < self.highest",
        "False",
    ),
    telling(
        partial(
            test_mutex.test_waiting_process_waits_for_the_holders_lease_by_the_slowest_clock, 10.0
        ),
        "leases of others are longer by the drift",
        LeaseMutex,
        "_patience",
        "* (1 + self.drift)",
        "",
    ),
    storming(
        MUTEX,
        "processes may have different leases",
        LeaseMutex,
        "_patience",
        "stated_lease(holder, self.longest)",
        "self.longest",
    ),
    storming(
        MUTEX,
        "what is being stopped under the lock is waited for",
        LeaseMutex,
        "_settled",
        "elif self.now >= lock.stopped_at:",
        "else:",
        seeds=300,
    ),
    telling(
        partial(
            test_mutex.test_process_with_a_short_lease_takes_no_lock_from_a_holder_with_a_long_one,
            True,
        ),
        "the holder's lease is waited for, not one's own",
        LeaseMutex,
        "_patience",
        "stated_lease(holder, self.longest)",
        "self.longest",
    ),
    Mutant(
        "the holder's grace is waited for",
        born(LeaseMutex, lambda mutex: vars(mutex).update(myself=f"somebody {mutex.lease}")),
        told(test_mutex.test_holder_is_given_its_grace_after_its_lease),
        1,
    ),
    telling(
        test_mutex.test_free_lock_is_asked_for_at_once_and_held_when_its_token_is_settled,
        "a lease counts from the asking",
        LeaseMutex,
        "_hold",
        "lock.asked_at + self.lease",
        "self.now + self.lease",
    ),
    # -- the first queue --
    storming(
        QUEUE_FIFO,
        "all others pop what one has taken",
        FifoQueue,
        "_take",
        "self._tell_others(Pop(queue, element, self.clock.tick()))",
    ),
    storming(
        QUEUE_FIFO,
        "the pop goes before the acknowledgement",
        FifoQueue,
        "_enter_if_all_agree",
        "self._take()\n        self._let_others_in()",
        "self._let_others_in()\n        self._take()",
    ),
    storming(
        QUEUE_FIFO,
        "who asked later waits",
        FifoQueue,
        "receive",
        "NOT_ASKING != self.asking < stamp",
        "False",
    ),
    storming(
        QUEUE_FIFO,
        "all others must agree",
        FifoQueue,
        "_enter_if_all_agree",
        "len(self.acks) == len(self.others)",
        "len(self.acks) == len(self.others) - 1",
    ),
    storming(
        QUEUE_FIFO,
        "a pop may come before its element",
        FifoQueue,
        "receive",
        "self.popped[element] = None",
    ),
    # -- the synod, and the second queue --
    Mutant(
        "a choice needs a majority",
        born(Synod, lambda synod: vars(synod).update(majority=synod.majority - 1)),
        storm(QUEUE_PAXOS),
        100,
    ),
    storming(
        QUEUE_PAXOS,
        "what may be settled is not replaced",
        Synod,
        "_propose",
        "bound.value if bound else value",
        "value",
        seeds=300,
    ),
    telling(
        test_synod.test_promise_tells_votes_and_what_is_settled,
        "a promise tells what is settled",
        Synod,
        "_obey",
        "votes, self._columns()",
        "votes, ()",
    ),
    storming(
        QUEUE_PAXOS,
        "a petition is repeated",
        Synod,
        "timeout",
        "self._petition((series, number), self.acceptors)",
    ),
    telling(
        test_synod.test_vote_is_on_disk_before_it_is_told,
        "a vote is on disk",
        Synod,
        "_vote",
        "self._save(vote)",
    ),
    Mutant(
        "a process that restarts is another one",
        born(PaxosQueue, lambda queue: vars(queue).update(myself=str(queue.me))),
        storm(QUEUE_PAXOS),
        100,
    ),
    storming(
        QUEUE_PAXOS,
        "what comes for one who has withdrawn goes back",
        PaxosQueue,
        "_hand_over",
        "self._publish(queue, data)",
    ),
    telling(
        test_paxos_queue.test_what_others_took_before_is_dropped_and_what_is_asked_for_is_kept,
        "what is petitioned for is not dropped",
        PaxosQueue,
        "_drop_what_is_settled",
        "id not in copy.asked",
        "True",
    ),
    storming(
        QUEUE_PAXOS,
        "a deposit that comes twice is put in once",
        PaxosQueue,
        "receive",
        "deposit not in self.entrusted",
        "True",
    ),
    storming(
        QUEUE_PAXOS,
        "a deposit that comes twice is put in once, whoever restarts",
        PaxosQueue,
        "receive",
        "self.append(deposit)",
        seeds=400,
    ),
    storming(
        QUEUE_PAXOS,
        "a deposit is confirmed when it is on disk",
        PaxosQueue,
        "receive",
        "self._publish(queue, data, sender, depositor, ticket)",
        "self.send(sender, Kept(ticket, depositor), after=0); self._publish(queue, data)",
    ),
    telling(
        test_paxos_queue.test_deposit_of_an_earlier_life_confirms_none_of_this_one,
        "a deposit is confirmed to the life that made it",
        PaxosQueue,
        "receive",
        'depositor in ("", self.myself)',
        "True",
    ),
    Mutant(
        "a process without a disk does not number its elements like its forerunner",
        born(Recovery, lambda recovery: vars(recovery).update(origin=recovery.me)),
        told(test_paxos_queue.test_elements_of_a_restarted_process_without_a_disk_are_taken),
        1,
    ),
    storming(
        QUEUE_PAXOS,
        "what is settled is kept no longer",
        PaxosQueue,
        "_settled",
        "self.ask(Discard(id), after=0)",
    ),
    telling(
        test_synod.test_acceptor_obeys_no_lower_ballot,
        "no lower ballot is obeyed",
        Synod,
        "_obey",
        "message.ballot < self.promised",
        "False",
    ),
    telling(
        test_synod.test_leader_promises_itself_on_disk_before_it_asks_for_promises,
        "a ballot is on disk before it is used",
        Synod,
        "_begin_reign",
        "self._promise(self.highest)",
    ),
    telling(
        test_synod.test_choice_needs_a_majority_and_is_told_to_all,
        "the leader relays the choice to all",
        Synod,
        "_proclaim",
        "self.audience",
        "[self.me]",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_toolkit_without_this_rule_is_found_out(mutant: Mutant) -> None:
    """DDS-4 DDS-5"""
    must_be_noticed(mutant)
