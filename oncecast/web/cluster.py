"""Handlers that show the replica groups, the ring and the trees."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from oncecast.client.client import Client
from oncecast.dht.identifiers import key_of_topic
from oncecast.errors import NotARing, OncecastError
from oncecast.web import shapes
from oncecast.wire.frames import ArcView, GroupView, RingView, TreeView

if TYPE_CHECKING:
    from oncecast.web.exchange import Call

WHOLE = 1 << 256  # number of positions on the ring
KEYS_SHOWN = 200  # maximum topics of a group whose position is shown
ASKED_MAX = 64  # maximum processes that are asked for their part of a tree
TOGETHER = 8
ANSWER = 3.0  # seconds to wait for a process


async def cluster(call: Call) -> shapes.Cluster:
    ring = await call.client.ring()
    if ring.processes:
        return shapes.Cluster(ring=True, groups=[group_of_arc(each) for each in ring.groups])
    group = await call.client.group()
    if group.leader != group.node:  # the leader knows the most, and only it answers a ping
        with suppress(OncecastError):
            await call.client.ping()
            group = await call.client.group()
    return shapes.Cluster(ring=False, groups=[group_shape(group)])


def group_shape(group: GroupView) -> shapes.Group:
    knows = group.leader == group.node
    replicas = []
    for each in group.members:
        seen = each.applied >= 0
        replicas.append(
            shapes.Replica(
                node=each.node,
                leader=each.node == group.leader,
                behind=max(0, group.applied - each.applied) if seen else None,
                present=not each.silent if knows else each.reachable,
                level=each.level,
                heard=each.heard if each.heard >= 0 else None,
            )
        )
    return shapes.Group(
        group="",
        leader=group.leader,
        quorum=group.quorum,
        level=group.level,
        version=group.version,
        size=group.size,
        applied=group.applied,
        offers=list(group.offers),
        replicas=replicas,
    )


def group_of_arc(arc: ArcView) -> shapes.Group:
    return shapes.Group(
        group=arc.group,
        leader=arc.leader,
        quorum=bool(arc.leader),
        level=0,
        version=0,
        size=len(arc.nodes),
        applied=arc.applied,
        offers=[],
        replicas=[
            shapes.Replica(
                node=each,
                leader=each == arc.leader,
                behind=None,
                present=None,
                level=0,
                heard=None,
            )
            for each in arc.nodes
        ],
    )


# The ring


async def ring_of(call: Call, tree: str = "") -> RingView:
    view = await call.client.ring(tree)
    if not view.processes:
        raise NotARing
    return view


async def ring(call: Call) -> shapes.RingShape:
    view = await ring_of(call)
    arcs = [arc_shape(each) for each in view.groups]
    owners = sorted((each for each in arcs if each.low), key=lambda each: each.position)
    if owners:
        for each in (await call.session.census.count()).topics.values():
            key = key_of_topic(each.name).hex()
            owner = next((arc for arc in owners if key <= arc.position), owners[0])
            owner.topics = (owner.topics or 0) + 1
            owner.bytes = (owner.bytes or 0) + each.bytes
            if len(owner.keys) < KEYS_SHOWN:
                owner.keys.append(shapes.TopicKey(topic=each.name, key=key))
    return shapes.RingShape(
        node=view.node,
        processes=[
            shapes.Process(
                process=each.process,
                position=each.position,
                version=each.version,
                group=each.group,
                seats=list(each.seats),
            )
            for each in view.processes
        ],
        groups=arcs,
    )


def arc_shape(arc: ArcView) -> shapes.Arc:
    size = (int(arc.position, 16) - int(arc.low, 16)) % WHOLE or WHOLE if arc.low else 0
    return shapes.Arc(
        group=arc.group,
        low=arc.low,
        position=arc.position,
        share=size / WHOLE,
        leader=arc.leader,
        nodes=list(arc.nodes),
        applied=arc.applied,
        retired=arc.retired,
        topics=0 if arc.low else None,
        bytes=0 if arc.low else None,
        keys=[],
    )


# A tree


async def tree(call: Call) -> shapes.Tree:
    """Ask each process for its position in the tree, as the user of the request."""
    topic = call.topic
    view = await ring_of(call, topic)
    policy = (await call.session.backend.describe(topic)).policy
    parts = await gathered(call, view, topic)
    found = {process: part for process, part in parts.items() if grown(part)}
    return shapes.Tree(
        topic=topic,
        owner=view.tree.owner if view.tree is not None else "",
        root=next((process for process, part in found.items() if part.root), None),
        gossip=policy.gossip,
        nodes=[
            shapes.TreeNode(process=process, readers=part.readers, root=part.root)
            for process, part in found.items()
        ],
        edges=[
            shapes.TreeEdge(parent=process, child=child)
            for process, part in found.items()
            for child in part.children
        ],
    )


def grown(part: TreeView) -> bool:
    return bool(part.parent or part.children or part.readers)


async def gathered(call: Call, view: RingView, topic: str) -> dict[str, TreeView]:
    """Return the position of each process that answers."""
    found: dict[str, TreeView] = {}
    if view.tree is not None:
        found[view.node] = view.tree
    names = [each.process for each in view.processes if each.process != view.node][:ASKED_MAX]
    for at in range(0, len(names), TOGETHER):
        some = names[at : at + TOGETHER]
        asked = await asyncio.gather(*(part_of(call.client, each, topic) for each in some))
        found.update((name, part) for name, part in zip(some, asked, strict=True) if part)
    return found


async def part_of(client: Client, process: str, topic: str) -> TreeView | None:
    try:
        async with asyncio.timeout(ANSWER):
            async with Client.of(client.options.anonymous_at(process)) as other:
                return (await other.ring(topic)).tree
    except (OncecastError, TimeoutError):
        return None
