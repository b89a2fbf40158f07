"""Read the traces of a run, which are JSON lines, and audit them.

Each element must be taken exactly once. A killed process may have lost elements that it had
received but not recorded, at most one per ticket.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec


class Line(msgspec.Struct, frozen=True, tag_field="kind", tag=str.lower):
    pass


class Put(Line, frozen=True):
    element: str


class Born(Line, frozen=True):
    """A consumer with this number of tickets."""

    taker: str
    tickets: int


class Taken(Line, frozen=True):
    element: str
    taker: str


class Killed(Line, frozen=True):
    taker: str


class Settled(Line, frozen=True):
    """A keeper's record of the consumer that got an element."""

    element: str
    taker: str


AnyLine = Put | Born | Taken | Killed | Settled
encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AnyLine).decode


def read(files: Iterable[Path]) -> list[AnyLine]:
    """Return all complete lines. A killed process may leave an incomplete line."""
    return [
        _decode(line)
        for file in files
        for line in file.read_bytes().splitlines(keepends=True)
        if line.endswith(b"\n")
    ]


def audit(lines: list[AnyLine]) -> list[str]:
    """Return the violations."""
    put = Counter(each.element for each in lines if isinstance(each, Put))
    tickets = {each.taker: each.tickets for each in lines if isinstance(each, Born)}
    killed = {each.taker for each in lines if isinstance(each, Killed)}
    faults, given = _given(lines)
    taken: dict[str, str] = {}
    for each in lines:
        if isinstance(each, Taken):
            if each.element in taken:
                faults.append(
                    f"twice: {each.element}, taken by {taken[each.element]}, {each.taker}"
                )
            elif each.element not in put:
                faults.append(f"unknown: {each.element}, taken by {each.taker}")
            elif given.get(each.element) != each.taker:
                faults.append(f"not given: {each.element}, taken by {each.taker}")
            taken[each.element] = each.taker
    faults += [f"lost: {each}" for each in put if each not in taken and each not in given]
    faults += [f"put again: {each}" for each, times in put.items() if times > 1]
    along = Counter(taker for element, taker in given.items() if element not in taken)
    for taker, count in along.items():
        if taker not in killed:
            faults.append(f"unreported: {count} elements given to {taker}, which was not killed")
        elif count > tickets[taker]:
            faults.append(
                f"too many: {taker} was killed and lost {count} elements (limit {tickets[taker]})"
            )
    return faults


def _given(lines: list[AnyLine]) -> tuple[list[str], dict[str, str]]:
    """Return the elements on which the keepers disagree, and the consumer of each element."""
    given: dict[str, str] = {}
    words = [each for each in lines if isinstance(each, Settled)]
    disputed = [e.element for e in words if given.setdefault(e.element, e.taker) != e.taker]
    return [f"disputed: {each}" for each in disputed], given


# -- planted faults, to check the audit itself --


def planted(lines: list[AnyLine]) -> dict[str, list[AnyLine]]:
    """Return copies of a correct run, with one planted fault each."""
    taken = next(each for each in lines if isinstance(each, Taken))
    other = next(e.taker for e in lines if isinstance(e, Born) and e.taker != taken.taker)
    living = {e.taker for e in lines if isinstance(e, Born)}
    living -= {e.taker for e in lines if isinstance(e, Killed)}
    # If the run killed each consumer that took an element, a new one takes another.
    alive = next((e for e in lines if isinstance(e, Taken) and e.taker in living), None)
    last = alive or Taken("alive/1", "alive")
    more: list[AnyLine] = [] if alive else [Born("alive", 1), Put("alive/1")]
    more += [] if alive else [Settled("alive/1", "alive")]
    victim = Born("victim", 1)
    along: list[AnyLine] = [Put("x/1"), Put("x/2"), Settled("x/1", "victim")]

    def without(gone: Callable[[AnyLine], bool]) -> list[AnyLine]:
        return [each for each in lines if not gone(each)]

    def is_of(element: str, *kinds: type[Line]) -> Callable[[AnyLine], bool]:
        return lambda each: isinstance(each, kinds) and getattr(each, "element", "") == element

    return {
        "lost": without(is_of(taken.element, Taken, Settled)),
        "twice": [*lines, Taken(taken.element, other)],
        "unknown": [*lines, Taken("nobody/1", taken.taker)],
        "not given": [*without(is_of(taken.element, Taken)), Taken(taken.element, other)],
        "disputed": [*lines, Settled(taken.element, other)],
        "put again": [*lines, Put(taken.element)],
        "unreported": [*without(is_of(last.element, Taken)), *more],
        "too many": [*lines, victim, Killed("victim"), *along, Settled("x/2", "victim")],
    }


def blind_to(lines: list[AnyLine]) -> list[str]:
    """Return the planted faults that the audit misses."""
    return [
        name
        for name, faulty in planted(lines).items()
        if {fault.partition(":")[0] for fault in audit(faulty)} != {name}
    ]
