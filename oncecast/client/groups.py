"""A client's memberships in consumer groups of topics with partitions."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from oncecast.client.group import GroupSubscription
from oncecast.client.partition_reader import PartitionReader
from oncecast.client.partitioning import Partitions, each_of
from oncecast.client.requests import Requests
from oncecast.client.subscriptions import Subscribed, Subscriptions
from oncecast.errors import InvalidArgument, OncecastError
from oncecast.wire import commands as do
from oncecast.wire.partitions import partition_topic


class Groups:
    def __init__(
        self,
        requests: Requests,
        subscriptions: Subscriptions,
        partitions: Partitions,
        saw: Callable[[str, int], None],  # receives the number of partitions of a topic
    ) -> None:
        self._requests, self._subscriptions = requests, subscriptions
        self._partitions, self.saw = partitions, saw
        self._open: dict[tuple[str, str], GroupSubscription] = {}

    def get(self, topic: str, name: str) -> GroupSubscription | None:
        return self._open.get((topic, name))

    async def create(self, topic: str, name: str, start: do.Start) -> Subscribed:
        """Add the group. Return the sum of the next offsets of its partitions."""
        return await self._partitions.add_group(topic, name, check_group_start(start))

    async def join(
        self,
        topic: str,
        name: str,
        *,
        auto_ack: bool = True,
        start_at: int | None = None,
        push: bool = False,
    ) -> GroupSubscription:
        """Read as a member of the group."""
        if start_at is not None or push:
            option = "push" if push else "start_at"
            raise InvalidArgument(
                f"{option} is set for topic {topic!r}, which has partitions",
                f"read one of its partitions, such as {partition_topic(topic, 0)!r}",
            )
        found = self.get(topic, name)
        if found is not None:
            if found.auto_ack != auto_ack:
                raise InvalidArgument(
                    f"subscription {name!r} of topic {topic!r} is already open with "
                    f"auto_ack={found.auto_ack}",
                    "close it before reopening it with other options",
                )
            return found
        made = GroupSubscription(self._requests, self, topic, name, auto_ack=auto_ack)
        self._open[topic, name] = made
        try:
            return await made.join()
        except BaseException:
            self.forget(made)
            raise

    def open(
        self, group: GroupSubscription, partition: int, term: int, wake: Callable[[], None]
    ) -> PartitionReader:
        """Start to read a partition."""
        return self._subscriptions.read_partition(
            group.topic, partition, term, group.name, auto_ack=group.auto_ack, wake=wake
        )

    async def remove(self, topic: str, name: str) -> bool:
        """Remove the group from the topic. Return whether it existed."""
        found = self.get(topic, name)
        if found is not None:
            await found.close(ack=False)
        return await self._partitions.remove_group(topic, name)

    async def seek(self, topic: str, name: str, start: do.Start) -> int:
        """Move the group. Return the sum of the next offsets of its partitions."""
        check_group_start(start)
        views = await self._partitions.of(topic)
        seek = self._subscriptions.seek
        return sum(await each_of([seek(each.name, name, start) for each in views]))

    def forget(self, group: GroupSubscription) -> None:
        key = (group.topic, group.name)
        if self._open.get(key) is group:
            del self._open[key]

    def closings(self, *, ack: bool) -> list[Coroutine[Any, Any, None]]:
        return [each.close(ack=ack) for each in list(self._open.values())]

    def fail(self, error: OncecastError) -> None:
        for each in list(self._open.values()):
            each.fail(error)


def check_group_start(start: do.Start) -> do.Start:
    if isinstance(start, do.FromOffset):
        raise InvalidArgument(
            f"offset {start.offset} has no meaning in a topic with partitions",
            "use NEW, EARLIEST or from_time(seconds), or move one of the partitions",
        )
    return start
