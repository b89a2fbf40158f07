"""A replica group in a storm of faults.

The group has three or five members, spare nodes and clients. During the storm, processes, disks,
clocks and the network fail, and members and leaders change. Then the faults stop, and all pending
work must complete.
"""

from __future__ import annotations

from random import Random

from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.kernel.stack import Stack
from oncecast.lab.scenarios.draw import Draw, Shape, draw, draw_long
from oncecast.lab.scenarios.paxos_checks import Rules, replica
from oncecast.lab.scenarios.paxos_history import GroupHistory
from oncecast.lab.scenarios.paxos_ledger import Ledgers, Top
from oncecast.lab.scenarios.paxos_storm import GroupStorm
from oncecast.lab.scenarios.scenario import Figures, Scenario
from oncecast.lab.scenarios.sessions import Sessions
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import NO_MEMBERS, Config, Member
from oncecast.simulator.checkers import Checker, Violation
from oncecast.simulator.simulated import Simulation

FIXED = Draw()
CALM_SECONDS = 10.0
SPARES = 2
SLOT_SECONDS = 0.2  # seconds allowed per slot if each slot waits for the previous one
LONG_SLOT_SECONDS = 0.1  # mean seconds allowed per slot in a long storm
CALM_MAX = 400.0
LOOK_EVERY = 0.5  # seconds between checks for completion, after the storm


class Campaign(Checker):
    """The nodes of one run, and the checks at its end."""

    def __init__(
        self,
        sim: Simulation,
        nodes: int,
        top: Top,
        draw: Draw = FIXED,
        *,
        spares: int = SPARES,
        rules: bool = True,  # whether to check all rules of the group, or only the chosen values
        level: int = 1,  # the feature level of the group and of all nodes
    ) -> None:
        self.level = level
        self.sim, self.top, self.size, self.draw = sim, top, nodes, draw
        self.names = [NodeId(f"n{index}") for index in range(nodes)]
        self.nodes = [*self.names, *[NodeId(f"s{index}") for index in range(spares)]]
        founders = self.names[:1] if draw.grows else self.names
        # No two disks have the same incarnation, so a lone replica that has moved to another
        # address still recognizes its own disk.
        incarnations = enumerate(founders, 1)
        members = tuple(Member(node, incarnation) for incarnation, node in incarnations)
        self.founders = Config(1, members, nodes, group=1, level=level)
        self.wiped: dict[NodeId, None] = {}
        self._starts: dict[NodeId, int] = {}
        self.history = GroupHistory(self.founders)
        self._watch: Checker = Rules(self.history) if rules else self.history
        self.due = 0  # the last slot that all replicas must have applied at the end

    def build(self, me: NodeId, rng: Random) -> Stack:
        founder = self.founders.member(me) if me not in self.wiped else None
        contacts = tuple(node for node in self.nodes if node != me)
        restarts = self._starts.get(me, 0)
        self._starts[me] = restarts + 1
        paxos = Paxos(
            me,
            rng,
            options=self.draw.options_of(self.nodes.index(me), restarts),
            contacts=() if founder else contacts,
            founders=self.founders if founder else NO_MEMBERS,
            incarnation=founder.incarnation if founder else 0,
            level=self.level,
        )
        return Stack([paxos, *self.top.layers(me, rng, paxos)])

    def begin(self) -> GroupStorm:
        self.sim.check(self._watch, *self.top.checkers(), self)
        for node in self.nodes:
            self.sim.add(node, self.build, durable=True)
        away_max = max(1, (self.size - 1) // 2)  # a small group waits until all members are back
        return GroupStorm(
            self.sim, self.nodes, self.history, self.draw, away_max=away_max, wiped=self.wiped
        )

    def run_storm(self) -> None:
        sim, slots = self.sim, self.draw.slots
        if not slots:
            sim.run(until=self.draw.seconds)
        limit = slots * LONG_SLOT_SECONDS
        while self.history.last < slots:
            if sim.now > limit:
                raise Violation(
                    f"only {self.history.last} of {slots} slots were chosen in {limit:.0f} s"
                )
            sim.run(until=sim.now + LOOK_EVERY)

    # -- the calm --

    def settle(self, storm: GroupStorm) -> None:
        """Run until everything is complete.

        A flood of puts continues until all seats are taken, even after another disk is lost. A
        group under constant load must still admit new members.
        """
        sim, patience = self.sim, self.draw.patience
        if self.draw.load.shape is Shape.FLOOD:
            self._fill_seats()
            if storm.wipe_one_more(patience):
                self._fill_seats()
        self.top.stop()
        calm = sim.now
        while self._incomplete():
            # A slow group may take longer to work through its backlog.
            if sim.now > calm + min(CALM_MAX, patience + SLOT_SECONDS * self.history.last):
                return
            sim.run(until=sim.now + LOOK_EVERY)

    def _fill_seats(self) -> None:
        limit = self.sim.now + self.draw.patience
        while (fault := self._seats()) and self.sim.now < limit:
            self.sim.run(until=self.sim.now + LOOK_EVERY)
        if fault:
            raise Violation(f"{fault} after {self.draw.patience:.0f} s of calm under load")

    def _seats(self) -> str:
        """Describe a fault in the membership, or return an empty string."""
        config = self.history.configs[-1][1]
        if len(config.members) < config.size:
            return f"{config} has free seats, but there are spare nodes"
        if len(config.members) > config.size:
            return f"{config} has too many members (limit {config.size})"
        for member in config.members:
            paxos = replica(self.sim, member.node)
            if paxos is None or paxos.incarnation != member.incarnation:
                return f"{member} has a seat but is not running"
        return ""

    def _incomplete(self) -> bool:
        self.due = self.history.last
        try:
            self.finish(self.sim)
        except Violation:
            return True
        return False

    def finish(self, sim: Simulation) -> None:
        """Check the size of the group, and that its members are up, current and equal."""
        fault = self._seats()
        if fault:
            raise Violation(fault)
        layers: dict[NodeId, list[Protocol]] = {}
        for member in self.history.configs[-1][1].members:
            paxos = replica(sim, member.node)
            assert paxos is not None
            if paxos.applied < self.due:
                raise Violation(f"{member} applied {paxos.applied} of {self.due} slots")
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
    history = campaign.history
    return {
        "strikes": storm.strikes,
        "slots": history.last,
        "memberships": len(history.configs),
        "ballots": len(history.ballots),
    }


PAXOS = Scenario(
    "paxos",
    "a replica group in a storm of faults, lost disks and membership changes",
    3,
    play,
    nodes_min=3,
    draw=draw,
)

PAXOS_LONG = Scenario(
    "paxos-long",
    "a replica group in a storm of faults that lasts for 100,000 slots",
    3,
    play_long,
    nodes_min=3,
    draw=draw_long,
)
