"""Replicas through a storm: one order, kept by whoever is left, and all of it in the end.

A group of three or five, with spare nodes that offer themselves, under clients, while a storm of
faults hits processes, disks, clocks and the network, and members and leaders change. Then it is
calm, and everything outstanding must complete.
"""

from __future__ import annotations

from random import Random

from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.kernel.stack import Stack
from oncecast.replication.options import GroupOptions
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import NOBODY, Config, Member
from oncecast.runtime.checkers import Checker, Violation
from oncecast.runtime.latency import Uniform
from oncecast.runtime.simulated import Simulation
from oncecast.scenarios.paxos_books import Books
from oncecast.scenarios.paxos_checks import Rules, replica
from oncecast.scenarios.paxos_clients import Sessions
from oncecast.scenarios.paxos_ledger import Ledgers, Top
from oncecast.scenarios.paxos_storm import GroupStorm
from oncecast.scenarios.scenario import Figures, Scenario

STORM_SECONDS = 12.0
CALM_SECONDS = 10.0
SPARES = 2
SESSIONS_EVERY = 2  # in every other storm, publishers and subscribers of the service
SLOW_DISK = Uniform(0.001, 0.08)  # as slow as the network

FAST = GroupOptions(
    heartbeat=0.1,
    suspicion=0.5,
    drift=0.25,
    resend=0.06,
    replace_after=1.5,
    compare_every=1.0,
    window_slots=64,
    window_bytes=4096,
    accept_bytes=1024,
    piece_bytes=256,
    unclaimed_after=1.0,
)


class Campaign(Checker):
    """The nodes of one run, and what must be so in its end."""

    def __init__(self, sim: Simulation, nodes: int, top: Top) -> None:
        self.sim, self.top, self.size = sim, top, nodes
        self.names = [NodeId(f"n{index}") for index in range(nodes)]
        self.spares = [NodeId(f"s{index}") for index in range(SPARES)]
        # Now and then the group is not founded by all, but grows from one.
        grows = sim.rng.random() < 0.2
        founders = self.names[:1] if grows else self.names
        # No two disks have the same life: who is alone knows by it that it has only moved.
        lives = enumerate(founders, 1)
        members = tuple(Member(node, life) for life, node in lives)
        self.founders = Config(1, members, nodes, group=1)
        self.wiped: dict[NodeId, None] = {}
        self.books = Books(self.founders)
        self.due = 0  # what must be applied everywhere in the end

    def build(self, me: NodeId, rng: Random) -> Stack:
        founder = self.founders.member(me) if me not in self.wiped else None
        contacts = tuple(node for node in (*self.names, *self.spares) if node != me)
        paxos = Paxos(
            me,
            rng,
            options=FAST,
            contacts=() if founder else contacts,
            founders=self.founders if founder else NOBODY,
            life=founder.life if founder else 0,
        )
        return Stack([paxos, *self.top.layers(me, rng, paxos)])

    def begin(self) -> GroupStorm:
        self.sim.check(Rules(self.books), *self.top.checkers(), self)
        nodes = [*self.names, *self.spares]
        for node in nodes:
            self.sim.add(node, self.build, durable=True)
        away_max = (self.size - 1) // 2
        return GroupStorm(self.sim, nodes, self.books, FAST, away_max=away_max, wiped=self.wiped)

    def finish(self, sim: Simulation) -> None:
        """The group has its size, its members are up and equal, and have all that is chosen."""
        config = self.books.configs[-1][1]
        if len(config.members) < config.size:
            raise Violation(f"{config} has free seats, though there are spares")
        if len(config.members) > config.size:
            raise Violation(f"{config} has more members than it should have")
        layers: dict[NodeId, list[Protocol]] = {}
        for member in config.members:
            paxos = replica(sim, member.node)
            if paxos is None or paxos.life != member.life:
                raise Violation(f"{member} has a seat, and is not there")
            if paxos.applied < self.due:
                raise Violation(f"{member} applied {paxos.applied} of {self.due}")
            stack = sim.nodes[member.node].stack
            assert stack is not None
            layers[member.node] = stack.protocols[1:]
        self.top.end(layers)


def play(sim: Simulation, nodes: int, top: Top | None = None) -> Figures:
    if top is None:
        top = Sessions() if sim.seed % SESSIONS_EVERY == 0 else Ledgers()
    if sim.rng.random() < 0.3:
        sim.sync_latency = SLOW_DISK.bind(sim.rng)
    campaign = Campaign(sim, nodes, top)
    storm = campaign.begin()
    storm.begin()
    top.begin(sim, storm.leaders, STORM_SECONDS)
    sim.run(until=STORM_SECONDS)
    storm.calm()
    sim.run(until=STORM_SECONDS + CALM_SECONDS)
    books = campaign.books
    campaign.due = books.last
    sim.run(until=STORM_SECONDS + CALM_SECONDS + 1.0)
    return {
        "strikes": storm.strikes,
        "slots": books.last,
        "memberships": len(books.configs),
        "ballots": len({choice.ballot for choice in books.chosen}),
    }


PAXOS = Scenario("paxos", "a replica group, its disks and members in a storm", 3, play, nodes_min=3)
