"""Measure the latency of an honest client while a node has thousands of hostile connections.

Quiet and attacked phases alternate in one run. In each phase, one client puts messages, one at a
time, and another client waits for each of them. New honest clients also connect.

Attackers run at the lowest priority, so that they do not take CPU time from the honest client. They
connect from separate addresses, so that a node can distinguish them like separate hosts.
"""

from __future__ import annotations

import asyncio
import base64
import os
import resource
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.sharedctypes import SynchronizedArray
from multiprocessing.synchronize import Event
from pathlib import Path
from random import Random
from statistics import quantiles
from time import perf_counter

import oncecast
from bench.hostile.targets import HONEST, KINDS, MALLORY, TOPIC, Kind, Target, running
from bench.hostile.ways import Way, context_of
from bench.peers.peer import PAUSE, Failed, say
from oncecast.errors import OncecastError
from oncecast.kernel.codec import ENCODER
from oncecast.kernel.protocol import Value
from oncecast.network.framing import (
    GREETING,
    HEADER,
    HEADER_BYTES,
    MESSAGE,
    PREAMBLE,
    frame,
)
from oncecast.network.handshake import GREETINGS, Challenge, Hello, Proof, Welcome
from oncecast.wire import commands as do
from oncecast.wire.frames import Call, Look, Scan

EACH_PROCESS = 1250  # number of connections per attacker process
SOURCES = 64  # number of addresses from which attackers connect
ROUNDS = 4
REDIAL = 2.0  # mean seconds until a closed connection is opened again
RAMP = 60.0  # maximum seconds until the attack has its full size
STEADY = 1.0  # seconds between two checks of the attack's size
FRESH_TOPIC = f"{TOPIC}.fresh"
FRESH = 5  # number of new honest clients per phase
FRESH_TIMEOUT = 10.0
TOGETHER = 50  # number of requests per write
TOPICS = 2000  # number of topics that attackers create
LOW_PRIORITY = 19
VALUE = bytes(92)
RATIO_MAX = 3.0


# -- in the attacker's process --


