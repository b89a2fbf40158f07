"""Run publishers, subscribers and a node that may crash at named points, and check the result.

    run_crash_points([point, other], seed, reply="late")

The points are hit in this order, each by the first process that reaches it. The run raises a
Violation if a message is lost, repeated or out of order at the end.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NoReturn
from unittest.mock import patch

from oncecast.client.session import local
from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.lab.scenarios.paxos_clients import Client
from oncecast.node.assemble import assemble
from oncecast.simulator import simnode
from oncecast.simulator.buckets import Action
from oncecast.simulator.checkers import Violation
from oncecast.simulator.simulated import Simulation
from oncecast.wire.message import Message
from tests.client.session import client_world
from tests.client.session.client_world import NODE, Publisher, Subscriber, World
from tests.crashpoints import Point, all_planted

PATIENCE = 90.0  # virtual seconds until all points must have been hit
CALM = 20.0  # seconds; longer than any client waits before it repeats a request
TROUBLE = 2.0  # seconds after a crash in which replies are lost, repeated or late
REPLIES = ("", "lost", "repeated", "late")
SEGMENT_BYTES = 2048  # small enough that a short run trims its log

Fate = Callable[[NodeId, NodeId, Value], Sequence[float] | None]


class Crashed(BaseException):
    """Ends the running process in the middle of a step. Processes cannot catch it."""

    def __init__(self, victim: NodeId, point: Point) -> None:
        self.victim, self.point = victim, point


class CrashingSimulation(Simulation):
    """A simulation in which nodes may crash within a step, and tests control each message."""

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(seed, **options)
        self.fate: Fate = lambda sender, to, message: None
        self.crashed: Callable[[Crashed], None]

    def at(self, time: float, action: Action, first: Any, second: Any) -> None:
        super().at(time, self._do, action, (first, second))

    def _do(self, action: Action, arguments: tuple[Any, Any]) -> None:
        try:
            action(*arguments)
        except Crashed as death:
            self.crashed(death)

    def carry(self, sender: NodeId, to: NodeId, message: Value) -> None:
        delays = None if sender == to else self.fate(sender, to, message)
        if delays is None:
            super().carry(sender, to, message)
            return
        starts = self.nodes[sender].starts, self.nodes[to].starts
        for delay in delays:
            self.call(delay, lambda: self._carry_late(sender, to, message, starts))

    def _carry_late(
        self, sender: NodeId, to: NodeId, message: Value, starts: tuple[int, int]
    ) -> None:
        """Deliver a message unless its connection has ended."""
        if starts == (self.nodes[sender].starts, self.nodes[to].starts):
            super().carry(sender, to, message)


def running() -> NodeId:
    """Return the running process: the nearest node or client program up the call stack."""
    frame = sys._getframe(1)
    while True:
        found = frame.f_locals.get("self")
        if isinstance(found, simnode.SimulatedNode | Client):
            return found.me
        assert frame.f_back is not None, "no process is running"
        frame = frame.f_back


class Rigged(Random):
    """Decides how much of the unsynced data survives: nothing, or the beginning."""

    def __init__(self, kept: str, rng: Random) -> None:
        super().__init__(rng.random())
        self._choice = {"stale": 0, "torn": 1}[kept]

    def choice(self, options: Any) -> Any:
        return options[self._choice]


class TransactionalSubscriber(Subscriber):
    """Stores its offset with its result (E3), in steps between which it may crash."""

    def __init__(self, world: World, me: str, **options: Any) -> None:
        self._busy = False
        super().__init__(world, me, stores_offset=True, **options)

    def begin(self) -> None:
        self._busy = False
        super().begin()

    def hear(self, event: Value) -> None:
        match event:
            case local.Positioned(_, _, offset):
                self._learn(offset)
            case local.Skipped(_, _, _, next) if next <= len(self.effects):
                # Another process has advanced our stored offset since we read it.
                self._learn(next)
                self._expected = next
                self.inbox.position(next)
                return
            case _:
                pass
        super().hear(event)

    def _learn(self, offset: int) -> None:
        """Count messages delivered to another process with this subscription as seen."""
        apps = [each for each in self.world.apps.values() if isinstance(each, Subscriber)]
        readers = [each.seen for each in apps if each.subscription == self.subscription]
        longest = max(readers, key=len)
        self.seen += longest[len(self.seen) : offset]

    def take(self) -> None:
        message = None if self._busy else self.inbox.take()
        if message is not None:
            self._busy = True
            self.check(message)
            self.handle(message)

    def handle(self, message: Message) -> None:
        self.soon(self.world.sim.rng.uniform(0.0, 0.02), lambda: self.commit(message))

    def commit(self, message: Message) -> None:
        """Store the result and the offset together, if the offset is unchanged."""
        if message.offset > len(self.effects):
            raise Violation(f"{self.me}: offset {message.offset} comes before {len(self.effects)}")
        if message.offset == len(self.effects):
            self.effects.append(message.value)
        self.soon(0.001, lambda: self.ack(message))

    def ack(self, message: Message) -> None:
        inbox = self.inbox
        self._busy = False
        if message.offset < inbox.delivered:  # unless the reader has moved since
            inbox.acknowledge(message.offset)
        self.want_more()
        self.take()


def build_node(me: NodeId, rng: Random) -> Stack:
    return assemble(me, rng, snapshot_bytes=1024).stack


class CrashWorld(World):
    """A simulation in which the processes crash at these points, in this order."""

    def __init__(self, seed: int, points: Sequence[Point] = (), reply: str = "") -> None:
        with (
            patch.object(client_world, "Simulation", CrashingSimulation),
            patch.object(client_world, "build_node", build_node),
        ):
            super().__init__(seed)
        assert isinstance(self.sim, CrashingSimulation)
        self.crashing = self.sim
        self.crashing.crashed = self._crash_victim
        self.crashing.fate = self._fate
        self.reply = reply
        self.due = list(points)
        self.hit: list[str] = []
        self.passes = self.sim.rng.randint(1, 4)  # visits of the next point before it counts as hit
        self._trouble_until = -1.0

    def _hear(self, node: NodeId, event: Value) -> None:
        if isinstance(event, local.Stored):
            self.apps[node].hear(event)  # the client learns at once that its message is stored
        else:
            super()._hear(node, event)

    # -- points --

    def reached(self, point: Point, arguments: Any) -> None:
        if not self.due or self.due[0] is not point:
            return
        victim = running()
        if self._kind(victim) != point.process:
            return
        self.passes -= 1
        if self.passes > 0:
            return
        self.due.pop(0)
        self.passes = self.sim.rng.randint(1, 3)
        self.hit.append(str(point))
        self._trouble_until = self.sim.now + TROUBLE
        match point.action:
            case "start a twin":
                self._start_twin(self.apps[victim])
            case "deliver late":
                self._crash_and_deliver_late(victim, arguments[1].message, point)
            case _:
                raise Crashed(victim, point)

    def _kind(self, process: NodeId) -> str:
        if process == NODE:
            return "node"
        return "publisher" if isinstance(self.apps[process], Publisher) else "subscriber"

    def _crash_victim(self, death: Crashed) -> None:
        disk = self.sim.nodes[death.victim].disk
        if death.point.disk:
            assert disk is not None
            rng, disk.rng = disk.rng, Rigged(death.point.disk, disk.rng)
            self.bounce(death.victim)
            disk.rng = rng
        else:
            self.bounce(death.victim)

    def bounce(self, node: NodeId) -> None:
        if self.sim.nodes[node].stack is None:  # the node crashes while it starts
            self.sim.crash(node)
            self.sim.call(0.5, lambda: self.sim.restart(node))
        else:
            super().bounce(node)

    def _crash_and_deliver_late(self, victim: NodeId, message: Value, point: Point) -> NoReturn:
        """Crash a process, and deliver its message after its restart."""
        for delay in (1.5, 3.0):
            self.sim.call(delay, lambda: Simulation.carry(self.sim, victim, NODE, message))
        raise Crashed(victim, point)

    def _start_twin(self, app: Client) -> None:
        name = f"twin {len(self.hit)} of {app.me.removeprefix('client/')}"

        def begin() -> None:
            if isinstance(app, TransactionalSubscriber):
                twin = TransactionalSubscriber(self, name, name=app.subscription)
                twin.effects, twin.seen = app.effects, list(app.seen)
            else:
                assert isinstance(app, Publisher)
                Publisher(self, name, app.puts, durable=True, name=app.producer or "")

        self.sim.call(0.0, begin)

    # -- replies --

    def _fate(self, sender: NodeId, to: NodeId, message: Value) -> Sequence[float] | None:
        if sender != NODE or not self.reply or self.sim.now > self._trouble_until:
            return None
        rng = self.sim.rng
        if rng.random() < 0.5:
            return None
        match self.reply:
            case "lost":
                return ()
            case "repeated":
                return (0.0, rng.uniform(0.0, 1.0))
            case _:
                return (rng.uniform(0.1, 2.0),)

    # -- the run --

    def run(self) -> None:
        """Put and read until all points are hit, and for a while after that."""
        with (
            patch.object(simnode, "SEGMENT_BYTES", SEGMENT_BYTES),
            all_planted(self.due, self.reached),
        ):
            self._run()
        self.finish()

    def _run(self) -> None:
        subscribers = [
            Subscriber(self, "auto"),
            TransactionalSubscriber(self, "books", name="books"),
        ]
        self.run_until(lambda: all(each.positioned for each in subscribers))
        Publisher(self, "durable", 4, durable=True, name="durable")
        while self.due:
            self.more(4)
            self.sim.run(until=self.sim.now + 0.5)
            if self.sim.now > PATIENCE:
                raise Violation(f"no process reached the point {self.due[0]}")
        self.more(8)
        self.run_until(self._all_put)
        self.sim.run(until=self.sim.now + CALM)

    def _working(self) -> list[Publisher]:
        return [app for app in self.apps.values() if isinstance(app, Publisher) and not app.fenced]

    def more(self, count: int) -> None:
        for publisher in self._working():
            if publisher.put >= publisher.puts:
                publisher.puts += count
                publisher.soon(0.0, publisher.go_on)

    def _all_put(self) -> bool:
        return all(each.put >= each.puts for each in self._working())


def run_crash_points(points: Sequence[Point], seed: int, reply: str = "") -> CrashWorld:
    world = CrashWorld(seed, points, reply)
    world.run()
    return world
