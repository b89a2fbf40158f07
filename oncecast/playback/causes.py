"""Explain a violation: walk back from a step to the input that led to it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from oncecast.playback.recording import NONE, Recording, Violation

CHAIN_MAX = 200
RELATED_MAX = 120
CHANGED_MAX = 8
ABOUT_NODE = 3  # number of steps to show of each node that the violation names
# The walk ends at a step of another kind: it has no cause outside its node.
CARRIED = ("receive", "synced", "down", "start")
SLOT = re.compile(r"\bslots? (\d+)")
WORD = re.compile(r"[\w#:./-]+")


def explain(recording: Recording, violation: Violation) -> None:
    """Fill in the steps that led to a violation."""
    if violation.step != NONE:
        violation.chain = chain(recording, violation.step)
    related = sorted(set(about(recording, violation)) - set(violation.chain))
    violation.related = related[-RELATED_MAX:]


def chain(recording: Recording, number: int) -> list[int]:
    """Return the steps from an outside input to step `number`: message, send, input, and so on."""
    found = [number]
    while len(found) < CHAIN_MAX:
        step = recording.step(found[-1])
        if step is None or step.kind not in CARRIED or step.cause < recording.first:
            break
        found.append(step.cause)
    return found[::-1]


def about(recording: Recording, violation: Violation) -> Iterator[int]:
    """Yield steps about the slots and the nodes that the violation names."""
    calls = {each.call: each for each in recording.operations if each.blamed}
    for number, step in enumerate(recording.steps, recording.first):
        if (
            step.kind == "request"
            and step.time in calls
            and asks(step.node, calls[step.time].client)
        ):
            yield number
    if calls:
        return  # the operations explain the rest
    words = set(WORD.findall(violation.text.replace("'s", "")))
    nodes = [each for each in recording.nodes if each in words]
    named = {int(text) for text in SLOT.findall(violation.text)}
    changed = changed_slots(recording, nodes, max(named, default=0))
    violation.slots = sorted(named | set(changed))
    for slot in violation.slots:
        yield from about_slot(recording, slot)
    for node in nodes:
        yield from about_node(recording, node, violation.time)


def asks(node: str, client: str) -> bool:
    """Return whether a node of the simulation runs this client of a history."""
    return client.partition(" as ")[0] == node.partition("#")[0]


def changed_slots(recording: Recording, nodes: list[str], last: int) -> list[int]:
    """Return the last slots up to `last` for which one of the replicas accepted two values."""
    found: dict[int, None] = {}
    values: dict[tuple[str, int], int] = {}
    for vote in recording.votes:
        if vote.node in nodes and vote.slot <= last and vote.ballot:
            before = values.setdefault((vote.node, vote.slot), vote.checksum)
            if before != vote.checksum:
                found[vote.slot] = None
    return list(found)[-CHANGED_MAX:]


def about_slot(recording: Recording, slot: int) -> Iterator[int]:
    """Yield the steps that put a value into the slot, and those that decided it."""
    for vote in recording.votes:
        if vote.slot == slot:
            yield vote.step
    mark = f"emits Decided(slot={slot} "
    for number, step in enumerate(recording.steps, recording.first):
        if any(text.startswith(mark) for text in step.effects):
            yield number


def about_node(recording: Recording, node: str, until: float) -> Iterator[int]:
    """Yield the last starts and crashes of a node, and its last steps before the violation."""
    own = [
        (number, step.kind)
        for number, step in enumerate(recording.steps, recording.first)
        if step.node == node and step.time <= until
    ]
    yield from (number for number, kind in own[-ABOUT_NODE:])
    yield from [number for number, kind in own if kind in ("crash", "halt", "start")][-ABOUT_NODE:]
