"""Records that survive: a checksummed log, snapshots, and the disk they need.

A failed fsync stops the node; a torn tail is cut off; corruption is named and never served.
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
