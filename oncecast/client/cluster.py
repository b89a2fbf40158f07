"""Query and change the client's cluster: its replica group, or its ring of groups."""

from __future__ import annotations

from functools import partial

from oncecast.client.requests import Requests
from oncecast.client.session import local
from oncecast.errors import InvalidArgument
from oncecast.replication.events import Change, HandOver
from oncecast.wire.frames import GroupView, RingView, View


class Cluster:
    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def group(self, wish: Change | HandOver | None = None) -> GroupView:
        """Return the replica group. If `wish` is set, change the group first."""
        ring = await self.ring()
        if ring.processes:
            example = next((arc.nodes[0] for arc in ring.groups if arc.nodes), "host:port/GROUP")
            fact = f"{ring.node} is a process of a ring, not a replica of one group"
            raise InvalidArgument(fact, f"connect to a replica, such as {example}")
        make = partial(local.Group, wish=wish, timeout=self._requests.timeout)
        view: GroupView = await self._requests.answer(make)
        return view

    async def ring(self, tree: str = "", *, leave: bool = False) -> RingView:
        make = partial(local.Ring, tree=tree, leave=leave, timeout=self._requests.timeout)
        view: RingView = await self._requests.answer(make)
        return view

    async def ping(self) -> View:
        ring = await self.ring()
        for each in ring.processes:
            if each.process == ring.node:
                return View(ring.id, (), False, each.process, each.version)
        return await self.look(prefix="\uffff", limit=1)

    async def look(
        self,
        *,
        topic: str = "",
        prefix: str = "",
        after: str = "",
        limit: int = 1000,
        subscriptions: bool = True,  # whether to include them, of which there may be many
    ) -> View:
        """Return the node's view of one topic, or of up to `limit` topics after `after`."""
        seconds = self._requests.timeout
        view: View = await self._requests.answer(
            lambda ticket: local.Show(
                ticket, topic, prefix, after, limit, subscriptions, timeout=seconds
            )
        )
        return view
