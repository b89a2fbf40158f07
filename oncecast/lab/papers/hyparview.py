"""The experiments in the HyParView paper: overlay shape, and reliability after failures.

Leitao, Pereira and Rodrigues, DSN 2007. 10,000 nodes join one by one through one contact. After 50
cycles some nodes fail at once, and live nodes flood 1,000 messages before the next cycle.

A flood reaches all connected nodes, so it is not simulated message by message. Instead, we count
the nodes that are connected by symmetric links when it is sent. A real flood reaches at least as
many nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from oncecast.lab.papers.hyparview_overlay import Overlay, apart
from oncecast.lab.papers.tables import Cell, Experiment, Must, Table, within
from oncecast.lab.scenarios.hyparview_graph import clustering, distances, part_sizes

NODES = 10_000
CYCLES = 50
MESSAGES = 1000
SEND_EVERY = 0.5  # seconds between messages
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
HEALING_CYCLES = 4
# These values are read from the paper's curves.
PAPER_RELIABILITY = {0.95: "about 90%"}
PAPER_HEALING = {share: "1 to 2" for share in SHARES if share < 0.8}
# Minimum reliability for large fractions of failed nodes; 99.9% for smaller ones.
LEAST = {0.9: 0.99, 0.95: 0.90}


class Survival(NamedTuple):
    """The fraction of live nodes that messages reached after a mass failure."""

    first: float  # reliability of the first message, which is sent at the failure
    mean: float
    last: float
    healed: int | None  # cycles until a message reaches all nodes again, or None


def tables(experiment: Experiment) -> Iterator[Table]:
    nodes = experiment.nodes or NODES
    overlay = Overlay(experiment.seed, nodes, experiment.say)
    overlay.stabilize(CYCLES)
    yield shape(overlay, experiment)
    yield failures(overlay, experiment)
    del overlay
    yield reserves(experiment, nodes)


# -- the shape --


def shape(overlay: Overlay, experiment: Experiment) -> Table:
    links = overlay.links()
    clustered, far = clustering(links), distances(links)
    filled = sum(len(each) for each in links) / len(links)
    whole = far.reached == len(links) ** 2
    must = [Must("the overlay is connected", whole)]
    if len(links) == NODES:
        must += [
            Must("clustering within 20% of the paper's", within(clustered, 0.00092, 0.20)),
            Must("mean path within 5% of the paper's", within(far.mean, 6.385, 0.05)),
        ]
    return Table(
        f"shape of the overlay, {len(links):,} nodes after {CYCLES} cycles",
        ("figure", "paper (10,000)", "ours"),
        (
            ("clustering coefficient", 0.00092, round(clustered, 6)),
            ("mean shortest path", 6.385, round(far.mean, 4)),
            ("hops to the last node", 9.0, round(far.farthest_mean, 3)),
            ("active view, mean size", None, round(filled, 4)),
        ),
        tuple(must),
    )


# -- mass failures --


def failures(overlay: Overlay, experiment: Experiment) -> Table:
    survivals = {}
    for share in SHARES:
        experiment.say(f"{share:.0%} fail")
        survivals[share] = apart(overlay, survive, share)
    return Table(
        f"reliability of {MESSAGES:,} messages after mass failures, {len(overlay.names):,} nodes",
        ("failed", "paper, mean", "mean", "first", "last", "paper, cycles to repair", "ours"),
        tuple(
            (
                f"{share:.0%}",
                PAPER_RELIABILITY.get(share, "no visible loss"),
                percent(each.mean),
                percent(each.first),
                percent(each.last),
                PAPER_HEALING.get(share),
                each.healed if each.healed is not None else f"more than {HEALING_CYCLES}",
            )
            for share, each in survivals.items()
        ),
        (
            *(
                Must(
                    f"at least {least(share):.1%} with {share:.0%} failed",
                    each.mean >= least(share),
                )
                for share, each in survivals.items()
            ),
            Must(
                "repaired within 2 cycles below 80%",
                all(
                    each.healed is not None and each.healed <= 2
                    for share, each in survivals.items()
                    if share < 0.8
                ),
            ),
        ),
        ("the contact fails too, so that no node can join again through it",),
    )


def least(share: float) -> float:
    return LEAST.get(share, 0.999)


def percent(share: float) -> str:
    return f"{100 * share:.3f}%"


def survive(overlay: Overlay, share: float, spare_contact: bool = False) -> Survival:
    """Let a fraction of the nodes fail at once, flood messages, and wait for repaired views."""
    overlay.fail(round(share * len(overlay.alive())), spare_contact=spare_contact)
    reached = flood(overlay, MESSAGES)
    healed = None
    for cycle in range(HEALING_CYCLES + 1):
        if reliability(overlay) == 1.0:
            healed = cycle
            break
        overlay.run(1)
    return Survival(reached[0], sum(reached) / len(reached), reached[-1], healed)


def flood(overlay: Overlay, messages: int) -> list[float]:
    """Flood messages one after another. Return the fraction of live nodes that each reaches."""
    alive = len(overlay.alive())
    found: list[float] = []
    seen, sizes = -1, [0]
    for _ in range(messages):
        if seen != overlay.changes:
            seen, sizes = overlay.changes, part_sizes(overlay.links())
        found.append(overlay.sim.rng.choice(sizes) / alive)
        overlay.sim.run(overlay.sim.now + SEND_EVERY)
    return found


def reliability(overlay: Overlay) -> float:
    """Return the fraction of live nodes that a message reaches, averaged over all senders."""
    sizes = part_sizes(overlay.links())
    return sum(sizes) / len(sizes) ** 2


# -- larger passive views --

RESERVE_CYCLES = 10
RESERVES = (
    # passive_max, shuffle_passive, and whether the contact survives
    (30, 4, True),
    (60, 8, False),
    (90, 12, False),
    (150, 20, False),
)


def reserves(experiment: Experiment, nodes: int) -> Table:
    rows: list[tuple[Cell, ...]] = []
    held: list[bool] = []
    for passive, exchanged, spared in RESERVES:
        experiment.say(f"95% fail with a passive view of {passive}")
        overlay = Overlay(
            experiment.seed,
            nodes,
            experiment.say,
            passive_max=passive,
            shuffle_passive=exchanged,
        )
        overlay.stabilize(RESERVE_CYCLES)
        each = survive(overlay, 0.95, spared)
        contact = "survives" if spared else "fails too"
        shares = percent(each.mean), percent(each.first), percent(each.last)
        rows.append((passive, exchanged, contact, *shares))
        held.append(each.mean >= 0.999)
    return Table(
        "reliability with larger passive views, 95% of the nodes fail",
        ("passive_max", "shuffle_passive", "contact", "mean", "first", "last"),
        tuple(rows),
        (Must("at least 99.9% with the largest of these passive views", held[-1]),),
        (f"measured after {RESERVE_CYCLES} cycles",),
    )
