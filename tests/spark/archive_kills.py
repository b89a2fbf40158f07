"""Kill a run of the archive with SIGKILL before each of its file operations, and run it again.

    python -m tests.spark.archive_kills FORMAT ACTION DIRECTORY [STEP]

The messages come from memory and the tasks run in the process of the driver, so a run takes
milliseconds. Each run is a fork of this process, which itself never starts a thread.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq  # type: ignore[import-untyped]

from oncecast.client.scanning import Located, Slice
from oncecast.spark.archive.job import archive, here
from oncecast.spark.archive.opening import open_table
from oncecast.spark.archive.table import Table
from oncecast.wire import batch
from oncecast.wire.commands import FromEarliest, FromNew, FromOffset, Start
from oncecast.wire.frames import Chunk, TopicView
from oncecast.wire.retention import DEFAULT

DAY = 86_400_000_000
# Those that change what a reader sees.
OPERATIONS = ("rename", "link", "unlink", "mkdir", "rmdir")


class Topics:
    """A node in memory: topics with messages of several days, three in a batch."""

    def __init__(self, **counts: int) -> None:
        self.counts = counts
        self.first = dict.fromkeys(counts, 0)
        self.ids = {name: number + 1 for number, name in enumerate(counts)}

    @contextmanager
    def connect(self, *, patient: bool = False) -> Iterator[Any]:
        yield self

    def views(self) -> dict[str, TopicView]:
        return {
            name: TopicView(
                name, self.ids[name], self.first[name], count, 100 * count, DEFAULT, (), 0
            )
            for name, count in self.counts.items()
        }

    def locate(self, topic: str, start: Start) -> Located:
        first, count = self.first[topic], self.counts[topic]
        match start:
            case FromEarliest():
                at = first
            case FromNew():
                at = count
            case FromOffset(offset):
                at = offset
            case _:
                raise AssertionError(start)
        return Located(at, self.ids[topic], first, count)

    def scan(self, topic: str, start: FromOffset, until: int, *, topic_id: int) -> Iterator[Slice]:
        assert topic_id == self.ids[topic]
        for first in range(start.offset, until, 3):
            offsets = range(first, min(first + 3, until))
            data = batch.encode(
                [b"%d" % each for each in offsets],
                timestamps=[each // 4 * DAY for each in offsets],
            )
            yield Slice(topic, Chunk(first, 0, len(offsets), "p", first, data))


def run(table: Table, topics: Topics, **options: Any) -> int:
    node: Any = topics
    return archive(node, lambda client, archived: topics.views(), table, here, **options)


def held(paths: Sequence[str | Path]) -> Counter[tuple[str, int]]:
    """Return how often each message is in the files; raise if a file is torn."""
    found: Counter[tuple[str, int]] = Counter()
    for path in paths:
        with pq.ParquetFile(path) as file:
            rows = file.read(columns=["topic", "offset", "value"], use_threads=False).to_pylist()
        for row in rows:
            assert row["value"] == b"%d" % row["offset"]
            found[row["topic"], row["offset"]] += 1
    return found


def every(topics: Topics) -> Counter[tuple[str, int]]:
    return Counter(
        (name, offset) for name, count in topics.counts.items() for offset in range(count)
    )


class Killer:
    """Kills this process before the file operation with this number."""

    def __init__(self, number: int) -> None:
        self._left = number

    def wrapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **named)

        return call


def forked(work: Callable[[], None]) -> int:
    """Run `work` in a child; return 0, or the number of the signal that killed it."""
    child = os.fork()
    if not child:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status)
    assert os.WEXITSTATUS(status) == 0, "the child failed"
    return 0


def campaign(kind: str, action: str, directory: Path, step: int = 1) -> int:
    """Kill runs at every point, or every `step` points; return the number of the first beyond."""
    origin, before, after = directory / "origin", Topics(a=10, b=3), Topics(a=17, b=9, c=5)

    def act(where: Path) -> None:
        table = open_table(where, kind)
        run(table, after, rows_max=12)
        if action == "compact":
            table.compact(here)

    def begin(where: Path) -> None:
        run(open_table(where, kind), before)

    def killed(where: Path, number: int) -> None:
        killer = Killer(number)
        for name in OPERATIONS:
            patch.object(os, name, killer.wrapped(getattr(os, name))).start()
        act(where)

    def mended(where: Path) -> None:
        # A reader of plain Parquet knows nothing of the commit log.
        visible = held(list(where.glob("**/*.parquet")))
        assert kind != "parquet" or max(visible.values()) == 1
        assert visible.keys() <= every(after).keys()
        act(where)
        assert held(open_table(where, kind).files()) == every(after)

    assert forked(partial(begin, origin)) == 0
    for number in count(0, step):
        where = directory / str(number)
        shutil.copytree(origin, where)
        ended = forked(partial(killed, where, number))
        assert forked(partial(mended, where)) == 0
        shutil.rmtree(where)
        if not ended:
            return number
        assert ended == signal.SIGKILL
    raise AssertionError


if __name__ == "__main__":
    format_, action, directory, *step = sys.argv[1:]
    print(campaign(format_, action, Path(directory), *map(int, step)))
