"""A client process under torture: it publishes, subscribes or observes until SIGTERM.

Each process writes one JSON line for each acknowledged put or received batch, before it does
anything that depends on it. A killed client loses at most its last line. Each process also records
the history of all its calls, for `oncecast history check`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import time
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import IO, Any

import oncecast
from oncecast import EARLIEST, Message, Policy
from oncecast.history import Recorder
from oncecast.history.file import Writer
from oncecast.lab.recording import RecordedClient

HISTORY = "history.jsonl"
VALUE_BYTES = 100
PUTS_MOST = 60  # messages that a publisher puts at once
ROUNDS_IN_FLIGHT = 8
GET_MOST = 500
CALL_TIMEOUT = 60.0


class Book:
    """The records of one process, which are on disk before it continues."""

    def __init__(self, path: Path) -> None:
        self._file: IO[str] = path.open("a")

    def write(self, **line: Any) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def digest(value: bytes) -> int:
    return zlib.crc32(value)


def lines(directory: Path, kind: str) -> list[dict[str, Any]]:
    """Read all books of this kind; a last line that was cut off by a kill does not count."""
    found: list[dict[str, Any]] = []
    for path in sorted(directory.glob(f"*.{kind}.jsonl")):
        for text in path.read_text().splitlines():
            try:
                found.append(json.loads(text))
            except ValueError:
                continue
    return found


class Life:
    """One process of one client."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.name, self.life = options.name, options.life
        self.topics: list[str] = options.topics.split(",")
        self.directory = Path(options.directory)
        self.rng = random.Random(f"{options.seed} {self.name} {self.life}")
        self.over = asyncio.Event()

    def book(self, kind: str) -> Book:
        return Book(self.directory / f"{self.name}-{self.life}.{kind}.jsonl")

    def connect(self, **more: Any) -> oncecast.Client:
        """Return a client that records its history, unbuffered, in a file of this process."""
        file = (self.directory / f"{self.name}-{self.life}.{HISTORY}").open("wb", buffering=0)
        recorder = Recorder(time.monotonic, Writer(file))
        return RecordedClient(recorder, self.options.server, timeout=CALL_TIMEOUT, **more)

    async def sleep(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self.over.wait(), seconds)
        except TimeoutError:
            return


async def create(life: Life) -> None:
    """Make the topics and end."""
    async with life.connect(name=life.name) as client:
        for topic in life.topics:
            await client.create_topic(topic, Policy(keep_all=True))


async def publish(life: Life) -> None:
    """Put numbered messages at a steady rate; each process uses each number once."""
    book, rate = life.book("puts"), life.options.rate
    numbers = dict.fromkeys(life.topics, 0)
    free = asyncio.Semaphore(ROUNDS_IN_FLIGHT)
    state = life.directory / f"{life.name}.state"
    async with life.connect(name=life.name, state=state) as client, asyncio.TaskGroup() as rounds:

        async def put(topic: str, first: int, values: list[bytes]) -> None:
            try:
                receipts = await asyncio.gather(*(client.put(topic, each) for each in values))
                offsets = [receipt.offset for receipt in receipts]
                book.write(topic=topic, writer=writer, first=first, offsets=offsets)
            finally:
                free.release()

        writer = f"{life.name}.{life.life}"
        due = time.monotonic()
        while not life.over.is_set():
            topic, count = life.rng.choice(life.topics), life.rng.randint(1, PUTS_MOST)
            first = numbers[topic]
            numbers[topic] += count
            await free.acquire()
            values = [value_of(writer, number) for number in range(first, first + count)]
            rounds.create_task(put(topic, first, values))
            due = max(due + count / rate, time.monotonic() - 1.0)
            await life.sleep(max(0.0, due - time.monotonic()))


def value_of(writer: str, number: int) -> bytes:
    return f"{writer}/{number}/".encode().ljust(VALUE_BYTES, b".")


async def subscribe(life: Life) -> None:
    """Read every topic, and store results and position together, as E3 asks for."""
    book = life.book("gets")
    due = dict.fromkeys(life.topics, 0)
    for line in lines(life.directory, "gets"):
        if line["reader"] == life.name:
            due[line["topic"]] = max(due[line["topic"]], line["first"] + len(line["digests"]))
    async with life.connect(name=f"{life.name}.{life.life}") as client, asyncio.TaskGroup() as all_:

        async def read(topic: str) -> None:
            reading = await client.subscribe(
                topic, life.name, start=EARLIEST, start_at=due[topic], auto_ack=False
            )
            while not life.over.is_set():
                got = await reading.get_many(GET_MOST, timeout=0.5)
                if got:
                    note(topic, got)
                    reading.ack(got[-1])
            await reading.flush(CALL_TIMEOUT)

        def note(topic: str, got: list[Message]) -> None:
            digests = [digest(each.value) for each in got]
            offsets = [each.offset for each in got]
            assert offsets == list(range(offsets[0], offsets[0] + len(got))), offsets
            book.write(reader=life.name, topic=topic, first=offsets[0], digests=digests)

        for topic in life.topics:
            all_.create_task(read(topic))


async def observe(life: Life) -> None:
    """Look at topics, scan them, and make, use and delete topics of its own."""
    async with life.connect(name=f"{life.name}.{life.life}") as client:
        while not life.over.is_set():
            await life.sleep(life.rng.uniform(0.05, 0.3))
            act = life.rng.choice((look, look, scan_end, recreate))
            await act(life, client)


async def look(life: Life, client: oncecast.Client) -> None:
    await client.describe(life.rng.choice(life.topics))


async def scan_end(life: Life, client: oncecast.Client) -> None:
    topic = life.rng.choice(life.topics)
    end = (await client.describe(topic)).next
    start = oncecast.from_offset(max(0, end - life.rng.randint(1, 500)))
    async for _ in client.scan(topic, start):
        pass


async def recreate(life: Life, client: oncecast.Client) -> None:
    topic = f"scratch-{life.name}"
    await client.create_topic(topic, Policy(keep_all=True))
    for _ in range(life.rng.randint(1, 5)):
        await client.put(topic, value_of(f"{life.name}.{life.life}", life.rng.randrange(1 << 30)))
    await client.describe(topic)
    if life.rng.random() < 0.5:
        await client.delete_topic(topic)


ROLES: dict[str, Callable[[Life], Awaitable[None]]] = {
    "creator": create,
    "publisher": publish,
    "subscriber": subscribe,
    "observer": observe,
}


async def run(options: argparse.Namespace) -> None:
    life = Life(options)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, life.over.set)
    await ROLES[options.role](life)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("--server", required=True, help="addresses of the nodes, with commas")
    parser.add_argument("--name", required=True, help="the client's durable name")
    parser.add_argument("--life", type=int, required=True, help="number of this process, from 1")
    parser.add_argument("--directory", required=True, help="directory for records and state")
    parser.add_argument("--topics", required=True, help="topics to use, with commas")
    parser.add_argument("--rate", type=float, default=1000.0, help="messages per second to put")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random choices")
    asyncio.run(run(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
