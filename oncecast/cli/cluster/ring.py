"""`oncecast cluster ring|tree|leave`, and one group of a ring for the commands of a group."""

from __future__ import annotations

import argparse
import sys
from bisect import bisect_left
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TYPE_CHECKING

from oncecast.cli.cluster.ring_words import (
    ANGLES,
    HEAD,
    PLAIN_ANGLES,
    Branch,
    Ring,
    drawn,
    group_fields,
    percent,
    ring_rows,
    some,
    tree_fields,
)
from oncecast.cli.connecting import client_of, complain, show, table, talk
from oncecast.errors import ExitStatus

if TYPE_CHECKING:
    from oncecast.client.client import Client
    from oncecast.wire.frames import ArcView, GroupView, ProcessView, RingView, TreeView

    Ask = Callable[[str], Awaitable[TreeView | None]]
    Work = Callable[[Client, argparse.Namespace], Awaitable[int]]

ANSWER = 3.0  # seconds that a process has to tell what it knows
FIND = 3.0  # seconds for the nodes of a group to say who leads
ASKED = 16  # groups at most
LOOK_EVERY = 0.3
NO_RING = "is no process of a ring: it was started without --own-group"


def at(arguments: argparse.Namespace, server: str, timeout: float | None = None) -> Client:
    """A client of somebody else, reached in the same way."""
    patience = {} if timeout is None else {"patience": timeout}
    return client_of(argparse.Namespace(**{**vars(arguments), "server": server, **patience}))


# One group of a ring


def in_group(work: Work) -> Work:
    """Have it done by the group that `--group` names, if these nodes are a ring."""

    async def run(client: Client, arguments: argparse.Namespace) -> int:
        view = await client.ring()
        if not view.processes:
            if arguments.group:
                return complain(f"{view.node} {NO_RING}; leave out --group", ExitStatus.USAGE)
            return await work(client, arguments)
        arc = chosen(view.groups, arguments.group)
        if arc is None:
            names = some([each.group for each in view.groups])
            if not arguments.group:
                fact = f"{view.node} is a process of a ring of groups; name one with --group"
                return complain(f"{fact}: {names}", ExitStatus.USAGE)
            fact = f"there is no group {arguments.group!r} in this ring; choose one of"
            return complain(f"{fact} {names}", ExitStatus.NOT_FOUND)
        if "node" in arguments and "/" not in arguments.node:  # its replica there
            arguments.node = f"{arguments.node}/{arc.group}"
        async with at(arguments, ",".join(arc.nodes)) as replicas:
            return await work(replicas, arguments)

    return run


def chosen(groups: tuple[ArcView, ...], name: str | None) -> ArcView | None:
    return next((each for each in groups if each.group == name and each.nodes), None)


async def seen(client: Client) -> GroupView:
    """As the leader sees it, if there is one that answers: it knows more than the others. Who has
    no seat, or none any more, may not know that there is one."""
    import asyncio

    from oncecast.errors import TimedOut

    view = await client.group()
    if view.leader == view.node:
        return view
    try:
        async with asyncio.timeout(FIND):
            await client.ping()  # which only a leader answers: now the client is there
            return await client.group()
    except (TimedOut, TimeoutError):
        return view


# cluster ring


async def asked(arguments: argparse.Namespace, view: RingView) -> Ring:
    """Rumour may be late: groups that seem to be in trouble are asked themselves."""
    import asyncio

    import msgspec

    from oncecast.errors import OncecastError

    async def ask(arc: ArcView) -> ArcView:
        try:
            async with at(arguments, ",".join(arc.nodes), ANSWER) as replicas:
                group = await seen(replicas)
        except OncecastError:
            return arc
        if not group.quorum:
            return msgspec.structs.replace(arc, leader="")
        nodes = tuple(each.node for each in group.members)
        return msgspec.structs.replace(arc, leader=group.leader, nodes=nodes)

    ring = Ring(view)
    doubtful = [each.group for each in (*ring.unled, *ring.lacking)][:ASKED]
    arcs = {each.group: each for each in view.groups if each.nodes}
    asking = [ask(arcs[group]) for group in dict.fromkeys(doubtful) if group in arcs]
    known = await asyncio.gather(*asking)
    arcs = {each.group: each for each in (*view.groups, *known)}
    return Ring(msgspec.structs.replace(view, groups=tuple(arcs.values())))


async def run_ring(client: Client, arguments: argparse.Namespace) -> int:
    view = await client.ring()
    if not view.processes:
        return no_ring(view)
    ring = await asked(arguments, view)
    if arguments.json:
        for each in ring.groups:
            show(arguments, group_fields(each), None)
    else:
        table(HEAD, ring_rows(ring))
    return ExitStatus.OK if ring.serves else ExitStatus.NO_QUORUM


def no_ring(view: RingView) -> int:
    return complain(
        f"{view.node} {NO_RING}; `cluster status` shows its group", ExitStatus.NOT_FOUND
    )


