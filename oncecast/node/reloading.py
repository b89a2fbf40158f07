"""Reloads the TLS files of a node when they change, for new connections."""

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
        """Check the files from now on."""
        if self._tls is not None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY, self._due)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _due(self) -> None:
        self.look()
        self.start()

    def look(self) -> bool:
        """Reload the files if one has changed; return whether new ones are in use."""
        stamps = self._look()
        if not stamps or stamps == self._stamps:
            return False
        return self.reload()

    def reload(self) -> bool:
        """Reload the files; keep the old ones, and log why, if that fails."""
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
        """Return the times and sizes of the files, or nothing while one of them is missing."""
        if self._tls is None or self._tls.files is None:
            return ()
        try:
            return self._tls.files.stamps()
        except OSError:
            return ()
