"""Locks: there are never two holders, tokens only increase, and every node eventually gets a turn.

`mutex` is the lock with leases. Its storm crashes, pauses, isolates and skews a minority, including
the holder and nodes in the middle of a decision. Every node has its own lease, grace, suspicion and
clock. During the final calm, a holder keeps the lock for as long as it wants.

`mutex-lamport` has slow members and slow links. It guarantees nothing if a message is lost.
"""

from __future__ import annotations

from functools import partial
from random import Random

from oncecast.coordination.protocols.events import (
    Acquire,
    Acquired,
    Lapsed,
    Release,
    Renewed,
    ViewChanged,
)
from oncecast.coordination.protocols.fence import Fence
from oncecast.coordination.protocols.group import Group
from oncecast.coordination.protocols.lamport import LamportMutex
from oncecast.coordination.protocols.mutex import LeaseMutex
from oncecast.coordination.protocols.synod import Synod
from oncecast.coordination.protocols.synod_messages import (
    Accept,
    Accepted,
    Chosen,
    Petition,
    Promised,
)
from oncecast.errors import Stale
from oncecast.kernel.protocol import Emit, NodeId, Protocol, Value
from oncecast.kernel.stack import Stack
from oncecast.lab.scenarios.conditions import Conditions
from oncecast.lab.scenarios.coordination_storm import Assassin, LosslessStorm, SteadyStorm
from oncecast.lab.scenarios.scenario import Figures, Scenario
from oncecast.simulator.checkers import Checker, Violation
from oncecast.simulator.simulated import Build, Simulation
from oncecast.simulator.step import Step

STORM_SECONDS = 3.0  # mean duration of a storm
PATIENCE = 120.0  # maximum seconds until every node has held the lock
TURNS = 14
LEASES = 0.3, 2.0  # shortest and longest lease in seconds
HEARTBEATS = 0.15, 0.6
STEADY = 2.5  # seconds; three times the longest heartbeat, by the slowest clock
LOCKS = ("one", "another")


def lease_stack(conditions: Conditions) -> Build:
    """Return a function that builds a node. A node keeps its options when it restarts."""
    leases = {name: conditions.time(*LEASES) for name in conditions.names}
    graces = {name: conditions.rng.choice((0.0, 0.0, 0.1, 0.5)) for name in conditions.names}
    beats = {name: conditions.time(*HEARTBEATS) for name in conditions.names}
    suspicions = {name: conditions.time(0.3, 1.5) for name in conditions.names}
    resends = {name: conditions.time(0.05, 0.5) for name in conditions.names}
    snapshots = conditions.rng.choice((3, 40, 10_000))

    def build(me: NodeId, rng: Random) -> Stack:
        return Stack(
            [
                Group(
                    me,
                    rng,
                    peers=conditions.names,
                    heartbeat=beats[me],
                    suspect_after=suspicions[me],
                ),
                Synod(
                    me,
                    rng,
                    acceptors=conditions.names,
                    resend=resends[me],
                    snapshot_every=snapshots,
                ),
                LeaseMutex(
                    me, rng, lease=leases[me], grace=graces[me], drift=conditions.drifts[me]
                ),
            ]
        )

    return build


def lamport_stack(conditions: Conditions) -> Build:
    return lambda me, rng: Stack([LamportMutex(me, rng, members=conditions.names)])


def mutex_of(sim: Simulation, node: NodeId) -> Protocol | None:
    stack = sim.nodes[node].stack
    return None if stack is None else stack.protocols[-1]


def may_act(sim: Simulation, node: NodeId, lock: str) -> bool:
    """Return whether a node that got the lock may still act, by its own clock."""
    mutex = mutex_of(sim, node)
    if isinstance(mutex, LeaseMutex):
        known = mutex.locks.get(lock)
        local = sim.nodes[node].clock.local(sim.now)
        return known is not None and local < known.until + mutex.grace
    return mutex is not None


