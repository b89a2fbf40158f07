"""Test the interface of the log."""

from __future__ import annotations

from random import Random

import pytest

from oncecast.errors import DiskFull, NoSuchRecord, RecordTooLarge, SyncFailed, WrongFormat
from oncecast.simulator.disk import SimulatedDisk
from oncecast.storage import store
from oncecast.storage.log import Log
from oncecast.storage.segment import INDEX_EVERY, Segment

SEGMENT_BYTES = 4096


def a_disk() -> SimulatedDisk:
    return SimulatedDisk(Random(1))


def open_log(disk: SimulatedDisk, *, scan_from: int = 0) -> Log:
    return Log.open(disk, segment_bytes=SEGMENT_BYTES, scan_from=scan_from)


def a_log_with(count: int, disk: SimulatedDisk) -> Log:
    log = open_log(disk)
    for number in range(1, count + 1):
        log.append(a_record(number))
    log.sync()
    return log


def a_record(number: int) -> bytes:
    return b"record %d " % number * (number % 7 + 1)


def test_new_log_is_empty() -> None:
    log = open_log(a_disk())
    assert (log.first, log.last, log.synced, log.pending_bytes) == (1, 0, 0, 0)
    assert list(log.scan()) == []
    assert log.write() is None


def test_records_are_numbered_from_one_and_read_back() -> None:
    disk = a_disk()
    log = a_log_with(500, disk)
    assert log.last == log.synced == 500
    assert log.read(1) == a_record(1)
    assert log.read(500) == a_record(500)
    assert list(log.scan(400)) == [(number, a_record(number)) for number in range(400, 501)]
    log.close()
    assert dict(open_log(disk).scan()) == {number: a_record(number) for number in range(1, 501)}


def test_records_of_all_sizes_keep_their_order() -> None:
    disk = SimulatedDisk(Random(1))
    log = Log.open(disk, segment_bytes=100_000)
    dice = Random(5)
    records = [dice.randbytes(dice.choice((0, 9, 200, 16383, 16384, 40000))) for _ in range(400)]
    for record in records:
        log.append(record)
        if dice.random() < 0.2:
            log.sync()
    log.sync()
    assert [record for _, record in log.scan()] == records
    assert [log.read(number) for number in range(1, 401)] == records
    disk.crash()
    assert [record for _, record in Log.open(disk).scan()] == records


def test_record_passed_in_parts_is_copied_immediately() -> None:
    log = open_log(a_disk())
    mutable = bytearray(b"two ")
    log.append(b"one ", mutable, memoryview(b"three"))
    mutable[:] = b"XXXX"
    log.append()
    log.sync()
    assert log.read(1) == b"one two three"
    assert log.read(2) == b""


def test_record_larger_than_a_segment_gets_a_larger_segment() -> None:
    disk = a_disk()
    log = a_log_with(60, disk)
    large = Random(2).randbytes(3 * SEGMENT_BYTES)
    log.append(large)
    log.append(b"after")
    log.sync()
    disk.crash()
    log = open_log(disk)
    assert [log.read(61), log.read(62)] == [large, b"after"]
    assert log.recovery.damage == ()


def test_record_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncecast.storage.log.RECORD_BYTES_MAX", 40_000)
    log = open_log(a_disk())
    with pytest.raises(RecordTooLarge, match="split the record"):
        log.append(bytes(40_001))
    assert log.append(b"fine") == 1


def test_only_written_records_can_be_read() -> None:
    log = open_log(a_disk())
    log.append(b"in memory")
    with pytest.raises(NoSuchRecord, match="record 1"):
        log.read(1)
    assert log.write() is not None
    assert log.read(1) == b"in memory"
    assert log.synced == 0


def test_owner_can_append_while_another_thread_syncs() -> None:
    log = open_log(a_disk())
    log.append(b"one")
    first = log.write()
    assert first is not None
    log.append(b"two")
    first.sync()
    log.synced_to(first)
    assert (log.synced, log.last) == (1, 2)
    second = log.write()
    assert second is not None
    second.sync()
    log.synced_to(second)
    assert log.synced == 2
    assert log.write() is None


