"""The eventual queue: no element is taken twice, and every element is eventually taken.

`queue-fifo` has slow members and slow links. It guarantees nothing if a message is lost.

`queue-paxos` runs in a storm that crashes, pauses and isolates a minority. Nodes also crash in the
middle of a decision: petitioners, leaders, and takers that have just got an element. Every node has
its own timeouts. Some nodes are not acceptors and have no disk. After a restart, such a node is a
new process with the same name.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from random import Random
from typing import NamedTuple

import msgspec

from oncecast.coordination.protocols.events import (
    Deposit,
    Deposited,
    Dequeue,
    Dequeued,
    Enqueue,
    Withdraw,
)
from oncecast.coordination.protocols.fifo_queue import FifoQueue
from oncecast.coordination.protocols.group import Group
from oncecast.coordination.protocols.neighborhood import Neighborhood
from oncecast.coordination.protocols.paxos_queue import SERIES, Item, PaxosQueue
from oncecast.coordination.protocols.synod import Synod
from oncecast.coordination.protocols.synod_messages import (
    Accept,
    Accepted,
    Chosen,
    Petition,
    Promised,
)
from oncecast.kernel.protocol import Append, NodeId, Protocol, Value
from oncecast.kernel.stack import Stack
from oncecast.lab.scenarios.conditions import Conditions
from oncecast.lab.scenarios.coordination_storm import Assassin, LosslessStorm, SteadyStorm
from oncecast.lab.scenarios.scenario import Figures, Scenario
from oncecast.overlay.events import MessageId
from oncecast.overlay.messages import Stored
from oncecast.overlay.plumtree import Plumtree
from oncecast.overlay.recovery import Recovery
from oncecast.simulator.checkers import Checker, Violation
from oncecast.simulator.simulated import Build, Simulation
from oncecast.simulator.step import Step

STORM_SECONDS = 4.0  # mean duration of a storm
PATIENCE = 60.0  # seconds after the storm within which every element must be taken
DELAY_MAX = 0.3  # maximum message delay after the storm
ELEMENTS = 16
TAKES = 16
QUEUES = ("one", "other", "third")
NEVER = -1  # a number that no incarnation has used


def fifo_stack(names: list[NodeId]) -> Build:
    return lambda me, rng: Stack([FifoQueue(me, rng, members=names)])


class Times(NamedTuple):
    """The timeouts of one node in seconds, and the number of records between snapshots."""

    heartbeat: float = 0.3
    suspect_after: float = 0.8
    resend: float = 0.2
    inquire_every: float = 2.0
    compare_every: float = 0.5
    snapshot_every: int = 40


def drawn_times(conditions: Conditions) -> Times:
    return Times(
        conditions.time(0.15, 0.6),
        conditions.time(0.3, 1.5),
        conditions.time(0.1, 0.5),
        conditions.time(0.3, 3.0),
        conditions.time(0.2, 1.0),
        conditions.rng.choice((3, 40, 10_000)),
    )


def paxos_stack(
    names: list[NodeId],
    acceptors: Collection[NodeId] = (),
    times: dict[NodeId, Times] | None = None,
) -> Build:
    """Return a function that builds a node. By default, all nodes are acceptors.

    Nodes that are not acceptors have no disk.
    """
    acceptors = acceptors or names

    def build(me: NodeId, rng: Random) -> Stack:
        timing = Times() if times is None else times[me]
        group = Group(
            me, rng, peers=names, heartbeat=timing.heartbeat, suspect_after=timing.suspect_after
        )
        elements = Recovery(
            me,
            rng,
            incarnation="" if me in acceptors else f"{rng.getrandbits(64):x}",
            compare_every=timing.compare_every,
            snapshot_every=timing.snapshot_every,
        )
        takers = Synod(
            me,
            rng,
            acceptors=acceptors,
            resend=timing.resend,
            inquire_every=timing.inquire_every,
            snapshot_every=timing.snapshot_every,
        )
        queue = PaxosQueue(
            me, rng, elements=elements, takers=takers, snapshot_every=timing.snapshot_every
        )
        broadcast = (Neighborhood(me, rng), Plumtree(me, rng))
        return Stack([group, *broadcast, elements, takers, queue])

    return build


def queue_of(sim: Simulation, node: NodeId) -> Protocol:
    stack = sim.nodes[node].stack
    assert stack is not None, f"{node} is down"
    return stack.protocols[-1]


class Take(NamedTuple):
    """An unanswered request for an element."""

    node: NodeId
    queue: str
    wait: bool
    withdrawn: bool = False  # whether the request was withdrawn, so that an answer is optional


class Once(Checker):
    """Checks that each element is taken once. All elements differ."""

    def __init__(self, queues: tuple[str, ...]) -> None:
        self.queues = queues
        # The node and incarnation that put the element. None if it must survive their crash.
        self.put: dict[bytes, tuple[NodeId, int] | None] = {}
        self.taken: dict[bytes, NodeId] = {}
        self.tickets = 0
        self.asked: dict[int, Take] = {}  # requests by ticket
        self.draining = False

    def heard(self, sim: Simulation, node: NodeId, event: Value) -> None:
        if not isinstance(event, Dequeued):
            return
        asked = self.asked.pop(event.ticket)
        if asked[:2] != (node, event.queue):
            raise Violation(
                f"{node} got {event}, but {asked.node} requested it from queue {asked.queue}"
            )
        if event.data is None:
            if asked.wait:
                raise Violation(f"{node} waits for an element, but got an empty answer")
        elif event.data not in self.put:
            raise Violation(f"{node} took {event.data!r}, but no node put it into a queue")
        elif event.data in self.taken:
            raise Violation(
                f"{node} took {event.data!r}, but {self.taken[event.data]} has already taken it"
            )
        else:
            self.taken[event.data] = node
        if self.draining:
            take(sim, self, node, asked.queue)

    def after(self, sim: Simulation, step: Step) -> None:
        if step.kind == "crash":
            for ticket in [key for key, asked in self.asked.items() if asked.node == step.node]:
                del self.asked[ticket]

    def finish(self, sim: Simulation) -> None:
        if left := self.left(sim):
            raise Violation(left)

    def left(self, sim: Simulation) -> str:
        """Describe an element that is not taken yet, or return an empty string.

        An element counts if its node has not restarted, or if another node has it on disk.
        """
        for ticket, asked in self.asked.items():
            if not asked.wait and not asked.withdrawn:
                return f"{asked.node} got no answer for ticket {ticket}, which must not wait"
        gone = self.gone(sim)
        for data, by in self.put.items():
            survived = by is None or sim.nodes[by[0]].starts == by[1]
            if data not in self.taken and data not in gone and survived:
                return f"{data!r}, put by {by}, was never taken"
        for node in sim.nodes:
            queue = queue_of(sim, node)
            assert isinstance(queue, FifoQueue | PaxosQueue)
            left = {name: queue.length(name) for name in self.queues if queue.length(name)}
            if left:
                return f"{node} still has elements: {left}"
            if isinstance(queue, PaxosQueue) and queue.elements.held:
                return f"{node} still stores {list(queue.elements.held)}"
        return ""

    def gone(self, sim: Simulation) -> dict[bytes, None]:
        """Return the elements given to nodes that crashed before they got them."""
        return {}


class OnceThroughCrashes(Once):
    def __init__(self, queues: tuple[str, ...]) -> None:
        super().__init__(queues)
        self.elements: dict[MessageId, bytes] = {}  # every element that any disk has ever held
        # Keyed by node, incarnation and ticket, because a restarted process counts from 1.
        self.deposits: dict[tuple[NodeId, int, int], bytes] = {}

    def heard(self, sim: Simulation, node: NodeId, event: Value) -> None:
        if not isinstance(event, Deposited):
            super().heard(sim, node, event)
        elif event.done:
            self.put[self.deposits[node, sim.nodes[node].starts, event.ticket]] = None

    def after(self, sim: Simulation, step: Step) -> None:
        super().after(sim, step)
        for effect in step.effects:
            if isinstance(effect, Append) and isinstance(effect.record, Stored):
                id, payload = effect.record.id, effect.record.payload
                self.elements[id] = msgspec.msgpack.decode(payload, type=Item).data

    def gone(self, sim: Simulation) -> dict[bytes, None]:
        alive = {
            queue.incarnation
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
        data, queue = b"element %d" % len(checker.put), sim.rng.choice(checker.queues)
        if isinstance(checker, OnceThroughCrashes) and sim.rng.random() < 0.5:
            checker.put[data] = node, NEVER
            ticket = 1 + sum((node, state.starts) == key[:2] for key in checker.deposits)
            checker.deposits[node, state.starts, ticket] = data
            sim.ask(node, Deposit(queue, ticket, data))
        else:
            checker.put[data] = node, state.starts
            sim.ask(node, Enqueue(queue, data))


def take(sim: Simulation, checker: Once, node: NodeId, queue: str) -> None:
    state = sim.nodes[node]
    if state.stack is None or state.paused:
        return
    wait = checker.draining or sim.rng.random() < 0.5
    checker.tickets = ticket = checker.tickets + 1
    checker.asked[ticket] = Take(node, queue, wait)
    sim.ask(node, Dequeue(queue, ticket, wait))
    if sim.rng.random() < 0.1 and not checker.draining:
        sim.call(sim.rng.uniform(0.0, 0.2), lambda: withdraw(sim, checker, ticket))


def withdraw(sim: Simulation, checker: Once, ticket: int) -> None:
    if ticket in checker.asked:
        asked = checker.asked[ticket]
        checker.asked[ticket] = asked._replace(withdrawn=True)
        sim.ask(asked.node, Withdraw(asked.queue, ticket))


def busy(sim: Simulation, conditions: Conditions, checker: Once) -> None:
    """Schedule puts and takes at random times during the storm."""
    sim.check(checker)
    seconds = conditions.storm_seconds
    for _ in range(conditions.count(ELEMENTS)):
        node = sim.rng.choice(conditions.names)
        sim.call(sim.rng.uniform(0.0, seconds), partial(put, sim, checker, node))
    for _ in range(conditions.count(TAKES)):
        node, queue = sim.rng.choice(conditions.names), sim.rng.choice(checker.queues)
        sim.call(sim.rng.uniform(0.0, seconds), partial(take, sim, checker, node, queue))


def drain(sim: Simulation, conditions: Conditions, checker: Once) -> None:
    """Let every node take elements until all are taken."""
    checker.draining = True
    for node in conditions.names:
        for queue in checker.queues:
            take(sim, checker, node, queue)
    conditions.run_until(lambda: not checker.left(sim), PATIENCE)


def drawn_queues(conditions: Conditions) -> tuple[str, ...]:
    return QUEUES[: conditions.rng.randint(1, len(QUEUES))]


def play_fifo(sim: Simulation, nodes: int) -> Figures:
    conditions = Conditions(sim, QUEUE_FIFO.nodes_min, nodes, STORM_SECONDS)
    checker = Once(drawn_queues(conditions))
    for name in conditions.names:
        sim.add(name, fifo_stack(conditions.names))
    busy(sim, conditions, checker)
    conditions.begin()
    storm = LosslessStorm(sim, conditions.names)
    storm.begin()
    sim.run(until=conditions.storm_seconds)
    storm.calm()
    drain(sim, conditions, checker)
    return {"taken": len(checker.taken), "strikes": storm.strikes}


def play_paxos(sim: Simulation, nodes: int) -> Figures:
    conditions = Conditions(sim, QUEUE_PAXOS.nodes_min, nodes, STORM_SECONDS)
    names, rng = conditions.names, conditions.rng
    acceptors = sorted(rng.sample(names, rng.choice((3, len(names)))))
    times = {name: drawn_times(conditions) for name in names}
    checker = OnceThroughCrashes(drawn_queues(conditions))
    for name in names:
        sim.add(name, paxos_stack(names, acceptors, times), durable=name in acceptors)
    busy(sim, conditions, checker)
    storm = SteadyStorm(conditions, away_max=(len(acceptors) - 1) // 2)
    storm.prominent = lambda: [name for name in acceptors if name in sim.alive()][:1]
    sim.check(Assassin(storm, Petition, Promised, Accept, Accepted, Chosen, Dequeued))
    conditions.begin()
    storm.begin()
    sim.run(until=conditions.storm_seconds)
    storm.calm()
    conditions.calm(DELAY_MAX)
    drain(sim, conditions, checker)
    gone = [data for data in checker.gone(sim) if data not in checker.taken]
    return {"taken": len(checker.taken), "gone": len(gone), "strikes": storm.strikes}


QUEUE_FIFO = Scenario("queue-fifo", "the eventual queue with mutual exclusion", 6, play_fifo)
QUEUE_PAXOS = Scenario(
    "queue-paxos",
    "the eventual queue with majority decisions, in a storm of faults",
    6,
    play_paxos,
    nodes_min=3,
)
