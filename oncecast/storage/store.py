"""Blocks: records that were written together, with one checksum.

    0  magic          4   helps to find the next block after damage
    4  header crc     4   CRC-32C of bytes 8 to 40, seeded with the file and the offset
    8  body crc       4   CRC-32C of the body
    12 body bytes     4
    16 records        4   number of records in the body; 0 for other kinds
    20 kind           4   RECORDS, OPENING, MARKER, INDEX, END
    24 first          8   number of the first record, or of the next record if the block has none
    32 synced         8   last record known to be on disk when this block was built
    40 body               one record: its bytes; several: their lengths (4 each), then their bytes

Small records share a block, so that opening a log costs one checksum per block. A large record gets
its own block and is never copied. All numbers are little-endian.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from google_crc32c import extend, value

from oncecast.storage.disk import File

MAGIC = b"\x8aocL"
HEADER = struct.Struct("<4sIIIIIQQ")
HEADER_BYTES = HEADER.size
# Maximum size of a block of small records; a flipped bit loses only one block.
BLOCK_BYTES = 128 * 1024

RECORDS, OPENING, MARKER, INDEX, END = range(5)

CHUNK = 512 * 1024  # number of bytes to read at a time
_LARGE = 32 * 1024  # minimum size of a body that is read separately if it exceeds the chunk
_GLANCE = 256  # number of bytes to read for the header after such a body
_CHECKED = struct.Struct("<IIIIQQ")  # the part of the header that its checksum covers
_CHECKED_BYTES = _CHECKED.size
_unpack = HEADER.unpack_from
_make = tuple.__new__
_ZEROS = bytes(CHUNK)
_SECTOR = 512  # bytes per sector, the unit in which a disk loses data
_LOST = b"\xee"  # replaces an unreadable byte; a zero would look like free space
_UNREADABLE = (errno.EIO, errno.EBADMSG, getattr(errno, "EUCLEAN", errno.EIO))
_MASK = 0xFFFFFFFF


class Block(NamedTuple):
    """A block with an intact header. `body` is None if the body is damaged."""

    offset: int
    end: int
    kind: int
    first: int
    records: int
    synced: int
    body: bytes | None


class Gap(NamedTuple):
    """Bytes without an intact header. All bytes after `dirty_end` are zero."""

    offset: int
    end: int
    dirty_end: int


def seed_of(serial: int) -> int:
    """Return a checksum seed unique to each file; `serial` is the file number."""
    return serial * 0x9E3779B1 & _MASK


def header(
    position: int, kind: int, first: int, count: int, synced: int, parts: Sequence[bytes]
) -> bytes:
    """Return a block header; `position` is the file's seed plus the block's offset."""
    crc = size = 0
    for part in parts:
        crc = extend(crc, part)
        size += len(part)
    checked = _CHECKED.pack(crc, size, count, kind, first, synced)
    return MAGIC + int(extend(position & _MASK, checked)).to_bytes(4, "little") + checked


def pack(records: Sequence[bytes]) -> bytes:
    """Return the body of a block with several records."""
    lengths = struct.pack(f"<{len(records)}I", *map(len, records))
    return b"".join((lengths, *records))


def unpack(body: bytes, count: int) -> list[bytes]:
    if count == 1:
        return [body]
    lengths = struct.unpack_from(f"<{count}I", body)
    return [body[a:b] for a, b in pairwise(accumulate(lengths, initial=4 * count))]


def read_block(file: File, seed: int, offset: int) -> Block | None:
    """Return the block at `offset`, or None if no intact block starts there."""
    for found in walk(file, seed, offset):
        return found if isinstance(found, Block) and found.body is not None else None
    return None


def read(file: File, offset: int, size: int) -> bytes:
    """Return `size` bytes, or fewer at the end of the file.

    Replace each unreadable sector with filler bytes, so that the checksum reveals the damaged block
    and the blocks around it can still be read.
    """
    try:
        return file.read(offset, size)
    except OSError as error:
        if error.errno not in _UNREADABLE:
            raise
    end = min(offset + size, file.size())
    pieces = []
    while offset < end:
        stop = min(end, offset - offset % _SECTOR + _SECTOR)
        pieces.append(_sector(file, offset, stop - offset))
        offset = stop
    return b"".join(pieces)


def _sector(file: File, offset: int, size: int) -> bytes:
    try:
        return file.read(offset, size)
    except OSError as error:
        if error.errno not in _UNREADABLE:
            raise
        return _LOST * size


def is_readable(file: File, start: int, end: int) -> bool:
    """Return whether the disk can read all bytes from `start` to `end`."""
    try:
        for at in range(start, end, CHUNK):
            file.read(at, min(CHUNK, end - at))
    except OSError as error:
        if error.errno not in _UNREADABLE:
            raise
        return False
    return True


# Long for speed: this loop dominates opening a log, and helper calls would slow it down.
def walk(file: File, seed: int, start: int = 0, *, ahead: int = CHUNK) -> Iterator[Block | Gap]:
    """Yield the blocks and gaps of the file from `start` on, and verify all checksums.

    The header has its own checksum, so the position of the next block is known even if the body is
    damaged. After a damaged header, search for the next magic number.
    """
    limit = file.size()
    at = base = start
    chunk = b""
    held = 0  # number of bytes in the chunk
    large = False
    while at < limit:
        here = at - base + HEADER_BYTES
        if here > held:
            # After a large body, which was read separately, read only the next header.
            chunk, base, here = read(file, at, _GLANCE if large else ahead), at, HEADER_BYTES
            held = len(chunk)
            if held < HEADER_BYTES:
                yield _gap(file, seed, at, limit)
                return
        magic, check, crc, size, records, kind, first, synced = _unpack(chunk, here - HEADER_BYTES)
        checked = chunk[here - _CHECKED_BYTES : here]
        if magic != MAGIC or check != extend(seed + at & _MASK, checked):
            gap = _gap(file, seed, at, limit)
            yield gap
            at = gap.end
            continue
        end = at + HEADER_BYTES + size
        body = chunk[here : here + size]
        if len(body) < size and end <= limit:
            large = size > _LARGE
            if large:
                body = read(file, end - size, size)
            else:
                chunk, base = read(file, at, max(ahead, end - at)), at
                held = len(chunk)
                body = chunk[HEADER_BYTES : HEADER_BYTES + size]
        whole = value(body) == crc and len(body) == size
        # This is twice as fast as Block(...), and this loop dominates opening a log.
        yield _make(Block, (at, end, kind, first, records, synced, body if whole else None))
        at = end


def _gap(file: File, seed: int, start: int, limit: int) -> Gap:
    """Return the gap from `start` to the next intact header, or to the end of the file."""
    dirty_end = start
    for at, stop in _data(file, start, limit):
        while at < stop:
            chunk = read(file, at, min(CHUNK, stop - at))
            if chunk != _ZEROS[: len(chunk)]:
                found = _find_header(chunk, seed + at, 1 if at == start else 0)
                if found >= 0:
                    return Gap(start, at + found, at + found)
                dirty_end = at + len(chunk.rstrip(b"\0"))
            # A header may span two chunks.
            at += len(chunk) if at + len(chunk) >= stop else len(chunk) - HEADER_BYTES + 1
    return Gap(start, limit, dirty_end)


def _data(file: File, start: int, limit: int) -> list[tuple[int, int]]:
    """Return the ranges that may hold nonzero bytes. Call this before reads fill the holes."""
    stretches = []
    at, stop = file.data(start)
    while at < limit:
        # The trailing zeros of a header may lie in a hole.
        stretches.append((at, min(stop + HEADER_BYTES, limit)))
        at, stop = file.data(stop)
    return stretches


def _find_header(chunk: bytes, position: int, start: int) -> int:
    """Return the position of the next intact header in the chunk, or -1 if there is none."""
    at = chunk.find(MAGIC, start)
    while at >= 0:
        head = chunk[at : at + HEADER_BYTES]
        if len(head) == HEADER_BYTES:
            check = extend(position + at & _MASK, head[-_CHECKED_BYTES:])
            if check == _unpack(head)[1]:
                return at
        at = chunk.find(MAGIC, at + 1)
    return -1
