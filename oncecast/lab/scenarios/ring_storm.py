"""Faults for a ring of replica groups. The draw limits the number of simultaneous faults.

Each group loses at most one disk, and only after a quiet period. A majority, and the replicas that
a leader relies on, therefore never lose records.
"""

from __future__ import annotations

from collections.abc import Callable

from oncecast.kernel.protocol import NodeId
from oncecast.lab.scenarios.paxos_storm import HOUR, YEAR
from oncecast.lab.scenarios.ring_clients import AGING
from oncecast.lab.scenarios.ring_world import Process, RingWorld
from oncecast.simulator.simulated import Simulation

QUIET = 1.0  # seconds without faults before and after a disk loss

Mend = Callable[[], None]


class Trouble:
    def __init__(self, sim: Simulation, world: RingWorld) -> None:
        self.sim, self.world, self.draw = sim, world, world.draw
        self.over = False
        self.strikes: dict[str, int] = {}
        self._mends: dict[NodeId, Mend] = {}  # victim -> function that repairs its fault
        self._wiped: dict[str, None] = {}  # groups in which a replica has lost its disk
        self._wrong: dict[NodeId, None] = {}  # processes with a wrong wall clock
        self._quiet_until, self._quiet_since = sim.now, sim.now - QUIET
        self._kinds: tuple[Callable[[Process], Mend | None], ...] = (
            self._crash,
            self._crash,
            self._pause,
            self._cut_off,
            self._cut_links,
            self._hold_back,
            self._halve,
            self._lose,
            self._slow,
            self._wipe,
            self._set_wall_clock,
        )
        self._leave_out(1 - world.draw.kinds)

    def _leave_out(self, part: float) -> None:
        """Disable a fraction of the fault kinds, because some faults hide bugs."""
        kinds = list(dict.fromkeys(self._kinds))
        left_out = self.sim.rng.sample(kinds, round(part * len(kinds)))
        self._kinds = tuple(kind for kind in self._kinds if kind not in left_out)

    def begin(self) -> None:
        self.sim.call(self.sim.rng.uniform(0.0, 2 * self.draw.every), self._strike)

    def _strike(self) -> None:
        if self.over:
            return
        self.begin()
        rng, victims = self.sim.rng, list(self.world.processes.values())
        strike, victim = rng.choice(self._kinds), rng.choice(victims)
        if not self.strikes and rng.random() < 0.5:
            strike = self._wipe  # quiet periods become rare later in the storm
        elif self.draw.habits.age and rng.random() < 0.4:
            strike, victim = self._set_wall_clock, self._leader(rng.choice(AGING)) or victim
        if len(self._mends) >= self.draw.at_once or victim.me in self._mends or not victim.alive:
            return
        if self.sim.now < self._quiet_until:
            return
        mend = strike(victim)
        if mend is not None:
            kind = strike.__name__.removeprefix("_")
            self.strikes[kind] = self.strikes.get(kind, 0) + 1
            self._mends[victim.me] = mend
            lasting = QUIET if strike == self._wipe else self.draw.lasting
            self.sim.call(rng.uniform(0.2, lasting), lambda: self._mend(victim.me))

    def _leader(self, topic: str) -> Process | None:
        """Return the process whose replica leads the topic's rightful group, or None."""
        owner = self.world.nearest(topic)
        for process in self.world.processes.values():
            parts = process.replicas.get(owner)
            if process.alive and parts is not None and parts.service.leading:
                return process
        return None

    def _mend(self, victim: NodeId) -> None:
        if victim in self._mends:
            self._mends.pop(victim)()
            self._quiet_since = self.sim.now

    def calm(self) -> None:
        self.over = True
        for victim in list(self._mends):
            self._mend(victim)
        self.sim.weather.set(loss=0.0, duplication=0.0)

    # -- processes --

    def _crash(self, victim: Process) -> Mend:
        victim.crash()
        return victim.restart

    def _pause(self, victim: Process) -> Mend:
        stopped = [node for node in victim.nodes() if self.sim.nodes[node].stack is not None]
        for node in stopped:
            self.sim.pause(node)

        def resume() -> None:
            for node in stopped:
                if self.sim.nodes[node].paused:
                    self.sim.resume(node)

        return resume

    def _wipe(self, victim: Process) -> Mend | None:
        found = [group for group in victim.seats if self._may_wipe(victim, group)]
        if not found or self._mends or self.sim.now < self._quiet_since + QUIET:
            return None
        self._quiet_until = self.sim.now + 2 * QUIET
        group = self.sim.rng.choice(found)
        self._wiped[group] = None
        victim.lose_disk(group)
        return victim.restart

    def _may_wipe(self, victim: Process, group: str) -> bool:
        """Return whether the group has a leader and enough replicas, all of them running."""
        if group == victim.group or group in self._wiped or self.draw.replicas < 3:
            return False
        for process in self.world.processes.values():
            parts = process.replicas.get(group)
            if process.alive and parts is not None and parts.service.leading:
                nodes = parts.service.group.nodes()
                running = [each for each in nodes if self.sim.nodes[each].stack is not None]
                return len(running) == len(nodes) >= self.draw.replicas
        return False

    def _set_wall_clock(self, victim: Process) -> Mend | None:
        """Set one wall clock wrong, unless a majority of a group would then be wrong.

        A group with a single replica has the right clock when it starts. Later its clock only
        jumps far, because the group follows each jump of less than a step.
        """
        if not all(self._may_be_wrong(victim, group) for group in victim.seats):
            return None
        usual = victim.wall_ahead
        few = self.sim.rng.uniform(-10.0, 10.0) * self.draw.habits.clock_step
        ahead = self.sim.rng.choice((YEAR, -YEAR, HOUR, -HOUR, few))
        if ahead == few and any(len(self._replicas(group)) <= 1 for group in victim.seats):
            ahead = HOUR
        self._wrong[victim.me] = None
        victim.set_wall_clock(usual + ahead)

        def right() -> None:
            del self._wrong[victim.me]
            victim.set_wall_clock(usual)

        return right

    def _may_be_wrong(self, victim: Process, group: str) -> bool:
        replicas = self._replicas(group)
        if len(replicas) <= 1:
            return self._has_the_time(victim, group)
        wrong = sum(node.partition("/")[0] in self._wrong for node in replicas)
        return 2 * (wrong + 1) <= len(replicas)

    def _replicas(self, group: str) -> tuple[NodeId, ...]:
        """Return the group's replicas in the latest state that any of them has applied."""
        groups = [
            process.replicas[group].service.group
            for process in self.world.processes.values()
            if group in process.replicas
        ]
        return max(groups, key=lambda each: each.applied).nodes() if groups else ()

    def _has_the_time(self, victim: Process, group: str) -> bool:
        parts = victim.replicas.get(group)
        return parts is not None and parts.service.machine.registry.clock.trusted > 0

    # -- the network --

    def _cut_off(self, victim: Process) -> Mend:
        fronts = self.sim.partition(victim.nodes())
        return lambda: self.sim.repair(fronts)

    def _cut_links(self, victim: Process) -> Mend:
        """Cut the links between the victim and some processes. Indirect paths remain."""
        others = [each for each in self.world.processes.values() if each is not victim]
        some = self.sim.rng.sample(others, self.sim.rng.randint(1, max(1, len(others) // 2)))
        there = [node for each in some for node in each.nodes()]
        sides = (victim.nodes(), there) if self.sim.rng.random() < 0.5 else (there, victim.nodes())
        fronts = self.sim.partition(*sides, one_way=self.sim.rng.random() < 0.3)
        return lambda: self.sim.repair(fronts)

    def _hold_back(self, victim: Process) -> Mend:
        """Hold messages from the victim, and sometimes to it, until the fault ends."""
        fronts = self.sim.hold(victim.nodes(), one_way=self.sim.rng.random() < 0.5)
        return lambda: self.sim.repair(fronts)

    def _halve(self, victim: Process) -> Mend:
        """Cut off half of the processes from the other half and from all clients."""
        processes = list(self.world.processes.values())
        self.sim.rng.shuffle(processes)
        half = processes[: len(processes) // 2]
        fronts = self.sim.partition([node for each in half for node in each.nodes()])
        return lambda: self.sim.repair(fronts)

    def _lose(self, victim: Process) -> Mend:
        self.sim.weather.set(loss=0.05, duplication=0.05)
        return lambda: self.sim.weather.set(loss=0.0, duplication=0.0)

    def _slow(self, victim: Process) -> Mend:
        fronts = self.sim.slow(victim.nodes(), extra=0.1)
        return lambda: self.sim.repair(fronts)