class Exclusive(Checker):
    """Checks that one node at a time holds the lock, and that fencing stops late holders."""

    def __init__(self, lock: str, longest: float) -> None:
        self.lock = lock
        self.token = 0  # the highest token granted
        self.tokens: dict[NodeId, int] = {}  # each node's last token, kept after a release
        self.waiting: dict[NodeId, None] = {}
        # The nodes in the critical section, each with the number of its current entry.
        self.acting: dict[NodeId, int] = {}
        self.fence = Fence()
        self.touched: list[int] = []
        self.entries = self.refused = 0
        self.longest = longest  # maximum seconds of work while a node holds the lock
        self.calm = False

    def heard(self, sim: Simulation, node: NodeId, event: Value) -> None:
        match event:
            case Acquired(self.lock, token) | Renewed(self.lock, token):
                if token <= self.token:
                    raise Violation(
                        f"{node} got token {token}, but token {self.token} has already been granted"
                    )
                self.token = self.tokens[node] = token
                self._no_other(sim, node)
                if isinstance(event, Acquired):
                    self.entries += 1
                    self.waiting.pop(node, None)
                    self._use(sim, node)
            case Lapsed(self.lock, token):
                if self.calm:
                    raise Violation(f"{node} lost the lock with token {token} during the calm")
                self._stop(sim, node)
            case _:
                pass

    def after(self, sim: Simulation, step: Step) -> None:
        for effect in step.effects:
            event = effect.event if type(effect) is Emit else None
            given = isinstance(event, Acquired | Renewed) and event.lock == self.lock
            if given and not may_act(sim, step.node, self.lock):
                raise Violation(f"{step.node} got the lock, but its lease has already ended")
        if step.kind == "crash":
            self.waiting.pop(step.node, None)
            self.acting.pop(step.node, None)

    def finish(self, sim: Simulation) -> None:
        if self.waiting:
            raise Violation(
                f"{', '.join(self.waiting)} waited for lock {self.lock}, but never got it"
            )
        if self.touched != sorted(self.touched):
            raise Violation(f"the fence admitted a late holder; the tokens were {self.touched}")

    def _no_other(self, sim: Simulation, node: NodeId) -> None:
        for other in self.acting:
            if other != node and may_act(sim, other, self.lock):
                raise Violation(
                    f"{node} and {other} hold the lock at the same time, with tokens {self.tokens}"
                )

    def _use(self, sim: Simulation, node: NodeId) -> None:
        """Hold the lock and work for a while, possibly longer than the lease."""
        until = sim.rng.uniform(0.0, self.longest)
        for _ in range(3):
            sim.call(sim.rng.uniform(0.0, until), lambda: self._touch(node))
        entry = self.acting[node] = self.entries
        sim.call(until, lambda: self.let_go(sim, node, entry))

    def let_go(self, sim: Simulation, node: NodeId, entry: int) -> None:
        if self.acting.get(node) == entry:
            del self.acting[node]
            sim.ask(node, Release(self.lock))

    def _stop(self, sim: Simulation, node: NodeId) -> None:
        """Stop the work because the lease has expired. It may continue for the grace period."""
        mutex = mutex_of(sim, node)
        assert isinstance(mutex, LeaseMutex)
        entry = self.acting.get(node)

        def stopped() -> None:
            if entry is not None and self.acting.get(node) == entry:
                del self.acting[node]

        if mutex.grace:
            sim.call(2 * mutex.grace, stopped)  # `may_act` decides when the work is really over
        else:
            stopped()

    def _touch(self, node: NodeId) -> None:
        token = self.tokens[node]
        try:
            self.fence.admit(token)
        except Stale:
            self.refused += 1
        else:
            self.touched.append(token)


class Views(Checker):
    """Records when a node last changed its view of the group."""

    def __init__(self) -> None:
        self.changed_at = 0.0

    def after(self, sim: Simulation, step: Step) -> None:
        for effect in step.effects:
            if type(effect) is Emit and isinstance(effect.event, ViewChanged):
                self.changed_at = sim.now


def want(sim: Simulation, checker: Exclusive, node: NodeId) -> None:
    state = sim.nodes[node]
    if state.stack is not None and node not in checker.acting and not state.paused:
        checker.waiting[node] = None
        sim.ask(node, Acquire(checker.lock))


