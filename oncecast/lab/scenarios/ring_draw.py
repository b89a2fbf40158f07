"""The settings that a seed draws for a ring. The module `draw` draws the settings of a group."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import msgspec

from oncecast.lab.scenarios import draw as drawing
from oncecast.lab.scenarios.draw import Habits
from oncecast.node.assemble_ring import RingOptions
from oncecast.replication.options import GroupOptions
from oncecast.simulator.latency import Latency
from oncecast.simulator.simnode import SEGMENT_BYTES
from oncecast.simulator.simulated import SSD
from oncecast.simulator.weather import LAN
from oncecast.wire.retention import Policy

FAST = GroupOptions(
    heartbeat=0.1,
    suspicion=0.5,
    drift=0.25,
    resend=0.06,
    replace_after=3.0,
    compare_every=2.0,
    unclaimed_after=1.0,
)
RING = RingOptions(
    stabilize_every=0.25,
    answer_within=0.2,
    shuffle_every=1.0,
    heartbeat_every=0.5,
    gossip_every=0.2,
    gone_after=2.0,
)
KEEPING = (
    Policy(),
    Policy(keep_all=True),
    Policy(gossip=True),
    Policy(gossip=True, keep_all=True),
    Policy(age_us=400_000),
    Policy(bytes_max=500),
    Policy(age_us=400_000, bytes_max=300, gossip=True),
)
PROCESSES_MIN = 3
SLOT_SECONDS = 0.3  # seconds allowed per put if each put waits for the previous one
MANY = 25  # number of topics in the few runs with many topics
# Maximum operations per roaming client; few, because the history check is a search.
OPERATIONS_MAX = 60


class RingDraw(msgspec.Struct, frozen=True):
    """All settings of a run. The defaults give the same ring for all seeds."""

    processes: int = 4  # number of processes at the start
    early: bool = False  # whether clients start before the ring has formed
    joins: int = 1
    leaves: int = 0
    seconds: float = 12.0  # duration of the storm, in seconds
    topics: int = 5  # number of topics whose publishers and subscribers are checked
    # Assigned to the topics in turn.
    policies: tuple[Policy, ...] = (Policy(gossip=True, keep_all=True), Policy())
    habits: Habits = Habits()
    options: tuple[GroupOptions, ...] = (FAST,)  # assigned to the processes in turn
    ring: RingOptions = RING
    pull_bytes: int = 800  # maximum bytes per pull; so few that a move takes several rounds
    little_bytes: int = 400
    channel_bytes: int = 8 << 20  # maximum bytes that a process buffers per topic that it pushes
    wall: float = 0.0  # maximum seconds between a wall clock and the true time
    segment_bytes: int = SEGMENT_BYTES
    network: Latency = LAN
    fifo: bool = False  # whether messages between two nodes stay in order, as on a connection
    disk: Latency = SSD
    keepalive: float = 3.0
    every: float = 0.9  # mean seconds between faults
    lasting: float = 3.0  # maximum duration of a fault in seconds
    at_once: int = 2  # maximum number of simultaneous faults
    kinds: float = 1.0  # fraction of the fault kinds that can occur

    def options_of(self, index: int) -> GroupOptions:
        return self.options[index % len(self.options)]

    @property
    def replicas(self) -> int:
        return self.ring.replicas

    @property
    def drift(self) -> float:
        return self.options[0].drift

    @property
    def patience(self) -> float:
        """Return the seconds of calm within which all pending work must complete."""
        suspicion = max(options.suspicion for options in self.options)
        replace_after = max(options.replace_after for options in self.options)
        ring = 4 * self.ring.gone_after + 10 * self.ring.stabilize_every
        habits = self.habits
        slots = self.topics * habits.puts + habits.roamers * habits.rate * self.seconds
        return 30.0 + 12 * suspicion + 4 * replace_after + ring + SLOT_SECONDS * slots


def draw(seed: int, nodes: int) -> RingDraw:
    rng = Random(f"{seed}/{nodes}/ring")
    processes = draw_processes(rng, nodes)
    replicas = drawing.weighted(rng, {1: 1, 2: 1, 3: 7, 5: 1})
    options = draw_options(rng, processes, replicas)
    seconds = drawing.rounded(rng.uniform(*drawing.weighted(rng, SECONDS)))
    topics = MANY if rng.random() < 0.05 else rng.randint(0, 3)
    habits = draw_habits(rng, seconds, topics)
    return RingDraw(
        processes=processes,
        early=rng.random() < 0.3,
        joins=rng.choice((0, 1, 1, 2, 3)),
        leaves=rng.choice((0, 0, 1, 1, 2)) if processes > replicas else 0,
        seconds=seconds,
        topics=topics,
        policies=tuple(rng.sample(KEEPING, rng.randint(1, 3))),
        habits=habits,
        options=options,
        ring=draw_ring(rng, replicas),
        pull_bytes=drawing.scaled(rng, 1, 4000),
        little_bytes=drawing.scaled(rng, 1, 4000),
        channel_bytes=drawing.scaled(rng, 100, 1 << 20),
        # A single wrong clock is noticed only if the other clocks agree.
        wall=rng.choice((0.0, 0.5) if habits.age else (0.0, 0.5, 60.0, 86400.0)),
        segment_bytes=rng.choice((1 << 10, 1 << 12, 1 << 14, 1 << 16)),
        network=drawing.weighted(rng, drawing.NETWORKS),
        fifo=rng.random() < 0.2,
        disk=drawing.weighted(rng, drawing.DISKS),
        keepalive=drawing.rounded(rng.uniform(1.0, 3.0)),
        every=drawing.log_uniform(rng, 0.3, 1.5),
        lasting=drawing.log_uniform(rng, 0.5, 3.0),
        at_once=rng.choice((0, 1, 2, 2, 2)),
        kinds=rng.choice((1.0, 1.0, 0.5, 0.25)),
    )


SECONDS = {(1.5, 4.0): 70, (4.0, 10.0): 26, (10.0, 30.0): 4}


def draw_processes(rng: Random, nodes: int) -> int:
    """Return a number of processes. Small rings are cheap, and all processes are neighbours."""
    few = min(nodes, PROCESSES_MIN + 2)
    return rng.randint(PROCESSES_MIN, few if rng.random() < 0.8 else nodes)


def draw_habits(rng: Random, seconds: float, topics: int) -> Habits:
    habits = drawing.draw_habits(rng, seconds)
    return msgspec.structs.replace(
        habits,
        puts=2 if topics == MANY else habits.puts,
        rate=drawing.rounded(min(habits.rate, OPERATIONS_MAX / seconds)),
        # Longer than most storms, so that a message that is removed too early reveals a wrong
        # clock.
        age=rng.choice((0.0, 0.0, habits.clock_step + 5.0)),
    )


def draw_options(rng: Random, processes: int, replicas: int) -> tuple[GroupOptions, ...]:
    options = drawing.draw_options(rng)
    differ = rng.random() < 0.4
    found = drawing.draw_apart(rng, options, processes) if differ else (options,)
    ahead = rng.choice(drawing.AHEAD)
    return tuple(replace(each, size=replicas, ahead_min=ahead) for each in found)


def draw_ring(rng: Random, replicas: int) -> RingOptions:
    gossip_every = drawing.log_uniform(rng, 0.1, 0.5)
    return RingOptions(
        replicas=replicas,
        stabilize_every=drawing.log_uniform(rng, 0.15, 1.0),
        answer_within=drawing.log_uniform(rng, 0.15, 0.6),
        shuffle_every=drawing.log_uniform(rng, 0.5, 3.0),
        heartbeat_every=drawing.log_uniform(rng, 0.3, 1.0),
        gossip_every=gossip_every,
        gone_after=drawing.rounded(gossip_every * rng.uniform(6.0, 15.0)),
    )
