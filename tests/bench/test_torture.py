"""Test the disk and the audit of the torture run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from bench.torture.audit import Findings, audit
from bench.torture.client import digest, value_of
from bench.torture.forgetful import ForgetfulDisk

WRITTEN = b"x" * 40960


def test_unsynced_bytes_are_readable_and_mostly_not_in_the_file(tmp_path: Path) -> None:
    """SVC-10: the disk in the torture run loses unsynced data."""
    disk = ForgetfulDisk(tmp_path)
    file = disk.open("log", create=True)
    file.write(0, [WRITTEN])
    assert file.read(0, len(WRITTEN)) == WRITTEN
    assert (tmp_path / "log").read_bytes().count(b"\0") > 0
    file.sync()
    assert (tmp_path / "log").read_bytes() == WRITTEN
    disk.close()


def test_synced_bytes_survive_a_killed_process(tmp_path: Path) -> None:
    """SVC-10: a killed process keeps synced data and loses the rest."""
    child = os.fork()
    if child == 0:
        file = ForgetfulDisk(tmp_path).open("log", create=True)
        file.write(0, [b"synced"])
        file.sync()
        file.write(6, [WRITTEN])
        os._exit(0)
    os.waitpid(child, 0)
    found = (tmp_path / "log").read_bytes()
    assert found.startswith(b"synced")
    assert b"\0" in found[6:]


class Records:
    """A topic with two writers and one reader, and what each of them recorded."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = [value_of(writer, number) for number in range(3) for writer in ("a.1", "b.1")]
        self.puts: list[dict[str, Any]] = [
            {"topic": "t", "writer": "a.1", "first": 0, "offsets": [0, 2, 4]},
            {"topic": "t", "writer": "b.1", "first": 0, "offsets": [1, 3, 5]},
        ]
        digests = [digest(value) for value in self.log]
        self.gets: list[dict[str, Any]] = [
            {"reader": "r", "topic": "t", "first": 0, "digests": digests[:2]},
            {"reader": "r", "topic": "t", "first": 2, "digests": digests[2:]},
        ]

    def audit(self) -> Findings:
        for kind, lines in (("puts", self.puts), ("gets", self.gets)):
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (self.directory / f"c-1.{kind}.jsonl").write_text(text + '{"cut off by a k')
        return audit(self.directory, {"t": self.log})


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path)


def test_correct_records_pass_the_audit(records: Records) -> None:
    findings = records.audit()
    assert (findings.lost, findings.doubled, findings.out_of_order) == (0, 0, 0)
    assert (findings.messages, findings.acknowledged, findings.delivered) == (6, 6, 6)


def test_audit_finds_a_lost_acknowledged_message(records: Records) -> None:
    records.log.pop()
    assert records.audit().lost > 0


def test_audit_finds_a_message_stored_twice(records: Records) -> None:
    records.log.append(records.log[0])
    assert records.audit().doubled == 1


def test_audit_finds_reordered_messages_from_one_writer(records: Records) -> None:
    records.log[0], records.log[2] = records.log[2], records.log[0]
    assert records.audit().out_of_order > 0


def test_audit_finds_a_gap_between_two_deliveries(records: Records) -> None:
    records.gets[1]["first"] = 3
    assert records.audit().lost > 0


def test_audit_finds_a_repeated_delivery(records: Records) -> None:
    records.gets.append(records.gets[1])
    assert records.audit().doubled > 0


def test_audit_finds_a_delivery_with_another_value(records: Records) -> None:
    records.gets[0]["digests"][1] = 0
    assert records.audit().lost > 0
