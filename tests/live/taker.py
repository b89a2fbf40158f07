"""A process of a group with a queue: keepers put elements in and decide, takers take until killed.

python -m tests.live.taker keep ADDRESS ACCEPTORS      orders on stdin: put COUNT, left, audit
python -m tests.live.taker take ACCEPTORS FILE         each element it takes is a line of FILE
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import msgspec

from oncecast.coordination import Node, join
from oncecast.runtime.network import run
from oncecast.toolkit.paxos_queue import SERIES, Item

JOBS = "jobs"
PATIENT: dict[str, Any] = {"heartbeat": 0.2, "suspect_after": 1.5}


def say(*words: object) -> None:
    print(*words, flush=True)


async def keep(address: str, acceptors: list[str]) -> None:
    async with join(address, peers=acceptors, acceptors=acceptors, **PATIENT) as node:
        await node.group.wait_for_view_size(len(acceptors))
        say("ready")
        loop = asyncio.get_running_loop()
        while order := (await loop.run_in_executor(None, sys.stdin.readline)).split():
            match order:
                case ["put", count]:
                    for number in range(int(count)):
                        await node.queue(JOBS).enqueue(f"{address}/{number}".encode())
                    say("done")
                case ["left"]:
                    say(len(node.queue(JOBS)))
                case ["audit"]:
                    say(json.dumps(takers(node)))
                case _:
                    raise AssertionError(order)


def takers(node: Node) -> dict[str, str]:
    """Who has got each element, as far as this keeper has heard."""
    queue = node._parts.queue
    found = {}
    for id, payload in queue.elements.held.items():
        taker = queue.takers.values.get((SERIES + id.origin, id.number))
        if taker is not None:
            found[msgspec.msgpack.decode(payload, type=Item).data.decode()] = taker
    return found


async def take(acceptors: list[str], file: str) -> None:
    out = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    async with join("127.0.0.1:0", peers=acceptors, acceptors=acceptors, **PATIENT) as node:
        os.write(out, f"{node._parts.queue.myself}\n".encode())
        while True:
            job = await node.queue(JOBS).sdequeue()
            assert job is not None
            os.write(out, job + b"\n")


if __name__ == "__main__":
    role, *words = sys.argv[1:]
    if role == "keep":
        run(keep(words[0], words[1].split(",")))
    else:
        run(take(words[0].split(","), words[1]))
