"""A segment: a preallocated file of blocks with a sparse index.

A segment is created as `00000042.new`, gets its full size, is synced and then renamed to
`00000042.log`. A crash therefore never leaves a `.log` that is shorter than its opening block says.
The index maps record numbers to nearby offsets. It is written without a sync when the segment is
sealed, and rebuilt if it is missing or damaged.
"""

from __future__ import annotations

import re
import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress

from oncecast.errors import Corrupt, WrongFormat
from oncecast.storage import store
from oncecast.storage.disk import Disk, File
from oncecast.storage.store import Block, Gap

VERSION = 1
LOG_NAME = re.compile(r"[0-9]{8,}\.log")
INDEX_EVERY = 4096

_WIPE = 1024 * 1024
_OPENING = struct.Struct("<IIQ")  # version, serial, allocated bytes
OPENING_BYTES = store.HEADER_BYTES + _OPENING.size


def log_name(serial: int) -> str:
    return f"{serial:08}.log"


def index_name(serial: int) -> str:
    return f"{serial:08}.idx"


def new_name(serial: int) -> str:
    return f"{serial:08}.new"


def serials(disk: Disk) -> list[int]:
    """Return the serial numbers of the segments in the directory."""
    names = disk.names()
    numbers = [int(name[:-4]) for name in names if LOG_NAME.fullmatch(name)]
    return [number for number in numbers if log_name(number) in names]


