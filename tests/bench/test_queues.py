"""Test a small queue whose consumers are killed, and the audit that finds faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.queues.__main__ import measure
from bench.queues.trace import (
    AnyLine,
    Born,
    Killed,
    Put,
    Settled,
    Taken,
    audit,
    blind_to,
    encode,
    planted,
    read,
)

LINES: list[AnyLine] = [
    *(Put(f"p/{number}") for number in (1, 2, 3)),
    Born("a", 1),
    Born("b", 1),
    Taken("p/1", "a"),
    Taken("p/2", "b"),
    Killed("a"),
    Settled("p/1", "a"),
    Settled("p/2", "b"),
    Settled("p/3", "a"),  # this element is lost with the process
]


def test_audit_finds_nothing_in_a_correct_run() -> None:
    assert audit(LINES) == []


@pytest.mark.parametrize("fault", planted(LINES))
def test_audit_names_each_injected_fault(fault: str) -> None:
    assert [each.partition(":")[0] for each in audit(planted(LINES)[fault])] == [fault]


def test_audit_that_misses_injected_faults_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    assert blind_to(LINES) == []
    monkeypatch.setattr("bench.queues.trace.audit", lambda lines: [])
    assert blind_to(LINES) == list(planted(LINES))


def test_trace_from_a_killed_process_may_end_in_the_middle_of_a_line(tmp_path: Path) -> None:
    file = tmp_path / "trace"
    file.write_bytes(encode(LINES[0]) + b"\n" + encode(LINES[1])[:7])
    assert read([file]) == LINES[:1]


@pytest.mark.long
def test_no_element_is_taken_twice_when_consumers_are_killed(tmp_path: Path) -> None:
    """DDS-5"""
    found = measure(
        tmp_path, elements=200, producers=3, consumers=3, tickets=1, kill_every=0.2, seed=7
    )
    assert (found.faults, found.blind_to) == ([], [])
    assert found.along <= found.kills
    assert found.kills > 0
