"""An in-memory disk with faults, for the simulator and for tests.

Each file has two states: the one that processes see, and the one that survives a power loss.
Syncing the file makes its writes durable. Syncing the directory makes creations, renames and
removals durable. Faults are methods: crash, kill, fill, free, fail_sync, flip, lose, cut, wipe. All
random numbers come from `rng`, so that a seed replays a run exactly. The disk calls `before` before
each change. Tests raise an exception there to stop at that step.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from random import Random

from oncecast.storage.disk import Buffer

SECTOR = 512


class Content:
    """The bytes and size of a file. Trailing zeros take no memory."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.size = 0

    def read(self, offset: int, size: int) -> bytes:
        size = max(0, min(size, self.size - offset))
        found = bytes(self.data[offset : offset + size])
        return found + bytes(size - len(found))

    def write(self, offset: int, data: bytes) -> None:
        self._grow(offset + len(data))
        self.data[offset : offset + len(data)] = data
        self.size = max(self.size, offset + len(data))

    def resize(self, size: int) -> None:
        del self.data[size:]
        self.size = size

    def _grow(self, size: int) -> None:
        if len(self.data) < size:
            self.data.extend(bytes(size - len(self.data)))

    def flip(self, offset: int, bit: int) -> None:
        self._grow(offset + 1)
        self.data[offset] ^= 1 << bit


