"""CLI-3: test the output of the ring commands for made-up views."""

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

GROUPS = {"g-a": "2", "g-b": "4", "g-c": "c"}  # groups and the first digits of their positions
PROCESSES = dict(zip(GROUPS, ("h:1", "h:2", "h:3"), strict=True))


def position(digit: str) -> str:
    return digit.ljust(64, "0")


def arc(group: str, after: str, *nodes: str, leader: str = "", **facts: Any) -> ArcView:
    """Return the view of a group with replicas at these processes.

    By default, the first one leads.
    """
    nodes = nodes or tuple(PROCESSES.values())
    leads = (leader or nodes[0]) if leader != "none" else ""
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
    """Return a ring whose processes all have a replica of each group; `odd` has another version."""
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


# Status


def test_healthy_ring_is_shown_in_five_lines() -> None:
    assert status_words(whole()).splitlines() == [
        "ring      3 processes, 3 groups, as seen by h:1",
        "leaders   all groups have a leader",
        "replicas  all groups are complete",
        "arcs      the whole ring is owned",
        "versions  1.0",
    ]
    assert whole().serves


def test_absent_process_is_listed_and_leads_no_group() -> None:
    seen = whole(away=("h:3",))
    assert status_words(seen).splitlines() == [
        "ring      2 processes, 3 groups, as seen by h:1",
        "leaders   missing in g-c",
        "replicas  missing in g-a (2 of 3), g-b (2 of 3), g-c (2 of 3)",
        "arcs      the whole ring is owned",
        "versions  1.0",
        "absent    h:3",
    ]
    assert not seen.serves


def test_different_versions_are_counted() -> None:
    assert status_words(whole(odd="h:2")).splitlines()[-1] == "versions  1.0 (2), 2.0 (1)"