class Struggle:
    """Requests the lock at random times, then from all nodes at once, and then from one node."""

    def __init__(self, sim: Simulation, conditions: Conditions, build: Build) -> None:
        self.sim, self.conditions = sim, conditions
        for name in conditions.names:
            sim.add(name, build, durable=True)
        locks = LOCKS[: conditions.rng.randint(1, len(LOCKS))]
        self.checkers = [Exclusive(lock, conditions.time(0.5, 5.0)) for lock in locks]
        self.views = Views()
        sim.check(self.views, *self.checkers)
        for checker in self.checkers:
            for _ in range(conditions.count(TURNS // len(locks))):
                when = sim.rng.uniform(0.0, conditions.storm_seconds)
                node = sim.rng.choice(conditions.names)
                sim.call(when, partial(want, sim, checker, node))

    def holders(self) -> list[NodeId]:
        return [node for checker in self.checkers for node in checker.acting]

    def conclude(self) -> None:
        for checker in self.checkers:
            # Limits the work, so that every node gets its turn in time.
            checker.longest = 1.5 * LEASES[0]
            for node, entry in list(checker.acting.items()):
                checker.let_go(self.sim, node, entry)
        self.conditions.run_until(lambda: self._all_free() and self._all_there(), PATIENCE)
        for checker in self.checkers:
            checker.calm = True
        names = self.conditions.names
        # First all nodes at once, then one node alone.
        for nodes in (names, [self.sim.rng.choice(names)]):
            for checker in self.checkers:
                for node in nodes:
                    want(self.sim, checker, node)
            self.conditions.run_until(self._all_free, PATIENCE)

    def _all_free(self) -> bool:
        return not any(checker.waiting or checker.acting for checker in self.checkers)

    def _all_there(self) -> bool:
        """Return whether all nodes know each other and no view has changed for a while.

        Until a node's timeout has adapted to the heartbeats, it may wrongly suspect a slower node,
        so views still change.
        """
        if self.sim.now < self.views.changed_at + STEADY:
            return False
        groups = [stack.protocols[0] for node in self.sim.nodes.values() if (stack := node.stack)]
        return not any(
            isinstance(group, Group) and len(group.view) < len(self.conditions.names)
            for group in groups
        )

    def figures(self, storm_strikes: dict[str, int]) -> Figures:
        return {
            "entries": sum(checker.entries for checker in self.checkers),
            "refused": sum(checker.refused for checker in self.checkers),
            "strikes": storm_strikes,
        }


def play_lease(sim: Simulation, nodes: int) -> Figures:
    conditions = Conditions(sim, MUTEX.nodes_min, nodes, STORM_SECONDS)
    struggle = Struggle(sim, conditions, lease_stack(conditions))
    storm = SteadyStorm(conditions, away_max=(len(conditions.names) - 1) // 2)
    sim.check(Assassin(storm, Petition, Promised, Accept, Accepted, Chosen, Acquired))
    storm.prominent = struggle.holders
    conditions.begin()
    storm.begin()
    sim.run(until=conditions.storm_seconds)
    storm.calm()
    conditions.calm(LEASES[0] / 20)  # a renewal takes four delays and must end within half a lease
    struggle.conclude()
    return struggle.figures(storm.strikes)


def play_lamport(sim: Simulation, nodes: int) -> Figures:
    conditions = Conditions(sim, MUTEX_LAMPORT.nodes_min, nodes, STORM_SECONDS)
    conditions.loss = conditions.duplication = 0.0
    struggle = Struggle(sim, conditions, lamport_stack(conditions))
    conditions.begin()
    storm = LosslessStorm(sim, conditions.names)
    storm.begin()
    sim.run(until=conditions.storm_seconds)
    storm.calm()
    struggle.conclude()
    return struggle.figures(storm.strikes)


MUTEX = Scenario(
    "mutex",
    "a lock with leases and fencing tokens in a storm of faults",
    5,
    play_lease,
    nodes_min=3,
)
MUTEX_LAMPORT = Scenario("mutex-lamport", "Lamport's mutual exclusion", 5, play_lamport)
