"""A line from a person, while others have something to say: prompt, history, completion.

The prompt is read in the main thread, by readline. What arrives meanwhile is said by other threads:
a signal takes it to the main thread, the only one that may look at the line that is being typed.
The line is cleared, the news is written, and prompt and line stand below it again.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

HISTORY_MAX = 1000
NEWS = signal.SIGUSR1
ASK_AGAIN = 0.2  # seconds; a signal that comes while a key is worked off is not seen


class Terminal:
    def __init__(
        self, prompt: str, history: Path, completion: Callable[[str], tuple[str, list[str]]]
    ) -> None:
        self.prompt = prompt
        self._history, self._completion = history, completion
        self._matches: list[str] = []
        self._news: deque[tuple[str, threading.Event]] = deque()
        self._prompting = False
        self._readline: ModuleType | None = None
        self._open = False

    @contextmanager
    def open(self) -> Iterator[None]:
        with suppress(ImportError):  # an interpreter without it still takes plain lines
            import readline

            self._readline = readline
            readline.set_completer_delims(" \t")
            readline.set_completer(self._complete)
            readline.parse_and_bind("tab: complete")
            readline.parse_and_bind("set show-all-if-ambiguous on")
            readline.set_auto_history(False)
            for line in remembered(self._history):
                readline.add_history(line)
        signal.signal(NEWS, lambda number, frame: self._write_news())
        self._open = True
        try:
            yield
        finally:
            self._open = False
            signal.signal(NEWS, signal.SIG_IGN)  # the last one may be under way
            self._write_news()

    # -- a line --

    def line(self) -> str | None:
        """What somebody has typed; None for Ctrl-D."""
        self._prompting = True
        try:
            line = input(self.prompt)
        except EOFError:
            print()
            return None
        finally:
            self._prompting = False
        if line.strip():
            self._remember(line)
        return line

    def _remember(self, line: str) -> None:
        if self._readline is not None:
            self._readline.add_history(line)
        with suppress(OSError):  # a history is nice to have
            self._history.parent.mkdir(parents=True, exist_ok=True)
            opener = os.open(self._history, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(opener, "a", errors="surrogateescape") as file:
                file.write(f"{line}\n")

    def _complete(self, text: str, state: int) -> str | None:
        """What may stand in the place of `text`, the end of the word, one at each call."""
        assert self._readline is not None
        if state == 0:
            line = self._readline.get_line_buffer()[: self._readline.get_endidx()]
            typed, found = self._completion(line)
            # A quoted word may have blanks: readline replaces only what is behind the last.
            self._matches = [each[len(typed) - len(text) :] for each in found]
        return self._matches[state] if state < len(self._matches) else None

    # -- news --

    def say(self, text: str) -> None:
        """From any other thread; returns when it is on the screen."""
        shown = threading.Event()
        self._news.append((text, shown))
        while self._open and not shown.is_set():
            signal.pthread_kill(threading.main_thread().ident or 0, NEWS)
            shown.wait(ASK_AGAIN)

    def _write_news(self) -> None:
        if not self._news:
            return
        line = ""
        if self._prompting:
            line = self.prompt + (self._readline.get_line_buffer() if self._readline else "")
            rows = len(line) // max(1, shutil.get_terminal_size().columns)
            sys.stdout.write("\r" + (f"\x1b[{rows}A" if rows else "") + "\x1b[J")
        told = []
        while self._news:
            text, shown = self._news.popleft()
            sys.stdout.write(f"{text}\n")
            told.append(shown)
        sys.stdout.write(line)
        sys.stdout.flush()
        for shown in told:
            shown.set()


def remembered(path: Path) -> list[str]:
    """The lines of the history; what is too old is dropped from the file."""
    try:
        lines = path.read_text(errors="surrogateescape").splitlines()
        if len(lines) > 2 * HISTORY_MAX:
            path.write_text("\n".join(lines[-HISTORY_MAX:]) + "\n", errors="surrogateescape")
    except OSError:
        return []
    return lines[-HISTORY_MAX:]
