"""The clients of `bench.jobs`, each in a process of its own: a producer, and workers.

python -m bench.jobs.clients producer|worker --server ADDRESSES --directory DIRECTORY --name NAME

Each process writes a trace for the audit. Each line is in the file before the process continues, so
a killed process loses at most the end of its last line.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic

import oncecast
from bench.jobs.effects import Effect, Effects
from oncecast import Job, SharedSubscription
from oncecast.errors import LeaseLost
from oncecast.network.network import run
from oncecast.spark.audit.trace import Trace

TOPIC, SUBSCRIPTION, RUN = "jobs", "workers", "jobs"
WHERE = {"topic": TOPIC, "subscription": SUBSCRIPTION}
PRODUCER = "producer"
DATABASE = "effects.sqlite"
PUT_MANY = 100  # number of jobs per put
HANDLED = 50  # maximum number of jobs per database transaction
PREFETCH = 2 * HANDLED
FAILS_EVERY = 97  # one of this many jobs fails on its first delivery
BAD_EVERY = 1000  # one of this many jobs can never be done
PATIENCE = 120.0  # timeout of calls, in seconds


def trace_file(directory: Path, name: str, number: int = 0) -> Path:
    return directory / f"{name}-{number}.jsonl"


def ready_file(directory: Path, name: str, number: int) -> Path:
    """Return the file that a worker creates once it can be drained."""
    return directory / f"{name}-{number}.ready"


def sequence_of_value(value: bytes) -> int:
    return int(value.split(b" ", 1)[0])


async def produce(options: argparse.Namespace, trace: Trace) -> None:
    """Put numbered jobs, spread over the given time."""
    async with oncecast.connect(options.server, name=PRODUCER, timeout=PATIENCE) as client:
        began = monotonic()
        for first in range(0, options.jobs, PUT_MANY):
            await asyncio.sleep(began + options.seconds * first / options.jobs - monotonic())
            numbers = range(first, min(first + PUT_MANY, options.jobs))
            for number in numbers:
                trace.write("put", topic=TOPIC, producer=PRODUCER, sequence=number)
            values = [b"%d %s" % (number, b"." * 90) for number in numbers]
            receipt = await client.put_many(TOPIC, values)
            assert receipt is not None
            start = receipt.offset - len(numbers) + 1
            for offset, number in enumerate(numbers, start):
                fields = {"topic": TOPIC, "producer": PRODUCER, "sequence": number}
                trace.write("stored", **fields, offset=offset)


class Worker:
    def __init__(self, directory: Path, trace: Trace) -> None:
        self._effects = Effects(directory / DATABASE)
        self._trace = trace

    async def work(self, jobs: SharedSubscription) -> None:
        while some := await self._take(jobs):
            good = [job for job in some if not self._refuse(job)]
            effects = [Effect(job.offset, job.token, job.value) for job in good]
            await asyncio.to_thread(self._effects.store, effects)
            for job in good:
                self._write("accept", job)
                job.ack()
            # The node refuses acknowledgements with an old token, and marks these jobs as lost.
            with suppress(LeaseLost):
                await jobs.flush()
            for job in good:
                if not job.lost:
                    self._write("accepted", job)

    async def _take(self, jobs: SharedSubscription) -> list[Job]:
        """Wait for a job, and return it with those that have already arrived."""
        found: list[Job] = []
        job = await jobs.get()
        while job is not None:
            self._write(
                "lease",
                job,
                deliveries=job.deliveries,
                producer=PRODUCER,
                sequence=sequence_of_value(job.value),
            )
            found.append(job)
            job = await jobs.get(timeout=0) if len(found) < HANDLED else None
        return found

    def _refuse(self, job: Job) -> bool:
        """Give back or reject a job that fails. Return whether it has failed."""
        number = sequence_of_value(job.value)
        if number % BAD_EVERY == BAD_EVERY - 1:
            job.reject("this job cannot be done")
        elif number % FAILS_EVERY == 0 and job.deliveries == 1:
            job.nack(delay=0.1, reason="the first attempt fails")
        else:
            return False
        return True

    def _write(self, kind: str, job: Job, **fields: object) -> None:
        at = {"session": 0, "offset": job.offset, "token": job.token}
        self._trace.write(kind, **WHERE, **at, **fields)

    def close(self) -> None:
        self._effects.close()


async def work(options: argparse.Namespace, trace: Trace) -> None:
    """Do jobs until SIGTERM."""
    worker = Worker(options.directory, trace)
    async with oncecast.connect(options.server, timeout=PATIENCE) as client:
        jobs = await client.work(TOPIC, SUBSCRIPTION, prefetch=PREFETCH, create=False)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, jobs.stop)
        ready_file(options.directory, options.name, options.number).touch()
        await worker.work(jobs)
        await jobs.drain()
    worker.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.jobs.clients")
    parser.add_argument("role", choices=("producer", "worker"))
    parser.add_argument("--server", required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--number", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.0)
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    path = trace_file(options.directory, options.name, options.number)
    with path.open("w", buffering=1) as file:
        trace = Trace(file, RUN, options.name)
        run((produce if options.role == "producer" else work)(options, trace))
        trace.end(complete=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
