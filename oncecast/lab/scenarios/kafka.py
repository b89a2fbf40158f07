"""Kafka clients in a storm: scripted clients, front ends, and a group of nodes with faults.

Two front ends serve the same clients. So a consumer group may have two coordinators for some time,
and a transactional id two front ends. Nodes crash, links are cut, disks fail, and front ends
restart. Then the faults stop.

At the end, each value of an idempotent producer is stored once and in order. The values of a
transaction are all stored, next to each other, or none of them is (KAF-2).
A committed offset of a group is never lost, and no reader skips a message (KAF-3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

import msgspec

from oncecast.client.session.client import ClientSession
from oncecast.kafka.events import Connected, Disconnected, Hangup, Received, Reply
from oncecast.kafka.frontend import FrontEnd
from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.lab.scenarios.kafka_clients import Getter, Maker, Putter, Script, Transactor
from oncecast.lab.scenarios.scenario import Figures, Scenario
from oncecast.node.assemble import Parts, assemble
from oncecast.replication.options import GroupOptions
from oncecast.simulator.checkers import Checker, Violation
from oncecast.simulator.faults import Storm
from oncecast.simulator.simulated import Simulation

FORMS_WITHIN, SETTLES_WITHIN = 60.0, 240.0  # seconds
STEP = 0.5
LAST_FETCH = 15.0  # seconds; longer than a request may take
TOPICS = ("orders", "bills")


class KafkaDraw(msgspec.Struct, frozen=True):
    """The settings of a run."""

    seconds: float
    every: float  # mean seconds between faults
    lasting: float
    front_crashes: int
    putters: int
    puts: int
    transactors: int
    transactions: int
    latency: float  # maximum seconds for a message


def draw(seed: int, nodes: int) -> KafkaDraw:
    rng = Random(f"{seed}/{nodes}/kafka")
    return KafkaDraw(
        seconds=round(rng.uniform(3.0, 12.0), 3),
        every=round(rng.uniform(0.3, 2.0), 3),
        lasting=round(rng.uniform(0.3, 3.0), 3),
        front_crashes=rng.choice((0, 1, 2, 4)),
        putters=rng.choice((1, 2)),
        puts=rng.choice((20, 60)),
        transactors=rng.choice((0, 1, 2)),
        transactions=rng.choice((5, 12)),
        latency=rng.choice((0.002, 0.02, 0.1)),
    )


class World(Checker):
    """The front ends and their clients."""

    def __init__(self, sim: Simulation, nodes: int, drawn: KafkaDraw) -> None:
        self.sim, self.drawn, self.topics = sim, drawn, TOPICS
        self.nodes = [NodeId(f"n{number}") for number in range(nodes)]
        self.fronts = [NodeId("front-0"), NodeId("front-1")]
        self.parts: dict[NodeId, Parts] = {}
        self._numbers = 0
        self._clients: dict[tuple[NodeId, int], Script] = {}
        self.putters = [
            Putter(self, f"putter-{n}", TOPICS[0], drawn.puts) for n in range(drawn.putters)
        ]
        self.transactors = [
            Transactor(self, f"transactor-{n}", TOPICS[1], drawn.transactions)
            for n in range(drawn.transactors)
        ]
        self.getters = [Getter(self, f"getter-{topic}", topic) for topic in TOPICS]

    # -- nodes and front ends --

    def begin(self) -> None:
        for node in self.nodes:
            self.sim.add(node, self._node, durable=True)
        self._run_until("no group", FORMS_WITHIN, self._formed)
        for front in self.fronts:
            self.sim.add(front, self._front)
        maker = Maker(self, "maker")
        maker.begin()
        self._run_until("no topics", FORMS_WITHIN, lambda: maker.done)

    def _node(self, me: NodeId, rng: Random) -> Stack:
        contacts = tuple(node for node in self.nodes[:1] if node != me)
        options = GroupOptions(
            size=len(self.nodes), heartbeat=0.2, suspicion=0.8, drift=0.25, replace_after=600.0
        )
        self.parts[me] = assemble(
            me, rng, contacts=contacts, options=options, wall=lambda: self.sim.wall_us(me)
        )
        return self.parts[me].stack

    def _run_until(self, problem: str, seconds: float, reached: Callable[[], bool]) -> None:
        give_up = self.sim.now + seconds
        while not reached():
            if self.sim.now > give_up:
                raise Violation(problem)
            self.sim.run(until=self.sim.now + STEP)

    def _formed(self) -> bool:
        groups = [parts.governor.group for parts in self.parts.values()]
        return all(len(group.nodes()) == len(self.nodes) for group in groups)

    def _front(self, me: NodeId, rng: Random) -> Stack:
        first, *others = self.nodes
        session = ClientSession(
            me,
            rng,
            node=first,
            others=tuple(others),
            producer=f"{me}-{rng.getrandbits(64):x}",
            incarnation=f"{rng.getrandbits(64):x}",
        )
        return Stack([session, FrontEnd(me, rng, host=me, port=9092)])

    def crash_front(self, front: NodeId) -> None:
        if self.sim.nodes[front].stack is None:
            return
        self.sim.crash(front)
        for key in [key for key in self._clients if key[0] == front]:
            self._clients.pop(key).lost()
        self.sim.call(self.sim.rng.uniform(0.0, 1.0), partial(self._restart_front, front))

    def _restart_front(self, front: NodeId) -> None:
        if self.sim.nodes[front].stack is None:
            self.sim.restart(front)

    # -- connections --

    def connect(self, client: Script) -> int:
        self._numbers += 1
        if self.sim.nodes[client.front].stack is not None:
            self._clients[client.front, self._numbers] = client
            self.sim.ask(client.front, Connected(self._numbers, client.name))
        return self._numbers

    def send(self, client: Script, data: bytes) -> None:
        if (client.front, client.connection) in self._clients:
            self.sim.ask(client.front, Received(client.connection, data))

    def disconnect(self, client: Script) -> None:
        if self._clients.pop((client.front, client.connection), None) is not None:
            self.sim.ask(client.front, Disconnected(client.connection))

    def heard(self, sim: Simulation, node: NodeId, event: Value) -> None:
        match event:
            case Reply(connection, data):
                client = self._clients.get((node, connection))
                if client is not None and client.connection == connection:
                    client.replied(data)
            case Hangup(connection, why):
                raise Violation(f"{node} closed connection {connection}: {why}")
            case _:
                pass

    # -- the end --

    def run(self) -> Storm:
        sim, drawn = self.sim, self.drawn
        away = (len(self.nodes) - 1) // 2
        storm = Storm(sim, self.nodes, away_max=away, every=drawn.every, lasting=drawn.lasting)
        storm.begin()
        for script in self.scripts:
            script.begin()
        for _ in range(drawn.front_crashes):
            front = sim.rng.choice(self.fronts)
            sim.call(sim.rng.uniform(0.0, drawn.seconds), partial(self.crash_front, front))
        sim.run(until=sim.now + drawn.seconds)
        storm.calm()
        for front in self.fronts:
            self._restart_front(front)
        self._settle([*self.putters, *self.transactors])
        sim.run(until=sim.now + LAST_FETCH)  # so that each reader sees the last end of its topic
        self._settle(self.scripts)
        return storm

    def _settle(self, scripts: Sequence[Script]) -> None:
        """Run until these clients are done."""
        give_up = self.sim.now + SETTLES_WITHIN
        while left := [script.name for script in scripts if not script.done]:
            if self.sim.now > give_up:
                raise Violation(f"these clients are not done: {', '.join(left)}")
            self.sim.run(until=self.sim.now + STEP)

    @property
    def scripts(self) -> list[Script]:
        getters = self.getters if self.transactors else self.getters[:1]
        return [*self.putters, *self.transactors, *getters]

    def finish(self, sim: Simulation) -> None:
        orders = self._content(0)
        for putter in self.putters:
            found = [each for each in orders if each.startswith(f"{putter.name}/".encode())]
            if found != putter.values():
                raise Violation(f"{putter.name}: the topic has {len(found)} values: {found}")
        bills = self._content(1)
        for transactor in self.transactors:
            self._check_transactions(transactor, bills)

    def _content(self, number: int) -> list[bytes]:
        """Return all values of a topic, as its reader got them."""
        getter = self.getters[number]
        if sorted(getter.found) != list(range(getter.end)):
            raise Violation(f"{getter.name} has skipped messages")
        return [getter.found[offset] for offset in range(getter.end)]

    def _check_transactions(self, transactor: Transactor, bills: list[bytes]) -> None:
        for values in transactor.committed:
            if not is_once(values, bills):
                raise Violation(f"the committed transaction {values} is not stored once")
        for values in transactor.aborted:
            if any(each in bills for each in values):
                raise Violation(f"the aborted transaction {values} is stored")
        for values in transactor.unknown:
            if any(each in bills for each in values) and not is_once(values, bills):
                raise Violation(f"a part of the transaction {values} is stored")


def is_once(values: list[bytes], topic: list[bytes]) -> bool:
    """Return whether the values are in the topic once, in order and next to each other."""
    if not values or topic.count(values[0]) != 1:
        return not values
    at = topic.index(values[0])
    return topic[at : at + len(values)] == values and all(topic.count(each) == 1 for each in values)


def play(sim: Simulation, nodes: int) -> Figures:
    drawn = draw(sim.seed, nodes)
    world = World(sim, nodes, drawn)
    sim.check(world)
    world.begin()
    storm = world.run()
    return {
        "strikes": storm.strikes,
        "messages": sum(len(getter.found) for getter in world.getters),
        "committed": sum(len(each.committed) for each in world.transactors),
        "aborted": sum(len(each.aborted) for each in world.transactors),
        "unknown": sum(len(each.unknown) for each in world.transactors),
    }


KAFKA = Scenario(
    "kafka",
    "scripted Kafka clients and two front ends, in a storm of faults",
    3,
    play,
    nodes_min=1,
    draw=draw,
)
