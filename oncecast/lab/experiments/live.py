"""Experiments with real processes, one per node, over TCP on this machine.

They run the same protocols as the simulated runs and write the same rows. A plan lists the actions
of each node with their times. When all nodes are up, they get the start time.

    share 0     like `exp_publish`
    share > 0   like `exp_failures`: some processes are killed (SIGKILL) in the middle
    paxos       like `exp_paxos`: three replicas and a spare; the leader is killed
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from socket import create_server
from tempfile import TemporaryDirectory
from time import sleep, time

import google_crc32c
import msgspec

from oncecast.dht.chord import Chord
from oncecast.dht.scribe import Scribe
from oncecast.dht.tree_messages import JoinTree, Multicast, Multicasted
from oncecast.kernel.protocol import Effect, Emit, NodeId, Protocol, Value
from oncecast.kernel.stack import Stack
from oncecast.lab.experiments import failures as exp_failures
from oncecast.lab.experiments import publish as exp_publish
from oncecast.lab.experiments.runs import Note, Row, Run, Scale
from oncecast.lab.experiments.systems import SUBSCRIBED, TOPICS, Tally
from oncecast.lab.scenarios.draw import FAST
from oncecast.lab.scenarios.paxos_ledger import Acked, Ledger, Put
from oncecast.network.network import Runtime
from oncecast.network.network import run as run_loop
from oncecast.overlay.events import Broadcast, MessageId, Received
from oncecast.overlay.hyparview import HyParView
from oncecast.overlay.plumtree import Plumtree
from oncecast.replication.events import Added, Decided, LeaderChanged
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import NO_MEMBERS, Config, Member
from oncecast.storage.disk import OsDisk
from oncecast.storage.journal import Journal

SCENARIO = "live"
NODES, MESSAGES = 10, 100
REPLICAS, SPARES = 3, 1
SETTLE, SECONDS, AFTER = 8.0, 5.0, 3.0  # seconds to join, to publish, and to wait at the end
READY_WITHIN = 60.0  # seconds until all processes must be up
KILL_AFTER = 2.0  # seconds of publishing before the kill
GRACE = 10.0  # seconds for a process to exit on its own
PUT_EVERY = 0.02


class Planned(msgspec.Struct, frozen=True):
    at: float  # seconds since the first message
    topic: str
    payload: str
    owed: int


class Plan(msgspec.Struct, frozen=True):
    """The actions of one node, with their times."""

    run: Run
    names: list[str]
    number: int
    topics: list[str]
    messages: list[Planned]
    directory: str

    @property
    def me(self) -> NodeId:
        return NodeId(self.names[self.number])

    @property
    def file(self) -> Path:
        return Path(self.directory) / f"{self.number}.jsonl"

    @property
    def signal(self) -> Path:
        """Return the path of a file that appears when all nodes are up.

        The file contains the time of the first message, in seconds since 1970.
        """
        return Path(self.directory) / "begin"


def runs(scale: Scale) -> list[Run]:
    systems = [(system, share) for system in ("scribe", "plumtree") for share in (0.0, 0.2)]
    made = [
        Run(SCENARIO, system, NODES, MESSAGES, share=share, seed=scale.seed)
        for system, share in systems
    ]
    return [*made, Run(SCENARIO, "paxos", REPLICAS, share=1 / REPLICAS, seed=scale.seed)]


def simulated(scale: Scale) -> list[Run]:
    """Return the same runs for the simulator."""
    return [
        msgspec.structs.replace(
            run, scenario=exp_failures.SCENARIO if run.share else exp_publish.SCENARIO
        )
        for run in runs(scale)
        if run.system != "paxos"
    ]


# -- the parent process --


def play(run: Run, note: Note) -> None:
    """Play a run, and write the same rows as a simulated run but with real times."""
    count = REPLICAS + SPARES if run.system == "paxos" else run.nodes
    with TemporaryDirectory("-oncecast-live") as directory:
        plans, victims = planned(run, count, directory)
        processes = [start(plan) for plan in plans]
        try:
            began = begin(plans, processes)
            kill(run, plans, processes, victims, began)
            for process in processes:
                process.wait(max(1.0, began + SECONDS + AFTER + GRACE - time()))
        finally:
            for process in processes:
                process.kill()
                process.wait()
        for number, plan in enumerate(plans):
            if number not in victims or run.system == "paxos":
                for row in recalled(plan):
                    note(*row)
    note(0.0, "failed", "", "", len(victims))
    note(SECONDS + AFTER, "window", "", "", SECONDS + AFTER)


def planned(run: Run, count: int, directory: str) -> tuple[list[Plan], list[int]]:
    """Return the plan of each node, and the numbers of the nodes to kill."""
    rng = Random(f"{run.seed}/live")
    names = addresses(count)
    victims = rng.sample(range(count), round(run.share * count)) if run.system != "paxos" else []
    topics = [f"topic {number}" for number in range(TOPICS)]
    joined = [rng.sample(topics, SUBSCRIBED) for _ in names]
    survivors = [number for number in range(count) if number not in victims]
    owed = {topic: sum(topic in joined[number] for number in survivors) for topic in topics}
    messages: list[list[Planned]] = [[] for _ in names]
    for number in range(run.messages):
        topic, at = rng.choice(topics), SECONDS * (number + rng.random()) / run.messages
        sender = survivors[number % len(survivors)]
        messages[sender].append(Planned(at, topic, str(number), owed[topic]))
    plans = [
        Plan(run, names, number, joined[number], messages[number], directory)
        for number in range(count)
    ]
    return plans, victims


def addresses(count: int) -> list[str]:
    sockets = [create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return found


def start(plan: Plan) -> subprocess.Popen[bytes]:
    words = [
        sys.executable,
        "-m",
        "oncecast.lab.experiments.live",
        msgspec.json.encode(plan).decode(),
    ]
    return subprocess.Popen(words, stdin=subprocess.DEVNULL)


def begin(plans: list[Plan], processes: list[subprocess.Popen[bytes]]) -> float:
    """Wait until all nodes are up, then set and return the time of the first message."""
    give_up = time() + READY_WITHIN
    while not all(recalled(plan) for plan in plans):
        ended = [process.args for process in processes if process.poll() is not None]
        if ended or time() > give_up:
            raise RuntimeError(
                f"not all processes started within {READY_WITHIN:g} s; ended: {ended}"
            )
        sleep(0.05)
    began = time() + SETTLE
    written = plans[0].signal.with_suffix(".new")
    written.write_text(repr(began))
    written.rename(plans[0].signal)
    return began


def kill(
    run: Run,
    plans: list[Plan],
    processes: list[subprocess.Popen[bytes]],
    victims: list[int],
    began: float,
) -> None:
    """Kill the victims at the planned time. In a replica group, the victim is the leader."""
    if not run.share:
        return
    sleep(max(0.0, began + KILL_AFTER - time()))
    if run.system == "paxos":
        victims.extend(leading(plans)[:1])
    for number in victims:
        processes[number].send_signal(signal.SIGKILL)


def leading(plans: list[Plan]) -> list[int]:
    def leads(plan: Plan) -> bool:
        reported = [row for row in recalled(plan) if row[1] == "leader"]
        return bool(reported) and reported[-1][3] == plan.me

    return [plan.number for plan in plans if leads(plan)]


def recalled(plan: Plan) -> list[Row]:
    """Return the rows that a node has written. Ignore an incomplete last line."""
    if not plan.file.exists():
        return []  # the node is not up yet
    lines = plan.file.read_bytes().split(b"\n")[:-1]
    return [msgspec.json.decode(line, type=Row) for line in lines]


# -- a node --


class Actor(ABC):
    """A stack on the network that starts its work when all nodes are up."""

    def __init__(self, plan: Plan, rng: Random, note: Callable[..., None]) -> None:
        self.plan, self._note = plan, note
        self.began = time()

    def note(self, kind: str, subject: str, value: float) -> None:
        self._note(time() - self.began, kind, self.plan.me, subject, value)

    async def come_up(self) -> None:
        self.note("up", "", 0.0)
        while not self.plan.signal.exists():  # noqa: ASYNC110  # another process creates it
            await asyncio.sleep(0.05)
        self.began = float(self.plan.signal.read_text())

    async def until(self, second: float) -> None:
        await asyncio.sleep(max(0.0, self.began + second - time()))

    @abstractmethod
    async def run(self) -> None:
        """Execute the plan from start to end."""


class Peer(Actor):
    """Publishes the planned messages, and records deliveries."""

    def __init__(self, plan: Plan, rng: Random, note: Callable[..., None]) -> None:
        super().__init__(plan, rng, note)
        contacts = [NodeId(plan.names[0])] if plan.number else []
        self.tally = Tally()
        counted = self.tally.counted
        layers: list[Protocol]
        if plan.run.system == "scribe":
            layers = [
                counted(Chord)(plan.me, rng, contacts=contacts),
                counted(Scribe)(plan.me, rng),
            ]
        else:
            layers = [
                counted(HyParView)(plan.me, rng, contacts=contacts),
                counted(Plumtree)(plan.me, rng),
            ]
        self.stack = Stack(layers)
        self.sent = 0

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        async with Runtime(self.stack, me=self.plan.me, on_event=self._hear) as self.runtime:
            await self.come_up()
            if self.plan.run.system == "scribe":
                await self.until(-SETTLE / 2)
                for topic in self.plan.topics:
                    self.runtime.request(JoinTree(topic))
            await self.until(0.0)
            self.tally.counting = True
            for each in self.plan.messages:
                loop.call_later(self.began + each.at - time(), partial(self._publish, each))
            await self.until(SECONDS + AFTER)
            self.tally.tell(time() - self.began, self._note)

    def _publish(self, message: Planned) -> None:
        self.note("publish", message.payload, float(message.owed))
        payload = f"{message.topic}\n{message.payload}".encode()
        if self.plan.run.system == "scribe":
            self.runtime.request(Multicast(message.topic, payload))
        else:
            self.sent += 1
            self.runtime.request(Broadcast(MessageId(self.plan.me, self.sent), payload))
            self._deliver(payload)

    def _hear(self, event: Value) -> None:
        if isinstance(event, Multicasted | Received):
            self._deliver(event.payload)

    def _deliver(self, payload: bytes) -> None:
        topic, _, name = payload.decode().partition("\n")
        if topic in self.plan.topics:
            self.note("delivery", name, 1.0)


class Replica(Actor):
    """A replica. If it leads, it puts values one by one, starting after the last known value."""

    def __init__(self, plan: Plan, rng: Random, note: Callable[..., None]) -> None:
        super().__init__(plan, rng, note)
        names = [NodeId(name) for name in plan.names]
        replicas = enumerate(names[:REPLICAS], 1)
        founders = Config(1, tuple(Member(node, number) for number, node in replicas), REPLICAS)
        founder = founders.member(plan.me)
        paxos = Paxos(
            plan.me,
            rng,
            options=FAST,
            contacts=() if founder else tuple(names[:REPLICAS]),
            founders=founders if founder else NO_MEMBERS,
            incarnation=founder.incarnation if founder else 0,
        )
        self.ledger = Ledger(plan.me, rng, paxos)
        paxos.attach(self.ledger)
        self.stack = Stack([paxos, self.ledger])

    async def run(self) -> None:
        disk = OsDisk(Path(self.plan.directory) / f"disk-{self.plan.number}")
        journal = Journal.open(disk, self.stack, segment_bytes=1 << 20)
        runtime = Runtime(
            self.stack, me=self.plan.me, journal=journal, on_event=self._hear, trace=self._trace
        )
        async with runtime:
            await self.come_up()
            await self.until(0.0)
            while time() < self.began + SECONDS:
                if self.ledger.leading:
                    runtime.request(Put(0, self.ledger.next.get(0, 0), b"live"))
                await asyncio.sleep(PUT_EVERY)
            await self.until(SECONDS + AFTER)

    def _trace(self, now: float, step: str, subject: object, effects: list[Effect]) -> None:
        for effect in effects:
            match effect.event if isinstance(effect, Emit) else None:
                case Decided(slot, value, _):
                    self.note("decided", f"{google_crc32c.value(value):08x}", slot)
                case LeaderChanged(leader):
                    self.note("leader", leader, 0.0)
                case Added(member):
                    self.note("added", member, 0.0)
                case _:
                    pass

    def _hear(self, event: Value) -> None:
        if isinstance(event, Acked):
            self.note("acked", f"{event.producer}.{event.sequence}", event.slot)


def main(plan: Plan) -> None:
    rng = Random(f"{plan.run.seed}/{plan.me}")
    with plan.file.open("wb", buffering=0) as file:

        def note(*row: object) -> None:
            file.write(msgspec.json.encode(row) + b"\n")

        make = Replica if plan.run.system == "paxos" else Peer
        run_loop(make(plan, rng, note).run())


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Plan))
