"""Read a log's files after a crash, and tell a torn tail from corruption.

Unsynced blocks may reach the disk in any order, so an intact block after a bad one proves nothing.
However, each block contains the number of the last synced record when the block was built:

    bad bytes where record n should be           verdict
    -------------------------------------------  -----------------------------------------
    an intact header anywhere says synced >= n   corruption: report it, keep the bytes
    the file is shorter than its opening says    corruption: a crash does not shorten files
    the disk cannot read the bytes               corruption: a crash does not destroy sectors
    otherwise                                    torn tail: drop it and all later records

A replica that mistakes corruption for a crash breaks its promises (Alagappan et al.,
"Protocol-Aware Recovery for Consensus-Based Storage", FAST 2018). This module only reads files.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from oncecast.errors import Corrupt
from oncecast.storage import store
from oncecast.storage.disk import Disk
from oncecast.storage.segment import OPENING_BYTES, Index, Segment, log_name, serials
from oncecast.storage.store import Block


@dataclass(frozen=True)
class Damage:
    """A damaged part of a file.

    The records from `first` to `last` are lost. If `last` is less than `first`, no record is lost.
    `first` is 0 if the start of the range is unknown; `last` is None if the end is unknown.
    """

    file: str
    offset: int
    fact: str
    first: int
    last: int | None

    def __str__(self) -> str:
        if self.last is None:
            lost = f"record {self.first} and later may be lost"
        elif self.first == 0:
            lost = f"record {self.last} and earlier may be lost"
        elif self.last < self.first:
            lost = "no record is lost"
        elif self.last == self.first:
            lost = f"record {self.first} is lost"
        else:
            lost = f"records {self.first} to {self.last} are lost"
        return f"{self.file}: {self.fact} at byte {self.offset}; {lost}"


@dataclass
class Suspect:
    """Bad bytes that are not yet classified. If `certain`, a crash cannot have caused them."""

    segment: Segment
    offset: int
    fact: str
    first: int
    last: int | None = None
    certain: bool = False
    file: str = ""  # the name of a missing file before the segment

    def damage(self) -> Damage:
        name = self.file or self.segment.name
        return Damage(name, self.offset, self.fact, self.first, self.last)


@dataclass
class Tail:
    """A torn tail: all bytes of `segment` from `offset` on, and all later segments."""

    segment: Segment
    offset: int
    first: int


@dataclass
class Findings:
    """The result of examining a log. `next` is the number of the next record."""

    segments: list[Segment] = field(default_factory=list)  # oldest first
    blank: list[Segment] = field(default_factory=list)  # empty segments
    damage: list[Damage] = field(default_factory=list)
    tail: Tail | None = None
    torn_bytes: int = 0
    proven: int = 0  # the highest `synced` in any block
    next: int = 1

    @property
    def first(self) -> int:
        return self.segments[0].first if self.segments else 1


def examine(disk: Disk, scan_from: int = 0) -> Findings:
    """Read and check the log from record `scan_from` on, and return the findings."""
    findings = Findings()
    for serial in serials(disk):
        segment = Segment(disk, serial)
        segment.look()
        segment.close()
        (findings.blank if segment.blank else findings.segments).append(segment)
    if findings.segments:
        _number_headless(findings.segments)
        Examination(findings, scan_from).run()
    _check_start(findings, scan_from)
    return findings


def _check_start(findings: Findings, scan_from: int) -> None:
    """Raise Corrupt if the record numbers are unknown or the log ends before the snapshot."""
    name = findings.segments[0].name if findings.segments else log_name(1)
    if findings.next == 0:
        raise Corrupt(name, 0, 0, 0, "no block is readable")
    if findings.next < scan_from:
        last = scan_from - 1
        raise Corrupt(name, 0, findings.next, last, f"the log ends before record {last}")


def _number_headless(segments: list[Segment]) -> None:
    """Infer the first record of each unreadable segment from the next segment."""
    if segments[0].serial == 1:
        segments[0].first = 1
    following = 0
    for segment in reversed(segments):
        segment.first = segment.first or following
        following = segment.first


class Examination:
    """A pass over the segments, starting with the segment that contains record `scan_from`."""

    def __init__(self, findings: Findings, scan_from: int) -> None:
        self.findings = findings
        self.scan_from = scan_from
        self.suspects: list[Suspect] = []
        self.open: list[Suspect] = []  # suspects whose last record is not yet known
        self.expected = 0  # the number of the next record; 0 if unknown

    def run(self) -> None:
        segments = self.findings.segments
        start = max(
            (i for i, each in enumerate(segments) if 0 < each.first <= self.scan_from), default=0
        )
        oldest = min(each.serial for each in segments + self.findings.blank)
        if oldest == 1:
            self.expected = 1 if start == 0 else 0
        elif 0 < self.scan_from < segments[0].first:
            self.expected = self.scan_from
            self._suspect(segments[0], 0, "the first records are missing", certain=True)
        before = segments[start].serial - 1
        for segment in segments[start:]:
            if segment.serial != before + 1:
                self._suspect(segment, 0, "the file is missing")
                self.open[-1].file = log_name(before + 1)
            self._segment(segment)
            before = segment.serial
        self.judge()

    def _segment(self, segment: Segment) -> None:
        segment.first = segment.first or self.expected
        segment.end = self._start(segment)
        size, whole, index = segment.file.size(), segment.whole, segment.index
        assert index is not None
        for found in segment.walk(segment.end):
            if isinstance(found, Block):
                # Unpacking the tuple once is faster, and this loop dominates opening a log.
                offset, segment.end, kind, first, records, synced, body = found
                if synced > self.findings.proven:
                    self.findings.proven = synced
                if first == self.expected and body is not None and not self.open:
                    self.expected += records
                else:
                    self._surprise(segment, found, certain=not whole and found.end >= size)
                if kind == store.RECORDS and offset >= index.next_offset:
                    index.add(first, offset)
            # The segment does not only end in free space.
            elif found.end < size or found.dirty_end > found.offset:
                # Bad bytes at the end of a truncated file come from the truncation, not from a
                # crash.
                certain = not whole and found.end >= size
                self._suspect_bytes(segment, found.offset, found.end, certain)
                segment.end = found.dirty_end
        if not segment.whole:
            self._suspect(segment, size, "the file is truncated", certain=True)
        segment.close()

    def _start(self, segment: Segment) -> int:
        """Return the offset to start at: 0, or an offset near `scan_from` if the index is valid."""
        if segment is not self.findings.segments[-1] and segment.first < self.scan_from:
            segment.index = segment.stored_index()
            if segment.index is not None:
                number, at = segment.index.find(self.scan_from)
                self.expected = number or self.expected
                return at
        segment.index = Index()
        return 0

    def _surprise(self, segment: Segment, block: Block, certain: bool) -> None:
        """Handle a damaged block, or a block whose record number is not the expected one."""
        if self.expected == 0:
            self.expected = block.first
            for suspect in self.open:
                # A truncation keeps the oldest segment until the directory is synced.
                suspect.certain = True
                suspect.first = block.first if block.offset == OPENING_BYTES else 0
        if block.first < self.expected:
            self._suspect(segment, block.offset, "records out of order")
            return
        if block.first > self.expected and not self.open:
            self._suspect(segment, block.offset, "missing records")
        for suspect in self.open:
            suspect.last = block.first - 1
        self.open.clear()
        self.expected = block.first
        if block.body is None:
            lost = not store.is_readable(segment.file, block.offset, block.end)
            fact = "the disk cannot read the block" if lost else "checksum mismatch"
            self._suspect(segment, block.offset, fact, certain or lost)
            self.open.pop().last = block.first + block.records - 1
        self.expected += block.records

    def _suspect_bytes(self, segment: Segment, start: int, end: int, certain: bool) -> None:
        """Handle bytes without an intact header."""
        if not store.is_readable(segment.file, start, end):
            self._suspect(segment, start, "the disk cannot read the block", certain=True)
        else:
            self._suspect(segment, start, "unreadable bytes", certain)

    def _suspect(self, segment: Segment, offset: int, fact: str, certain: bool = False) -> None:
        suspect = Suspect(segment, offset, fact, self.expected, certain=certain)
        self.suspects.append(suspect)
        self.open.append(suspect)

    def judge(self) -> None:
        findings = self.findings
        # All records before `scan_from` were synced before the snapshot was saved.
        synced = max(findings.proven, self.scan_from - 1)
        for suspect in self.suspects:
            if suspect.certain or suspect.first <= synced:
                findings.damage.append(suspect.damage())
            elif findings.tail is None:
                findings.tail = Tail(suspect.segment, suspect.offset, suspect.first)
        findings.next = findings.tail.first if findings.tail else self.expected
        if findings.tail is not None:
            findings.torn_bytes = self._torn_bytes(findings.tail)

    def _torn_bytes(self, tail: Tail) -> int:
        later = (each for each in self.findings.segments if each.serial > tail.segment.serial)
        return max(tail.segment.end - tail.offset, 0) + sum(each.end for each in later)
