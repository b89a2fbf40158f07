"""The whole service in a storm: clients, gateways, brokers and their replica group.

Each seed draws its own service (see `service_draw`). One to five nodes serve clients that put,
read, seek, reject, stage, delete and crash. Some clients share names and follow each other
immediately. Meanwhile nodes crash, links are cut, clocks are wrong and disks are damaged. Then the
faults stop.

At the end, each message is stored once and in order, and each client knows the outcome of its puts.
All answers together are linearizable (SVC-2, SVC-3, SVC-8, SVC-10, SVC-13).

This is the storm of `paxos` with other settings. It does not check the rules within the group.
"""

from __future__ import annotations

from functools import partial

from oncecast.lab.scenarios.paxos import Campaign
from oncecast.lab.scenarios.paxos_history import CLIENT
from oncecast.lab.scenarios.paxos_ledger import Top
from oncecast.lab.scenarios.paxos_storm import GroupStorm
from oncecast.lab.scenarios.scenario import Figures, Scenario
from oncecast.lab.scenarios.service_draw import ServiceDraw, draw
from oncecast.lab.scenarios.sessions import WATCHER, Sessions
from oncecast.simulator.simulated import Simulation


def play(sim: Simulation, nodes: int) -> Figures:
    return play_drawn(sim, draw(sim.seed, nodes))


def play_drawn(sim: Simulation, drawn: ServiceDraw) -> Figures:
    set_up(sim, drawn)
    sessions = Sessions(sim, drawn.habits)
    campaign = Campaign(sim, drawn.nodes, sessions, drawn, spares=drawn.spares, rules=False)
    storm = begin(sim, drawn, campaign)
    run_storm(sim, drawn, sessions, storm)
    campaign.settle(storm)
    return figures(drawn, campaign, sessions, storm)


def set_up(sim: Simulation, drawn: ServiceDraw) -> None:
    """Configure the disks and the network of a run."""
    sim.keepalive = drawn.keepalive
    sim.segment_bytes = drawn.segment_bytes
    sim.sync_latency = drawn.disk.bind(sim.rng)
    sim.weather.set(latency=drawn.network, fifo=drawn.fifo)


def begin(sim: Simulation, drawn: ServiceDraw, campaign: Campaign) -> GroupStorm:
    """Start the nodes and the faults, and return the storm."""
    storm = campaign.begin()
    for node in campaign.nodes:
        sim.set_wall_clock(node, ahead=sim.rng.uniform(-drawn.wall, drawn.wall))
    storm.begin()
    return storm


def run_storm(sim: Simulation, drawn: ServiceDraw, top: Top, storm: GroupStorm) -> None:
    """Start the clients, and stop the faults after the drawn number of seconds."""
    top.begin(sim, storm.leaders, drawn.seconds)
    if drawn.deposed:
        when = sim.rng.uniform(0.0, drawn.seconds - drawn.deposed)
        sim.call(when, lambda: depose(sim, storm, drawn.deposed))
    sim.run(until=sim.now + drawn.seconds)
    storm.calm()


def figures(
    drawn: ServiceDraw, campaign: Campaign, sessions: Sessions, storm: GroupStorm
) -> Figures:
    return {
        "nodes": drawn.nodes,
        "strikes": storm.strikes,
        "slots": campaign.history.last,
        "operations": len(sessions.histories.recorder.history),
        "messages": len(sessions.subscribers[0].seen),
    }


def depose(sim: Simulation, storm: GroupStorm, lasting: float) -> None:
    """Cut a leader with a slow clock off from its peers and from most clients.

    Clients that only read state still reach the leader, which must not show them stale state.
    """
    for leader in storm.leaders()[:1]:
        clients = [node for node in sim.alive() if node.startswith(CLIENT)]
        apart = [node for node in storm.nodes if node != leader]
        apart += [node for node in clients if sim.rng.random() < (0.2 if WATCHER in node else 0.8)]
        sim.skew(leader, rate=1 - storm.draw.drift)
        if apart:
            sim.call(lasting, partial(sim.repair, sim.partition([leader], apart)))


SERVICE = Scenario(
    "service",
    "the whole service with all kinds of clients, in a storm of faults",
    5,
    play,
    nodes_min=1,
    draw=draw,
)
