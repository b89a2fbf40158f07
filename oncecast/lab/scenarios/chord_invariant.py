"""Check the invariant of Zave's corrected Chord.

A ring is a list of views: each member with its successors in order. Two conditions keep a ring
connected and ordered. Each member has a live successor, and there are enough members that no list
skips. The rules repair everything else. See "Reasoning about Identifier Spaces: How to Make Chord
Correct".
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from oncecast.dht.identifiers import Key, Position, between, key_of
from oncecast.dht.member import Member
from oncecast.dht.messages import Near, Report
from oncecast.dht.status import MemberStatus
from oncecast.kernel.protocol import NodeId


class View(NamedTuple):
    """A member and its successor list, now or after a message in flight has arrived."""

    member: Position
    successors: tuple[Position, ...]


def view_to_come(member: MemberStatus, sender: NodeId, answer: Report | Near) -> View:
    """Return the view of a member after it gets an answer. Each node has one position."""
    after = Member(member.position, member.successors_max)
    if isinstance(answer, Near):
        after.join(answer.position, answer.successors)
    else:
        after.follow(Position(key_of(sender), sender), answer.successors)
    return View(member.position, after.successors)


def blind(views: Iterable[View], alive: Iterable[Key]) -> list[Position]:
    """Return the members that have no live successor."""
    living = frozenset(alive)
    return [
        view.member
        for view in views
        if all(position.id not in living for position in view.successors)
    ]


def principals(views: Iterable[View], members: Iterable[Key]) -> list[Key]:
    """Return the members that no list skips."""
    skipped: dict[Key, None] = {}
    ordered = sorted(members)
    for view in views:
        for before, after in pairwise((view.member, *view.successors)):
            for id in ordered:
                if between(before.id, id, after.id):
                    skipped[id] = None
    return [id for id in ordered if id not in skipped]


def broken(views: Iterable[View], successors_max: int, to_come: Iterable[View] = ()) -> str:
    """Return how the views break the invariant, now or later, or an empty string."""
    views = list(views)
    members = [view.member.id for view in views]
    views += to_come
    if lost := blind(views, members):
        return f"{', '.join(position.node for position in lost)} have no live successors"
    kept = principals(views, members)
    if len(kept) <= successors_max:
        needed = successors_max + 1
        return f"only {len(kept)} members are skipped by no successor list (minimum {needed})"
    return ""


def out_of_shape(views: Iterable[View], successors_max: int) -> str:
    """Describe a list that differs from the members that actually follow, or return ""."""
    views = sorted(views, key=lambda view: view.member.id)
    positions = [view.member for view in views]
    for index, view in enumerate(views):
        following = (positions[index + 1 :] + positions[:index])[:successors_max]
        if view.successors != tuple(following):
            listed = ", ".join(position.node for position in view.successors)
            expected = ", ".join(position.node for position in following)
            return f"{view.member.node} lists {listed or 'no member'}, expected {expected}"
    return ""
