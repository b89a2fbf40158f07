"""A fraction of the nodes fails at once while messages are published (EXP-5).

The surviving nodes publish five messages per second before and after the failure. A message must
reach its surviving subscribers. Time 0 is the moment of the failure.
"""

from __future__ import annotations

from functools import partial

from oncecast.kernel.protocol import NodeId
from oncecast.lab.experiments.runs import Note, Run, Scale
from oncecast.lab.experiments.systems import SYSTEMS

SCENARIO = "failures"
BEFORE, AFTER = 5.0, 20.0  # seconds of publishing before and after the failure
EVERY = 0.2  # seconds between messages
SETTLE_SECONDS = 10.0
SHARES = (0.0, 0.1, 0.3, 0.5, 0.7)
SIZES = {20: 5, 200: 2, 1000: 1}  # number of seeds for each number of nodes


def runs(scale: Scale) -> list[Run]:
    return [
        Run(SCENARIO, system, nodes, round((BEFORE + AFTER) / EVERY), share=share, seed=seed)
        for nodes, count in SIZES.items()
        if nodes <= scale.nodes_max
        for system in SYSTEMS
        for share in SHARES
        for seed in scale.seeds(count)
    ]


def play(run: Run, note: Note) -> None:
    """Play a run and write these rows:

    - `publish`: a message and the number of its receivers
    - `delivery`: a message
    - `failed`: the number of failed nodes
    - `window`: the duration in seconds
    - the rows of the tally
    """

    def deliver(node: NodeId, payload: bytes) -> None:
        if node in survivors:
            note(system.sim.now - failure, "delivery", node, payload.decode(), 1.0)

    def publish() -> None:
        node = sim.rng.choice(publishers)
        payload, topic = system.publish_any(node)
        owed = sum(each in survivors for each in system.subscribers[topic])
        note(sim.now - failure, "publish", node, payload.decode(), owed)

    system = SYSTEMS[run.system](run, deliver)
    system.subscribe_all()
    sim, tally = system.sim, system.tally
    tally.counting = True
    # All nodes joined through the first node. If any nodes fail, this node fails too.
    contact, *others = system.names
    count = round(run.share * run.nodes)
    victims = [contact, *sim.rng.sample(others, count - 1)] if count else []
    survivors = dict.fromkeys(node for node in system.names if node not in victims)
    publishers = list(survivors)
    began, failure = sim.now, sim.now + BEFORE
    for number in range(run.messages):
        sim.call((number + sim.rng.random()) * EVERY, publish)
    sim.call(BEFORE, partial(system.crash, victims))
    sim.run(until=failure + AFTER + SETTLE_SECONDS)
    note(0.0, "failed", "", "", count)
    note(sim.now - failure, "window", "", "", sim.now - began)
    tally.tell(sim.now - failure, note)
