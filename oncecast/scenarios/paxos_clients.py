"""Publishers and subscribers of the service: exactly once, in any storm.

They are real sessions: they look for the leader, follow it, send again, and crash now and then
themselves. What they were promised is looked at as it happens and in the end (SVC-2, SVC-3,
SVC-10).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.pubsub import batch
from oncecast.pubsub import commands as do
from oncecast.runtime.checkers import Violation
from oncecast.runtime.simulated import Simulation
from oncecast.scenarios.draw import Habits
from oncecast.scenarios.paxos_books import CLIENT
from oncecast.session import local
from oncecast.session.client import ClientSession
from oncecast.session.inbox import Inbox

TOPIC = "topic"
HABITS = Habits()
PUTS = HABITS.puts  # of each publisher
AWAY = 0.4  # longer than anything is under way: a connection's bytes do not outlive it either


class Client:
    """Somebody who uses a session, over all its lives."""

    topic = TOPIC
    push = False  # on a ring
    keeps = True  # if it crashes, an outbox on disk
    producer: str | None = None  # the name under which it puts, if not its own; "": a new one

    def __init__(
        self,
        sim: Simulation,
        name: str,
        nodes: list[NodeId],
        *,
        crashes: bool,
        habits: Habits = HABITS,
    ) -> None:
        self.sim, self.name, self.nodes, self.crashes = sim, name, nodes, crashes
        self.habits, self.durable = habits, crashes and self.keeps
        self.me = NodeId(CLIENT + name)
        self.life = 0
        sim.add(self.me, self._build, durable=self.durable)

    def return_as_another(self, away: float) -> None:
        """Crash, and come back with the same disk under another id, as a new process does.

        What the earlier life has sent may still arrive, and what is sent to it does not.
        """
        disk = self.sim.nodes[self.me].disk
        self.sim.crash(self.me)

        def come_back() -> None:
            self.me = NodeId(f"{CLIENT}{self.name}#{self.life + 1}")
            self.sim.add(self.me, self._build, disk=disk)

        self.sim.call(away, come_back)

    def _build(self, me: NodeId, rng: Random) -> Stack:
        self.life += 1
        session = ClientSession(
            me,
            rng,
            node=self.nodes[0],
            others=tuple(self.nodes[1:]),
            producer=self._producer(),
            life=f"{CLIENT}{self.name}#{self.life}",
            durable=self.durable,
            read_ahead=self.habits.read_ahead,
            outbox_bytes=self.habits.outbox_bytes,
        )
        self.soon(0.0, self.begin)
        return Stack([session])

    def _producer(self) -> str:
        if self.producer is None:
            return self.name
        return self.producer or f"nameless-{self.name}-{self.life}"

    def soon(self, seconds: float, action: Callable[[], None]) -> None:
        """What this life wants to do later is void once it has crashed."""
        life = self.life

        def act() -> None:
            if life == self.life and self.sim.nodes[self.me].stack is not None:
                action()

        self.sim.call(seconds, act)

    def ask(self, request: Value) -> None:
        self.sim.ask(self.me, request)

    def begin(self) -> None: ...
    def hear(self, event: Value) -> None: ...


class Publisher(Client):
    """Puts numbered messages, a few at a time, and never the same number twice."""

    def __init__(
        self,
        sim: Simulation,
        name: str,
        nodes: list[NodeId],
        *,
        crashes: bool,
        readers: list[Subscriber],
        pause: float,
        habits: Habits = HABITS,
    ) -> None:
        self.readers, self.pause, self.puts = readers, pause, habits.puts
        self.put = 0
        self.promised: list[int] = []
        self._tickets = 0
        self._batches: dict[int, range] = {}
        super().__init__(sim, name, nodes, crashes=crashes, habits=habits)

    def begin(self) -> None:
        self._batches.clear()
        if all(reader.subscribed for reader in self.readers):
            self._put()
        else:  # what all who subscribe have read is not kept for who comes later
            self.soon(0.1, self.begin)

    def _put(self) -> None:
        count = min(self.sim.rng.choice((1, 1, 2, 5)), self.puts - self.put)
        if not count:
            return
        numbers = range(self.put, self.put + count)
        self.put += count
        self._tickets += 1
        self._batches[self._tickets] = numbers
        packed = batch.encode([self.value(number) for number in numbers], timestamps=1)
        self.ask(local.Produce(self._tickets, self.topic, count, packed))
        self.soon(self.sim.rng.uniform(0.0, 2 * count * self.pause), self._put)

    def value(self, number: int) -> bytes:
        return f"{self.name}/{number}".encode()

    def hear(self, event: Value) -> None:
        if isinstance(event, local.Stored) and event.ticket:
            self.promised += self._batches.pop(event.ticket)
        elif isinstance(event, local.NotStored):
            raise Violation(f"{self.me}: {event}")

    def check(self, log: list[bytes]) -> None:
        """What was promised is there, in order; and what was not lost in a crash of its own."""
        places = {value: place for place, value in enumerate(log)}
        found = {number: places.get(self.value(number), -1) for number in range(self.puts)}
        lost = [number for number in self.promised if found[number] < 0]
        there = [place for place in found.values() if place >= 0]
        if lost or len(set(self.promised)) != len(self.promised) or there != sorted(there):
            raise Violation(f"{self.me}: {lost} were promised and are lost, or out of order")
        if not self.crashes and len(self.promised) < self.puts:
            raise Violation(f"{self.me} was promised {len(self.promised)} of {self.puts}")


class Subscriber(Client):
    """Reads from the beginning, acknowledges as it goes, and is told what comes again."""

    def __init__(
        self,
        sim: Simulation,
        name: str,
        nodes: list[NodeId],
        *,
        crashes: bool,
        habits: Habits = HABITS,
    ) -> None:
        self.seen: list[bytes] = []  # by offset
        self.subscribed = False
        self._inbox = Inbox(auto_ack=True)
        self._expected = -1
        super().__init__(sim, name, nodes, crashes=crashes, habits=habits)

    def begin(self) -> None:
        self._inbox = Inbox(auto_ack=True)
        self._expected = -1
        self.ask(local.Do(1, do.Subscribe(self.topic, self.name, do.FromEarliest(), 0)))

    def hear(self, event: Value) -> None:
        match event:
            case local.Finished(1):
                self.subscribed = True
                self.subscribed = True
                self.ask(local.Read(self.topic, self.name, push=self.push))
            case local.Positioned(_, _, offset):
                self._expected = offset
                self._inbox.position(offset)
            case local.Arrived(_, _, messages):
                self._inbox.arrive(messages)  # or drop them, if we have gone back meanwhile
                self.soon(self.sim.rng.uniform(0.0, 0.02), self._take)
            case local.Skipped() | local.Ended():
                raise Violation(f"{self.me}: {event}")
            case _:
                pass

    def _take(self) -> None:
        inbox = self._inbox
        for message in inbox.take_many(self.sim.rng.randrange(1, 5)):
            self._check(message)
        if len(inbox.queue) <= inbox.mark:
            inbox.mark //= 2
            self.ask(local.Want(self.topic, self.name, inbox.handed, inbox.ack))
        if inbox.queue:
            self.soon(self.sim.rng.uniform(0.0, 0.02), self._take)

    def _check(self, message: batch.Message) -> None:
        offset = message.offset
        if offset != self._expected:
            raise Violation(f"{self.me} was handed {offset} where {self._expected} was due")
        self._expected += 1
        if offset == len(self.seen):
            self.seen.append(message.value)
        elif offset > len(self.seen) or self.seen[offset] != message.value:
            raise Violation(f"{self.me} had {len(self.seen)}; {message} is not what comes there")
        elif not message.redelivered:
            raise Violation(f"{self.me}: {offset} comes again and is not marked")
