"""What a ring of groups looks like, told from made-up views (CLI-3)."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

import pytest

from oncecast.cli.cluster.ring import asked, chosen, grown, in_group, root_of
from oncecast.cli.cluster.ring_words import (
    HEAD,
    PLAIN_ANGLES,
    WHOLE,
    Branch,
    Ring,
    drawn,
    ring_rows,
    some,
    status_fields,
    status_words,
    tree_fields,
)
from oncecast.cli.connecting import table
from oncecast.cli.main import main
from oncecast.dht.identifiers import key_of
from oncecast.errors import ExitStatus
from oncecast.wire.frames import ArcView, ProcessView, RingView, TreeView

GROUPS = {"g-a": "2", "g-b": "4", "g-c": "c"}  # and the first digits of their positions
PROCESSES = dict(zip(GROUPS, ("h:1", "h:2", "h:3"), strict=True))


def position(digit: str) -> str:
    return digit.ljust(64, "0")


def arc(group: str, after: str, *nodes: str, leader: str = "", **facts: Any) -> ArcView:
    """Of a group whose replicas are at these processes; the first leads, unless told otherwise."""
    nodes = nodes or tuple(PROCESSES.values())
    leads = (leader or nodes[0]) if leader != "nobody" else ""
    return ArcView(
        group,
        position(GROUPS[after]) if after else "",
        position(GROUPS[group]),
        f"{leads}/{group}" if leads else "",
        tuple(f"{node}/{group}" for node in nodes),
        facts.get("applied", 7),
        facts.get("retired", False),
    )


def ring(*arcs: ArcView, away: tuple[str, ...] = (), odd: str = "") -> Ring:
    """Every process that is not away has a seat in each group; the `odd` one has another version"""
    processes = tuple(
        ProcessView(
            each, "2.0" if each == odd else "1.0", group, position(GROUPS[group]), tuple(GROUPS)
        )
        for group, each in PROCESSES.items()
        if each not in away
    )
    return Ring(RingView(1, "h:1", processes, arcs, None))


def whole(*, away: tuple[str, ...] = (), odd: str = "") -> Ring:
    arcs = (arc("g-a", "g-c"), arc("g-b", "g-a", leader="h:2"), arc("g-c", "g-b", leader="h:3"))
    return ring(*arcs, away=away, odd=odd)


# The whole


def test_a_ring_without_trouble_is_five_lines() -> None:
    assert status_words(whole()).splitlines() == [
        "ring      3 processes, 3 groups, as h:1 knows them",
        "leaders   all groups have one",
        "replicas  all groups have theirs",
        "arcs      the whole ring is owned",
        "versions  1.0",
    ]
    assert whole().serves


def test_a_process_that_is_away_leads_nothing_and_is_missed() -> None:
    seen = whole(away=("h:3",))
    assert status_words(seen).splitlines() == [
        "ring      2 processes, 3 groups, as h:1 knows them",
        "leaders   none: g-c",
        "replicas  too few: g-a (2 of 3), g-b (2 of 3), g-c (2 of 3)",
        "arcs      the whole ring is owned",
        "versions  1.0",
        "away      h:3",
    ]
    assert not seen.serves


def test_versions_that_differ_are_counted() -> None:
    assert status_words(whole(odd="h:2")).splitlines()[-1] == "versions  1.0 (2), 2.0 (1)"


def test_what_nobody_owns_is_said() -> None:
    seen = ring(arc("g-a", "g-c"), arc("g-c", "g-b"))
    assert "arcs      12.5% of the ring is nobody's: its topics cannot be reached" in status_words(
        seen
    )
    assert not seen.serves
    assert (seen.size, WHOLE) == (WHOLE - WHOLE // 8, 1 << 256)


def test_of_two_that_say_they_own_it_the_nearer_counts() -> None:
    """Who has given a part away may not have been heard of since."""
    seen = ring(arc("g-a", "g-c"), arc("g-b", "g-a"), arc("g-c", "g-a"))
    assert [each.share for each in seen.groups] == [0.375, 0.125, 0.5]
    assert seen.size == WHOLE


def test_one_group_alone_owns_all() -> None:
    assert ring(arc("g-a", "g-a")).size == WHOLE


def test_who_comes_and_who_leaves_is_named() -> None:
    seen = ring(arc("g-a", "g-c", retired=True), arc("g-b", ""), arc("g-c", "g-a"))
    assert status_words(seen).splitlines()[-2:] == [
        "leaving   g-a",
        "coming    g-b: nothing owned yet",
    ]


def test_two_processes_need_not_have_three_replicas() -> None:
    seen = ring(arc("g-a", "g-b", "h:1", "h:2"), arc("g-b", "g-a", "h:2", "h:1"), away=("h:3",))
    assert (seen.lacking, seen.serves) == ([], True)


def test_of_many_groups_some_are_named() -> None:
    assert some([str(each) for each in range(10)]) == "0, 1, 2, 3, 4, 5, 6, 7 and 2 more"


def test_the_same_in_fields() -> None:
    found = status_fields(whole(away=("h:3",)))
    assert (found["led"], found["replicated"], found["whole"]) == (False, False, True)
    assert (found["owned"], found["versions"]) == (1.0, {"1.0": 2})
    assert found["processes"][0] == {
        "process": "h:1",
        "version": "1.0",
        "group": "g-a",
        "seats": ["g-a", "g-b", "g-c"],
    }
    assert found["groups"][2] == {
        "position": position("c"),
        "process": None,
        "group": "g-c",
        "share": 0.5,
        "leader": None,
        "replicas": ["h:1", "h:2"],
        "away": ["h:3"],
        "applied": 7,
        "leaves": False,
    }


# Round the ring


def test_the_table_goes_round_the_ring(capsys: pytest.CaptureFixture[str]) -> None:
    arcs = (arc("g-c", "g-b"), arc("g-b", "", leader="nobody"), arc("g-a", "g-c", applied=12))
    table(HEAD, ring_rows(ring(*arcs, away=("h:3",))))
    assert capsys.readouterr().out.splitlines() == [
        "position  process  group  share   leader  replicas  applied",
        "20000000  h:1      g-a     37.5%  h:1     2 of 3         12",
        "40000000  h:2      g-b    none    nobody  2 of 3          7",
        "c0000000  away     g-c     50.0%  h:1     2 of 3          7",
    ]


# Trees


def part(root: bool = False, parent: str = "", *children: str, readers: int = 0) -> TreeView:
    return TreeView("news", "g-a", root, parent, children, readers)


TREE = {
    "h:1": part(True, "", "h:2", "h:3"),
    "h:2": part(False, "h:1", "h:4", readers=2),
    "h:3": part(False, "h:1", "h:5", "h:6"),
    "h:4": part(False, "h:2", readers=1),
    "h:6": part(False, "h:3", readers=3),
}


async def ask(process: str) -> TreeView | None:
    return TREE.get(process)


def test_a_tree_is_drawn_from_its_root_on() -> None:
    """NET-5"""
    tree = asyncio.run(grown(ask, "h:1", set()))
    assert list(drawn(tree)) == [
        "h:1  root, 0 readers",
        "├── h:2  2 readers",
        "│   └── h:4  1 reader",
        "└── h:3  passes on",
        "    ├── h:5  does not answer",
        "    └── h:6  3 readers",
    ]
    assert list(drawn(tree, PLAIN_ANGLES))[2] == "|   `-- h:4  1 reader"
    assert tree_fields(tree)["children"][1]["children"][0] == {
        "process": "h:5",
        "answers": False,
        "readers": None,
        "children": [],
    }


def test_only_a_root_that_says_so_has_no_tree() -> None:
    assert Branch("h:1", part(True), ()).bare
    assert not Branch("h:1", None, ()).bare
    assert not Branch("h:1", part(True, readers=1), ()).bare
    assert not Branch("h:1", part(True, "", "h:2"), (Branch("h:2", None, ()),)).bare


def test_a_tree_that_bites_its_tail_ends() -> None:
    parts = {"h:1": part(True, "", "h:2"), "h:2": part(False, "h:1", "h:1", "h:2")}

    async def ask(process: str) -> TreeView | None:
        return parts[process]

    assert asyncio.run(grown(ask, "h:1", set())) == Branch(
        "h:1", parts["h:1"], (Branch("h:2", parts["h:2"], ()),)
    )


def test_the_root_is_at_the_key_or_above_who_is_there() -> None:
    """NET-4"""
    key = key_of("news").hex()
    before, at = f"{int(key, 16) - 1:064x}", key
    processes = tuple(
        ProcessView(process, "", "", place, ())
        for process, place in (("h:9", before), ("h:4", at), ("h:8", "f" * 64))
    )
    assert asyncio.run(root_of(ask, processes, "news")) == "h:1"  # over h:2, on which h:4 hangs
    assert asyncio.run(root_of(ask, processes[:1], "news")) == "h:9"  # which is silent


def test_parents_in_a_circle_end_the_search() -> None:
    parts = {"h:1": part(False, "h:2"), "h:2": part(False, "h:1")}

    async def ask(process: str) -> TreeView | None:
        return parts[process]

    processes = (ProcessView("h:1", "", "", "0" * 64, ()),)
    assert asyncio.run(root_of(ask, processes, "news")) in parts


# What goes wrong


class Home:
    """A client that is at a process, or at a plain node."""

    def __init__(self, view: RingView) -> None:
        self.view = view

    async def ring(self) -> RingView:
        return self.view


async def unwanted(client: Any, arguments: argparse.Namespace) -> int:
    raise AssertionError("nobody was chosen")


@pytest.mark.parametrize(
    ("view", "group", "status", "fact"),
    [
        (whole().view, None, ExitStatus.USAGE, "name one with --group: g-a, g-b, g-c"),
        (
            whole().view,
            "g-x",
            ExitStatus.NOT_FOUND,
            "no group 'g-x' in this ring; choose one of g-a,",
        ),
        (
            RingView(1, "h:1", (), (), None),
            "g-a",
            ExitStatus.USAGE,
            "without --own-group; leave out",
        ),
    ],
)
def test_a_command_for_one_group_says_which_there_are(
    view: RingView,
    group: str | None,
    status: int,
    fact: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    home: Any = Home(view)
    work = in_group(unwanted)(home, argparse.Namespace(group=group))
    assert asyncio.run(_status(work)) == status
    assert fact in capsys.readouterr().err


async def _status(work: Any) -> int:
    status: int = await work
    return status


def test_a_group_without_replicas_cannot_be_asked() -> None:
    bare = ArcView("g-a", "", position("2"), "", (), 0, False)
    assert chosen((bare,), "g-a") is None
    known = asyncio.run(asked(argparse.Namespace(), ring(bare).view))
    assert [each.group for each in known.unled] == ["g-a"]


@pytest.mark.parametrize("server", [(), ("--server", "h:1,h:2"), ("--server", "h:1/g-a")])
def test_who_is_to_leave_must_be_named(
    server: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(("cluster", "leave", *server)) == ExitStatus.USAGE
    assert "name the one process that is to go: --server HOST:PORT" in capsys.readouterr().err
