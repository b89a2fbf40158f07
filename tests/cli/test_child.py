"""A child process ends when the command that runs it ends."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from oncecast.cli.coordination.child import CannotRun, Child, run_until
from oncecast.network.network import run


async def never() -> None:
    await asyncio.Event().wait()


async def at_once() -> None: ...


async def written(path: Path) -> None:
    while not path.exists():  # noqa: ASYNC110, ASYNC240  # the child can only write a file
        await asyncio.sleep(0.005)


@pytest.mark.parametrize(("script", "status"), [("exit 3", 3), ("kill -9 $$", 137)])
def test_child_exit_status_follows_shell_conventions(script: str, status: int) -> None:
    assert run(run_until(never(), ("sh", "-c", script), 1.0)) == status


def test_child_is_stopped_when_the_stop_condition_is_met() -> None:
    assert run(run_until(at_once(), ("sleep", "60"), 10.0)) is None


def test_child_that_ignores_sigterm_is_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deaf = tmp_path / "deaf"

    async def scenario() -> None:
        async with Child(("sh", "-c", f"trap '' TERM; : > {deaf}; sleep 60"), 0.05):
            await written(deaf)

    run(scenario())
    assert capsys.readouterr().err == "oncecast: sh did not exit within 0.05 s and was killed\n"


def test_second_cancellation_kills_the_child(tmp_path: Path) -> None:
    """The lock is released after a second Ctrl-C, so the child must be gone."""
    deaf, reported = tmp_path / "deaf", tmp_path / "reported"
    ignore = f"trap ': > {reported}' TERM; echo $$ > {deaf}.new; mv {deaf}.new {deaf}"
    script = f"{ignore}; while :; do sleep 0.01; done"

    async def scenario() -> None:
        running = asyncio.create_task(run_until(never(), ("sh", "-c", script), 60.0))
        await written(deaf)
        running.cancel()
        await written(reported)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    run(scenario())
    with pytest.raises(ProcessLookupError):
        os.kill(int(deaf.read_text()), 0)


@pytest.mark.long
def test_child_ends_only_after_its_own_children(tmp_path: Path) -> None:
    ready, tidied = tmp_path / "ready", tmp_path / "tidied"
    tidy = f"trap 'sleep 0.1; : > {tidied}; exit' TERM; : > {ready}"
    script = f"({tidy}; while :; do sleep 0.01; done) & wait"

    async def scenario() -> None:
        async with Child(("sh", "-c", script), 60.0):
            await written(ready)

    run(scenario())
    assert tidied.exists()


def test_child_is_stopped_if_cancelled_while_it_starts(tmp_path: Path) -> None:
    pid = tmp_path / "pid"

    async def scenario() -> None:
        starting = asyncio.create_task(
            Child(("sh", "-c", f"echo $$ > {pid}; exec sleep 60"), 1.0).__aenter__()
        )
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    run(scenario())
    if pid.exists() and pid.read_text():  # otherwise it was stopped before it could write
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid.read_text()), 0)


def test_command_that_cannot_run_is_reported(tmp_path: Path) -> None:
    for command, status in (("no-such-command", 127), (str(tmp_path), 126)):
        with pytest.raises(CannotRun, match="put an executable command after --") as error:
            run(run_until(never(), (command,), 1.0))
        assert error.value.status == status
