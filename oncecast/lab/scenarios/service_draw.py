"""The settings that a seed draws for a service storm: nodes, group, clients, disks and network.

Most runs are short. A storm of a few suspicion times, with a dozen operations per client, finds
most bugs, and many such runs fit into a campaign.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import msgspec

from oncecast.lab.scenarios import draw as drawing
from oncecast.lab.scenarios.draw import Draw, Habits
from oncecast.wire.limits import LIMITS, Limits

SIZES = {1: 30, 2: 12, 3: 42, 4: 6, 5: 10}
SPANS = {
    (2.0, 5.0): 70,
    (5.0, 12.0): 28,
    (12.0, 40.0): 2,
}  # weights by length, in suspicion times
# Maximum operations per roaming client; few, because the history check is a search.
OPERATIONS_MAX = 25
REUSES_SHARE = 0.4  # fraction of storms in which sources reuse dropped numbers
LOW_LIMITS_SHARE = 0.3  # fraction of storms in which nodes restart with low limits


class ServiceDraw(Draw, frozen=True):
    """The settings of a replica group, with its number of nodes."""

    nodes: int = 3
    spares: int = 0  # number of nodes that wait for a free seat
    keepalive: float = 3.0  # seconds without a message after which a link counts as lost
    deposed: float = 0.0  # seconds for which a leader is partitioned from its peers, or 0 for never
    wall: float = 0.0  # maximum seconds between a wall clock and the true time


def draw(seed: int, nodes: int) -> ServiceDraw:
    """Return the settings of a run with up to `nodes` nodes."""
    rng = Random(f"{seed}/{nodes}/service")
    size = drawing.weighted(rng, {size: weight for size, weight in SIZES.items() if size <= nodes})
    options = drawing.draw_options(rng)
    differ = rng.random() < 0.4
    each = drawing.draw_apart(rng, options, nodes) if differ else (options,)
    seconds = drawing.rounded(options.suspicion * rng.uniform(*drawing.weighted(rng, SPANS)))
    deposed = (
        drawing.rounded(options.suspicion * rng.uniform(2.0, 5.0))
        if size > 1 and rng.random() < 0.5
        else 0.0
    )
    seconds = max(seconds, deposed + options.suspicion)
    ahead = rng.choice(drawing.AHEAD)
    return ServiceDraw(
        nodes=size,
        spares=drawing.weighted(rng, {0: 8, 1: 2}) if size > 2 else 0,
        keepalive=rng.choice((0.5, 1.0, 3.0)),
        deposed=deposed,
        wall=rng.choice((0.0, 0.0, 0.5, 3.0)),
        seconds=seconds,
        sessions=True,
        grows=size > 1 and rng.random() < 0.2,
        options=tuple(replace(one, ahead_min=ahead) for one in each),
        rotates=drawing.draw_rotates(seed, nodes, each),
        habits=draw_all_habits(rng, seed, nodes, seconds),
        segment_bytes=rng.choice((1 << 10, 1 << 12, 1 << 14, 1 << 16)),
        network=drawing.weighted(rng, drawing.NETWORKS),
        fifo=rng.random() < 0.8,
        disk=drawing.weighted(rng, drawing.DISKS),
        every=drawing.rounded(options.suspicion * drawing.log_uniform(rng, 0.3, 1.2)),
        lasting=drawing.rounded(options.suspicion * drawing.log_uniform(rng, 0.3, 2.0)),
        faults=rng.choice((1.0, 0.5, 0.25)),
    )


def draw_habits(rng: Random, seconds: float) -> Habits:
    habits = drawing.draw_habits(rng, seconds)
    roamers = rng.choice((0, 1, 2, 3))
    return msgspec.structs.replace(
        habits,
        puts=rng.randint(3, 20),
        away=rng.choice((0.0, 0.0, 0.1, 1.0)),
        hasty=rng.choice((0.0, 0.5, 0.8)),
        roamers=roamers,
        topics=rng.choice((1, 2, 3, 8)),
        rate=drawing.rounded(min(habits.rate, OPERATIONS_MAX / seconds)),
        age=habits.age if rng.random() < 0.3 else 0.0,
        nacks=rng.choice((0.0, 0.1, 0.3)),
        stores_offset=rng.random() < 0.4,
        watchers=rng.choice((0, 1, 2)),
        directories=rng.choice((0, 0, 2, 3, 5)),
    )


def draw_all_habits(rng: Random, seed: int, nodes: int, seconds: float) -> Habits:
    habits = with_limits(draw_habits(rng, seconds), Random(f"{seed}/{nodes}/limits"))
    dice = Random(f"{seed}/{nodes}/numbers")
    reuses, late = dice.random() < REUSES_SHARE, dice.choice((0.0, 0.0, 0.2, 1.0))
    return msgspec.structs.replace(habits, reuses=reuses, late=late)


def with_limits(habits: Habits, rng: Random) -> Habits:
    """Return the habits with limits that clients reach, and with clients that close sources."""
    few = rng.random() < LOW_LIMITS_SHARE
    limits = tuple(draw_limits(rng) for _ in range(rng.randint(1, 3))) if few else ()
    return msgspec.structs.replace(habits, limits=limits, closes=rng.random() < 0.3)


def draw_limits(rng: Random) -> Limits:
    return msgspec.structs.replace(
        LIMITS,
        topics_max=rng.randint(1, 5),
        subscriptions_max=rng.randint(1, 4),
        producers_max=rng.randint(1, 4),
        sources_max=rng.randint(0, 2),
        staged_parts_max=rng.randint(1, 6),
        staged_bytes_max=drawing.scaled(rng, 50, 1000),
        subscriptions_total_max=rng.choice((0, rng.randint(3, 8))),
        producers_total_max=rng.choice((0, rng.randint(3, 8))),
    )
