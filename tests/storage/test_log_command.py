"""Test `oncecast log` with text and JSON output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from oncecast.cli.main import main
from oncecast.errors import ExitStatus
from oncecast.storage.disk import OsDisk
from oncecast.storage.log import Log


def a_log(path: Path, *, close: bool = True) -> Log:
    disk = OsDisk(path)
    log = Log.open(disk, segment_bytes=4096)
    log.append(msgspec.msgpack.encode({"kind": "accept", "ballot": [1, "a"], "value": b"\x00\xff"}))
    for _ in range(100):
        log.append(bytes(range(100)))
        log.sync()
    if close:
        log.close()
        disk.close()
    return log


def harm(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 4
    path.write_bytes(data)


def test_verify_shows_the_segments_of_an_intact_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_log(tmp_path)
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    assert main(["log", "verify", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert "00000001.log" in out
    assert "records 1 to 101" in out
    assert out.endswith("no damage\n")
    assert err == ""
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before


def test_verify_names_the_damaged_file_byte_and_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_log(tmp_path)
    harm(tmp_path / "00000002.log", 56 + 40 + 50)
    assert main(["log", "verify", str(tmp_path), "--json"]) == 1
    out, err = capsys.readouterr()
    report = json.loads(out)
    (damage,) = report["damage"]
    assert damage["file"] == "00000002.log"
    assert damage["offset"] == 56
    assert damage["first"] == damage["last"] == report["segments"][1]["first"]
    assert f"record {damage['first']} is lost" in err


def test_verify_runs_while_a_node_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = a_log(tmp_path, close=False)
    log.append(b"written, not synced")
    log.write()
    assert main(["log", "verify", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["last"] == 102
    log.close()


def test_verifying_a_missing_log_exits_with_status_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["log", "verify", str(tmp_path / "none")]) == 3
    assert main(["log", "verify", str(tmp_path)]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "does not exist" in err
    assert "no log found" in err


@pytest.mark.long
def test_dump_stops_when_its_reader_stops(tmp_path: Path) -> None:
    """CLI-3: a closed pipe does not count as damage."""
    a_log(tmp_path)
    reader, writer = os.pipe()
    os.close(reader)
    words = [sys.executable, "-m", "oncecast", "log", "dump", str(tmp_path)]
    done = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (ExitStatus.BROKEN_PIPE, b"")


def test_dump_shows_messages_readably_and_other_bytes_in_hex(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_log(tmp_path)
    assert main(["log", "dump", str(tmp_path), "--to", "2"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert "{'kind': 'accept', 'ballot': [1, 'a'], 'value': b'\\x00\\xff'}" in first
    assert "00010203 04050607" in second
    assert second.split()[:3] == ["2", "100", "B"]


def test_dump_skips_and_reports_damaged_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_log(tmp_path)
    harm(tmp_path / "00000002.log", 56 + 40 + 50)
    assert main(["log", "dump", str(tmp_path), "--from", "20", "--to", "40", "--json"]) == 1
    out, err = capsys.readouterr()
    numbers = [json.loads(line)["number"] for line in out.splitlines()]
    (lost,) = set(range(20, 41)) - set(numbers)
    assert f"record {lost} is lost" in err
