"""A client's open subscriptions. Each subscription has at most one reader at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, NamedTuple

from oncecast.client.arguments import check_names, check_sendable
from oncecast.client.jobs import SharedSubscription, check_prefetch
from oncecast.client.partition_reader import PartitionReader
from oncecast.client.requests import Requests
from oncecast.client.session import local
from oncecast.client.shared import Shared
from oncecast.client.subscription import Subscription
from oncecast.errors import InvalidArgument, NotAssigned, OncecastError, WrongKind
from oncecast.kernel.protocol import Value
from oncecast.network.entropy import random_hex
from oncecast.wire import commands as do
from oncecast.wire.partitions import partition_topic

MakeSubscription = Callable[..., Subscription]  # has the parameters of Subscription
Opened = Subscription | SharedSubscription


ENDS_MAX = 100  # maximum number of ended readers whose error is kept


class Subscribed(NamedTuple):
    """The next offset of a subscription, and whether the call created it."""

    offset: int
    new: bool


class Subscriptions:
    """Opens and closes readers, and passes session events to them."""

    def __init__(self, requests: Requests, make: MakeSubscription = Subscription) -> None:
        self._requests, self._make = requests, make
        self._open: dict[tuple[str, str], Opened] = {}  # by topic and name
        # Why the last readers have ended, by topic and name.
        self._ends: dict[tuple[str, str], OncecastError] = {}
        # Futures that are done when the subscription is closed.
        self._leaving: dict[tuple[str, str], asyncio.Future[None]] = {}

    def get(self, topic: str, name: str) -> Subscription | None:
        found = self._open.get((topic, name))
        if isinstance(found, SharedSubscription):
            raise WrongKind(topic, name, "shared")
        return found

    def readers(self, topic: str, name: str | None) -> Iterator[Subscription]:
        """Yield the open exclusive subscriptions of a topic, or the one with this name."""
        for each in self._open.values():
            if isinstance(each, Subscription) and each.topic == topic and name in (None, each.name):
                yield each

    def end_of(self, topic: str, name: str | None) -> OncecastError | None:
        """Return why the last reader of a topic has ended, or None if it is not known."""
        found = (
            why for (at, label), why in self._ends.items() if at == topic and name in (None, label)
        )
        return next(found, None)

    def closings(self, *, ack: bool) -> list[Coroutine[Any, Any, None]]:
        """Return a coroutine for each open subscription that closes it."""
        return [
            each.close(ack=ack) if isinstance(each, Subscription) else each.close()
            for each in list(self._open.values())
        ]

    # -- on the node --

    async def create(self, topic: str, name: str, start: do.Start) -> Subscribed:
        done = await self._requests.call(do.Subscribe(topic, name, start, 0))
        return Subscribed(done.cursor, not done.already)

    async def share(
        self, topic: str, name: str, start: do.Start, shared: Shared | None
    ) -> Subscribed:
        """Create a shared subscription, or change its settings. None keeps those it has."""
        if not isinstance(shared, Shared | None):
            raise InvalidArgument(f"shared is {shared!r:.80}", "use oncecast.Shared(...)")
        settings = None if shared is None else shared.wire
        done = await self._requests.call(do.SubscribeShared(topic, name, start, 0, settings))
        return Subscribed(done.cursor, not done.already)

    async def remove(self, topic: str, name: str) -> bool:
        subscription = self._open.get((topic, name))
        if isinstance(subscription, SharedSubscription):
            await subscription.close()
        elif subscription is not None:
            await subscription.close(ack=False)
        return await self._requests.changes(do.Unsubscribe(topic, name, 0))

    async def cursor(self, topic: str, name: str) -> int:
        """Return the cursor of a subscription, or -1 if it does not exist."""
        seconds = self._requests.timeout
        view = await self._requests.answer(
            lambda ticket: local.Show(ticket, topic, timeout=seconds)
        )
        seen = (each for found in view.topics for each in found.subscriptions)
        return next((each.cursor for each in seen if each.name == name), -1)

    async def seek(self, topic: str, name: str, start: do.Start) -> int:
        seek = do.Seek(topic, name, start, 0, random_hex(16))
        return int((await self._requests.call(seek)).cursor)

    # -- here --

    async def read(
        self, topic: str, name: str, *, auto_ack: bool, start_at: int | None, push: bool
    ) -> Subscription:
        """Return the subscription once the node accepts its reader. Open it if necessary."""
        found = self.get(topic, name)
        if found is None:
            check_names(do.Attach(topic, name, incarnation=""))
            check_sendable(local.Read(topic, name, -1 if start_at is None else start_at))
            if start_at is not None and start_at < 0:
                raise InvalidArgument(f"start_at is {start_at}", "use 0 or more")
            found = await self._open_when_left(topic, name, auto_ack, start_at, push)
        elif auto_ack != found.auto_ack or start_at is not None:
            raise InvalidArgument(
                f"subscription {name!r} of topic {topic!r} is already open with "
                f"auto_ack={found.auto_ack}",
                "close it before reopening it with other options, or call seek()",
            )
        seconds = self._requests.timeout
        try:
            async with asyncio.timeout(seconds):
                return await found.ready()
        except TimeoutError:  # The reader keeps trying, so a later call may succeed.
            raise local.NoAnswer(seconds, self._requests.led()).raised() from None

    def read_partition(
        self,
        topic: str,
        partition: int,
        term: int,
        name: str,
        *,
        auto_ack: bool,
        wake: Callable[[], None],
    ) -> PartitionReader:
        """Return the reader of a partition that a consumer group assigns to this client."""
        where = partition_topic(topic, partition)
        before = self._open.get((where, name))
        if isinstance(before, PartitionReader):
            before.drop(NotAssigned(where, name))
        elif before is not None:
            before.fail(NotAssigned(where, name))
        found = self._open[where, name] = PartitionReader(
            self._requests, self, topic, partition, term, name, auto_ack=auto_ack, wake=wake
        )
        return found

    async def _open_when_left(
        self, topic: str, name: str, auto_ack: bool, start_at: int | None, push: bool
    ) -> Subscription:
        await self._left(topic, name)
        found = self.get(topic, name)
        if found is None:
            found = self._open[topic, name] = self._make(
                self._requests, self, topic, name, auto_ack=auto_ack, start_at=start_at, push=push
            )
        return found

    async def work(self, topic: str, name: str, *, prefetch: int) -> SharedSubscription:
        """Return the worker of a shared subscription. Start it if necessary."""
        check_prefetch(prefetch)
        check_names(do.SubscribeShared(topic, name, do.FromNew(), 0))
        await self._left(topic, name)
        found = self._open.get((topic, name))
        if found is None:
            found = self._open[topic, name] = SharedSubscription(
                self._requests, self, topic, name, prefetch=prefetch
            )
        if isinstance(found, Subscription):
            raise WrongKind(topic, name, "exclusive")
        if found.prefetch != prefetch:
            raise InvalidArgument(
                f"subscription {name!r} of topic {topic!r} is already open with "
                f"prefetch={found.prefetch}",
                "close it before reopening it with another prefetch",
            )
        return found

    async def _left(self, topic: str, name: str) -> None:
        """Wait until an earlier reader of this subscription has left."""
        key = (topic, name)
        while key in self._leaving:
            await asyncio.wait([self._leaving[key]])
        self._requests.check_open()

    def forget(self, subscription: Opened, why: OncecastError) -> None:
        key = (subscription.topic, subscription.name)
        if self._open.get(key) is subscription:
            del self._open[key]
            self._ends[key] = why
            if len(self._ends) > ENDS_MAX:
                del self._ends[next(iter(self._ends))]

    async def leave(self, subscription: Opened, request: Callable[[int], Value]) -> None:
        """Send `request`. Block new readers of this subscription until it is answered."""
        key = (subscription.topic, subscription.name)
        left = self._leaving[key] = self._requests.loop.create_future()
        try:
            await self._requests.answer(request)
        finally:
            left.set_result(None)
            if self._leaving.get(key) is left:
                del self._leaving[key]

    def fail(self, error: OncecastError) -> None:
        for subscription in list(self._open.values()):
            subscription.fail(error)

    def handlers(self) -> dict[type[Value], Callable[[Any], None]]:
        return {
            local.Positioned: self._handler(Subscription.positioned),
            local.Arrived: self._handler(Subscription.arrived),
            local.Skipped: self._handler(Subscription.skipped),
            local.Given: self._handler(SharedSubscription.given),
            local.Expired: self._handler(SharedSubscription.expired),
            local.Lost: self._handler(SharedSubscription.lost),
            local.Ended: self._ended,
        }

    def _handler(self, method: Callable[[Any, Any], None]) -> Callable[[Any], None]:
        def handle(event: Any) -> None:
            subscription = self._open.get((event.topic, event.subscription))
            if subscription is not None:
                method(subscription, event)

        return handle

    def _ended(self, event: local.Ended) -> None:
        subscription = self._open.get((event.topic, event.subscription))
        if subscription is not None:
            subscription.ended(event)
