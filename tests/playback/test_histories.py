"""WEB-3: histories and load traces become recordings."""

from __future__ import annotations

import json

import pytest

from oncecast.errors import BadHistory
from oncecast.history.check import check
from oncecast.history.operation import Operation as Recorded
from oncecast.history.operation import digests_of_values
from oncecast.playback import histories, traces
from oncecast.playback.recording import Change, Operation, Step

A, B = digests_of_values([b"a"]), digests_of_values([b"b"])


def lost_put() -> list[Recorded]:
    """Return a history in which a confirmed put is missing from a later scan."""
    return [
        Recorded("ann", "create", "t", 0.0, 0.1, topic_id=1),
        Recorded("ann", "put", "t", 1.0, 2.0, topic_id=1, offset=0, kept=True, digests=A),
        Recorded("bob", "look", "t", 3.0, 4.0, topic_id=1, first=0, next=0),
    ]


def test_counterexample_is_marked() -> None:
    """WEB-3"""
    history = lost_put()
    verdict = check(history)
    assert not verdict.ok
    recording = histories.record("ann.jsonl", history, verdict.broken)
    put, look = recording.operations[-2:]
    assert put == Operation("ann", "put", "put [a] → offset 0", 1.0, 2.0, "", blamed=True)
    assert look.text == "look → ends at 0"
    assert recording.violation is not None
    assert recording.violation.text.startswith("topic 't': not linearizable")
    assert recording.violation.time == 2.0
    kinds = [(step.time, step.node, step.kind, step.cause) for step in recording.steps[-4:]]
    last = len(recording.steps)
    assert kinds == [
        (1.0, "ann", "call", -1),
        (2.0, "ann", "return", last - 4),
        (3.0, "bob", "call", -1),
        (4.0, "bob", "return", last - 2),
    ]
    assert recording.violation.related == [last - 4, last - 3]


def trace(*lines: dict[str, object]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


PUT = {"topic": "t", "producer": "p", "sequence": 0}
READ = {"topic": "t", "subscription": "s", "session": 1, "offset": 5}
LINES = trace(
    {"time": 9.0, "kind": "begin", "format": 1},
    {"time": 10.0, "kind": "put", **PUT},
    {"time": 10.5, "kind": "put", **PUT, "sequence": 1},
    {"time": 11.0, "kind": "stored", **PUT, "offset": 5},
    {"time": 11.5, "kind": "killed", "node": "a:1"},
    {"time": 12.0, "kind": "delivery", **READ, "sequence": 0, "redelivered": False},
    {"time": 12.5, "kind": "started", "node": "a:1"},
)


def test_trace_shows_puts_events_and_killed_nodes() -> None:
    """WEB-3"""
    recording = traces.record("trace.jsonl", traces.lines(LINES + b'{"time": 13', "trace.jsonl"))
    assert recording.operations == [
        Operation("p", "put", "put 0 in t → offset 5", 10.0, 11.0),
        Operation("p", "put", "put 1 in t → no answer", 10.5),
        Operation("s of t", "delivery", "delivery offset 5 sequence 0 session 1", 12.0, 12.0),
    ]
    assert recording.steps == [
        Step(10.0, "p", "call", "put 0 in t → offset 5", name="put"),
        Step(10.5, "p", "call", "put 1 in t → no answer", name="put"),
        Step(11.0, "p", "return", "put 0 in t → offset 5", cause=0, name="put"),
        Step(11.5, "a:1", "crash", "killed"),
        Step(12.0, "s of t", "event", "delivery offset 5 sequence 0 session 1", name="delivery"),
        Step(12.5, "a:1", "start", "started"),
    ]
    assert recording.changes == [
        Change(0, "a:1", "up", 1),
        Change(3, "a:1", "up", 0),
        Change(5, "a:1", "up", 1),
    ]
    assert (recording.begin, recording.end) == (10.0, 12.5)


def test_trace_is_recognized_by_its_first_line() -> None:
    """WEB-3"""
    assert traces.is_trace(LINES.splitlines()[0])
    assert not traces.is_trace(b'{"oncecast-history": 1}\n')
    assert not traces.is_trace(b"\xff\n")


def test_damaged_trace_is_refused_with_its_line() -> None:
    """WEB-3"""
    with pytest.raises(BadHistory, match=r"a\.jsonl, line 2: not a line of a trace"):
        list(traces.lines(b'{"time": 1, "kind": "put"}\nnonsense\n', "a.jsonl"))


def test_long_history_keeps_its_last_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """WEB-3"""
    monkeypatch.setattr(histories, "OPERATIONS_MAX", 2)
    history = [Recorded("ann", "put", "t", float(at), at + 0.5) for at in range(5)]
    recording = histories.record("x", history, [])
    assert [each.call for each in recording.operations] == [3.0, 4.0]
    assert recording.notes[0].startswith("The history is long: only the last 2 of 5 operations")
