"""Kill an archive run with SIGKILL before each file operation, and run it again.

    python -m tests.spark.archive_kills FORMAT ACTION DIRECTORY [STEP]

The messages come from memory and the tasks run in the process of the driver, so a run takes
milliseconds. Each run is a fork of this process, which itself never starts a thread.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq  # type: ignore[import-untyped]

from oncecast.client.scanning import Located, Slice
from oncecast.spark.archive.delta_format import paths_of
from oncecast.spark.archive.job import archive, here
from oncecast.spark.archive.opening import open_table
from oncecast.spark.archive.table import Table
from oncecast.wire import batch
from oncecast.wire.commands import FromEarliest, FromNew, FromOffset, Start
from oncecast.wire.frames import Chunk, TopicView
from oncecast.wire.retention import DEFAULT

DAY = 86_400_000_000
# Functions that change the files that a reader sees.
OPERATIONS = ("rename", "replace", "link", "unlink", "mkdir", "rmdir")


class Topics:
    """A node in memory. Its topics have messages from several days, three per batch."""

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

    def stamped(self, offset: int) -> int:
        return offset // 4 * DAY

    def scan(self, topic: str, start: FromOffset, until: int, *, topic_id: int) -> Iterator[Slice]:
        assert topic_id == self.ids[topic]
        for first in range(start.offset, until, 3):
            offsets = range(first, min(first + 3, until))
            data = batch.encode(
                [b"%d" % each for each in offsets],
                timestamps=[self.stamped(each) for each in offsets],
            )
            yield Slice(topic, Chunk(first, 0, len(offsets), "p", first, data))


def run(table: Table, topics: Topics, **options: Any) -> int:
    node: Any = topics
    return archive(node, lambda client, archived: topics.views(), table, here, **options)


def held(paths: Sequence[str | Path]) -> Counter[tuple[str, int]]:
    """Return how often each message is in the files. Raise an error if a file is torn."""
    found: Counter[tuple[str, int]] = Counter()
    for path in paths:
        with pq.ParquetFile(path) as file:
            rows = file.read(columns=["topic", "offset", "value"], use_threads=False).to_pylist()
        for row in rows:
            assert row["value"] == b"%d" % row["offset"]
            found[row["topic"], row["offset"]] += 1
    return found


def seen(kind: str, directory: Path) -> list[str]:
    """Return the files that a reader of this format finds, without using our code."""
    if kind == "delta":
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(str(directory)):
            return []
        return [str(directory / path) for path in paths_of(DeltaTable(str(directory)))]
    if kind == "iceberg":
        from pyiceberg.table import StaticTable

        if not (directory / "metadata" / "version-hint.text").exists():
            return []
        table = StaticTable.from_metadata(str(directory))
        return [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    return [str(path) for path in directory.glob("**/*.parquet")]


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


def points(kind: str) -> Iterator[tuple[Any, str]]:
    """Yield the functions before which a run is killed."""
    yield from ((os, name) for name in OPERATIONS)
    if kind == "delta":
        from deltalake import DeltaTable

        yield from ((DeltaTable, name) for name in ("create", "create_write_transaction"))
    if kind == "iceberg":
        from pyiceberg.io.pyarrow import PyArrowFile

        import_module("oncecast.spark.archive.iceberg_catalog")  # import it once, not in each child
        yield PyArrowFile, "create"


def forked(work: Callable[[], None]) -> int:
    """Run `work` in a child; return 0, or the number of the signal that killed it."""
    child = os.fork()
    if not child:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status)
    assert os.WEXITSTATUS(status) == 0, "the child failed"
    return 0


def campaign(kind: str, action: str, directory: Path, step: int = 1) -> int:
    """Kill runs at every point, or at every `step` points, and return the first unused number."""
    # An Iceberg table has absolute paths, so all runs use the same directory.
    where, origin = directory / "archive", directory / "origin"
    before, after = Topics(a=10, b=3), Topics(a=17, b=9, c=5)

    def act() -> None:
        table = open_table(where, kind)
        run(table, after, rows_max=12)
        if action == "compact":
            table.compact(here)

    def begin() -> None:
        run(open_table(where, kind), before)

    def killed(number: int) -> None:
        killer = Killer(number)
        for place, name in kill_points:
            patch.object(place, name, killer.wrapped(getattr(place, name))).start()
        act()

    def repaired() -> None:
        visible = held(seen(kind, where))
        assert max(visible.values()) == 1
        assert visible.keys() <= every(after).keys()
        act()
        assert held(open_table(where, kind).files()) == every(after)
        assert held(seen(kind, where)) == every(after)

    kill_points = list(points(kind))
    assert forked(begin) == 0
    where.rename(origin)
    for number in count(0, step):
        shutil.copytree(origin, where)
        ended = forked(partial(killed, number))
        assert forked(repaired) == 0
        shutil.rmtree(where)
        if not ended:
            return number
        assert ended == signal.SIGKILL
    raise AssertionError


if __name__ == "__main__":
    format_, action, directory, *step = sys.argv[1:]
    print(campaign(format_, action, Path(directory), *map(int, step)))
