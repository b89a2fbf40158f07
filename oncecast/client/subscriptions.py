"""A client's open subscriptions. Each subscription has at most one reader at a time."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Any, NamedTuple

from oncecast.client.arguments import check_names, check_sendable
from oncecast.client.requests import Requests
from oncecast.client.session import local
from oncecast.client.subscription import Subscription
from oncecast.errors import InvalidArgument, OncecastError
from oncecast.kernel.protocol import Value
from oncecast.wire import commands as do

MakeSubscription = Callable[..., Subscription]  # has the parameters of Subscription


class Subscribed(NamedTuple):
    """The next offset of a subscription, and whether the call created it."""

    offset: int
    new: bool


class Subscriptions:
    """Opens and closes readers, and passes session events to them."""

    def __init__(self, requests: Requests, make: MakeSubscription = Subscription) -> None:
        self._requests, self._make = requests, make
        self._open: dict[tuple[str, str], Subscription] = {}  # by topic and name
        self._leaving: dict[tuple[str, str], asyncio.Future[None]] = {}  # done once closed

    def get(self, topic: str, name: str) -> Subscription | None:
        return self._open.get((topic, name))

    def all(self) -> list[Subscription]:
        return list(self._open.values())

    # -- on the node --

    async def create(self, topic: str, name: str, start: do.Start) -> Subscribed:
        done = await self._requests.call(do.Subscribe(topic, name, start, 0))
        return Subscribed(done.cursor, not done.already)

    async def remove(self, topic: str, name: str) -> bool:
        subscription = self.get(topic, name)
        if subscription is not None:
            await subscription.close(ack=False)
        return await self._requests.changes(do.Unsubscribe(topic, name, 0))

    async def seek(self, topic: str, name: str, start: do.Start) -> int:
        seek = do.Seek(topic, name, start, 0, secrets.token_hex(16))
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
                raise InvalidArgument(f"start_at is {start_at}", "the first offset is 0")
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

    async def _open_when_left(
        self, topic: str, name: str, auto_ack: bool, start_at: int | None, push: bool
    ) -> Subscription:
        key = (topic, name)
        while key in self._leaving:
            await asyncio.wait([self._leaving[key]])
        self._requests.check_open()
        if key not in self._open:
            self._open[key] = self._make(
                self._requests, self, topic, name, auto_ack=auto_ack, start_at=start_at, push=push
            )
        return self._open[key]

    def forget(self, subscription: Subscription) -> None:
        key = (subscription.topic, subscription.name)
        if self._open.get(key) is subscription:
            del self._open[key]

    async def leave(self, subscription: Subscription, request: Callable[[int], Value]) -> None:
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
        for subscription in self.all():
            subscription.fail(error)

    def handlers(self) -> dict[type[Value], Callable[[Any], None]]:
        return {
            local.Positioned: self._handler(Subscription.positioned),
            local.Arrived: self._handler(Subscription.arrived),
            local.Skipped: self._handler(Subscription.skipped),
            local.Ended: self._handler(Subscription.ended),
        }

    def _handler(self, method: Callable[[Subscription, Any], None]) -> Callable[[Any], None]:
        def handle(event: Any) -> None:
            subscription = self._open.get((event.topic, event.subscription))
            if subscription is not None:
                method(subscription, event)

        return handle
