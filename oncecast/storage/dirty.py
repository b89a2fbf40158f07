"""Track which files have unsynced changes, and whether the disk can still be trusted."""

from __future__ import annotations

from oncecast.errors import SyncFailed
from oncecast.storage.disk import Disk, File


class Unsynced:
    """The files to sync after `Log.write`. Syncing them makes records up to `number` durable."""

    def __init__(self, dirty: Dirty, number: int, stamp: int, what: list[File | Disk]) -> None:
        self.number = number
        self.stamp = stamp
        self.done = False
        self._dirty = dirty
        self._what = what

    def sync(self) -> None:
        """Run fdatasync, in any thread. The log's thread must then call `log.synced_to(self)`."""
        for each in self._what:
            self._dirty.sync(each)
        self.done = True


class Dirty:
    """Files and directories with unsynced changes, each with the number of its last change.

    A file stays dirty until the caller reports a sync that started after the change. Each
    `Unsynced` therefore includes every file that it depends on, even if an earlier one never ran.
    """

    def __init__(self) -> None:
        self._stamps: dict[File | Disk, int] = {}
        self._stamp = self._included = 0
        self._failed: SyncFailed | None = None

    def __contains__(self, what: File | Disk) -> bool:
        return what in self._stamps

    def __bool__(self) -> bool:
        return bool(self._stamps)

    @property
    def changed(self) -> bool:
        """Return whether there are changes that no `Unsynced` includes yet."""
        return self._included < self._stamp

    def touch(self, what: File | Disk) -> None:
        self._stamp += 1
        self._stamps[what] = self._stamp

    def unsynced(self, number: int) -> Unsynced:
        self._included = self._stamp
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

    # Never retry a failed fsync: the kernel may have dropped the pages and marked them clean.

    def fail(self, doing: str, error: OSError) -> SyncFailed:
        """Record the failure and return the error that `check` raises from now on."""
        self._failed = SyncFailed(
            f"{doing} failed ({error.strerror or error}), so the disk contents are unknown",
            "stop the node, check the disk, then start the node again",
        )
        return self._failed

    def check(self) -> None:
        if self._failed is not None:
            raise self._failed

    @property
    def failed(self) -> bool:
        return self._failed is not None
