"""Durable storage: a log of checksummed records, snapshots, and the disk below them.

A failed fsync stops the node. A torn tail is dropped. Corruption is reported and never served.
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
