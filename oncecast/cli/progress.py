"""A progress bar on stderr, shown only on a terminal."""

from __future__ import annotations

import sys
from time import monotonic

WIDTH = 30
REDRAW_EVERY = 0.1


class Progress:
    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.done = what, total, 0
        self._began = self._drawn = monotonic()
        self._shown = False
        self._look = sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def step(self, note: str = "", *, by: int = 1) -> None:
        self.done += by
        now = monotonic()
        if self._look and (now - self._drawn >= REDRAW_EVERY or self.done == self.total):
            self._drawn, self._shown = now, True
            filled = WIDTH * self.done // max(1, self.total)
            bar = "#" * filled + "." * (WIDTH - filled)
            left = (now - self._began) / max(1, self.done) * (self.total - self.done)
            line = f"\r{self.what} [{bar}] {self.done}/{self.total}, {left:.0f} s left {note}"
            sys.stderr.write(f"{line}\x1b[K")
            sys.stderr.flush()

    def __exit__(self, *_: object) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
