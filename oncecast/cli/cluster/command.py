"""`oncecast cluster`: look at a group or a ring, change it, and try one out on this machine."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING, Any

from oncecast.cli.cluster.ring import asked, in_group, run_leave, run_ring, run_tree, seen
from oncecast.cli.cluster.ring_words import status_fields, status_words
from oncecast.cli.connecting import (
    ANSWER_TIMEOUT,
    add_connection,
    add_json,
    add_timeout,
    add_work,
    complain,
    positive,
    show,
    table,
)
from oncecast.errors import ExitStatus

if TYPE_CHECKING:
    from oncecast.client.client import Client
    from oncecast.wire.frames import GroupView, MemberView

NODES_MAX = 64  # processes that `cluster up` starts on one machine
LEAVE = 300.0  # seconds for a process to give what it owns to others


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    cluster = commands.add_parser("cluster", help="groups and rings", description=__doc__)
    verbs = cluster.add_subparsers(title="commands", metavar="COMMAND", required=True)

    for verb, about, look in (
        ("status", "who leads, and is there a quorum", run_status),
        ("members", "the nodes of the group", in_group(run_members)),
    ):
        parser = verbs.add_parser(verb, help=about, description=about)
        add_group(parser)
        add_work(parser, look, in_shell=False)

    about = "the groups of a ring, and what each owns"
    add_work(verbs.add_parser("ring", help=about, description=about), run_ring, in_shell=False)

    about = "the tree by which a topic is pushed"
    tree = verbs.add_parser("tree", help=about, description=about)
    tree.add_argument("topic", metavar="TOPIC")
    add_work(tree, run_tree, in_shell=False)

    about = "have a process give what it owns to others, and stop"
    leave = verbs.add_parser("leave", help=about, description=about)
    add_timeout(leave, LEAVE, "seconds to wait until it is gone")
    add_connection(leave)
    add_json(leave)
    leave.set_defaults(run=run_leave, patience=ANSWER_TIMEOUT)

    for verb, about, change in (
        ("add", "take in a node that waits for a place", run_add),
        ("remove", "let a node go", run_remove),
        ("transfer-leader", "let another node lead", run_transfer),
    ):
        parser = verbs.add_parser(verb, help=about, description=about)
        parser.add_argument("node", metavar="NODE", type=address, help="its host:port")
        add_group(parser)
        add_work(parser, in_group(change), in_shell=False)

    about = "a group or a ring on this machine, to try out"
    up = verbs.add_parser("up", help=about, description=about)
    up.add_argument("-n", type=nodes, metavar="N", help="nodes (3, or as many as there are)")
    up.add_argument("--data", metavar="DIR", help="where they keep what must survive")
    up.add_argument("--port", type=port, default=0, help="of the first; the others follow (any)")
    up.add_argument("--own-group", action="store_true", help="a ring: each founds a group")
    add_json(up)
    up.set_defaults(run=run_up)


def add_group(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--group", metavar="GROUP", help="of a ring: which of its groups")


def address(text: str) -> str:
    from oncecast.errors import BadAddress
    from oncecast.network.addresses import split

    try:
        split(text)
    except BadAddress as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def nodes(text: str) -> int:
    count = positive(text)
    if count > NODES_MAX:
        raise argparse.ArgumentTypeError(
            f"{text} nodes are too many for one machine (limit {NODES_MAX}); start fewer"
        )
    return count


def port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; write a number below 65536")
    return int(text)


# Looking


async def run_status(client: Client, arguments: argparse.Namespace) -> int:
    view = await client.ring()
    if not view.processes or arguments.group:
        return await in_group(group_status)(client, arguments)
    ring = await asked(arguments, view)
    show(arguments, status_fields(ring), status_words(ring))
    return ExitStatus.OK if ring.serves else ExitStatus.NO_QUORUM


async def group_status(client: Client, arguments: argparse.Namespace) -> int:
    view = await seen(client)
    show(arguments, fields(view), in_words(view))
    return ExitStatus.OK if view.quorum else ExitStatus.NO_QUORUM


async def run_members(client: Client, arguments: argparse.Namespace) -> int:
    view = await seen(client)
    if arguments.json:
        for row in rows(view):
            show(arguments, row, None)
    else:
        cells = [map(cell, row.values()) for row in rows(view)]
        table(("node", "role", "applied", "reachable", "heard"), [tuple(row) for row in cells])
    return ExitStatus.OK if view.quorum else ExitStatus.NO_QUORUM


def cell(value: object) -> object:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g} s ago"
    return "" if value is None else value


def fields(view: GroupView) -> dict[str, Any]:
    return {
        "node": view.node,
        "leader": view.leader,
        "quorum": view.quorum,
        "version": view.version,
        "size": view.size,
        "applied": view.applied,
        "reachable": sum(each.reachable is True for each in view.members),
        "members": [row for row in rows(view) if row["role"] != "waits"],
        "waiting": list(view.offers),
    }


def rows(view: GroupView) -> list[dict[str, Any]]:
    """One for each member, and each that would like to be one."""
    found = [
        {
            "node": each.node,
            "role": "leader"
            if each.node == view.leader
            else "silent"
            if each.silent
            else "replica",
            "applied": each.applied if each.applied >= 0 else None,
            "reachable": each.reachable,
            "heard_seconds_ago": round(each.heard, 1) if each.heard >= 0 else None,
        }
        for each in view.members
    ]
    unknown = {"applied": None, "reachable": None, "heard_seconds_ago": None}
    return found + [{"node": node, "role": "waits", **unknown} for node in view.offers]


def in_words(view: GroupView) -> str:
    members = ", ".join(map(member_words, view.members))
    return "\n".join(
        (
            f"leader   {view.leader or 'nobody'}",
            f"quorum   {'yes' if view.quorum else 'no'}",
            f"members  {len(view.members)} of {view.size} ({reach_words(view)}): {members}"
            if members
            else "members  none known: it has joined nobody",
            *([f"waiting  {', '.join(view.offers)}"] if view.offers else []),
            f"applied  {view.applied}",
            f"seen by  {view.node}",
        )
    )


def reach_words(view: GroupView) -> str:
    """Say how many members the node hears that was asked."""
    counts = Counter(each.reachable for each in view.members)
    words = {True: "reachable", False: "not heard from", None: "unknown"}
    return ", ".join(f"{counts[each]} {word}" for each, word in words.items() if counts[each])


def member_words(member: MemberView) -> str:
    if member.reachable is not False:
        return member.node
    since = f"for {member.heard:.0f} s" if member.heard >= 0 else "since that node was started"
    return f"{member.node} (not heard from {since})"


# Changing


async def run_add(client: Client, arguments: argparse.Namespace) -> int:
    return changed(arguments, await client.add_replica(arguments.node), "is a replica")


async def run_remove(client: Client, arguments: argparse.Namespace) -> int:
    if fact := await stranger(client, arguments.node):
        return complain(fact, ExitStatus.NOT_FOUND)
    return changed(arguments, await client.remove_replica(arguments.node), "is no replica any more")


async def run_transfer(client: Client, arguments: argparse.Namespace) -> int:
    if fact := await stranger(client, arguments.node):
        return complain(fact, ExitStatus.NOT_FOUND)
    return changed(arguments, await client.transfer_leader(arguments.node), "leads")


async def stranger(client: Client, node: str) -> str:
    """That it is no member, and who is; nothing if it is one, or nobody can say."""
    view = await seen(client)
    members = [each.node for each in view.members]
    if not view.quorum or node in members:
        return ""
    return f"{node} is not a replica of this group; choose one of {', '.join(members)}"


def changed(arguments: argparse.Namespace, view: GroupView, fact: str) -> int:
    members = f"{len(view.members)} of {view.size} members, leader {view.leader or 'nobody'}"
    show(arguments, fields(view), f"{arguments.node} {fact}: {members}")
    return ExitStatus.OK


# Trying out


def run_up(arguments: argparse.Namespace) -> int:
    from oncecast.cli.cluster.local import run

    return run(arguments)
