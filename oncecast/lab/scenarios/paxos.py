"""Replicas through a storm: one order, kept by whoever is left, and all of it in the end.

A group of three or five, with spare nodes that offer themselves, under clients, while a storm of
faults hits processes, disks, clocks and the network, and members and leaders change. Then it is
calm, and everything outstanding must complete.
"""

from __future__ import annotations

from random import Random

from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.kernel.stack import Stack
from oncecast.lab.scenarios.draw import Draw, Shape, draw, draw_long
from oncecast.lab.scenarios.paxos_books import Books
from oncecast.lab.scenarios.paxos_checks import Rules, replica
from oncecast.lab.scenarios.paxos_ledger import Ledgers, Top
from oncecast.lab.scenarios.paxos_storm import GroupStorm
from oncecast.lab.scenarios.scenario import Figures, Scenario
from oncecast.lab.scenarios.sessions import Sessions
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import NOBODY, Config, Member
from oncecast.simulator.checkers import Checker, Violation
from oncecast.simulator.simulated import Simulation

FIXED = Draw()
CALM_SECONDS = 10.0
SPARES = 2
SLOT_SECONDS = 0.2  # that a slot may take where each waits for the one before
LONG_SLOT_SECONDS = 0.1  # that a slot of a long storm may take on average
CALM_MAX = 400.0
LOOK_EVERY = 0.5  # seconds of calm between looks whether all is complete


class Campaign(Checker):
    """The nodes of one run, and what must be so in its end."""

    def __init__(
        self,
        sim: Simulation,
        nodes: int,
        top: Top,
        draw: Draw = FIXED,
        *,
        spares: int = SPARES,
        rules: bool = True,  # check all rules of the group, not only what it has chosen
    ) -> None:
        self.sim, self.top, self.size, self.draw = sim, top, nodes, draw
        self.names = [NodeId(f"n{index}") for index in range(nodes)]
        self.nodes = [*self.names, *[NodeId(f"s{index}") for index in range(spares)]]
        founders = self.names[:1] if draw.grows else self.names
        # No two disks have the same life: who is alone knows by it that it has only moved.
        lives = enumerate(founders, 1)
        members = tuple(Member(node, life) for life, node in lives)
        self.founders = Config(1, members, nodes, group=1)
        self.wiped: dict[NodeId, None] = {}
        self.books = Books(self.founders)
        self._watch: Checker = Rules(self.books) if rules else self.books
        self.due = 0  # what must be applied everywhere in the end

    def build(self, me: NodeId, rng: Random) -> Stack:
        founder = self.founders.member(me) if me not in self.wiped else None
        contacts = tuple(node for node in self.nodes if node != me)
        paxos = Paxos(
            me,
            rng,
            options=self.draw.options_of(self.nodes.index(me)),
            contacts=() if founder else contacts,
            founders=self.founders if founder else NOBODY,
            life=founder.life if founder else 0,
        )
        return Stack([paxos, *self.top.layers(me, rng, paxos)])

    def begin(self) -> GroupStorm:
        self.sim.check(self._watch, *self.top.checkers(), self)
        for node in self.nodes:
            self.sim.add(node, self.build, durable=True)
        away_max = max(1, (self.size - 1) // 2)  # a small group waits until all are back
        return GroupStorm(
            self.sim, self.nodes, self.books, self.draw, away_max=away_max, wiped=self.wiped
        )

    def run_storm(self) -> None:
        sim, slots = self.sim, self.draw.slots
        if not slots:
            sim.run(until=self.draw.seconds)
        limit = slots * LONG_SLOT_SECONDS
        while self.books.last < slots:
            if sim.now > limit:
                raise Violation(f"only {self.books.last} of {slots} slots after {limit:.0f} s")
            sim.run(until=sim.now + LOOK_EVERY)

    # -- the calm --

    def settle(self, storm: GroupStorm) -> None:
        """Run until all is complete. A flood goes on until all seats are taken, also after one more
        disk is lost: a group that is under load for ever must still admit newcomers."""
        sim, patience = self.sim, self.draw.patience
        if self.draw.load.shape is Shape.FLOOD:
            self._fill_seats()
            if storm.wipe_one_more(patience):
                self._fill_seats()
        self.top.stop()
        calm = sim.now
        while self._incomplete():
            # What clients have asked for is worked off first, however slow this group is.
            if sim.now > calm + min(CALM_MAX, patience + SLOT_SECONDS * self.books.last):
                return
            sim.run(until=sim.now + LOOK_EVERY)

    def _fill_seats(self) -> None:
        limit = self.sim.now + self.draw.patience
        while (fault := self._seats()) and self.sim.now < limit:
            self.sim.run(until=self.sim.now + LOOK_EVERY)
        if fault:
            raise Violation(f"{fault}, after {self.draw.patience:.0f} s of calm under load")

    def _seats(self) -> str:
        """What is wrong with the membership, if anything is."""
        config = self.books.configs[-1][1]
        if len(config.members) < config.size:
            return f"{config} has free seats, though there are spares"
        if len(config.members) > config.size:
            return f"{config} has more members than it should have"
        for member in config.members:
            paxos = replica(self.sim, member.node)
            if paxos is None or paxos.life != member.life:
                return f"{member} has a seat, and is not there"
        return ""

    def _incomplete(self) -> bool:
        self.due = self.books.last
        try:
            self.finish(self.sim)
        except Violation:
            return True
        return False

    def finish(self, sim: Simulation) -> None:
        """The group has its size, its members are up and equal, and have all that is chosen."""
        fault = self._seats()
        if fault:
            raise Violation(fault)
        layers: dict[NodeId, list[Protocol]] = {}
        for member in self.books.configs[-1][1].members:
            paxos = replica(sim, member.node)
            assert paxos is not None
            if paxos.applied < self.due:
                raise Violation(f"{member} applied {paxos.applied} of {self.due}")
            stack = sim.nodes[member.node].stack
            assert stack is not None
            layers[member.node] = stack.protocols[1:]
        self.top.end(layers)


def play(sim: Simulation, nodes: int) -> Figures:
    return play_drawn(sim, nodes, draw(sim.seed, nodes))


def play_long(sim: Simulation, nodes: int) -> Figures:
    return play_drawn(sim, nodes, draw_long(sim.seed, nodes))


def play_drawn(sim: Simulation, nodes: int, drawn: Draw) -> Figures:
    sim.segment_bytes = drawn.segment_bytes
    sim.sync_latency = drawn.disk.bind(sim.rng)
    sim.weather.set(latency=drawn.network, fifo=drawn.fifo)
    top: Top = Ledgers(drawn.load, drawn.snapshots)
    if drawn.sessions:
        top = Sessions(sim, drawn.habits)
    campaign = Campaign(sim, nodes, top, drawn)
    storm = campaign.begin()
    storm.begin()
    top.begin(sim, storm.leaders, drawn.seconds)
    campaign.run_storm()
    storm.calm()
    campaign.settle(storm)
    books = campaign.books
    return {
        "strikes": storm.strikes,
        "slots": books.last,
        "memberships": len(books.configs),
        "ballots": len(books.ballots),
    }


PAXOS = Scenario(
    "paxos",
    "a replica group, its disks and members in a storm",
    3,
    play,
    nodes_min=3,
    draw=draw,
)

PAXOS_LONG = Scenario(
    "paxos-long",
    "a replica group in a storm that lasts for 100,000 slots",
    3,
    play_long,
    nodes_min=3,
    draw=draw_long,
)
