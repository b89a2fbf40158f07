"""Run real client sessions against real nodes in the simulator."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.lab.scenarios import paxos_clients as clients
from oncecast.lab.scenarios.draw import Habits
from oncecast.node.assemble import assemble
from oncecast.replication.options import GroupOptions
from oncecast.simulator.checkers import Violation
from oncecast.simulator.simulated import Build, Simulation

NODE = NodeId("node")
TOPIC = clients.TOPIC
PAUSE = 0.025  # average number of seconds between two messages from a publisher
HABITS = Habits(read_ahead=8, outbox_bytes=0, nacks=0.05)

FAST = GroupOptions(
    heartbeat=0.2,
    suspicion=0.8,
    drift=0.25,
    resend=0.1,
    replace_after=30.0,
    compare_every=2.0,
    unclaimed_after=2.0,
)


def build_node(me: NodeId, rng: Random) -> Stack:
    return assemble(me, rng, snapshot_bytes=4096).stack


def build_replica(me: NodeId, rng: Random) -> Stack:
    contacts = () if me == NODE else (NODE,)
    return assemble(me, rng, snapshot_bytes=4096, options=FAST, contacts=contacts).stack


class App(clients.Client):
    """An application that uses a session and survives restarts of its process."""

    def __init__(self, world: World, me: str, *, durable: bool = False, topic: str = TOPIC) -> None:
        self.world, self.topic = world, topic
        super().__init__(world.sim, me, world.nodes, crashes=durable, habits=HABITS)
        world.apps[self.me] = self


class Publisher(clients.Publisher):
    """Puts `total` numbered messages. Another publisher with the same `name` may fence it."""

    def __init__(
        self,
        world: World,
        me: str,
        total: int,
        *,
        durable: bool = False,
        name: str = "",
        topic: str = TOPIC,
    ) -> None:
        self.world, self.topic = world, topic
        super().__init__(
            world.sim,
            me,
            world.nodes,
            crashes=durable,
            readers=[],
            pause=PAUSE,
            habits=msgspec.structs.replace(HABITS, puts=total),
            shared_name=name,
        )
        world.apps[self.me] = self


class Subscriber(clients.Subscriber):
    """Reads, sometimes nacks, and acknowledges. A reader with the same `name` may fence it."""

    def __init__(
        self,
        world: World,
        me: str,
        *,
        stores_offset: bool = False,
        name: str = "",
        topic: str = TOPIC,
    ) -> None:
        self.world, self.topic = world, topic
        super().__init__(
            world.sim,
            me,
            world.nodes,
            crashes=False,
            habits=HABITS,
            stores_offset=stores_offset,
            shared_name=name,
        )
        world.apps[self.me] = self


class World:
    """A simulated cluster and its clients. `replicas` is None for a single node."""

    away = (0.0, 1.0)  # seconds until a restart; old messages may still be in flight then

    def __init__(self, seed: int, *, replicas: int | None = None, **weather: Any) -> None:
        self.nodes = [NODE, *[NodeId(f"node{each}") for each in range(2, (replicas or 1) + 1)]]
        self.sim = Simulation(seed, listener=self._hear, **weather)
        self.apps: dict[NodeId, clients.Client] = {}
        self.outboxes = clients.Outboxes()
        self.sim.check(self.outboxes)
        self.build(build_replica if replicas else build_node)

    def build(self, node: Build) -> None:
        for each in self.nodes:
            self.sim.add(each, node, durable=True)

    def _hear(self, node: NodeId, event: Value) -> None:
        app = self.apps.get(node)
        if app is not None:
            # Deliver the event later: the step that emits it has not ended.
            app.soon(0.0, lambda: app.hear(event))

    # -- faults --

    def bounce(self, node: NodeId) -> None:
        if self.sim.nodes[node].stack is not None:
            low, high = self.away
            away = self.sim.rng.choice((low, self.sim.rng.uniform(low, high)))
            self.sim.bounce(node, away)

    def chaos(self, until: float, crashing: list[NodeId]) -> None:
        """Cause a random fault from time to time."""
        sim, rng = self.sim, self.sim.rng

        def trouble() -> None:
            if sim.now >= until:
                return
            kind, victim = rng.choice(("crash", "crash", "part", "pause")), rng.choice(crashing)
            if kind == "crash":
                self.bounce(victim)
            elif kind == "part":
                fronts = sim.partition([victim])
                sim.call(rng.uniform(0.1, 5.0), lambda: sim.repair(fronts))
            elif sim.nodes[victim].stack is not None and not sim.nodes[victim].paused:
                sim.pause(victim)
                sim.call(rng.uniform(0.1, 5.0), lambda: self._resume(victim))
            sim.call(rng.uniform(0.2, 2.0), trouble)

        sim.call(0.5, trouble)

    def _resume(self, victim: NodeId) -> None:
        if self.sim.nodes[victim].paused:
            self.sim.resume(victim)

    # -- the end --

    def run_until(self, reached: Callable[[], bool]) -> None:
        for _ in range(100):
            if reached():
                return
            self.sim.run(until=self.sim.now + 1.0)
        raise Violation("the condition does not hold after 100 seconds")

    def finish(self, topic: str = TOPIC) -> list[bytes]:
        """Check all guarantees for a topic, and return its messages."""
        apps = [app for app in self.apps.values() if app.topic == topic]
        publishers = [app for app in apps if isinstance(app, Publisher)]
        subscribers: list[clients.Subscriber] = [app for app in apps if isinstance(app, Subscriber)]
        fenced = {app.name for app in publishers if app.fenced}
        outbox = [
            value
            for value in self.outboxes.safe.get(topic, ())
            if value.decode().rpartition("/")[0] not in fenced
        ]
        return clients.check_topic([*publishers], subscribers, outbox)
