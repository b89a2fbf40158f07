"""The block: the records that were written together, under one checksum.

    0  magic          4   where a reader that lost its way finds the next block
    4  header crc     4   CRC-32C of bytes 8 to 40, seeded with the file and offset it was put at
    8  body crc       4   CRC-32C of the body
    12 body bytes     4
    16 records        4   how many are in the body; 0 for the kinds that hold none
    20 kind           4   RECORDS, OPENING, MARKER, INDEX, END
    24 first          8   number of the first record (without records: of the next one)
    32 synced         8   last record known to be on disk when this block was made
    40 body               of one record: its bytes; of several: their lengths (4 each), their bytes

Small records share a block, so that opening a log costs a checksum a block and not a step a record;
a large one has a block of its own and is never copied. Everything is little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from google_crc32c import extend, value

from oncecast.storage.disk import File

MAGIC = b"\x8aocL"
HEADER = struct.Struct("<4sIIIIIQQ")
HEADER_BYTES = HEADER.size
BLOCK_BYTES = 128 * 1024  # Small records gather up to here; a flipped bit costs no more than this.

RECORDS, OPENING, MARKER, INDEX, END = range(5)

CHUNK = 512 * 1024  # How much is read at once,
_LARGE = 32 * 1024  # except bodies above this that do not lie in the chunk,
_GLANCE = 256  # and, behind one of those, the next header.
_CHECKED = struct.Struct("<IIIIQQ")  # The part of the header under its checksum.
_CHECKED_BYTES = _CHECKED.size
_unpack = HEADER.unpack_from
_make = tuple.__new__
_ZEROS = bytes(CHUNK)
_MASK = 0xFFFFFFFF


class Block(NamedTuple):
    """A stretch with an intact header. `body` is None where the body is not what was written."""

    offset: int
    end: int
    kind: int
    first: int
    records: int
    synced: int
    body: bytes | None


class Gap(NamedTuple):
    """A stretch without an intact header; behind `dirty_end` it is all zeros."""

    offset: int
    end: int
    dirty_end: int


def seed_of(serial: int) -> int:
    """Tells the blocks of one file from those of another; `serial` is the file's number."""
    return serial * 0x9E3779B1 & _MASK


def header(
    place: int, kind: int, first: int, count: int, synced: int, parts: Sequence[bytes]
) -> bytes:
    """The header of a block at `place` (the file's seed + offset), whose body is the parts."""
    crc = size = 0
    for part in parts:
        crc = extend(crc, part)
        size += len(part)
    checked = _CHECKED.pack(crc, size, count, kind, first, synced)
    return MAGIC + int(extend(place & _MASK, checked)).to_bytes(4, "little") + checked


def pack(records: Sequence[bytes]) -> bytes:
    """The body of several records."""
    lengths = struct.pack(f"<{len(records)}I", *map(len, records))
    return b"".join((lengths, *records))


def unpack(body: bytes, count: int) -> list[bytes]:
    if count == 1:
        return [body]
    lengths = struct.unpack_from(f"<{count}I", body)
    return [body[a:b] for a, b in pairwise(accumulate(lengths, initial=4 * count))]


def read_block(file: File, seed: int, offset: int) -> Block | None:
    """The intact block at `offset`, or None."""
    for found in walk(file, seed, offset):
        return found if isinstance(found, Block) and found.body is not None else None
    return None


def walk(file: File, seed: int, start: int = 0, *, ahead: int = CHUNK) -> Iterator[Block | Gap]:
    """All of the file from `start`, as blocks and gaps. Reads in chunks, checks every checksum.

    The header has its own checksum: behind a bad body we know exactly where the next block
    begins, and behind a bad header we look for the next magic.
    """
    limit = file.size()
    at = base = start
    chunk = b""
    held = 0  # bytes of the chunk
    large = False
    while at < limit:
        here = at - base + HEADER_BYTES
        if here > held:
            # Large bodies come alone, not copied out of a chunk: then only look at the header.
            chunk, base, here = file.read(at, _GLANCE if large else ahead), at, HEADER_BYTES
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
                body = file.read(end - size, size)
            else:
                chunk, base = file.read(at, max(ahead, end - at)), at
                held = len(chunk)
                body = chunk[HEADER_BYTES : HEADER_BYTES + size]
        whole = value(body) == crc and len(body) == size
        # What Block(...) does, in half the time: this loop is the price of opening a log.
        yield _make(Block, (at, end, kind, first, records, synced, body if whole else None))
        at = end


def _gap(file: File, seed: int, start: int, limit: int) -> Gap:
    """From `start` to the next intact header, or to the end of the file."""
    dirty_end = start
    for at, stop in _data(file, start, limit):
        while at < stop:
            chunk = file.read(at, min(CHUNK, stop - at))
            if chunk != _ZEROS[: len(chunk)]:
                found = _find_header(chunk, seed + at, 1 if at == start else 0)
                if found >= 0:
                    return Gap(start, at + found, at + found)
                dirty_end = at + len(chunk.rstrip(b"\0"))
            # A header may lie across two chunks.
            at += len(chunk) if at + len(chunk) >= stop else len(chunk) - HEADER_BYTES + 1
    return Gap(start, limit, dirty_end)


def _data(file: File, start: int, limit: int) -> list[tuple[int, int]]:
    """What may be more than zeros. Asked first: a hole that is read begins to look like data."""
    stretches = []
    at, stop = file.data(start)
    while at < limit:
        # The zeros that a header ends with may lie in a hole.
        stretches.append((at, min(stop + HEADER_BYTES, limit)))
        at, stop = file.data(stop)
    return stretches


def _find_header(chunk: bytes, place: int, start: int) -> int:
    """Where the next intact header begins, or -1."""
    at = chunk.find(MAGIC, start)
    while at >= 0:
        head = chunk[at : at + HEADER_BYTES]
        if len(head) == HEADER_BYTES:
            check = extend(place + at & _MASK, head[-_CHECKED_BYTES:])
            if check == _unpack(head)[1]:
                return at
        at = chunk.find(MAGIC, at + 1)
    return -1
