"""Draws operations as a timeline in plain text.

    ann  ├─────┤                 put [a] → offset 7
    bob           ├─────┤        look → ends at 7

Each operation has a line: a bar from its call to its return, the request and the answer. A bar
without an end has no answer. A dot is an event that the client did not request. Bars that share
columns overlap in time. Only the order counts, not the distance. Letters stand for messages.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from math import floor, log10
from string import ascii_lowercase

from oncecast.history.operation import History, Operation, cut
from oncecast.wire.commands import FromEarliest, FromNew, FromOffset, FromTime, Start

WIDTH_MAX = 48  # maximum width of the bars, in characters
SHOWN_MAX = 4  # maximum number of messages to show for an operation
CLIENT_MAX = 24


def timeline(operations: History) -> list[str]:
    """Return the lines of the drawing, and a line with the times of the first and last event."""
    names = Names(operations)
    times = sorted({time for each in operations for time in ends(each)})
    step = max(1, min(4, WIDTH_MAX // max(1, len(times))))
    width = step * (len(times) - 1) + 2  # a bar without an end extends beyond the last event
    margin = min(CLIENT_MAX, max(len(each.client) for each in operations))
    lines = [
        f"{each.client[-margin:]:<{margin}}  {bar(each, times, step, width)}  {names.line(each)}"
        for each in operations
    ]
    return [*lines, f"{'':<{margin}}  {span_of(times[0], times[-1])}"]


def span_of(first: float, last: float) -> str:
    """Return both times, rounded to three significant digits of their difference."""
    digits = 2 - floor(log10(last - first)) if last > first else 6
    return " to ".join(f"{round(time, digits):.15g}" for time in (first, last)) + " s"


def ends(operation: Operation) -> Iterable[float]:
    returned = operation.returned
    return (operation.call,) if returned is None else (operation.call, returned)


def bar(operation: Operation, times: list[float], step: int, width: int) -> str:
    begin = step * bisect_left(times, operation.call)
    if operation.returned is None:
        drawn = "├" + "─" * (width - begin - 2) + "╌"
    else:
        end = step * bisect_left(times, operation.returned)
        drawn = "├" + "─" * (end - begin - 1) + "┤" if end > begin else "●"
    return f"{' ' * begin}{drawn}".ljust(width)


class Names:
    """Formats requests and answers, with a letter for each message."""

    def __init__(self, operations: History) -> None:
        self._letters: dict[bytes, str] = {}
        for operation in operations:
            for digest in cut(operation.digests)[:SHOWN_MAX]:
                self._letters.setdefault(digest, letters(len(self._letters)))

    def line(self, operation: Operation) -> str:
        asked = f"{operation.kind}{self._asked(operation)}"
        if operation.error:
            return f"{asked} → {operation.error}"
        if operation.returned is None:
            return f"{asked} → no answer"
        answer = ", ".join(self._answered(operation))
        return f"{asked} → {answer}" if answer else asked

    def _asked(self, operation: Operation) -> str:
        asked: list[str] = []
        if operation.subscription:
            asked.append(operation.subscription)
        if operation.source:
            asked.append(f"{operation.source} {operation.number}")
        if operation.start is not None:
            asked.append(start_of(operation.start))
        match operation.kind:
            case "put" | "stage" | "publish":
                asked.append(self._messages(operation))
            case "ack" | "leave":
                asked.append(f"all before {operation.upto} in epoch {operation.epoch}")
            case "again":
                asked.append(f"from {operation.offset} to before {operation.upto}")
            case "policy" | "create":
                asked.append("" if operation.policy is None else policy_of(operation))
            case _:
                pass
        return "".join(f" {each}" for each in asked if each)

    def _answered(self, operation: Operation) -> list[str]:
        answer: list[str] = []
        offset, kind = operation.offset, operation.kind
        match kind:
            case "put" | "publish":
                answer.append("stored somewhere" if offset < 0 else f"offset {offset}")
                if operation.kept is False:
                    answer.append("not kept")
            case "get" | "scan":
                if operation.digests:
                    answer.append(f"{offset}: {self._messages(operation)}")
                if operation.marked:
                    answer.append(f"the first {operation.marked} marked as redelivered")
            case "attach" | "moved" | "subscribe" | "seek":
                answer.append(f"cursor {offset}")
            case "skip":
                answer.append(f"{offset} to before {operation.next} are gone")
            case _:
                pass
        if operation.epoch and kind in ("attach", "moved", "seek"):
            answer.append(f"epoch {operation.epoch}")
        if operation.next >= 0 and kind in ("attach", "look", "scan"):
            answer.append(f"ends at {operation.next}")
        if operation.first > 0:
            answer.append(f"begins at {operation.first}")
        views = operation.views or ()
        answer += [f"{each.name} at {each.cursor} in epoch {each.epoch}" for each in views]
        if operation.already:
            answer.append("already")
        return answer

    def _messages(self, operation: Operation) -> str:
        names = [self._letters.get(each, "?") for each in cut(operation.digests)[:SHOWN_MAX]]
        more = operation.messages - len(names)
        return f"[{' '.join(names)}{f' and {more} more' if more else ''}]"


def letters(number: int) -> str:
    more, last = divmod(number, len(ascii_lowercase))
    return (letters(more - 1) if more else "") + ascii_lowercase[last]


def start_of(start: Start) -> str:
    match start:
        case FromNew():
            return "from the end"
        case FromEarliest():
            return "from the beginning"
        case FromOffset(offset):
            return f"from {offset}"
        case FromTime(at):
            return f"from time {at}"


def policy_of(operation: Operation) -> str:
    policy = operation.policy
    assert policy is not None
    settings = {
        "keep all": policy.keep_all,
        f"age {policy.age_us} µs": policy.age_us,
        f"{policy.bytes_max} bytes": policy.bytes_max,
        "drop unread": policy.drop_unread,
    }
    return ", ".join(text for text, so in settings.items() if so)
