"""Turn traces of `oncecast load` into a recording. docs/audit.md describes their lines.

A trace has the operations of clients, and the times at which nodes were killed and started. It has
no messages between nodes and no state of nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from oncecast.errors import BadHistory
from oncecast.playback.histories import OPERATIONS_MAX, fill
from oncecast.playback.node_state import UP
from oncecast.playback.recording import NETWORK, Change, Operation, Recording, Step

Line = dict[str, Any]
PUTS = ("put", "stored", "failed")
NODES = ("killed", "started")
NO_EVENT = ("begin", "end", "create")
NUMBERS = ("offset", "until", "sequence", "session")


def is_trace(first: bytes) -> bool:
    """Return whether a file with this first line is a trace."""
    try:
        fields = msgspec.json.decode(first)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return isinstance(fields, dict) and fields.get("kind") == "begin"


def lines(data: bytes, name: str) -> Iterator[Line]:
    """Yield the lines of a trace; an incomplete last line is ignored."""
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        try:
            fields = msgspec.json.decode(line, type=Line)
            _ = float(fields["time"]), str(fields["kind"])
        except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
            raise BadHistory(f"{name}, line {number}: not a line of a trace: {error}") from None
        yield fields


def record(title: str, found: Iterable[Line]) -> Recording:
    """Return a recording of the lines of all traces of a run."""
    entries = sorted(found, key=lambda line: line["time"])
    recording = Recording(title=title, source="trace")
    operations = list(operations_of(entries))
    recording.facts = {"operations": f"{len(operations):,}"}
    if len(operations) > OPERATIONS_MAX:
        recording.notes.append(
            f"The trace is long: only the last {OPERATIONS_MAX:,} of {len(operations):,} "
            "operations are shown."
        )
        operations = operations[-OPERATIONS_MAX:]
    recording.notes.append(
        "A trace has the operations of clients. It has no messages and no state of nodes."
    )
    fill(recording, operations)
    add_nodes(recording, entries)
    return recording


def operations_of(entries: Iterable[Line]) -> Iterator[Operation]:
    """Yield an operation for each put, and one for each event of a subscription."""
    puts: dict[tuple[str, str, int], Line] = {}
    found: list[Operation] = []
    for line in entries:
        kind = line["kind"]
        if kind == "put":
            puts[message(line)] = line
        elif kind in PUTS:
            found.append(put(puts.pop(message(line), line), line))
        elif kind not in NODES and kind not in NO_EVENT:
            found.append(event(line))
    found += [put(line, None) for line in puts.values()]
    yield from sorted(found, key=lambda each: each.call)


def message(line: Line) -> tuple[str, str, int]:
    return line.get("topic", ""), line.get("producer", ""), line.get("sequence", -1)


def put(asked: Line, answer: Line | None) -> Operation:
    topic, producer, sequence = message(asked)
    text, error, returned = f"put {sequence} in {topic}", "", -1.0
    if answer is not None:
        returned = answer["time"]
        if answer["kind"] == "failed":
            error = "outcome unknown" if answer.get("unknown") else "failed"
        text += f" → {error or 'offset ' + str(answer.get('offset', ''))}"
    else:
        text += " → no answer"
    return Operation(producer or "producer", "put", text, asked["time"], returned, error)


def event(line: Line) -> Operation:
    topic, name = line.get("topic", ""), line.get("subscription", "")
    client = f"{name} of {topic}" if name else line.get("client") or topic or "run"
    numbers = [f"{key} {line[key]}" for key in NUMBERS if line.get(key, -1) != -1]
    marks = ["again"] if line.get("redelivered") else []
    text = " ".join([line["kind"], *numbers, *marks])
    return Operation(client, line["kind"], text, line["time"], line["time"])


def add_nodes(recording: Recording, entries: Iterable[Line]) -> None:
    """Add a step for each node that was killed or started, and whether the node was up."""
    marks = [line for line in entries if line["kind"] in NODES and line.get("node")]
    if not marks:
        return
    first = min(line["time"] for line in marks)
    recording.begin = min(recording.begin, first) if recording.steps else first
    recording.end = max(recording.end, *(line["time"] for line in marks))
    steps = [(step.time, 1, step) for step in recording.steps]
    for line in marks:
        recording.nodes.setdefault(line["node"])
        kind = "crash" if line["kind"] == "killed" else "start"
        steps.append((line["time"], 0, Step(line["time"], line["node"], kind, line["kind"])))
    order = sorted(range(len(steps)), key=lambda at: steps[at][:2])
    moved = {at: number for number, at in enumerate(order)}
    recording.steps = [steps[at][2] for at in order]
    recording.steps = [
        step._replace(cause=moved[step.cause]) if step.cause >= 0 else step
        for step in recording.steps
    ]
    up = dict.fromkeys((line["node"] for line in marks), 1)
    recording.changes = [Change(0, node, UP, 1) for node in up]
    for number, step in enumerate(recording.steps):
        if step.kind in ("crash", "start") and step.node != NETWORK and step.node in up:
            recording.changes.append(Change(number, step.node, UP, int(step.kind == "start")))
