"""What a ring of groups looks like, in words and in fields, from what one process knows. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from oncecast.wire.frames import ArcView, RingView, TreeView

REPLICAS = 3  # of a group, if there are so many processes
NAMED = 8  # groups on a line; of others only how many there are
WHOLE = 1 << 256  # ids of the ring

ANGLES = ("├── ", "│   ", "└── ", "    ")
PLAIN_ANGLES = ("|-- ", "|   ", "`-- ", "    ")  # where there are no others


class RingGroup(NamedTuple):
    """A group of the ring: its position, the process that founded it, and its replicas."""

    position: str
    process: str  # "": it is away
    version: str
    group: str
    size: int  # of what it owns
    leader: str  # the process; "": nobody
    replicas: tuple[str, ...]  # processes that are there
    away: tuple[str, ...]  # those that are not
    applied: int
    retired: bool

    @property
    def share(self) -> float:
        return self.size / WHOLE


class Ring:
    """The ring as one process sees it. `groups` are in the order of their positions."""

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
            # What is known of a leader may be older than that it is away.
            leader if leader in there else "",
            tuple(there),
            tuple(each for each in members if each not in there),
            arc.applied,
            arc.retired,
        )

    @property
    def serves(self) -> bool:
        """Whether every topic, wherever it lies, has somebody who answers for it."""
        return not self.unled and self.size == WHOLE


def sizes(arcs: Iterable[ArcView]) -> dict[str, int]:
    """How much of the ring each group owns. Of two that say so, the nearer was given it later."""
    owners = sorted((each for each in arcs if each.low), key=lambda each: each.position)
    return {
        arc.group: min(span(arc.low, arc.position), span(before.position, arc.position))
        for before, arc in zip(owners[-1:] + owners[:-1], owners, strict=True)
    }


def span(low: str, high: str) -> int:
    """From an id to itself is once round."""
    return (int(high, 16) - int(low, 16)) % WHOLE or WHOLE


# `cluster status`


def status_words(ring: Ring) -> str:
    view = ring.view
    known = f"{counted(view.processes, 'process')}, {counted(view.groups, 'group')}"
    lines = [
        ("ring", f"{known}, as {view.node} knows them"),
        ("leaders", leaders_in_words(ring.unled)),
        ("replicas", lacks_in_words(ring.lacking)),
        ("arcs", arcs_in_words(ring)),
        ("versions", versions_in_words(ring.versions)),
    ]
    away = sorted({process for each in ring.groups for process in each.away})
    leaving = [each.group for each in ring.groups if each.retired]
    coming = [each.group for each in ring.groups if not each.size and not each.retired]
    if away:
        lines.append(("away", some(away)))
    if leaving:
        lines.append(("leaving", some(leaving)))
    if coming:
        lines.append(("coming", f"{some(coming)}: nothing owned yet"))
    return "\n".join(f"{name:<10}{text}" for name, text in lines)


def leaders_in_words(unled: list[RingGroup]) -> str:
    return f"none: {some([each.group for each in unled])}" if unled else "all groups have one"


def lacks_in_words(lacking: list[RingGroup]) -> str:
    names = [f"{each.group} ({replicas_in_words(each)})" for each in lacking]
    return f"too few: {some(names)}" if lacking else "all groups have theirs"


def replicas_in_words(group: RingGroup) -> str:
    return f"{len(group.replicas)} of {len(group.replicas) + len(group.away)}"


def arcs_in_words(ring: Ring) -> str:
    if ring.size == WHOLE:
        return "the whole ring is owned"
    return f"{percent(WHOLE - ring.size)} of the ring is nobody's: its topics cannot be reached"


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
    """Not 0.0 if it is more than nothing."""
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
            each.process or "away",
            each.group,
            f"{percent(each.size):>6}" if each.size else "leaves" if each.retired else "none",
            each.leader or "nobody",
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
    """A process in the tree of a topic, with all that hangs on it; None: it does not answer."""

    process: str
    part: TreeView | None
    branches: tuple[Branch, ...]

    @property
    def bare(self) -> bool:
        """Nobody reads here, and nothing hangs on it; of who does not answer that is not known."""
        return self.part is not None and not self.part.readers and not self.branches


def drawn(branch: Branch, angles: tuple[str, str, str, str] = ANGLES) -> Iterator[str]:
    """A line for each process."""
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
    return readers if part.readers or not branch.branches else "passes on"


def tree_fields(branch: Branch) -> dict[str, Any]:
    return {
        "process": branch.process,
        "answers": branch.part is not None,
        "readers": branch.part.readers if branch.part is not None else None,
        "children": [tree_fields(each) for each in branch.branches],
    }
