"""Parse the text of traces into rows, and summarize each block of a file.

Spark splits a file into blocks, and a task reads its blocks one after another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

from oncecast.spark.audit import trace
from oncecast.spark.audit.rows import BATCH, Row, What, as_batch

WHAT: dict[type[trace.Entry], What] = {
    trace.Create: What.CREATE,
    trace.Put: What.PUT,
    trace.Stored: What.STORED,
    trace.Failed: What.FAILED,
    trace.Subscribe: What.SUBSCRIBE,
    trace.Unsubscribe: What.UNSUBSCRIBE,
    trace.Attach: What.ATTACH,
    trace.Seek: What.SEEK,
    trace.Delivery: What.DELIVERY,
    trace.Ack: What.ACK,
    trace.Flushed: What.FLUSHED,
    trace.Nack: What.NACK,
    trace.Skip: What.SKIP,
    trace.Leave: What.LEAVE,
    trace.Fenced: What.FENCED,
    trace.Share: What.SHARE,
    trace.Settled: What.SETTLED,
    trace.Lease: What.LEASE,
    trace.Accept: What.ACCEPT,
    trace.Accepted: What.ACCEPTED,
    trace.Effect: What.EFFECT,
    trace.Letter: What.LETTER,
}
FLAGS: dict[type[trace.Entry], str] = {
    trace.Create: "drop_unread",
    trace.Failed: "unknown",
    trace.Delivery: "redelivered",
    trace.Lease: "deliveries",
    trace.Share: "effects",
}
LISTED_MAX = 100  # maximum invalid lines, and maximum pieces, listed per block
FRAMING_MAX = 1000  # maximum headers, ends and kills listed per block
NAMES_MAX = 100_000  # maximum names that a task remembers
TEXT_MAX = 60  # maximum characters shown of an invalid line

Framing = trace.Begin | trace.End | trace.Killed


class Piece(msgspec.Struct, array_like=True):
    """Lines with consecutive numbers: the place and number of the first line, and the count."""

    place: int
    line: int
    count: int


class Invalid(msgspec.Struct, array_like=True):
    place: int
    text: str
    why: str


class Framed(msgspec.Struct, array_like=True):
    place: int
    entry: Framing


class Block(msgspec.Struct):
    """A summary of a block. A place is the index of a line in the block, from 0."""

    path: str
    start: int  # position in the file, in bytes
    lines: int = 0
    pieces: list[Piece] = []
    invalid: list[Invalid] = []
    framing: list[Framed] = []

    def add(self, entry: trace.Entry) -> None:
        place, self.lines = self.lines, self.lines + 1
        last = self.pieces[-1] if self.pieces else None
        if last and last.place + last.count == place and last.line + last.count == entry.line:
            last.count += 1
        elif len(self.pieces) < LISTED_MAX:
            self.pieces.append(Piece(place, entry.line, 1))

    def frame(self, entry: trace.Entry) -> None:
        """Keep the last added line if it is a header, an end or a kill."""
        if isinstance(entry, Framing) and len(self.framing) < FRAMING_MAX:
            self.framing.append(Framed(self.lines - 1, entry))

    def add_invalid(self, text: bytes, why: str) -> None:
        if len(self.invalid) < LISTED_MAX:
            shown = text[:TEXT_MAX].decode(errors="replace")
            self.invalid.append(Invalid(self.lines, shown, why))
        self.lines += 1

    def row(self) -> Row:
        return Row(What.BLOCK, data=msgspec.json.encode(self))


def hashed(*names: object) -> int:
    """Return a 63-bit hash of the names."""
    text = "\0".join(map(str, names)).encode(errors="surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big") >> 1


class Names:
    """Hashes names. Each name that is new to the task becomes a row for the report."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._known: dict[object, int] = {}

    def _new(self, name: object, column: str, *words: object) -> int:
        if len(self._known) >= NAMES_MAX:
            self._known.clear()
        number = self._known[name] = hashed(*words)
        fields: dict[str, Any] = {column: number}
        self.rows.append(Row(What.NAME, **fields, data=str(words[-1]).encode(errors="replace")))
        return number

    def of(self, entry: trace.Entry) -> tuple[int, int, int]:
        """Return the hashes of a line's topic, reader and producer, or -1 for a missing one."""
        topic = reader = producer = -1
        known = self._known
        if entry.topic:
            key = (entry.topic, entry.generation)
            topic = known.get(key, -1)
            if topic < 0:
                topic = self._new(key, "topic", entry.generation, entry.topic)
        if entry.subscription:
            name = (topic, entry.subscription, 0)
            reader = known.get(name, -1)
            if reader < 0:
                reader = self._new(name, "reader", topic, entry.subscription)
        if entry.producer:
            producer = known.get(entry.producer, -1)
            if producer < 0:
                producer = self._new(entry.producer, "producer", entry.producer)
        return topic, reader, producer


