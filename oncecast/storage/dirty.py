"""What was written and is not yet durable, and whether the disk still deserves trust."""

from __future__ import annotations

from oncecast.errors import SyncFailed
from oncecast.storage.disk import Disk, File


class Unsynced:
    """What one `write` of the log leaves to be synced: all up to record `number`."""

    def __init__(self, dirty: Dirty, number: int, stamp: int, what: list[File | Disk]) -> None:
        self.number = number
        self.stamp = stamp
        self.done = False
        self._dirty = dirty
        self._what = what

    def sync(self) -> None:
        """fdatasync, in any thread. Then the log's owner calls `log.synced_to(this)`."""
        for each in self._what:
            self._dirty.sync(each)
        self.done = True


class Dirty:
    """Files and the directory that changed since their last sync, each with a stamp of the change.

    They stay dirty until a sync that began after the change is reported, so that each `Unsynced`
    carries all it depends on, whatever became of the one before.
    """

    def __init__(self) -> None:
        self._stamps: dict[File | Disk, int] = {}
        self._stamp = self._handed = 0
        self._failed: SyncFailed | None = None

    def __contains__(self, what: File | Disk) -> bool:
        return what in self._stamps

    def __bool__(self) -> bool:
        return bool(self._stamps)

    @property
    def changed(self) -> bool:
        """There is something that nobody was asked to sync yet."""
        return self._handed < self._stamp

    def touch(self, what: File | Disk) -> None:
        self._stamp += 1
        self._stamps[what] = self._stamp

    def hand_over(self, number: int) -> Unsynced:
        self._handed = self._stamp
        return Unsynced(self, number, self._stamp, list(self._stamps))

    def settle(self, done: Unsynced) -> None:
        assert done.done
        self._stamps = {each: at for each, at in self._stamps.items() if at > done.stamp}

    def sync_now(self, what: File | Disk) -> None:
        if self._stamps.pop(what, None) is not None:
            self.sync(what)

    def sync(self, what: File | Disk) -> None:
        try:
            what.sync()
        except OSError as error:
            raise self.fail("fsync", error) from error

    # A failed fsync is never retried: the kernel has dropped the pages and calls them clean.

    def fail(self, doing: str, error: OSError) -> SyncFailed:
        """From now on `check` raises what this returns."""
        self._failed = SyncFailed(
            f"{doing} failed: {error.strerror or error}; the contents of the disk are unknown",
            "stop the node, check the disk, start it again",
        )
        return self._failed

    def check(self) -> None:
        if self._failed is not None:
            raise self._failed

    @property
    def failed(self) -> bool:
        return self._failed is not None
