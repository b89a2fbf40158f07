"""Simulate executors that read one topic from the leader or from all replicas of a group.

The simulation runs the real protocols on the simulator's network, and models the time of a page. A
node prepares one page at a time, and an executor works on a page `ratio` times as long. If ten
cores saturate a node, the ratio is ten. An executor runs one task after another. Each task has its
own client, as in Spark, and reads some pages.

    python -m bench.spark.spread [--executors 20] [--ratio 10] [--tasks 200] [--pages 10] [--json]
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable
from functools import partial
from random import Random
from typing import NamedTuple

from oncecast.broker.events import ScanDue, ScanWaitOver
from oncecast.broker.gateway import Gateway
from oncecast.broker.scanning import Scanner
from oncecast.broker.service import Service
from oncecast.client.session.client import ClientSession
from oncecast.client.session.local import Do, Finished, Produce, Shown, Survey
from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.replication.options import GroupOptions
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import Config, Member
from oncecast.simulator.latency import Uniform
from oncecast.simulator.simulated import Simulation
from oncecast.wire import batch
from oncecast.wire import commands as do
from oncecast.wire.frames import Scan, Scanned

NODES = [NodeId("a"), NodeId("b"), NodeId("c")]
FOUNDERS = Config(1, tuple(Member(node, number) for number, node in enumerate(NODES, 1)), 3)
WRITER = NodeId("client/writer")
TOPIC, BATCHES = "t", 20
PAGE_SECONDS = 0.01  # seconds that a node takes to prepare a page
PATIENCE = 600.0  # virtual seconds within which all tasks must finish
NEAR = Uniform(0.0001, 0.0005)  # seconds that a message is in flight


class Prepared(Value):
    """Timer: the page of a scan is prepared."""

    number: int


class BusyScanner(Scanner):
    """A node that prepares one page at a time."""

    Timer = ScanDue | ScanWaitOver | Prepared

    def __init__(self, me: NodeId, rng: Random, service: Service, pages: Counter[NodeId]) -> None:
        super().__init__(me, rng, service=service)
        self._pages, self._free_at, self._number = pages, 0.0, 0
        self._queue: dict[int, tuple[NodeId, Scan]] = {}

    def receive(self, sender: NodeId, scan: Scan) -> None:
        if not scan.bytes or not (self._service.leading or scan.any_replica):
            super().receive(sender, scan)
            return
        self._number += 1
        self._queue[self._number] = sender, scan
        self._free_at = max(self._free_at, self.now) + PAGE_SECONDS
        self.later(self._free_at - self.now, Prepared(self._number))

    def timeout(self, timer: ScanDue | ScanWaitOver | Prepared) -> None:
        if not isinstance(timer, Prepared):
            super().timeout(timer)
            return
        self._pages[self.me] += 1
        super().receive(*self._queue.pop(timer.number))


class Spread(NamedTuple):
    """Pages by node and the time that all executors took."""

    pages: dict[str, int]
    seconds: float
    estimate: float  # expected pages per second, limited by the executors or by the serving nodes

    @property
    def rate(self) -> float:
        return sum(self.pages.values()) / self.seconds


class World:
    def __init__(self, seed: int, ratio: float, tasks: int, pages: int, *, any_replica: bool):
        self.sim = Simulation(seed, latency=NEAR, listener=self._hear)
        self.pages: Counter[NodeId] = Counter()
        self._any_replica, self._ratio = any_replica, ratio
        self._tasks, self._pages_each, self._begun = tasks, pages, 0
        self._left: dict[NodeId, int] = {}  # number of pages left in each running task
        self._topic_id = 0
        for number, node in enumerate(NODES, 1):
            self.sim.add(node, lambda me, rng, number=number: self._node(me, rng, number))  # type: ignore[misc]
        self.sim.add(WRITER, lambda me, rng: self._client(me, rng, any_replica=False))

    def _node(self, me: NodeId, rng: Random, number: int) -> Stack:
        group = Paxos(me, rng, options=GroupOptions(), founders=FOUNDERS, incarnation=number)
        service = Service(me, rng, group=group)
        group.attach(service)
        scanner = BusyScanner(me, rng, service, self.pages)
        return Stack([group, service, Gateway(me, rng, service=service), scanner])

    def _client(self, me: NodeId, rng: Random, *, any_replica: bool) -> Stack:
        nodes = rng.sample(NODES, len(NODES)) if any_replica else NODES
        session = ClientSession(
            me,
            rng,
            node=nodes[0],
            others=tuple(nodes[1:]),
            producer=me,
            incarnation=me,
            any_replica=any_replica,
        )
        return Stack([session])

    def play(self, executors: int) -> float:
        """Run all tasks, and return the seconds that they took."""
        sim = self.sim
        sim.run(until=5.0)
        # This subscription makes the topic keep its messages.
        keep = do.Subscribe(TOPIC, "keep", do.FromEarliest(), 0)
        sim.ask(WRITER, Do(1, keep, PATIENCE))
        for number in range(BATCHES):
            packed = batch.encode([b"%d" % number], timestamps=1)
            sim.ask(WRITER, Produce(number + 2, TOPIC, 1, packed))
        sim.run(until=10.0)
        sim.ask(WRITER, Survey(0, Scan(0, TOPIC, do.FromOffset(0)), PATIENCE))
        sim.run(until=15.0)
        assert self._topic_id, "the topic was not found"
        began = self._ended = sim.now
        for _ in range(executors):
            sim.call(sim.rng.uniform(0.0, PAGE_SECONDS), self._begin_task)
        while self._begun < self._tasks or self._left:
            assert sim.now < began + PATIENCE, "not all tasks were served in time"
            sim.run(until=sim.now + 1.0)
        return self._ended - began

    def _begin_task(self) -> None:
        if self._begun < self._tasks:
            self._begun += 1
            task = NodeId(f"client/task-{self._begun}")
            self._left[task] = self._pages_each
            build = partial(self._client, any_replica=self._any_replica)
            self.sim.add(task, build)
            self._ask(task)

    def _ask(self, task: NodeId) -> None:
        scan = Scan(0, TOPIC, do.FromOffset(0), BATCHES, 1 << 20, self._topic_id)
        self.sim.ask(task, Survey(1, scan, PATIENCE))

    def _hear(self, node: NodeId, event: Value) -> None:
        if isinstance(event, Finished):
            assert node == WRITER, f"{node}: {event.outcome}"
        if not isinstance(event, Shown) or not isinstance(event.view, Scanned):
            return
        if node == WRITER:
            self._topic_id = event.view.topic_id
            return
        assert event.view.chunks[-1].offset == BATCHES - 1, "a page is incomplete"
        self.sim.call(self._ratio * PAGE_SECONDS, partial(self._worked, node))

    def _worked(self, task: NodeId) -> None:
        self._ended = self.sim.now
        self._left[task] -= 1
        if self._left[task]:
            self._ask(task)
        else:
            del self._left[task]
            self._begin_task()


def spread(
    executors: int, ratio: float, tasks: int, pages: int, *, any_replica: bool, seed: int = 1
) -> Spread:
    world = World(seed, ratio, tasks, pages, any_replica=any_replica)
    seconds = world.play(executors)
    serving = len(NODES) if any_replica else 1
    # An executor waits for a page, then works on it.
    asked = executors / ((ratio + 1) * PAGE_SECONDS)
    estimate = min(asked, serving / PAGE_SECONDS)
    return Spread({str(node): world.pages[node] for node in NODES}, seconds, estimate)


def lines(found: Iterable[tuple[str, Spread]]) -> Iterable[str]:
    yield f"{'from':12} {'pages by node':>18} {'pages/s':>9} {'estimate':>9}"
    for name, each in found:
        nodes = " ".join(map(str, each.pages.values()))
        yield f"{name:12} {nodes:>18} {each.rate:9.1f} {each.estimate:9.1f}"


def main() -> None:
    parser = argparse.ArgumentParser("bench.spark.spread", description=(__doc__ or "")[:80])
    parser.add_argument("--executors", type=int, default=20)
    parser.add_argument(
        "--ratio",
        type=float,
        default=10.0,
        help="ratio of executor time to node time for a page (default: 10)",
    )
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--pages", type=int, default=10, help="pages that each task reads")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    size = (given.executors, given.ratio, given.tasks, given.pages)
    found = [
        (name, spread(*size, any_replica=anywhere))
        for name, anywhere in (("leader", False), ("any replica", True))
    ]
    if given.json:
        print(json.dumps({name: {**each._asdict(), "rate": each.rate} for name, each in found}))
    else:
        print("\n".join(lines(found)))


if __name__ == "__main__":
    main()
