"""`oncecast cluster`: inspect and change a group or a ring, or run one on this machine."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING, Any

from oncecast.cli.cluster.ring import asked, in_group, run_leave, run_ring, run_tree, seen
from oncecast.cli.cluster.ring_words import status_fields, status_words
from oncecast.cli.connecting import (
    ANSWER_TIMEOUT,
    add_connection,
    add_flag,
    add_json,
    add_option,
    add_timeout,
    add_topic,
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

NODES_MAX = 64  # maximum nodes that `cluster up` starts
LEAVE = 300.0  # seconds to wait for a process to move its topics away


# Long because it is one table of commands and their options.
def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    cluster = commands.add_parser("cluster", help="manage groups and rings", description=__doc__)
    verbs = cluster.add_subparsers(title="commands", metavar="COMMAND", required=True)

    for verb, about, look in (
        ("status", "show the leader and whether the group has a quorum", run_status),
        ("members", "list the nodes of a group", in_group(run_members)),
    ):
        parser = verbs.add_parser(verb, help=about, description=about)
        add_group(parser)
        add_work(parser, look, in_shell=False)

    about = "list the groups of a ring and the share of the ring that each of them owns"
    add_work(verbs.add_parser("ring", help=about, description=about), run_ring, in_shell=False)

    about = "show the multicast tree of a topic"
    tree = verbs.add_parser("tree", help=about, description=about)
    add_topic(tree)
    add_work(tree, run_tree, in_shell=False)

    about = "move the topics of a process to other processes, then stop it"
    leave = verbs.add_parser("leave", help=about, description=about)
    add_timeout(leave, LEAVE, "how long to wait for the process to stop")
    add_connection(leave, context=False)
    add_json(leave)
    leave.set_defaults(run=run_leave, patience=ANSWER_TIMEOUT)

    for verb, about, change in (
        ("add", "add a waiting node to the group", run_add),
        ("remove", "remove a node from the group", run_remove),
        ("transfer-leader", "make another node the leader", run_transfer),
    ):
        parser = verbs.add_parser(verb, help=about, description=about)
        parser.add_argument("node", metavar="NODE", type=address, help="address of the node")
        add_group(parser)
        add_work(parser, in_group(change), in_shell=False)

    about = "run a group or a ring on this machine"
    up = verbs.add_parser("up", help=about, description=about)
    add_option(
        up, "-n", "N", "number of nodes (default: 3, or as in the data directory)", kind=nodes
    )
    add_option(up, "--data", "DIR", "data directory (default: a temporary directory)")
    up.add_argument(
        "--port",
        type=port,
        default=0,
        help="port of the first node; later nodes use consecutive ports (default: free ports)",
    )
    add_flag(up, "--own-group", "run a ring in which each process has its own replica group")
    add_json(up)
    up.set_defaults(run=run_up)


def add_group(parser: argparse.ArgumentParser) -> None:
    add_option(parser, "--group", "GROUP", "replica group to use, if the nodes form a ring")


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
            f"too many nodes for one machine: {text} (limit {NODES_MAX}); start fewer"
        )
    return count


def port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; use a number from 1 to 65535")
    return int(text)


# Inspect


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
        heads = ("node", "role", "applied", "reachable", "heard", "level")
        table(heads, [tuple(row) for row in cells])
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
        "level": view.level,
        "reachable": sum(each.reachable is True for each in view.members),
        "members": [row for row in rows(view) if row["role"] != "waits"],
        "waiting": list(view.offers),
    }


def rows(view: GroupView) -> list[dict[str, Any]]:
    """Return a row for each member and each node waiting to join."""
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
            "level": each.level or None,
        }
        for each in view.members
    ]
    unknown = dict.fromkeys(("applied", "reachable", "heard_seconds_ago", "level"))
    return found + [{"node": node, "role": "waits", **unknown} for node in view.offers]


def in_words(view: GroupView) -> str:
    members = ", ".join(map(member_words, view.members))
    return "\n".join(
        (
            f"leader   {view.leader or 'none'}",
            f"quorum   {'yes' if view.quorum else 'no'}",
            f"members  {len(view.members)} of {view.size} ({reach_words(view)}): {members}"
            if members
            else "members  none: the node has not joined a group",
            *([f"waiting  {', '.join(view.offers)}"] if view.offers else []),
            f"applied  {view.applied}",
            f"level    {view.level}{level_words(view)}",
            f"seen by  {view.node}",
        )
    )


def reach_words(view: GroupView) -> str:
    """Describe how many members are reachable."""
    counts = Counter(each.reachable for each in view.members)
    words = {True: "reachable", False: "not heard from", None: "unknown"}
    return ", ".join(f"{counts[each]} {word}" for each, word in words.items() if counts[each])


def level_words(view: GroupView) -> str:
    """Return a note about members that support a higher level than the group uses, or ""."""
    higher = [each for each in view.members if each.level > view.level]
    if not higher:
        return ""
    known = max(each.level for each in higher)
    return f" ({len(higher)} of {len(view.members)} members support level {known})"


def member_words(member: MemberView) -> str:
    if member.reachable is not False:
        return member.node
    since = f"for {member.heard:.0f} s" if member.heard >= 0 else "since that node started"
    return f"{member.node} (not heard from {since})"


# Change


async def run_add(client: Client, arguments: argparse.Namespace) -> int:
    return changed(arguments, await client.add_replica(arguments.node), "is now a replica")


async def run_remove(client: Client, arguments: argparse.Namespace) -> int:
    if fact := await not_a_member(client, arguments.node):
        return complain(fact, ExitStatus.NOT_FOUND)
    return changed(arguments, await client.remove_replica(arguments.node), "is no longer a replica")


async def run_transfer(client: Client, arguments: argparse.Namespace) -> int:
    if fact := await not_a_member(client, arguments.node):
        return complain(fact, ExitStatus.NOT_FOUND)
    return changed(arguments, await client.transfer_leader(arguments.node), "is now the leader")


async def not_a_member(client: Client, node: str) -> str:
    """Return an error message if the node is certainly not a member, otherwise ""."""
    view = await seen(client)
    members = [each.node for each in view.members]
    if not view.quorum or node in members:
        return ""
    return f"{node} is not a replica of this group; choose one of {', '.join(members)}"


def changed(arguments: argparse.Namespace, view: GroupView, fact: str) -> int:
    members = f"{len(view.members)} of {view.size} members, leader {view.leader or 'none'}"
    show(arguments, fields(view), f"{arguments.node} {fact}: {members}")
    return ExitStatus.OK


# Run


def run_up(arguments: argparse.Namespace) -> int:
    from oncecast.cli.cluster.local import run

    return run(arguments)
