"""Test the log on a real file system."""

from __future__ import annotations

import errno
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from oncecast.errors import DiskFull, InUse, WrongFormat
from oncecast.storage import snapshot
from oncecast.storage.disk import OsDisk, OsFile
from oncecast.storage.log import Log

MIB = 1024 * 1024


def blocks(path: Path) -> int:
    return sum(each.stat().st_blocks for each in path.iterdir())


def test_log_in_a_directory_can_be_opened_again(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path / "made" / "here")
    log = Log.open(disk, segment_bytes=MIB)
    parts = [b"%d," % number for number in range(5000)]
    log.append(*parts)
    log.append(*[b"x" * 20] * 2000)
    for number in range(3, 200):
        log.append(bytes(30_000))
        if number % 10 == 0:
            log.sync()
    log.close()
    log = Log.open(disk, segment_bytes=MIB)
    assert log.read(1) == b"".join(parts)
    assert log.read(2) == b"x" * 40_000
    assert len(list(log.scan(3))) == 197
    assert log.recovery.damage == ()
    log.close()
    disk.close()


def test_another_thread_syncs_while_the_owner_appends_and_rolls(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    log = Log.open(disk, segment_bytes=64 * 1024)
    with ThreadPoolExecutor(1) as thread:
        for group in range(100):
            log.append(b"%d" % group)
            unsynced = log.write()
            assert unsynced is not None
            syncing = thread.submit(unsynced.sync)
            log.append(bytes(5000))
            syncing.result()
            log.synced_to(unsynced)
            assert log.synced == log.last - 1
    log.close()
    log = Log.open(disk)
    assert log.recovery.damage == ()
    assert [log.read(2 * group + 1) for group in range(100)] == [b"%d" % n for n in range(100)]
    log.close()
    disk.close()


def test_directory_can_be_locked_by_only_one_process(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    with pytest.raises(InUse, match=f"in use by process {os.getpid()}"):
        OsDisk(tmp_path)
    OsDisk(tmp_path, read_only=True).close()
    disk.close()
    OsDisk(tmp_path).close()


def test_read_only_disk_creates_no_files(tmp_path: Path) -> None:
    with pytest.raises(WrongFormat, match="does not exist"):
        OsDisk(tmp_path / "none", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_truncation_frees_disk_space(tmp_path: Path) -> None:
    """SVC-9"""
    disk = OsDisk(tmp_path)
    log = Log.open(disk, segment_bytes=MIB)
    for _ in range(80):
        log.append(bytes(100_000))
        log.sync()
    before = blocks(tmp_path)
    log.truncate(log.last)
    assert blocks(tmp_path) < before // 3
    log.close()
    disk.close()


def test_segments_are_preallocated(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    log = Log.open(disk, segment_bytes=MIB)
    assert (tmp_path / "00000001.log").stat().st_size == MIB
    log.append(bytes(600_000))
    log.sync()
    assert (tmp_path / "00000002.log").stat().st_size == MIB
    log.close()
    disk.close()


def test_short_write_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = OsDisk(tmp_path)
    file = disk.open("file", create=True)
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, offset: pwrite(fd, parts[0][:1], offset))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: pwrite(fd, data[:2], offset))
    file.write(3, [b"abc", b"", b"defgh"])
    assert file.read(0, 100) == b"\0\0\0abcdefgh"
    file.close()
    disk.close()


def test_file_system_without_fallocate_or_holes_is_supported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*arguments: object) -> None:
        raise OSError(95, "not supported")

    monkeypatch.setattr(os, "posix_fallocate", unsupported)
    monkeypatch.setattr(os, "lseek", unsupported)
    disk = OsDisk(tmp_path)
    log = Log.open(disk, segment_bytes=MIB)
    log.append(b"one")
    log.close()
    assert Log.open(disk, segment_bytes=MIB).read(1) == b"one"
    disk.close()


def test_many_sealed_segments_do_not_keep_many_files_open(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    log = Log.open(disk, segment_bytes=4096)
    for _ in range(100):
        log.append(bytes(3000))
        log.sync()
    assert len(list(log.scan())) == 100
    assert [log.read(number) for number in range(1, 101)] == [bytes(3000)] * 100
    open_files = {
        link.readlink().name for link in Path("/proc/self/fd").iterdir() if link.is_symlink()
    }
    assert len([name for name in open_files if name.endswith(".log")]) < 25
    log.close()
    disk.close()


def test_snapshot_and_log_share_a_directory(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    log = Log.open(disk, segment_bytes=MIB)
    log.append(b"one")
    log.sync()
    snapshot.save(disk, 1, [b"state", bytes(MIB)])
    log.append(b"two")
    log.close()
    loaded = snapshot.load(disk)
    assert loaded is not None
    number, chunks = loaded
    assert list(chunks) == [b"state", bytes(MIB)]
    assert list(Log.open(disk, scan_from=number + 1).scan(number + 1)) == [(2, b"two")]
    assert isinstance(disk.open("00000001.log"), OsFile)
    disk.close()


def test_full_disk_error_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SVC-10"""

    def full(fd: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(DiskFull, match=f"{re.escape(str(tmp_path))}.*no disk space for a segment"):
        Log.open(OsDisk(tmp_path))


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_closed_directory_leaves_no_files_open(tmp_path: Path) -> None:
    """SVC-10: repeated failed starts do not leak file descriptors."""
    before = open_files()
    disk = OsDisk(tmp_path)
    log = Log.open(disk, segment_bytes=MIB)
    log.append(b"one")
    log.sync()
    disk.close()
    assert open_files() == before
    log.abandon()  # the log and the disk may be closed in any order
    OsDisk(tmp_path).close()
    assert open_files() == before


def test_failed_start_releases_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SVC-10: the same process can start again once disk space has been freed."""

    def full(fd: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = open_files()
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr(os, "pwrite", full)
        OsDisk(tmp_path)
    assert open_files() == before
    OsDisk(tmp_path).close()
