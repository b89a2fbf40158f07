"""Run commands at a pseudo terminal with hostile messages, names and servers."""

from __future__ import annotations

import os
import pty
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from oncecast.errors import ExitStatus
from oncecast.network.framing import GREETING, PREAMBLE, frame
from oncecast.network.handshake import GREETINGS, Refusal
from tests.live.conftest import Command
from tests.live.test_serve import PATIENCE, Process

HOSTILE = "\x1b]52;c;cm0gLXJmCg==\x07\x1b[2J"  # sets the clipboard and clears the screen
SHOWN = "\\x1b]52;c;cm0gLXJmCg==\\x07\\x1b[2J"


def at_terminal(*words: str, server: str) -> tuple[int, str]:
    """Run a command whose output and errors go to a terminal. Return its status and output."""
    main, terminal = pty.openpty()
    command = [sys.executable, "-m", "oncecast", *words, "--server", server]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal, close_fds=True
    )
    os.close(terminal)
    parts = []
    try:
        while piece := os.read(main, 65_536):
            parts.append(piece)
    except OSError:  # the other end is closed
        pass
    os.close(main)
    return process.wait(PATIENCE), b"".join(parts).decode()


def test_hostile_messages_and_names_are_shown_escaped(node: Process, oncecast: Command) -> None:
    """SEC-3"""
    topic, server = f"hostile {HOSTILE}", f"127.0.0.1:{node.port}"
    assert oncecast("sub", topic)[0] == ExitStatus.OK
    assert oncecast("put", topic, HOSTILE)[0] == ExitStatus.OK
    assert at_terminal("get", topic, "--keep", server=server) == (0, f"{SHOWN}\r\n")
    assert at_terminal("get", topic, "--keep", "--raw", server=server) == (0, f"{HOSTILE}\r\n")
    assert oncecast("get", topic, "--keep")[1] == f"{HOSTILE}\n"
    for words in (
        ("topic", "list"),
        ("topic", "describe", topic),
        ("subs", "list"),
        ("sub", topic),
    ):
        status, out = at_terminal(*words, server=server)
        assert (status, "\x1b" in out) == (0, False)
        assert SHOWN in out
    status, out = at_terminal("get", topic, "--keep", "--json", server=server)
    assert (status, "\x1b" in out, "\x07" in out) == (0, False, False)


@pytest.fixture
def hostile_server() -> Iterator[str]:
    """Yield the address of a server that refuses each client with escape sequences."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()

        def refuse() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:  # the server was closed
                    return
                with client:
                    refusal = GREETINGS.encode(Refusal(HOSTILE))
                    client.sendall(PREAMBLE + frame(GREETING, refusal))
                    while client.recv(
                        65_536
                    ):  # wait until the client has read everything and closed the connection
                        pass

        thread = threading.Thread(target=refuse)
        thread.start()
        yield f"{host}:{port}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(PATIENCE)


def test_refusal_from_a_hostile_server_is_shown_escaped(hostile_server: str) -> None:
    """SEC-3"""
    status, out = at_terminal("status", "--timeout", "1", server=hostile_server)
    assert status == ExitStatus.FAILURE
    assert "\x1b" not in out
    assert SHOWN in out
