"""The binary layout of a record batch, and its validation.

     0  magic          8
     8  format         2   COLUMNS, or a foreign format from FOREIGN up
    10  flags          2   the optional columns, and whether the columns are compressed
    12  count          4   number of messages, at least 1
    16  time           8   time of the first message, or of all without TIMES, in µs since 1970
    24  bytes          4   size of the whole batch, from magic to checksum
    28  value bytes    4
    32  key bytes      4
    36  pairs          4   total number of headers
    40  name bytes     4
    44  header bytes   4
    48  columns            as in `Columns`; with ZSTD, compressed into one frame
    -4  checksum       4   CRC-32C of everything before it

All numbers are little-endian. A node reads only the first 48 bytes and the checksum, never a
message. The checksum comes last because the CRC of any data followed by its own CRC is a constant.
A single call over the whole buffer therefore verifies a batch, without slicing off the checksum.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from io import BytesIO
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from google_crc32c import extend, value

from oncecast.wire.zstd_frame import frame_fault

if TYPE_CHECKING:
    from oncecast.storage.disk import Buffer

MAGIC = b"\x8aocBatch"
COLUMNS = 1
FOREIGN = 256  # formats from this number on are foreign; nodes pass such batches on unopened
KAFKA = 256  # the batch contains a Kafka record batch
TIMES, KEYS, HEADERS, ZSTD = 1, 2, 4, 8
NO_KEY = 0xFFFFFFFF  # key length of a message without a key

BYTES_MAX = 64 * 1024 * 1024  # maximum size of a batch, and of its uncompressed columns
MESSAGES_MAX = 1_000_000
KEY_BYTES_MAX = 65_535
HEADERS_MAX = 64  # maximum headers per message
NAME_BYTES_MAX = 255
HEADER_BYTES_MAX = 65_535
LEVEL_MIN = -131_072  # zstd levels below 0 trade size for speed

_HEADER = struct.Struct("<8sHHIqIIIIII")
HEADER_BYTES = _HEADER.size
FLAGS_AT = 10
FRAME_BYTES = HEADER_BYTES + 4  # size of a batch without columns
_RESIDUE = 0x48674BC7  # CRC-32C of any data followed by its own CRC-32C
_unpack = _HEADER.unpack_from


class BadBatch(ValueError):
    """The bytes are not a valid batch: they are damaged, or the producer is faulty."""


class Oversized(ValueError):
    """The messages exceed a limit, and nothing was packed."""


class Header(msgspec.Struct, frozen=True, gc=False):
    magic: bytes
    format: int
    flags: int
    count: int
    time: int
    bytes: int
    value_bytes: int
    key_bytes: int
    pairs: int
    name_bytes: int
    header_bytes: int


class Columns(NamedTuple):
    """An opened batch: the position of each column in `data`, in order.

    The lengths come first, so that they are aligned and Arrow can use them without a copy.
    """

    header: Header
    data: bytes
    times: int  # int64 for each message; present only if TIMES is set
    value_lengths: int  # uint32 per item, as in all length and count columns
    key_lengths: int  # present only if KEYS is set
    header_counts: int  # number of headers per message; present if HEADERS is set
    name_lengths: int
    header_lengths: int
    values: int  # concatenated bytes, as in all columns below
    keys: int
    names: int
    headers: int
    end: int

    def numbers(self, at: int, count: int) -> tuple[int, ...]:
        return struct.unpack_from(f"<{count}I", self.data, at)

    def reader(self, at: int) -> Callable[[int], bytes]:
        """Return a function that reads the next bytes, three times faster than slicing."""
        # BytesIO does not copy the bytes.
        stream = BytesIO(self.data)
        stream.seek(at)
        return stream.read


def peek(buffer: Buffer) -> Header:
    """Return the header of a batch without verifying the batch."""
    try:
        header = Header(*_unpack(buffer))
    except struct.error:
        raise BadBatch(
            f"the batch is {len(buffer)} bytes long (minimum {FRAME_BYTES}); send the whole batch"
        ) from None
    if header.magic != MAGIC:
        raise BadBatch(
            f"not a batch: it starts with {header.magic!r} instead of {MAGIC!r}; use batch.encode"
        )
    return header


def opened_bytes(batch: bytes) -> int:
    """Return the uncompressed size of a batch that has been checked."""
    if not batch[FLAGS_AT] & ZSTD:
        return len(batch)
    return FRAME_BYTES + _columns(peek(batch), batch, 0).end


def check(buffer: Buffer) -> Header:
    """Verify the checksum and all declared lengths, and return the header. Raise BadBatch on error.

    For a compressed batch, only the frame's structure and size are checked, so nodes neither
    decompress it nor need zstd. Readers validate the columns. The buffer is copied only if it is
    not `bytes`.
    """
    data = buffer if type(buffer) is bytes else bytes(buffer)
    header = check_frame(data)
    if header.format == COLUMNS and not only_values(header, data):
        _open(header, data, unpack=False)
    return header


def open_columns(buffer: Buffer) -> Columns:
    """Validate and decompress a batch, and return its columns. Raise BadBatch if it is invalid."""
    data = buffer if type(buffer) is bytes else bytes(buffer)
    header = check_frame(data)
    if header.format != COLUMNS:
        raise BadBatch(
            f"the batch has the foreign format {header.format}; read it with batch.unwrap"
        )
    return _open(header, data, unpack=True)


class Parts(NamedTuple):
    """The columns of a new batch, as in `Columns`. Missing columns are empty."""

    times: bytes = b""
    value_lengths: bytes = b""
    key_lengths: bytes = b""
    header_counts: bytes = b""
    name_lengths: bytes = b""
    header_lengths: bytes = b""
    values: bytes = b""
    keys: bytes = b""
    names: bytes = b""
    headers: bytes = b""


def seal_columns(parts: Parts, time: int, *, zstd: int | None, zstd_from: int) -> bytes:
    """Return a batch of these columns, compressed at level `zstd` if that makes it smaller."""
    count = len(parts.value_lengths) // 4
    flags = (
        (TIMES if parts.times else 0)
        | (KEYS if parts.key_lengths else 0)
        | (HEADERS if parts.header_counts else 0)
    )
    pairs = len(parts.name_lengths) // 4
    totals = (len(parts.values), len(parts.keys), pairs, len(parts.names), len(parts.headers))
    if zstd is not None and (size := sum(map(len, parts))) >= zstd_from and size <= BYTES_MAX:
        frame = _zstandard().ZstdCompressor(level=zstd).compress(b"".join(parts))
        if len(frame) < size:
            return seal(COLUMNS, flags | ZSTD, count, time, totals, [frame])
    return seal(COLUMNS, flags, count, time, totals, parts)


def seal(
    format: int,
    flags: int,
    count: int,
    time: int,
    totals: tuple[int, int, int, int, int],
    parts: Sequence[bytes],
) -> bytes:
    """Return a header, the parts and a checksum as one batch. The parts are copied once."""
    size = FRAME_BYTES + sum(map(len, parts))
    if size > BYTES_MAX or not 0 < count <= MESSAGES_MAX:
        raise Oversized(
            f"the batch would have {count:,} messages and {size:,} bytes (1 to {MESSAGES_MAX:,} "
            f"messages, limit {BYTES_MAX:,} bytes); pack several batches"
        )
    header = _HEADER.pack(MAGIC, format, flags, count, time, size, *totals)
    crc = value(header)
    for part in filter(None, parts):
        crc = extend(crc, part)
    return b"".join((header, *parts, crc.to_bytes(4, "little")))


def check_frame(data: bytes) -> Header:
    """Validate everything except the columns, cheapest check first, and return the header."""
    header = peek(data)
    size = len(data)
    if header.bytes != size:
        raise BadBatch(
            f"the batch declares {header.bytes:,} bytes but has {size:,}; send all of it"
        )
    if size > BYTES_MAX:
        raise BadBatch(f"the batch is {size:,} bytes long (limit {BYTES_MAX:,}); split it")
    if not 0 < header.count <= MESSAGES_MAX:
        raise BadBatch(
            f"the batch declares {header.count:,} messages (limits 1 and {MESSAGES_MAX:,}); "
            "send several batches"
        )
    if header.format != COLUMNS and header.format < FOREIGN:
        raise BadBatch(f"the batch has the unknown format {header.format}; upgrade oncecast")
    if value(data) != _RESIDUE:
        raise BadBatch("the batch checksum does not match; send the batch again")
    return header


def only_values(header: Header, data: bytes) -> bool:
    """Return whether the batch is valid and contains only values, the common case.

    If this returns False, the batch may still be valid.
    """
    count, size = header.count, header.value_bytes
    return (
        header.flags == 0
        and header.format == COLUMNS
        and header.bytes == FRAME_BYTES + 4 * count + size
        and not header.key_bytes | header.pairs | header.name_bytes | header.header_bytes
        and _total(data, HEADER_BYTES, count) == size
    )


def _open(header: Header, data: bytes, *, unpack: bool) -> Columns:
    columns = _columns(header, data, HEADER_BYTES)
    _check_totals(header, columns.end - HEADER_BYTES)
    if header.flags & ZSTD:
        fault = frame_fault(memoryview(data)[HEADER_BYTES:-4], columns.end - HEADER_BYTES)
        if fault:
            raise BadBatch(f"the batch cannot be decompressed: {fault}; compress it again")
        if not unpack:
            return columns
        columns = _columns(header, _decompress(data), 0)
    _check_columns(columns)
    return columns


def _columns(header: Header, data: bytes, start: int) -> Columns:
    flags, count, pairs = header.flags, header.count, header.pairs
    sizes = (
        8 * count if flags & TIMES else 0,
        4 * count,
        4 * count if flags & KEYS else 0,
        4 * count if flags & HEADERS else 0,
        4 * pairs,
        4 * pairs,
        header.value_bytes,
        header.key_bytes,
        header.name_bytes,
        header.header_bytes,
    )
    return Columns(header, data, *accumulate(sizes, initial=start))


def _check_totals(header: Header, size: int) -> None:
    """Check the declared columns against the declared size before allocating memory."""
    flags = header.flags
    if flags > TIMES | KEYS | HEADERS | ZSTD:
        raise BadBatch(f"the batch has the unknown flags {flags:#x}; upgrade oncecast")
    if header.key_bytes and not flags & KEYS:
        raise BadBatch(f"the batch declares keys, but its flags ({flags:#x}) lack KEYS; set it")
    if header.pairs | header.name_bytes | header.header_bytes and not flags & HEADERS:
        raise BadBatch(
            f"the batch declares headers, but its flags ({flags:#x}) lack HEADERS; set it"
        )
    if size > BYTES_MAX:
        raise BadBatch(
            f"the batch columns take {size:,} bytes (limit {BYTES_MAX:,}); send several batches"
        )
    if not flags & ZSTD and size != header.bytes - FRAME_BYTES:
        raise BadBatch(
            f"the batch declares {size:,} bytes of columns, but has "
            f"{header.bytes - FRAME_BYTES:,}; encode it again"
        )


def _check_columns(columns: Columns) -> None:
    """Check the message lengths against their columns and the limits."""
    header = columns.header
    if _total(columns.data, columns.value_lengths, header.count) != header.value_bytes:
        raise BadBatch(
            f"the value lengths do not add up to {header.value_bytes:,}, the size of the value "
            "column; encode the batch again"
        )
    if header.flags & KEYS:
        lengths = columns.numbers(columns.key_lengths, header.count)
        if NO_KEY in lengths:
            lengths = tuple(length for length in lengths if length != NO_KEY)
        _check_lengths("key", lengths, header.key_bytes, 0, KEY_BYTES_MAX)
    if header.flags & HEADERS:
        counts = columns.numbers(columns.header_counts, header.count)
        _check_lengths("number of headers", counts, header.pairs, 0, HEADERS_MAX)
        names = columns.numbers(columns.name_lengths, header.pairs)
        _check_lengths("header name", names, header.name_bytes, 1, NAME_BYTES_MAX)
        lengths = columns.numbers(columns.header_lengths, header.pairs)
        _check_lengths("header value", lengths, header.header_bytes, 0, HEADER_BYTES_MAX)
        _check_names(columns, names)


def _total(data: bytes, at: int, count: int) -> int:
    """Return the sum of `count` lengths."""
    lengths = data[at : at + 4 * count]
    # Messages of one size are common, and comparing bytes is 20 times faster than adding.
    if lengths == lengths[:4] * count:
        return int.from_bytes(lengths[:4], "little") * count
    return sum(struct.unpack_from(f"<{count}I", data, at))


def _check_lengths(what: str, lengths: tuple[int, ...], total: int, low: int, high: int) -> None:
    if sum(lengths) != total:
        raise BadBatch(
            f"the lengths in the {what} column do not add up to its size: {sum(lengths):,} "
            f"instead of {total:,}; encode the batch again"
        )
    if max(lengths, default=low) > high or (low and min(lengths, default=low) < low):
        raise BadBatch(
            f"{what}: {min(lengths):,} to {max(lengths):,} (limits {low} to {high:,}); "
            "change these messages"
        )


def _check_names(columns: Columns, lengths: tuple[int, ...]) -> None:
    # Each name must be valid UTF-8 on its own.
    if columns.data[columns.names : columns.headers].isascii():
        return
    try:
        all(map(bytes.decode, map(columns.reader(columns.names), lengths)))
    except UnicodeDecodeError:
        raise BadBatch("a header name is not valid UTF-8; encode it as UTF-8") from None


def _decompress(data: bytes) -> bytes:
    """Return the decompressed columns. The frame and its size have already been checked."""
    try:
        zstandard = _zstandard()
    except ImportError as error:
        raise BadBatch(f"the batch is compressed with zstd: {error}") from None
    frame = memoryview(data)[HEADER_BYTES:-4]
    try:
        columns: bytes = zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise BadBatch(f"the batch cannot be decompressed: {error}") from None
    return columns


def check_level(level: object) -> None:
    """Raise ValueError unless batches can be compressed with this zstd level."""
    try:
        zstandard = _zstandard()
    except ImportError as error:
        raise ValueError(str(error)) from None
    highest = zstandard.MAX_COMPRESSION_LEVEL
    if not isinstance(level, int) or not LEVEL_MIN <= level <= highest:
        raise ValueError(f"zstd level is {level!r}; choose an integer from 1 to {highest}")


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError:
        raise ImportError("zstandard is not installed; run pip install zstandard") from None
    return zstandard
