"""Snapshots are saved atomically."""

from __future__ import annotations

from random import Random

import pytest

from oncecast.errors import Corrupt, DiskFull, SyncFailed
from oncecast.simulator.disk import SimulatedDisk
from oncecast.storage import snapshot

OLD = [b"old", b"", bytes(3000)]
NEW = [b"new", bytes(2000), b"end"]


def a_disk(seed: int = 1) -> SimulatedDisk:
    return SimulatedDisk(Random(seed))


def loaded(disk: SimulatedDisk, name: str = snapshot.NAME) -> tuple[int, list[bytes]] | None:
    found = snapshot.load(disk, name=name)
    return None if found is None else (found[0], list(found[1]))


def test_newest_snapshot_is_loaded_and_older_snapshots_are_removed() -> None:
    disk = a_disk()
    assert loaded(disk) is None
    snapshot.save(disk, 7, OLD)
    snapshot.save(disk, 12, iter(NEW))
    assert loaded(disk) == (12, NEW)
    assert disk.names() == ["state-00000000000000000012.snap"]


def test_snapshots_with_different_names_are_independent() -> None:
    disk = a_disk()
    snapshot.save(disk, 1, [b"a"], name="a")
    snapshot.save(disk, 2, [b"a-b"], name="a-b")
    snapshot.save(disk, 3, [], name="empty")
    assert loaded(disk, "a") == (1, [b"a"])
    assert loaded(disk, "a-b") == (2, [b"a-b"])
    assert loaded(disk, "empty") == (3, [])


def test_power_loss_at_any_step_leaves_the_old_or_the_new_snapshot() -> None:
    """SVC-10"""
    for seed in range(20):
        for steps in range(1, 12):
            disk = a_disk(seed)
            snapshot.save(disk, 7, OLD)
            left = steps

            def cut(verb: str, name: str) -> None:
                nonlocal left
                left -= 1
                if left == 0:
                    raise KeyboardInterrupt

            disk.before = cut
            saved = False
            try:
                snapshot.save(disk, 12, NEW)
                saved = True
            except KeyboardInterrupt:
                pass
            disk.before = None
            disk.crash()
            assert loaded(disk) in ([(12, NEW)] if saved else [(7, OLD), (12, NEW)])
            snapshot.save(disk, 13, NEW)
            assert loaded(disk) == (13, NEW)


@pytest.mark.parametrize("harm", ["flip", "cut"])
def test_damaged_snapshot_is_reported_or_replaced_by_the_older_one(harm: str) -> None:
    for keep in (1, 2):
        disk = a_disk()
        snapshot.save(disk, 7, [b"old"])
        snapshot.save(disk, 12, [b"new", b"", b"end"], keep=keep)
        name = disk.names()[-1]
        for offset in range(disk.open(name).size()):
            if harm == "cut":
                disk = a_disk()
                snapshot.save(disk, 7, [b"old"])
                snapshot.save(disk, 12, [b"new", b"", b"end"], keep=keep)
                disk.cut(name, offset)
            else:
                disk.flip(name, offset, offset % 8)
            if keep == 2:
                assert loaded(disk) == (7, [b"old"])
            else:
                with pytest.raises(Corrupt, match="state-"):
                    snapshot.load(disk)
            if harm == "flip":
                disk.flip(name, offset, offset % 8)


def test_full_disk_keeps_the_old_snapshot_and_no_temporary_file() -> None:
    disk = a_disk()
    snapshot.save(disk, 7, OLD)
    disk.fill(free_bytes=1000)
    with pytest.raises(DiskFull, match="the older snapshot is still valid"):
        snapshot.save(disk, 12, NEW)
    assert loaded(disk) == (7, OLD)
    assert len(disk.names()) == 1


def test_failed_snapshot_sync_is_reported() -> None:
    disk = a_disk()
    snapshot.save(disk, 7, OLD)
    disk.fail_sync()
    with pytest.raises(SyncFailed, match="stop the node"):
        snapshot.save(disk, 12, NEW)
    disk.crash()
    assert loaded(disk) == (7, OLD)
