"""Simulated ring processes, each with a ring stack and its replicas."""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from oncecast.broker.holdings import Holdings
from oncecast.dht.identifiers import distance, key_of, key_of_topic
from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.lab.scenarios.ring_draw import RingDraw
from oncecast.node.assemble import Parts, RingMembership, assemble
from oncecast.node.assemble_ring import RingParts, assemble_ring
from oncecast.ring.events import Leave, Left, Seat, Unseat
from oncecast.simulator.simnode import SimulatedNode
from oncecast.simulator.simulated import BEGIN, Simulation
from oncecast.wire.limits import LIMITS

TRIES = 50
FIXED = RingDraw()


class Process:
    """A process across its restarts, which its disks survive."""

    def __init__(
        self, world: RingWorld, name: str, contacts: tuple[NodeId, ...], group: str
    ) -> None:
        self.world, self.me, self.contacts, self.group = world, NodeId(name), contacts, group
        # The groups in which this process has a seat, and the nodes to contact there.
        self.seats: dict[str, tuple[NodeId, ...]] = {self.group: ()}
        self.parts: RingParts | None = None
        self.replicas: dict[str, Parts] = {}
        self.left = False
        # Two clocks drift apart by at most twice this rate.
        rng, drift = world.sim.rng, world.draw.drift / 2
        self.clock = (rng.uniform(1 - drift, 1 + drift), rng.uniform(0.0, 3.0))  # (rate, offset)
        self.options = world.draw.options_of(len(world.processes))
        step = world.draw.habits.clock_step
        self.limits = replace(LIMITS, clock_step_us=int(step * 1e6))
        self.wall_ahead = self._drawn_wall_clock()  # seconds by which the wall clock is ahead

    @property
    def alive(self) -> bool:
        return self.world.sim.nodes[self.me].stack is not None

    def nodes(self) -> list[NodeId]:
        return [self.me, *map(self.replica, self.seats)]

    def replica(self, group: str) -> NodeId:
        return NodeId(f"{self.me}/{group}")

    def _drawn_wall_clock(self) -> float:
        wall = self.world.draw.wall
        return self.world.sim.rng.uniform(-wall, wall)

    def set_wall_clock(self, ahead: float) -> None:
        """Set all wall clocks of this process `ahead` seconds ahead of the true time."""
        self.wall_ahead = ahead
        for node in self.nodes():
            self.world.sim.set_wall_clock(node, ahead=ahead)

    def begin(self) -> None:
        self._skew(self.world.sim.add(self.me, self._build_ring))
        self._sit(self.group)

    def _sit(self, group: str) -> None:
        self._skew(self.world.sim.add(self.replica(group), self._build_replica, durable=True))

    def _skew(self, node: SimulatedNode) -> None:
        """Give a node the clock of its process."""
        rate, ahead = self.clock
        self.world.sim.skew(node.me, rate=rate, ahead=ahead)
        node.wall_ahead = self.wall_ahead

    def _build_ring(self, me: NodeId, rng: Random) -> Stack:
        self.parts = assemble_ring(
            me,
            rng,
            group=self.group,
            contacts=self.contacts,
            epoch_us=int((BEGIN + self.wall_ahead) * 1e6),
            options=self.world.draw.ring,
        )
        self.parts.roster.seated(tuple(self.seats))
        self.parts.relay.window_bytes = self.world.draw.habits.window_bytes
        self.parts.relay.channel_bytes = self.world.draw.channel_bytes
        return self.parts.stack

    def _build_replica(self, me: NodeId, rng: Random) -> Stack:
        group = me.partition("/")[2]
        parts = self.replicas[group] = assemble(
            me,
            rng,
            wall=lambda: self.world.sim.wall_us(me),
            limits=self.limits,
            snapshot_bytes=self.world.draw.habits.snapshot_bytes,
            window_bytes=self.world.draw.habits.window_bytes,
            options=self.options,
            contacts=self.seats[group],
            membership=RingMembership(
                group, self.me, first=not self.contacts and group == self.group
            ),
        )
        if parts.mover is not None:
            parts.mover.pull_bytes = self.world.draw.pull_bytes
            parts.mover.little_bytes = self.world.draw.little_bytes
        return parts.stack

    def leave(self) -> None:
        self.world.sim.ask(self.me, Leave())

    def hear(self, event: Value) -> None:
        sim = self.world.sim
        if isinstance(event, Left):
            self.left = True
        if isinstance(event, Seat) and event.group not in self.seats:
            self.seats[event.group] = event.nodes
            replica = self.replica(event.group)
            if replica in sim.nodes:
                sim.restart(replica)
            else:
                self._sit(event.group)
        elif isinstance(event, Unseat) and event.group in self.seats:
            del self.seats[event.group]
            self.replicas.pop(event.group, None)
            replica = self.replica(event.group)
            sim.crash(replica)
            disk = sim.nodes[replica].disk
            if event.gone and disk is not None:
                disk.wipe()

    # -- faults --

    def crash(self) -> None:
        for node in self.nodes():
            if self.world.sim.nodes[node].stack is not None:
                self.world.sim.crash(node)

    def lose_disk(self, group: str) -> None:
        """Crash this process's replica of `group` and wipe its disk.

        Another process owns the group.
        """
        node = self.world.sim.nodes[self.replica(group)]
        if node.stack is not None:
            self.world.sim.crash(node.me)
        assert node.disk is not None
        node.disk.wipe()

    def restart(self) -> None:
        self.set_wall_clock(self._drawn_wall_clock())
        for node in self.nodes():
            if self.world.sim.nodes[node].stack is None:
                self.world.sim.restart(node)


