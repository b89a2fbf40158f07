"""Commands stopped by a signal acknowledge the messages that they have shown."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from oncecast import blocking
from oncecast.wire.frames import SubscriptionView
from tests.live.replicas import until
from tests.live.test_serve import PATIENCE, Process

GET = ("get", "t", "--count", "100", "--timeout", "inf")


@contextmanager
def running(node: Process, *words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "oncecast", *words, "--server", f"127.0.0.1:{node.port}"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def client(node: Process) -> Iterator[blocking.Client]:
    """Yield a client that has put three messages for subscription `default` of topic `t`."""
    with blocking.connect(f"127.0.0.1:{node.port}") as client:
        client.delete_topic("t")
        client.subscribe("t", "default").close()
        client.put_many("t", [b"1", b"2", b"3"])
        yield client


def view(client: blocking.Client) -> SubscriptionView:
    return client.describe("t").subscriptions[0]


def shown(process: subprocess.Popen[str], last: str) -> None:
    assert process.stdout is not None
    assert any(line.strip() == last for line in process.stdout)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_get_acknowledges_printed_messages(
    node: Process, client: blocking.Client, number: signal.Signals
) -> None:
    """SVC-3 CLI-3: the command acknowledges while it waits for more, and when it is stopped."""
    with running(node, *GET) as get:
        shown(get, "3")
        until("lag 0", lambda: None if view(client).lag else True)
        client.put("t", b"4")
        shown(get, "4")
        get.send_signal(number)
        assert get.wait(PATIENCE) == 128 + number
    assert (view(client).lag, view(client).attached) == (0, False)


@pytest.mark.parametrize(
    ("line", "last"), [(" ".join(GET), "3"), ("watch t", "t 2: 3")], ids=["get", "watch"]
)
def test_stopped_shell_closes_its_subscriptions(
    node: Process, client: blocking.Client, line: str, last: str
) -> None:
    """SVC-3 CLI-1"""
    with running(node, "shell") as shell:
        assert shell.stdin is not None
        shell.stdin.write(f"{line}\n")
        shell.stdin.flush()
        shown(shell, last)
        shell.send_signal(signal.SIGTERM)
        assert shell.wait(PATIENCE) == 128 + signal.SIGTERM
    assert (view(client).lag, view(client).attached) == (0, False)


def test_stopped_put_stores_the_lines_already_read(node: Process, client: blocking.Client) -> None:
    """SVC-2 CLI-3"""
    with running(node, "put", "t", "-") as put:
        assert put.stdin is not None
        put.stdin.write("a\nb\n")
        put.stdin.flush()
        shown(put, "4")
        put.send_signal(signal.SIGTERM)
        assert put.wait(PATIENCE) == 128 + signal.SIGTERM
    assert client.describe("t").next == 5