class Inode:
    """The two states of a file, and its unsynced changes: (offset, bytes) or (size, None)."""

    def __init__(self) -> None:
        self.live = Content()
        self.durable = Content()
        self.changes: list[tuple[int, bytes | None]] = []
        self.lost: dict[int, None] = {}  # sectors that are unreadable until they are written

    def read(self, offset: int, size: int) -> bytes:
        if any(
            offset < (each + 1) * SECTOR and each * SECTOR < offset + size for each in self.lost
        ):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return self.live.read(offset, size)

    def write(self, offset: int, data: bytes) -> None:
        for sector in [each for each in self.lost if offset <= each * SECTOR < offset + len(data)]:
            del self.lost[sector]
        self.live.write(offset, data)
        self.changes.append((offset, data))

    def resize(self, size: int) -> None:
        self.live.resize(size)
        self.changes.append((size, None))

    def sync(self) -> None:
        self._apply(len(self.changes))
        self.changes.clear()

    def crash(self, rng: Random) -> None:
        """Keep no unsynced changes, or a torn prefix of them, or a random set of sectors."""
        if self.changes:
            rng.choice((self._keep_nothing, self._keep_beginning, self.keep_sectors))(rng)
            self.changes.clear()
        self.live = Content()
        self.live.data[:] = self.durable.data
        self.live.size = self.durable.size

    def _keep_nothing(self, rng: Random) -> None:
        pass

    def _keep_beginning(self, rng: Random) -> None:
        kept = rng.randint(0, len(self.changes))
        self._apply(kept)
        if kept < len(self.changes):
            offset, data = self.changes[kept]
            if data:
                self.durable.write(offset, data[: rng.randrange(len(data))])

    def keep_sectors(self, rng: Random) -> None:
        touched: dict[int, None] = {}
        for offset, data in self.changes:
            if data is None:
                self.durable.resize(offset)
            else:
                touched.update(
                    dict.fromkeys(range(offset // SECTOR, -(-(offset + len(data)) // SECTOR)))
                )
        for sector in touched:
            if rng.random() < 0.5:
                self.durable.write(sector * SECTOR, self.live.read(sector * SECTOR, SECTOR))

    def _apply(self, count: int) -> None:
        for offset, data in self.changes[:count]:
            if data is None:
                self.durable.resize(offset)
            else:
                self.durable.write(offset, data)


class SimulatedFile:
    def __init__(self, disk: SimulatedDisk, name: str, inode: Inode) -> None:
        self._disk = disk
        self._name = name
        self._inode = inode
        self._generation = disk.generation

    def size(self) -> int:
        return self._content().size

    def read(self, offset: int, size: int) -> bytes:
        self._content()
        return self._inode.read(offset, size)

    def data(self, offset: int) -> tuple[int, int]:
        content = self._content()
        end = min(len(content.data), content.size)
        return (offset, end) if offset < end else (content.size, content.size)

    def write(self, offset: int, parts: Sequence[Buffer]) -> None:
        data = b"".join(parts)
        self._reserve("write", offset + len(data))
        self._inode.write(offset, data)

    def sync(self) -> None:
        self._content()
        self._disk.step("sync", self._name)
        if self._disk.sync_fails():
            # The kernel drops the pages that it could not write and marks them clean.
            self._inode.keep_sectors(self._disk.rng)
            self._inode.changes.clear()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._inode.sync()

    def allocate(self, size: int) -> None:
        self._reserve("allocate", size)
        self._inode.resize(max(size, self._inode.live.size))

    def truncate(self, size: int) -> None:
        self._reserve("truncate", size)
        self._inode.resize(size)

    def close(self) -> None:
        self._generation = -1

    def _content(self) -> Content:
        if self._generation != self._disk.generation:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._inode.live

    def _reserve(self, verb: str, size: int) -> None:
        content = self._content()
        self._disk.step(verb, self._name)
        self._disk.reserve(size - content.size)


class SimulatedDisk:
    def __init__(self, rng: Random) -> None:
        self.rng = rng
        # Number of crashes so far; a file that was opened before the last crash is unusable.
        self.generation = 0
        self.before: Callable[[str, str], None] | None = None
        self._live: dict[str, Inode] = {}
        self._durable: dict[str, Inode] = {}
        # Old and new name of each change; "" if there is no such name.
        self._changes: list[tuple[str, str, Inode]] = []
        self._capacity: int | None = None
        self._failing_syncs = 0

    # The interface of a disk

    def names(self) -> list[str]:
        return sorted(self._live)

    def open(self, name: str, *, create: bool = False) -> SimulatedFile:
        inode = self._live.get(name)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
            self.step("create", name)
            inode = Inode()
            self._change("", name, inode)
        return SimulatedFile(self, name, inode)

    def rename(self, old: str, new: str) -> None:
        self.step("rename", old)
        self._change(old, new, self._existing(old))

    def remove(self, name: str) -> None:
        self.step("remove", name)
        self._change(name, "", self._existing(name))

    def sync(self) -> None:
        self.step("sync", "")
        if self.sync_fails():
            self._lose_changes()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._durable = dict(self._live)
        self._changes.clear()

    # Faults

    def crash(self) -> None:
        """Simulate a power loss, which keeps a random part of the unsynced changes."""
        self._lose_changes()
        self._live = dict(self._durable)
        for inode in self._live.values():
            inode.crash(self.rng)
        self.kill()

    def kill(self) -> None:
        """Simulate kill -9: all written bytes stay, but open files become unusable."""
        self.generation += 1

    def fill(self, free_bytes: int = 0) -> None:
        self._capacity = self.used + free_bytes

    def free(self) -> None:
        self._capacity = None

    def mend(self) -> None:
        """Undo `fill` and `fail_sync`."""
        self.free()
        self._failing_syncs = 0

    def fail_sync(self, times: int = 1) -> None:
        """Make the next syncs of a file or the directory fail."""
        self._failing_syncs += times

    def flip(self, name: str, offset: int, bit: int) -> None:
        inode = self._existing(name)
        inode.live.flip(offset, bit)
        inode.durable.flip(offset, bit)

    def lose(self, name: str, offset: int) -> None:
        """Make the sector that contains this byte unreadable until it is written."""
        self._existing(name).lost[offset // SECTOR] = None

    def cut(self, name: str, size: int) -> None:
        inode = self._existing(name)
        inode.live.resize(size)
        inode.durable.resize(size)

    def wipe(self) -> None:
        """Replace the disk with an empty one."""
        self._live, self._durable, self._changes = {}, {}, []
        self.kill()

    @property
    def used(self) -> int:
        return sum(inode.live.size for inode in self._live.values())

    # Methods that the files call

    def step(self, verb: str, name: str) -> None:
        if self.before is not None:
            self.before(verb, name)

    def reserve(self, growth: int) -> None:
        if self._capacity is not None and growth > max(0, self._capacity - self.used):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def sync_fails(self) -> bool:
        fails = self._failing_syncs > 0
        self._failing_syncs -= fails
        return fails

    def _existing(self, name: str) -> Inode:
        if name not in self._live:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return self._live[name]

    def _change(self, old: str, new: str, inode: Inode) -> None:
        self._changes.append((old, new, inode))
        _apply(self._live, old, new, inode)

    def _lose_changes(self) -> None:
        for old, new, inode in self._changes:
            if self.rng.random() < 0.5 and (not old or self._durable.get(old) is inode):
                _apply(self._durable, old, new, inode)
        self._changes.clear()


def _apply(names: dict[str, Inode], old: str, new: str, inode: Inode) -> None:
    if old:
        del names[old]
    if new:
        names[new] = inode