class RingWorld:
    def __init__(self, sim: Simulation, draw: RingDraw = FIXED) -> None:
        self.sim, self.draw = sim, draw
        self.processes: dict[NodeId, Process] = {}

    def add(self, *contacts: str, before: str = "") -> Process:
        """Add a process and return it. If possible, its group becomes the owner of `before`."""
        group = self._new_group()
        for _ in range(TRIES):
            if not before or self.nearest(before, group) == group:
                break
            group = self._new_group()
        process = Process(self, f"p{len(self.processes)}", tuple(map(NodeId, contacts)), group)
        self.processes[process.me] = process
        process.begin()
        return process

    def _new_group(self) -> str:
        return f"g-{self.sim.rng.getrandbits(32):08x}"

    def nearest(self, topic: str, *more: str) -> str:
        """Return the group that should own the topic, among the existing groups and `more`."""
        groups = [each.group for each in self.processes.values() if each.group in each.seats]
        return min((*groups, *more), key=lambda each: distance(key_of_topic(topic), key_of(each)))

    def found(self, count: int) -> None:
        """Add `count` processes, which all join through the first one."""
        first = self.add()
        for _ in range(count - 1):
            self.add(first.me)

    def hear(self, node: NodeId, event: Value) -> None:
        if node in self.processes and isinstance(event, Seat | Unseat | Left):
            process = self.processes[node]
            self.sim.call(0.0, lambda: process.hear(event) if process.alive else None)

    # -- the true state of the ring --

    def holdings(self) -> dict[str, Holdings]:
        """Return the state of every group, from the replica that has applied the most slots."""
        found: dict[str, tuple[int, Holdings]] = {}
        for process in self.processes.values():
            for group, parts in process.replicas.items():
                registry = parts.service.machine.registry
                if (
                    registry.holdings is not None
                    and registry.last_slot >= found.get(group, (-1,))[0]
                ):
                    found[group] = (registry.last_slot, registry.holdings)
        return {group: holdings for group, (_, holdings) in found.items()}

    def settled(self) -> bool:
        """Return whether every group owns its whole arc and has all its replicas."""
        known = self.holdings()
        owners = {group: each for group, each in known.items() if not is_gone(each)}
        ring = sorted(key_of(group) for group in owners)
        staying = {each.group for each in self.processes.values() if each.group in each.seats}
        if owners.keys() != staying:
            return False
        for holdings in owners.values():
            before = ring[ring.index(holdings.position) - 1]
            if holdings.low != before or holdings.claim is not None or holdings.frozen is not None:
                return False
            if holdings.retired:
                return False
        size = min(self.draw.replicas, len(staying))
        return all(self._members(group) >= size for group in owners)

    def _members(self, group: str) -> int:
        replicas = [p.replicas[group] for p in self.processes.values() if group in p.replicas]
        return max(len(parts.service.group.nodes()) for parts in replicas)


def is_gone(holdings: Holdings) -> bool:
    return holdings.retired and holdings.low is None and holdings.claim is None
