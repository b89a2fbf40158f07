"""`oncecast cluster` on a ring of three real processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncecast import blocking
from oncecast.cli.main import main
from oncecast.errors import ExitStatus, InvalidArgument
from tests.live.replicas import PATIENCE, until

pytestmark = pytest.mark.long

TOPICS = [f"topic-{number}" for number in range(8)]


@pytest.fixture
def reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Run a ring and return the output of `cluster up`."""
    command = [sys.executable, "-m", "oncecast", "cluster", "up", "-n", "3", "--own-group"]
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(
            [*command, "--json", "--data", str(tmp_path / "ring")],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            reported: dict[str, Any] = json.loads(process.stdout.readline())
            monkeypatch.setenv("ONCECAST_SERVER", reported["server"])
            yield reported
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == ExitStatus.OK


def test_commands_inspect_and_change_a_ring(
    reported: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """CLI-3 REP-6 NET-5: inspect the ring from any process, read by push, and leave."""

    def run(*words: str) -> tuple[int, list[Any]]:
        """Return the exit status and the output."""
        status = main((*words, "--json"))
        return status, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    first, second, third = reported["server"].split(",")
    for address in (first, second, third):
        status, (seen,) = run("cluster", "status", "--server", address)
        assert (status, seen["node"], seen["whole"], seen["led"]) == (0, address, True, True)
        assert {each["process"] for each in seen["processes"]} == {first, second, third}
    status, groups = run("cluster", "ring")
    assert status == ExitStatus.OK
    assert sum(each["share"] for each in groups) == pytest.approx(1.0)
    assert all(len(each["replicas"]) == 3 for each in groups)

    # The topics of all groups are listed by name.
    with blocking.connect(second) as client:
        for topic in TOPICS:
            client.create_topic(topic)
        assert [each.name for each in client.topics()] == TOPICS
        assert [each.name for each in client.topics("topic-3")] == ["topic-3"]
        assert client.ping().node == second
        with pytest.raises(InvalidArgument, match=r"is a process of a ring.*connect to a replica"):
            client.group()

    # A reader is in the tree of its topic, at the process it is connected to.
    with (
        blocking.connect(third) as client,
        client.subscribe("topic-3", "r", push=True) as reading,
    ):
        client.put("topic-3", b"x")
        assert [each.value for each in reading.get_many(1, PATIENCE)] == [b"x"]

        def tree() -> dict[str, Any] | None:
            (found,) = run("cluster", "tree", "topic-3")[1]
            return found if found["tree"] is not None else None

        found = until("there is a tree", tree)
    assert found["owner"] in [each["group"] for each in groups]
    assert third in json.dumps(found["tree"])
    assert run("cluster", "tree", "missing")[0] == ExitStatus.NOT_FOUND

    # The group commands work on one group in the ring.
    group, successor = groups[0]["group"], groups[1]["process"]
    status, members = run("cluster", "members", "--group", group)
    assert (status, len(members)) == (ExitStatus.OK, 3)
    status, (seen,) = run("cluster", "transfer-leader", successor, "--group", group)
    assert (status, seen["leader"]) == (ExitStatus.OK, f"{successor}/{group}")

    # Automated clients read by push, and a process leaves.
    assert run("load", "--publishes", "200", "--topics", "3", "--push")[0] == ExitStatus.OK
    status, (left,) = run("cluster", "leave", "--server", second)
    assert (status, left["process"], left["left"]) == (ExitStatus.OK, second, True)
    assert f"{second} has left" in until("the process has left", lambda: output(tmp_path / "log"))
    with blocking.connect(first) as client:
        assert [each.name for each in client.topics()] == TOPICS


def output(log: Path) -> str | None:
    return log.read_text() or None
