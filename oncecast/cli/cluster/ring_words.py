"""Convert a process's view of its ring to text and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from oncecast.wire.frames import ArcView, RingView, TreeView

REPLICAS = 3  # replicas per group, if the ring has enough processes
NAMED = 8  # maximum names per line; further names are only counted
WHOLE = 1 << 256  # number of ids on the ring

ANGLES = ("├── ", "│   ", "└── ", "    ")
PLAIN_ANGLES = ("|-- ", "|   ", "`-- ", "    ")  # for terminals without Unicode


class RingGroup(NamedTuple):
    """A group, its position on the ring, and the process that created it."""

    position: str
    process: str  # the process, or "" if it is not reachable
    version: str
    group: str
    size: int  # number of ids that the group owns
    leader: str  # the process that leads the group, or "" if it is unknown
    replicas: tuple[str, ...]  # reachable processes
    away: tuple[str, ...]  # unreachable processes
    applied: int
    retired: bool

    @property
    def share(self) -> float:
        return self.size / WHOLE


class Ring:
    """The groups of a ring, ordered by position."""

    def __init__(self, view: RingView) -> None:
        self.view = view
        self._seats = {each.process: each.seats for each in view.processes}
        self._founders = {each.group: each for each in view.processes}
        self._sizes = sizes(view.groups)
        self.groups = sorted(map(self._group, view.groups))
        self.unled = [each for each in self.groups if not each.leader]
        wanted = min(REPLICAS, len(view.processes))
        self.lacking = [each for each in self.groups if each.away or len(each.replicas) < wanted]
        self.size = sum(self._sizes.values())
        self.versions = Counter(each.version for each in view.processes)

    def _group(self, arc: ArcView) -> RingGroup:
        members = [node.partition("/")[0] for node in arc.nodes]
        there = [each for each in members if arc.group in self._seats.get(each, ())]
        leader = arc.leader.partition("/")[0]
        founder = self._founders.get(arc.group)
        return RingGroup(
            arc.position,
            founder.process if founder else "",
            founder.version if founder else "",
            arc.group,
            self._sizes.get(arc.group, 0),
            # The leader may have become unreachable since the view was taken.
            leader if leader in there else "",
            tuple(there),
            tuple(each for each in members if each not in there),
            arc.applied,
            arc.retired,
        )

    @property
    def serves(self) -> bool:
        """Return whether every topic belongs to a group that has a leader."""
        return not self.unled and self.size == WHOLE


def sizes(arcs: Iterable[ArcView]) -> dict[str, int]:
    """Return how many ids each group owns. If two groups claim an id, the nearer one wins."""
    owners = sorted((each for each in arcs if each.low), key=lambda each: each.position)
    return {
        arc.group: min(span(arc.low, arc.position), span(before.position, arc.position))
        for before, arc in zip(owners[-1:] + owners[:-1], owners, strict=True)
    }


def span(low: str, high: str) -> int:
    """Return the distance between two ids. An id is a whole ring away from itself."""
    return (int(high, 16) - int(low, 16)) % WHOLE or WHOLE


# `cluster status`


def status_words(ring: Ring) -> str:
    view = ring.view
    known = f"{counted(view.processes, 'process')}, {counted(view.groups, 'group')}"
    lines = [
        ("ring", f"{known}, as seen by {view.node}"),
        ("leaders", leaders_in_words(ring.unled)),
        ("replicas", lacks_in_words(ring.lacking)),
        ("arcs", arcs_in_words(ring)),
        ("versions", versions_in_words(ring.versions)),
    ]
    away = sorted({process for each in ring.groups for process in each.away})
    leaving = [each.group for each in ring.groups if each.retired]
    coming = [each.group for each in ring.groups if not each.size and not each.retired]
    if away:
        lines.append(("absent", some(away)))
    if leaving:
        lines.append(("leaving", some(leaving)))
    if coming:
        lines.append(("joining", f"{some(coming)}: own nothing yet"))
    return "\n".join(f"{name:<10}{text}" for name, text in lines)


def leaders_in_words(unled: list[RingGroup]) -> str:
    return (
        f"missing in {some([each.group for each in unled])}"
        if unled
        else "all groups have a leader"
    )


def lacks_in_words(lacking: list[RingGroup]) -> str:
    names = [f"{each.group} ({replicas_in_words(each)})" for each in lacking]
    return f"missing in {some(names)}" if lacking else "all groups are complete"


def replicas_in_words(group: RingGroup) -> str:
    return f"{len(group.replicas)} of {len(group.replicas) + len(group.away)}"


def arcs_in_words(ring: Ring) -> str:
    if ring.size == WHOLE:
        return "the whole ring is owned"
    return f"{percent(WHOLE - ring.size)} of the ring has no owner: topics there are unavailable"


def versions_in_words(versions: Counter[str]) -> str:
    if len(versions) == 1:
        return next(iter(versions))
    return ", ".join(f"{name} ({count})" for name, count in sorted(versions.items()))


def some(names: list[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def counted(things: tuple[object, ...], name: str) -> str:
    plural = "es" if name.endswith("s") else "s"
    return f"{len(things)} {name}{'' if len(things) == 1 else plural}"


def percent(size: int) -> str:
    """Return a share of the ring as text. A very small share is "<0.1%", not "0.0%"."""
    share = 100 * size / WHOLE
    return f"{share:.1f}%" if not 0 < share < 0.05 else "<0.1%"


def status_fields(ring: Ring) -> dict[str, Any]:
    return {
        "node": ring.view.node,
        "processes": [
            {
                "process": each.process,
                "version": each.version,
                "group": each.group,
                "seats": list(each.seats),
            }
            for each in ring.view.processes
        ],
        "groups": [group_fields(each) for each in ring.groups],
        "led": not ring.unled,
        "replicated": not ring.lacking,
        "owned": ring.size / WHOLE,
        "whole": ring.size == WHOLE,
        "versions": dict(ring.versions),
    }


# `cluster ring`

HEAD = ("position", "process", "group", "share", "leader", "replicas", "applied")


def ring_rows(ring: Ring) -> list[tuple[object, ...]]:
    return [
        (
            each.position[:8],
            each.process or "absent",
            each.group,
            f"{percent(each.size):>6}" if each.size else "leaving" if each.retired else "none",
            each.leader or "none",
            replicas_in_words(each),
            each.applied,
        )
        for each in ring.groups
    ]


def group_fields(group: RingGroup) -> dict[str, Any]:
    return {
        "position": group.position,
        "process": group.process or None,
        "group": group.group,
        "share": group.share,
        "leader": group.leader or None,
        "replicas": list(group.replicas),
        "away": list(group.away),
        "applied": group.applied,
        "leaves": group.retired,
    }


# `cluster tree`


class Branch(NamedTuple):
    """A process in a topic's tree, and the branches below it."""

    process: str
    part: TreeView | None  # None if the process does not answer
    branches: tuple[Branch, ...]

    @property
    def bare(self) -> bool:
        """Return whether the process is known to have no readers and no branches."""
        return self.part is not None and not self.part.readers and not self.branches


def drawn(branch: Branch, angles: tuple[str, str, str, str] = ANGLES) -> Iterator[str]:
    """Yield the lines of the tree drawing, one per process."""
    middle, beside, last, below = angles
    yield f"{branch.process}  {part_in_words(branch)}"
    for number, each in enumerate(branch.branches, 1):
        first, rest = (last, below) if number == len(branch.branches) else (middle, beside)
        head, *lines = drawn(each, angles)
        yield first + head
        yield from (rest + line for line in lines)


def part_in_words(branch: Branch) -> str:
    part = branch.part
    if part is None:
        return "does not answer"
    readers = f"{part.readers} reader{'' if part.readers == 1 else 's'}"
    if part.root:
        return f"root, {readers}"
    return readers if part.readers or not branch.branches else "forwards"


def tree_fields(branch: Branch) -> dict[str, Any]:
    return {
        "process": branch.process,
        "answers": branch.part is not None,
        "readers": branch.part.readers if branch.part is not None else None,
        "children": [tree_fields(each) for each in branch.branches],
    }
