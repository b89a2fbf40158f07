"""What a log's files hold after a crash, and which bad bytes are a crash and which are corruption.

A group of blocks that was never synced may reach the disk in any order, so a bad block before an
intact one proves nothing. But each block says which record was already on disk when it was made:

    a bad stretch where record n should be       verdict
    -------------------------------------------  --------------------------------------------
    an intact header anywhere says synced >= n   corruption: named, kept, never served
    the file is shorter than its opening says    corruption: no crash of ours cuts a file
    otherwise                                    unsynced tail: it and all behind it is dropped

After Alagappan et al., "Protocol-Aware Recovery for Consensus-Based Storage" (FAST 2018): a replica
that takes corruption for a crash forgets what it promised. This module only reads.
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
    """A place where something is not as it was written.

    The records from `first` to `last` are lost here: none if `last` < `first`. Where nobody knows,
    `first` is 0 or `last` is None.
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
    """A bad stretch, until it is clear what it is. `certain`: no crash can have done it."""

    segment: Segment
    offset: int
    fact: str
    first: int
    last: int | None = None
    certain: bool = False
    file: str = ""  # Where it is not the segment that is bad, but the lack of one before it.

    def damage(self) -> Damage:
        name = self.file or self.segment.name
        return Damage(name, self.offset, self.fact, self.first, self.last)


@dataclass
class Tail:
    """The unsynced rest of a crash: `segment` is good up to `offset`, later segments not at all."""

    segment: Segment
    offset: int
    first: int


@dataclass
class Findings:
    """What was found. `next` is the number the next record gets."""

    segments: list[Segment] = field(default_factory=list)  # oldest first
    blank: list[Segment] = field(default_factory=list)  # nothing in them
    damage: list[Damage] = field(default_factory=list)
    tail: Tail | None = None
    torn_bytes: int = 0
    proven: int = 0  # the last record that some block says was synced
    next: int = 1

    @property
    def first(self) -> int:
        return self.segments[0].first if self.segments else 1


def examine(disk: Disk, scan_from: int = 0) -> Findings:
    """Read and check the log from record `scan_from` on."""
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
    """The log must reach the snapshot that the caller goes on from, and tell its numbers."""
    name = findings.segments[0].name if findings.segments else log_name(1)
    if findings.next == 0:
        raise Corrupt(name, 0, 0, 0, "no readable block, so that record numbers are unknown,")
    if findings.next < scan_from:
        raise Corrupt(name, 0, findings.next, scan_from - 1, "the log ends too early: nothing")


def _number_headless(segments: list[Segment]) -> None:
    """A segment without a readable block begins, for all we know, where the next one does."""
    if segments[0].serial == 1:
        segments[0].first = 1
    following = 0
    for segment in reversed(segments):
        segment.first = segment.first or following
        following = segment.first


class Examination:
    """One pass over the segments, from the one that holds `scan_from`."""

    def __init__(self, findings: Findings, scan_from: int) -> None:
        self.findings = findings
        self.scan_from = scan_from
        self.suspects: list[Suspect] = []
        self.open: list[Suspect] = []  # Those whose end the next block will tell.
        self.expected = 0  # The number the next record must have; 0 while nobody knows.

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
            self._suspect(segments[0], 0, "the log begins too late", certain=True)
        before = segments[start].serial - 1
        for segment in segments[start:]:
            if segment.serial != before + 1:
                self._suspect(segment, 0, "file is missing")
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
                # Taken apart at once: after `walk`, this is what opening many small blocks costs.
                offset, segment.end, kind, first, records, synced, body = found
                if synced > self.findings.proven:
                    self.findings.proven = synced
                if first == self.expected and body is not None and not self.open:
                    self.expected += records
                else:
                    self._surprise(segment, found, certain=not whole and found.end >= size)
                if kind == store.RECORDS and offset >= index.next_offset:
                    index.add(first, offset)
            elif found.end < size or found.dirty_end > found.offset:  # Not free space at the end.
                # What a cut file ends with is the cut's doing.
                certain = not whole and found.end >= size
                self._suspect(segment, found.offset, "unreadable bytes", certain)
                segment.end = found.dirty_end
        if not segment.whole:
            self._suspect(segment, size, "file is cut off", certain=True)
        segment.close()

    def _start(self, segment: Segment) -> int:
        """Where to begin: at the head, or, with a good index, near `scan_from`."""
        if segment is not self.findings.segments[-1] and segment.first < self.scan_from:
            segment.index = segment.stored_index()
            if segment.index is not None:
                number, at = segment.index.find(self.scan_from)
                self.expected = number or self.expected
                return at
        segment.index = Index()
        return 0

    def _surprise(self, segment: Segment, block: Block, certain: bool) -> None:
        """Not the block that was expected, or not as it was written."""
        if self.expected == 0:
            self.expected = block.first
            for suspect in self.open:
                # Truncation made this the oldest segment, and it waits until the head is synced.
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
            self._suspect(segment, block.offset, "checksum mismatch", certain)
            self.open.pop().last = block.first + block.records - 1
        self.expected += block.records

    def _suspect(self, segment: Segment, offset: int, fact: str, certain: bool = False) -> None:
        suspect = Suspect(segment, offset, fact, self.expected, certain=certain)
        self.suspects.append(suspect)
        self.open.append(suspect)

    def judge(self) -> None:
        findings = self.findings
        # Who asks for what lies behind a snapshot vouches for what the snapshot stands for.
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
