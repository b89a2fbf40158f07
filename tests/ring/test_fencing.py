"""A second reader of a subscription, at another ring process, fences the first reader."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from oncecast.client.session import local
from oncecast.kernel.protocol import NodeId, Value
from oncecast.lab.scenarios.paxos_clients import Client
from oncecast.lab.scenarios.ring_world import RingWorld
from oncecast.simulator.simulated import Simulation
from oncecast.wire import batch
from oncecast.wire import commands as do

TOPIC, SUBSCRIPTION = "topic", "shared"
READY, ENDS = 5.0, 12.0  # virtual seconds
PUT_EVERY = 0.05
EARLIER, LATER, WRITER = "earlier", "later", "writer"


class Writer(Client):
    def begin(self) -> None:
        self.tickets = 0
        self.put()

    def put(self) -> None:
        self.tickets += 1
        packed = batch.encode([b"%d" % self.tickets], timestamps=1)
        self.ask(local.Produce(self.tickets, TOPIC, 1, packed))
        self.soon(PUT_EVERY, self.put)


class Reader(Client):
    """Reads by push, and records the messages that its application gets."""

    def __init__(self, sim: Simulation, name: str, nodes: list[NodeId]) -> None:
        self.delivered: dict[int, bool] = {}  # offset and redelivered mark of each message
        self.ended: list[Value] = []
        super().__init__(sim, name, nodes, crashes=False)

    def begin(self) -> None:
        self.ask(local.Do(1, do.Subscribe(TOPIC, SUBSCRIPTION, do.FromEarliest(), 0)))

    def hear(self, event: Value) -> None:
        match event:
            case local.Finished(1):
                self.ask(local.Read(TOPIC, SUBSCRIPTION, push=True))
            case local.Arrived(_, _, messages):
                for message in messages:
                    self.delivered[message.offset] = message.redelivered
                    reached = message.offset + 1
                    self.ask(local.Want(TOPIC, SUBSCRIPTION, reached, 0))
            case local.Ended():
                self.ended.append(event)
            case _:
                pass


def scenario(seed: int) -> tuple[Reader, Reader]:
    """Let a second reader take over at another process, while a writer puts messages."""
    clients: dict[NodeId, Client] = {}

    def hear(node: NodeId, event: Value) -> None:
        world.hear(node, event)
        if node in clients:
            clients[node].soon(0.0, reported(clients[node], event))

    sim = Simulation(seed, listener=hear)
    world = RingWorld(sim)
    world.found(3)
    sim.run(until=READY)
    processes = list(world.processes)
    earlier = Reader(sim, EARLIER, processes[:1])
    clients[earlier.me] = earlier
    sim.run(until=sim.now + 1.0)
    writer = Writer(sim, WRITER, processes[1:2], crashes=False)
    clients[writer.me] = writer
    sim.run(until=sim.now + 2.0 + sim.rng.random())
    later = Reader(sim, LATER, processes[2:])
    clients[later.me] = later
    sim.run(until=ENDS)
    return earlier, later


def reported(client: Client, event: Value) -> Callable[[], None]:
    return lambda: client.hear(event)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_new_reader_gets_the_fenced_reader_messages_marked_as_redelivered(seed: int) -> None:
    """SVC-3 SVC-8: the fenced reader gets no messages put after the takeover."""
    earlier, later = scenario(seed)
    assert earlier.ended
    assert len(later.delivered) > len(earlier.delivered) > 1.0 / PUT_EVERY
    both = [offset for offset in earlier.delivered if offset in later.delivered]
    assert both
    assert all(later.delivered[offset] for offset in both), [
        offset for offset in both if not later.delivered[offset]
    ]
