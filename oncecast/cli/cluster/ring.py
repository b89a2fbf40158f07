"""`oncecast cluster ring|tree|leave`, and the --group option on a ring."""

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
from oncecast.kernel.escaping import escaped

if TYPE_CHECKING:
    from oncecast.client.client import Client
    from oncecast.wire.frames import ArcView, GroupView, ProcessView, RingView, TreeView

    Ask = Callable[[str], Awaitable[TreeView | None]]
    Work = Callable[[Client, argparse.Namespace], Awaitable[int]]

ANSWER = 3.0  # seconds to wait for an answer from a process
FIND = 3.0  # maximum seconds to find the leader of a group
ASKED = 16  # maximum number of groups to query
LOOK_EVERY = 0.3
NO_RING = "is not a process of a ring: it was started without --own-group"


def at(arguments: argparse.Namespace, server: str, timeout: float | None = None) -> Client:
    """Return a client for another server with the same options."""
    patience = {} if timeout is None else {"patience": timeout}
    return client_of(argparse.Namespace(**{**vars(arguments), "server": server, **patience}))


# One group of a ring


def in_group(work: Work) -> Work:
    """Wrap `work` so that it runs on the group chosen with --group if the nodes form a ring."""

    async def run(client: Client, arguments: argparse.Namespace) -> int:
        view = await client.ring()
        if not view.processes:
            if arguments.group:
                return complain(f"{view.node} {NO_RING}; omit --group", ExitStatus.USAGE)
            return await work(client, arguments)
        arc = chosen(view.groups, arguments.group)
        if arc is None:
            names = some([each.group for each in view.groups])
            if not arguments.group:
                fact = f"{view.node} is a process of a ring; choose a group with --group"
                return complain(f"{fact}: {names}", ExitStatus.USAGE)
            fact = f"the ring has no group {arguments.group!r}; choose one of"
            return complain(f"{fact} {names}", ExitStatus.NOT_FOUND)
        if "node" in arguments and "/" not in arguments.node:
            # Use this process's replica of the group.
            arguments.node = f"{arguments.node}/{arc.group}"
        async with at(arguments, ",".join(arc.nodes)) as replicas:
            return await work(replicas, arguments)

    return run


def chosen(groups: tuple[ArcView, ...], name: str | None) -> ArcView | None:
    return next((each for each in groups if each.group == name and each.nodes), None)


async def seen(client: Client) -> GroupView:
    """Return the group as seen by its leader, or by the connected node if no leader answers.

    The leader knows the most. A node that is not a member may not know the leader.
    """
    import asyncio

    from oncecast.errors import TimedOut

    view = await client.group()
    if view.leader == view.node:
        return view
    try:
        async with asyncio.timeout(FIND):
            await client.ping()  # only the leader answers, so the client is now connected to it
            return await client.group()
    except (TimedOut, TimeoutError):
        return view


# cluster ring


async def asked(arguments: argparse.Namespace, view: RingView) -> Ring:
    """Return the ring. Query seemingly incomplete groups directly, because gossip may be late."""
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
    return complain(f"{view.node} {NO_RING}; use `cluster status`", ExitStatus.NOT_FOUND)


# cluster tree


async def run_tree(client: Client, arguments: argparse.Namespace) -> int:
    topic = arguments.topic
    view = await client.ring(topic)
    if not view.processes:
        return no_ring(view)
    gossip = (await client.describe(topic)).policy.gossip  # raises NoSuchTopic
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
    head = f"{topic}: group {owner or 'unknown'}, leader {leader or 'none'}"
    if tree is not None:
        text = "\n".join((head, *drawn(tree, angles())))
    elif gossip:
        text = f"{head}; no tree, because messages are pushed by gossip"
    else:
        text = f"{head}; no tree, because no client reads the topic with --push"
    show(arguments, fields, text)
    return ExitStatus.OK


def asker(arguments: argparse.Namespace) -> Ask:
    """Return a function that asks a process for its part of the tree.

    It returns None if the process does not answer.
    """
    from oncecast.errors import NotConnected, TimedOut

    async def ask(process: str) -> TreeView | None:
        try:
            async with at(arguments, process, ANSWER) as client:
                return (await client.ring(arguments.topic)).tree
        except (NotConnected, TimedOut):
            return None

    return ask


async def root_of(ask: Ask, processes: tuple[ProcessView, ...], topic: str) -> str:
    """Return the root of the topic's tree: the process at the topic's key, or a parent of it.

    A process that has just joined at the key may not be the root yet.
    """
    from oncecast.dht.identifiers import key_of_topic

    at = bisect_left([each.position for each in processes], key_of_topic(topic).hex())
    process, before = processes[at % len(processes)].process, set[str]()
    while process not in before:
        before.add(process)
        part = await ask(process)
        if part is None or part.root or not part.parent:
            break
        process = part.parent
    return process


async def grown(ask: Ask, process: str, seen: set[str]) -> Branch:
    """Return the tree below this process.

    Each process appears once, even if it has two parents while the tree changes.
    """
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
    """Run `cluster leave`. Require a single address, because it selects the process that leaves."""
    server = arguments.server or ""
    if not server or "," in server or "/" in server:
        return complain(
            "--server must be the address of one process; use --server HOST:PORT", ExitStatus.USAGE
        )
    return talk(arguments, leave)


async def leave(client: Client, arguments: argparse.Namespace) -> int:
    view = await client.ring()
    if not view.processes:
        fact = f"{view.node} {NO_RING}"
        return complain(f"{fact}; use `cluster remove`, or stop it", ExitStatus.NOT_FOUND)
    if len(view.processes) == 1:
        fact = f"{view.node} is the only process of the ring; stop it, or"
        return complain(f"{fact} start another process with --join first", ExitStatus.NOT_ALLOWED)
    began = monotonic()
    view = await client.leave_ring()
    if not await gone(arguments, view, began + arguments.timeout):
        fact = f"{view.node} is still leaving after {arguments.timeout:g} s;"
        return complain(f"{fact} run `cluster leave` again to keep waiting", ExitStatus.EMPTY)
    took = monotonic() - began
    fields = {"process": view.node, "left": True, "seconds": round(took, 3)}
    show(arguments, fields, f"{view.node} has left the ring and stopped after {took:.1f} s")
    return ExitStatus.OK


async def gone(arguments: argparse.Namespace, view: RingView, deadline: float) -> bool:
    """Wait until the process has stopped, printing its share. Return False at the deadline."""
    import asyncio

    from oncecast.errors import NotConnected, TimedOut

    said = ""
    while True:
        size = sum(each.size for each in Ring(view).groups if each.process == view.node)
        word = f"owns {percent(size)} of the ring" if size else "owns nothing"
        if word != said:
            print(escaped(f"{view.node} {word}"), file=sys.stderr, flush=True)
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
