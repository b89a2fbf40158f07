"""The bytes of a record batch: what a node may look at, and how a batch is proved sound.

     0  magic          8
     8  format         2   COLUMNS, or from FOREIGN up somebody else's
    10  flags          2   which optional columns there are, and whether they are compressed
    12  count          4   messages, at least 1
    16  time           8   of the first message, in microseconds since 1970; of all, without TIMES
    24  bytes          4   of the whole batch, from magic to checksum
    28  value bytes    4
    32  key bytes      4
    36  pairs          4   headers of all messages together
    40  name bytes     4
    44  header bytes   4
    48  columns            as in `Columns`; with ZSTD one frame that holds them all
    -4  checksum       4   CRC-32C of everything before it

Everything is little-endian. A node needs the first 48 bytes and the checksum, never a message.
The checksum stands last because the CRC of bytes followed by their own CRC is a constant: a batch
is proved by one call over the whole buffer, without a copy that leaves the checksum out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from io import BytesIO
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from google_crc32c import extend, value

if TYPE_CHECKING:
    from oncecast.storage.disk import Buffer

MAGIC = b"\x8aocBatch"
COLUMNS = 1
FOREIGN = 256  # Formats from here on pass through untouched; those below are ours to define.
TIMES, KEYS, HEADERS, ZSTD = 1, 2, 4, 8
NO_KEY = 0xFFFFFFFF  # In place of a length: this message has no key, not even an empty one.

BYTES_MAX = 64 * 1024 * 1024  # of a batch, and of its columns when they are compressed
MESSAGES_MAX = 1_000_000
KEY_BYTES_MAX = 65_535
HEADERS_MAX = 64  # of one message
NAME_BYTES_MAX = 255
HEADER_BYTES_MAX = 65_535
LEVEL_MIN = -131_072  # of zstd: levels below 0 trade size for speed

_HEADER = struct.Struct("<8sHHIqIIIIII")
HEADER_BYTES = _HEADER.size
FLAGS_AT = 10
FRAME_BYTES = HEADER_BYTES + 4  # what a batch has beside its columns
_RESIDUE = 0x48674BC7  # CRC-32C of anything that is followed by its CRC-32C
_unpack = _HEADER.unpack_from


class BadBatch(ValueError):
    """These bytes are no sound batch: damaged on the way, or made by a faulty producer."""


class Oversized(ValueError):
    """What was to be packed is over a limit; nothing was packed."""


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
    """A batch opened: where in `data` each column begins, in the order they stand there.

    Lengths come first, so that they stay aligned: Arrow takes them as they are.
    """

    header: Header
    data: bytes
    times: int  # int64 each; with TIMES
    value_lengths: int  # uint32 each, as all below
    key_lengths: int  # with KEYS
    header_counts: int  # how many each message has; with HEADERS
    name_lengths: int
    header_lengths: int
    values: int  # the bytes, one after the other, as all below
    keys: int
    names: int
    headers: int
    end: int

    def numbers(self, at: int, count: int) -> tuple[int, ...]:
        return struct.unpack_from(f"<{count}I", self.data, at)

    def reader(self, at: int) -> Callable[[int], bytes]:
        """Reads the next so many bytes: three times faster than slices, as the counting is in C."""
        # It shares the bytes, it does not copy them.
        stream = BytesIO(self.data)
        stream.seek(at)
        return stream.read


def peek(buffer: Buffer) -> Header:
    """The header, and no more than that is looked at: for batches that were checked before."""
    try:
        header = Header(*_unpack(buffer))
    except struct.error:
        raise BadBatch(
            f"a batch has at least {FRAME_BYTES} bytes, here are {len(buffer)}"
        ) from None
    if header.magic != MAGIC:
        raise BadBatch("this is no batch: it begins with other bytes; pack it with batch.encode")
    return header


def opened_bytes(batch: bytes) -> int:
    """What a batch that was checked before takes once it is opened."""
    if not batch[FLAGS_AT] & ZSTD:
        return len(batch)
    return FRAME_BYTES + _columns(peek(batch), batch, 0).end


def check(buffer: Buffer) -> Header:
    """Proves the checksum and that every declared length fits; raises BadBatch and nothing else.

    Of a compressed batch the frame is proved and its declared size limited: the node neither
    unpacks it nor needs zstd. Readers prove the columns in it. Bytes are used as they are;
    other buffers are copied once.
    """
    data = buffer if type(buffer) is bytes else bytes(buffer)
    header = check_frame(data)
    if header.format == COLUMNS and not only_values(header, data):
        _open(header, data, unpack=False)
    return header


def open_columns(buffer: Buffer) -> Columns:
    """The columns of a batch, all of it proved, and decompressed if need be."""
    data = buffer if type(buffer) is bytes else bytes(buffer)
    header = check_frame(data)
    if header.format != COLUMNS:
        raise BadBatch(f"its format is {header.format}, not ours; batch.unwrap gives its bytes")
    return _open(header, data, unpack=True)


class Parts(NamedTuple):
    """The columns of a batch to be, as in `Columns`; those it does not have are empty."""

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
    """A batch of these columns. `zstd` is a level; what is small or does not shrink stays plain."""
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
    """The parts between a header and a checksum, copied once."""
    size = FRAME_BYTES + sum(map(len, parts))
    if size > BYTES_MAX or not 0 < count <= MESSAGES_MAX:
        raise Oversized(
            f"{count:,} messages of {size:,} bytes are not one batch: it has 1 to {MESSAGES_MAX:,} "
            f"messages and at most {BYTES_MAX:,} bytes; pack them as several"
        )
    header = _HEADER.pack(MAGIC, format, flags, count, time, size, *totals)
    crc = value(header)
    for part in filter(None, parts):
        crc = extend(crc, part)
    return b"".join((header, *parts, crc.to_bytes(4, "little")))


def check_frame(data: bytes) -> Header:
    """Everything that can be said without looking at a column, cheapest first."""
    header = peek(data)
    size = len(data)
    if header.bytes != size:
        raise BadBatch(f"it declares {header.bytes:,} bytes and has {size:,}; send it whole")
    if size > BYTES_MAX:
        raise BadBatch(f"it has {size:,} bytes, at most {BYTES_MAX:,} are allowed; send several")
    if not 0 < header.count <= MESSAGES_MAX:
        raise BadBatch(f"it declares {header.count:,} messages, 1 to {MESSAGES_MAX:,} are allowed")
    if header.format != COLUMNS and header.format < FOREIGN:
        raise BadBatch(f"its format {header.format} is unknown here; upgrade oncecast")
    if value(data) != _RESIDUE:
        raise BadBatch("its checksum does not match: damaged on the way or on disk; send it again")
    return header


def only_values(header: Header, data: bytes) -> bool:
    """Whether it has one column of values, sound, and nothing else: most have, and it is seen at
    once. Of any other batch this does not say whether it is sound."""
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
        if not unpack:
            return columns
        columns = _columns(header, _decompress(data, columns.end - HEADER_BYTES), 0)
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
    """The declared columns against the declared size, before anything is allocated for them."""
    flags = header.flags
    if flags > TIMES | KEYS | HEADERS | ZSTD:
        raise BadBatch(f"its flags {flags:#x} are unknown here; upgrade oncecast")
    if (header.key_bytes and not flags & KEYS) or (
        header.pairs | header.name_bytes | header.header_bytes and not flags & HEADERS
    ):
        raise BadBatch("it declares keys or headers in one place and not in the other")
    if size > BYTES_MAX:
        raise BadBatch(f"its columns have {size:,} bytes, at most {BYTES_MAX:,} are allowed")
    if not flags & ZSTD and size != header.bytes - FRAME_BYTES:
        raise BadBatch(f"it declares columns of {size:,} bytes in a batch of {header.bytes:,}")


def _check_columns(columns: Columns) -> None:
    """The lengths of the messages against those of their columns, and against the limits."""
    header = columns.header
    if _total(columns.data, columns.value_lengths, header.count) != header.value_bytes:
        raise BadBatch("the lengths of its values do not add up to its column of values")
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
    """The sum of `count` lengths."""
    lengths = data[at : at + 4 * count]
    # Messages of one size are common, and to compare bytes is 20 times faster than to add.
    if lengths == lengths[:4] * count:
        return int.from_bytes(lengths[:4], "little") * count
    return sum(struct.unpack_from(f"<{count}I", data, at))


def _check_lengths(what: str, lengths: tuple[int, ...], total: int, low: int, high: int) -> None:
    if sum(lengths) != total:
        raise BadBatch(f"the lengths of its column ({what}) do not add up to its size")
    if max(lengths, default=low) > high or (low and min(lengths, default=low) < low):
        raise BadBatch(
            f"{what}: {min(lengths):,} to {max(lengths):,}, but {low} to {high:,} are allowed"
        )


def _check_names(columns: Columns, lengths: tuple[int, ...]) -> None:
    # A name of one message must not end in the middle of a character.
    if columns.data[columns.names : columns.headers].isascii():
        return
    try:
        all(map(bytes.decode, map(columns.reader(columns.names), lengths)))
    except UnicodeDecodeError:
        raise BadBatch("the name of a header is not UTF-8; encode it so") from None


def _decompress(data: bytes, size: int) -> bytes:
    """The columns out of their frame, which must declare just this size before it is unpacked."""
    try:
        zstandard = _zstandard()
    except ImportError as error:
        raise BadBatch(f"it is compressed with zstd: {error}") from None
    frame = memoryview(data)[HEADER_BYTES:-4]
    try:
        if zstandard.frame_content_size(frame) != size:
            raise BadBatch("its frame declares another size than its header")
        columns: bytes = zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise BadBatch(f"its frame cannot be decompressed: {error}") from None
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
        raise ImportError(
            "the package zstandard is not installed; install it with pip install zstandard"
        ) from None
    return zstandard
