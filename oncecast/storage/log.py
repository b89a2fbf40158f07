"""A log of numbered records in segments. Records are buffered, written and synced in groups.

    append   only buffers      write   one writev per segment    sync   one fdatasync for all

Rules
- Records are numbered 1, 2, 3, ... without gaps. `last` is the last record appended, `written` the
  last record that can be read, `synced` the last record on disk.
- After a failed write or fsync, the log is unusable: the disk contents are unknown, and a second
  fsync may report success (Rebello et al., "Can Applications Recover from fsync Failures?",
  ATC 2020). Stop the node.
- The log allocates the next segment when the current one is half full. It therefore notices a full
  disk early (see `free_bytes`), and `append` fails before anything is written.
- One thread owns the log. Only `Unsynced.sync` may run in another thread.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import suppress

from oncecast.errors import DiskFull, NoSuchRecord, RecordTooLarge, StorageError
from oncecast.storage import store
from oncecast.storage.dirty import Dirty, Unsynced
from oncecast.storage.disk import Buffer, Disk
from oncecast.storage.recovery import Recovered, recover
from oncecast.storage.segment import OPENING_BYTES, Segment

__all__ = ["RECORD_BYTES_MAX", "SEGMENT_BYTES", "Log", "Unsynced"]

SEGMENT_BYTES = 64 * 1024 * 1024
RECORD_BYTES_MAX = 1024 * 1024 * 1024

_OWN_BLOCK = 16 * 1024  # minimum size of a record that gets its own block, without a copy
# Space for the headers of the open group, of the record and of a marker.
_SLACK = 3 * store.HEADER_BYTES + 4
_OPENED = 8  # maximum number of cached blocks of small records
_WARM = 16  # maximum number of sealed segments whose file and index stay open for reading


class Log:
    def __init__(self, disk: Disk, segment_bytes: int, recovered: Recovered) -> None:
        self.recovery = recovery = recovered.report
        self.last = self.written = self.synced = recovery.last
        self._disk = disk
        self._segment_bytes = segment_bytes
        self._segments = recovered.segments
        self._spare = recovered.spare
        # Whether the spare segment has its final name.
        self._spare_ready = recovered.spare is not None
        self.full: DiskFull | None = None  # the reason why no spare segment could be allocated
        self._group: list[bytes] = []  # small records for the next block
        self._group_bytes = 0
        self._pending = 0
        self._unwritten: list[Segment] = []  # full segments with blocks in memory
        self._unsealed: list[Segment] = []  # full segments that are not fully synced
        self._dirty = Dirty()
        self._marked = recovered.marked
        self._warm: OrderedDict[int, Segment] = OrderedDict()
        self._opened: deque[tuple[int, list[bytes]]] = deque(maxlen=_OPENED)
        if not self._segments or not self._segments[-1].whole:
            self._roll(segment_bytes)
            self.sync()

    @classmethod
    def open(cls, disk: Disk, *, segment_bytes: int = SEGMENT_BYTES, scan_from: int = 0) -> Log:
        """Recover and return the log: check it from record `scan_from` on and drop a torn tail.

        `scan_from` is the first record after the caller's snapshot. All earlier records must have
        been synced when the snapshot was made. `recovery.damage` lists the damaged parts; reading
        a damaged record raises Corrupt.
        """
        return cls(disk, segment_bytes, recover(disk, scan_from))

    @property
    def first(self) -> int:
        return self._segments[0].first

    @property
    def pending_bytes(self) -> int:
        """Return the size of the unwritten records, including headers."""
        return self._pending

    @property
    def free_bytes(self) -> int:
        """Return how many bytes can be appended without allocating more disk space."""
        spare = 0 if self._spare is None else self._spare.allocated
        left = self._segments[-1].free_bytes - self._group_bytes
        return spare + left if left > 0 else spare

    @property
    def _active(self) -> Segment:
        return self._segments[-1]

    # Appending

    def append(self, *parts: Buffer) -> int:
        """Buffer a record, given in parts, and return its number. On DiskFull, nothing changes."""
        self._dirty.check()
        # The caller may change a mutable part before it is written.
        whole = [part if type(part) is bytes else bytes(part) for part in parts]
        size = len(whole[0]) if len(whole) == 1 else sum(map(len, whole))
        wanted = self._group_bytes + size + _SLACK
        if wanted > store.BLOCK_BYTES or wanted > self._segments[-1].free_bytes:
            self._roll_if_full(size)
        if size < _OWN_BLOCK:
            self._group.append(whole[0] if len(whole) == 1 else b"".join(whole))
            self._group_bytes += size + 4
        else:
            self._close_group()
            self._active.put(store.RECORDS, self.last + 1, 1, self.synced, whole)
        self._pending += size + store.HEADER_BYTES
        self.last += 1
        return self.last

    def _roll_if_full(self, size: int) -> None:
        if size > RECORD_BYTES_MAX:
            raise RecordTooLarge(size, RECORD_BYTES_MAX)
        self._close_group()
        if size + _SLACK > self._active.free_bytes:
            self._roll(max(self._segment_bytes, OPENING_BYTES + size + _SLACK))

    def _close_group(self) -> None:
        """Put the buffered small records into one block."""
        group, count = self._group, len(self._group)
        if count:
            parts = group if count == 1 else [store.pack(group)]
            self._active.put(store.RECORDS, self.last - count + 1, count, self.synced, parts)
            self._group, self._group_bytes = [], 0

    def mark(self) -> bool:
        """Add a marker stating that all records are synced, and return True.

        Return False without a marker if some records are not synced or the last block is a marker.
        Without a marker, damage in the last group looks like a torn tail. Call this when idle. The
        marker is written and synced like a record.
        """
        self._dirty.check()
        if self.synced < self.last or self._marked == self.last:
            return False
        self._active.put(store.MARKER, self.last + 1, 0, self.synced, ())
        self._marked = self.last
        self._pending += store.HEADER_BYTES
        return True

    # Segments

    def prepare(self) -> None:
        """Allocate the next segment. If the disk is full, set `full` and keep `free_bytes`."""
        if self._spare is None:
            try:
                self._spare, self.full = self._create(self._segment_bytes), None
            except DiskFull as full:
                self.full = full

    def _create(self, size: int) -> Segment:
        segment = Segment(self._disk, self._segments[-1].serial + 1 if self._segments else 1)
        try:
            segment.create()
            segment.allocate(size)
        except OSError as error:
            with suppress(OSError):
                segment.remove()
            raise self._refused(size, error) from error
        self._dirty.touch(segment.file)
        return segment

    def _grow(self, segment: Segment, size: int) -> None:
        try:
            segment.allocate(size)
        except OSError as error:
            raise self._refused(size, error) from error
        self._dirty.touch(segment.file)

    def _refused(self, size: int, error: OSError) -> StorageError:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            where = f"{error.filename}: " if error.filename else ""
            return DiskFull(
                f"{where}no disk space for a segment of {size:,} bytes",
                "free up disk space",
            )
        return self._dirty.fail("allocation", error)

    def _roll(self, size: int) -> None:
        """Continue in a new segment of at least `size` bytes."""
        if self._spare is None:
            self._spare = self._create(size)
        elif self._spare.allocated < size:
            self._grow(self._spare, size)
        self._dirty.sync_now(self._spare.file)  # rare: the spare is needed before the next sync
        if not self._spare_ready:
            self._publish_spare()
        if self._segments:
            self._unwritten.append(self._active)
            self._unsealed.append(self._active)
        self._segments.append(self._spare)
        self._spare, self._spare_ready = None, False
        self._active.start(self.last + 1, self.synced)

    def _publish_spare(self) -> None:
        """Rename the synced spare segment, so that a crash never leaves a short `.log`."""
        assert self._spare is not None
        try:
            self._spare.publish()
        except OSError as error:
            raise self._dirty.fail("rename", error) from error
        self._spare_ready = True
        self._dirty.touch(self._disk)

    # Writing and syncing

    def write(self) -> Unsynced | None:
        """Pass all records to the operating system. Return the files to sync, or None."""
        self._write_out()
        return self._dirty.unsynced(self.written) if self._dirty.changed else None

    def _write_out(self) -> None:
        self._dirty.check()
        self._close_group()
        if self._pending:
            active = self._segments[-1]
            for segment in self._unwritten:
                self._write(segment)
            self._write(active)
            self._unwritten.clear()
            self._pending = 0
            self.written = self.last
            if active.free_bytes < active.allocated // 2:
                self.prepare()

    def _write(self, segment: Segment) -> None:
        if segment.pending_bytes:
            try:
                self._dirty.touch(segment.write())
            except OSError as error:
                raise self._dirty.fail("write", error) from error

    def synced_to(self, done: Unsynced) -> None:
        """Record that a sync succeeded. Call this in write order."""
        self._dirty.check()
        self._dirty.settle(done)
        self.synced = max(self.synced, done.number)
        if self._spare and not self._spare_ready and self._spare.file not in self._dirty:
            self._publish_spare()
        while self._unsealed and self._is_complete(self._unsealed[0]):
            self._seal(self._unsealed.pop(0))

    def _is_complete(self, segment: Segment) -> bool:
        """Return whether all records of a full segment are written and synced.

        An earlier sync of the segment may complete while its last records are still unwritten.
        """
        return segment not in self._unwritten and segment.file not in self._dirty

    def _seal(self, segment: Segment) -> None:
        segment.save_index()
        self._keep_warm(segment)

    def sync(self) -> None:
        """Write and sync all records now."""
        self._write_out()
        if self._dirty:
            unsynced = self._dirty.unsynced(self.written)
            unsynced.sync()
            self.synced_to(unsynced)

    # Reading

    def read(self, number: int) -> bytes:
        """Return a written record, or raise NoSuchRecord or Corrupt."""
        segment, _ = self._find(number)
        for first, records in self._opened:  # a sequential read finds the next record here
            if first <= number < first + len(records):
                return records[number - first]
        first, records = next(segment.blocks(number, number + 1))
        if len(records) > 1:
            self._opened.append((first, records))
        return records[number - first]

    def scan(self, start: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Yield the number and bytes of each written record from `start` on.

        Raise Corrupt at a damaged record. To skip it, start again after the error's `last`.
        """
        number = self.first if start is None else start
        while number <= self.written:
            segment, stop = self._find(number)
            for first, records in segment.blocks(number, stop):
                for record in records[number - first :] if number > first else records:
                    yield number, record
                    number += 1

    def _find(self, number: int) -> tuple[Segment, int]:
        """Return the segment that holds a record, and the next segment's first record number.

        Raise NoSuchRecord if the log has no such record.
        """
        if not self.first <= number <= self.written:
            raise NoSuchRecord(
                f"record {number} is not in the log (which has {self.first} to {self.written})",
                "read a record in this range",
            )
        at = bisect_right(self._segments, number, key=lambda each: each.first) - 1
        segment = self._segments[at]
        if at == len(self._segments) - 1:
            return segment, self.written + 1
        self._keep_warm(segment)
        return segment, min(self._segments[at + 1].first, self.written + 1)

    def _keep_warm(self, segment: Segment) -> None:
        self._warm[segment.serial] = segment
        self._warm.move_to_end(segment.serial)
        if len(self._warm) > _WARM:
            _, oldest = self._warm.popitem(last=False)
            if oldest not in self._unsealed:
                oldest.cool()

    # Truncating and closing

    def truncate(self, before: int) -> None:
        """Remove the segments whose records are all synced and numbered below `before`.

        The log removes them one by one, oldest first, so that a crash leaves no gap.
        """
        self._dirty.check()
        while len(self._segments) > 1:
            following = self._segments[1].first
            if following > min(before, self.synced):
                break
            oldest = self._segments.pop(0)
            self._warm.pop(oldest.serial, None)
            try:
                oldest.remove()
                self._disk.sync()
            except OSError as error:
                raise self._dirty.fail("remove", error) from error

    def close(self) -> None:
        """Sync all records, add a marker and close the files. After a failure, only close them."""
        if not self._dirty.failed:
            self.sync()
            if self.mark():
                self.sync()
        self.abandon()

    def abandon(self) -> None:
        """Close the files without writing buffered records, as a crash would."""
        for segment in self._segments:
            segment.close()
        if self._spare is not None:
            self._spare.close()
