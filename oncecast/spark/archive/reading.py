"""Read archived messages, while other processes archive and compact. A reader never writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from oncecast.errors import BadArchive, TopicReplaced
from oncecast.spark.archive.intervals import missing
from oncecast.spark.archive.log import Log
from oncecast.spark.archive.opening import open_table
from oncecast.spark.archive.values import INTERNAL, STAGED, Archived
from oncecast.spark.ranges import Range
from oncecast.wire.frames import TopicView

ATTEMPTS = 20  # number of attempts; one fails only if a compaction removes files at that moment
SMALL_BYTES = 1 << 20  # maximum size of a file that is read at once, so that few files stay open


class Group(NamedTuple):
    """A row group of a file, or all selected row groups of a small file."""

    low: int  # the lowest offset in the file, or a lower bound
    load: Callable[[], pa.Table]


def archived(directory: Path) -> dict[str, Archived]:
    """Return what the archive holds per topic."""
    if Log(directory).last() is None:
        fact = f"{directory} does not contain an archive"
        raise BadArchive(fact, "create it with `oncecast pipeline run archive`")
    return open_table(directory).shown().topics


def extended(view: TopicView, held: Archived) -> TopicView:
    """Return the topic as if it began with its archived messages."""
    if held.topic_id != view.id:
        raise TopicReplaced(view.name).reworded(remedy="use an archive of the new topic")
    first = next((low for low, until in held.held if low < view.first <= until), view.first)
    size = view.bytes / max(1, view.next - view.first)
    return msgspec.structs.replace(view, first=first, bytes=int(size * (view.next - first)))


def divided(range_: Range, held: Archived | None) -> tuple[list[Range], list[Range]]:
    """Return the parts of a range that are in the archive, and the parts that are not."""
    whole = range_.first, range_.until
    have = held.held if held is not None and held.topic_id == range_.topic_id else ()
    lacking = list(missing(whole, have))
    return (
        [range_._replace(first=first, until=until) for first, until in missing(whole, lacking)],
        [range_._replace(first=first, until=until) for first, until in lacking],
    )


def read(directory: Path, range_: Range, names: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """Yield these columns of the messages in a range of the archive.

    All files are opened before the first one is read, because open files stay readable after a
    compaction has removed them.
    """
    columns, rows = list(names), 0
    with ExitStack() as opened:
        for group in sorted(groups(directory, range_, columns, opened), key=lambda one: one.low):
            for batch in chosen(group.load(), range_).select(columns).to_batches():
                rows += len(batch)
                yield batch
    if rows != range_.rows:
        fact = f"{directory} has only {rows:,} of the {range_.rows:,} messages of {range_.topic!r}"
        raise BadArchive(
            f"{fact} from offset {range_.first} to {range_.until - 1}",
            "restore its files, or read without option archive",
        )


def groups(
    directory: Path, range_: Range, columns: Iterable[str], opened: ExitStack
) -> list[Group]:
    """Open the files that may have messages in the range. Start again after a compaction."""
    needed = list(dict.fromkeys([*columns, "topic", "offset"]))
    for _ in range(ATTEMPTS):
        with ExitStack() as files:
            try:
                found = [
                    group
                    for path in open_table(directory).files()
                    for group in groups_of(directory, Path(path), range_, needed, files)
                ]
            except FileNotFoundError:
                continue
            opened.push(files.pop_all())
            return found
    fact = f"files in {directory} are missing, or disappear while they are read"
    raise BadArchive(
        fact, "try again when no compaction is running, or restore the files from a backup"
    )


def groups_of(
    directory: Path, path: Path, range_: Range, columns: list[str], files: ExitStack
) -> list[Group]:
    where = located(directory, path)
    file = files.enter_context(pq.ParquetFile(where))
    lows = dict(bounds(file.metadata, range_))
    if lows and where.stat().st_size >= SMALL_BYTES:
        return [
            Group(low, partial(file.read_row_group, number, columns=columns))
            for number, low in lows.items()
        ]
    rows = file.read_row_groups(list(lows), columns=columns) if lows else None
    file.close()
    return [Group(min(lows.values()), lambda: rows)] if lows else []


def located(directory: Path, path: Path) -> Path:
    """Return where a file is. A killed run may have left the last files staged."""
    if path.exists():
        return path
    staged = (directory / INTERNAL / STAGED).glob(f"*/{path.stem}.part")
    return next(staged, path)


def bounds(footer: pq.FileMetaData, range_: Range) -> Iterator[tuple[int, int]]:
    """Yield the row groups that may have messages in the range, with their lowest offset."""
    leaves = {footer.schema.column(leaf).path: leaf for leaf in range(footer.num_columns)}
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        topics = group.column(leaves["topic"]).statistics
        offsets = group.column(leaves["offset"]).statistics
        if (topics.min <= range_.topic <= topics.max) and (
            offsets.min < range_.until and range_.first <= offsets.max
        ):
            yield number, offsets.min


def chosen(rows: pa.Table, range_: Range) -> pa.Table:
    offsets = rows["offset"]
    inside = pc.and_(pc.greater_equal(offsets, range_.first), pc.less(offsets, range_.until))
    return rows.filter(pc.and_(inside, pc.equal(rows["topic"], range_.topic)))
