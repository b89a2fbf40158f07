"""Kafka's record batch (magic 2), which Kafka clients put and get.

     0  base offset       8   set when the batch is fetched; not covered by the checksum
     8  length            4   bytes after this field
    12  leader epoch      4   not covered by the checksum
    16  magic             1   2
    17  checksum          4   CRC-32C of everything after it
    21  attributes        2   bits 0-2 compression, 3 time type, 4 transactional, 5 control
    23  last offset delta 4   count - 1
    27  base timestamp    8   milliseconds since 1970
    35  max timestamp     8
    43  producer id       8   -1 for a producer without idempotence
    51  producer epoch    2
    53  base sequence     4
    57  count             4
    61  records               compressed together, if at all

All numbers are big-endian; numbers in records are zigzag varints. Nodes store a batch unchanged,
inside a batch of the format `KAFKA`. Only readers open it: Kafka clients themselves, and other
readers through `decode`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from google_crc32c import value as crc32c

from oncecast.wire.batch_layout import BYTES_MAX, BadBatch

MAGIC = 2
MILLISECOND = 1000  # microseconds

_HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = _HEADER.size
PREFIX_BYTES = 12  # size of the base offset and the length
CHECKED_FROM = 21
NO_PRODUCER = -1

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
CODEC_MASK, APPEND_TIME, TRANSACTIONAL, CONTROL = 7, 8, 16, 32

XERIAL = b"\x82SNAPPY\x00"  # start of the snappy block format that Java clients use
VARINT_BYTES_MAX = 10


class RecordBatch(NamedTuple):
    """The header of a record batch."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    checksum: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # hides tuple.count

    @property
    def compression(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)


