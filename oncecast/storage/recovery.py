"""Prepare a log directory for writing, using the findings of `examine`.

A crash may interrupt any step; the next start repeats it. Recovery drops only unsynced records,
newest first. Damaged bytes stay in place, so that the next start reports them again.
"""

from __future__ import annotations

from dataclasses import dataclass

from oncecast.errors import SyncFailed
from oncecast.storage.disk import Disk
from oncecast.storage.examine import Damage, Findings, examine
from oncecast.storage.segment import Segment, index_name


@dataclass(frozen=True)
class Recovery:
    """A report on opening a log. `torn_bytes` counts bytes that were written but never synced."""

    first: int
    last: int
    torn_bytes: int
    damage: tuple[Damage, ...]


@dataclass(frozen=True)
class Recovered:
    """The state from which the log continues."""

    report: Recovery
    marked: int  # the last record that any block proves to be synced
    segments: list[Segment]
    spare: Segment | None


def recover(disk: Disk, scan_from: int) -> Recovered:
    findings = examine(disk, scan_from)
    try:
        _drop_leftovers(disk, findings)
        _drop_tail(disk, findings)
        spare = _take_spare(findings)
        _make_durable(disk, findings)
    except OSError as error:
        raise SyncFailed(f"log recovery failed: {error.strerror or error}") from error
    _settle(disk, findings)
    report = Recovery(
        findings.first, findings.next - 1, findings.torn_bytes, tuple(findings.damage)
    )
    return Recovered(report, findings.proven, findings.segments, spare)


def _drop_leftovers(disk: Disk, findings: Findings) -> None:
    """Remove unfinished segments, and indexes without a segment."""
    known = {index_name(each.serial) for each in findings.segments}
    for name in disk.names():
        if name.endswith(".new") or (name.endswith(".idx") and name not in known):
            disk.remove(name)


def _drop_tail(disk: Disk, findings: Findings) -> None:
    tail = findings.tail
    if tail is None:
        return
    while findings.segments[-1] is not tail.segment:
        findings.segments.pop().remove()
        disk.sync()
    tail.segment.remove_index()
    disk.sync()  # Otherwise a crash could leave an index of the wiped records.
    tail.segment.wipe(tail.offset)
    if tail.segment.index is not None:
        tail.segment.index.cut(tail.first)
    if tail.offset == 0:
        findings.blank.append(findings.segments.pop())


def _take_spare(findings: Findings) -> Segment | None:
    """Return the blank segment that comes next, and remove any later blank segments."""
    last = findings.segments[-1].serial if findings.segments else 0
    spare = None
    for segment in sorted(findings.blank, key=lambda each: -each.serial):
        if segment.serial == last + 1:
            spare = segment
        elif segment.serial > last:
            segment.remove()
    return spare


def _make_durable(disk: Disk, findings: Findings) -> None:
    """Sync the last records. A killed process may have left them only in the page cache."""
    for segment in reversed(findings.segments):
        segment.file.sync()
        if segment.first <= findings.proven:
            break
    disk.sync()


def _settle(disk: Disk, findings: Findings) -> None:
    """Save missing indexes, and close all segments except the last."""
    names = set(disk.names())
    for segment in findings.segments[:-1]:
        if segment.index is not None and index_name(segment.serial) not in names:
            segment.save_index()
        segment.cool()
    if findings.segments:
        findings.segments[-1].resume()
