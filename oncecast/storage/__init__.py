"""Durable storage: a log of checksummed records, snapshots, and the disk that holds them.

A failed fsync stops the node. Recovery drops a torn tail and reports corrupt records. Reading a
corrupt record raises an error.
"""

from oncecast.errors import (
    Corrupt,
    DiskFull,
    InUse,
    NoSuchRecord,
    RecordTooLarge,
    StorageError,
    SyncFailed,
    WrongFormat,
)
from oncecast.storage.dirty import Unsynced
from oncecast.storage.disk import Buffer, Disk, File, OsDisk
from oncecast.storage.examine import Damage
from oncecast.storage.log import Log
from oncecast.storage.recovery import Recovery

__all__ = [
    "Buffer",
    "Corrupt",
    "Damage",
    "Disk",
    "DiskFull",
    "File",
    "InUse",
    "Log",
    "NoSuchRecord",
    "OsDisk",
    "RecordTooLarge",
    "Recovery",
    "StorageError",
    "SyncFailed",
    "Unsynced",
    "WrongFormat",
]
