"""Real client sessions at a real node in the simulator, with applications that keep the books.

An application outlives the crashes of its session, as somebody who restarts a program does.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from oncecast.kernel.protocol import Append, NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.node.assemble import assemble
from oncecast.pubsub import batch
from oncecast.pubsub import commands as do
from oncecast.pubsub.errors import Fenced
from oncecast.replication.options import GroupOptions
from oncecast.runtime.checkers import Checker, Violation
from oncecast.runtime.simulated import Build, Simulation
from oncecast.runtime.trace import Step
from oncecast.session import local
from oncecast.session.client import ClientSession
from oncecast.session.inbox import Inbox
from oncecast.session.outbox import Queued

NODE = NodeId("node")
TOPIC = "topic"
AWAY = 0.4  # longer than anything is under way: a connection's bytes do not outlive it either


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


class App:
    """Somebody who uses a session, over all its lives."""

    def __init__(
        self, world: World, me: str, *, durable: bool = False, name: str = "", topic: str = TOPIC
    ) -> None:
        self.world, self.me, self.durable = world, NodeId(f"client/{me}"), durable
        self.name, self.topic = name or me, topic
        self.life = 0
        world.apps[self.me] = self
        world.sim.add(self.me, self._build, durable=durable)

    def _build(self, me: NodeId, rng: Random) -> Stack:
        self.life += 1
        life = f"{me}#{self.life}"
        session = ClientSession(
            me,
            rng,
            node=self.world.nodes[0],
            others=tuple(self.world.nodes[1:]),
            producer=self.name,
            life=life,
            durable=self.durable,
            read_ahead=8,
            outbox_bytes=0,
        )
        self.world.sim.call(0.0, self.if_alive(self.begin))
        return Stack([session])

    def if_alive(self, action: Callable[[], None]) -> Callable[[], None]:
        """What this life wants to do later is void once it has crashed."""
        life, sim = self.life, self.world.sim

        def act() -> None:
            if life == self.life and sim.nodes[self.me].stack is not None:
                action()

        return act

    def soon(self, seconds: float, action: Callable[[], None]) -> None:
        self.world.sim.call(seconds, self.if_alive(action))

    def ask(self, request: Value) -> None:
        self.world.sim.ask(self.me, request)

    def begin(self) -> None: ...
    def hear(self, event: Value) -> None: ...


class Publisher(App):
    """Puts numbered messages, a few at a time, and never the same number twice."""

    def __init__(self, world: World, me: str, total: int, **options: Any) -> None:
        self.total, self.put = total, 0
        self.promised: list[int] = []
        self.fenced = False
        self._batches: dict[int, range] = {}
        self._tickets = 0
        super().__init__(world, me, **options)

    def begin(self) -> None:
        self._batches.clear()
        self._more()

    def _more(self) -> None:
        rng = self.world.sim.rng
        if self.put >= self.total:
            return
        count = min(rng.choice((1, 1, 2, 5)), self.total - self.put)
        numbers = range(self.put, self.put + count)
        self.put += count
        self._tickets += 1
        self._batches[self._tickets] = numbers
        values = [f"{self.me}/{number}".encode() for number in numbers]
        packed = batch.encode(values, timestamps=1)
        self.ask(local.Produce(self._tickets, self.topic, count, packed))
        self.soon(rng.uniform(0.0, 0.1), self._more)

    def hear(self, event: Value) -> None:
        match event:
            case local.Stored(ticket) if ticket:
                self.promised += self._batches.pop(ticket)
            case local.NotStored(_, Fenced()):
                self.fenced = True
            case local.NotStored():
                raise Violation(f"{self.me}: {event}")
            case _:
                pass


class Subscriber(App):
    """Takes, sometimes hands back, and acknowledges; checks E4 as it goes."""

    def __init__(self, world: World, me: str, *, books: bool = False, **options: Any) -> None:
        self.books = books  # keeps the offset with its results (E3)
        self.effects: list[bytes] = []
        self.seen: list[bytes] = []  # by offset
        self.inbox = Inbox(auto_ack=not books)
        self._expected = self._twice = -1
        self.positioned = False
        self.ended: Value | None = None
        super().__init__(world, me, **options)

    def begin(self) -> None:
        self.inbox = Inbox(auto_ack=not self.books)
        self._expected = self._twice = -1
        start = do.Subscribe(self.topic, self.name, do.FromEarliest(), 0)
        self.ask(local.Do(1, start))

    def hear(self, event: Value) -> None:
        match event:
            case local.Finished(1):
                start = len(self.effects) if self.books and self.effects else -1
                self.ask(local.Read(self.topic, self.name, start))
            case local.Positioned(_, _, offset):
                if self._expected < 0 and offset > len(self.seen):
                    raise Violation(f"{self.me} begins at {offset}, after {len(self.seen) - 1}")
                self.positioned = True
                self._expected = offset
                self.inbox.position(offset)
            case local.Arrived(_, _, messages):
                self.inbox.arrive(messages)  # or drop them, if we have gone back meanwhile
                self.soon(self.world.sim.rng.uniform(0.0, 0.02), self._take)
            case local.Ended(_, _, why):
                self.ended = why
            case local.Skipped():
                raise Violation(f"{self.me}: {event}")
            case _:
                pass

    def _take(self) -> None:
        rng, inbox = self.world.sim.rng, self.inbox
        message = inbox.take()
        if message is None:
            return
        self._check(message)
        if self.books and message.offset == len(self.effects):
            self.effects.append(message.value)
        if rng.random() < 0.05:
            handed = inbox.back(message.offset)
            self._expected, self._twice = message.offset, handed
            self.ask(local.Again(self.topic, self.name, message.offset, handed))
            return
        if self.books:
            inbox.acknowledge(message.offset)
        if len(inbox.queue) <= inbox.mark:
            inbox.mark //= 2
            self.ask(local.Want(self.topic, self.name, inbox.handed, inbox.ack))
        self.soon(rng.uniform(0.0, 0.02), self._take)

    def _check(self, message: batch.Message) -> None:
        offset = message.offset
        if offset != self._expected:
            raise Violation(f"{self.me} was handed {offset} where {self._expected} was due")
        self._expected += 1
        if offset < len(self.seen):
            if self.seen[offset] != message.value:
                raise Violation(f"{self.me}: {offset} was {self.seen[offset]!r} before")
            if not message.redelivered:
                raise Violation(f"{self.me}: {offset} comes again and is not marked")
        else:
            self.seen.append(message.value)
        if offset < self._twice and not message.redelivered:
            raise Violation(f"{self.me}: {offset} was handed back and is not marked")


class Outboxes(Checker):
    """What a durable client has on its disk will be in the topic, whoever crashes."""

    def __init__(self) -> None:
        self.safe: dict[bytes, None] = {}
        self._written: dict[NodeId, list[tuple[int, Queued]]] = {}

    def after(self, sim: Simulation, step: Step) -> None:
        if step.kind == "start":
            self._written[step.node] = []
        written = self._written.setdefault(step.node, [])
        for effect in step.effects:
            if isinstance(effect, Append) and isinstance(effect.record, Queued):
                written.append((effect.number, effect.record))
        if step.kind == "synced":
            while written and written[0][0] <= step.subject:
                self.safe.update(dict.fromkeys(batch.values(written.pop(0)[1].batch)))


class World:
    """`replicas` is None for a node that serves alone."""

    def __init__(self, seed: int, *, replicas: int | None = None, **weather: Any) -> None:
        self.nodes = [NODE, *[NodeId(f"node{each}") for each in range(2, (replicas or 1) + 1)]]
        self.sim = Simulation(seed, listener=self._hear, **weather)
        self.apps: dict[NodeId, App] = {}
        self.outboxes = Outboxes()
        self.sim.check(self.outboxes)
        self.build(build_replica if replicas else build_node)

    def build(self, node: Build) -> None:
        for each in self.nodes:
            self.sim.add(each, node, durable=True)

    def _hear(self, node: NodeId, event: Value) -> None:
        app = self.apps.get(node)
        if app is not None:
            # Not now: the step that emits it is still under way.
            self.sim.call(0.0, app.if_alive(lambda: app.hear(event)))

    # -- trouble --

    def bounce(self, node: NodeId) -> None:
        if self.sim.nodes[node].stack is not None:
            self.sim.bounce(node, AWAY + self.sim.rng.uniform(0.0, 0.6))

    def chaos(self, until: float, crashing: list[NodeId]) -> None:
        """Something happens every now and then."""
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
        raise Violation("what should have happened did not, in 100 seconds")

    def finish(self, topic: str = TOPIC) -> list[bytes]:
        """All promises at once; the topic as everybody has read it."""
        apps = [app for app in self.apps.values() if app.topic == topic]
        subscribers = [app for app in apps if isinstance(app, Subscriber)]
        readers = [app for app in subscribers if app.ended is None]
        log = max((app.seen for app in readers), key=len)
        for reader in readers:
            if reader.seen != log:
                raise Violation(f"{reader.me} read {len(reader.seen)} of {len(log)}, or others")
            if reader.books and reader.effects != log:
                raise Violation(f"{reader.me} has other effects than the topic has messages")
        if len(set(log)) != len(log):
            raise Violation("something is in the topic twice")
        places = {value: place for place, value in enumerate(log)}
        for app in apps:
            if isinstance(app, Publisher):
                self._check_publisher(app, places)
        for value in self.outboxes.safe:
            app = self._author(value)
            if app.topic == topic and value not in places and not app.fenced:
                raise Violation(f"{value!r} was in an outbox and is lost")
        return log

    def _check_publisher(self, app: Publisher, places: dict[bytes, int]) -> None:
        mine = [places.get(f"{app.me}/{number}".encode(), -1) for number in range(app.put)]
        for number in app.promised:
            if mine[number] < 0:
                raise Violation(f"{app.me}/{number} was promised and is lost")
        there = [place for place in mine if place >= 0]
        if there != sorted(there):
            raise Violation(f"{app.me}: its messages are out of order")
        if len(app.promised) != len(set(app.promised)):
            raise Violation(f"{app.me}: promised twice")
        if app.life == 1 and not app.fenced and len(there) != app.total:
            raise Violation(f"{app.me}: {len(there)} of {app.total}, and it never crashed")

    def _author(self, value: bytes) -> Publisher:
        author = self.apps[NodeId(value.decode().rsplit("/", 1)[0])]
        assert isinstance(author, Publisher)
        return author
