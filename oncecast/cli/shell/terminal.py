"""Read lines at a terminal, and print messages that arrive meanwhile.

With prompt_toolkit, the prompt has history and completion, and messages appear above it. Without
prompt_toolkit, `input` reads plain lines.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol as Interface

Complete = Callable[[str], tuple[str, list[str]]]

HISTORY_MAX = 1000
RETRY_SECONDS = 0.2  # delay before showing a message again if the prompt ended first


class Terminal(Interface):
    def line(self) -> str | None:
        """Return the next line, or "" after Ctrl-C, or None after Ctrl-D."""

    def say(self, text: str) -> None:
        """Print `text` from another thread. Return when it is on the screen."""


def make_terminal(prompt: str, history: Path, complete: Complete) -> Terminal:
    if sys.stdout.isatty():
        with suppress(ImportError):
            return PromptTerminal(prompt, history, complete)
        print('For history and completion: pip install "oncecast[shell]"')
    return PlainTerminal(prompt)


class PlainTerminal:
    def __init__(self, prompt: str) -> None:
        self._prompt = prompt

    def line(self) -> str | None:
        try:
            return input(self._prompt)
        except EOFError:
            print()
            return None
        except KeyboardInterrupt:
            print()
            return ""

    def say(self, text: str) -> None:
        print(text, flush=True)


class PromptTerminal:
    def __init__(self, prompt: str, history: Path, complete: Complete) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import CompleteEvent, Completer, Completion
        from prompt_toolkit.document import Document
        from prompt_toolkit.history import InMemoryHistory

        class Completions(Completer):
            def get_completions(
                self, document: Document, complete_event: CompleteEvent
            ) -> Iterable[Completion]:
                typed, found = complete(document.text_before_cursor)
                return [Completion(each, -len(typed)) for each in found]

        self._session = PromptSession[str](
            prompt,
            completer=Completions(),
            complete_in_thread=True,
            complete_while_typing=False,
            history=InMemoryHistory(remembered(history)),
        )
        self._history = history
        self._lines: deque[str] = deque()  # remaining lines of pasted text
        self._messages: deque[tuple[str, threading.Event]] = deque()
        self._prompting = False
        self._lock = threading.Lock()

    def line(self) -> str | None:
        if not self._lines:
            try:
                self._lines.extend(self._prompted().splitlines() or [""])
            except EOFError:
                return None
            except KeyboardInterrupt:
                return ""
        line = self._lines.popleft()
        if line.strip():
            remember(self._history, line)
        return line

    def _prompted(self) -> str:
        with self._lock:
            self._prompting = True
        try:
            return self._session.prompt()
        finally:
            with self._lock:
                self._prompting = False
            self._show()

    def say(self, text: str) -> None:
        shown = threading.Event()
        self._messages.append((text, shown))
        while not shown.is_set():
            with self._lock:
                self._show_soon()
            shown.wait(RETRY_SECONDS)

    def _show_soon(self) -> None:
        from prompt_toolkit.application import run_in_terminal

        loop = self._session.app.loop
        if not self._prompting:
            self._show()
        elif loop is not None:
            with suppress(RuntimeError):  # the prompt has just ended and its loop is closed
                loop.call_soon_threadsafe(lambda: run_in_terminal(self._show))

    def _show(self) -> None:
        while self._messages:
            text, shown = self._messages.popleft()
            print(text, flush=True)
            shown.set()


def remember(path: Path, line: str) -> None:
    """Append a line to the history file, which only its owner can read."""
    with suppress(OSError):  # the shell works without a history
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(file, "a", errors="surrogateescape") as history:
            history.write(f"{line}\n")


def remembered(path: Path) -> list[str]:
    """Return the last lines of the history file. Remove older lines from a long file."""
    try:
        lines = path.read_text(errors="surrogateescape").splitlines()
        if len(lines) > 2 * HISTORY_MAX:
            path.write_text("\n".join(lines[-HISTORY_MAX:]) + "\n", errors="surrogateescape")
    except OSError:
        return []
    return lines[-HISTORY_MAX:]
