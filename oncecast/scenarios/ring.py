"""A ring of groups through a storm: topics move, processes join and fail, each message comes once.

Groups of three replicas, one a process, own the topics; publishers and subscribers hang on to any
process. While they work, processes join, crash, are stopped and cut off, and topics move to new
owners. Then it is calm; in the end everybody has everything once and in order (REP-4 to REP-6).
"""

from __future__ import annotations

from collections.abc import Callable

from oncecast.kernel.protocol import NodeId, Value
from oncecast.pubsub import commands as do
from oncecast.pubsub.retention import Policy
from oncecast.runtime.checkers import Checker, Violation
from oncecast.runtime.simulated import Simulation
from oncecast.scenarios.paxos_clients import AWAY, PUTS, Client, Publisher, Subscriber
from oncecast.scenarios.ring_world import Process, RingWorld, is_gone
from oncecast.scenarios.scenario import Figures, Scenario
from oncecast.session import local

TOPICS = 5
GOSSIP_EVERY = 3  # topics one is pushed by gossip
CRASHES = 2  # of each client that crashes
BEGIN, STORM, CALM = 4.0, 16.0, 60.0  # seconds
STRIKE_EVERY = 1.5
LOOK_EVERY = 0.05
LEAVE_FROM = 4  # processes on, one gives up what it owns


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
        writer = Publisher(
            sim,
            f"w{number}",
            self._homes(),
            crashes=number % 2 == 1,
            readers=readers,
            pause=0.8 * (until - sim.now) / PUTS,
        )
        self.publishers.append(writer)
        self._introduce(writer, topic, until)
        if number % GOSSIP_EVERY == 0:
            writer.soon(1.0, lambda: writer.ask(local.Do(2, gossip(topic))))

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


class Owners(Checker):
    """No topic is served by two groups at once."""

    def __init__(self, sim: Simulation, world: RingWorld, topics: list[str]) -> None:
        self._world, self._topics = world, topics
        self._sim = sim
        self.moves = 0
        self._last: dict[str, str] = {}
        sim.call(LOOK_EVERY, self._look)

    def _look(self) -> None:
        self._sim.call(LOOK_EVERY, self._look)
        owners: dict[str, str] = {}
        for process in self._world.processes.values():
            for group, parts in process.replicas.items():
                node = self._sim.nodes[process.replica(group)]
                estate = parts.service.machine.registry.estate
                if node.stack is not parts.stack or estate is None or not parts.service.leading:
                    continue
                if parts.service.group.leads(node.clock.local(self._sim.now)):
                    for topic in self._topics:
                        if estate.owns(topic):
                            other = owners.setdefault(topic, group)
                            if other != group:
                                raise Violation(f"{topic} is owned by {other} and by {group}")
        for topic, group in owners.items():
            self.moves += self._last.get(topic, group) != group
            self._last[topic] = group


class Trouble:
    """One process at a time is away; the network has its own moods."""

    def __init__(self, sim: Simulation, world: RingWorld) -> None:
        self.sim, self.world = sim, world
        self.over = False
        self.away: Callable[[], None] | None = None
        self.strikes: dict[str, int] = {}
        self._kinds = (self._crash, self._crash, self._pause, self._cut_off, self._lose, self._slow)

    def begin(self) -> None:
        self.sim.call(self.sim.rng.uniform(0.0, 2 * STRIKE_EVERY), self._strike)

    def _strike(self) -> None:
        if self.over:
            return
        strike = self.sim.rng.choice(self._kinds)
        if self.away is None:
            victim = self.sim.rng.choice(list(self.world.processes.values()))
            self.strikes[strike.__name__] = self.strikes.get(strike.__name__, 0) + 1
            self.away = strike(victim)
            self.sim.call(self.sim.rng.uniform(0.2, 3.0), self._mend)
        self.begin()

    def _mend(self) -> None:
        mend, self.away = self.away, None
        if mend is not None:
            mend()

    def calm(self) -> None:
        self.over = True
        self._mend()
        self.sim.weather.set(loss=0.0, duplication=0.0)

    def _crash(self, victim: Process) -> Callable[[], None]:
        victim.crash()
        return victim.restart

    def _pause(self, victim: Process) -> Callable[[], None]:
        stopped = [node for node in victim.nodes() if self.sim.nodes[node].stack is not None]
        for node in stopped:
            self.sim.pause(node)

        def resume() -> None:
            for node in stopped:
                if self.sim.nodes[node].paused:
                    self.sim.resume(node)

        return resume

    def _cut_off(self, victim: Process) -> Callable[[], None]:
        fronts = self.sim.partition(victim.nodes())
        return lambda: self.sim.repair(fronts)

    def _lose(self, victim: Process) -> Callable[[], None]:
        self.sim.weather.set(loss=0.05, duplication=0.05)
        return lambda: self.sim.weather.set(loss=0.0, duplication=0.0)

    def _slow(self, victim: Process) -> Callable[[], None]:
        fronts = self.sim.slow(victim.nodes(), extra=0.1)
        return lambda: self.sim.repair(fronts)


def play(sim: Simulation, nodes: int) -> Figures:
    world = RingWorld(sim)
    sim.listener = world.hear
    late = max(1, nodes // 3)  # come while others work
    world.found(nodes - late)
    sim.run(until=BEGIN)
    clients = Clients(sim, world)
    owners = Owners(sim, world, [f"topic-{number}" for number in range(TOPICS)])
    sim.check(clients, owners)
    clients.begin(STORM)
    trouble = Trouble(sim, world)
    trouble.begin()
    for _ in range(late):
        sim.call(sim.rng.uniform(0.0, STORM - BEGIN), lambda: join(sim, world))
    if nodes > LEAVE_FROM:
        sim.call(sim.rng.uniform(0.0, STORM - BEGIN), lambda: leave(sim, world))
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


def gossip(topic: str) -> do.SetPolicy:
    return do.SetPolicy(topic, 0, Policy(gossip=True))


def join(sim: Simulation, world: RingWorld) -> None:
    world.add(sim.rng.choice(list(world.processes)))


def leave(sim: Simulation, world: RingWorld) -> None:
    process = sim.rng.choice(list(world.processes.values()))
    if process.alive:
        process.leave()


RING = Scenario(
    "ring",
    "groups of three on a ring, topics that move, publishers and subscribers, in a storm",
    8,
    play,
    nodes_min=3,
)
