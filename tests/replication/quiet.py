"""Three replicas on simulated disks, without random faults."""

from __future__ import annotations

from random import Random

from oncecast.errors import Corrupt
from oncecast.kernel.protocol import NodeId
from oncecast.kernel.stack import Stack
from oncecast.lab.scenarios.draw import FAST
from oncecast.lab.scenarios.paxos_checks import Rules, replica
from oncecast.lab.scenarios.paxos_history import GroupHistory
from oncecast.lab.scenarios.paxos_ledger import Ledger, Put, Scrub
from oncecast.replication.options import GroupOptions
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import Config, Member
from oncecast.simulator.disk import SimulatedDisk
from oncecast.simulator.simulated import Simulation
from oncecast.storage.segment import Segment, serials
from oncecast.storage.store import Block

NODES = [NodeId("n0"), NodeId("n1"), NodeId("n2")]
FOUNDERS = Config(1, tuple(Member(node, 1) for node in NODES), 3)


class Reader(Ledger):
    """A ledger that records the last read error and continues."""

    read_error: Corrupt | None = None

    def timeout(self, timer: Scrub) -> None:
        try:
            super().timeout(timer)
        except Corrupt as error:
            self.read_error = error
            self.later(0.5, timer)


def paxos_of(sim: Simulation, node: NodeId) -> Paxos:
    stack = sim.nodes[node].stack
    assert stack is not None, f"{node} is down"
    lowest = stack.protocols[0]
    assert isinstance(lowest, Paxos)
    return lowest


class Quiet:
    def __init__(self, seed: int = 1, options: GroupOptions = FAST) -> None:
        self.options = options
        self.sim = Simulation(seed)
        self.sim.check(Rules(GroupHistory(FOUNDERS)))
        self.sequence = 0
        for node in NODES:
            self.sim.add(node, self.build, durable=True)
        self.run(3.0)

    def build(self, me: NodeId, rng: Random) -> Stack:
        paxos = Paxos(me, rng, options=self.options, founders=FOUNDERS, incarnation=1)
        ledger = Reader(me, rng, paxos)
        paxos.attach(ledger)
        return Stack([paxos, ledger])

    def run(self, seconds: float) -> None:
        self.sim.run(until=self.sim.now + seconds)

    def paxos(self, node: NodeId) -> Paxos:
        return paxos_of(self.sim, node)

    def ledger(self, node: NodeId) -> Reader:
        ledger = self.paxos(node).learner.machine
        assert isinstance(ledger, Reader)
        return ledger

    @property
    def leader(self) -> NodeId:
        alive = [node for node in NODES if replica(self.sim, node) is not None]
        (leader,) = [node for node in alive if self.ledger(node).leading]
        return leader

    def put(self, *payloads: bytes, pause: float = 0.3) -> list[int]:
        """Put the payloads, with a pause after each, and return their slots."""
        for payload in payloads:
            self.sim.ask(self.leader, Put(0, self.sequence, payload))
            self.sequence += 1
            self.run(pause)
        self.run(0.3)
        return [slot for slot, _ in self.ledger(self.leader).kept][-len(payloads) :]

    def files(self, node: NodeId) -> bytes:
        disk = self.sim.nodes[node].disk
        assert disk is not None
        return b"".join(
            disk.open(name).read(0, 1 << 30) for name in disk.names() if name.endswith(".log")
        )

    def flip(self, node: NodeId, slot: int) -> None:
        """Flip one bit of the record that holds this slot."""
        self.flip_record(node, self._record(node, slot))

    def flip_record(self, node: NodeId, number: int) -> None:
        name, end = self._end_of(node, number)
        self._disk(node).flip(name, end - 1, 3)

    def lose(self, node: NodeId, slot: int) -> None:
        """Make the end of the record that holds this slot unreadable."""
        name, end = self._end_of(node, self._record(node, slot))
        self._disk(node).lose(name, end - 1)

    def _record(self, node: NodeId, slot: int) -> int:
        number = self.paxos(node).state.values.index.get(slot)
        assert number is not None
        return number

    def _disk(self, node: NodeId) -> SimulatedDisk:
        disk = self.sim.nodes[node].disk
        assert disk is not None
        return disk

    def _end_of(self, node: NodeId, number: int) -> tuple[str, int]:
        """Return the file of a record, and the end of its block."""
        disk = self._disk(node)
        for serial in serials(disk):
            segment = Segment(disk, serial)
            for block in segment.walk():
                if isinstance(block, Block) and block.first <= number < block.first + block.records:
                    return segment.name, block.end
        raise AssertionError(f"record {number} is not on the disk of {node}")

    def restart(self, *nodes: NodeId) -> None:
        for node in nodes:
            self.sim.crash(node)
        for node in nodes:
            self.sim.restart(node)
