"""CLI-1: lines and messages at a terminal, with and without prompt_toolkit."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from oncecast.cli.shell.terminal import (
    HISTORY_MAX,
    PlainTerminal,
    PromptTerminal,
    make_terminal,
    remember,
    remembered,
)


def nothing(line: str) -> tuple[str, list[str]]:
    return "", []


def test_terminal_reads_plain_lines_without_prompt_toolkit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "prompt_toolkit", None)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    terminal = make_terminal("> ", tmp_path / "history", nothing)
    assert isinstance(terminal, PlainTerminal)
    assert "oncecast[shell]" in capsys.readouterr().out
    answers: Iterator[str | BaseException] = iter(["status", KeyboardInterrupt(), EOFError()])

    def answer(prompt: str) -> str:
        found = next(answers)
        if isinstance(found, BaseException):
            raise found
        return found

    monkeypatch.setattr("builtins.input", answer)
    assert [terminal.line() for _ in range(3)] == ["status", "", None]
    terminal.say("arrived")
    assert capsys.readouterr().out == "\n\narrived\n"


def test_terminal_is_plain_if_the_output_is_redirected(tmp_path: Path) -> None:
    assert isinstance(make_terminal("> ", tmp_path / "history", nothing), PlainTerminal)


@pytest.fixture
def keys() -> Iterator[PipeInput]:
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        yield pipe


def test_prompt_returns_lines_and_keeps_a_history(keys: PipeInput, tmp_path: Path) -> None:
    history = tmp_path / "state" / "history"
    terminal = PromptTerminal("> ", history, nothing)
    keys.send_text("get news\n")
    assert terminal.line() == "get news"
    keys.send_text("dropped\x03")
    assert terminal.line() == ""
    keys.send_text("\x04")
    assert terminal.line() is None
    assert remembered(history) == ["get news"]


@pytest.mark.long
def test_no_messages_are_lost_when_the_prompt_ends(
    keys: PipeInput, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    terminal = PromptTerminal("> ", tmp_path / "history", nothing)
    expected = [f"message {number}" for number in range(200)]

    def speak() -> None:
        for text in expected:
            terminal.say(text)
            keys.send_text("\n")

    speaker = threading.Thread(target=speak)
    speaker.start()
    while speaker.is_alive():
        assert terminal.line() == ""
    assert capfd.readouterr().out.splitlines() == expected


def test_history_is_private_and_bounded(tmp_path: Path) -> None:
    history = tmp_path / "history"
    for number in range(2 * HISTORY_MAX + 1):
        remember(history, str(number))
    assert history.stat().st_mode & 0o777 == 0o600
    assert remembered(history)[0] == str(HISTORY_MAX + 1)
    assert len(history.read_text().splitlines()) == HISTORY_MAX