def test_file_stays_open_while_another_thread_syncs_it() -> None:
    """SVC-1: the last records of a segment are written after an earlier sync of the same file."""
    disk = a_disk()
    log = a_log_with(40 * SEGMENT_BYTES // 32, disk)
    log.append(a_record(log.last + 1))
    unsynced = log.write()
    assert unsynced is not None
    before, names = log.last, disk.names()
    while len(disk.names()) == len(names):
        log.append(a_record(log.last + 1))  # until the log has rolled to the next segment
    unsynced.sync()
    log.synced_to(unsynced)
    unsynced = log.write()
    assert unsynced is not None
    for number in range(1, before, 20):
        assert log.read(number) == a_record(number)  # reading opens and closes other segments
    unsynced.sync()
    log.synced_to(unsynced)
    last = log.last
    disk.crash()
    assert dict(open_log(disk).scan()) == {n: a_record(n) for n in range(1, last + 1)}


def test_scan_includes_records_written_while_it_runs() -> None:
    log = a_log_with(100, a_disk())
    scan = log.scan(99)
    assert next(scan)[0] == 99
    for number in range(101, 301):
        log.append(a_record(number))
    log.sync()
    assert list(scan) == [(number, a_record(number)) for number in range(100, 301)]


def test_power_loss_may_lose_unsynced_records_but_no_synced_records() -> None:
    """SVC-10"""
    for seed in range(100):
        disk = SimulatedDisk(Random(seed))
        log = a_log_with(20, disk)
        for number in range(21, 121):
            log.append(a_record(number))
        log.write()
        disk.crash()
        log = open_log(disk)
        assert log.recovery.damage == ()
        assert 20 <= log.last <= 120
        assert dict(log.scan()) == {number: a_record(number) for number in range(1, log.last + 1)}


def test_records_from_a_killed_process_are_synced_before_they_are_served() -> None:
    """Kill the process, restart it, and then cut the power."""
    disk = a_disk()
    log = a_log_with(5, disk)
    for number in range(6, 300):
        log.append(a_record(number))
    log.write()
    disk.kill()
    assert open_log(disk).last == 299
    disk.crash()
    assert open_log(disk).last == 299


def test_blocks_from_a_lost_group_never_reappear() -> None:
    """The second of two unsynced blocks survives, then a new block replaces the first."""
    disk = a_disk()
    log = Log.open(disk)
    log.append(b"a" * 20000)
    log.append(b"b" * 20000)
    log.sync()
    disk.flip("00000001.log", 1000, 3)  # No block reports record 1 as synced, so it counts as torn.
    log = Log.open(disk)
    assert (log.last, log.recovery.damage) == (0, ())
    assert log.recovery.torn_bytes > 40000
    log.append(b"c" * 20000)
    log.sync()
    disk.crash()
    assert list(Log.open(disk).scan()) == [(1, b"c" * 20000)]


def test_failed_fsync_makes_the_log_unusable() -> None:
    """SVC-10: fsync is never retried, because the second one may report false success."""
    disk = a_disk()
    log = a_log_with(3, disk)
    log.append(b"doomed")
    disk.fail_sync()
    with pytest.raises(SyncFailed, match="stop the node"):
        log.sync()
    for call in (lambda: log.append(b"x"), log.write, log.sync, log.mark, lambda: log.truncate(2)):
        with pytest.raises(SyncFailed):
            call()
    assert log.synced == 3
    log.close()
    disk.crash()
    assert open_log(disk).last in (3, 4)


def test_full_disk_is_detected_early_and_leaves_the_log_usable() -> None:
    disk = a_disk()
    log = open_log(disk)
    disk.fill()
    while log.free_bytes >= SEGMENT_BYTES // 4:
        log.append(bytes(100))
        log.sync()
    taken = log.last
    with pytest.raises(DiskFull, match="free up disk space"):
        log.append(bytes(SEGMENT_BYTES // 4))
    log.sync()
    assert log.last == log.synced == taken
    disk.free()
    log.append(b"space again")
    log.close()
    assert open_log(disk).last == taken + 1


def test_next_segment_is_allocated_when_the_current_segment_is_half_full() -> None:
    disk = a_disk()
    log = open_log(disk)
    log.append(bytes(SEGMENT_BYTES // 2 - 200))
    log.sync()
    assert log.free_bytes < SEGMENT_BYTES
    assert disk.names() == ["00000001.log"]
    log.append(bytes(100))
    log.sync()
    assert log.free_bytes > SEGMENT_BYTES
    assert disk.names() == ["00000001.log", "00000002.log"]


def test_truncation_removes_whole_segments_and_keeps_numbers() -> None:
    """SVC-9"""
    disk = a_disk()
    log = a_log_with(500, disk)
    used = disk.used
    log.truncate(300)
    assert 1 < log.first <= 300
    assert disk.used < used
    with pytest.raises(NoSuchRecord, match="record 1 is not in the log"):
        log.read(1)
    log.close()
    log = open_log(disk)
    assert log.recovery.damage == ()
    assert dict(log.scan()) == {number: a_record(number) for number in range(log.first, 501)}


def test_truncation_keeps_unsynced_records() -> None:
    log = open_log(a_disk())
    for number in range(1, 500):
        log.append(a_record(number))
    log.truncate(10_000)
    assert log.first == 1
    log.sync()
    log.truncate(10_000)
    assert log.read(499) == a_record(499)


def test_opening_after_a_snapshot_skips_earlier_records() -> None:
    disk = a_disk()
    log = a_log_with(2000, disk)
    log.close()
    disk.flip("00000001.log", 1000, 1)
    assert open_log(disk, scan_from=0).recovery.damage != ()
    log = open_log(disk, scan_from=1500)
    assert log.recovery.damage == ()
    assert dict(log.scan(1500)) == {number: a_record(number) for number in range(1500, 2001)}
    assert log.read(1000) == a_record(1000)


@pytest.mark.parametrize("harm", ["missing", "flipped", "of another segment"])
def test_damaged_index_is_rebuilt(harm: str) -> None:
    disk = a_disk()
    log = Log.open(disk, segment_bytes=8 * INDEX_EVERY)
    for _ in range(3000):
        log.append(bytes(50))
        log.write()
    log.close()
    match harm:
        case "missing":
            disk.remove("00000002.idx")
        case "flipped":
            disk.flip("00000002.idx", 60, 0)
        case _:
            disk.rename("00000001.idx", "00000002.idx")
    log = Log.open(disk, scan_from=3000)
    segment = Segment(disk, 2)
    segment.look()
    assert log.read(segment.first + 1) == bytes(50)
    rebuilt = store.read_block(disk.open("00000002.idx"), store.seed_of(2), 0)
    assert rebuilt is not None


def test_segment_index_is_removed_if_the_segment_has_a_torn_tail() -> None:
    disk = a_disk()
    log = a_log_with(10, disk)
    first_lost = log.last + 1
    log.append(bytes(3000))
    log.append(bytes(3000))  # In the next segment, but in the same group.
    log.sync()
    assert "00000001.idx" in disk.names()
    disk.flip("00000001.log", SEGMENT_BYTES // 2, 0)
    log = open_log(disk)
    assert log.last == first_lost - 1
    assert "00000001.idx" not in disk.names()


def test_marker_distinguishes_damage_in_the_last_record_from_a_torn_tail() -> None:
    disk = a_disk()
    log = a_log_with(1, disk)
    assert log.mark()
    assert not log.mark()
    log.sync()
    disk.flip("00000001.log", 100, 0)
    log = open_log(disk)
    assert [(each.first, each.last) for each in log.recovery.damage] == [(1, 1)]
    assert log.append(b"two") == 2


def test_log_that_ends_before_its_snapshot_is_an_error() -> None:
    disk = a_disk()
    a_log_with(10, disk).close()
    with pytest.raises(Exception, match="the log ends before record 11; record 11 cannot"):
        open_log(disk, scan_from=12)
    assert open_log(disk, scan_from=11).last == 10


def test_unknown_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = a_disk()
    monkeypatch.setattr("oncecast.storage.segment.VERSION", 2)
    a_log_with(1, disk).close()
    monkeypatch.undo()
    with pytest.raises(WrongFormat, match="format version 2"):
        open_log(disk)


def test_files_without_a_segment_name_are_ignored() -> None:
    disk = SimulatedDisk(Random(1))
    log = Log.open(disk)
    log.append(b"mine")
    log.close()
    for name in ("1.log", "000000001.log", "٣٣٣٣٣٣٣٣.log", "²²²²²²²².log", "notes.log"):
        disk.open(name, create=True).write(0, [b"not a segment"])
    log = Log.open(disk)
    assert (log.last, log.recovery.damage) == (1, ())
    assert "1.log" in disk.names()
