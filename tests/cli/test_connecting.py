"""Timeouts and error messages of commands that talk to a node."""

from __future__ import annotations

import logging
import socket
import threading
from contextlib import suppress

import pytest

from oncecast.cli import connecting
from oncecast.cli.connecting import ANSWER_TIMEOUT, client_of, counted, leaderless, parted, table
from oncecast.cli.main import build_parser, main
from oncecast.errors import DISK, ExitStatus, NotConnected, Overloaded, TimedOut


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("get t", ANSWER_TIMEOUT),  # a zero timeout skips the wait for messages, not for the answer
        ("get t --timeout inf", ANSWER_TIMEOUT),
        ("get t --timeout 3", 3.0),  # without a quorum the command would wait much longer
        ("get t --timeout 0.1", 1.0),
        ("put t x", ANSWER_TIMEOUT),
        ("put t x --timeout 3", 3.0),
        ("cluster leave --timeout 5", 5.0),
    ],
)
def test_answer_timeout_follows_the_command_timeout(words: str, seconds: float) -> None:
    """CLI-3 SVC-7"""
    assert client_of(build_parser().parse_args(words.split()))._options.timeout == seconds


def test_late_put_is_not_reported_as_in_flight_after_the_command_has_ended() -> None:
    """SVC-7: the client is closed, so no caller can flush the message."""
    parse = build_parser().parse_args
    late = Overloaded(DISK).within("not stored")
    late.in_flight = True
    reported = parted(late, parse(["put", "t", "x"]))
    assert str(reported).startswith(
        "not stored: the node's disk is full; outcome unknown: check the topic"
    )
    assert isinstance(reported, Overloaded)
    reported = parted(late, parse(["put", "t", "x", "--state", "s"]))
    assert "the next put with this --state" in str(reported)
    assert parted(other := TimedOut("no answer"), parse(["status"])) is other


def test_put_without_a_leader_reports_an_unknown_outcome() -> None:
    """SVC-7: otherwise the user might put the message twice."""
    parse = build_parser().parse_args
    put = TimedOut("not stored within 3 s")
    put.in_flight = True
    late = parted(put, parse(["put", "t", "x"]))
    reported = str(leaderless(late))
    assert "the group has no leader; start more nodes" in reported
    assert reported.endswith("; outcome unknown: check the topic before resending, or use --state")
    late = parted(put, parse(["put", "t", "x", "--state", "s"]))
    assert "the next put with this --state stores it" in str(leaderless(late))
    assert "outcome" not in str(leaderless(TimedOut("no answer")))


def test_control_characters_in_names_are_escaped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """CLI-3"""
    table(("topic", "next"), [("a\n\x1b[31mred", 1), ("plain", 22)])
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["topic           next", "a\\n\\x1b[31mred     1", "plain             22"]


def test_foreign_server_is_reported_on_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CLI-3: log output from the network layer does not appear as a second error."""
    monkeypatch.setattr(connecting, "CONNECT_TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as other:
        answering = threading.Thread(target=answer_as_a_web_server, args=(other,))
        answering.start()
        port = other.getsockname()[1]
        assert main(["status", "--server", f"127.0.0.1:{port}"]) == ExitStatus.FAILURE
        other.shutdown(socket.SHUT_RDWR)
        answering.join()
    (line,) = capsys.readouterr().err.splitlines()
    assert "its first bytes are b'HTTP/1.1'" in line
    assert line.endswith(NotConnected.cli_remedy)
    assert logging.getLogger("oncecast").handlers  # without one, Python prints the log on stderr


def answer_as_a_web_server(server: socket.socket) -> None:
    with suppress(OSError):  # raised because the socket was shut down
        while True:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize(("count", "text"), [(0, "0 seeds"), (1, "1 seed"), (2, "2 seeds")])
def test_noun_agrees_with_its_count(count: int, text: str) -> None:
    assert counted(count, "seed") == text


def test_irregular_plural_is_used_if_given() -> None:
    assert counted(2, "process", "processes") == "2 processes"