# cluster tree


async def run_tree(client: Client, arguments: argparse.Namespace) -> int:
    topic = arguments.topic
    view = await client.ring(topic)
    if not view.processes:
        return no_ring(view)
    gossip = (await client.describe(topic)).policy.gossip  # or there is no such topic
    ask = asker(arguments)
    tree = None if gossip else await grown(ask, await root_of(ask, view.processes, topic), set())
    if tree is not None and tree.bare:
        tree = None
    owner = view.tree.owner if view.tree is not None else ""
    leader = "".join(each.leader for each in Ring(view).groups if each.group == owner)
    fields = {
        "topic": topic,
        "owner": owner or None,
        "leader": leader or None,
        "gossip": gossip,
        "tree": tree_fields(tree) if tree is not None else None,
    }
    head = f"{topic}: of group {owner or 'unknown'}, led by {leader or 'nobody'}"
    if tree is not None:
        text = "\n".join((head, *drawn(tree, angles())))
    elif gossip:
        text = f"{head}; it is pushed by gossip, and has no tree"
    else:
        text = f"{head}; nobody reads it by push, so it has no tree"
    show(arguments, fields, text)
    return ExitStatus.OK


def asker(arguments: argparse.Namespace) -> Ask:
    """Asks a process for its part in the tree; None if it does not answer."""
    from oncecast.errors import NotConnected, TimedOut

    async def ask(process: str) -> TreeView | None:
        try:
            async with at(arguments, process, ANSWER) as client:
                return (await client.ring(arguments.topic)).tree
        except (NotConnected, TimedOut):
            return None

    return ask


async def root_of(ask: Ask, processes: tuple[ProcessView, ...], topic: str) -> str:
    """The process at the topic's key; or, if it has just come, whoever it hangs on."""
    from oncecast.dht.identifiers import key_of

    at = bisect_left([each.position for each in processes], key_of(topic).hex())
    process, before = processes[at % len(processes)].process, set[str]()
    while process not in before:
        before.add(process)
        part = await ask(process)
        if part is None or part.root or not part.parent:
            break
        process = part.parent
    return process


async def grown(ask: Ask, process: str, seen: set[str]) -> Branch:
    """The tree from this process on; while it changes, one may seem to hang on two others."""
    import asyncio

    seen.add(process)
    part = await ask(process)
    children = [each for each in part.children if each not in seen] if part is not None else []
    seen.update(children)
    branches = await asyncio.gather(*(grown(ask, each, seen) for each in children))
    return Branch(process, part, tuple(branches))


def angles() -> tuple[str, str, str, str]:
    try:
        "".join(ANGLES).encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return PLAIN_ANGLES
    return ANGLES


# cluster leave


def run_leave(arguments: argparse.Namespace) -> int:
    """Of all that a client could find, it must not be just any process."""
    server = arguments.server or ""
    if not server or "," in server or "/" in server:
        return complain("name the one process that is to go: --server HOST:PORT", ExitStatus.USAGE)
    return talk(arguments, leave)


async def leave(client: Client, arguments: argparse.Namespace) -> int:
    view = await client.ring()
    if not view.processes:
        fact = f"{view.node} {NO_RING}"
        return complain(f"{fact}; `cluster remove` lets it go, or stop it", ExitStatus.NOT_FOUND)
    if len(view.processes) == 1:
        fact = f"{view.node} is alone: there is nobody to give what it owns to; stop it, or"
        return complain(f"{fact} start another process with --join", ExitStatus.NOT_ALLOWED)
    began = monotonic()
    view = await client.leave_ring()
    if not await gone(arguments, view, began + arguments.timeout):
        fact = f"{view.node} has not left in {arguments.timeout:g} s; it goes on, and"
        return complain(f"{fact} `cluster leave` again waits on", ExitStatus.EMPTY)
    took = monotonic() - began
    fields = {"process": view.node, "left": True, "seconds": round(took, 3)}
    show(arguments, fields, f"{view.node} has left, and has stopped, after {took:.1f} s")
    return ExitStatus.OK


async def gone(arguments: argparse.Namespace, view: RingView, deadline: float) -> bool:
    """Whether it is; told on the way: what it still owns."""
    import asyncio

    from oncecast.errors import NotConnected, TimedOut

    said = ""
    while True:
        size = sum(each.size for each in Ring(view).groups if each.process == view.node)
        word = f"owns {percent(size)} of the ring" if size else "owns nothing any more"
        if word != said:
            print(f"{view.node} {word}", file=sys.stderr, flush=True)
            said = word
        if monotonic() > deadline:
            return False
        await asyncio.sleep(LOOK_EVERY)
        try:
            async with at(arguments, view.node, ANSWER) as client:
                view = await client.ring()
        except NotConnected:
            return True
        except TimedOut:
            continue
