"""Run the audit without Spark. The checks are the same, but use lists instead of data frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

from oncecast.spark.audit.faults import Fault
from oncecast.spark.audit.files import Files
from oncecast.spark.audit.job import checked, explained, proved
from oncecast.spark.audit.parsing import Block, parsed
from oncecast.spark.audit.rows import FILE_BITS, FIRST_FAULT, Check, Row, What

BATCH = 3  # rows: groups and files span batches
BLOCK = 400  # bytes per block, so that files span blocks


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    return [Row(**each) for batch in batches for each in batch.to_pylist()]


def texts(files: dict[str, bytes]) -> Iterator[pa.RecordBatch]:
    """Split files into blocks and batches, as Spark does."""
    names = ("path", "block", "value")
    for path, text in files.items():
        begun, rows = 0, []
        for line in text.splitlines(keepends=True):
            rows.append((path, begun // BLOCK * BLOCK, line.rstrip(b"\n")))
            begun += len(line)
        for at in range(0, len(rows), BATCH):
            columns = zip(*rows[at : at + BATCH], strict=True)
            yield pa.RecordBatch.from_pydict(dict(zip(names, map(list, columns), strict=True)))


def positioned(lines: list[Row], files: Files) -> list[Row]:
    places = {place.file: place for place in files.places()}
    events = []
    for row in lines:
        place = places.get(row.other)
        if place is not None:
            events.append(row._replace(
                at=(place.number << FILE_BITS) + row.at,
                other=-1,
                topic=row.topic if row.topic < 0 else row.topic ^ place.salt,
                reader=row.reader if row.reader < 0 else row.reader ^ place.salt,
                session=row.session if row.session < 0 else (place.incarnation << 32) + row.session,
                certain=place.certain,
            ))  # fmt: skip
    return events


def run(check: Check, inputs: list[list[Row]]) -> list[Row]:
    """Sort the rows of a check and run it on small batches."""
    fields = [
        {**row._asdict(), "stretch": row.offset >> 2}
        for rows in inputs for row in rows if row.what in check.kinds
    ]  # fmt: skip
    fields.sort(key=lambda row: [row[name] for name in (*check.key, *check.order)])
    batches = (
        pa.RecordBatch.from_pylist([
            {name: row[name] for name in check.needed} for row in fields[at : at + BATCH]
        ])
        for at in range(0, len(fields), BATCH)
    )  # fmt: skip
    return rows_of(check.run(batches))


def audited(files: dict[str, bytes], *, killed: bool = False) -> list[Fault]:
    lines = rows_of(parsed(texts(files)))
    blocks = [msgspec.json.decode(row.data, type=Block) for row in lines if row.what == What.BLOCK]
    whole = Files(files, blocks, killed=killed)
    events = positioned(lines, whole)
    found = checked(events, run)
    faults = [row for rows in found for row in rows if row.what >= FIRST_FAULT]
    faults.sort(key=lambda row: (row.what, row.at, row.offset))
    names = {
        number: row.data.decode()
        for row in events if row.what == What.NAME
        for number in (row.topic, row.reader, row.producer) if number >= 0
    }  # fmt: skip
    placed = {(row.topic, row.offset): row for row in found[0] if row.what == What.PLACED}
    return [*whole.faults, *explained(whole, proved(faults, placed), names)]
