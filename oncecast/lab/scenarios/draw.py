"""The settings that a seed draws for a storm: options, load, disks, network and length.

A storm with fixed settings misses bugs that only other settings reveal. A draw depends only on the
seed and the number of replicas. A violation and `oncecast sim replay` print it.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from math import exp, log
from random import Random
from typing import TypeVar

import msgspec

from oncecast.replication.options import GroupOptions
from oncecast.simulator.latency import Latency, LogNormal, Uniform
from oncecast.simulator.simnode import SEGMENT_BYTES
from oncecast.simulator.simulated import SSD
from oncecast.simulator.weather import LAN
from oncecast.wire.limits import Limits

T = TypeVar("T")

SLOW_DISK = Uniform(0.001, 0.08)  # a disk that is as slow as the network
DISKS: dict[Latency, int] = {SSD: 7, SLOW_DISK: 3}
NETWORKS: dict[Latency, int] = {LAN: 6, Uniform(0.0001, 0.003): 2, LogNormal(0.01, 0.8): 2}

FAST = GroupOptions(
    heartbeat=0.1,
    suspicion=0.5,
    drift=0.25,
    resend=0.06,
    replace_after=1.5,
    compare_every=1.0,
    window_slots=64,
    window_bytes=4096,
    accept_bytes=1024,
    piece_bytes=256,
    unclaimed_after=1.0,
)


class Shape(StrEnum):
    """How the puts of a producer are distributed over a run."""

    STEADY = "steady"
    BURSTS = "bursts"  # many puts at a time, then a pause
    FLOOD = "flood"  # puts without a pause, until all seats are taken again after the storm
    IDLE = "idle"  # hardly any puts


SHAPES = {Shape.STEADY: 6, Shape.BURSTS: 3, Shape.FLOOD: 2, Shape.IDLE: 1}
# The maximum length of a storm, in suspicion times. Many short storms find more bugs than a few
# long ones, except for faults that build up slowly.
SECONDS_MAX = 40.0
LONG_SLOTS = 100_000
# Limits for the clients of a slow group, so that such runs take no longer than others.
OPERATIONS_MAX = 40  # maximum number of operations per roaming client
PUTS_MAX = 30  # maximum number of puts per publisher
TINY_SHARE = 0.02  # fraction of storms without sessions that use tiny windows, which is slow
ROTATES_SHARE = 0.6  # fraction of storms with varied options in which restarts change them
# The minimum number of slots that a replica accepts ahead of its applied slot.
AHEAD = (4, 32, 256, 4096)
FLOOD_AHEAD = (1024, 4096)  # with fewer slots, a new member never catches up enough to get a seat
SHORT = {(3.0, 8.0): 1}
SPANS = {(5.0, 15.0): 75, (15.0, 40.0): 23, (40.0, 80.0): 2}


class Load(msgspec.Struct, frozen=True):
    shape: Shape = Shape.STEADY
    producers: int = 3
    puts: int = 70  # puts per producer; ignored in a flood
    rate: float = 0.0  # puts per second from each producer, in a flood
    bytes_max: int = 60  # maximum size of a put in bytes
    ahead: int = 6  # maximum number of unacknowledged puts per producer
    patience: float = 0.2  # seconds before a put is first repeated to the same leader


class Snapshots(msgspec.Struct, frozen=True):
    """When a replica replaces its log with a snapshot, and what the snapshot contains."""

    every: int = 40  # number of puts between snapshots
    kept: int = 20  # number of puts that the state refers to
    filling: int = 600  # bytes of padding, so that a snapshot needs several pieces


class Habits(msgspec.Struct, frozen=True):
    """How the clients behave, and how the service treats them."""

    puts: int = 60  # number of puts per publisher
    crashes: int = 2  # number of crashes of each client that crashes
    away: float = 0.6  # maximum seconds between a crash and the restart
    hasty: float = 0.0  # fraction of crashes after which the client soon crashes again
    renamed: bool = False  # whether a restarted client has a new address, as a new process would
    roamers: int = 0  # number of clients that perform random operations
    watchers: int = 0  # number of clients that only read the state of topics
    topics: int = 3  # number of topics for the roaming clients
    deletes: bool = False  # whether roaming clients delete topics; if so, they have no outbox
    rate: float = 3.0  # operations per second of each roaming client
    read_ahead: int = 8  # maximum messages that a client buffers per subscription
    outbox_bytes: int = 0  # size in bytes above which a durable client compacts its outbox
    snapshot_bytes: int = 4096  # bytes of log between service snapshots
    delivery_bytes: int = 1 << 20
    window_bytes: int = 8 << 20  # maximum bytes in flight to one client
    clock_step: float = 600.0  # maximum seconds by which one wrong wall clock changes the time
    age: float = 0.0  # age limit in seconds for the messages in one topic; 0 for no such topic
    nacks: float = 0.0  # fraction of takes after which a subscriber rejects messages
    stores_offset: bool = False  # whether one subscriber stores its offset with its results
    directories: int = 0  # number of state directories that take turns under one producer name
    limits: tuple[Limits, ...] = ()  # low limits that restarted nodes use in turn; () for none
    closes: bool = False  # whether roaming clients close their sources
    late: float = 0.0  # seconds that the last messages of a crashing client are held, or 0
    reuses: bool = False  # whether roaming clients reuse dropped numbers for staged puts


class Draw(msgspec.Struct, frozen=True):
    """All settings of a run. The defaults give the same storm for all seeds."""

    seconds: float = 12.0
    slots: int = 0  # end the storm after this many slots; 0 to end it after `seconds`
    sessions: bool = False  # whether the group runs the service instead of a ledger
    grows: bool = False  # whether one node founds the group and the other nodes join it
    options: tuple[GroupOptions, ...] = (FAST,)  # assigned to the nodes in turn
    rotates: bool = False  # whether a restarted node uses the options of the next node
    load: Load = Load()
    habits: Habits = Habits()
    snapshots: Snapshots = Snapshots()
    segment_bytes: int = SEGMENT_BYTES
    network: Latency = LAN
    fifo: bool = False  # whether messages between two nodes stay in order, as on a connection
    disk: Latency = SSD
    every: float = 0.35  # mean seconds between faults
    lasting: float = 0.8  # mean duration of a fault in seconds
    faults: float = 1.0  # fraction of the fault kinds that can occur

    def options_of(self, index: int, restarts: int = 0) -> GroupOptions:
        """Return the options of a node that has restarted this many times."""
        return self.options[(index + restarts * self.rotates) % len(self.options)]

    @property
    def suspicion(self) -> float:
        """Return the longest suspicion time of all nodes."""
        return max(options.suspicion for options in self.options)

    @property
    def drift(self) -> float:
        return self.options[0].drift

    @property
    def patience(self) -> float:
        """Return the seconds of calm within which all pending work must complete."""
        replace_after = max(options.replace_after for options in self.options)
        aging = self.habits.age + 10 * self.habits.clock_step if self.habits.age else 0.0
        return 15.0 + 12 * self.suspicion + 4 * replace_after + aging


def draw(seed: int, nodes: int) -> Draw:
    rng = Random(f"{seed}/{nodes}/draw")
    sessions = rng.random() < 0.4
    options = draw_options(rng)
    each = draw_apart(rng, options, nodes) if rng.random() < 0.4 else (options,)
    shape = weighted(rng, SHAPES)
    # Faults much shorter than the suspicion time have little effect, so scale them with it.
    spans = SHORT if shape is Shape.FLOOD else SPANS
    seconds = min(SECONDS_MAX, rounded(options.suspicion * rng.uniform(*weighted(rng, spans))))
    narrow = any(map(is_narrow, each))
    drawn = Draw(
        seconds=seconds,
        sessions=sessions,
        grows=rng.random() < 0.2,
        options=each,
        load=draw_load(rng, shape, options, seconds),
        habits=spared(draw_habits(rng, seconds), seconds) if narrow else draw_habits(rng, seconds),
        snapshots=Snapshots(
            every=scaled(rng, 5, 200), kept=scaled(rng, 1, 40), filling=scaled(rng, 1, 2000)
        ),
        segment_bytes=rng.choice((1 << 10, 1 << 12, 1 << 14, 1 << 16)),
        network=weighted(rng, NETWORKS),
        fifo=rng.random() < 0.5,
        disk=weighted(rng, DISKS),
        every=rounded(options.suspicion * log_uniform(rng, 0.3, 1.2)),
        lasting=rounded(options.suspicion * log_uniform(rng, 0.6, 3.0)),
        faults=rng.choice((1.0, 1.0, 0.5, 0.25)),
    )
    ahead = rng.choice(FLOOD_AHEAD if shape is Shape.FLOOD else AHEAD)
    each = tuple(replace(options, ahead_min=ahead) for options in each)
    if not sessions and rng.random() < TINY_SHARE:
        each = tuple(map(tiny, each))
    return msgspec.structs.replace(drawn, options=each, rotates=draw_rotates(seed, nodes, each))


def draw_rotates(seed: int, nodes: int, options: tuple[GroupOptions, ...]) -> bool:
    """Return whether a restart changes the options of a node, as an edited settings file does."""
    return len(options) > 1 and Random(f"{seed}/{nodes}/rotates").random() < ROTATES_SHARE


def draw_long(seed: int, nodes: int, slots: int = LONG_SLOTS) -> Draw:
    """Return a storm that lasts until `slots` are decided, with a group that is fast enough."""
    drawn = draw(seed, nodes)
    rng = Random(f"{seed}/{nodes}/long")
    return msgspec.structs.replace(
        drawn,
        slots=slots,
        sessions=False,
        options=tuple(map(widened, drawn.options)),
        load=Load(
            shape=Shape.FLOOD,
            puts=0,
            rate=rounded(log_uniform(rng, 100.0, 400.0)),
            bytes_max=drawn.load.bytes_max,
            ahead=rng.choice((20, 60)),
            patience=drawn.load.patience,
        ),
        snapshots=msgspec.structs.replace(drawn.snapshots, every=scaled(rng, 100, 2000)),
        segment_bytes=1 << 16,
        every=3 * drawn.every,
    )


def tiny(options: GroupOptions) -> GroupOptions:
    """Return options with the smallest windows, and with resends that precede any answer."""
    return replace(
        options, window_slots=1, window_bytes=1, accept_bytes=1, piece_bytes=1, resend=0.001
    )


def widened(options: GroupOptions) -> GroupOptions:
    return replace(
        options,
        window_slots=max(64, options.window_slots),
        window_bytes=1 << 16,
        accept_bytes=max(1 << 12, options.accept_bytes),
        ahead_min=4096,
        piece_bytes=max(32, options.piece_bytes),
        resend=max(0.03, options.resend),
    )


def draw_options(rng: Random) -> GroupOptions:
    heartbeat = log_uniform(rng, 0.06, 0.25)
    suspicion = rounded(heartbeat * rng.uniform(3.0, 7.0))
    large = rng.random() < 0.5
    return GroupOptions(
        heartbeat=heartbeat,
        suspicion=suspicion,
        drift=rng.choice((0.01, 0.1, 0.25)),
        resend=log_uniform(rng, 0.03, 0.2),
        replace_after=rounded(suspicion * rng.uniform(1.5, 5.0)),
        compare_every=rounded(rng.choice((0.0, heartbeat * rng.uniform(1.0, 20.0)))),
        window_slots=rng.choice((1, 2, 2, 3, 4, 6, 8, 16, 64, 64, 1024)),
        window_bytes=1 << 16 if large else scaled(rng, 1, 1 << 12),
        accept_bytes=scaled(rng, 1, 1 << 14),
        piece_bytes=scaled(rng, 32, 1 << 14),
        unclaimed_after=log_uniform(rng, 0.3, 3.0),
    )


def is_narrow(options: GroupOptions) -> bool:
    """Return whether a group with these options decides only a few slots at a time."""
    return (
        options.window_slots < 4 or options.window_bytes < 1 << 10 or options.accept_bytes < 1 << 8
    )


def spared(habits: Habits, seconds: float) -> Habits:
    """Return habits with few requests, so that a slow group keeps up."""
    rate = rounded(min(habits.rate, OPERATIONS_MAX / seconds))
    return msgspec.structs.replace(habits, puts=min(PUTS_MAX, habits.puts), rate=rate)


def draw_apart(rng: Random, options: GroupOptions, nodes: int) -> tuple[GroupOptions, ...]:
    """Return options that differ between nodes, as while an operator changes settings.

    All nodes agree only on the clock drift.
    """
    if rng.random() < 0.5:
        times = [rounded(options.suspicion * rng.uniform(0.6, 1.7)) for _ in range(nodes)]
        return tuple(replace(options, suspicion=time) for time in times)
    return tuple(replace(draw_options(rng), drift=options.drift) for _ in range(nodes))


def draw_load(rng: Random, shape: Shape, options: GroupOptions, seconds: float) -> Load:
    producers = rng.randint(1, 3)
    wide = min(2 * options.window_slots, 60)  # more slots than the window holds
    puts = {
        Shape.STEADY: max(5, round(seconds * log_uniform(rng, 3.0, 20.0))),
        Shape.BURSTS: 3 * wide,
        Shape.FLOOD: 0,
        Shape.IDLE: 3,
    }
    return Load(
        shape=shape,
        producers=producers,
        puts=puts[shape],
        rate=rounded(log_uniform(rng, 20.0, 900.0) / producers) if shape is Shape.FLOOD else 0.0,
        bytes_max=scaled(rng, 1, 300),
        ahead=rng.randint(1, 12) if shape is Shape.STEADY else max(8, wide),
        patience=log_uniform(rng, 0.05, 0.5),
    )


def draw_habits(rng: Random, seconds: float) -> Habits:
    step = log_uniform(rng, 12.0, 30.0)  # longer than a leader remembers its peers' clocks
    return Habits(
        puts=min(150, max(3, round(seconds * log_uniform(rng, 1.0, 8.0)))),
        crashes=rng.randint(0, 4),
        away=rng.choice((0.0, 0.1, 1.0)),
        renamed=rng.random() < 0.7,
        roamers=rng.choice((0, 2, 3, 4)),
        topics=rng.randint(1, 3),
        deletes=rng.random() < 0.4,
        rate=log_uniform(rng, 3.0, 15.0),
        read_ahead=scaled(rng, 1, 64),
        outbox_bytes=rng.choice((0, scaled(rng, 1, 1 << 14))),
        snapshot_bytes=scaled(rng, 1 << 9, 1 << 16),
        delivery_bytes=scaled(rng, 1, 1 << 14),
        window_bytes=scaled(rng, 1, 1 << 16),
        clock_step=step,
        age=weighted(rng, {0.0: 6, log_uniform(rng, 0.5, 5.0): 1, step + 5.0: 3}),
    )


def weighted(rng: Random, choices: dict[T, int]) -> T:
    return rng.choices(list(choices), list(choices.values()))[0]


def log_uniform(rng: Random, low: float, high: float) -> float:
    """Return a random number for which each order of magnitude is equally likely."""
    return rounded(exp(rng.uniform(log(low), log(high))))


def rounded(number: float) -> float:
    """Round to three significant digits, so that draws are easy to read."""
    return float(f"{number:.3g}")


def scaled(rng: Random, low: int, high: int) -> int:
    return round(log_uniform(rng, low, high))