class Parser:
    """Parses one task's lines."""

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder(trace.AnyLine).decode
        self._names = Names()
        self._block: Block | None = None
        self._file = -1

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Parse batches with the columns `path`, `block` and `value`, and yield batches of rows.

        In a row, `at` is the line number and `other` is the hash of the file.
        """
        rows: list[Row] = []
        for batch in batches:
            paths, blocks = batch.column("path"), batch.column("block").to_numpy()
            values = batch.column("value").to_pylist()
            for first, until in stretches(paths, blocks):
                rows += self._enter(paths[first].as_py(), int(blocks[first]))
                self._parse(values[first:until], rows)
            rows += self._new_names()
            if len(rows) >= BATCH:
                yield as_batch(rows)
                rows = []
        rows += self._leave()
        if rows:
            yield as_batch(rows)

    def _enter(self, path: str, start: int) -> list[Row]:
        if self._block is not None and (self._block.path, self._block.start) == (path, start):
            return []
        before = self._leave()
        self._block, self._file = Block(path, start), hashed(path)
        return before

    def _leave(self) -> list[Row]:
        return [] if self._block is None else [self._block.row()]

    def _new_names(self) -> list[Row]:
        named = [row._replace(other=self._file) for row in self._names.rows]
        self._names.rows.clear()
        return named

    def _parse(self, values: list[bytes], rows: list[Row]) -> None:
        assert self._block is not None
        block, decode, names, file = self._block, self._decode, self._names, self._file
        for value in values:
            try:
                entry = decode(value)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                block.add_invalid(value, str(error))
                continue
            block.add(entry)
            kind = type(entry)
            what = WHAT.get(kind)
            if what is None:
                block.frame(entry)
                continue
            topic, reader, producer = names.of(entry)
            flag = FLAGS.get(kind)
            until = entry.until if what == What.SKIP else entry.offset + 1
            row = Row(
                what, entry.line, file, int(entry.time * 1e6), topic, reader, entry.session,
                producer, entry.sequence, entry.offset, until,
                int(getattr(entry, flag)) if flag is not None else 0,
            )  # fmt: skip
            rows.append(row if what < What.SHARE else of_job(entry, row))


def of_job(entry: trace.Entry, row: Row) -> Row:
    """Return a row of a shared subscription. `until` is the token.

    A row about the subscription itself sorts before its messages: its offset is in `until`. The
    maximum of deliveries is in `messages`.
    """
    if isinstance(entry, trace.Held | trace.Effect):
        return row._replace(until=entry.token)
    if isinstance(entry, trace.Share | trace.Settled):
        most = entry.deliveries_max if isinstance(entry, trace.Share) else 0
        return row._replace(offset=-1, until=entry.offset, messages=most)
    return row


def stretches(paths: Any, blocks: Any) -> Iterator[tuple[int, int]]:
    """Yield the first row and the end of each block in a batch."""
    first = 0
    while first < len(blocks):
        until, path, block = len(blocks), paths[first], blocks[first]
        if paths[until - 1] != path or blocks[until - 1] != block:
            until = next(
                at for at in range(first, until) if paths[at] != path or blocks[at] != block
            )
        yield first, until
        first = until


def parsed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return Parser().run(batches)
