"""Run `oncecast` commands as child processes of another command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

GENTLY = 10.0  # seconds to wait for a process to exit after SIGINT


class Command:
    """A running command. Its output goes to files, so it never blocks on a full pipe."""

    def __init__(self, directory: Path, number: int, words: tuple[str, ...]) -> None:
        self._out, self._err = directory / f"{number}.out", directory / f"{number}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "oncecast", *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,  # Ctrl-C reaches only the parent
            )

    @property
    def status(self) -> int | None:
        """Return the exit status, or None while the command runs."""
        return self._process.poll()

    @property
    def output(self) -> str:
        return self._out.read_text()

    @property
    def complaint(self) -> str:
        """Return the last line of standard error."""
        lines = self._err.read_text(errors="replace").splitlines() or ["no output"]
        return lines[-1].removeprefix("oncecast: ")

    def interrupt(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def end(self) -> None:
        try:
            self._process.wait(GENTLY)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class Commands:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._started: list[Command] = []

    def start(self, *words: str) -> Command:
        self._started.append(Command(self._directory, len(self._started), words))
        return self._started[-1]

    def end(self) -> None:
        for each in self._started:
            each.interrupt()
        for each in self._started:
            each.end()
