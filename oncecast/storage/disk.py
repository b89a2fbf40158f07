"""The file system interface that a log uses, for a real or a simulated disk.

Disks raise `OSError`, which the log translates. The log sets a file's size once, with `allocate`.
This spares fdatasync the metadata, and reveals a full disk before any records are written.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from oncecast.errors import InUse, WrongFormat

Buffer = bytes | bytearray | memoryview

LOCK = "LOCK"
# Only the owner may read messages and secrets. A umask can only restrict these modes further.
PRIVATE_DIRECTORY, PRIVATE_FILE = 0o700, 0o600
OTHERS = 0o077  # permission bits for the group and for all other users
_IOV_MAX = os.sysconf("SC_IOV_MAX")


class File(Protocol):
    def size(self) -> int: ...

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes, or fewer at the end of the file."""

    def data(self, offset: int) -> tuple[int, int]:
        """Return (start, end) of the next range at or after `offset` that may hold non-zero bytes.

        Return (size, size) if there is none.
        """

    def write(self, offset: int, parts: Sequence[Buffer]) -> None:
        """Write all parts, one after another, starting at `offset`."""

    def sync(self) -> None:
        """Run fdatasync; may be called from any thread."""

    def allocate(self, size: int) -> None:
        """Extend the file with zeros to `size` and reserve the disk space."""

    def truncate(self, size: int) -> None: ...

    def close(self) -> None: ...


class Disk(Protocol):
    """A directory of files, real or simulated."""

    def names(self) -> list[str]: ...

    def open(self, name: str, *, create: bool = False) -> File: ...

    def rename(self, old: str, new: str) -> None:
        """Rename a file atomically; replace `new` if it exists."""

    def remove(self, name: str) -> None: ...

    def sync(self) -> None:
        """Run fsync on the directory, so that created, renamed and removed files are durable."""


class OsFile:
    def __init__(self, path: Path, flags: int, opened: set[OsFile]) -> None:
        self._path, self._opened = path, opened
        self._fd = os.open(path, flags | os.O_CLOEXEC, PRIVATE_FILE)
        opened.add(self)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read(self, offset: int, size: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        while len(data) < size:
            more = os.pread(self._fd, size - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def data(self, offset: int) -> tuple[int, int]:
        size = self.size()
        try:
            # Otherwise zero pages in the read-ahead cache would count as data.
            os.posix_fadvise(self._fd, offset, 0, os.POSIX_FADV_DONTNEED)
            start = os.lseek(self._fd, offset, os.SEEK_DATA)
            return start, os.lseek(self._fd, start, os.SEEK_HOLE)
        except OSError as error:
            # ENXIO: only a hole follows. After any other error, treat the rest as data.
            return size if error.errno == errno.ENXIO else min(offset, size), size

    def write(self, offset: int, parts: Sequence[Buffer]) -> None:
        if len(parts) <= _IOV_MAX:
            self._write_some(offset, parts)
            return
        for start in range(0, len(parts), _IOV_MAX):
            offset = self._write_some(offset, parts[start : start + _IOV_MAX])

    def _write_some(self, offset: int, parts: Sequence[Buffer]) -> int:
        end = offset + sum(map(len, parts))
        offset += os.pwritev(self._fd, parts, offset)
        if offset < end:  # rare: a signal interrupted the write, or the disk is nearly full
            rest = memoryview(b"".join(parts))
            while offset < end:
                offset += os.pwrite(self._fd, rest[len(rest) - (end - offset) :], offset)
        return end

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def allocate(self, size: int) -> None:
        try:
            os.posix_fallocate(self._fd, 0, size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                error.filename = str(self._path)  # posix_fallocate does not set the file name
                raise
            os.ftruncate(self._fd, max(size, self.size()))

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def close(self) -> None:
        if self in self._opened:  # otherwise the disk has already closed the file
            self._opened.remove(self)
            os.close(self._fd)


class OsDisk:
    """A directory in the real file system, locked by one process at a time.

    Closing the disk also closes its open files, because a node that fails to start may not know all
    of them. With `read_only`, it takes no lock and creates no files, so that tools can inspect the
    directory of a running node.
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        self._path = Path(path)
        self._read_only = read_only
        self._opened: set[OsFile] = set()
        if not read_only:
            self._path.mkdir(PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        if not self._path.is_dir():
            raise WrongFormat(
                f"{self._path} does not exist", "use the data directory of a node or client"
            )
        self._fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._lock = -1 if read_only else self._take_lock()
        except BaseException:
            os.close(self._fd)
            raise

    def _take_lock(self) -> int:
        lock = os.open(self._path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(lock, 0)
            os.pwrite(lock, b"%d\n" % os.getpid(), 0)
        except BlockingIOError:
            holder = os.pread(lock, 20, 0).decode(errors="replace").strip() or "unknown"
            os.close(lock)
            raise InUse(str(self._path), holder) from None
        except OSError:
            os.close(lock)  # this also releases the lock
            raise
        return lock

    @property
    def exposed(self) -> bool:
        """Return whether users other than the owner can access the directory."""
        return bool(os.fstat(self._fd).st_mode & OTHERS)

    def names(self) -> list[str]:
        return sorted(path.name for path in self._path.iterdir() if path.name != LOCK)

    def open(self, name: str, *, create: bool = False) -> OsFile:
        if self._read_only:
            return OsFile(self._path / name, os.O_RDONLY, self._opened)
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        return OsFile(self._path / name, flags, self._opened)

    def rename(self, old: str, new: str) -> None:
        (self._path / old).rename(self._path / new)

    def remove(self, name: str) -> None:
        (self._path / name).unlink()

    def sync(self) -> None:
        os.fsync(self._fd)

    def close(self) -> None:
        for file in list(self._opened):
            file.close()
        os.close(self._fd)
        if self._lock >= 0:
            os.close(self._lock)
