"""A ring of replica groups in a storm, while processes join and leave and topics move.

Each seed draws its ring (see `ring_draw`). Clients connect to any process. While they publish and
subscribe, processes join, leave, crash, pause, lose a disk or are isolated, and topics move to new
owners. Then the faults stop. At the end, every subscriber has every message once and in order, and
all answers are linearizable (REP-4 to REP-6).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from oncecast.lab.scenarios.histories import Histories
from oncecast.lab.scenarios.ring_checks import Owners
from oncecast.lab.scenarios.ring_clients import Clients
from oncecast.lab.scenarios.ring_draw import RingDraw, draw
from oncecast.lab.scenarios.ring_storm import Trouble
from oncecast.lab.scenarios.ring_world import RingWorld, is_gone
from oncecast.lab.scenarios.scenario import Figures, Scenario
from oncecast.simulator.checkers import Violation
from oncecast.simulator.simulated import Simulation

LOOK_EVERY = 0.5  # seconds between checks for completion


def play(sim: Simulation, nodes: int) -> Figures:
    return play_drawn(sim, draw(sim.seed, nodes))


def play_drawn(sim: Simulation, drawn: RingDraw) -> Figures:
    sim.keepalive = drawn.keepalive
    sim.sync_latency = drawn.disk.bind(sim.rng)
    sim.segment_bytes = drawn.segment_bytes
    sim.weather.set(latency=drawn.network, fifo=drawn.fifo)
    world = RingWorld(sim, drawn)
    sim.listener = world.hear
    world.found(drawn.processes)
    if not drawn.early:
        settle(sim, world, lambda: True)
    begun = sim.now
    clients = Clients(sim, world)
    owners = Owners(sim, world, clients.topics)
    sim.check(Histories(), clients, owners)
    clients.begin(begun + drawn.seconds)
    trouble = Trouble(sim, world)
    trouble.begin()
    come_and_go(sim, world, clients.topics)
    sim.run(until=begun + drawn.seconds)
    trouble.calm()
    calm = sim.now
    clients.look_at_all()
    settle(sim, world, lambda: clients.done)
    clients.look_at_all()
    settle(sim, world, lambda: clients.done)
    searches = [p.parts.owner_lookup for p in world.processes.values() if p.parts is not None]
    return {
        "strikes": trouble.strikes,
        "moves": owners.moves,
        "groups": sum(not is_gone(each) for each in world.holdings().values()),
        "messages": sum(len(each[0].seen) for each in clients.subscribers.values()),
        "gaps": sum(p.parts.relay.filled for p in world.processes.values() if p.parts),
        "lookups": sum(each.searched for each in searches),
        "hops": sum(each.hops for each in searches),
        "formed_after": round(begun, 1),
        "calm_after": round(sim.now - calm, 1),
    }


def settle(sim: Simulation, world: RingWorld, done: Callable[[], bool]) -> None:
    """Run until the ring is complete and `done()` is true. Raise Violation if it takes too long."""
    patience = world.draw.patience
    limit = sim.now + patience
    while not (done() and world.settled()):
        if sim.now >= limit:
            raise Violation(f"the ring has not settled after {patience:.0f} s of calm")
        sim.run(until=sim.now + LOOK_EVERY)


def come_and_go(sim: Simulation, world: RingWorld, topics: list[str]) -> None:
    """Let processes join and leave next to the owners of the topics, at random times."""
    for happen, times in ((join, world.draw.joins), (leave, world.draw.leaves)):
        for _ in range(times):
            topic = sim.rng.choice(topics)
            when = sim.rng.uniform(0.0, world.draw.seconds)
            sim.call(when, partial(happen, world, topic))


def join(world: RingWorld, topic: str) -> None:
    world.add(world.sim.rng.choice(list(world.processes)), before=topic)


def leave(world: RingWorld, topic: str) -> None:
    owner = world.nearest(topic)
    for process in world.processes.values():
        if process.group == owner and process.alive:
            process.leave()


RING = Scenario(
    "ring",
    "a ring of replica groups with moving topics, publishers and subscribers, in a storm of faults",
    8,
    play,
    nodes_min=3,
    draw=draw,
)
