"""The clients of a ring: publishers, subscribers, roaming clients and an age checker."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from oncecast.client.session import local
from oncecast.kernel.protocol import NodeId, Value
from oncecast.lab.scenarios.aging import Ager
from oncecast.lab.scenarios.paxos_clients import Client, Publisher, Subscriber, check_topic
from oncecast.lab.scenarios.ring_world import RingWorld
from oncecast.lab.scenarios.roaming import Roamer
from oncecast.simulator.checkers import Checker
from oncecast.simulator.simulated import Simulation
from oncecast.wire import commands as do

PADDING = b"." * 80  # padding that makes the topics larger
CONTACTS = 3  # number of processes that a client knows of
# Topics with an age limit, which usually belong to several groups.
AGING = ("aging-0", "aging-1", "aging-2")


class Writer(Publisher):
    def value(self, number: int) -> bytes:
        return super().value(number) + PADDING


class Visitor(Roamer):
    push = True


class Clients(Checker):
    """A publisher and two subscribers for each topic, and visitors with their own topics.

    Some clients crash occasionally. Visitors perform random operations.
    """

    def __init__(self, sim: Simulation, world: RingWorld) -> None:
        self._sim, self._world, self._draw = sim, world, world.draw
        self._habits = world.draw.habits
        self.publishers: list[Publisher] = []
        self.subscribers: dict[str, list[Subscriber]] = {}
        self.visitors: list[Visitor] = []
        self.agers: list[Ager] = []
        self._clients: dict[str, Client] = {}  # by the constant part of the client's id

    @property
    def topics(self) -> list[str]:
        """Return all topics. The topics of the visitors come last."""
        checked = [f"topic-{number}" for number in range(self._draw.topics)]
        return [*checked, *[f"roaming-{number}" for number in range(self._habits.topics)]]

    def begin(self, until: float) -> None:
        for number, topic in enumerate(self.topics[: self._draw.topics]):
            readers = self.subscribers[topic] = list(self._readers(number))
            for reader in readers:
                self._introduce(reader, topic, until)
            self._write(number, topic, readers, until)
        for number in range(self._habits.roamers):
            crashes = self._sim.rng.random() < 0.5
            facts = (self._sim, f"v{number}", self._contacts())
            visitor = Visitor(*facts, crashes=crashes, habits=self._habits)
            self.visitors.append(visitor)
            self._introduce(visitor, "", until)
        for number, topic in enumerate(AGING if self._habits.age else ()):
            ager = Ager(self._sim, f"ager-{number}", self._contacts(), self._habits)
            self.agers.append(ager)
            self._introduce(ager, topic, until)

    def _readers(self, number: int) -> Iterator[Subscriber]:
        for crashes in (False, True):
            facts = (self._sim, f"r{number}-{crashes}", self._contacts())
            reader = Subscriber(*facts, crashes=crashes, habits=self._habits)
            reader.push = self._sim.rng.random() < 0.5
            yield reader

    def _write(self, number: int, topic: str, readers: list[Subscriber], until: float) -> None:
        writer = Writer(
            self._sim,
            f"w{number}",
            self._contacts(),
            crashes=number % 2 == 1,
            readers=readers,
            pause=0.8 * (until - self._sim.now) / self._habits.puts,
            habits=self._habits,
        )
        self.publishers.append(writer)
        self._introduce(writer, topic, until)
        policy = self._draw.policies[number % len(self._draw.policies)]
        writer.soon(0.2, lambda: writer.ask(local.Do(2, do.SetPolicy(topic, 0, policy))))

    def _introduce(self, client: Client, topic: str, until: float) -> None:
        client.topic = topic
        self._clients[client.me] = client
        for _ in range(self._habits.crashes if client.crashes else 0):
            when = self._sim.rng.uniform(0.0, until - self._sim.now)
            self._sim.call(when, partial(self._bounce, client))

    def _contacts(self) -> list[NodeId]:
        contacts = list(self._world.processes)
        self._sim.rng.shuffle(contacts)
        return contacts[:CONTACTS]

    def _bounce(self, client: Client) -> None:
        if self._sim.nodes[client.me].stack is not None:
            client.return_as_another(self._sim.rng.uniform(0.0, self._habits.away))

    def heard(self, sim: Simulation, node: NodeId, event: Value) -> None:
        client = self._clients.get(node.partition("#")[0])
        if client is not None:  # deferred, because the step that emits the event has not ended
            client.soon(0.0, lambda: client.hear(event))

    # -- the end --

    @property
    def done(self) -> bool:
        """Return whether all acknowledged messages have arrived and all calls are answered."""
        return (
            not any(visitor.waiting for visitor in self.visitors)
            and all(map(self._written, self.publishers))
            and all(
                len(reader.seen) == max(len(each.seen) for each in readers)
                for readers in self.subscribers.values()
                for reader in readers
            )
        )

    def _written(self, publisher: Publisher) -> bool:
        puts, promised = self._habits.puts, publisher.promised
        if publisher.put < puts or (publisher.starts == 1 and len(promised) < puts):
            return False
        seen = set(self.subscribers[publisher.topic][0].seen)
        return all(publisher.value(number) in seen for number in promised)

    def look_at_all(self) -> None:
        """Stop the requests of visitors, except for a last look at every topic."""
        for visitor in self.visitors:
            visitor.stop()
        for ager in self.agers:
            ager.stopped = True

    def finish(self, sim: Simulation) -> None:
        for visitor in self.visitors:
            visitor.check()
        for publisher in self.publishers:
            check_topic([publisher], self.subscribers[publisher.topic])
