"""CLI-2: run `oncecast load` against a node in its own process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oncecast.cli.load import loader
from oncecast.errors import ExitStatus
from tests.live.conftest import Command
from tests.live.test_serve import PATIENCE, Process


def lines(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_load_reports_and_traces_its_operations(oncecast: Command, tmp_path: Path) -> None:
    """CLI-2: the trace has each put, store, delivery and ack."""
    trace = tmp_path / "trace.jsonl"
    words = ("--publishes", "500", "--topics", "3", "--subscribers", "2", "--size", "64")
    status, out, err = oncecast("load", *words, "--seed", "3", "--trace", str(trace), "--json")
    assert (status, err) == (ExitStatus.OK, "")
    (report,) = lines(out)
    assert (report["puts"], report["deliveries"] + report["forgone"]) == (500, 1000)
    assert (report["lost"], report["duplicated"], report["out_of_order"]) == (0, 0, 0)

    first, *rows, last = lines(trace.read_text())
    assert (first["kind"], last["kind"], last["complete"]) == ("begin", "end", True)
    assert {row["node"] for row in rows} == {os.environ["ONCECAST_SERVER"]}
    put, stored = ids(rows, "put"), ids(rows, "stored")
    assert len(put) == len(set(put)) == 500
    assert sorted(stored) == sorted(put)
    delivered = {
        (row["topic"], row["subscription"], row["offset"]) for row in of_kind(rows, "delivery")
    }
    assert len(delivered) == report["deliveries"]
    assert delivered | forgone(rows) >= {
        (row["topic"], name, row["offset"])
        for row in of_kind(rows, "stored")
        for name in ("s0", "s1")
    }
    assert "load-" not in oncecast("topic", "list")[1]


def test_load_unsubscribes_and_subscribes_again(
    oncecast: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CLI-2, SVC-6: messages put after it subscribes again are delivered."""
    monkeypatch.setattr(loader, "RESUBSCRIBE", 0.5)
    trace = tmp_path / "trace.jsonl"
    words = ("--publishes", "2000", "--rate", "4000", "--json", "--trace", str(trace))
    status, out, _ = oncecast("load", *words)
    (report,) = lines(out)
    rows = lines(trace.read_text())[1:-1]
    assert (status, report["deliveries"] + report["forgone"]) == (ExitStatus.OK, 4000)
    assert len(of_kind(rows, "subscribe")) == 4 + len(of_kind(rows, "unsubscribe")) > 10
    assert len(forgone(rows)) >= report["forgone"] > 0


def forgone(rows: list[dict[str, Any]]) -> set[tuple[str, str, int]]:
    """Return the messages between each unsubscribe and the next subscribe."""
    since: dict[tuple[str, str], int] = {}
    found: set[tuple[str, str, int]] = set()
    for row in rows:
        key = (row["topic"], row.get("subscription", ""))
        if row["kind"] == "unsubscribe":
            since[key] = row["offset"]
        elif row["kind"] == "subscribe":
            found |= {(*key, at) for at in range(since.pop(key, 0), row["offset"])}
    return found


def test_seed_determines_the_topic_of_each_put(oncecast: Command, tmp_path: Path) -> None:
    shares = []
    for seed in ("1", "1", "2"):
        trace = tmp_path / "trace.jsonl"
        oncecast("load", "--publishes", "60", "--seed", seed, "--trace", str(trace))
        rows = of_kind(lines(trace.read_text()), "put")
        shares.append(
            sorted((row["topic"][-1], row["producer"][-2:], row["sequence"]) for row in rows)
        )
    assert shares[0] == shares[1] != shares[2]


def test_load_without_json_prints_a_table(oncecast: Command) -> None:
    status, out, _ = oncecast("load", "--publishes", "50", "--rate", "5000", "--producers", "1")
    assert status == ExitStatus.OK
    assert re.search(r"^put ms +p50 [\d.]+ +p99 [\d.]+ +max [\d.]+$", out, re.MULTILINE)
    assert re.search(r"^lost +0$", out, re.MULTILINE)


def test_negative_rate_is_rejected_and_zero_means_unlimited(
    oncecast: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    """CLI-2"""
    with pytest.raises(SystemExit):
        oncecast("load", "--rate", "-1")
    assert (
        "-1 is not a rate; use a number of puts per second, or 0 for no limit"
        in capsys.readouterr().err
    )
    assert oncecast("load", "--publishes", "20", "--rate", "0")[0] == ExitStatus.OK


def test_interrupted_load_deletes_its_topics(oncecast: Command, tmp_path: Path) -> None:
    """Otherwise its subscriptions would keep messages on the node forever."""
    trace = tmp_path / "trace"
    os.mkfifo(trace)
    words = ("load", "--publishes", "1000000", "--rate", "500", "--trace", str(trace))
    command = [sys.executable, "-m", "oncecast", *words]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as load, trace.open() as rows:
        next(row for row in rows if '"ack"' in row)
        load.send_signal(signal.SIGINT)
        *_, last = rows  # read until the load closes the trace
        assert json.loads(last)["complete"] is False
        assert load.wait(PATIENCE) == 130
    assert "load-" not in oncecast("topic", "list")[1]


def test_node_killed_under_load_neither_loses_nor_duplicates_messages(tmp_path: Path) -> None:
    """SVC-2, SVC-3, SVC-10: the node is killed with puts in flight, and restarted."""
    trace = tmp_path / "trace"
    os.mkfifo(trace)
    data = ("--data", str(tmp_path / "data"))
    node = Process(*data)
    address = f"127.0.0.1:{node.port}"
    words = ("load", "--publishes", "6000", "--json", "--server", address, "--trace", str(trace))
    command = [sys.executable, "-m", "oncecast", *words]
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as load:
            with trace.open() as rows:
                next(row for row in rows if '"ack"' in row)
                node.end(signal.SIGKILL)
                close(node)
                node = Process(*data, "--listen", address)
                rest = sum('"stored"' in row for row in rows)
            out, _ = load.communicate(timeout=PATIENCE)
    finally:
        node.process.kill()
        node.process.wait(PATIENCE)
        close(node)
    (report,) = lines(out)
    assert (load.returncode, report["deliveries"] + report["forgone"]) == (ExitStatus.OK, 12_000)
    assert rest > 0


def close(node: Process) -> None:
    assert node.process.stderr is not None
    node.process.stderr.close()


def of_kind(rows: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["kind"] == kind]


def ids(rows: list[dict[str, Any]], kind: str) -> list[tuple[str, str, int]]:
    return [(row["topic"], row["producer"], row["sequence"]) for row in of_kind(rows, kind)]
