"""A simulated group of nodes with either queue implementation."""

from __future__ import annotations

from collections.abc import Callable

from oncecast.coordination.protocols.events import Dequeue, Dequeued, Enqueue, Withdraw
from oncecast.coordination.protocols.fifo_queue import FifoQueue
from oncecast.coordination.protocols.paxos_queue import PaxosQueue
from oncecast.kernel.protocol import NodeId, Value
from oncecast.lab.scenarios.queue import fifo_stack, paxos_stack, queue_of
from oncecast.simulator.simulated import Build, Simulation

MAKES: dict[str, Callable[[list[NodeId]], Build]] = {"fifo": fifo_stack, "paxos": paxos_stack}
JOBS = "jobs"


class QueueGroup:
    def __init__(self, make: str, count: int = 3, *, seed: int = 1, settle: float = 2.0) -> None:
        self.sim = Simulation(seed, fifo=True, listener=self._hear)
        self.names = [NodeId(f"n{index}") for index in range(count)]
        self.answers: dict[int, tuple[NodeId, bytes | None]] = {}
        self.tickets = 0
        for name in self.names:
            self.sim.add(name, MAKES[make](self.names))
        self.run(settle)

    def _hear(self, node: NodeId, event: Value) -> None:
        if isinstance(event, Dequeued):
            assert event.ticket not in self.answers
            self.answers[event.ticket] = node, event.data

    def run(self, seconds: float = 3.0) -> None:
        self.sim.run(until=self.sim.now + seconds)

    def put(self, node: int, *data: bytes, queue: str = JOBS) -> None:
        for each in data:
            self.sim.ask(self.names[node], Enqueue(queue, each))

    def take(self, node: int, *, wait: bool = False, queue: str = JOBS) -> int:
        self.tickets += 1
        self.sim.ask(self.names[node], Dequeue(queue, self.tickets, wait))
        return self.tickets

    def withdraw(self, node: int, ticket: int) -> None:
        self.sim.ask(self.names[node], Withdraw(JOBS, ticket))

    def lengths(self) -> list[int]:
        found = []
        for node in self.sim.alive():
            queue = queue_of(self.sim, node)
            assert isinstance(queue, FifoQueue | PaxosQueue)
            found.append(queue.length(JOBS))
        return found

    def taken(self) -> list[bytes]:
        return sorted(data for _, data in self.answers.values() if data is not None)
