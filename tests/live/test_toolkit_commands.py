"""Test the commands keep, lock, elect and queue with a keeper in its own process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncecast.cli.coordination import membership
from oncecast.cli.main import main
from oncecast.errors import ExitStatus
from tests.live.test_coordination import free_addresses

pytestmark = pytest.mark.long

PATIENCE = 30.0
Command = Callable[..., tuple[int, str, str]]


@contextmanager
def process(*words: str) -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        [sys.executable, "-m", "oncecast", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def line_of(started: subprocess.Popen[str]) -> str:
    assert started.stdout is not None
    return started.stdout.readline().strip()


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, str]]:
    """Run a keeper. Yield its process id and its address."""
    (address,) = free_addresses(1)
    data = str(tmp_path_factory.mktemp("keeper") / "data")
    with process("keep", "--listen", address, "--data", data) as started:
        assert started.stderr is not None
        assert started.stderr.readline() == f"oncecast: keeper {address} is running (one of 1)\n"
        yield started.pid, address
        started.send_signal(signal.SIGTERM)
        assert started.wait(PATIENCE) == ExitStatus.OK


@pytest.fixture
def oncecast(
    keeper: tuple[int, str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """Return a function that runs a command and returns its status, stdout and stderr."""
    monkeypatch.setenv("ONCECAST_PEERS", keeper[1])

    def run(*words: str) -> tuple[int, str, str]:
        status = main(words)
        captured = capfd.readouterr()
        return status, captured.out, captured.err

    return run


# queue


def test_queue_elements_are_put_peeked_and_taken_once(oncecast: Command) -> None:
    """DDS-5"""
    values = ["one", "two words", "ü"]
    assert oncecast("queue", "put", "jobs", *values) == (ExitStatus.OK, "", "")
    status, out, _ = oncecast("queue", "stats", "jobs", "--json")
    stats = json.loads(out)
    assert (status, stats["queue"], stats["length"]) == (ExitStatus.OK, "jobs", 3)
    assert (len(stats["keepers"]), stats["keepers_away"], stats["others"]) == (1, [], 0)
    status, out, _ = oncecast("queue", "peek", "jobs", "-n", "3", "--json")
    assert [json.loads(line)["value"] for line in out.splitlines()] == values
    status, out, _ = oncecast("queue", "take", "jobs", "-n", "3")
    assert (status, sorted(out.splitlines())) == (ExitStatus.OK, sorted(values))
    status, out, err = oncecast("queue", "take", "jobs", "--timeout", "0.1")
    assert (status, out) == (ExitStatus.EMPTY, "")
    assert "queue 'jobs' is empty" in err


def test_queue_put_takes_each_line_of_standard_input_as_an_element(
    oncecast: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(200))
    (tmp_path / "lines").write_bytes(lines + b"\xff")
    with (tmp_path / "lines").open("rb") as file:
        monkeypatch.setattr(sys, "stdin", file)
        status, out, _ = oncecast("queue", "put", "lines", "-", "--json")
    assert (status, json.loads(out)) == (ExitStatus.OK, {"queue": "lines", "put": 201})
    status, out, _ = oncecast("queue", "take", "lines", "--count", "201", "--json")
    taken = [json.loads(line)["value"] for line in out.splitlines()]
    assert taken.count({"base64": "/w=="}) == 1
    assert {each for each in taken if isinstance(each, str)} == set(lines.decode().splitlines())


# lock


def test_lock_run_runs_a_command_under_the_lock_and_returns_its_status(oncecast: Command) -> None:
    """DDS-4"""
    tokens = []
    for status in (0, 7):
        script = f"echo $ONCECAST_LOCK $ONCECAST_TOKEN; exit {status}"
        found, out, _ = oncecast("lock", "run", "door", "--", "sh", "-c", script)
        name, token = out.split()
        assert (found, name) == (status, "door")
        tokens.append(int(token))
    assert tokens[0] < tokens[1]
    status, _, err = oncecast("lock", "run", "door", "--", "no-such-command")
    assert (status, "after --" in err) == (127, True)


def held(keeper: str, *options: str) -> list[str]:
    script = "echo $ONCECAST_TOKEN $$; exec sleep 60"
    return ["lock", "run", "gate", "--peers", keeper, *options, "--", "sh", "-c", script]


def test_next_lock_holder_after_a_kill_gets_a_higher_token(
    keeper: tuple[int, str], oncecast: Command
) -> None:
    """DDS-4: the next holder waits for the killed holder's lease, not for its own.

    The killed holder's command continues with a stale token.
    """
    with process(*held(keeper[1], "--lease", "1", "--grace", "0.1")) as holder:
        token, orphan = map(int, line_of(holder).split())
        status, _, err = oncecast("lock", "run", "gate", "--timeout", "0.1", "--", "true")
        assert (status, "not free" in err) == (ExitStatus.EMPTY, True)
        holder.kill()
        show = ("sh", "-c", "echo $ONCECAST_TOKEN")
        status, out, _ = oncecast("lock", "run", "gate", "--lease", "60", "--", *show)
        os.kill(orphan, signal.SIGKILL)
        assert (status, int(out) > token) == (ExitStatus.OK, True)


def test_stopped_lock_holder_stops_its_command_and_releases_the_lock(
    keeper: tuple[int, str], oncecast: Command
) -> None:
    with process(*held(keeper[1], "--lease", "60")) as holder:
        child = int(line_of(holder).split()[1])
        holder.send_signal(signal.SIGTERM)
        assert holder.wait(PATIENCE) == 128 + signal.SIGTERM
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)
    assert oncecast("lock", "run", "gate", "--", "true")[0] == ExitStatus.OK


def test_command_is_stopped_when_the_lease_expires(keeper: tuple[int, str]) -> None:
    """DDS-4"""
    with process(*held(keeper[1], "--lease", "0.5")) as holder:
        child = int(line_of(holder).split()[1])
        os.kill(keeper[0], signal.SIGSTOP)
        try:
            assert holder.stderr is not None
            err = holder.stderr.readline()
        finally:
            os.kill(keeper[0], signal.SIGCONT)
        assert holder.wait(PATIENCE) == ExitStatus.FAILURE
        assert "lock 'gate' was lost because its lease expired, and sh was stopped" in err
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)


# elect


def test_elect_runs_its_command_only_on_the_leader(oncecast: Command) -> None:
    """DDS-4"""
    addresses = free_addresses(2)

    def candidate(address: str) -> list[str]:
        group = ["--listen", address, "--peers", ",".join(addresses), "--members", "2"]
        return ["elect", "cron", *group, "--", "sh", "-c", f"echo {address}; exec sleep 60"]

    with process(*candidate(addresses[0])) as first, process(*candidate(addresses[1])) as second:
        assert line_of(first) == addresses[0]
        assert second.stderr is not None
        assert (
            second.stderr.readline() == f"oncecast: {addresses[0]} leads election 'cron'; waiting\n"
        )
        first.send_signal(signal.SIGTERM)
        assert first.wait(PATIENCE) == 128 + signal.SIGTERM
        assert line_of(second) == addresses[1]
        with process(*candidate(addresses[0])) as again:
            assert line_of(again) == addresses[0]
            reported = f"oncecast: {addresses[0]} leads election 'cron' now; sh was stopped\n"
            assert second.stderr.readline() == reported
            second.send_signal(signal.SIGTERM)
            assert second.wait(PATIENCE) == 128 + signal.SIGTERM
            again.send_signal(signal.SIGTERM)
            again.wait(PATIENCE)


# errors


def test_missing_keepers_and_members_are_reported(
    oncecast: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "JOIN_WITHIN", 0.2)
    (unused,) = free_addresses(1)
    status, _, err = oncecast("queue", "stats", "jobs", "--peers", unused)
    assert status == ExitStatus.NO_QUORUM
    assert f"only 0 of 1 keepers are reachable; missing: {unused} (Connection refused)" in err
    assert "start keepers with `oncecast keep`" in err
    alone = ("--listen", unused, "--peers", unused)
    status, _, err = oncecast(
        "elect", "x", *alone, "--members", "2", "--timeout", "0", "--", "true"
    )
    assert status == ExitStatus.NO_QUORUM
    assert f"the group has 1 of 2 members: {unused}; start" in err


def test_keeper_with_different_peers_refuses_with_a_reason(
    keeper: tuple[int, str], oncecast: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "JOIN_WITHIN", 0.2)
    (unused,) = free_addresses(1)
    status, _, err = oncecast("queue", "stats", "jobs", "--peers", f"{keeper[1]},{unused}")
    assert status == ExitStatus.NO_QUORUM
    assert f"{keeper[1]} (it was started with different --peers)" in err


def test_address_in_use_is_reported(keeper: tuple[int, str], oncecast: Command) -> None:
    """Two members cannot have the same address."""
    status, _, err = oncecast("queue", "stats", "jobs", "--listen", keeper[1])
    assert (status, "free the port" in err) == (ExitStatus.FAILURE, True)


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (("queue", "stats", "jobs", "--peers", "nowhere"), "'nowhere' is not a valid address"),
        (("queue", "stats", "jobs", "--peers", "10.0.0.1:7500"), "cannot reach 127.0.0.1:0"),
        (("keep", "--listen", "127.0.0.1:0", "--peers", "127.0.0.1:1"), "needs a fixed port"),
    ],
)
def test_unusable_address_is_a_usage_error(
    words: tuple[str, ...], reported: str, oncecast: Command
) -> None:
    status, _, err = oncecast(*words)
    assert (status, reported in err) == (ExitStatus.USAGE, True)


@pytest.mark.parametrize(
    "words", [(), ("--lease", "0", "--", "true"), ("--lease", "inf", "--", "true")]
)
def test_lock_run_without_a_command_or_with_an_invalid_lease_is_a_usage_error(
    words: tuple[str, ...],
) -> None:
    with pytest.raises(SystemExit) as end:
        main(("lock", "run", "door", *words))
    assert end.value.code == ExitStatus.USAGE