class Line:
    """A raw connection from an attacker."""

    def __init__(
        self, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.way, self.reader, self.writer = way, reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def greeting(self, hello: Hello) -> Value:
        """Send a Hello and return the node's answer."""
        await self.send(PREAMBLE + frame(GREETING, GREETINGS.encode(hello)))
        await self.reader.readexactly(len(PREAMBLE))
        return await self.answer()

    async def answer(self) -> Value:
        length, _ = HEADER.unpack(await self.reader.readexactly(HEADER_BYTES))
        return GREETINGS.decode(await self.reader.readexactly(length))

    async def come_in(self) -> None:
        """Do the handshake, or raise ConnectionError."""
        if not isinstance(await self.greeting(self.way.hello()), Welcome):
            raise ConnectionError("refused")

    async def until_closed(self) -> None:
        while await self.reader.read(1 << 16):
            pass


async def half_greet(line: Line, rng: Random) -> None:
    await line.send(PREAMBLE[: rng.randrange(len(PREAMBLE) + 1)])
    await line.until_closed()


async def send_slowly(line: Line, rng: Random) -> None:
    await line.come_in()
    await line.send(HEADER.pack(100_000, MESSAGE))
    while True:
        await line.send(b"\xc0")
        await asyncio.sleep(1.0)


async def flood(line: Line, rng: Random) -> None:
    """Send many requests, and read the answers."""
    await line.come_in()
    kinds = (look, scan, create)
    while True:
        requests = [rng.choice(kinds)(rng) for _ in range(TOGETHER)]
        await line.send(b"".join(frame(MESSAGE, ENCODER.encode(each)) for each in requests))
        if not await line.reader.read(1 << 20):
            return


async def never_read(line: Line, rng: Random) -> None:
    await line.come_in()
    while True:
        await line.send(frame(MESSAGE, ENCODER.encode(scan(rng))) * TOGETHER)


async def guess(line: Line, rng: Random) -> None:
    """Guess a password of the honest user, without computing a proof."""
    nonce = base64.b64encode(rng.randbytes(18)).decode()
    hello = replace_login(line.way.hello(), f"n,,n={HONEST},r={nonce}")
    answer = await line.greeting(hello)
    if isinstance(answer, Challenge):
        full = answer.login.partition(",")[0].removeprefix("r=")
        proof = base64.b64encode(rng.randbytes(32)).decode()
        final = Proof(f"c=biws,r={full},p={proof}")
        await line.send(frame(GREETING, GREETINGS.encode(final)))
    await line.until_closed()


def replace_login(hello: Hello, login: str) -> Hello:
    return Hello(
        hello.version, hello.cluster, hello.role, "", hello.to, hello.incarnation, "", login
    )


def look(rng: Random) -> Value:
    return Look(rng.randrange(1 << 30))


def scan(rng: Random) -> Value:
    return Scan(rng.randrange(1 << 30), MALLORY, do.FromEarliest(), bytes=8 << 20)


def create(rng: Random) -> Value:
    return Call(rng.randrange(1 << 30), do.CreateTopic(f"{MALLORY}.{rng.randrange(TOPICS)}", 0))


Act = Callable[[Line, Random], Awaitable[None]]
ACTS: tuple[Act, ...] = (half_greet, send_slowly, flood, never_read, guess)
OPEN, DIALLED, CLOSED = range(3)  # indexes of an attacker's counters


class Gang:
    """The hostile connections from one attacker process."""

    def __init__(self, way: Way, count: int, seed: int, counts: SynchronizedArray[int]) -> None:
        self._way, self._count, self._seed, self._counts = way, count, seed, counts

    async def run(self, active: Event, over: Event) -> None:
        tasks: list[asyncio.Task[None]] = []
        while not over.is_set():
            if active.is_set() and not tasks:
                tasks = [asyncio.create_task(self._attack(n)) for n in range(self._count)]
            elif not active.is_set() and tasks:
                await end(tasks)
                tasks = []
            await asyncio.sleep(0.05)
        await end(tasks)

    async def _attack(self, number: int) -> None:
        rng = Random(self._seed + number)
        act = ACTS[number % len(ACTS)]
        source = f"127.0.1.{1 + rng.randrange(SOURCES)}"
        await asyncio.sleep(rng.uniform(0.0, REDIAL))
        while True:
            with suppress(OSError, EOFError, ssl.SSLError):
                await self._once(act, rng, source)
            self._note(CLOSED, 1)
            await asyncio.sleep(rng.uniform(0.5, 1.5) * REDIAL)

    async def _once(self, act: Act, rng: Random, source: str) -> None:
        way = self._way
        host, _, port = way.address.rpartition(":")
        context = context_of(way.ca, "", "") if way.ca else None
        self._note(DIALLED, 1)
        reader, writer = await asyncio.open_connection(
            host, int(port), ssl=context, local_addr=(source, 0)
        )
        self._note(OPEN, 1)
        try:
            await act(Line(way, reader, writer), rng)
        finally:
            self._note(OPEN, -1)
            writer.transport.abort()

    def _note(self, which: int, change: int) -> None:
        with self._counts.get_lock():
            self._counts[which] += change


async def end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def attackers(
    way: Way, count: int, seed: int, counts: SynchronizedArray[int], active: Event, over: Event
) -> None:
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    os.setpriority(os.PRIO_PROCESS, 0, LOW_PRIORITY)
    asyncio.run(Gang(way, count, seed, counts).run(active, over))


# -- in the process of the benchmark --


@dataclass
class Phase:
    """The samples for one kind of phase, in seconds."""

    times: list[float] = field(default_factory=list)
    connects: list[float] = field(default_factory=list)
    locked_out: int = 0
    hostile: int = 0  # minimum number of open hostile connections at the end of a phase

    def quantile(self, percent: int) -> float:
        return quantiles(self.times, n=100, method="inclusive")[percent - 1]


@dataclass
class Storm:
    target: str
    connections: int
    quiet: Phase
    attacked: Phase
    ratios: list[float]  # each round's ratio of the p99
    grown_mb: float
    faults: list[str]

    @property
    def ratio(self) -> float:
        return self.attacked.quantile(99) / self.quiet.quantile(99)


SCENES: tuple[tuple[str, Kind, bool], ...] = (
    ("all connected", KINDS[0], True),
    ("all connected", KINDS[1], True),
    ("default limits", KINDS[1], False),
)


def storms(connections: int, samples: int, root: Path, rounds: int = ROUNDS) -> Iterator[Storm]:
    for number, (name, kind, wide) in enumerate(SCENES):
        flags = ("--connections-max", str(connections + 1000)) if wide else ()
        with running(kind, root / f"storm{number}", flags) as target:
            yield storm(target, f"{kind.name}, {name}", connections, samples, rounds)


def storm(target: Target, name: str, connections: int, samples: int, rounds: int) -> Storm:
    found = Storm(name, connections, Phase(), Phase(), [], 0.0, [])
    way = next(each for each in reversed(target.ways()) if each.role == "client")
    with gangs(way, connections) as (active, counts):
        asyncio.run(alternate(target, found, active, counts, samples, rounds))
    found.faults = target.faults()
    found.grown_mb = target.grown_mb
    if found.attacked.locked_out:
        found.faults.append(f"{name}: {found.attacked.locked_out} honest clients were locked out")
    if found.ratio > RATIO_MAX:
        found.faults.append(
            f"{name}: the p99 rose by a factor of {found.ratio:.1f} (limit {RATIO_MAX:g})"
        )
    return found


@contextmanager
def gangs(way: Way, connections: int) -> Iterator[tuple[Event, SynchronizedArray[int]]]:
    """Start attackers that wait for their event. Terminate them at the end."""
    context = get_context("spawn")
    active, over, counts = context.Event(), context.Event(), context.Array("q", 3)
    count = -(-connections // EACH_PROCESS)
    shares = [len(range(n, connections, count)) for n in range(count)]
    processes = [
        context.Process(
            target=attackers, args=(way, share, 10_000 * n, counts, active, over), daemon=True
        )
        for n, share in enumerate(shares)
    ]
    for each in processes:
        each.start()
    try:
        yield active, counts
    finally:
        over.set()
        for each in processes:
            each.join(10.0)
            each.kill()
            each.join()


# This function is long because it sets up the clients and runs all phases.
async def alternate(
    target: Target,
    found: Storm,
    active: Event,
    counts: SynchronizedArray[int],
    samples: int,
    rounds: int,
) -> None:
    async with AsyncExitStack() as clients:
        publisher = await clients.enter_async_context(target.honest())
        subscriber = await clients.enter_async_context(target.honest())
        reading = await subscriber.subscribe(TOPIC, HONEST)
        await trips(publisher, reading, min(samples, 100))  # a warm-up that does not count
        for _ in range(rounds):
            both = []
            for phase, attacked in ((found.quiet, False), (found.attacked, True)):
                await settle(active, counts, attacked, found.connections)
                times = await trips(publisher, reading, samples)
                phase.times += times
                both.append(Phase(times).quantile(99))
                await connect_anew(target, phase)
                if attacked:
                    phase.hostile = min(phase.hostile or counts[OPEN], counts[OPEN])
            found.ratios.append(both[1] / both[0])
            say(
                f"  {found.target}: p99 {both[0] * 1e3:.1f} ms, attacked {both[1] * 1e3:.1f} ms, "
                f"{counts[OPEN]} open, {counts[DIALLED]} dialled, {counts[CLOSED]} closed"
            )
        active.clear()
        await reading.close()


async def settle(
    active: Event, counts: SynchronizedArray[int], attacked: bool, connections: int
) -> None:
    """Start or end the attack, and wait until the number of open connections is steady."""
    if attacked:
        active.set()
    else:
        active.clear()
    give_up, before = perf_counter() + RAMP, -1
    while perf_counter() < give_up:
        now = counts[OPEN]
        if (attacked and now >= 0.95 * connections) or (not attacked and now == 0):
            return
        if attacked and before > 0 and abs(now - before) < 0.02 * before:
            return  # the node does not accept more connections
        before = now
        await asyncio.sleep(STEADY)
    if not attacked:
        raise Failed("attackers did not end within a minute")


async def trips(
    publisher: oncecast.Client, reading: oncecast.Subscription, count: int
) -> list[float]:
    """Return the seconds from each put until a waiting subscriber has the message."""
    times = []
    for number in range(count):
        value = number.to_bytes(8) + VALUE
        getting = asyncio.ensure_future(arrival(reading, value))
        await asyncio.sleep(PAUSE)  # by now, the subscriber is waiting
        began = perf_counter()
        put = asyncio.ensure_future(publisher.put(TOPIC, value))
        times.append(await getting - began)
        await put
    return times


async def arrival(reading: oncecast.Subscription, value: bytes) -> float:
    while (message := await reading.get()) is None or message.value != value:
        pass  # ignore a message from an earlier client
    return perf_counter()


async def connect_anew(target: Target, phase: Phase) -> None:
    for _ in range(FRESH):
        began = perf_counter()
        try:
            async with asyncio.timeout(FRESH_TIMEOUT), target.honest() as client:
                await client.put(FRESH_TOPIC, VALUE)
        except (OncecastError, TimeoutError):
            phase.locked_out += 1
        phase.connects.append(perf_counter() - began)


def open_files() -> int:
    """Raise the limit of open files as far as the system allows. Child processes inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
