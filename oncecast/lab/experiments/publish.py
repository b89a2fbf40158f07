"""Publishing without faults: cost, latency and load of each node (EXP-1 to EXP-3).

As in the original study, all nodes publish at the same rate to random topics out of thirty. Each
node subscribes to some topics. The ring and the trees are built before the first message. Counting
starts with that message.
"""

from __future__ import annotations

from functools import partial

from oncecast.kernel.protocol import NodeId
from oncecast.lab.experiments.runs import Note, Run, Scale
from oncecast.lab.experiments.systems import SYSTEMS

SCENARIO = "publish"
EVERY = 0.2  # seconds between a node's messages
SECONDS_LARGE = 5.0  # seconds of publishing in larger systems, where each node sends few messages
SETTLE_SECONDS = 5.0

SOURCE_NODES = 20
SOURCE_PUBLISHES = (10, 25, 50, 75)  # messages per node
SOURCE_SIZES = (10, 20, 30)
SIZES_PUBLISHES = 20
LARGER = {100: 300, 300: 200, 1000: 100, 3000: 50}  # total messages for each number of nodes
BROADCAST_MAX = 1000  # maximum nodes of a broadcast system; larger systems would run for minutes
SEEDS, SEEDS_LARGE = 3, 1


def runs(scale: Scale) -> list[Run]:
    """Return the runs of the original study, several times each, and larger runs."""
    small = [(SOURCE_NODES, SOURCE_NODES * each) for each in SOURCE_PUBLISHES]
    small += [(nodes, nodes * SIZES_PUBLISHES) for nodes in SOURCE_SIZES]
    sizes = [(*size, SEEDS) for size in small]
    sizes += [(nodes, messages, SEEDS_LARGE) for nodes, messages in LARGER.items()]
    return [
        Run(SCENARIO, system, nodes, messages, seed=seed)
        for nodes, messages, count in sizes
        if nodes <= scale.nodes_max
        for system in SYSTEMS
        if system == "scribe" or nodes <= BROADCAST_MAX
        for seed in scale.seeds(count)
    ]


def play(run: Run, note: Note) -> None:
    """Play a run and write these rows:

    - `publish`: a message and the number of its receivers
    - `delivery`: a message
    - `window`: the duration in seconds
    - the rows of the tally
    """

    def deliver(node: NodeId, payload: bytes) -> None:
        note(system.sim.now - began, "delivery", node, payload.decode(), 1.0)

    def publish(node: NodeId) -> None:
        payload, topic = system.publish_any(node)
        owed = len(system.subscribers[topic])
        note(system.sim.now - began, "publish", node, payload.decode(), owed)

    system = SYSTEMS[run.system](run, deliver)
    system.subscribe_all()
    sim, tally = system.sim, system.tally
    tally.counting = True
    began = sim.now
    seconds = SECONDS_LARGE if run.nodes in LARGER else run.messages / run.nodes * EVERY
    for number in range(run.messages):
        at = seconds * (number + sim.rng.random()) / run.messages
        sim.call(at, partial(publish, system.names[number % run.nodes]))
    sim.run(until=began + seconds + SETTLE_SECONDS)
    note(sim.now - began, "window", "", "", sim.now - began)
    tally.tell(sim.now - began, note)
