"""Snapshots: a protocol's state at a record number, saved atomically.

A snapshot is written to a temporary file of checksummed blocks, synced and renamed to
`<name>-<number>.snap`. Older snapshots are removed only after the directory is synced, so a
complete snapshot survives a crash at any step. Snapshots with different names can share a directory
with a log.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

from oncecast.errors import Corrupt, DiskFull, StorageError, SyncFailed
from oncecast.storage import store
from oncecast.storage.disk import Buffer, Disk, File

NAME = "state"


def save(
    disk: Disk, number: int, chunks: Iterable[Buffer], *, name: str = NAME, keep: int = 1
) -> None:
    """Save the state after record `number`, and keep the `keep` newest snapshots.

    Record `number` must be synced. Raise DiskFull if the disk is full; older snapshots stay intact.
    Raise SyncFailed on any other disk error; the node must then stop.
    """
    temporary = f"{name}.tmp"
    try:
        file = disk.open(temporary, create=True)
        try:
            file.truncate(0)
            _write(file, number, chunks)
            file.sync()
        finally:
            file.close()
        disk.rename(temporary, _file_name(name, number))
        disk.sync()
        for old in _numbers(disk, name)[keep:]:
            disk.remove(_file_name(name, old))
    except OSError as error:
        with suppress(OSError):
            disk.remove(temporary)
        raise _meaning(error, name, number) from error


def load(disk: Disk, *, name: str = NAME) -> tuple[int, Iterator[bytes]] | None:
    """Return the record number and chunks of the newest intact snapshot.

    Return None if no snapshot exists. Raise Corrupt if there are snapshots but none is intact.
    All checksums are verified before the first chunk is returned, so the file is read twice.
    """
    damage = None
    for number in _numbers(disk, name):
        try:
            for _ in _read(disk, name, number):
                pass
        except Corrupt as corrupt:
            damage = damage or corrupt
        else:
            return number, _read(disk, name, number)
    if damage is not None:
        raise damage
    return None


def _write(file: File, number: int, chunks: Iterable[Buffer]) -> None:
    at, serial = 0, 0
    for serial, chunk in enumerate(chunks, 1):
        at = _put(file, at, number, store.RECORDS, serial, [bytes(chunk)])
    _put(file, at, number, store.END, serial + 1, [])


def _put(file: File, at: int, number: int, kind: int, serial: int, parts: list[bytes]) -> int:
    head = store.header(store.seed_of(number) + at, kind, serial, len(parts), number, parts)
    file.write(at, [head, *parts])
    return at + len(head) + sum(map(len, parts))


def _read(disk: Disk, name: str, number: int) -> Iterator[bytes]:
    file_name = _file_name(name, number)
    file = disk.open(file_name)
    try:
        serial, at = 1, 0
        for found in store.walk(file, store.seed_of(number)):
            if not isinstance(found, store.Block) or found.body is None or found.first != serial:
                raise Corrupt(file_name, found.offset, number, number, "checksum mismatch")
            if found.kind == store.END:
                return
            yield found.body
            serial, at = serial + 1, found.end
        raise Corrupt(file_name, at, number, number, "the snapshot ends too early")
    finally:
        file.close()


def _file_name(name: str, number: int) -> str:
    return f"{name}-{number:020}.snap"


def _numbers(disk: Disk, name: str) -> list[int]:
    """Return the record numbers of the snapshots, newest first."""
    pattern = re.compile(re.escape(name) + r"-(\d{20})\.snap")
    found = (pattern.fullmatch(each) for each in disk.names())
    return sorted((int(match[1]) for match in found if match), reverse=True)


def _meaning(error: OSError, name: str, number: int) -> StorageError:
    what = f"cannot write snapshot {name} at record {number}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return DiskFull(
            f"{what}: the disk is full", "free up disk space; the older snapshot is still valid"
        )
    return SyncFailed(f"{what}: {error.strerror or error}", "stop the node and check the disk")
