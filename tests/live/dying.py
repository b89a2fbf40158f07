"""A process that kills itself with SIGKILL at a named crash point.

    python -m tests.live.dying POINT TIMES node DATA
    python -m tests.live.dying POINT TIMES publisher ADDRESS TOPIC STATE COUNT
    python -m tests.live.dying POINT TIMES subscriber ADDRESS TOPIC DATABASE COUNT

The process dies when it reaches the point for the TIMES-th time. DATABASE is the subscriber's
SQLite file.
If the action of the point is "start a twin", the process prints "here" and waits for a line
instead.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from oncecast import blocking
from oncecast.cli.main import main as oncecast
from oncecast.storage.journal import Journal
from oncecast.storage.log import Log
from tests.crashpoints import BY_NAME, Point, planted
from tests.live.result_store import consume

SEGMENT_BYTES = 4096  # small enough that a short run trims its log
RECEIVED = BY_NAME["node: received"].location
TURNS = 4  # loop turns until the kernel has all sent bytes


class Trigger:
    """Kills the process, or waits for a twin, when the process reaches the point for the n-th time.

    A node counts from its first put.
    """

    def __init__(self, point: Point, times: int) -> None:
        self._point, self._left = point, times
        self.armed = point.process != "node"

    def arm(self, arguments: Any) -> None:
        self.armed = True

    def __call__(self, arguments: Any) -> None:
        self._left -= self.armed
        if self._left:
            return
        if self._point.action == "start a twin":
            print("here", flush=True)
            sys.stdin.readline()
        elif self._point.live.left:
            kill_this_process_after(TURNS)
        else:
            kill_this_process()


def kill_this_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_this_process_after(turns: int) -> None:
    if turns:
        asyncio.get_running_loop().call_soon(kill_this_process_after, turns - 1)
    else:
        kill_this_process()


@contextmanager
def small_segments() -> Iterator[None]:
    open_ = partial(Journal.open, segment_bytes=SEGMENT_BYTES)
    # Small segments have less free space than a node needs to accept a put.
    free = property(lambda log: 1 << 30)
    with patch.object(Journal, "open", open_), patch.object(Log, "free_bytes", free):
        yield


def node(data: str) -> None:
    with small_segments():
        oncecast(["serve", "--listen", "127.0.0.1:0", "--data", data, "--snapshot-bytes", "4096"])


def publisher(address: str, topic: str, state: str, count: str) -> None:
    """Put numbered messages. After every third message, flush, then print its number."""
    with blocking.connect(address, name=f"publisher of {topic}", state=state) as client:
        for number in range(int(count)):
            client.put_nowait(topic, b"%d" % number)
            if number % 3 == 2:
                client.flush()
                print(number, flush=True)


def subscriber(address: str, topic: str, database: str, count: str) -> None:
    consume(address, topic, Path(database), int(count))


ROLES: dict[str, Callable[..., None]] = {
    "node": node,
    "publisher": publisher,
    "subscriber": subscriber,
}


if __name__ == "__main__":
    name, times, role, *rest = sys.argv[1:]
    point = BY_NAME[name]
    trigger = Trigger(point, int(times))
    # `arm` runs before the trigger, so that the first put counts.
    with planted(point.live, trigger), planted(RECEIVED, trigger.arm):
        ROLES[role](*rest)
