"""Fixtures for a node in its own process, and for commands that talk to it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest

from oncecast.cli.main import main
from tests.live.test_serve import Process

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    process = Process("--data", str(tmp_path_factory.mktemp("node") / "data"))
    yield process
    assert process.end(signal.SIGTERM) == 0
    assert process.process.stderr is not None
    process.process.stderr.close()


@pytest.fixture
def oncecast(
    node: Process, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """Return a function that runs a command and returns its status, stdout and stderr."""
    monkeypatch.setenv("ONCECAST_SERVER", f"127.0.0.1:{node.port}")

    def run(*words: str) -> tuple[int, str, str]:
        status = main(words)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run
