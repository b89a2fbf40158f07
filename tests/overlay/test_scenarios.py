"""Run whole clusters in the simulator with loss, duplicates, crashes, partitions and pauses."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.overlay import Delivered, Lost, Mesh, MessageId, Plumtree, Publish, Recovery
from oncecast.overlay.messages import Holding
from oncecast.simulator.latency import Uniform
from oncecast.simulator.simulated import Simulation

pytestmark = pytest.mark.long

# With a slow disk, crashes often fall between a write and its sync.
SLOW_DISK = Uniform(0.005, 0.05)
NODES = [NodeId(f"n{index}") for index in range(5)]


class Audience:
    """The applications of all nodes.

    Each application receives an id once, and all receive the same payload.
    """

    def __init__(self) -> None:
        self.heard: dict[NodeId, dict[MessageId, bytes]] = {node: {} for node in NODES}
        self.payloads: dict[MessageId, bytes] = {}
        self.lost: list[tuple[NodeId, Lost]] = []

    def __call__(self, node: NodeId, event: Value) -> None:
        match event:
            case Delivered(key, payload):
                assert key not in self.heard[node], f"{node}: {key} delivered twice"
                assert self.payloads.setdefault(key, payload) == payload, f"{key} used twice"
                self.heard[node][key] = payload
            case Lost():
                self.lost.append((node, event))
            case _:
                raise AssertionError(f"{node}: {event} is not for an application")


def cluster(
    seed: int,
    audience: Audience,
    *,
    loss: float = 0.0,
    duplication: float = 0.0,
    kept_max: int = 1000,
) -> Simulation:
    def build(me: NodeId, rng: Random) -> Stack:
        top = Recovery(me, rng, kept_max=kept_max, snapshot_every=50)
        return Stack([Mesh(me, rng, peers=NODES), Plumtree(me, rng), top])

    sim = Simulation(
        seed, loss=loss, duplication=duplication, sync_latency=SLOW_DISK, listener=audience
    )
    for node in NODES:
        sim.add(node, build, durable=True)
    return sim


def recovery(sim: Simulation, node: NodeId) -> Recovery:
    stack = sim.nodes[node].stack
    assert stack is not None, f"{node} is down: {sim.nodes[node].halted}"
    protocol = stack.protocols[-1]
    assert isinstance(protocol, Recovery)
    return protocol


def everything(sim: Simulation, node: NodeId) -> list[Holding]:
    return sorted(recovery(sim, node).inventory.holdings(), key=lambda each: each.origin)


def publish_every(sim: Simulation, seconds: float, *, start: float, end: float) -> None:
    """Let the nodes that are up publish in turn."""
    for index in range(int((end - start) / seconds)):
        ask = partial(sim.ask, NODES[index % len(NODES)], Publish(b"%d" % index))
        sim.call(start + index * seconds, ask)


def part(sim: Simulation, some: list[NodeId]) -> None:
    sim.partition(some)


def check_no_messages_are_missing(sim: Simulation, audience: Audience) -> None:
    """Check that every node has every delivered message, and no unpublished messages."""
    for node in NODES:
        held = recovery(sim, node).held
        assert held == recovery(sim, NODES[0]).held, f"{node} differs from {NODES[0]}"
        assert audience.payloads.items() <= held.items()
        # If a node crashes before its application receives a message, the message is only stored.
        assert audience.heard[node].items() <= held.items()
    assert audience.lost == []


@pytest.mark.parametrize("seed", range(8))
def test_crashes_and_partitions_neither_lose_nor_repeat_messages(seed: int) -> None:
    """NET-1 NET-3"""
    audience = Audience()
    sim = cluster(seed, audience, loss=0.1, duplication=0.05)
    publish_every(sim, 0.05, start=1.0, end=13.0)
    sim.call(4.0, partial(sim.bounce, NODES[1], away=2.0))
    sim.call(5.0, partial(part, sim, NODES[:2]))
    sim.call(7.0, partial(sim.bounce, NODES[4], away=0.1))
    sim.call(9.0, sim.repair)
    sim.run(until=30.0)
    check_no_messages_are_missing(sim, audience)
    assert len(recovery(sim, NODES[0]).held) > 200


@pytest.mark.parametrize("seed", range(8))
def test_delivered_messages_survive_if_all_nodes_crash(seed: int) -> None:
    """NET-1 NET-3"""
    audience = Audience()
    sim = cluster(seed, audience, loss=0.02)
    publish_every(sim, 0.02, start=1.0, end=9.0)
    for half in range(15):
        bounce = partial(sim.bounce, sim.rng.choice(NODES), away=0.2)
        sim.call(1.0 + half * 0.5 + sim.rng.random() * 0.2, bounce)
    sim.run(until=30.0)
    check_no_messages_are_missing(sim, audience)


def test_paused_node_catches_up_after_it_resumes() -> None:
    """NET-3"""
    audience = Audience()
    sim = cluster(1, audience)
    publish_every(sim, 0.05, start=1.0, end=11.0)
    sim.call(3.0, partial(sim.pause, NODES[2]))
    sim.call(15.0, partial(sim.resume, NODES[2]))
    sim.run(until=30.0)
    check_no_messages_are_missing(sim, audience)
    assert len(audience.heard[NODES[2]]) == len(audience.payloads)


def run_until_delivered(sim: Simulation, node: NodeId) -> None:
    """Run until the application on `node` has received all messages on its disk.

    A crash before that would lose a Delivered or a Lost event: both are emitted at most once.
    """
    while sim.nodes[node].gate.held:
        sim.run(until=sim.now + 0.001)


@pytest.mark.parametrize(
    "seed", [*range(3), 38]
)  # at seed 38, the node gives up just before its second crash
def test_node_offline_for_too_long_reports_each_loss_once_and_continues(seed: int) -> None:
    """NET-3"""
    audience, away = Audience(), NODES[3]
    sim = cluster(seed, audience, loss=0.02, kept_max=30)
    publish_every(sim, 0.05, start=1.0, end=21.0)
    for crash, restart in ((5.0, 11.0), (22.0, 23.0)):
        sim.run(until=crash)
        run_until_delivered(sim, away)
        sim.crash(away)
        sim.run(until=restart)
        sim.restart(away)
    sim.run(until=60.0)
    lost = [
        MessageId(event.origin, number)
        for node, event in audience.lost
        if node == away
        for number in range(event.first, event.last + 1)
    ]
    heard = set(audience.heard[away])
    assert len(lost) == len(set(lost)) > 0
    assert not heard & set(lost)
    assert heard | set(lost) == set(audience.payloads)
    tops = [
        [(each.origin, each.top, each.gaps) for each in everything(sim, node)] for node in NODES
    ]
    assert tops == [tops[0]] * len(NODES)
