"""A small log cut at every byte, and with every byte flipped: nothing wrong is ever served."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random

import pytest

from oncecast.runtime.disk import SimulatedDisk
from oncecast.storage import examine, store
from oncecast.storage.errors import Corrupt, StorageError
from oncecast.storage.log import Log

SEGMENT_BYTES = 4096


@cache
def records() -> list[bytes]:
    dice = Random(7)
    sizes = [dice.choice((0, 1, 8, 20, 40, 150)) for _ in range(299)] + [700]
    return [dice.randbytes(size) for size in sizes]


@cache
def files(*, closed: bool) -> dict[str, bytes]:
    """The log's files: 300 records in groups of 1 to 9, synced after each group."""
    disk = SimulatedDisk(Random(1))
    log = Log.open(disk, segment_bytes=SEGMENT_BYTES)
    dice = Random(3)
    group = dice.randint(1, 9)
    for record in records():
        log.append(record)
        group -= 1
        if group == 0:
            log.sync()
            group = dice.randint(1, 9)
    log.sync()
    if closed:
        log.close()
    contents = {}
    for name in disk.names():
        file = disk.open(name)
        contents[name] = file.read(0, file.size())
    return contents


def disk_with(contents: dict[str, bytes]) -> SimulatedDisk:
    disk = SimulatedDisk(Random(1))
    for name, data in contents.items():
        file = disk.open(name, create=True)
        file.write(0, [data.rstrip(b"\0")])
        file.allocate(len(data))
        file.sync()
    disk.sync()
    return disk


def used_bytes(name: str, *, closed: bool) -> int:
    return len(files(closed=closed)[name].rstrip(b"\0"))


def served(log: Log) -> dict[int, bytes]:
    """All that the log is willing to give."""
    found = {}
    number = log.first
    while number <= log.last:
        try:
            for number, record in log.scan(number):  # noqa: B007
                found[number] = record
            return found
        except Corrupt as corrupt:
            number = corrupt.last + 1
    return found


def check(disk: SimulatedDisk, untouched: int) -> None:
    """Open the log. The records up to `untouched` lie before the damage and were synced."""
    try:
        log = Log.open(disk, segment_bytes=SEGMENT_BYTES)
    except StorageError:
        return  # Named, if roughly.
    found = served(log)
    for number, record in found.items():
        assert record == records()[number - 1], f"record {number} is wrong"
    lost = [number for number in range(1, len(records()) + 1) if number not in found]
    assert not lost or min(lost) > untouched, f"record {min(lost)} lay before the damage"
    for number in lost:
        assert any(
            damage.first <= number and (damage.last is None or number <= damage.last)
            for damage in log.recovery.damage
        ), f"record {number} is lost and nobody says so"


@cache
def blocks(name: str, *, closed: bool) -> list[store.Block]:
    serial = int(name[:8])
    found = store.walk(disk_with(files(closed=closed)).open(name), store.seed_of(serial))
    return [each for each in found if isinstance(each, store.Block)]


def records_before(name: str, offset: int, *, closed: bool) -> int:
    """The last record that lies wholly before a byte."""
    if name.endswith(".idx"):
        return len(records())
    *_, last = [0] + [
        block.first + block.records - 1
        for block in blocks(name, closed=closed)
        if block.end <= offset
    ]
    return last


def sweep(damage: Callable[[SimulatedDisk, str, int], None], *, closed: bool) -> None:
    for name in files(closed=closed):
        for offset in range(used_bytes(name, closed=closed)):
            disk = disk_with(files(closed=closed))
            damage(disk, name, offset)
            check(disk, records_before(name, offset, closed=closed))


def flip(disk: SimulatedDisk, name: str, offset: int) -> None:
    disk.flip(name, offset, (offset * 5) % 8)


def cut(disk: SimulatedDisk, name: str, offset: int) -> None:
    disk.cut(name, offset)


def test_whole_log_is_served_whole() -> None:
    disk = disk_with(files(closed=True))
    log = Log.open(disk, segment_bytes=SEGMENT_BYTES)
    assert list(served(log).values()) == records()
    assert log.recovery.damage == ()
    assert log.recovery.torn_bytes == 0


def test_log_cut_at_every_byte() -> None:
    """SVC-10: a closed log serves what is left and names what is not."""
    sweep(cut, closed=True)


def test_log_with_every_byte_flipped() -> None:
    """SVC-10"""
    sweep(flip, closed=True)
