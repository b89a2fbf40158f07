"""Record batches: clients pack messages, nodes treat them as opaque, and readers unpack them.

    data = encode([b"one", b"two"], timestamps=1_700_000_000_000_000)
    check(data).count                       # 2: nodes verify a batch without unpacking it
    messages(data, topic="t", offset=10, producer="p", sequence=5)[1].offset    # 11

The caller provides all times, in microseconds since 1970. `batch_layout` defines the bytes, and
`batch_arrow` converts batches to and from Arrow.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import count as numbers_from
from itertools import islice, repeat
from types import MappingProxyType
from typing import TYPE_CHECKING

from oncecast.wire.batch_builder import ZSTD_FROM, Builder, to_time
from oncecast.wire.batch_columns import open_columns
from oncecast.wire.batch_layout import (
    BYTES_MAX,
    COLUMNS,
    FOREIGN,
    HEADER_BYTES,
    HEADERS,
    KAFKA,
    KEYS,
    MESSAGES_MAX,
    NO_KEY,
    TIMES,
    BadBatch,
    Columns,
    Header,
    Oversized,
    check,
    check_frame,
    only_values,
    opened_bytes,
    peek,
    seal,
)
from oncecast.wire.message import Message

if TYPE_CHECKING:
    from oncecast.storage.disk import Buffer

__all__ = [
    "BYTES_MAX",
    "COLUMNS",
    "MESSAGES_MAX",
    "BadBatch",
    "Builder",
    "Header",
    "Message",
    "Oversized",
    "check",
    "encode",
    "messages",
    "opened_bytes",
    "peek",
    "unwrap",
    "values",
    "wrap",
]

NO_HEADERS: Mapping[str, bytes] = MappingProxyType({})


def encode(
    values: Sequence[bytes],
    *,
    timestamps: int | Sequence[int],
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Mapping[str, bytes] | None] | None = None,
    zstd: int | None = None,
    zstd_from: int = ZSTD_FROM,
) -> bytes:
    """Return a batch of these messages. If `timestamps` is an int, it applies to all of them.

    If `zstd` is set, batches of at least `zstd_from` bytes are compressed at that level.
    """
    builder = Builder()
    if keys is None and headers is None and isinstance(timestamps, int):
        builder.extend(values, timestamps)
    else:
        count = len(values)
        none = [None] * count
        times = [timestamps] * count if isinstance(timestamps, int) else timestamps
        columns = (values, none if keys is None else keys, none if headers is None else headers)
        for value, key, found, time in zip(*columns, times, strict=True):
            builder.add(value, key, found, time)
    return builder.build(zstd=zstd, zstd_from=zstd_from)


def values(buffer: Buffer, skip: int = 0, count: int | None = None) -> list[bytes]:
    """Return the values of a batch, or the values of `count` messages after the first `skip`."""
    columns = open_columns(buffer)
    return _values(columns, *_span(columns, skip, count))


# Long, because helper calls would slow down small batches.
def messages(
    buffer: Buffer,
    *,
    topic: str,
    offset: int,
    producer: str,
    sequence: int,
    skip: int = 0,
    count: int | None = None,
    redelivered: bool = False,
    partition: int = -1,
) -> list[Message]:
    """Return a batch's messages, or `count` messages after the first `skip`.

    `offset` and `sequence` belong to the first returned message, as in an `Extent` of the index.
    """
    data = buffer if type(buffer) is bytes else bytes(buffer)
    if count == 1 and not skip:
        header = check_frame(data)
        if header.count == 1 and only_values(header, data):
            # Batches of a single value are common and faster to read without columns.
            alone = data[HEADER_BYTES + 4 : -4]
            time = header.time
            rest = (time, producer, sequence, redelivered, partition)
            return [Message(topic, offset, None, alone, NO_HEADERS, *rest)]
    if peek(data).format == KAFKA:
        source = (producer, sequence, skip, count)
        return _from_kafka(data, topic, offset, *source, redelivered, partition)
    columns = open_columns(data)
    begin, end = _span(columns, skip, count)
    return list(
        map(
            Message,
            repeat(topic),
            numbers_from(offset),
            _keys(columns, begin, end),
            _values(columns, begin, end),
            _headers(columns, begin, end),
            _times(columns, begin, end),
            repeat(producer),
            numbers_from(sequence),
            repeat(redelivered),
            *(() if partition < 0 else (repeat(partition),)),
        )
    )


def _from_kafka(
    data: bytes,
    topic: str,
    offset: int,
    producer: str,
    sequence: int,
    skip: int,
    count: int | None,
    redelivered: bool,
    partition: int,
) -> list[Message]:
    """Return messages that a Kafka client has put. A null value becomes an empty one.

    Of headers with the same name, the last one counts.
    """
    from oncecast.wire.kafka_records import MILLISECOND, decode  # few topics have such batches

    records = decode(unwrap(data))
    end = len(records) if count is None else skip + count
    return [
        Message(
            topic,
            offset + number,
            each.key,
            each.value or b"",
            {name: value or b"" for name, value in each.headers} if each.headers else NO_HEADERS,
            each.timestamp * MILLISECOND,
            producer,
            sequence + number,
            redelivered,
            partition,
        )
        for number, each in enumerate(records[skip:end])
    ]


def wrap(payload: bytes, *, format: int, count: int, timestamp: int) -> bytes:
    """Wrap a foreign payload in a batch. Nodes count its messages but never open it."""
    if not FOREIGN <= format <= 0xFFFF:
        raise ValueError(f"format {format} is reserved; choose a number from {FOREIGN} to {0xFFFF}")
    return seal(format, 0, count, to_time(timestamp), (0, 0, 0, 0, 0), [payload])


def unwrap(buffer: Buffer) -> bytes:
    """Return the payload of a wrapped batch."""
    header = check(buffer)
    if header.format < FOREIGN:
        raise BadBatch("the batch is not wrapped; read it with batch.messages")
    return bytes(buffer[HEADER_BYTES:-4])


def _span(columns: Columns, skip: int, count: int | None) -> tuple[int, int]:
    if skip < 0 or (count is not None and count < 0):
        raise ValueError(f"skip {skip} or count {count} is negative; pass 0 or more")
    total = columns.header.count
    begin = min(skip, total)
    return begin, total if count is None else min(begin + count, total)


def _values(columns: Columns, begin: int, end: int) -> list[bytes]:
    lengths = columns.numbers(columns.value_lengths, end)
    read = columns.reader(columns.values + sum(lengths[:begin]))
    return list(map(read, lengths[begin:]))


def _keys(columns: Columns, begin: int, end: int) -> Iterable[bytes | None]:
    if not columns.header.flags & KEYS:
        return repeat(None)
    lengths = columns.numbers(columns.key_lengths, end)
    skipped = sum(length for length in lengths[:begin] if length != NO_KEY)
    read = columns.reader(columns.keys + skipped)
    if NO_KEY not in lengths:
        return map(read, lengths[begin:])
    return [None if length == NO_KEY else read(length) for length in lengths[begin:]]


def _headers(columns: Columns, begin: int, end: int) -> Iterable[Mapping[str, bytes]]:
    if not columns.header.flags & HEADERS:
        return repeat(NO_HEADERS)
    counts = columns.numbers(columns.header_counts, end)
    pairs = columns.header.pairs
    names = map(columns.reader(columns.names), columns.numbers(columns.name_lengths, pairs))
    found = map(columns.reader(columns.headers), columns.numbers(columns.header_lengths, pairs))
    rest = islice(zip(map(bytes.decode, names), found, strict=True), sum(counts[:begin]), None)
    return [dict(islice(rest, count)) if count else NO_HEADERS for count in counts[begin:]]


def _times(columns: Columns, begin: int, end: int) -> Iterable[int]:
    if not columns.header.flags & TIMES:
        return repeat(columns.header.time)
    return struct.unpack_from(f"<{end - begin}q", columns.data, columns.times + 8 * begin)
