"""Run a producer or a consumer, which reads commands from stdin.

python -m bench.queues.member produce ADDRESS KEEPERS TRACE     put COUNT, left, settled
python -m bench.queues.member take TICKETS KEEPERS TRACE        until it is killed
"""

from __future__ import annotations

import asyncio
import os
import sys

from bench.queues.trace import Born, Line, Put, Settled, Taken, encode
from oncecast.coordination import Node, join
from oncecast.coordination.protocols.paxos_queue import SERIES
from oncecast.network.network import run

JOBS = "jobs"
BACKLOG = 2000  # producers wait while the queue has this many elements
PAUSE = 0.02
TOGETHER = 50  # number of elements per deposit
HEARTBEAT, SUSPECT_AFTER = (
    0.5,
    15.0,
)  # generous, because many processes share two cores


class Trace:
    """A trace file whose lines survive if this process is killed."""

    def __init__(self, file: str) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def add(self, *lines: Line) -> None:
        os.write(self._file, b"".join(encode(each) + b"\n" for each in lines))


def member(address: str, keepers: str) -> Node:
    names = keepers.split(",")
    return join(
        address,
        peers=names,
        acceptors=names,
        heartbeat=HEARTBEAT,
        suspect_after=SUSPECT_AFTER,
    )


def say(*words: object) -> None:
    print(*words, flush=True)


async def produce(address: str, keepers: str, trace: Trace) -> None:
    async with member(address, keepers) as node:
        say("ready")
        loop, putting = asyncio.get_running_loop(), asyncio.ensure_future(put(node, 0, trace))
        while order := (await loop.run_in_executor(None, sys.stdin.readline)).split():
            match order:
                case ["put", count]:
                    putting = asyncio.ensure_future(put(node, int(count), trace))
                case ["left"]:
                    say(len(node.queue(JOBS)) if putting.done() else -1)
                case ["settled"]:
                    trace.add(*settled(node))
                    say("done")
                case _:
                    raise AssertionError(order)


async def put(node: Node, count: int, trace: Trace) -> None:
    queue = node.queue(JOBS)
    # The Synod uses the same names.
    elements = [f"{node.me}/{number}" for number in range(1, count + 1)]
    for start in range(0, count, TOGETHER):
        while len(queue) > BACKLOG:  # noqa: ASYNC110  # a queue tells nobody
            await asyncio.sleep(PAUSE)
        some = elements[start : start + TOGETHER]
        trace.add(*map(Put, some))
        await asyncio.gather(*(queue.enqueue(each.encode()) for each in some))


def settled(node: Node) -> list[Settled]:
    return [
        Settled(f"{series.removeprefix(SERIES).partition('#')[0]}/{number}", taker)
        for (series, number), taker in node._parts.queue.takers.values.items()
        if series.startswith(SERIES)
    ]


async def take(tickets: int, keepers: str, trace: Trace) -> None:
    async with member("127.0.0.1:0", keepers) as node:
        me = node._parts.queue.incarnation
        trace.add(Born(me, tickets))

        async def work() -> None:
            while (element := await node.queue(JOBS).sdequeue()) is not None:
                trace.add(Taken(element.decode(), me))

        await asyncio.gather(*(work() for _ in range(tickets)))


if __name__ == "__main__":
    role, own, others, file = sys.argv[1:]
    if role == "produce":
        run(produce(own, others, Trace(file)))
    else:
        run(take(int(own), others, Trace(file)))
