"""What a client reads: one reading of a subscription at a time, each after the last has left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from oncecast.client.arguments import check_names, check_sendable
from oncecast.client.errors import InvalidArgument, OncecastError, raised
from oncecast.client.session import local
from oncecast.client.subscription import Subscription
from oncecast.kernel.protocol import Value
from oncecast.wire import commands as do

if TYPE_CHECKING:
    from oncecast.client.client import Client


class Readings:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._here: dict[tuple[str, str], Subscription] = {}  # by topic and name
        self._leaving: dict[tuple[str, str], asyncio.Future[None]] = {}  # done when they have left

    def get(self, topic: str, name: str) -> Subscription | None:
        return self._here.get((topic, name))

    def all(self) -> list[Subscription]:
        return list(self._here.values())

    async def begin(
        self, topic: str, name: str, *, auto_ack: bool, start_at: int | None, push: bool
    ) -> Subscription:
        """The one that is here, if that is what is asked for; or another."""
        found = self.get(topic, name)
        if found is None:
            check_names(do.Attach(topic, name, incarnation=""))
            check_sendable(local.Read(topic, name, -1 if start_at is None else start_at))
            if start_at is not None and start_at < 0:
                raise InvalidArgument(f"start_at {start_at}: offsets begin at 0")
            how = {"auto_ack": auto_ack, "start_at": start_at, "push": push}
            found = await self._when_left(topic, name, how)
        elif auto_ack != found.auto_ack or start_at is not None:
            raise InvalidArgument(
                f"the subscription {name!r} of topic {topic!r} is being read with "
                f"auto_ack={found.auto_ack}: close it before it is read in another way, or seek"
            )
        patience = self._client.patience(None)
        try:
            async with asyncio.timeout(patience):
                return await found.ready()
        except TimeoutError:  # it goes on trying: whoever asks again may find it ready
            raise raised(local.NoAnswer(patience, self._client.led)) from None

    async def _when_left(self, topic: str, name: str, how: dict[str, Any]) -> Subscription:
        key = (topic, name)
        while key in self._leaving:
            await asyncio.wait([self._leaving[key]])
        self._client.check_open()
        if key not in self._here:
            made = self._client.subscription_type(self._client, topic, name, **how)
            self._here[key] = made
        return self._here[key]

    def forget(self, subscription: Subscription) -> None:
        key = (subscription.topic, subscription.name)
        if self._here.get(key) is subscription:
            del self._here[key]

    async def leave(self, subscription: Subscription, request: Callable[[int], Value]) -> None:
        key = (subscription.topic, subscription.name)
        left = self._leaving[key] = self._client.loop.create_future()
        try:
            await self._client.finished(request, None)
        finally:
            left.set_result(None)
            if self._leaving.get(key) is left:
                del self._leaving[key]

    def fail(self, error: OncecastError) -> None:
        for subscription in self.all():
            subscription.fail(error)

    def events(self) -> dict[type[Value], Callable[[Any], None]]:
        return {
            local.Positioned: self._tells(Subscription.positioned),
            local.Arrived: self._tells(Subscription.arrived),
            local.Skipped: self._tells(Subscription.skipped),
            local.Ended: self._tells(Subscription.ended),
        }

    def _tells(self, method: Callable[[Subscription, Any], None]) -> Callable[[Any], None]:
        def tell(event: Any) -> None:
            subscription = self._here.get((event.topic, event.subscription))
            if subscription is not None:
                method(subscription, event)

        return tell
