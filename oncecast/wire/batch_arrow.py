"""Convert batches to Arrow and back, column by column, without looping over messages.

An Arrow binary column has offsets and concatenated bytes. A batch has lengths instead, whose
running sum gives the offsets. The bytes are shared, not copied.

Only this module needs pyarrow. Import it where you use Arrow, not at the top of a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncecast.wire.batch_builder import ZSTD_FROM, limit, to_time
from oncecast.wire.batch_columns import open_columns
from oncecast.wire.batch_layout import (
    BYTES_MAX,
    HEADER_BYTES_MAX,
    HEADERS,
    HEADERS_MAX,
    KEY_BYTES_MAX,
    KEYS,
    MESSAGES_MAX,
    NAME_BYTES_MAX,
    NO_KEY,
    TIMES,
    Columns,
    Parts,
    seal_columns,
)

try:
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.compute as pc  # type: ignore[import-untyped]
except ImportError:
    raise ImportError(
        'Arrow batches need pyarrow, which is not installed; run pip install "oncecast[arrow]"'
    ) from None

if TYPE_CHECKING:
    from oncecast.storage.disk import Buffer

BINARY = pa.binary()
HEADER_MAP = pa.map_(pa.string(), BINARY)
TIMESTAMP = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    {
        "topic": pa.string(),
        "key": BINARY,
        "value": BINARY,
        "headers": HEADER_MAP,
        "offset": pa.int64(),
        "timestamp": TIMESTAMP,
        "producer": pa.string(),
        "sequence": pa.int64(),
    }
)


def _number(kind: pa.DataType, value: int) -> pa.Scalar:
    """Return a scalar, like `pa.scalar` but without importing pandas."""
    data = value.to_bytes(kind.bit_width // 8, "little", signed=value < 0)
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(data)])[0]


def _text(kind: pa.DataType, data: bytes) -> pa.Scalar:
    ends = pa.py_buffer(bytes(4) + len(data).to_bytes(4, "little"))
    return pa.Array.from_buffers(kind, 1, [None, ends, pa.py_buffer(data)])[0]


# Built once: a small array takes as long to build as a column of a thousand rows.
_ZERO = _number(pa.uint32(), 0)
_NO_KEY = _number(pa.uint32(), NO_KEY)
_FIRST = pa.repeat(_ZERO, 1)
_EMPTY = _text(BINARY, b"")
_NO_NAMES = pa.nulls(0, pa.string())
_NO_VALUES = pa.nulls(0, BINARY)
_PAIRS = pa.list_(pa.struct([pa.field("key", pa.string(), False), pa.field("value", BINARY)]))


def to_arrow(
    buffer: Buffer,
    *,
    topic: str,
    offset: int,
    producer: str,
    sequence: int,
    skip: int = 0,
    count: int | None = None,
) -> pa.RecordBatch:
    """Return a batch's messages as columns. Takes the same arguments as `batch.messages`.

    A message without headers has an empty map. A message without a key has a null key.
    """
    columns = open_columns(buffer)
    data = pa.py_buffer(columns.data)
    total = columns.header.count
    arrays = [
        pa.repeat(_text(pa.string(), topic.encode()), total),
        key_array(columns, data),
        value_array(columns, data),
        header_array(columns, data),
        pa.arange(offset - skip, offset - skip + total),
        time_array(columns, data),
        pa.repeat(_text(pa.string(), producer.encode()), total),
        pa.arange(sequence - skip, sequence - skip + total),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA).slice(skip, count)


def from_arrow(
    rows: pa.RecordBatch | pa.Table,
    *,
    timestamp: int,
    zstd: int | None = None,
    zstd_from: int = ZSTD_FROM,
) -> bytes:
    """Build a batch from the columns value, key, headers and timestamp. Only value is required.

    Values and keys may be any binary or string type. Headers are a map of string to binary, or
    a list of structs with the fields key and value. Rows without a timestamp get `timestamp`. Other
    columns are ignored.
    """
    limit("messages in a batch", len(rows), MESSAGES_MAX)
    value = _column(rows, "value", BINARY)
    if value is None or value.null_count:
        raise ValueError(
            "column 'value' is missing or contains nulls; drop those rows or give them a value"
        )
    lengths, values = _split(value)
    parts = Parts(value_lengths=_bytes(lengths), values=values)
    key = _column(rows, "key", BINARY)
    if key is not None and key.null_count < len(key):
        parts = _with_keys(parts, key)
    pairs = "headers" in rows.schema.names and pa.types.is_list(rows.schema.field("headers").type)
    headers = _column(rows, "headers", _PAIRS if pairs else HEADER_MAP)
    if headers is not None:
        parts = _with_headers(parts, headers)
    first = to_time(timestamp)
    times = _column(rows, "timestamp", TIMESTAMP)
    if times is not None and len(times):
        times = times.view(pa.int64())
        if times.null_count:
            times = times.fill_null(first)
        first = times[0].as_py()
        if pc.any(pc.not_equal(times, times[0])).as_py():
            parts = parts._replace(times=_bytes(times))
    return seal_columns(parts, first, zstd=zstd, zstd_from=zstd_from)


def value_array(columns: Columns, data: pa.Buffer) -> pa.Array:
    lengths = _numbers(data, columns.value_lengths, columns.header.count)
    return _join(BINARY, lengths, data.slice(columns.values, columns.header.value_bytes))


def key_array(columns: Columns, data: pa.Buffer) -> pa.Array:
    header = columns.header
    if not header.flags & KEYS:
        return pa.nulls(header.count, BINARY)
    lengths = _numbers(data, columns.key_lengths, header.count)
    present = pc.not_equal(lengths, _NO_KEY)
    lengths = pc.if_else(present, lengths, _ZERO)
    return _join(BINARY, lengths, data.slice(columns.keys, header.key_bytes), present)


def header_array(columns: Columns, data: pa.Buffer) -> pa.Array:
    header = columns.header
    if not header.flags & HEADERS:
        none = pa.repeat(_ZERO, header.count + 1).view(pa.int32())
        return pa.MapArray.from_arrays(none, _NO_NAMES, _NO_VALUES)
    counts = _numbers(data, columns.header_counts, header.count)
    name_lengths = _numbers(data, columns.name_lengths, header.pairs)
    names = _join(pa.string(), name_lengths, data.slice(columns.names, header.name_bytes))
    lengths = _numbers(data, columns.header_lengths, header.pairs)
    values = _join(BINARY, lengths, data.slice(columns.headers, header.header_bytes))
    return pa.MapArray.from_arrays(_offsets(counts), names, values)


def time_array(columns: Columns, data: pa.Buffer) -> pa.Array:
    header = columns.header
    if not header.flags & TIMES:
        return pa.repeat(_number(TIMESTAMP, header.time), header.count)
    times = data.slice(columns.times, 8 * header.count)
    return pa.Array.from_buffers(TIMESTAMP, header.count, [None, times])


def _numbers(data: pa.Buffer, at: int, count: int) -> pa.Array:
    return pa.Array.from_buffers(pa.uint32(), count, [None, data.slice(at, 4 * count)])


def _offsets(lengths: pa.Array) -> pa.Array:
    # All limits are far below 2**31, so the signed view has the same numbers.
    return pa.concat_arrays([_FIRST, pc.cumulative_sum(lengths)]).view(pa.int32())


def _join(
    kind: pa.DataType, lengths: pa.Array, data: pa.Buffer, present: pa.Array | None = None
) -> pa.Array:
    valid = None if present is None else present.buffers()[1]
    return pa.Array.from_buffers(kind, len(lengths), [valid, _offsets(lengths).buffers()[1], data])


def _column(rows: pa.RecordBatch | pa.Table, name: str, kind: pa.DataType) -> pa.Array | None:
    """Return the column as one chunk of type `kind`, or None if it does not exist.

    Times are truncated to microseconds. Any other lossy cast raises TypeError.
    """
    if name not in rows.schema.names:
        return None
    column = rows.column(name)
    limit(f"bytes of column {name}", column.nbytes, 2 * BYTES_MAX)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    try:
        if column.type != kind:
            column = column.cast(kind, safe=not pa.types.is_timestamp(kind))
        return column
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TypeError(f"column {name!r} is {column.type}; cast it to {kind}: {error}") from None


def _with_keys(parts: Parts, key: pa.Array) -> Parts:
    lengths, keys = _split(pc.fill_null(key, _EMPTY))
    _limit_all("key", lengths, KEY_BYTES_MAX)
    lengths = pc.if_else(key.is_valid(), lengths, _NO_KEY)
    return parts._replace(key_lengths=_bytes(lengths), keys=keys)


def _with_headers(parts: Parts, headers: pa.Array) -> Parts:
    # A list can be flattened, unlike a map. Flattening omits rows that a slice or a null hides.
    lists = headers.cast(_PAIRS)
    pairs = lists.flatten()
    if not len(pairs):
        return parts
    counts = pc.list_value_length(lists).cast(pa.uint32()).fill_null(_ZERO)
    names, values = pairs.field(0), pairs.field(1)
    if values.null_count:
        raise ValueError("column 'headers' contains a null value; remove it or give it a value")
    name_lengths, name_bytes = _split(names.cast(BINARY))
    value_lengths, value_bytes = _split(values)
    _limit_all("number of headers", counts, HEADERS_MAX)
    _limit_all("header name", name_lengths, NAME_BYTES_MAX)
    _limit_all("header", value_lengths, HEADER_BYTES_MAX)
    if not pc.min(name_lengths).as_py():
        raise ValueError("a header has an empty name; give it a name of 1 to 255 bytes")
    return parts._replace(
        header_counts=_bytes(counts),
        name_lengths=_bytes(name_lengths),
        header_lengths=_bytes(value_lengths),
        names=name_bytes,
        headers=value_bytes,
    )


def _limit_all(what: str, sizes: pa.Array, most: int) -> None:
    limit(what, pc.max(sizes).as_py(), most)  # there is at least one row


def _split(array: pa.Array) -> tuple[pa.Array, bytes]:
    """Return the lengths and bytes of a binary column without nulls, which may be a slice."""
    count = len(array)
    _, starts, data = array.buffers()
    if not count:
        return pa.repeat(_ZERO, count), b""
    offsets = pa.Array.from_buffers(pa.int32(), count + 1, [None, starts], offset=array.offset)
    lengths = pc.subtract(offsets.slice(1), offsets.slice(0, count)).view(pa.uint32())
    first, last = offsets[0].as_py(), offsets[count].as_py()
    return lengths, data.slice(first, last - first).to_pybytes()


def _bytes(numbers: pa.Array) -> bytes:
    """Return the numbers of a column without nulls as little-endian bytes."""
    width = numbers.type.bit_width // 8
    buffer: Any = numbers.buffers()[1]
    taken: bytes = buffer.slice(numbers.offset * width, len(numbers) * width).to_pybytes()
    return taken