class Index:
    """Maps the first record number of a block to its offset, with one entry per few KiB of log."""

    def __init__(self) -> None:
        self._numbers = array("Q")
        self._offsets = array("Q")
        self.next_offset = 0  # `add` ignores blocks before this offset

    def add(self, number: int, offset: int) -> None:
        if offset >= self.next_offset:
            self._numbers.append(number)
            self._offsets.append(offset)
            self.next_offset = offset + INDEX_EVERY

    def find(self, number: int) -> tuple[int, int]:
        """Return (number, offset) of an indexed block at or before a record, or (0, 0)."""
        at = bisect_right(self._numbers, number) - 1
        return (self._numbers[at], self._offsets[at]) if at >= 0 else (0, 0)

    def cut(self, number: int) -> None:
        """Remove the entries for record `number` and all later records."""
        at = bisect_right(self._numbers, number - 1)
        del self._numbers[at:], self._offsets[at:]
        self._look()

    def encode(self) -> bytes:
        return self._numbers.tobytes() + self._offsets.tobytes()

    @classmethod
    def decode(cls, data: bytes) -> Index:
        index = cls()
        index._numbers.frombytes(data[: len(data) // 2])
        index._offsets.frombytes(data[len(data) // 2 :])
        index._look()
        return index

    def _look(self) -> None:
        self.next_offset = self._offsets[-1] + INDEX_EVERY if self._offsets else 0


class Segment:
    """One segment. `first` is its first record number, `end` the offset after its last block."""

    def __init__(self, disk: Disk, serial: int) -> None:
        self.serial = serial
        self.name = log_name(serial)
        self.seed = store.seed_of(serial)
        self.first = 0
        self.allocated = 0
        self.blank = True  # whether the file contains only zeros
        self.whole = True  # whether the file has its full size
        self.end = 0
        self.index: Index | None = None
        self.disk = disk
        self._file: File | None = None
        self._pending: list[bytes] = []
        self._written = 0

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self.disk.open(self.name)
        return self._file

    @property
    def free_bytes(self) -> int:
        return self.allocated - self.end

    @property
    def pending_bytes(self) -> int:
        return self.end - self._written

    # Writing

    def create(self) -> None:
        """Create an empty file with a temporary name. Call `allocate` and `publish` next."""
        self._file = self.disk.open(new_name(self.serial), create=True)
        self._file.truncate(0)

    def allocate(self, size: int) -> None:
        self.file.allocate(size)
        self.allocated = size

    def publish(self) -> None:
        """Rename the file. The caller syncs the file before and the directory afterwards."""
        self.disk.rename(new_name(self.serial), self.name)

    def start(self, first: int, synced: int) -> None:
        """Queue the opening block, which is written together with the first record."""
        self.first = first
        self.index = Index()
        body = _OPENING.pack(VERSION, self.serial, self.allocated)
        self.put(store.OPENING, first, 0, synced, [body])

    def put(self, kind: int, first: int, count: int, synced: int, parts: Sequence[bytes]) -> None:
        """Queue a block. The segment must have enough free space for it."""
        head = store.header(self.seed + self.end, kind, first, count, synced, parts)
        if kind == store.RECORDS and self.index is not None:
            self.index.add(first, self.end)
        self._pending.append(head)
        self._pending.extend(parts)
        self.end += len(head) + sum(map(len, parts))
        assert self.end <= self.allocated

    def write(self) -> File:
        """Write the queued blocks and return the file, which the caller must sync."""
        file = self.file
        file.write(self._written, self._pending)
        self._pending = []
        self._written = self.end
        return file

    def resume(self) -> None:
        """Continue writing after the last block that recovery found."""
        self._written = self.end

    # Reading

    def look(self) -> None:
        """Read the start of the file, and set `blank`, `first`, `allocated` and `whole`."""
        size = self.allocated = self.file.size()
        self.blank = size >= OPENING_BYTES
        for found in self.walk(ahead=OPENING_BYTES):
            if isinstance(found, Block):
                self.blank = False
                self.first = found.first
                if found.kind == store.OPENING and found.body is not None:
                    self.allocated = self._check_opening(found.body)
                break
            self.blank = self.blank and found.dirty_end == found.offset
        self.whole = size >= max(self.allocated, OPENING_BYTES)

    def _check_opening(self, body: bytes) -> int:
        version, _, allocated = _OPENING.unpack(body)
        if version != VERSION:
            raise WrongFormat(
                f"{self.name} has format version {version}, but this program reads {VERSION}",
                "use the version of oncecast that wrote the file",
            )
        return int(allocated)

    def walk(self, start: int = 0, *, ahead: int = store.CHUNK) -> Iterator[Block | Gap]:
        return store.walk(self.file, self.seed, start, ahead=ahead)

    def blocks(self, number: int, stop: int) -> Iterator[tuple[int, list[bytes]]]:
        """Yield (first record number, records) of each block from record `number` up to `stop`.

        Raise Corrupt at the first record that cannot be read.
        """
        index = self.index or self.load_index()
        ahead = store.CHUNK if stop - number > 1 else 2 * INDEX_EVERY
        for found in self.walk(index.find(number)[1], ahead=ahead):
            if number >= stop:
                return
            if isinstance(found, Gap) or found.kind != store.RECORDS:
                continue
            if found.first + found.records <= number:
                continue
            if found.first > number:
                raise Corrupt(self.name, found.offset, number, found.first - 1, "missing records")
            if found.body is None:
                last = found.first + found.records - 1
                raise Corrupt(self.name, found.offset, number, last, "checksum mismatch")
            yield found.first, store.unpack(found.body, found.records)
            number = found.first + found.records
        if number < stop:
            raise Corrupt(self.name, self.file.size(), number, stop - 1, "missing records")

    # The index file

    def save_index(self) -> None:
        """Save the index. Ignore disk errors, because the index can be rebuilt."""
        assert self.index is not None
        body = self.index.encode()
        head = store.header(self.seed, store.INDEX, self.first, 0, 0, [body])
        with suppress(OSError):
            file = self.disk.open(index_name(self.serial), create=True)
            try:
                file.truncate(0)
                file.write(0, [head, body])
            finally:
                file.close()

    def load_index(self) -> Index:
        """Return the index from its file, rebuilding it if the file is missing or damaged."""
        self.index = self.stored_index()
        if self.index is None:
            self.index = self._rebuilt_index()
            self.save_index()
        return self.index

    def stored_index(self) -> Index | None:
        try:
            file = self.disk.open(index_name(self.serial))
        except FileNotFoundError:
            return None
        try:
            block = store.read_block(file, self.seed, 0)
        finally:
            file.close()
        if block is None or block.body is None or block.first != self.first:
            return None
        return Index.decode(block.body)

    def _rebuilt_index(self) -> Index:
        index = Index()
        for found in self.walk():
            if isinstance(found, Block) and found.kind == store.RECORDS:
                index.add(found.first, found.offset)
        return index

    # Removing and closing

    def wipe(self, start: int) -> None:
        """Overwrite the torn tail with zeros, so that no old block can follow a new one.

        The file keeps its size, because a shortened file counts as corruption.
        """
        for at in range(start, self.end, _WIPE):
            self.file.write(at, [bytes(min(_WIPE, self.end - at))])
        self.file.sync()
        self.end = start

    def remove(self) -> None:
        self.close()
        self.remove_index()
        for name in (new_name(self.serial), self.name):
            with suppress(FileNotFoundError):
                self.disk.remove(name)

    def remove_index(self) -> None:
        with suppress(FileNotFoundError):
            self.disk.remove(index_name(self.serial))

    def cool(self) -> None:
        """Close the file and drop the index until they are needed again."""
        self.index = None
        self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
