"""Run a client process for the torture test. It publishes, subscribes or observes until SIGTERM.

Each process writes a JSON line for each acknowledged put or received batch, before it continues. A
killed client loses at most its last line. Each process also records
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
PUTS_MOST = 60  # maximum number of messages that a publisher puts at once
ROUNDS_IN_FLIGHT = 8
GET_MOST = 500
CALL_TIMEOUT = 60.0


class RecordFile:
    """The records of one process. Each is on disk before the process continues."""

    def __init__(self, path: Path) -> None:
        self._file: IO[str] = path.open("a")

    def write(self, **line: Any) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def digest(value: bytes) -> int:
    return zlib.crc32(value)


def lines(directory: Path, kind: str) -> list[dict[str, Any]]:
    """Read all record files of this kind, except for a last line that a kill has cut off."""
    found: list[dict[str, Any]] = []
    for path in sorted(directory.glob(f"*.{kind}.jsonl")):
        for text in path.read_text().splitlines():
            try:
                found.append(json.loads(text))
            except ValueError:
                continue
    return found


class Worker:
    """One process of one client."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.name, self.number = options.name, options.number
        self.topics: list[str] = options.topics.split(",")
        self.directory = Path(options.directory)
        self.rng = random.Random(f"{options.seed} {self.name} {self.number}")
        self.over = asyncio.Event()

    def record_file(self, kind: str) -> RecordFile:
        return RecordFile(self.directory / f"{self.name}-{self.number}.{kind}.jsonl")

    def connect(self, **more: Any) -> oncecast.Client:
        """Return a client that records its history, unbuffered, in a file of this process."""
        file = (self.directory / f"{self.name}-{self.number}.{HISTORY}").open("wb", buffering=0)
        recorder = Recorder(time.monotonic, Writer(file))
        return RecordedClient(recorder, self.options.server, timeout=CALL_TIMEOUT, **more)

    async def sleep(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self.over.wait(), seconds)
        except TimeoutError:
            return


async def create(worker: Worker) -> None:
    """Create the topics and exit."""
    async with worker.connect(name=worker.name) as client:
        for topic in worker.topics:
            await client.create_topic(topic, Policy(keep_all=True))


async def publish(worker: Worker) -> None:
    """Put numbered messages at a steady rate; each process uses each number once."""
    file, rate = worker.record_file("puts"), worker.options.rate
    numbers = dict.fromkeys(worker.topics, 0)
    free = asyncio.Semaphore(ROUNDS_IN_FLIGHT)
    state = worker.directory / f"{worker.name}.state"
    async with (
        worker.connect(name=worker.name, state=state) as client,
        asyncio.TaskGroup() as rounds,
    ):

        async def put(topic: str, first: int, values: list[bytes]) -> None:
            try:
                receipts = await asyncio.gather(*(client.put(topic, each) for each in values))
                offsets = [receipt.offset for receipt in receipts]
                file.write(topic=topic, writer=writer, first=first, offsets=offsets)
            finally:
                free.release()

        writer = f"{worker.name}.{worker.number}"
        due = time.monotonic()
        while not worker.over.is_set():
            topic, count = worker.rng.choice(worker.topics), worker.rng.randint(1, PUTS_MOST)
            first = numbers[topic]
            numbers[topic] += count
            await free.acquire()
            values = [value_of(writer, number) for number in range(first, first + count)]
            rounds.create_task(put(topic, first, values))
            due = max(due + count / rate, time.monotonic() - 1.0)
            await worker.sleep(max(0.0, due - time.monotonic()))


def value_of(writer: str, number: int) -> bytes:
    return f"{writer}/{number}/".encode().ljust(VALUE_BYTES, b".")


async def subscribe(worker: Worker) -> None:
    """Read every topic, and store results and position together, as guarantee E3 requires."""
    file = worker.record_file("gets")
    due = dict.fromkeys(worker.topics, 0)
    for line in lines(worker.directory, "gets"):
        if line["reader"] == worker.name:
            due[line["topic"]] = max(due[line["topic"]], line["first"] + len(line["digests"]))
    async with (
        worker.connect(name=f"{worker.name}.{worker.number}") as client,
        asyncio.TaskGroup() as all_,
    ):

        async def read(topic: str) -> None:
            reading = await client.subscribe(
                topic, worker.name, start=EARLIEST, start_at=due[topic], auto_ack=False
            )
            while not worker.over.is_set():
                got = await reading.get_many(GET_MOST, timeout=0.5)
                if got:
                    note(topic, got)
                    reading.ack(got[-1])
            await reading.flush(CALL_TIMEOUT)

        def note(topic: str, got: list[Message]) -> None:
            digests = [digest(each.value) for each in got]
            offsets = [each.offset for each in got]
            assert offsets == list(range(offsets[0], offsets[0] + len(got))), offsets
            file.write(reader=worker.name, topic=topic, first=offsets[0], digests=digests)

        for topic in worker.topics:
            all_.create_task(read(topic))


async def observe(worker: Worker) -> None:
    """Look at topics, scan them, and create, use and delete separate topics."""
    async with worker.connect(name=f"{worker.name}.{worker.number}") as client:
        while not worker.over.is_set():
            await worker.sleep(worker.rng.uniform(0.05, 0.3))
            act = worker.rng.choice((look, look, scan_end, recreate))
            await act(worker, client)


async def look(worker: Worker, client: oncecast.Client) -> None:
    await client.describe(worker.rng.choice(worker.topics))


async def scan_end(worker: Worker, client: oncecast.Client) -> None:
    topic = worker.rng.choice(worker.topics)
    end = (await client.describe(topic)).next
    start = oncecast.from_offset(max(0, end - worker.rng.randint(1, 500)))
    async for _ in client.scan(topic, start):
        pass


async def recreate(worker: Worker, client: oncecast.Client) -> None:
    topic = f"scratch-{worker.name}"
    await client.create_topic(topic, Policy(keep_all=True))
    for _ in range(worker.rng.randint(1, 5)):
        await client.put(
            topic, value_of(f"{worker.name}.{worker.number}", worker.rng.randrange(1 << 30))
        )
    await client.describe(topic)
    if worker.rng.random() < 0.5:
        await client.delete_topic(topic)


ROLES: dict[str, Callable[[Worker], Awaitable[None]]] = {
    "creator": create,
    "publisher": publish,
    "subscriber": subscribe,
    "observer": observe,
}


async def run(options: argparse.Namespace) -> None:
    worker = Worker(options)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.over.set)
    await ROLES[options.role](worker)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("--server", required=True, help="node addresses, separated by commas")
    parser.add_argument("--name", required=True, help="the client's durable name")
    parser.add_argument(
        "--number", type=int, required=True, help="number of this process, starting at 1"
    )
    parser.add_argument(
        "--directory", required=True, help="directory for the client's records and state"
    )
    parser.add_argument("--topics", required=True, help="topics to use, separated by commas")
    parser.add_argument("--rate", type=float, default=1000.0, help="messages to put per second")
    parser.add_argument("--seed", type=int, default=0, help="seed for random choices")
    asyncio.run(run(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
