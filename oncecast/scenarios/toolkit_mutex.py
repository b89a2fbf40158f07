"""Locks: never two holders, tokens that only grow, and a turn for everybody in the end.

`mutex` is the one with leases, in a storm that crashes, stops, cuts off and skews a minority, those
in the middle of a decision and the holder included. `mutex-lamport` has members that are late, and
links that are slow; it promises nothing if one is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.runtime.checkers import Checker, Violation
from oncecast.runtime.simulated import Build, Simulation
from oncecast.runtime.trace import Step
from oncecast.scenarios.scenario import Figures, Scenario
from oncecast.scenarios.toolkit_storm import Assassin, LosslessStorm, SteadyStorm
from oncecast.toolkit.events import Acquire, Acquired, Lapsed, Release, Renewed
from oncecast.toolkit.fence import Fence, Stale
from oncecast.toolkit.group import Group
from oncecast.toolkit.lamport import LamportMutex
from oncecast.toolkit.mutex import LeaseMutex
from oncecast.toolkit.synod import Synod
from oncecast.toolkit.synod_messages import Accept, Accepted, Chosen, Petition, Promised

STORM_SECONDS = 4.0
CALM_SECONDS = 6.0
TURNS = 10
LOCK = "the lock"
LEASE, DRIFT = 0.8, 0.25

Held = Callable[[Simulation, NodeId], bool]


def lease_stack(names: list[NodeId]) -> Build:
    def build(me: NodeId, rng: Random) -> Stack:
        return Stack(
            [
                Group(me, rng, peers=names, heartbeat=0.3, suspect_after=0.8),
                Synod(me, rng, acceptors=names, resend=0.2, snapshot_every=40),
                LeaseMutex(me, rng, lease=LEASE, drift=DRIFT),
            ]
        )

    return build


def lamport_stack(names: list[NodeId]) -> Build:
    return lambda me, rng: Stack([LamportMutex(me, rng, members=names)])


def holds_lease(sim: Simulation, node: NodeId) -> bool:
    """Whether it may act as the holder now, by its own clock."""
    state = sim.nodes[node]
    if state.stack is None:
        return False
    mutex = state.stack.protocols[-1]
    assert isinstance(mutex, LeaseMutex)
    lock = mutex.locks.get(LOCK)
    return lock is not None and lock.held > 0 and state.clock.local(sim.now) < lock.until


def holds_turn(sim: Simulation, node: NodeId) -> bool:
    state = sim.nodes[node]
    assert state.stack is not None
    mutex = state.stack.protocols[-1]
    assert isinstance(mutex, LamportMutex)
    line = mutex.lines.get(LOCK)
    return line is not None and line.held


class Exclusive(Checker):
    """One holder at a time; and what it protects is never touched by one that is late."""

    def __init__(self, holds: Held) -> None:
        self.holds = holds
        self.token = 0  # the last that was given
        self.tokens: dict[NodeId, int] = {}  # what each node last heard, whether it holds or not
        self.waiting: dict[NodeId, None] = {}
        self.holders: dict[NodeId, int] = {}  # as they know, and since which entry
        self.fence = Fence()
        self.touched: list[int] = []
        self.entries = self.refused = 0

    def heard(self, sim: Simulation, node: NodeId, event: Value) -> None:
        match event:
            case Acquired(_, token) | Renewed(_, token):
                if token <= self.token:
                    raise Violation(f"{node} got token {token}, and {self.token} was given before")
                self.token = self.tokens[node] = token
                self._no_other(sim, node)
                if isinstance(event, Acquired):
                    self.entries += 1
                    self.waiting.pop(node, None)
                    self._use(sim, node)
            case Lapsed():
                self.holders.pop(node, None)
            case _:
                pass

    def after(self, sim: Simulation, step: Step) -> None:
        if step.kind == "crash":
            self.waiting.pop(step.node, None)
            self.holders.pop(step.node, None)

    def finish(self, sim: Simulation) -> None:
        if self.waiting:
            raise Violation(f"{', '.join(self.waiting)} waited and never got the lock")
        if self.touched != sorted(self.touched):
            raise Violation(f"a late holder was let in: {self.touched}")

    def _no_other(self, sim: Simulation, node: NodeId) -> None:
        for other in sim.nodes:
            if other != node and self.holds(sim, other):
                raise Violation(f"{node} and {other} hold the lock, with {self.tokens}")

    def _use(self, sim: Simulation, node: NodeId) -> None:
        """Work under the lock for a while; perhaps work on for too long."""
        # In the end there must be time for everybody.
        longest = 1.5 if sim.now < STORM_SECONDS else 0.4
        until = sim.rng.uniform(0.0, longest)
        for _ in range(3):
            sim.call(sim.rng.uniform(0.0, until), lambda: self._touch(node))
        entry = self.holders[node] = self.entries
        sim.call(until, lambda: self._let_go(sim, node, entry))

    def _let_go(self, sim: Simulation, node: NodeId, entry: int) -> None:
        if self.holders.get(node) == entry:
            del self.holders[node]
            sim.ask(node, Release(LOCK))

    def _touch(self, node: NodeId) -> None:
        token = self.tokens[node]
        try:
            self.fence.admit(token)
        except Stale:
            self.refused += 1
        else:
            self.touched.append(token)


def want(sim: Simulation, checker: Exclusive, node: NodeId) -> None:
    state = sim.nodes[node]
    if state.stack is not None and node not in checker.holders and not state.paused:
        checker.waiting[node] = None
        sim.ask(node, Acquire(LOCK))


def begin(sim: Simulation, nodes: int, build: Callable[[list[NodeId]], Build]) -> list[NodeId]:
    names = [NodeId(f"n{index}") for index in range(nodes)]
    for name in names:
        sim.add(name, build(names), durable=True)
    return names


def struggle(sim: Simulation, checker: Exclusive, names: list[NodeId]) -> None:
    """Turns at random times; in the end all of them at once."""
    sim.check(checker)
    for _ in range(TURNS):
        node = sim.rng.choice(names)
        sim.call(sim.rng.uniform(0.0, STORM_SECONDS), partial(want, sim, checker, node))


def conclude(sim: Simulation, checker: Exclusive, names: list[NodeId]) -> None:
    for node in names:
        sim.call(1.0, partial(want, sim, checker, node))
    sim.run(until=STORM_SECONDS + CALM_SECONDS)


def play_lease(sim: Simulation, nodes: int) -> Figures:
    names = begin(sim, nodes, lease_stack)
    checker = Exclusive(holds_lease)
    storm = SteadyStorm(sim, names, away_max=(nodes - 1) // 2, drift=DRIFT)
    sim.check(Assassin(storm, Petition, Promised, Accept, Accepted, Chosen, Acquired))
    struggle(sim, checker, names)
    storm.begin()
    sim.run(until=STORM_SECONDS)
    storm.calm()
    conclude(sim, checker, names)
    return {"entries": checker.entries, "refused": checker.refused, "strikes": storm.strikes}


def play_lamport(sim: Simulation, nodes: int) -> Figures:
    names = begin(sim, nodes, lamport_stack)
    checker = Exclusive(holds_turn)
    storm = LosslessStorm(sim, names)
    struggle(sim, checker, names)
    storm.begin()
    sim.run(until=STORM_SECONDS)
    storm.calm()
    conclude(sim, checker, names)
    return {"entries": checker.entries, "strikes": storm.strikes}


MUTEX = Scenario("mutex", "a lock with leases and tokens in a storm", 5, play_lease, nodes_min=3)
MUTEX_LAMPORT = Scenario("mutex-lamport", "Lamport's mutual exclusion", 5, play_lamport)
