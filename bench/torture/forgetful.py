"""A disk that loses all unsynced data when its process is killed.

Written bytes stay in this process until fdatasync. Some of them go to the file immediately, page by
page and out of order, as in an operating system. So kill -9 has the effect of a power failure: all
synced data survives, but only a random part of the rest.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Sequence
from pathlib import Path

from oncecast.storage.disk import Buffer, OsDisk, OsFile

PAGE = 4096
EARLY = 0.3  # fraction of the pages that reach the file before they are synced


class ForgetfulFile(OsFile):
    def __init__(self, path: Path, flags: int, opened: set[OsFile]) -> None:
        super().__init__(path, flags, opened)
        self._lock = threading.Lock()  # syncs and writes run in different threads
        # Pieces in the order in which they were written.
        self._pending: list[tuple[int, bytes]] = []
        self._random = random.Random()

    def write(self, offset: int, parts: Sequence[Buffer]) -> None:
        data = b"".join(parts)
        with self._lock:
            if offset + len(data) > self.size():
                super().truncate(offset + len(data))
            self._pending.append((offset, data))
            for start in range(0, len(data), PAGE):
                if self._random.random() < EARLY:
                    super().write(offset + start, [data[start : start + PAGE]])

    def read(self, offset: int, size: int) -> bytes:
        with self._lock:
            found = bytearray(super().read(offset, size))
            for start, data in self._pending:
                low, high = max(start, offset), min(start + len(data), offset + len(found))
                if low < high:
                    found[low - offset : high - offset] = data[low - start : high - start]
        return bytes(found)

    def data(self, offset: int) -> tuple[int, int]:
        return min(offset, self.size()), self.size()

    def sync(self) -> None:
        with self._lock:
            for offset, data in self._pending:
                super().write(offset, [data])
            self._pending.clear()
        super().sync()

    def truncate(self, size: int) -> None:
        self.sync()
        super().truncate(size)


class ForgetfulDisk(OsDisk):
    def open(self, name: str, *, create: bool = False) -> OsFile:
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        return ForgetfulFile(self._path / name, flags, self._opened)
