"""Print a trace with one line per step, followed by the step's effects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oncecast.kernel.protocol import (
    Append,
    Ask,
    Cancel,
    Effect,
    Emit,
    Later,
    Send,
    Snapshot,
    Trim,
    Unwatch,
    Value,
    Watch,
)
from oncecast.simulator.step import Step

BYTES_SHOWN = 24
ITEMS_SHOWN = 6


def lines(step: Step) -> Iterator[str]:
    yield f"{step.time:12.6f}  {step.node:<10} {step.kind:<9} {subject(step)}".rstrip()
    for effect in step.effects:
        yield f"{'':24} -> {described(effect)}"


def subject(step: Step) -> str:
    if step.kind == "receive":
        sender, message = step.subject
        return f"{brief(message)} from {sender}"
    return "" if step.subject is None else brief(step.subject)


def described(effect: Effect) -> str:
    match effect:
        case Send(to, message, after):
            return f"send {brief(message)} to {to}{waiting(after)}"
        case Emit(event, after):
            return f"emit {brief(event)}{waiting(after)}"
        case Ask(request, after):
            return f"ask {brief(request)}{waiting(after)}"
        case Append(record, number):
            return f"append {number}: {brief(record)}"
        case Snapshot(state, number):
            return f"snapshot at {number}: {brief(state)}"
        case Trim(protocol, number):
            return f"trim {protocol} before {number}"
        case Later(delay, timer):
            return f"later {brief(timer)} in {delay:g} s"
        case Cancel(timer):
            return f"cancel {brief(timer)}"
        case Watch(peer):
            return f"watch {peer}"
        case Unwatch(peer):
            return f"unwatch {peer}"


def waiting(after: int) -> str:
    return f" (after {after})" if after else ""


def brief(thing: Any) -> str:
    """Return a repr with shortened payloads and lists."""
    match thing:
        case Value():
            fields = (brief(getattr(thing, name)) for name in thing.__struct_fields__)
            return f"{type(thing).__name__}({', '.join(fields)})"
        case bytes() if len(thing) > BYTES_SHOWN:
            return f"{thing[:BYTES_SHOWN]!r}... {len(thing)} B"
        case tuple() | list():
            left_out = [f"... {len(thing)} in all"] if len(thing) > ITEMS_SHOWN else []
            return f"[{', '.join([*map(brief, thing[:ITEMS_SHOWN]), *left_out])}]"
        case str():
            return thing
        case _:
            return repr(thing)
