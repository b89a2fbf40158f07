"""Publishers and subscribers of the service on top of a replica group: exactly once, in any storm.

The layers are those of a node, the clients are real sessions: they look for the leader, follow it,
send again, and crash now and then themselves. What they were promised is looked at as it happens
and in the end (SVC-2, SVC-3, SVC-10).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.kernel.stack import Stack
from oncecast.pubsub import batch
from oncecast.pubsub import commands as do
from oncecast.pubsub.service import Service
from oncecast.replication.paxos import Paxos
from oncecast.runtime.checkers import Checker, Violation
from oncecast.runtime.simulated import Simulation
from oncecast.scenarios.paxos_books import CLIENT
from oncecast.session import local
from oncecast.session.client import ClientSession
from oncecast.session.gateway import Gateway
from oncecast.session.governing import Governor
from oncecast.session.inbox import Inbox
from oncecast.session.scanning import Scanner

TOPIC = "topic"
PUTS = 60  # of each publisher
SNAPSHOT_BYTES = 4096
CRASHES = 2  # of each client that crashes
AWAY = 0.4  # longer than anything is under way: a connection's bytes do not outlive it either


class Client:
    """Somebody who uses a session, over all its lives."""

    topic = TOPIC
    push = False  # on a ring

    def __init__(self, sim: Simulation, name: str, nodes: list[NodeId], *, crashes: bool) -> None:
        self.sim, self.name, self.nodes, self.crashes = sim, name, nodes, crashes
        self.me = NodeId(CLIENT + name)
        self.life = 0
        sim.add(self.me, self._build, durable=crashes)

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
            producer=self.name,
            life=f"{CLIENT}{self.name}#{self.life}",
            durable=self.crashes,
            read_ahead=8,
            outbox_bytes=0,
        )
        self.soon(0.0, self.begin)
        return Stack([session])

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
        puts: int = PUTS,
    ) -> None:
        self.readers, self.pause, self.puts = readers, pause, puts
        self.put = 0
        self.promised: list[int] = []
        self._tickets = 0
        self._batches: dict[int, range] = {}
        super().__init__(sim, name, nodes, crashes=crashes)

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

    def __init__(self, sim: Simulation, name: str, nodes: list[NodeId], *, crashes: bool) -> None:
        self.seen: list[bytes] = []  # by offset
        self.subscribed = False
        self._inbox = Inbox(auto_ack=True)
        self._expected = -1
        super().__init__(sim, name, nodes, crashes=crashes)

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


class Sessions(Checker):
    """The Top of a campaign that is the service, with its clients."""

    def __init__(self, puts: int = PUTS) -> None:
        self.puts = puts
        self.publishers: list[Publisher] = []
        self.subscribers: list[Subscriber] = []
        self._clients: dict[NodeId, Client] = {}

    def layers(self, me: NodeId, rng: Random, group: Paxos) -> list[Protocol]:
        group.learner = service = Service(me, rng, group=group, snapshot_bytes=SNAPSHOT_BYTES)
        gateway, scanner = Gateway(me, rng, service=service), Scanner(me, rng, service=service)
        return [service, gateway, scanner, Governor(me, rng, group=group)]

    def checkers(self) -> list[Checker]:
        return [self]

    def begin(self, sim: Simulation, leaders: Callable[[], list[NodeId]], until: float) -> None:
        nodes = list(sim.nodes)
        pause = 0.8 * until / self.puts
        for crashes in (False, True):
            kind = "mortal" if crashes else "plain"
            reader = Subscriber(sim, f"{kind}-reader", nodes, crashes=crashes)
            writer = Publisher(
                sim,
                f"{kind}-writer",
                nodes,
                crashes=crashes,
                readers=self.subscribers,
                pause=pause,
                puts=self.puts,
            )
            self.subscribers.append(reader)
            self.publishers.append(writer)
            for client in (reader, writer):
                self._clients[client.me] = client
                for _ in range(CRASHES if crashes else 0):
                    self._crash(sim, client.me, sim.rng.uniform(0.0, until))

    def stop(self) -> None:
        """They stop by themselves."""

    def _crash(self, sim: Simulation, client: NodeId, when: float) -> None:
        def crash() -> None:
            if sim.nodes[client].stack is not None:
                sim.bounce(client, AWAY + sim.rng.uniform(0.0, 0.6))

        sim.call(when, crash)

    def heard(self, sim: Simulation, node: NodeId, event: Value) -> None:
        client = self._clients.get(node)
        if client is not None:  # not now: the step that emits it is still under way
            client.soon(0.0, lambda: client.hear(event))

    def end(self, stacks: dict[NodeId, list[Protocol]]) -> None:
        log = max((reader.seen for reader in self.subscribers), key=len)
        if len(set(log)) != len(log):
            raise Violation("something is in the topic twice")
        for reader in self.subscribers:
            if reader.seen != log:
                raise Violation(f"{reader.me} read {len(reader.seen)} of {len(log)}, or others")
        for publisher in self.publishers:
            publisher.check(log)
        sums: dict[int, NodeId] = {}
        for node, (service, *_) in stacks.items():
            assert isinstance(service, Service)
            sums.setdefault(service.machine.checksum(), node)
        if len(sums) != 1:
            raise Violation(f"{', '.join(sums.values())} have different states")
