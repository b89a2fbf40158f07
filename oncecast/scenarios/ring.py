"""A ring of groups through a storm: topics move, processes join and fail, each message comes once.

Groups of three replicas, one a process, own the topics; publishers and subscribers hang on to any
process. While they work, processes join and leave, crash, are stopped and cut off, lose a disk, and
topics move to new owners. All clocks differ. Then it is calm; in the end everybody has everything
once and in order (REP-4 to REP-6).
"""

from __future__ import annotations

from collections.abc import Callable

from oncecast.kernel.protocol import NodeId, Value
from oncecast.pubsub import commands as do
from oncecast.pubsub.retention import Policy
from oncecast.runtime.checkers import Checker, Violation
from oncecast.runtime.simulated import Simulation
from oncecast.scenarios.paxos_clients import AWAY, PUTS, Client, Publisher, Subscriber
from oncecast.scenarios.ring_checks import Owners
from oncecast.scenarios.ring_storm import Trouble
from oncecast.scenarios.ring_world import RingWorld, is_gone
from oncecast.scenarios.scenario import Figures, Scenario
from oncecast.session import local

TOPICS = 5
GOSSIP_EVERY = 3  # topics one is pushed by gossip; and of two, one keeps all that it ever had
CRASHES = 2  # of each client that crashes
BEGIN, STORM, CALM = 4.0, 16.0, 60.0  # seconds
LEAVE_FROM = 5  # processes on, some give up what they own
PADDING = b"." * 80  # so that topics have some size


class Writer(Publisher):
    def value(self, number: int) -> bytes:
        return super().value(number) + PADDING


class Clients(Checker):
    """Of each topic a publisher and two subscribers, of which some crash now and then."""

    def __init__(self, sim: Simulation, world: RingWorld) -> None:
        self._sim, self._world = sim, world
        self.publishers: list[Publisher] = []
        self.subscribers: dict[str, list[Subscriber]] = {}
        self._clients: dict[NodeId, Client] = {}

    def begin(self, until: float) -> None:
        for number in range(TOPICS):
            topic = f"topic-{number}"
            readers = self.subscribers[topic] = [
                Subscriber(self._sim, f"r{number}-{crashes}", self._homes(), crashes=crashes)
                for crashes in (False, True)
            ]
            for reader in readers:
                reader.push = self._sim.rng.random() < 0.5
                self._introduce(reader, topic, until)
            self._write(number, readers, until)

    def _write(self, number: int, readers: list[Subscriber], until: float) -> None:
        sim, topic = self._sim, f"topic-{number}"
        writer = Writer(
            sim,
            f"w{number}",
            self._homes(),
            crashes=number % 2 == 1,
            readers=readers,
            pause=0.8 * (until - sim.now) / PUTS,
        )
        self.publishers.append(writer)
        self._introduce(writer, topic, until)
        policy = Policy(gossip=number % GOSSIP_EVERY == 0, keep_all=number % 2 == 0)
        writer.soon(1.0, lambda: writer.ask(local.Do(2, do.SetPolicy(topic, 0, policy))))

    def _introduce(self, client: Client, topic: str, until: float) -> None:
        client.topic = topic
        self._clients[client.me] = client
        for _ in range(CRASHES if client.crashes else 0):
            self._sim.call(
                self._sim.rng.uniform(0.0, until - self._sim.now), self._bounce(client.me)
            )

    def _homes(self) -> list[NodeId]:
        homes = list(self._world.processes)
        self._sim.rng.shuffle(homes)
        return homes[:3]

    def _bounce(self, client: NodeId) -> Callable[[], None]:
        def bounce() -> None:
            if self._sim.nodes[client].stack is not None:
                self._sim.bounce(client, AWAY + self._sim.rng.uniform(0.0, 0.6))

        return bounce

    def heard(self, sim: Simulation, node: NodeId, event: Value) -> None:
        client = self._clients.get(node)
        if client is not None:  # not now: the step that emits it is still under way
            client.soon(0.0, lambda: client.hear(event))

    @property
    def done(self) -> bool:
        """Whether everybody has everything that was promised."""
        for publisher in self.publishers:
            if publisher.put < PUTS or (not publisher.crashes and len(publisher.promised) < PUTS):
                return False
            seen = set(self.subscribers[publisher.topic][0].seen)
            if not all(publisher.value(number) in seen for number in publisher.promised):
                return False
        return all(
            len(reader.seen) == max(len(each.seen) for each in readers)
            for readers in self.subscribers.values()
            for reader in readers
        )

    def finish(self, sim: Simulation) -> None:
        for publisher in self.publishers:
            readers = self.subscribers[publisher.topic]
            log = max((reader.seen for reader in readers), key=len)
            if len(set(log)) != len(log):
                raise Violation(f"something is in {publisher.topic} twice")
            for reader in readers:
                if reader.seen != log:
                    raise Violation(f"{reader.me} read {len(reader.seen)} of {len(log)}, or others")
            publisher.check(log)


def play(sim: Simulation, nodes: int) -> Figures:
    world = RingWorld(sim)
    sim.listener = world.hear
    world.found(nodes)
    sim.run(until=BEGIN)
    clients = Clients(sim, world)
    owners = Owners(sim, world, [f"topic-{number}" for number in range(TOPICS)])
    sim.check(clients, owners)
    clients.begin(STORM)
    trouble = Trouble(sim, world)
    trouble.begin()
    come_and_go(sim, world, max(1, nodes // 4))
    sim.run(until=STORM)
    trouble.calm()
    while sim.now < CALM and not (clients.done and world.settled()):
        sim.run(until=sim.now + 1.0)
    if not world.settled():
        raise Violation(f"the ring has not settled {CALM - STORM:.0f} s after the storm")
    searches = [p.parts.usher for p in world.processes.values() if p.parts is not None]
    return {
        "strikes": trouble.strikes,
        "moves": owners.moves,
        "groups": sum(not is_gone(each) for each in world.estates().values()),
        "messages": sum(len(each[0].seen) for each in clients.subscribers.values()),
        "gaps": sum(p.parts.relay.filled for p in world.processes.values() if p.parts),
        "lookups": sum(each.searched for each in searches),
        "hops": sum(each.hops for each in searches),
        "calm_after": round(sim.now - STORM, 1),
    }


def come_and_go(sim: Simulation, world: RingWorld, count: int) -> None:
    """Where topics lie; each joins while another leaves, or at another time."""
    for _ in range(count):
        when = sim.rng.uniform(0.0, STORM - BEGIN)
        sim.call(when, lambda: join(sim, world))
        if len(world.processes) >= LEAVE_FROM:
            both = sim.rng.random() < 0.5
            when = when + sim.rng.uniform(0.0, 2.0) if both else sim.rng.uniform(0.0, STORM - BEGIN)
            sim.call(when, lambda: leave(sim, world))


def join(sim: Simulation, world: RingWorld) -> None:
    world.add(sim.rng.choice(list(world.processes)), before=some_topic(sim))


def leave(sim: Simulation, world: RingWorld) -> None:
    owner = world.nearest(some_topic(sim))
    for process in world.processes.values():
        if process.group == owner and process.alive:
            process.leave()


def some_topic(sim: Simulation) -> str:
    return f"topic-{sim.rng.randrange(TOPICS)}"


RING = Scenario(
    "ring",
    "groups of three on a ring, topics that move, publishers and subscribers, in a storm",
    8,
    play,
    nodes_min=3,
)
