"""What is asked of a node about its topics, and about the group that it belongs to."""

# ruff: noqa: ASYNC109  # what happens when time is over is part of the interface

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from oncecast.client.errors import InvalidArgument, NotConnected, TimedOut, raised
from oncecast.client.session import local
from oncecast.kernel.protocol import NodeId, Value
from oncecast.replication.events import Change, HandOver
from oncecast.wire import commands as do
from oncecast.wire import errors as refusals
from oncecast.wire.frames import ArcView, ClientCommand, GroupView, RingView, TopicView, View
from oncecast.wire.limits import is_name
from oncecast.wire.retention import DEFAULT, Policy

if TYPE_CHECKING:
    from oncecast.client.client import Client
    from oncecast.network.tls import Tls

LOOK = 1000
TOGETHER = 16  # groups of a ring that are asked at once


class Administering(ABC):
    """A part of `Client`, which knows how to ask."""

    # How it reaches its nodes; those of the groups of a ring are reached in the same way.
    _timeout: float
    _connect_timeout: float
    _tls: Tls | None
    _cluster: str

    @abstractmethod
    async def call(self, command: ClientCommand, timeout: float | None = None) -> Any: ...

    @abstractmethod
    async def finished(self, request: Callable[[int], Value], timeout: float | None) -> Any: ...

    @abstractmethod
    def patience(self, timeout: float | None) -> float: ...

    # -- topics --

    async def create_topic(self, topic: str, policy: Policy = DEFAULT) -> bool:
        """Make a topic that stays until it is deleted; whether it is new."""
        return not (await self.call(do.CreateTopic(topic, 0, policy))).already

    async def set_policy(self, topic: str, policy: Policy) -> None:
        await self.call(do.SetPolicy(topic, 0, policy))

    async def delete_topic(self, topic: str) -> bool:
        """Delete it with all its messages and subscriptions; whether there was one."""
        return not (await self.call(do.DeleteTopic(topic, 0))).already

    async def describe(self, topic: str) -> TopicView:
        if not is_name(topic):
            raise raised(refusals.InvalidTopic())
        view = await self._look(topic=topic)
        if not view.topics:
            raise raised(refusals.NoSuchTopic(topic))
        return view.topics[0]

    async def topics(self, prefix: str = "") -> AsyncIterator[TopicView]:
        """All topics whose names begin with `prefix`, by name; on a ring, those of all groups."""
        if (await self.ring()).processes:
            for each in await self._topics_of_ring(prefix):
                yield each
        else:
            async for each in self._topics_of_group(prefix):
                yield each

    async def _topics_of_ring(self, prefix: str) -> list[TopicView]:
        """All groups are asked twice: a topic may go from one that is asked late to one that was
        asked before, and is then found there."""
        found: dict[str, TopicView] = {}
        for _ in range(2):
            owners = [arc for arc in (await self.ring()).groups if arc.low]
            for at in range(0, len(owners), TOGETHER):
                asked = [self._topics_of(arc, prefix) for arc in owners[at : at + TOGETHER]]
                for outcome in await asyncio.gather(*asked, return_exceptions=True):
                    if isinstance(outcome, BaseException):
                        raise outcome
                    found.update((each.name, each) for each in outcome)
        return [found[name] for name in sorted(found)]

    async def _topics_of(self, arc: ArcView, prefix: str) -> list[TopicView]:
        try:
            async with self._client_of(arc.nodes) as client:
                return [each async for each in client._topics_of_group(prefix)]
        except TimedOut as error:
            raise type(error)(f"group {arc.group}: {error.fact}", error.remedy) from None
        except NotConnected as error:
            fact = f"group {arc.group}: {error.fact}"
            raise NotConnected(fact, error.remedy, refused=error.refused) from None

    def _client_of(self, nodes: tuple[str, ...]) -> Client:
        from oncecast.client.client import Client

        return Client(
            ",".join(nodes),
            timeout=self._timeout,
            connect_timeout=self._connect_timeout,
            tls=self._tls,
            cluster=self._cluster,
        )

    async def _topics_of_group(self, prefix: str) -> AsyncIterator[TopicView]:
        after, more = "", True
        while more:
            view = await self._look(prefix=prefix, after=after, limit=LOOK)
            for each in view.topics:
                yield each
                after = each.name
            more = view.more

    # -- the group of nodes --

    async def group(self) -> GroupView:
        """The replicas, as the node sees them that this client talks to; it need not lead."""
        return await self._govern(None)

    async def add_replica(self, node: str) -> GroupView:
        """Take in a node that waits for a place; return when it has one."""
        return await self._govern(Change(add=NodeId(node)))

    async def remove_replica(self, node: str) -> GroupView:
        """Let a node go; return when it has no say any more."""
        return await self._govern(Change(remove=NodeId(node)))

    async def transfer_leader(self, node: str) -> GroupView:
        """Return when this node leads."""
        return await self._govern(HandOver(NodeId(node)))

    # -- the ring of groups --

    async def ring(self, tree: str = "") -> RingView:
        """The ring as the process knows it that this client is at, and its part in a topic's tree.

        Without processes: these nodes are no ring.
        """
        view: RingView = await self.finished(
            lambda ticket: local.Ring(ticket, tree, timeout=self.patience(None)), None
        )
        return view

    async def leave_ring(self) -> RingView:
        """Have the process that this client is at give what it owns to others, and stop then."""
        view: RingView = await self.finished(
            lambda ticket: local.Ring(ticket, leave=True, timeout=self.patience(None)), None
        )
        return view

    async def _govern(self, wish: Change | HandOver | None) -> GroupView:
        ring = await self.ring()
        if ring.processes:
            example = next((arc.nodes[0] for arc in ring.groups if arc.nodes), "host:port/GROUP")
            fact = f"{ring.node} is a process of a ring, and no replica of one group"
            raise InvalidArgument(fact, f"connect to a replica, such as {example}")
        view: GroupView = await self.finished(
            lambda ticket: local.Group(ticket, wish, self.patience(None)), None
        )
        return view

    async def ping(self) -> View:
        """Who is there: the node's address and version. Of a group only the leader answers."""
        ring = await self.ring()
        for each in ring.processes:
            if each.process == ring.node:
                return View(ring.id, (), False, each.process, each.version)
        return await self._look(prefix="\uffff", limit=1)

    async def _look(self, **look: Any) -> View:
        view: View = await self.finished(
            lambda ticket: local.Show(ticket, timeout=self.patience(None), **look), None
        )
        return view
