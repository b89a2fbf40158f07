"""The experiments in the Plumtree paper: the cost of broadcasts, and the effects of faults.

Leitao, Pereira and Rodrigues, SRDS 2007, with 10,000 nodes over HyParView. RMR, the relative
message redundancy, is m / (n - 1) - 1 for m payloads that reach n nodes. It is 0 for a tree and 3
for a flood.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from statistics import mean
from typing import NamedTuple

from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.lab.papers.hyparview_overlay import Overlay, apart
from oncecast.lab.papers.tables import Cell, Experiment, Must, Table
from oncecast.overlay.events import Broadcast, Delivered, MessageId, Publish, Received
from oncecast.overlay.messages import Gossip, Graft, IHave, Prune
from oncecast.overlay.plumtree import Plumtree
from oncecast.overlay.recovery import Recovery

NODES = 10_000
CYCLES = 5
WARM_UP = 10  # number of messages after which the tree has settled
MESSAGES = 5
# Seconds; long, because messages need time to cross the deep tree of 10,000 nodes.
GRAFT_AFTER = 2.0
SETTLED = 10.0  # maximum duration of a broadcast, with grafts, in seconds
SHARES = (0.4, 0.6, 0.8)
CYCLES_AFTER = 4
CHURN_CYCLES = 100
CHURN_SHARE = 0.005  # fraction of nodes that fail per cycle: 50 of 10,000
LOSS = 0.1
LOSSY_MESSAGES = 20
ROUNDS_MAX = 20


class Counted(Plumtree):
    """A Plumtree that counts the messages it receives."""

    def __init__(self, me: NodeId, rng: Random, tally: Tally) -> None:
        super().__init__(me, rng, graft_after=GRAFT_AFTER)
        self.tally = tally

    def receive(self, sender: NodeId, message: Gossip | IHave | Graft | Prune) -> None:
        if type(message) is Gossip:
            self.tally.payloads += 1
        else:
            self.tally.control += 1
        super().receive(sender, message)


class Tally:
    def __init__(self) -> None:
        self.payloads = self.control = self.received = 0

    def hear(self, node: NodeId, event: Value) -> None:
        if isinstance(event, Received):
            self.received += 1


class Cost(NamedTuple):
    """The cost of one broadcast."""

    payloads: int
    control: int
    reliability: float  # fraction of the live nodes that received the message
    rmr: float


class Trees:
    """An overlay with Plumtree on each node."""

    def __init__(self, experiment: Experiment, nodes: int) -> None:
        self.tally = Tally()
        self.overlay = Overlay(experiment.seed, nodes, experiment.say, self._layers)
        self.overlay.events = self.tally.hear
        self.overlay.stabilize(CYCLES)
        self.sent = 0

    def _layers(self, me: NodeId, rng: Random) -> list[Protocol]:
        return [Counted(me, rng, self.tally)]

    def set_threshold(self, threshold: float) -> None:
        for name in self.overlay.alive():
            self.overlay.sim.protocol(name, Plumtree).threshold = int(threshold)

    def broadcast(self, sender: NodeId | None = None) -> Cost:
        """Broadcast a message from `sender` or a random node, and wait until it has settled."""
        sim, tally, alive = self.overlay.sim, self.tally, self.overlay.alive()
        sender = sender or sim.rng.choice(alive)
        self.sent += 1
        tally.payloads = tally.control = tally.received = 0
        sim.ask(sender, Broadcast(MessageId(sender, self.sent), b""))
        sim.run(sim.now + SETTLED)
        reliability = (tally.received + 1) / len(alive)
        rmr = tally.payloads / tally.received - 1 if tally.received else 0.0
        return Cost(tally.payloads, tally.control, reliability, rmr)


Measure = Callable[[Trees, float], list[Cost]]


def tables(experiment: Experiment) -> Iterator[Table]:
    nodes = experiment.nodes or NODES
    trees = Trees(experiment, nodes)
    yield stable(trees, experiment)
    yield failures(trees, experiment)
    yield churn(trees, experiment)
    del trees
    yield lossy(experiment, nodes)


# -- the cost of a broadcast --


def stable(trees: Trees, experiment: Experiment) -> Table:
    """Count messages in a stable overlay. The first broadcast is a flood: all links are eager."""
    nodes = len(trees.overlay.names)
    experiment.say("broadcasts in a stable overlay")
    flood = trees.broadcast()
    one = apart(trees, of_one_sender, 3)
    many = apart(trees, of_many_senders, 7)
    exact = all(each.payloads == nodes - 1 for each in one + many)
    return Table(
        f"messages per broadcast, {nodes:,} nodes, {MESSAGES} broadcasts after {WARM_UP}",
        ("sender", "paper: payload", "control", "RMR", "ours: payload", "control", "RMR"),
        (
            ("eager flood", 39_984, 0, 3.0, *costs([flood])),
            ("one, threshold 3", 9_999, 29_990, 0.0, *costs(one)),
            ("many, threshold 7", 9_999, 29_987, 0.0, *costs(many)),
        ),
        (
            Must(f"exactly {nodes - 1:,} payloads per broadcast", exact),
            Must("each node gets each message", whole(one + many)),
        ),
    )


def costs(some: list[Cost]) -> tuple[Cell, ...]:
    return (
        spread([each.payloads for each in some]),
        spread([each.control for each in some]),
        round(mean(each.rmr for each in some), 4),
    )


def spread(figures: list[int]) -> str:
    low, high = min(figures), max(figures)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def whole(some: list[Cost]) -> bool:
    return all(each.reliability == 1.0 for each in some)


def of_one_sender(trees: Trees, threshold: float) -> list[Cost]:
    trees.set_threshold(threshold)
    sender = trees.overlay.sim.rng.choice(trees.overlay.alive())
    return [trees.broadcast(sender) for _ in range(WARM_UP + MESSAGES)][WARM_UP:]


def of_many_senders(trees: Trees, threshold: float) -> list[Cost]:
    trees.set_threshold(threshold)
    return [trees.broadcast() for _ in range(WARM_UP + MESSAGES)][WARM_UP:]


# -- failures --


def failures(trees: Trees, experiment: Experiment) -> Table:
    rows: list[tuple[Cell, ...]] = []
    must: list[Must] = []
    of_many_senders(trees, 7)
    for share in SHARES:
        experiment.say(f"{share:.0%} fail")
        first, *cycles = apart(trees, survive, share)
        for cycle, (reliability, rmr) in enumerate(cycles):
            rows.append((f"{share:.0%}", cycle, f"{reliability:.3%}", round(rmr, 4)))
        rows.insert(-len(cycles), (f"{share:.0%}", "first", f"{first[0]:.3%}", round(first[1], 4)))
        must.append(Must(f"RMR at most 0.05 two cycles after {share:.0%}", cycles[2][1] <= 0.05))
    return Table(
        f"after mass failures, {MESSAGES} broadcasts from random nodes per cycle",
        ("failed", "cycle", "reliability", "RMR"),
        tuple(rows),
        tuple(must),
        (
            "paper: RMR is near 0 again a few cycles after failures of 40, 60 and 80%",
            "first: the first message, which is sent at the failure and also counts in cycle 0",
        ),
    )


def survive(trees: Trees, share: float) -> list[tuple[float, float]]:
    """Return the reliability and RMR of the first message, and their means in each cycle."""
    trees.overlay.fail(round(share * len(trees.overlay.alive())))
    found: list[tuple[float, float]] = []
    for cycle in range(CYCLES_AFTER):
        costs = [trees.broadcast() for _ in range(MESSAGES)]
        if cycle == 0:
            found.append((costs[0].reliability, costs[0].rmr))
        found.append((mean(each.reliability for each in costs), mean(each.rmr for each in costs)))
        trees.overlay.run(1)
    return found


def churn(trees: Trees, experiment: Experiment) -> Table:
    experiment.say(f"{CHURN_CYCLES} cycles with failures in each")
    failing = max(1, round(CHURN_SHARE * len(trees.overlay.names)))
    costs = apart(trees, wear_down, failing)
    worst = min(each.reliability for each in costs)
    return Table(
        f"{failing} failures per cycle for {CHURN_CYCLES} cycles, each followed by a broadcast",
        ("figure", "paper", "ours"),
        (
            ("mean reliability", "100%", f"{mean(each.reliability for each in costs):.4%}"),
            ("worst reliability", None, f"{worst:.4%}"),
            ("mean RMR", None, round(mean(each.rmr for each in costs), 4)),
        ),
        (Must("each live node gets each message", worst == 1.0),),
    )


def wear_down(trees: Trees, failing: float) -> list[Cost]:
    found: list[Cost] = []
    for _ in range(CHURN_CYCLES):
        trees.overlay.fail(int(failing))
        found.append(trees.broadcast())
        trees.overlay.run(1)
    return found


# -- loss --


def lossy(experiment: Experiment, nodes: int) -> Table:
    experiment.say(f"recovery with {LOSS:.0%} of all messages lost")
    delivered: dict[MessageId, int] = {}

    def layers(me: NodeId, rng: Random) -> list[Protocol]:
        return [Plumtree(me, rng), Recovery(me, rng, compare_every=float(nodes))]

    def hear(node: NodeId, event: Value) -> None:
        if isinstance(event, Delivered):
            delivered[event.id] = delivered.get(event.id, 0) + 1

    overlay = Overlay(experiment.seed, nodes, experiment.say, layers)
    overlay.events = hear
    overlay.stabilize(CYCLES)
    overlay.sim.weather.set(loss=LOSS)
    for _ in range(LOSSY_MESSAGES):
        overlay.sim.ask(overlay.sim.rng.choice(overlay.names), Publish(b""))
        overlay.sim.run(overlay.sim.now + SETTLED)
    rows: list[tuple[Cell, ...]] = []
    everything = nodes * LOSSY_MESSAGES
    for done in range(ROUNDS_MAX + 1):
        has = sum(delivered.values())
        rows.append((done, f"{has / everything:.4%}", everything - has))
        if has == everything:
            break
        overlay.run(1)
    return Table(
        f"{LOSSY_MESSAGES} broadcasts with {LOSS:.0%} loss, {nodes:,} nodes, with recovery",
        ("rounds", "delivered", "missing"),
        tuple(rows),
        (Must("each node gets each message once", rows[-1][2] == 0),),
    )
