"""The eventual queue: no element is taken twice, and each is taken in the end.

`queue-fifo` has members that are late and links that are slow; it promises nothing if one is lost.
`queue-paxos` goes through a storm that crashes, stops and cuts off a minority, and an assassin that
crashes who is in the middle of a decision: who petitions, who leads, who has just been given it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import msgspec

from oncecast.kernel.protocol import Append, NodeId, Protocol, Value
from oncecast.kernel.stack import Stack
from oncecast.overlay.events import MessageId
from oncecast.overlay.plumtree import Plumtree
from oncecast.overlay.recovery import Recovery, Stored
from oncecast.runtime.checkers import Checker, Violation
from oncecast.runtime.simulated import Build, Simulation
from oncecast.runtime.trace import Step
from oncecast.scenarios.scenario import Figures, Scenario
from oncecast.scenarios.toolkit_storm import Assassin, LosslessStorm, SteadyStorm
from oncecast.toolkit.events import Deposit, Deposited, Dequeue, Dequeued, Enqueue, Withdraw
from oncecast.toolkit.fifo_queue import FifoQueue
from oncecast.toolkit.group import Group
from oncecast.toolkit.neighborhood import Neighborhood
from oncecast.toolkit.paxos_queue import SERIES, Item, PaxosQueue
from oncecast.toolkit.synod import Synod
from oncecast.toolkit.synod_messages import Accept, Accepted, Chosen, Petition, Promised

STORM_SECONDS = 4.0
CALM_SECONDS = 5.0
ELEMENTS = 16
TAKES = 16
QUEUES = ("one", "other")
NEVER = -1  # no life of a node


def fifo_stack(names: list[NodeId]) -> Build:
    return lambda me, rng: Stack([FifoQueue(me, rng, members=names)])


def paxos_stack(names: list[NodeId]) -> Build:
    def build(me: NodeId, rng: Random) -> Stack:
        elements = Recovery(me, rng, compare_every=0.5, snapshot_every=40)
        takers = Synod(me, rng, acceptors=names, resend=0.2, snapshot_every=40)
        return Stack(
            [
                Group(me, rng, peers=names, heartbeat=0.3, suspect_after=0.8),
                Neighborhood(me, rng),
                Plumtree(me, rng),
                elements,
                takers,
                PaxosQueue(me, rng, elements=elements, takers=takers),
            ]
        )

    return build


def queue_of(sim: Simulation, node: NodeId) -> Protocol:
    stack = sim.nodes[node].stack
    assert stack is not None, f"{node} is down"
    return stack.protocols[-1]


class Once(Checker):
    """What was put in comes out once. Every element is different."""

    def __init__(self) -> None:
        # By whom, and in which of its lives; None: whatever becomes of that.
        self.put: dict[bytes, tuple[NodeId, int] | None] = {}
        self.taken: dict[bytes, NodeId] = {}
        self.tickets = 0
        self.asked: dict[int, tuple[NodeId, str, bool]] = {}  # tickets without an answer
        self.draining = False

    def heard(self, sim: Simulation, node: NodeId, event: Value) -> None:
        if not isinstance(event, Dequeued):
            return
        asker, queue, wait = self.asked.pop(event.ticket)
        if (asker, queue) != (node, event.queue):
            raise Violation(f"{node} heard {event}, which {asker} asked of {queue}")
        if event.data is None:
            if wait:
                raise Violation(f"{node} waits for an element and was told that there is none")
        elif event.data not in self.put:
            raise Violation(f"{node} took {event.data!r}, which nobody put in")
        elif event.data in self.taken:
            raise Violation(f"{node} took {event.data!r} after {self.taken[event.data]}")
        else:
            self.taken[event.data] = node
        if self.draining:
            take(sim, self, node, queue)

    def after(self, sim: Simulation, step: Step) -> None:
        if step.kind == "crash":
            for ticket in [key for key, asked in self.asked.items() if asked[0] == step.node]:
                del self.asked[ticket]

    def finish(self, sim: Simulation) -> None:
        """All is taken that a node put in which lives on, or that another has on disk."""
        for ticket, (node, _, wait) in self.asked.items():
            if not wait:
                raise Violation(f"{node} will not wait, and has no answer for ticket {ticket}")
        gone = self.gone(sim)
        for data, by in self.put.items():
            survived = by is None or sim.nodes[by[0]].life == by[1]
            if data not in self.taken and data not in gone and survived:
                raise Violation(f"{data!r} of {by} was never taken")
        for node in sim.nodes:
            queue = queue_of(sim, node)
            assert isinstance(queue, FifoQueue | PaxosQueue)
            left = {name: queue.length(name) for name in QUEUES if queue.length(name)}
            if left:
                raise Violation(f"{node} still counts {left}")
            if isinstance(queue, PaxosQueue) and queue.elements.held:
                raise Violation(f"{node} still keeps {list(queue.elements.held)}")

    def gone(self, sim: Simulation) -> dict[bytes, None]:
        """What was given to somebody who crashed before hearing of it."""
        return {}


class OnceThroughCrashes(Once):
    def __init__(self) -> None:
        super().__init__()
        self.elements: dict[MessageId, bytes] = {}  # all that were ever on a disk
        self.deposits: dict[int, bytes] = {}  # by ticket; some may have got lost

    def heard(self, sim: Simulation, node: NodeId, event: Value) -> None:
        if not isinstance(event, Deposited):
            super().heard(sim, node, event)
        elif event.done:
            self.put[self.deposits[event.ticket]] = None

    def after(self, sim: Simulation, step: Step) -> None:
        super().after(sim, step)
        for effect in step.effects:
            if isinstance(effect, Append) and isinstance(effect.record, Stored):
                id, payload = effect.record.id, effect.record.payload
                self.elements[id] = msgspec.msgpack.decode(payload, type=Item).data

    def gone(self, sim: Simulation) -> dict[bytes, None]:
        alive = {
            queue.myself
            for node in sim.nodes
            if isinstance(queue := queue_of(sim, node), PaxosQueue)
        }
        return {
            data: None
            for id, data in self.elements.items()
            for taker in self._takers(sim, id)
            if taker not in alive
        }

    def _takers(self, sim: Simulation, id: MessageId) -> list[str]:
        found: dict[str, None] = {}
        for node in sim.nodes:
            queue = queue_of(sim, node)
            assert isinstance(queue, PaxosQueue)
            taker = queue.takers.values.get((SERIES + id.origin, id.number))
            if taker is not None:
                found[taker] = None
        if len(found) > 1:
            raise Violation(f"{id} was given to {' and '.join(found)}")
        return list(found)


def put(sim: Simulation, checker: Once, node: NodeId) -> None:
    state = sim.nodes[node]
    if state.stack is not None and not state.paused:
        data, queue = b"element %d" % len(checker.put), sim.rng.choice(QUEUES)
        if isinstance(checker, OnceThroughCrashes) and sim.rng.random() < 0.5:
            checker.put[data] = node, NEVER
            checker.deposits[len(checker.put)] = data
            sim.ask(node, Deposit(queue, len(checker.put), data))
        else:
            checker.put[data] = node, state.life
            sim.ask(node, Enqueue(queue, data))


def take(sim: Simulation, checker: Once, node: NodeId, queue: str) -> None:
    state = sim.nodes[node]
    if state.stack is None or state.paused:
        return
    wait = checker.draining or sim.rng.random() < 0.5
    checker.tickets = ticket = checker.tickets + 1
    checker.asked[ticket] = node, queue, wait
    sim.ask(node, Dequeue(queue, ticket, wait))
    if sim.rng.random() < 0.1 and not checker.draining:
        sim.call(sim.rng.uniform(0.0, 0.2), lambda: withdraw(sim, checker, ticket))


def withdraw(sim: Simulation, checker: Once, ticket: int) -> None:
    if ticket in checker.asked:
        node, queue, _ = checker.asked[ticket]
        checker.asked[ticket] = node, queue, True  # it may or may not hear
        sim.ask(node, Withdraw(queue, ticket))


def begin(
    sim: Simulation, nodes: int, checker: Once, build: Callable[[list[NodeId]], Build]
) -> list[NodeId]:
    names = [NodeId(f"n{index}") for index in range(nodes)]
    sim.check(checker)
    for name in names:
        sim.add(name, build(names), durable=True)
    for _ in range(ELEMENTS):
        sim.call(
            sim.rng.uniform(0.0, STORM_SECONDS), partial(put, sim, checker, sim.rng.choice(names))
        )
    for _ in range(TAKES):
        node, queue = sim.rng.choice(names), sim.rng.choice(QUEUES)
        sim.call(sim.rng.uniform(0.0, STORM_SECONDS), partial(take, sim, checker, node, queue))
    return names


def drain(sim: Simulation, checker: Once, names: list[NodeId]) -> None:
    """From now on everybody takes whatever comes."""
    checker.draining = True
    for node in names:
        for queue in QUEUES:
            take(sim, checker, node, queue)
    sim.run(until=STORM_SECONDS + CALM_SECONDS)


def play_fifo(sim: Simulation, nodes: int) -> Figures:
    checker = Once()
    names = begin(sim, nodes, checker, fifo_stack)
    storm = LosslessStorm(sim, names)
    storm.begin()
    sim.run(until=STORM_SECONDS)
    storm.calm()
    drain(sim, checker, names)
    return {"taken": len(checker.taken), "strikes": storm.strikes}


def play_paxos(sim: Simulation, nodes: int) -> Figures:
    checker = OnceThroughCrashes()
    names = begin(sim, nodes, checker, paxos_stack)
    storm = SteadyStorm(sim, names, away_max=(nodes - 1) // 2, drift=0.25)
    sim.check(Assassin(storm, Petition, Promised, Accept, Accepted, Chosen, Dequeued))
    storm.begin()
    sim.run(until=STORM_SECONDS)
    storm.calm()
    drain(sim, checker, names)
    gone = [data for data in checker.gone(sim) if data not in checker.taken]
    return {"taken": len(checker.taken), "gone": len(gone), "strikes": storm.strikes}


QUEUE_FIFO = Scenario("queue-fifo", "the eventual queue by mutual exclusion", 5, play_fifo)
QUEUE_PAXOS = Scenario(
    "queue-paxos", "the eventual queue by majority, in a storm", 5, play_paxos, nodes_min=3
)
