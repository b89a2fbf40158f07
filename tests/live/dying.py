"""A process that kills itself with SIGKILL at a named crash point.

    python -m tests.live.dying POINT TIMES node DATA
    python -m tests.live.dying POINT TIMES publisher ADDRESS TOPIC STATE COUNT
    python -m tests.live.dying POINT TIMES subscriber ADDRESS TOPIC BOOKS COUNT

TIMES is the arrival at the point that triggers it. BOOKS is the path of the subscriber's database.
If the deed of the point is "meet a twin", the process does not die: it prints "here" and waits for
a line.
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
from tests.live.books import consume

SEGMENT_BYTES = 4096  # small enough that a short run trims its log
RECEIVED = BY_NAME["node: received"].location
TURNS = 4  # turns of the loop until sent bytes have reached the kernel


class Strike:
    """Kills the process at the n-th arrival at the point, counted from the first put on."""

    def __init__(self, point: Point, times: int) -> None:
        self._point, self._left = point, times
        self.armed = point.process != "node"

    def arm(self, arguments: Any) -> None:
        self.armed = True

    def __call__(self, arguments: Any) -> None:
        self._left -= self.armed
        if self._left:
            return
        if self._point.deed == "meet a twin":
            print("here", flush=True)
            sys.stdin.readline()
        elif self._point.live.left:
            die_soon(TURNS)
        else:
            die()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_soon(turns: int) -> None:
    if turns:
        asyncio.get_running_loop().call_soon(die_soon, turns - 1)
    else:
        die()


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
    """Print the number of each message once it is stored."""
    with blocking.connect(address, name=f"publisher of {topic}", state=state) as client:
        for number in range(int(count)):
            client.put_nowait(topic, b"%d" % number)
            if number % 3 == 2:
                client.flush()
                print(number, flush=True)


def subscriber(address: str, topic: str, books: str, count: str) -> None:
    consume(address, topic, Path(books), int(count))


ROLES: dict[str, Callable[..., None]] = {
    "node": node,
    "publisher": publisher,
    "subscriber": subscriber,
}


if __name__ == "__main__":
    name, times, role, *rest = sys.argv[1:]
    point = BY_NAME[name]
    strike = Strike(point, int(times))
    # Outermost, so that the put itself arms the strike.
    with planted(point.live, strike), planted(RECEIVED, strike.arm):
        ROLES[role](*rest)
