"""What a seed decides about a ring of groups before its storm begins; for a group `draw` does."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import msgspec

from oncecast.node.assemble_ring import RingOptions
from oncecast.pubsub.retention import Policy
from oncecast.replication.options import GroupOptions
from oncecast.runtime.latency import Latency
from oncecast.runtime.simulated import SSD
from oncecast.runtime.weather import LAN
from oncecast.scenarios import draw as drawing
from oncecast.scenarios.draw import DISKS, NETWORKS, log_uniform, rounded, scaled, weighted

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
SLOT_SECONDS = 0.3  # that a put may take where each waits for the one before
STAYING = 2  # more processes than a group has replicas, before one may leave


class RingLoad(msgspec.Struct, frozen=True):
    """Topics that are written and read to their end."""

    topics: int = 5
    puts: int = 60  # of each writer
    policies: tuple[Policy, ...] = (Policy(gossip=True, keep_all=True), Policy())  # in turn
    away: float = 1.0  # seconds from the crash of a client to its next life, at most


class RingDraw(msgspec.Struct, frozen=True):
    """Everything that was drawn. The defaults are a ring that is the same for all seeds."""

    processes: int = 4  # in the beginning
    joins: int = 1
    leaves: int = 0
    seconds: float = 12.0  # of the storm
    load: RingLoad = RingLoad()
    options: tuple[GroupOptions, ...] = (FAST,)  # of each process, in turn
    ring: RingOptions = RING
    snapshot_bytes: int = 4096  # of the log, after which a replica replaces it by its state
    pull_bytes: int = 800  # small, so that a move takes several rounds, and answers to each
    little_bytes: int = 400
    wall: float = 0.0  # seconds by which a process may take the time to be another
    network: Latency = LAN
    disk: Latency = SSD
    keepalive: float = 3.0
    every: float = 0.9  # seconds between faults, on average
    lasting: float = 3.0  # seconds of a fault, at most
    at_once: int = 2  # faults

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
        """Seconds of calm after which everything outstanding must be complete."""
        suspicion = max(options.suspicion for options in self.options)
        replace_after = max(options.replace_after for options in self.options)
        ring = 4 * self.ring.gone_after + 10 * self.ring.stabilize_every
        slots = SLOT_SECONDS * self.load.topics * self.load.puts
        return 30.0 + 12 * suspicion + 4 * replace_after + ring + slots


def draw(seed: int, nodes: int) -> RingDraw:
    rng = Random(f"{seed}/{nodes}/ring")
    processes = draw_processes(rng, nodes)
    replicas = weighted(rng, {1: 1, 2: 1, 3: 7, 5: 1})
    options = draw_options(rng, processes, replicas)
    seconds = rounded(rng.uniform(*weighted(rng, SECONDS)))
    return RingDraw(
        processes=processes,
        joins=rng.choice((0, 1, 1, 2)),
        leaves=rng.choice((0, 1)) if processes >= replicas + STAYING else 0,
        seconds=seconds,
        load=draw_load(rng, seconds),
        options=options,
        ring=draw_ring(rng, replicas),
        snapshot_bytes=scaled(rng, 512, 1 << 15),
        pull_bytes=scaled(rng, 1, 4000),
        little_bytes=scaled(rng, 1, 4000),
        wall=rng.choice((0.0, 0.5, 60.0, 86400.0)),
        network=weighted(rng, NETWORKS),
        disk=weighted(rng, DISKS),
        keepalive=rounded(rng.uniform(1.0, 3.0)),
        every=log_uniform(rng, 0.3, 1.5),
        lasting=log_uniform(rng, 0.5, 3.0),
        at_once=rng.choice((0, 1, 2, 2, 2)),
    )


SECONDS = {(1.5, 4.0): 70, (4.0, 10.0): 26, (10.0, 30.0): 4}


def draw_processes(rng: Random, nodes: int) -> int:
    """Small rings are cheap, and every process of them is everybody's neighbour."""
    few = min(nodes, PROCESSES_MIN + 2)
    return rng.randint(PROCESSES_MIN, few if rng.random() < 0.8 else nodes)


def draw_load(rng: Random, seconds: float) -> RingLoad:
    return RingLoad(
        topics=rng.randint(1, 4),
        puts=scaled(rng, 3, round(3 + 6 * seconds)),
        policies=tuple(rng.sample(KEEPING, rng.randint(1, 3))),
        away=rng.choice((0.0, 0.02, 0.2, 1.0)),
    )


def draw_options(rng: Random, processes: int, replicas: int) -> tuple[GroupOptions, ...]:
    options = drawing.draw_options(rng)
    differ = rng.random() < 0.4
    found = drawing.draw_apart(rng, options, processes) if differ else (options,)
    return tuple(replace(each, size=replicas) for each in found)


def draw_ring(rng: Random, replicas: int) -> RingOptions:
    gossip_every = log_uniform(rng, 0.1, 0.5)
    return RingOptions(
        replicas=replicas,
        stabilize_every=log_uniform(rng, 0.15, 1.0),
        answer_within=log_uniform(rng, 0.15, 0.6),
        shuffle_every=log_uniform(rng, 0.5, 3.0),
        heartbeat_every=log_uniform(rng, 0.3, 1.0),
        gossip_every=gossip_every,
        gone_after=rounded(gossip_every * rng.uniform(6.0, 15.0)),
    )