class Record(NamedTuple):
    """A message in a record batch. `timestamp` is in milliseconds since 1970."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def check(data: bytes) -> RecordBatch:
    """Verify the checksum and the declared lengths of one batch, without opening its records.

    Raise BadBatch if `data` is not exactly one valid batch that a client may put.
    """
    if len(data) < HEADER_BYTES:
        raise BadBatch(f"the record batch is {len(data)} bytes long (minimum {HEADER_BYTES})")
    header = RecordBatch(*_HEADER.unpack_from(data))
    if header.magic != MAGIC:
        raise BadBatch(
            f"the record batch has magic byte {header.magic}, but only {MAGIC} is supported"
        )
    if header.length != len(data) - PREFIX_BYTES:
        declared = header.length + PREFIX_BYTES
        raise BadBatch(f"the record batch declares {declared:,} bytes, but has {len(data):,}")
    if header.count < 1 or header.last_offset_delta != header.count - 1:
        raise BadBatch(
            f"the record batch has {header.count} records, but its last offset delta is "
            f"{header.last_offset_delta}; clients must number their records without gaps"
        )
    if header.compression > ZSTD:
        raise BadBatch(f"the record batch uses the unknown compression codec {header.compression}")
    if header.attributes & CONTROL:
        raise BadBatch("the record batch is a control batch, which clients may not send")
    if crc32c(data[CHECKED_FROM:]) != header.checksum:
        raise BadBatch("the checksum of the record batch does not match; send it again")
    return header


def restamp(data: bytes, base_offset: int) -> bytes:
    """Return the batch with another base offset."""
    return struct.pack(">q", base_offset) + data[8:]


# Reading.


def decode(data: bytes) -> list[Record]:
    """Return the records of a batch. Raise BadBatch if it is damaged or needs a missing package."""
    header = check(data)
    records = _decompressed(header.compression, data[HEADER_BYTES:])
    found, at = [], 0
    for _ in range(header.count):
        record, at = _record(records, at, header.base_timestamp)
        found.append(record)
    if at != len(records):
        raise BadBatch(f"the record batch has {len(records) - at} bytes after its last record")
    if header.attributes & APPEND_TIME:
        return [each._replace(timestamp=header.max_timestamp) for each in found]
    return found


def _record(data: bytes, at: int, base: int) -> tuple[Record, int]:
    try:
        size, at = _varint(data, at)
        end = at + size
        delta, at = _varint(data, at + 1)  # after the attributes, which are unused
        _, at = _varint(data, at)  # offset delta
        key, at = _bytes(data, at)
        value, at = _bytes(data, at)
        pairs, at = _varint(data, at)
        if not 0 <= pairs <= len(data) - at:
            raise BadBatch(
                f"a record declares {pairs} headers, but only {len(data) - at} bytes remain"
            )
        headers = []
        for _ in range(pairs):
            name, at = _bytes(data, at)
            content, at = _bytes(data, at)
            headers.append(((name or b"").decode(), content))
    except IndexError:
        raise BadBatch("the record batch ends inside a record") from None
    except UnicodeDecodeError:
        raise BadBatch("a header name is not valid UTF-8") from None
    if at != end:
        raise BadBatch(f"a record declares {size} bytes, but its fields have a different length")
    return Record(base + delta, key, value, tuple(headers)), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    value, shift = byte & 0x7F, 7
    for end in range(at + 1, at + VARINT_BYTES_MAX):
        byte = data[end]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), end + 1
        shift += 7
    raise BadBatch(f"a varint in a record is longer than {VARINT_BYTES_MAX} bytes")


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    if size < 0:
        return None, at
    end = at + size
    if end > len(data):
        raise BadBatch(f"a field of {size} bytes is longer than the rest of the record batch")
    return data[at:end], end


# Writing.


def encode(records: Sequence[Record], *, base_offset: int = 0) -> bytes:
    """Return an uncompressed batch of these records, without a producer id."""
    base = records[0].timestamp
    body = bytearray()
    for delta, record in enumerate(records):
        _add_record(body, record, record.timestamp - base, delta)
    last = max(record.timestamp for record in records)
    count = len(records)
    rest = struct.pack(">hiqqqhii", 0, count - 1, base, last, NO_PRODUCER, -1, -1, count)
    checked = rest + body
    length = HEADER_BYTES - PREFIX_BYTES + len(body)
    return struct.pack(">qiibI", base_offset, length, -1, MAGIC, crc32c(checked)) + checked


def records_of(
    values: Iterable[bytes],
    keys: Iterable[bytes | None],
    headers: Iterable[Mapping[str, bytes]],
    times: Iterable[int],
) -> list[Record]:
    """Convert native messages to records. `times` are in microseconds."""
    return [
        Record(time // MILLISECOND, key, value, tuple(found.items()) if found else ())
        for value, key, found, time in zip(values, keys, headers, times, strict=False)
    ]


def _add_record(out: bytearray, record: Record, time_delta: int, offset_delta: int) -> None:
    fields = bytearray(1)  # attributes
    _add_varint(fields, time_delta)
    _add_varint(fields, offset_delta)
    _add_bytes(fields, record.key)
    _add_bytes(fields, record.value)
    _add_varint(fields, len(record.headers))
    for name, content in record.headers:
        _add_bytes(fields, name.encode())
        _add_bytes(fields, content)
    _add_varint(out, len(fields))
    out += fields


def _add_varint(out: bytearray, value: int) -> None:
    value = (value << 1) ^ (value >> 63)
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _add_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)  # -1 as a zigzag varint
    else:
        _add_varint(out, len(data))
        out += data


# Compression. A batch never expands beyond BYTES_MAX.


def _decompressed(compression: int, data: bytes) -> bytes:
    if compression == NONE:
        return data
    try:
        return _OPENERS[compression](data)
    except BadBatch:
        raise
    except Exception as error:  # noqa: BLE001  # each library has its own exceptions
        name = NAMES[compression]
        raise BadBatch(f"the record batch cannot be decompressed ({name}): {error}") from None


def _open_gzip(data: bytes) -> bytes:
    opener = zlib.decompressobj(wbits=31)
    found = opener.decompress(data, BYTES_MAX)
    if opener.unconsumed_tail or not opener.eof:
        raise _too_large()
    return found


def _open_zstd(data: bytes) -> bytes:
    import zstandard

    with zstandard.ZstdDecompressor().stream_reader(data) as reader:
        found = reader.read(BYTES_MAX + 1)
    if len(found) > BYTES_MAX:
        raise _too_large()
    return found


def _open_snappy(data: bytes) -> bytes:
    if not data.startswith(XERIAL):
        return _snappy_block(data)
    found, at, size = [], 16, 0
    while at < len(data):
        (length,) = struct.unpack_from(">i", data, at)
        at += 4
        if not 0 <= length <= len(data) - at:
            raise BadBatch(f"a snappy block declares {length} bytes, but {len(data) - at} remain")
        found.append(_snappy_block(data[at : at + length]))
        at += length
        size += len(found[-1])
        if size > BYTES_MAX:
            raise _too_large()
    return b"".join(found)


def _snappy_block(data: bytes) -> bytes:
    size = shift = 0  # a block starts with its uncompressed size, as a varint
    for byte in data[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > BYTES_MAX:
        raise _too_large()
    return bytes(_cramjam("snappy").snappy.decompress_raw(data))


def _open_lz4(data: bytes) -> bytes:
    opener = _cramjam("lz4").lz4.Decompressor()
    found = bytearray()
    for at in range(0, len(data), 1 << 16):
        opener.decompress(data[at : at + (1 << 16)])
        found += bytes(opener.flush())
        if len(found) > BYTES_MAX:
            raise _too_large()
    return bytes(found + bytes(opener.finish()))


_OPENERS = {GZIP: _open_gzip, SNAPPY: _open_snappy, LZ4: _open_lz4, ZSTD: _open_zstd}


def _cramjam(name: str) -> Any:
    try:
        import cramjam
    except ImportError:
        raise BadBatch(
            f"the record batch is compressed with {name}, but the package cramjam is not installed;"
            ' run pip install "oncecast[kafka]"'
        ) from None
    return cramjam


def _too_large() -> BadBatch:
    return BadBatch(f"the record batch expands to more than {BYTES_MAX:,} bytes")