def test_part_of_the_ring_without_an_owner_is_reported() -> None:
    seen = ring(arc("g-a", "g-c"), arc("g-c", "g-b"))
    assert "arcs      12.5% of the ring has no owner: topics there are unavailable" in status_words(
        seen
    )
    assert not seen.serves
    assert (seen.size, WHOLE) == (WHOLE - WHOLE // 8, 1 << 256)


def test_contested_arc_belongs_to_the_nearer_group() -> None:
    """A group that has moved part of its arc away may still have an old view."""
    seen = ring(arc("g-a", "g-c"), arc("g-b", "g-a"), arc("g-c", "g-a"))
    assert [each.share for each in seen.groups] == [0.375, 0.125, 0.5]
    assert seen.size == WHOLE


def test_single_group_owns_the_whole_ring() -> None:
    assert ring(arc("g-a", "g-a")).size == WHOLE


def test_joining_and_leaving_groups_are_listed() -> None:
    seen = ring(arc("g-a", "g-c", retired=True), arc("g-b", ""), arc("g-c", "g-a"))
    assert status_words(seen).splitlines()[-2:] == [
        "leaving   g-a",
        "joining   g-b: own nothing yet",
    ]


def test_ring_of_two_processes_needs_two_replicas() -> None:
    seen = ring(arc("g-a", "g-b", "h:1", "h:2"), arc("g-b", "g-a", "h:2", "h:1"), away=("h:3",))
    assert (seen.lacking, seen.serves) == ([], True)


def test_long_list_of_groups_is_shortened() -> None:
    assert some([str(each) for each in range(10)]) == "0, 1, 2, 3, 4, 5, 6, 7 and 2 more"


def test_ring_status_is_available_as_json() -> None:
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


# Table


def test_ring_table_lists_the_groups_in_ring_order(capsys: pytest.CaptureFixture[str]) -> None:
    arcs = (arc("g-c", "g-b"), arc("g-b", "", leader="none"), arc("g-a", "g-c", applied=12))
    table(HEAD, ring_rows(ring(*arcs, away=("h:3",))))
    assert capsys.readouterr().out.splitlines() == [
        "position  process  group  share   leader  replicas  applied",
        "20000000  h:1      g-a     37.5%  h:1     2 of 3         12",
        "40000000  h:2      g-b    none    none    2 of 3          7",
        "c0000000  absent   g-c     50.0%  h:1     2 of 3          7",
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


def test_tree_is_drawn_from_its_root() -> None:
    """NET-5"""
    tree = asyncio.run(grown(ask, "h:1", set()))
    assert list(drawn(tree)) == [
        "h:1  root, 0 readers",
        "├── h:2  2 readers",
        "│   └── h:4  1 reader",
        "└── h:3  forwards",
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


def test_tree_is_shown_as_bare_only_if_its_known_root_has_no_readers() -> None:
    assert Branch("h:1", part(True), ()).bare
    assert not Branch("h:1", None, ()).bare
    assert not Branch("h:1", part(True, readers=1), ()).bare
    assert not Branch("h:1", part(True, "", "h:2"), (Branch("h:2", None, ()),)).bare


def test_tree_with_a_cycle_is_drawn_without_repetition() -> None:
    parts = {"h:1": part(True, "", "h:2"), "h:2": part(False, "h:1", "h:1", "h:2")}

    async def ask(process: str) -> TreeView | None:
        return parts[process]

    assert asyncio.run(grown(ask, "h:1", set())) == Branch(
        "h:1", parts["h:1"], (Branch("h:2", parts["h:2"], ()),)
    )


def test_tree_root_is_found_from_the_process_at_its_key() -> None:
    """NET-4"""
    key = key_of("news").hex()
    before, at = f"{int(key, 16) - 1:064x}", key
    processes = tuple(
        ProcessView(process, "", "", key, ())
        for process, key in (("h:9", before), ("h:4", at), ("h:8", "f" * 64))
    )
    assert asyncio.run(root_of(ask, processes, "news")) == "h:1"  # via h:2, the parent of h:4
    assert asyncio.run(root_of(ask, processes[:1], "news")) == "h:9"  # this process does not answer


def test_search_for_the_root_ends_at_a_cycle_of_parents() -> None:
    parts = {"h:1": part(False, "h:2"), "h:2": part(False, "h:1")}

    async def ask(process: str) -> TreeView | None:
        return parts[process]

    processes = (ProcessView("h:1", "", "", "0" * 64, ()),)
    assert asyncio.run(root_of(ask, processes, "news")) in parts


# Errors


class FakeClient:
    """A client connected to a ring process or to a node."""

    def __init__(self, view: RingView) -> None:
        self.view = view

    async def ring(self) -> RingView:
        return self.view


async def unwanted(client: Any, arguments: argparse.Namespace) -> int:
    raise AssertionError("a group was chosen")


@pytest.mark.parametrize(
    ("view", "group", "status", "fact"),
    [
        (whole().view, None, ExitStatus.USAGE, "choose a group with --group: g-a, g-b, g-c"),
        (
            whole().view,
            "g-x",
            ExitStatus.NOT_FOUND,
            "no group 'g-x'; choose one of g-a,",
        ),
        (
            RingView(1, "h:1", (), (), None),
            "g-a",
            ExitStatus.USAGE,
            "without --own-group; omit",
        ),
    ],
)
def test_error_for_a_missing_group_lists_the_groups(
    view: RingView,
    group: str | None,
    status: int,
    fact: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client: Any = FakeClient(view)
    work = in_group(unwanted)(client, argparse.Namespace(group=group))
    assert asyncio.run(_status(work)) == status
    assert fact in capsys.readouterr().err


async def _status(work: Any) -> int:
    status: int = await work
    return status


def test_group_without_replicas_is_not_queried() -> None:
    bare = ArcView("g-a", "", position("2"), "", (), 0, False)
    assert chosen((bare,), "g-a") is None
    known = asyncio.run(asked(argparse.Namespace(), ring(bare).view))
    assert [each.group for each in known.unled] == ["g-a"]


@pytest.mark.parametrize("server", [(), ("--server", "h:1,h:2"), ("--server", "h:1/g-a")])
def test_leave_requires_a_single_process_address(
    server: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(("cluster", "leave", *server)) == ExitStatus.USAGE
    assert "--server must be the address of one process" in capsys.readouterr().err
