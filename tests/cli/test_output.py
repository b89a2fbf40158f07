"""Text from the network cannot control the terminal."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import sys
from collections.abc import Callable

import pytest

from oncecast.cli.connecting import complain, report_error
from oncecast.cli.output import as_json, on_terminal, print_values
from oncecast.errors import Refused
from oncecast.kernel.escaping import escaped

TITLE = "\x1b]0;owned\x07"
C1 = "\u009b31m"  # the same as ESC [ in one character
HIDDEN = "\u202egnp.exe"  # a terminal shows this from right to left


@pytest.fixture
def at_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], bytes]:
    """Return a function that runs `work` at a pseudo terminal and returns its output."""

    def run(work: Callable[[], None]) -> bytes:
        main, terminal = pty.openpty()
        with os.fdopen(terminal, "w", encoding="utf-8") as out:
            monkeypatch.setattr(sys, "stdout", out)
            work()
        written = b""
        with contextlib.suppress(OSError):  # EIO: everything was read, and the terminal is closed
            while some := os.read(main, 65_536):
                written += some
        os.close(main)
        return written

    return run


@pytest.mark.parametrize("text", [TITLE, C1, HIDDEN, "a\rb", "a\x7f", "\x00", "a\u2028b"])
def test_characters_that_control_a_terminal_are_escaped(text: str) -> None:
    assert escaped(text).isprintable()
    assert escaped(text) == text.encode("unicode_escape").decode()


def test_printable_text_is_not_escaped() -> None:
    for text in ("", "plain text", "größer als 日本語 🙂", "back\\slash"):
        assert escaped(text) == text
    assert escaped("a\n\tb\x1b", keep="\n\t") == "a\n\tb\\x1b"


def test_json_escapes_terminal_control_characters_and_keeps_its_value() -> None:
    fields = {"topic": TITLE + C1 + HIDDEN, "plain": "ü🙂", "tag": "\U000e0041"}
    line = as_json(fields)
    assert line.isprintable()
    assert json.loads(line) == fields
    assert '"plain":"ü🙂"' in line


def test_error_is_a_single_escaped_line_even_in_a_pipe(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """SEC-3: a server chooses the text of its refusal."""
    complain(f"{TITLE}\nsecond line")
    report_error(Refused(f"wrong cluster {C1}"))
    first, second = capsys.readouterr().err.splitlines()
    assert first == "oncecast: \\x1b]0;owned\\x07\\nsecond line"
    assert second.isprintable()
    assert "\\x9b31m" in second


def test_payloads_are_escaped_at_a_terminal(
    at_terminal: Callable[[Callable[[], None]], bytes],
) -> None:
    written = at_terminal(lambda: print_values([TITLE.encode(), b"a\n\tb", b"\xff\x9b"]))
    assert written == b"\\x1b]0;owned\\x07\r\na\r\n\tb\r\n\\xff\\x9b\r\n"


def test_raw_payloads_reach_a_terminal_unchanged(
    at_terminal: Callable[[Callable[[], None]], bytes],
) -> None:
    written = at_terminal(lambda: print_values([TITLE.encode()], raw=True))
    assert written == TITLE.encode() + b"\r\n"


def test_payloads_reach_a_pipe_unchanged(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    print_values([TITLE.encode(), b"\xff\x00"])
    assert capfdbinary.readouterr().out == TITLE.encode() + b"\n\xff\x00\n"


def test_text_is_escaped_only_at_a_terminal(
    at_terminal: Callable[[Callable[[], None]], bytes],
) -> None:
    assert on_terminal(TITLE) == TITLE
    assert at_terminal(lambda: print(on_terminal(f"a\n{C1}"))) == b"a\r\n\\x9b31m\r\n"
