"""Turn histories of client operations, and counterexamples of their check, into a recording."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from oncecast.history.finding import Finding
from oncecast.history.operation import History
from oncecast.history.timeline import Names
from oncecast.playback.recording import NONE, Operation, Recording, Step, Violation

OPERATIONS_MAX = 100_000


def operations_of(history: History, blamed: Iterable[object] = ()) -> list[Operation]:
    """Return the operations for the page, ordered by the times of their calls."""
    names, marked = Names(history), {id(each) for each in blamed}
    return [
        Operation(
            client=each.client,
            kind=each.kind,
            text=names.line(each),
            call=each.call,
            returned=NONE if each.returned is None else each.returned,
            error=each.error,
            blamed=id(each) in marked,
        )
        for each in sorted(history, key=lambda each: each.call)
    ]


def record(title: str, history: History, findings: Sequence[Finding]) -> Recording:
    """Return a recording of a history. The operations of the findings are marked."""
    blamed = [each for finding in findings for each in finding.operations]
    found = operations_of(history, blamed)
    recording = Recording(title=title, source="history")
    if len(found) > OPERATIONS_MAX:
        kept = found[-OPERATIONS_MAX:]
        marked = [each for each in found[:-OPERATIONS_MAX] if each.blamed]
        recording.notes.append(
            f"The history is long: only the last {OPERATIONS_MAX:,} of {len(found):,} operations "
            "are shown, and those of the counterexamples."
        )
        found = marked + kept
    recording.notes.append(
        "A history has the operations of clients. It has no messages and no state of nodes."
    )
    fill(recording, found)
    if findings:
        times = [each.returned for each in found if each.blamed] or [recording.begin]
        text = "\n".join(f"{each.what}: {each.why}" for each in findings)
        recording.violation = Violation(text, max(recording.begin, *times))
        recording.violation.related = [
            number for number, step in enumerate(recording.steps) if step.effects == (BLAMED,)
        ]
    return recording


BLAMED = "belongs to the counterexample"


def fill(recording: Recording, operations: list[Operation]) -> None:
    """Add operations, and a step for each call and each return."""
    recording.operations = operations
    events: list[tuple[float, int, str]] = []
    for number, each in enumerate(operations):
        recording.nodes.setdefault(each.client)
        instant = each.returned == each.call
        events.append((each.call, number, "event" if instant else "call"))
        if each.returned >= 0 and not instant:
            events.append((each.returned, number, "return"))
    events.sort()
    calls: dict[int, int] = {}
    for at, (time, number, kind) in enumerate(events):
        each = operations[number]
        calls.setdefault(number, at)
        recording.steps.append(
            Step(
                time=time,
                node=each.client,
                kind=kind,
                text=each.text,
                effects=(BLAMED,) if each.blamed else (),
                cause=calls[number] if kind == "return" else NONE,
                name=each.kind,
            )
        )
    if events:
        recording.begin, recording.end = events[0][0], events[-1][0]
