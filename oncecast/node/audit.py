"""Write the audit log: one JSON object per line to a file, or one line to the node's log.

The file is private and append-only. The node reopens it on SIGHUP, so it can be rotated. If a write
fails, the event goes to the node's log and the node continues.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime

from oncecast.broker.guard import Checked
from oncecast.errors import BadSetting
from oncecast.network.incidents import line
from oncecast.network.login import Attempt
from oncecast.security.audit import DENIED, FAILED, LOGIN, OK, REQUEST, Event, Limit
from oncecast.storage.disk import PRIVATE_FILE

logger = logging.getLogger("oncecast.audit")


class Audit:
    def __init__(self, path: str, *, clock: Callable[[], float] = time.time) -> None:
        """Open the file, or use the node's log if `path` is empty.

        Raise BadSetting if the file cannot be opened.
        """
        self._path, self._clock = path, clock
        self._limit = Limit(clock())
        self._file = -1
        self.node = ""  # address of this node, which each line contains
        if path:
            try:
                self._file = opened(path)
            except OSError as error:
                raise BadSetting(
                    f"audit_file: {path}: {error.strerror}", "use a file that the node can write"
                ) from error

    @property
    def to_file(self) -> bool:
        """Return whether the audit log is a file.

        A file receives administrative acts even before the first user exists.
        """
        return self._file >= 0

    def login(self, attempt: Attempt) -> None:
        result = FAILED if attempt.refusal else OK
        client = f"client {attempt.client}" if attempt.client else ""
        self.record(
            Event(
                LOGIN,
                attempt.principal,
                attempt.how,
                client,
                result,
                attempt.address,
                reason=attempt.refusal,
            )
        )

    def request(self, checked: Checked, address: str) -> None:
        """Record a denied request, or an allowed administrative request."""
        result = OK if checked.allowed else DENIED
        self.record(
            Event(
                REQUEST,
                checked.principal,
                checked.verb,
                checked.object or checked.topic or checked.name,
                result,
                address,
                checked.request,
            )
        )

    def record(self, event: Event) -> None:
        now = self._clock()
        suppressed = self._limit.admit(event, now)
        if suppressed is None:
            return
        when = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
        fields: dict[str, object] = {"time": when, "node": self.node, **event.fields()}
        if suppressed:
            fields["suppressed"] = suppressed
        if not self._written(fields):
            level = logging.INFO if event.result == OK else logging.WARNING
            logger.log(level, line("audit", fields))

    def _written(self, fields: dict[str, object]) -> bool:
        if self._file < 0:
            return False
        try:
            os.write(self._file, json.dumps(fields).encode() + b"\n")
        except OSError as error:
            logger.error(line("audit_failed", {"file": self._path, "reason": error.strerror}))
            return False
        return True

    def reopen(self) -> None:
        """Reopen the file. If that fails, log the reason and keep the old file."""
        if not self._path:
            return
        try:
            file = opened(self._path)
        except OSError as error:
            logger.error(line("audit_failed", {"file": self._path, "reason": error.strerror}))
            return
        self.close()
        self._file = file

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def opened(path: str) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    return os.open(path, flags, PRIVATE_FILE)
