"""The simulated disk loses only data that a real disk may lose."""

from __future__ import annotations

from random import Random

import pytest

from oncecast.simulator.disk import SimulatedDisk


def a_disk(seed: int = 1) -> SimulatedDisk:
    return SimulatedDisk(Random(seed))


def survivors(sync_file: bool, sync_directory: bool) -> set[bytes | None]:
    """Return the possible contents of a three-sector file after a crash."""
    found: set[bytes | None] = set()
    for seed in range(200):
        disk = a_disk(seed)
        file = disk.open("file", create=True)
        file.write(0, [b"a" * 512, b"b" * 512, b"c" * 512])
        if sync_file:
            file.sync()
        if sync_directory:
            disk.sync()
        disk.crash()
        found.add(disk.open("file").read(0, 4000) if disk.names() else None)
    return found


def test_synced_bytes_survive_a_crash() -> None:
    assert survivors(sync_file=True, sync_directory=True) == {b"a" * 512 + b"b" * 512 + b"c" * 512}


def test_file_may_vanish_until_its_directory_is_synced() -> None:
    assert None in survivors(sync_file=True, sync_directory=False)


def test_unsynced_sectors_survive_in_any_combination_or_torn() -> None:
    found = survivors(sync_file=False, sync_directory=True)
    assert b"" in found
    assert b"a" * 512 + b"b" * 512 + b"c" * 512 in found
    assert bytes(512) + b"b" * 512 in found
    assert any(data and len(data) % 512 for data in found)


def test_killing_a_process_closes_files_but_loses_no_bytes() -> None:
    disk = a_disk()
    file = disk.open("file", create=True)
    file.write(0, [b"abc"])
    disk.kill()
    with pytest.raises(OSError, match="Bad file"):
        file.read(0, 3)
    assert disk.open("file").read(0, 3) == b"abc"


def test_rename_may_be_undone_until_the_directory_is_synced() -> None:
    names = set()
    for seed in range(50):
        disk = a_disk(seed)
        disk.open("old", create=True)
        disk.sync()
        disk.rename("old", "new")
        disk.crash()
        names.update(disk.names())
    assert names == {"old", "new"}


def test_sync_after_a_failed_sync_reports_false_success() -> None:
    lost = 0
    for seed in range(20):
        disk = a_disk(seed)
        file = disk.open("file", create=True)
        disk.sync()
        file.write(0, [b"x" * 512])
        disk.fail_sync()
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
        assert file.read(0, 1) == b"x"
        file.sync()
        disk.crash()
        lost += disk.open("file").read(0, 1) != b"x"
    assert 0 < lost < 20


def test_full_disk_refuses_growth_until_a_file_is_removed() -> None:
    disk = a_disk()
    disk.open("file", create=True).allocate(1000)
    disk.fill(free_bytes=10)
    file = disk.open("other", create=True)
    file.write(0, [b"0123456789"])
    with pytest.raises(OSError, match="No space"):
        file.write(10, [b"x"])
    disk.open("file").write(0, [b"inside"])
    disk.remove("file")
    file.allocate(1000)


def test_allocated_space_uses_no_memory() -> None:
    disk = a_disk()
    file = disk.open("file", create=True)
    file.allocate(1 << 40)
    file.sync()
    assert file.size() == 1 << 40
    assert file.data(0) == (1 << 40, 1 << 40)
    assert file.read((1 << 40) - 3, 10) == bytes(3)


def test_same_seed_gives_the_same_disk() -> None:
    def scenario() -> bytes:
        disk = a_disk(5)
        file = disk.open("file", create=True)
        disk.sync()
        for at in range(0, 20_000, 700):
            file.write(at, [bytes([at % 251]) * 700])
        disk.crash()
        return disk.open("file").read(0, 30_000)

    assert scenario() == scenario()


def test_wiped_disk_is_empty() -> None:
    disk = a_disk()
    disk.open("file", create=True)
    disk.sync()
    disk.wipe()
    assert disk.names() == []
    disk.crash()
    assert disk.names() == []
