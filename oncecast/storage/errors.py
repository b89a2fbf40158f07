"""What can go wrong with a disk, as exceptions a caller can tell apart.

StorageError
├── DiskFull         no room for the record; nothing was written, the log goes on
├── SyncFailed       a write or fsync failed: what is on disk is unknown, the node must stop
├── Corrupt          bytes that were on disk are no longer what was written
├── NoSuchRecord     never written, or truncated away
├── RecordTooLarge   does not fit into a segment
├── WrongFormat      the directory is not ours, or of a version we do not know
└── InUse            another process has the directory open
"""

from __future__ import annotations


class StorageError(Exception):
    """The root: everything this package raises for a caller to handle."""


class DiskFull(StorageError):
    pass


class SyncFailed(StorageError):
    pass


class Corrupt(StorageError):
    """Names the file, the byte and the records from `first` to `last` that cannot be served."""

    def __init__(self, file: str, offset: int, first: int, last: int, fact: str) -> None:
        self.file = file
        self.offset = offset
        self.first = first
        self.last = last
        self.where = f"{file}: {fact} at byte {offset}"
        records = f"record {first}" if first == last else f"records {first} to {last}"
        super().__init__(
            f"{self.where}; {records} cannot be served; "
            'run "oncecast log verify" and refill this replica from its peers'
        )


class NoSuchRecord(StorageError, LookupError):
    pass


class RecordTooLarge(StorageError, ValueError):
    pass


class WrongFormat(StorageError):
    pass


class InUse(StorageError):
    pass
