"""Reload a node's TLS files when they change. New connections use the new files."""

from __future__ import annotations

import asyncio
import logging

from oncecast.errors import TlsUnusable
from oncecast.network.incidents import line
from oncecast.network.tls import Tls

logger = logging.getLogger("oncecast.node")

LOOK_EVERY = 5.0  # seconds between checks of the files


class TlsReloader:
    def __init__(self, tls: Tls | None) -> None:
        self._tls = tls
        self._stamps = self._look()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start checking the files periodically."""
        if self._tls is not None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY, self._due)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _due(self) -> None:
        self.look()
        self.start()

    def look(self) -> bool:
        """Reload the files if one has changed. Return whether new files are in use."""
        stamps = self._look()
        if not stamps or stamps == self._stamps:
            return False
        return self.reload()

    def reload(self) -> bool:
        """Reload the files. If that fails, log why, keep the old files and return False."""
        if self._tls is None or self._tls.files is None:
            return False
        self._stamps = self._look()
        try:
            self._tls.reload()
        except TlsUnusable as error:
            logger.error(line("tls_kept", {"why": error}))
            return False
        logger.info(line("tls_reloaded", {"certificate": self._tls.files.certificate}))
        return True

    def _look(self) -> tuple[tuple[int, int], ...]:
        """Return the times and sizes of the files, or () while a file is missing."""
        if self._tls is None or self._tls.files is None:
            return ()
        try:
            return self._tls.files.stamps()
        except OSError:
            return ()
