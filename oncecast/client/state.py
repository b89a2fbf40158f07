"""The state directory of a client, which holds its name and its outbox.

A state directory belongs to one client. Only one process at a time can use it.
"""

from __future__ import annotations

import os
from pathlib import Path

from oncecast.client.session.client import ClientSession
from oncecast.errors import Corrupt, InUse, StateUnusable, StorageError
from oncecast.kernel.stack import Stack
from oncecast.node.directory import warn_if_exposed
from oncecast.storage.disk import OsDisk
from oncecast.storage.journal import Journal

SEGMENT_BYTES = 4 * 1024 * 1024  # small because segments are preallocated and outboxes are short


class StateDirectory:
    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        try:
            self._disk = OsDisk(self._path)
        except OSError as error:
            raise StateUnusable(
                f"{self._path}: {error.strerror or error}", "use a writable directory"
            ) from error
        except InUse as error:
            raise StateUnusable(error.message, error.remedy) from error
        warn_if_exposed(self._disk, self._path)

    def open(self, stack: Stack, session: ClientSession) -> Journal:
        """Restore the session and return its journal. Close the directory if that fails."""
        try:
            return self._restore(stack, session)
        except BaseException:
            self.close()
            raise

    def _restore(self, stack: Stack, session: ClientSession) -> Journal:
        name = session.producer
        try:
            journal = Journal.open(self._disk, stack, segment_bytes=SEGMENT_BYTES)
        except Corrupt as error:
            raise StateUnusable(
                f"{self._path}: {error.where}",
                "use a new directory; messages in the old one that no node has stored are lost",
            ) from error
        except StorageError as error:
            raise StateUnusable(f"{self._path}: {error.message}", error.remedy) from error
        if name and session.producer != name:
            journal.close()
            raise StateUnusable(
                f"{self._path} belongs to client {session.producer!r}, not to {name!r}",
                "use that name, omit the name, or use another directory",
            )
        return journal

    def close(self) -> None:
        self._disk.close()
