"""Create, grow, describe and delete topics with partitions.

Every step may be repeated. If a client dies in between, the same call of another client finishes
the work. See the module `wire.partitions`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from msgspec.structs import replace

from oncecast.client.arguments import check_partitions
from oncecast.client.requests import Requests
from oncecast.client.subscriptions import Subscribed
from oncecast.errors import (
    Fenced,
    InvalidArgument,
    NoSuchTopic,
    OncecastError,
    Partitioned,
    TopicExists,
)
from oncecast.wire import commands as do
from oncecast.wire.frames import SubscriptionView, TopicView
from oncecast.wire.partitions import AddGroup, RemoveGroup, SetPartitions, partition_topic
from oncecast.wire.retention import Policy

T = TypeVar("T")

TOGETHER = 16  # maximum number of concurrent requests for one topic
ATTEMPTS_MAX = 10  # maximum number of attempts while consumer groups are added

Describe = Callable[[str], Awaitable[TopicView]]  # returns the view of one topic


class Partitions:
    """The partitioned topics of a cluster, as one client uses them."""

    def __init__(self, requests: Requests, describe: Describe) -> None:
        self._requests, self._describe = requests, describe

    async def create(self, topic: str, count: int, policy: Policy) -> bool:
        """Create a topic with partitions. Return whether it is new."""
        check_partitions(count)
        view = await self._known(topic)
        if view is not None and (view.partitions, view.policy) != (count, policy):
            raise TopicExists(topic)
        await self._create(topic, range(count), policy)
        try:
            command = do.CreateTopic(topic, 0, policy, partitions=count)
            return await self._requests.changes(command)
        except TopicExists as exists:
            if await self._known(topic) is not None:
                raise
            fact = f"topic {topic!r} is being deleted"
            raise exists.reworded(fact, "delete it again to finish, then create it") from None

    async def _known(self, topic: str) -> TopicView | None:
        try:
            return await self._describe(topic)
        except NoSuchTopic:
            return None

    async def _create(self, topic: str, numbers: Iterable[int], policy: Policy) -> None:
        await each_of(
            [
                self._requests.call(
                    do.CreateTopic(partition_topic(topic, number), 0, policy, partition_of=topic)
                )
                for number in numbers
            ]
        )

    async def grow(self, topic: str, count: int) -> int:
        """Raise the number of partitions to `count`. Return how many are new.

        First subscribe all consumer groups to the new partitions, so that they miss no message.
        """
        check_partitions(count)
        for _ in range(ATTEMPTS_MAX):
            view = await self._describe(topic)
            if not view.partitions:
                raise InvalidArgument(
                    f"topic {topic!r} has no partitions", "create another topic with partitions"
                )
            new = range(view.partitions, count)
            await self._create(topic, new, view.policy)
            for group in view.subscriptions:
                await self.subscribe(topic, group.name, new, do.FromEarliest())
            try:
                command = SetPartitions(topic, 0, count, view.groups_epoch)
                await self._requests.call(command)
            except Fenced:
                continue
            return len(new)
        raise TopicExists(topic).reworded(
            f"topic {topic!r} got new consumer groups in the meantime", "try again later"
        )

    async def delete(self, topic: str) -> bool:
        """Delete a topic, with its partitions if it has any. Return whether it existed."""
        try:
            return await self._requests.changes(do.DeleteTopic(topic, 0))
        except Partitioned:
            pass
        closed = await self._requests.call(SetPartitions(topic, 0, 0))
        await each_of(
            [
                self._requests.call(
                    do.DeleteTopic(partition_topic(topic, number), 0, partition_of=topic)
                )
                for number in range(closed.count)
            ]
        )
        return await self._requests.changes(do.DeleteTopic(topic, 0, partition_of=topic))

    async def set_policy(self, topic: str, policy: Policy) -> None:
        """Set the policy of a topic, and of its partitions if it has any."""
        await self._requests.call(do.SetPolicy(topic, 0, policy))
        view = await self._known(topic)
        count = 0 if view is None else view.partitions
        names = [partition_topic(topic, number) for number in range(count)]
        await each_of([self._requests.call(do.SetPolicy(name, 0, policy)) for name in names])

    async def describe(self, topic: str) -> TopicView:
        view = await self._describe(topic)
        return folded(view, await self._views(view)) if view.partitions else view

    async def of(self, topic: str) -> list[TopicView]:
        """Return the views of all partitions of a topic, in order."""
        return await self._views(await self._describe(topic))

    async def _views(self, view: TopicView) -> list[TopicView]:
        names = [partition_topic(view.name, number) for number in range(view.partitions)]
        return await each_of([self._describe(name) for name in names])

    async def refresh(self, topic: str, tell: Callable[[str, int], None]) -> None:
        """Tell the current number of partitions of a topic, or 0 if it does not exist."""
        with suppress(OncecastError):  # the client puts to the partitions that it knows
            view = await self._known(topic)
            tell(topic, 0 if view is None else view.partitions)

    # -- consumer groups --

    async def add_group(self, topic: str, name: str, start: do.Start) -> Subscribed:
        """Add a consumer group, and subscribe it to all partitions.

        Return the sum of the next offsets, and whether the group is new.
        """
        added = await self._requests.call(AddGroup(topic, name, 0))
        cursors = await self.subscribe(topic, name, range(added.partitions), start)
        return Subscribed(sum(cursors), not added.already)

    async def subscribe(
        self, topic: str, name: str, numbers: Iterable[int], start: do.Start
    ) -> list[int]:
        """Subscribe a consumer group to partitions. Return their cursors."""
        done = await each_of(
            [
                self._requests.call(
                    do.Subscribe(partition_topic(topic, number), name, start, 0, create=False)
                )
                for number in numbers
            ]
        )
        return [each.cursor for each in done]

    async def remove_group(self, topic: str, name: str) -> bool:
        """Remove a consumer group with its subscriptions. Return whether it existed."""
        count = (await self._describe(topic)).partitions
        await each_of(
            [
                self._requests.call(do.Unsubscribe(partition_topic(topic, number), name, 0))
                for number in range(count)
            ]
        )
        return await self._requests.changes(RemoveGroup(topic, name, 0))


async def each_of(work: list[Awaitable[T]]) -> list[T]:
    """Return the results in order. At most `TOGETHER` run at a time; raise the first error."""
    found: list[T] = []
    for at in range(0, len(work), TOGETHER):
        some = await asyncio.gather(*work[at : at + TOGETHER], return_exceptions=True)
        for each in some:
            if isinstance(each, BaseException):
                for left in work[at + TOGETHER :]:
                    if asyncio.iscoroutine(left):
                        left.close()  # avoid a warning that it was never awaited
                raise each
            found.append(each)
    return found


# One view of a topic and its partitions.


def folded(base: TopicView, partitions: list[TopicView]) -> TopicView:
    """Return the view of a partitioned topic, with the sums over its partitions."""
    groups = [
        folded_group(group, [each for view in partitions for each in view.subscriptions])
        for group in base.subscriptions
    ]
    return replace(
        base,
        first=sum(each.first for each in partitions),
        next=sum(each.next for each in partitions),
        bytes=sum(each.bytes for each in partitions),
        producers=sum(each.producers for each in partitions),
        delayed=sum(each.delayed for each in partitions),
        subscriptions=tuple(groups),
    )


def folded_group(group: SubscriptionView, all_: list[SubscriptionView]) -> SubscriptionView:
    mine = [each for each in all_ if each.name == group.name]
    return replace(
        group, cursor=sum(each.cursor for each in mine), lag=sum(each.lag for each in mine)
    )


async def folding(views: AsyncIterator[TopicView]) -> AsyncIterator[TopicView]:
    """Yield each partitioned topic once, with the sums over its partitions.

    `views` are sorted by name, so the partitions follow soon after their topic.
    """
    held: dict[str, tuple[TopicView, list[TopicView]]] = {}
    async for view in views:
        if view.partition_of in held:
            held[view.partition_of][1].append(view)
            continue
        first = next(iter(held), None)
        if first is not None and view.name > first + "$":  # the character after the mark
            for each in held.values():
                yield one_of(*each)
            held.clear()
        if held or view.partitions:
            held[view.name] = (view, [])
        else:
            yield view
    for each in held.values():
        yield one_of(*each)


def one_of(view: TopicView, partitions: list[TopicView]) -> TopicView:
    return folded(view, partitions) if view.partitions else view
