"""The cluster behind a client: its replica group, or its ring of groups."""

from __future__ import annotations

from oncecast.client.requests import Requests
from oncecast.client.session import local
from oncecast.errors import InvalidArgument
from oncecast.kernel.protocol import NodeId
from oncecast.replication.events import Change, HandOver
from oncecast.wire.frames import GroupView, RingView, View


class Cluster:
    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    # -- the replica group --

    async def group(self) -> GroupView:
        return await self._govern(None)

    async def add_replica(self, node: str) -> GroupView:
        return await self._govern(Change(add=NodeId(node)))

    async def remove_replica(self, node: str) -> GroupView:
        return await self._govern(Change(remove=NodeId(node)))

    async def transfer_leader(self, node: str) -> GroupView:
        return await self._govern(HandOver(NodeId(node)))

    async def _govern(self, change: Change | HandOver | None) -> GroupView:
        ring = await self.ring()
        if ring.processes:
            example = next((arc.nodes[0] for arc in ring.groups if arc.nodes), "host:port/GROUP")
            fact = f"{ring.node} is a process of a ring, not a replica of one group"
            raise InvalidArgument(fact, f"connect to a replica, such as {example}")
        seconds = self._requests.timeout
        view: GroupView = await self._requests.answer(
            lambda ticket: local.Group(ticket, change, seconds), None
        )
        return view

    # -- the ring of groups --

    async def ring(self, tree: str = "", *, leave: bool = False) -> RingView:
        seconds = self._requests.timeout
        view: RingView = await self._requests.answer(
            lambda ticket: local.Ring(ticket, tree, leave, seconds), None
        )
        return view

    # -- either --

    async def ping(self) -> View:
        ring = await self.ring()
        for each in ring.processes:
            if each.process == ring.node:
                return View(ring.id, (), False, each.process, each.version)
        return await self.look(prefix="\uffff", limit=1)

    async def look(
        self, *, topic: str = "", prefix: str = "", after: str = "", limit: int = 1000
    ) -> View:
        """Return what the node has: one topic, or up to `limit` of those behind `after`."""
        seconds = self._requests.timeout
        view: View = await self._requests.answer(
            lambda ticket: local.Show(ticket, topic, prefix, after, limit, timeout=seconds), None
        )
        return view
