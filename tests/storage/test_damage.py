"""A log never serves a wrong record, even if a file is truncated or any bit is flipped."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random

import pytest

from oncecast.errors import Corrupt, StorageError
from oncecast.simulator.disk import SimulatedDisk
from oncecast.storage import examine, store
from oncecast.storage.log import Log

SEGMENT_BYTES = 1024
NAMES = [f"{serial:08}.{kind}" for serial in (1, 2, 3, 4) for kind in ("log", "idx")][:-1]

Harm = Callable[[SimulatedDisk, str, int], None]


@cache
def records() -> list[bytes]:
    dice = Random(7)
    sizes = [dice.choice((0, 1, 4, 9, 20)) for _ in range(239)] + [300]
    return [dice.randbytes(size) for size in sizes]


@cache
def files(*, closed: bool) -> dict[str, bytes]:
    """Return the files of a log with 240 records in four segments, synced in groups of 1 to 40."""
    disk = SimulatedDisk(Random(1))
    log = Log.open(disk, segment_bytes=SEGMENT_BYTES)
    dice = Random(3)
    rest = iter(records())
    while log.last < len(records()):
        for record in [
            record for _, record in zip(range(dice.choice((1, 9, 40))), rest, strict=False)
        ]:
            log.append(record)
        log.sync()
    if closed:
        log.close()
    return {name: content(disk, name) for name in disk.names()}


def content(disk: SimulatedDisk, name: str) -> bytes:
    file = disk.open(name)
    return file.read(0, file.size())


def disk_with(contents: dict[str, bytes]) -> SimulatedDisk:
    disk = SimulatedDisk(Random(1))
    for name, data in contents.items():
        file = disk.open(name, create=True)
        file.write(0, [data.rstrip(b"\0")])
        file.allocate(len(data))
        file.sync()
    disk.sync()
    return disk


def served(log: Log) -> dict[int, bytes]:
    """Return all readable records in the log."""
    found: dict[int, bytes] = {}
    number = log.first
    while number <= log.last:
        try:
            found.update(log.scan(number))
            return found
        except Corrupt as corrupt:
            number = corrupt.last + 1
    return found


@cache
def blocks(name: str) -> list[store.Block]:
    found = store.walk(disk_with(files(closed=True)).open(name), store.seed_of(int(name[:8])))
    return [each for each in found if isinstance(each, store.Block)]


def records_before(name: str, offset: int) -> int:
    """Return the last record that ends before a byte."""
    if name.endswith(".idx"):
        return len(records())
    ends = [each.first + each.records - 1 for each in blocks(name) if each.end <= offset]
    return ends[-1] if ends else 0


def last_group() -> int:
    """Return the first record not marked as synced in any block of a log that was not closed."""
    return max(block.synced for block in blocks("00000004.log")[:-1]) + 1


def check(disk: SimulatedDisk, untouched: int, unnamed: int) -> None:
    """Open the damaged log and read all records.

    Records up to `untouched` lie before the damage. Records from `unnamed` onwards may be missing
    without a report.
    """
    try:
        log = Log.open(disk, segment_bytes=SEGMENT_BYTES)
    except StorageError:
        return  # The damage is reported, but without exact record numbers.
    found = served(log)
    for number, record in found.items():
        assert record == records()[number - 1], f"record {number} is wrong"
    lost = [number for number in range(1, len(records()) + 1) if number not in found]
    assert not lost or lost[0] > untouched, f"record {lost[0]} is before the damage, but is lost"
    for number in lost:
        assert number >= unnamed or any(
            damage.first <= number and (damage.last is None or number <= damage.last)
            for damage in log.recovery.damage
        ), f"record {number} is lost without a report"


def sweep(harm: Harm, name: str, *, closed: bool) -> None:
    contents = files(closed=closed)
    unnamed = len(records()) + 1 if closed else last_group()
    for offset in range(len(contents[name].rstrip(b"\0"))):
        disk = disk_with(contents)
        harm(disk, name, offset)
        check(disk, records_before(name, offset), unnamed)


def flip(disk: SimulatedDisk, name: str, offset: int) -> None:
    disk.flip(name, offset, offset * 5 % 8)


def cut(disk: SimulatedDisk, name: str, offset: int) -> None:
    disk.cut(name, offset)


def test_unreadable_sector_in_a_closed_log_is_reported_and_never_served() -> None:
    """SVC-10: a disk error counts as damage, like a flipped bit."""
    contents = files(closed=True)
    for name in NAMES:
        for offset in range(0, len(contents[name].rstrip(b"\0")), 512):
            disk = disk_with(contents)
            disk.lose(name, offset)
            check(disk, records_before(name, offset - offset % 512), len(records()) + 1)


def test_unreadable_sector_in_a_killed_log_is_never_mistaken_for_a_torn_tail() -> None:
    """SVC-10: a crash does not destroy sectors."""
    contents = files(closed=False)
    for offset in range(0, len(contents[NAMES[-1]].rstrip(b"\0")), 512):
        disk = disk_with(contents)
        disk.lose(NAMES[-1], offset)
        check(disk, records_before(NAMES[-1], offset), len(records()) + 1)


def test_only_reads_from_an_unreadable_sector_raise_corrupt() -> None:
    """SVC-10: an OSError must not stop the node."""
    disk = disk_with(files(closed=True))
    log = Log.open(disk, segment_bytes=SEGMENT_BYTES)
    victim = blocks(NAMES[2])[3]
    disk.lose(NAMES[2], victim.offset)
    with pytest.raises(Corrupt):
        log.read(victim.first)
    found = served(log)
    assert victim.first not in found
    assert {1, len(records())} <= set(found)
    assert all(record == records()[number - 1] for number, record in found.items())


def test_other_disk_errors_are_not_hidden() -> None:
    disk = disk_with(files(closed=True))
    file = disk.open(NAMES[0])
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        store.read(file, 0, 10)
    with pytest.raises(OSError, match="Bad file descriptor"):
        store.is_readable(file, 0, 10)


def test_undamaged_log_serves_all_records() -> None:
    disk = disk_with(files(closed=True))
    log = Log.open(disk, segment_bytes=SEGMENT_BYTES)
    assert list(served(log).values()) == records()
    assert log.recovery.damage == ()
    assert log.recovery.torn_bytes == 0
    assert [name for name in disk.names() if name in NAMES] == sorted(NAMES)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("harm", [cut, flip])
def test_damage_to_any_byte_in_a_closed_log_is_reported_and_never_served(
    harm: Harm, name: str
) -> None:
    """SVC-10"""
    sweep(harm, name, closed=True)


@pytest.mark.long
@pytest.mark.parametrize("harm", [cut, flip])
def test_damage_to_the_last_segment_after_a_kill_loses_at_most_the_last_group(
    harm: Harm,
) -> None:
    """SVC-10: the last group is not marked as synced, because `Log.mark` was never called."""
    sweep(harm, NAMES[-1], closed=False)


@pytest.mark.pure
def test_sweep_catches_a_recovery_that_mistakes_corruption_for_a_torn_tail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judge = examine.Examination.judge

    def forgetful(self: examine.Examination) -> None:
        self.findings.proven = 0
        judge(self)

    monkeypatch.setattr(examine.Examination, "judge", forgetful)
    with pytest.raises(AssertionError, match="lost without a report"):
        sweep(flip, NAMES[0], closed=True)


def test_sweep_catches_a_log_that_does_not_check_bodies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Same:
        def __eq__(self, other: object) -> bool:
            return True

    monkeypatch.setattr(store, "value", lambda body: Same())
    with pytest.raises((AssertionError, IndexError)):
        sweep(flip, NAMES[0], closed=True)


def test_damage_is_reported_at_every_start_until_it_is_truncated() -> None:
    """A restart must not hide that a replica has lost records."""
    disk = disk_with(files(closed=True))
    disk.cut("00000004.log", 900)
    first = Log.open(disk, segment_bytes=SEGMENT_BYTES)
    assert "00000004.log: the file is truncated at byte 900" in str(first.recovery.damage[-1])
    first.append(b"goes on in a new segment")
    first.close()
    second = Log.open(disk, segment_bytes=SEGMENT_BYTES)
    assert [each.offset for each in second.recovery.damage] == [
        each.offset for each in first.recovery.damage
    ]
    assert second.read(second.last) == b"goes on in a new segment"
    second.truncate(second.last)
    second.close()
    assert Log.open(disk, segment_bytes=SEGMENT_BYTES).recovery.damage == ()


def test_missing_segment_is_reported() -> None:
    contents = dict(files(closed=True))
    del contents["00000002.log"]
    log = Log.open(disk_with(contents), segment_bytes=SEGMENT_BYTES)
    (damage,) = log.recovery.damage
    assert damage.file == "00000002.log"
    with pytest.raises(Corrupt):
        log.read(damage.first)
    assert log.read(damage.first - 1) == records()[damage.first - 2]
    assert damage.last is not None
    assert log.read(damage.last + 1) == records()[damage.last]


def test_record_that_looks_like_a_block_is_read_as_a_record() -> None:
    """A record may contain the bytes of a block, which are invalid at another offset."""
    disk = SimulatedDisk(Random(1))
    log = Log.open(disk, segment_bytes=1 << 16)
    log.append(b"a")
    log.sync()
    log.append(content(disk, "00000001.log")[:200])
    log.append(b"b" * 20000)
    log.sync()
    log.close()
    second = next(
        block
        for block in store.walk(disk.open("00000001.log"), store.seed_of(1))
        if isinstance(block, store.Block) and block.first == 2
    )
    disk.flip("00000001.log", second.offset + 30, 1)
    log = Log.open(disk)
    assert [each.first for each in log.recovery.damage] == [2]
    assert list(served(log)) == [1, 3]
