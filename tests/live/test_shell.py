"""CLI-1: run the interactive client from a pipe and at a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncecast.errors import ExitStatus
from tests.live.conftest import Command
from tests.live.test_load import close
from tests.live.test_serve import PATIENCE, Process

# From a pipe


def piped(node: Process, text: str, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "oncecast", "shell", "--server", f"127.0.0.1:{node.port}"]
    return subprocess.run(
        [*command, *flags],
        input=text,
        # Output to a pipe is buffered by default; its order must not change.
        env={name: each for name, each in os.environ.items() if name != "PYTHONUNBUFFERED"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_piped_commands_run_in_order_without_a_prompt(node: Process) -> None:
    text = (
        "# a comment\n"
        'subscribe "piped topic"\n'
        "publish \"piped topic\" one 'two words'\n"
        'lag "piped topic"\n'
        'get "piped topic" --count 9\n'
        'lag "piped topic"\n'
    )
    ended = piped(node, text)
    assert ended.stdout == (
        "piped topic: subscription default created, next offset 0\n0\n1\n2\none\ntwo words\n0\n"
    )
    assert (ended.returncode, ended.stderr) == (ExitStatus.OK, "")


def test_shell_runs_all_lines_and_exits_with_the_first_failure_status(node: Process) -> None:
    ended = piped(node, "get nowhere\nnonsense\nstatus --json\n")
    assert ended.returncode == ExitStatus.NOT_FOUND
    assert json.loads(ended.stdout)["node"] == f"127.0.0.1:{node.port}"
    assert ended.stderr.count("\n") == 2


def test_stop_on_error_skips_all_commands_after_a_failure(node: Process) -> None:
    ended = piped(node, "put\nstatus\n", "--stop-on-error")
    assert (ended.returncode, ended.stdout) == (ExitStatus.USAGE, "")


def test_json_flag_applies_to_all_commands(node: Process) -> None:
    ended = piped(node, "sub as-json\nput as-json v\nget as-json\nlag as-json\n", "--json")
    made, receipt, message, lag = map(json.loads, ended.stdout.splitlines())
    assert (made["already"], receipt["offset"], message["value"], lag["lag"]) == (False, 0, "v", 0)


def test_exit_ends_the_shell(node: Process) -> None:
    assert piped(node, "exit\nnonsense\n").returncode == ExitStatus.OK


def test_put_in_the_shell_accepts_any_bytes_and_a_dash_as_a_value(node: Process) -> None:
    text = b"sub bytes\nput bytes \xff -\nget bytes --count 2\n"
    command = [sys.executable, "-m", "oncecast", "shell", "--server", f"127.0.0.1:{node.port}"]
    ended = subprocess.run(command, input=text, capture_output=True, timeout=PATIENCE, check=True)
    assert ended.stdout.endswith(b"0\n1\n\xff\n-\n")


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ("stauts", "did you mean status?"),
        ("put news it's", "no closing quotation"),
        ("help nothing", "unknown command 'nothing'"),
        ("get news --count 0", "argument -n/--count"),
    ],
)
def test_invalid_line_is_a_usage_error(node: Process, line: str, fact: str) -> None:
    ended = piped(node, f"{line}\n")
    assert (ended.returncode, ended.stdout) == (ExitStatus.USAGE, "")
    assert fact in ended.stderr


def test_help_lists_all_commands_or_explains_one_command(node: Process) -> None:
    ended = piped(node, "help\nhelp topics\nhelp watch\n")
    for word in ("put", "get", "unwatch", "usage: topic list", "usage: watch"):
        assert word in ended.stdout
    assert "--server" not in ended.stdout


# At a terminal

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Screen:
    """A shell at a pseudo terminal."""

    def __init__(self, node: str, home: Path, *flags: str) -> None:
        self._master, slave = pty.openpty()
        take_it = (
            "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
            "os.execv(sys.executable, [sys.executable, '-m', 'oncecast', 'shell', *sys.argv[1:]])"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", take_it, "--server", node, *flags],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            # No cursor position requests, which this terminal would not answer.
            env={
                **os.environ,
                "TERM": "xterm",
                "XDG_STATE_HOME": str(home),
                "PROMPT_TOOLKIT_NO_CPR": "1",
            },
        )
        fcntl.ioctl(slave, termios.TIOCSWINSZ, b"\x32\x00\xc8\x00\x00\x00\x00\x00")
        os.close(slave)
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def see(self, pattern: str, patience: float = PATIENCE) -> str:
        """Wait for `pattern`, without escape sequences. Return it, and drop the text to its end."""
        deadline = time.monotonic() + patience
        while (found := re.search(pattern, self.seen)) is None:
            ready, _, _ = select.select([self._master], [], [], deadline - time.monotonic())
            assert ready, f"no {pattern!r} in {self.seen!r}"
            try:
                text = os.read(self._master, 65_536).decode(errors="replace")
                self.seen = ESCAPES.sub("", self.seen + text)
            except OSError:  # the other end is closed
                raise AssertionError(f"ended without {pattern!r}: {self.seen!r}") from None
        self.seen = self.seen[found.end() :]
        return found[0]

    def interrupt(self, expected: str) -> None:
        """Press Ctrl-C up to three times until `expected` appears: the command may start late."""
        for patience in (1.0, 1.0, PATIENCE):
            self.type("\x03")
            try:
                self.see(expected, patience)
            except AssertionError:
                if patience == PATIENCE:
                    raise
            else:
                return

    def do(self, line: str, expected: str) -> str:
        self.see("oncecast>")
        self.type(f"{line}\n")
        return self.see(expected)

    def end(self) -> int:
        deadline = time.monotonic() + PATIENCE
        while True:  # unread output would block the shell
            ready, _, _ = select.select([self._master], [], [], deadline - time.monotonic())
            assert ready, "the shell does not end"
            try:
                if not os.read(self._master, 65_536):
                    break
            except OSError:
                break
        os.close(self._master)
        return self.process.wait(PATIENCE)


@contextmanager
def screen(node: str, home: Path, *flags: str) -> Iterator[Screen]:
    made = Screen(node, home, *flags)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.kill()
            made.end()


@pytest.fixture
def shell(node: Process, tmp_path: Path) -> Iterator[Screen]:
    with screen(f"127.0.0.1:{node.port}", tmp_path) as made:
        yield made


def test_tab_completes_commands_and_topics_that_contain_spaces(
    shell: Screen, oncecast: Command
) -> None:
    oncecast("sub", "a topic with blanks")
    oncecast("put", "a topic with blanks", "found")
    shell.see("Connected to 127")
    shell.see("oncecast>")
    shell.type("ge\t")
    shell.see("ge ?t")  # a completion may be drawn as the rest of the word
    shell.type("a\\ topic\t")
    shell.see("blanks")
    shell.type("\n")
    shell.see(r"\r\nfound\r\n")
    shell.see("oncecast>")
    shell.type("\x04")
    assert shell.end() == ExitStatus.OK


def test_watched_messages_appear_above_the_line_being_typed(
    shell: Screen, oncecast: Command
) -> None:
    oncecast("sub", "watched")
    shell.do("watch watched", "watching; messages are acknowledged when shown")
    shell.see("oncecast>")
    shell.type("lag wat")
    shell.see("lag wat")
    oncecast("put", "watched", "first", "\x1b[2Jsecond")
    shell.see(r"watched 0: first\r\nwatched 1: \\x1b\[2Jsecond\r\noncecast> lag wat")
    shell.type("ched\n")
    shell.see(r"\r\n\d\r\n")
    shell.do("get watched", "is being watched; run `unwatch` first")
    shell.do("unwatch watched", "no longer watched")
    shell.do("lag watched", r"\r\n0\r\n")
    shell.do("exit", "")
    assert shell.end() == ExitStatus.OK


def test_watch_ends_with_a_message_when_the_subscription_is_deleted(
    shell: Screen, oncecast: Command
) -> None:
    oncecast("sub", "let go")
    shell.do('watch "let go"', "watching; messages are acknowledged when shown")
    oncecast("unsub", "let go")
    shell.see("let go: no longer watched: topic 'let go' does not exist")
    shell.see("oncecast>")  # until then the terminal may swallow Ctrl-D
    shell.type("\x04")
    assert shell.end() == ExitStatus.OK


def test_ctrl_c_drops_a_line_or_cancels_a_command_without_ending_the_shell(
    shell: Screen, oncecast: Command
) -> None:
    oncecast("sub", "quiet")
    shell.see("oncecast>")
    shell.type("nonsense")
    shell.see("nonsense")
    shell.interrupt(r"\n(?=\S*oncecast>)")
    shell.do("get quiet --timeout inf", "inf")
    wait_for_reader(oncecast, "quiet")
    shell.interrupt("interrupted; the command may still take effect")
    oncecast("put", "quiet", "after all")
    shell.do("get quiet", r"\r\nafter all\r\n")
    shell.see("oncecast>")
    shell.type("\x04")
    assert shell.end() == ExitStatus.OK


def test_pasted_lines_run_one_after_the_other(shell: Screen, oncecast: Command) -> None:
    oncecast("sub", "pasted")
    shell.see("oncecast>")
    shell.type("\x1b[200~put pasted one\nget pasted\n\x1b[201~\n")
    shell.see(r"\r\n0\r\none\r\n")
    shell.see("oncecast>")
    shell.type("\x04")
    assert shell.end() == ExitStatus.OK


def wait_for_reader(oncecast: Command, topic: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while '"attached":true' not in oncecast("subs", "list", topic, "--json")[1]:
        assert time.monotonic() < deadline


def test_history_is_kept_in_the_state_directory(node: Process, tmp_path: Path) -> None:
    """SVC-12: the shell also stores its history in the state directory."""
    address, state = f"127.0.0.1:{node.port}", tmp_path / "state"
    for _ in range(2):
        with screen(address, tmp_path, "--state", str(state), "--name", "ann") as shell:
            shell.see("oncecast>")
            shell.type("sub kept\n" if not state.joinpath("history").exists() else "\x10\n")
            shell.see("kept: subscription default")
            shell.see("oncecast>")
            shell.type("\x04")
            assert shell.end() == ExitStatus.OK
    assert state.joinpath("history").read_text() == "sub kept\nsub kept\n"
    assert state.joinpath("history").stat().st_mode & 0o777 == 0o600


def test_lost_connection_is_reported_and_restored(tmp_path: Path) -> None:
    """SVC-11: a watch continues, and a command waits until the node is back."""
    data = ("--data", str(tmp_path / "data"))
    node = Process(*data)
    address = f"127.0.0.1:{node.port}"
    try:
        with screen(address, tmp_path) as shell:
            shell.do("sub news", "created")
            shell.do("watch news", "watching; messages are acknowledged when shown")
            shell.see("oncecast>")
            node.end(signal.SIGKILL)
            close(node)
            shell.see("connection lost; reconnecting")
            shell.type("put news again\n")
            shell.see("put news again\r+\n")
            node = Process(*data, "--listen", address)
            shell.see("reconnected")
            shell.see("news 0: again")
            shell.see("oncecast>")
            shell.type("\x04")
            assert shell.end() == ExitStatus.OK
    finally:
        node.process.kill()
        node.process.wait(PATIENCE)
        close(node)


def test_shell_starts_without_a_node_and_connects_later(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    node = Process(*data)
    address = f"127.0.0.1:{node.port}"
    node.end(signal.SIGTERM)
    close(node)
    with screen(address, tmp_path) as shell:
        shell.see("start a node with `oncecast serve`")
        shell.see("oncecast>")
        node = Process(*data, "--listen", address)
        try:
            shell.type("status\n")
            shell.see(r"version +\d")
            shell.see("oncecast>")
            shell.type("\x04")
            assert shell.end() == ExitStatus.OK
        finally:
            node.process.kill()
            node.process.wait(PATIENCE)
            close(node)


def test_shell_with_an_invalid_address_exits_with_an_error(tmp_path: Path) -> None:
    with screen("nowhere", tmp_path) as shell:
        shell.see("'nowhere' is not a valid address")
        assert shell.end() == ExitStatus.USAGE
