"""Ring repair after some nodes fail, and topic distribution (EXP-4, EXP-5).

repair   how many members have the correct successor and fingers, over time
place    how many topics each node owns, computed without sending messages
"""

from __future__ import annotations

from random import Random

from oncecast.dht.chord import Chord
from oncecast.dht.identifiers import BITS, finger_start, key_of, up_to
from oncecast.dht.status import MemberStatus
from oncecast.kernel.protocol import NodeId
from oncecast.kernel.stack import Stack
from oncecast.lab.experiments.runs import Note, Run, Scale
from oncecast.lab.scenarios.chord import members_of
from oncecast.lab.scenarios.chord_steady import Steady
from oncecast.simulator.simulated import Simulation

REPAIR, OWNERSHIP = "repair", "place"  # the trace directories are named "place"
REPAIR_SIZES = {30: 5, 1000: 1}  # number of seeds for each number of nodes
REPAIR_SHARES = (0.1, 0.3, 0.5, 0.7)
REPAIR_SECONDS = 40.0
LOOK_EVERY = 0.5

SOURCE_SIZES = (10, 20, 30)
SOURCE_TOPICS = 30
LARGER = (100, 1000, 3000, 10_000)
POSITIONS = (1, 20)
OWNERSHIP_SEEDS = {**dict.fromkeys(SOURCE_SIZES, 100), 100: 50, 1000: 10, 3000: 5, 10_000: 3}
EVEN = "even"  # the baseline, which assigns each topic to a random node


# -- repair --


def repair_runs(scale: Scale) -> list[Run]:
    return [
        Run(REPAIR, "chord", nodes, share=share, seed=seed)
        for nodes, count in REPAIR_SIZES.items()
        if nodes <= scale.nodes_max
        for share in REPAIR_SHARES
        for seed in scale.seeds(count)
    ]


def repair(run: Run, note: Note) -> None:
    """Write rows `successors` and `fingers`, with the fraction that is correct among survivors."""
    names = [NodeId(f"n{run.seed}-{index}") for index in range(run.nodes)]
    steady, sim = Steady.of(names), Simulation(run.seed)
    for name in names:
        sim.add(name, lambda me, rng: Stack([Chord(me, rng, members=steady.members(me))]))
    sim.run(until=3.0)
    for node in sim.rng.sample(names, round(run.share * run.nodes)):
        sim.crash(node)
    alive, failure = Steady.of(sim.alive()), sim.now
    for step in range(round(REPAIR_SECONDS / LOOK_EVERY) + 1):
        sim.run(until=failure + step * LOOK_EVERY)
        members = members_of(sim)
        right = sum(knows_successor(member, alive) for member in members)
        fingers = [each for member in members for each in fingers_right(member, alive)]
        note(sim.now - failure, "successors", "", "", right / len(members))
        note(sim.now - failure, "fingers", "", "", sum(fingers) / max(1, len(fingers)))


def knows_successor(member: MemberStatus, alive: Steady) -> bool:
    behind = alive.owner(finger_start(member.position.id, 0))
    return bool(member.successors) and member.successors[0] == behind


def fingers_right(member: MemberStatus, alive: Steady) -> list[bool]:
    """Return a list that tells which fingers beyond the successor point to the correct node."""
    me, found = member.position.id, []
    head = alive.owner(finger_start(me, 0)).id
    for index in range(BITS - 1, -1, -1):
        start = finger_start(me, index)
        if up_to(me, start, head):
            break
        found.append(member.fingers.get(index) == alive.owner(start))
    return found


# -- ownership --


def ownership_runs(scale: Scale) -> list[Run]:
    sizes = [(nodes, SOURCE_TOPICS) for nodes in SOURCE_SIZES]
    sizes += [(nodes, 3 * nodes) for nodes in LARGER]  # as many topics per node as with ten nodes
    return [
        Run(OWNERSHIP, system, nodes, topics, positions, seed=seed)
        for nodes, topics in sizes
        if nodes <= scale.nodes_max
        for system, positions in (*(("chord", count) for count in POSITIONS), (EVEN, 1))
        for seed in scale.seeds(OWNERSHIP_SEEDS[nodes])
    ]


def ownership(run: Run, note: Note) -> None:
    """Write a row `owns` for each node, with the number of its topics."""
    names = [NodeId(f"n{run.seed}-{index}") for index in range(run.nodes)]
    owned = dict.fromkeys(names, 0)
    dice = Random(f"{run.seed}/even")
    steady = Steady.of(names, positions_count=run.positions)
    for number in range(run.messages):
        key = key_of(f"topic {run.seed}-{number}")
        owned[dice.choice(names) if run.system == EVEN else steady.owner(key).node] += 1
    for node, count in owned.items():
        note(0.0, "owns", node, "", count)
