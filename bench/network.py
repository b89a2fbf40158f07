"""Compare the network runtime with plain asyncio, between two processes on loopback.

one way      send messages of 100 B and of 1 MB from one process to the other
             bare: send prepared bytes; the receiver counts frames and decodes nothing
             transport: encode, send and decode each message
             runtime: handle each message as a step of a stack on both sides
round trip   send one message and wait for its answer, through two stacks or two plain sockets
steps        send requests to a stack without peers; with a journal, each request appends 100 B

Numbers are medians over the rounds, with min and max.

    python bench/network.py [--json] [--rounds 5] [--directory DIR]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median, quantiles
from time import perf_counter
from typing import Any

from oncecast.kernel.codec import Codec
from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.kernel.stack import Stack
from oncecast.network.framing import MESSAGE, PREAMBLE, Buffers, Framer, frame
from oncecast.network.network import Runtime, run
from oncecast.network.options import Options, Stats
from oncecast.network.transport import Transport
from oncecast.network.trust import Trust
from oncecast.storage.disk import OsDisk
from oncecast.storage.journal import Journal

SMALL, LARGE = 100, 1_000_000
MESSAGES = {SMALL: 200_000, LARGE: 1_000}
TURN_BYTES = 200_000  # number of bytes to send before the event loop runs again
UNSENT_BYTES = 16_000_000  # the sender waits at this number of unsent bytes
TRIPS = 5_000
STEPS = 50_000
OPTIONS = Options(queue_bytes_max=1 << 30, waiting_bytes_max=1 << 30)
LAST = b"last"


class Load(Value):
    content: bytes


class Ball(Value):
    content: bytes


class Send(Value):
    to: NodeId
    content: bytes


class Serve(Value):
    to: NodeId


class Store(Value):
    content: bytes


class Stored(Value):
    content: bytes


class Back(Value):
    pass


class Arrived(Value):
    content: bytes


class Court(Protocol):
    """A protocol that sends messages on request, answers pings and stores records."""

    name = "court"
    Request = Send | Serve | Store
    Message = Load | Ball
    Record = Stored

    def __init__(self, me: NodeId, *, returns: bool, durable: bool = False) -> None:
        super().__init__(me, Random(1))
        self.returns, self.durable = returns, durable

    def request(self, request: Send | Serve | Store) -> None:
        match request:
            case Send(to, content):
                self.send(to, Load(content))
            case Serve(to):
                self.send(to, Ball(b"x" * SMALL))
            case Store(content):
                if self.durable:
                    self.append(Stored(content))
                self.emit(Back())

    def receive(self, sender: NodeId, message: Load | Ball) -> None:
        if isinstance(message, Load):
            self.emit(Arrived(message.content))
        elif self.returns:
            self.send(sender, message)
        else:
            self.emit(Back())


# -- the other process: counts the messages and reports the time --


class Count:
    def __init__(self) -> None:
        self.began = 0.0

    def add(self, content: bytes) -> None:
        if not self.began:
            self.began = perf_counter()
        if content == LAST:
            print(perf_counter() - self.began, flush=True)
            self.began = 0.0


class BareReceiver(asyncio.BufferedProtocol):
    def __init__(self, echo: bool) -> None:
        self.framer, self.echo = Framer(Buffers()), echo
        self.framer.trust(2 * LARGE)
        self.count = Count()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.framer.get_buffer()

    def buffer_updated(self, count: int) -> None:
        for _, body in self.framer.received(count):
            if self.echo:
                self.transport.write(frame(MESSAGE, bytes(body)))
            elif len(body) == len(LAST) or not self.count.began:
                self.count.add(bytes(body))


async def serve(kind: str, me: NodeId) -> None:
    forever = asyncio.Event()
    host, port = me.split(":")
    count = Count()
    if kind in ("bare", "echo"):
        loop = asyncio.get_running_loop()
        await loop.create_server(lambda: BareReceiver(kind == "echo"), host, int(port))
    elif kind == "transport":
        transport = Transport(
            me,
            Codec((Load,)),
            deliver=lambda _, load: count.add(load.content),  # type: ignore[attr-defined]
            down=lambda peer: None,
            options=OPTIONS,
            stats=Stats(),
            trust=Trust(),
        )
        await transport.open(me)
    else:
        await Runtime(
            Stack([Court(me, returns=True)]),
            me=me,
            on_event=lambda event: count.add(event.content),  # type: ignore[attr-defined]
            options=OPTIONS,
        ).__aenter__()
    print("ready", flush=True)
    await forever.wait()


class Peer:
    """The process at the other end of the measured link."""

    def __init__(self, kind: str) -> None:
        self.kind, self.id = kind, free_address()

    def __enter__(self) -> Peer:
        command = [sys.executable, __file__, "--serve", self.kind, self.id]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.hear()
        return self

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def free_address() -> NodeId:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return NodeId(f"127.0.0.1:{sock.getsockname()[1]}")


# -- one way --


async def pour(
    peer: Peer, size: int, send: Callable[[bytes], None], unsent: Callable[[NodeId], int]
) -> float:
    """Return the messages per second that the second process counts."""
    content = b"x" * size
    a_turn = max(1, TURN_BYTES // size)
    for n in range(MESSAGES[size]):
        send(content)
        if n % a_turn == 0:
            await asyncio.sleep(0)
            while unsent(peer.id) > UNSENT_BYTES:  # noqa: ASYNC110  # there is no event for it
                await asyncio.sleep(0.001)
    send(LAST)
    seconds = float(await asyncio.to_thread(peer.hear))
    return MESSAGES[size] / seconds


async def bare_way(peer: Peer, size: int) -> float:
    host, port = peer.id.split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    a_turn = max(1, TURN_BYTES // size)
    whole = frame(MESSAGE, b"x" * size) * a_turn
    writer.write(PREAMBLE)
    for _ in range(MESSAGES[size] // a_turn):
        writer.write(whole)
        await writer.drain()
    writer.write(frame(MESSAGE, LAST))
    seconds = float(await asyncio.to_thread(peer.hear))
    writer.close()
    return MESSAGES[size] / seconds


async def transport_way(peer: Peer, size: int) -> float:
    transport = Transport(
        free_address(),
        Codec((Load,)),
        deliver=lambda sender, message: None,
        down=lambda peer: None,
        options=OPTIONS,
        stats=Stats(),
        trust=Trust(),
    )
    await transport.open(transport.identity.me)
    rate = await pour(
        peer,
        size,
        lambda content: transport.send(peer.id, Load(content)),
        transport.unsent_bytes,
    )
    await transport.close(0.0)
    return rate


async def runtime_way(peer: Peer, size: int) -> float:
    me = free_address()
    async with Runtime(Stack([Court(me, returns=False)]), me=me, options=OPTIONS) as node:
        return await pour(
            peer, size, lambda content: node.request(Send(peer.id, content)), node.unsent_bytes
        )


WAYS = {"bare": bare_way, "transport": transport_way, "runtime": runtime_way}


# -- round trips: microseconds, the median of many --


async def bare_trips(peer: Peer) -> list[float]:
    host, port = peer.id.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(PREAMBLE)
    ball, trips = frame(MESSAGE, b"x" * SMALL), []
    for _ in range(TRIPS):
        start = perf_counter()
        writer.write(ball)
        await reader.readexactly(len(ball))
        trips.append(perf_counter() - start)
    writer.close()
    return trips


async def runtime_trips(peer: Peer) -> list[float]:
    me, trips = free_address(), []
    back = asyncio.Event()
    stack = Stack([Court(me, returns=False)])
    async with Runtime(stack, me=me, on_event=lambda _: back.set(), options=OPTIONS) as node:
        for _ in range(TRIPS):
            start = perf_counter()
            node.request(Serve(peer.id))
            await back.wait()
            back.clear()
            trips.append(perf_counter() - start)
    return trips[100:]  # the first round includes two handshakes


TRIP_WAYS = {"echo": bare_trips, "runtime": runtime_trips}


# -- steps --


async def steps(directory: Path | None, a_turn: int) -> float:
    me, done, count = free_address(), asyncio.Event(), 0
    stack = Stack([Court(me, returns=False, durable=directory is not None)])
    disk = OsDisk(directory) if directory else None
    journal = Journal.open(disk, stack) if disk else None
    total = STEPS if a_turn > 1 or disk is None else STEPS // 50

    def back(event: Value) -> None:
        nonlocal count
        count += 1
        if count % a_turn == 0:
            done.set()

    async with Runtime(stack, me=me, journal=journal, on_event=back) as node:
        start = perf_counter()
        for _ in range(total // a_turn):
            for _ in range(a_turn):
                node.request(Store(b"x" * SMALL))
            await done.wait()
            done.clear()
        seconds = perf_counter() - start
    if disk:
        disk.close()
    return total / seconds


# -- all of it --


def spread(values: list[float]) -> dict[str, float]:
    return {"median": median(values), "min": min(values), "max": max(values)}


def one_way(rounds: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for size in (SMALL, LARGE):
        rates: dict[str, list[float]] = {way: [] for way in WAYS}
        for n in range(rounds):
            for way, measure in WAYS.items():
                progress(f"one way, {size} B, {way}, round {n + 1} of {rounds}")
                with Peer(way) as peer:
                    rates[way].append(run(measure(peer, size)))
        found[f"{size} B"] = {
            way: {"messages/s": spread(each), "MB/s": median(each) * size / 1e6}
            for way, each in rates.items()
        }
    return found


def round_trip(rounds: int) -> dict[str, Any]:
    times: dict[str, list[float]] = {way: [] for way in TRIP_WAYS}
    for n in range(rounds):
        for way, measure in TRIP_WAYS.items():
            progress(f"round trip, {way}, round {n + 1} of {rounds}")
            with Peer(way) as peer:
                times[way] += run(measure(peer))
    return {
        "bare" if way == "echo" else way: {
            "p50 us": median(each) * 1e6,
            "p99 us": quantiles(each, n=100)[98] * 1e6,
        }
        for way, each in times.items()
    }


def stepping(rounds: int, root: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for a_turn in (1000, 1):
        for durable in (False, True):
            name = f"{a_turn} a turn, {'with a journal' if durable else 'no journal'}"
            rates = []
            for n in range(rounds):
                progress(f"steps, {name}, round {n + 1} of {rounds}")
                directory = root / f"{a_turn}-{n}" if durable else None
                rates.append(run(steps(directory, a_turn)))
            found[name] = {"steps/s": spread(rates)}
    return found


def progress(text: str) -> None:
    print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def show(results: dict[str, Any]) -> None:
    for part, rows in results.items():
        print(part)
        for name, row in rows.items():
            print(f"  {name}")
            for key, figure in row.items():
                print(f"    {key:<12} {formatted(figure)}")


def formatted(figure: Any) -> str:
    if not isinstance(figure, dict):
        return f"{figure:,.0f}"
    if "median" in figure:
        return f"{figure['median']:,.0f} ({figure['min']:,.0f} to {figure['max']:,.0f})"
    return ", ".join(f"{key} {formatted(each)}" for key, each in figure.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--directory", type=Path, help="directory for temporary files, on the disk to measure"
    )
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        run(serve(arguments.serve[0], NodeId(arguments.serve[1])))
        return
    root = Path(tempfile.mkdtemp(prefix="oncecast-bench-", dir=arguments.directory))
    try:
        results = {
            "one way": one_way(arguments.rounds),
            "round trip": round_trip(arguments.rounds),
            "steps": stepping(arguments.rounds, root),
        }
    finally:
        shutil.rmtree(root)
        progress("")
    if arguments.json:
        print(json.dumps(results, indent=2))
    else:
        show(results)


if __name__ == "__main__":
    main()
