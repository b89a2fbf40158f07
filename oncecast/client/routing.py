"""Choose the partition of each message, as the `consistent_random` partitioner of librdkafka does.

A key decides the partition by its CRC-32. Messages without a key, or with an empty one, go to one
partition until its batch is sent. Then another one is chosen at random.

A client learns that a topic has partitions when a node refuses the first batch, which is then
divided. A client that puts to plain topics therefore never asks whether they have partitions.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from oncecast.client.parcel import Parcel, Receipt
from oncecast.wire.partitions import partition_for_key, partition_topic
from oncecast.wire.timing import Timing

REFRESH = 30.0  # seconds after which a client checks whether the topic has more partitions


class Router:
    """The partitions of one topic."""

    def __init__(
        self, topic: str, count: int, rng: Random, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.topic = topic
        self._rng, self._clock = rng, clock
        self.count = 0
        self.names: list[str] = []
        self._sticky = 0  # the partition of the next message without a key
        self.learn(count)

    def learn(self, count: int) -> None:
        """Note the current number of partitions. It never decreases."""
        self.refreshed = self._clock()
        if count > self.count:
            self.names += [
                partition_topic(self.topic, number) for number in range(self.count, count)
            ]
            self.count = count
            self._sticky = self._rng.randrange(count)

    def choose(self, key: bytes | None) -> int:
        return partition_for_key(key, self.count) if key else self._sticky

    def sent(self, partition: int) -> None:
        """Choose another partition for messages without a key if this one was theirs."""
        if partition == self._sticky:
            self._sticky = self._rng.randrange(self.count)

    @property
    def stale(self) -> bool:
        return self._clock() >= self.refreshed + REFRESH


class Returned(NamedTuple):
    """A batch that was refused because its topic has partitions."""

    ticket: int  # puts of an earlier process have ticket 0
    parcel: Parcel | None  # None if an earlier process has put it
    batch: bytes
    timing: Timing | None

    def waiters(self) -> dict[int, asyncio.Future[Receipt]]:
        """Return the waiter of each message that has one, by its index in the batch."""
        return {} if self.parcel is None else {at: waiter for waiter, at in self.parcel.waiters}


class Routers:
    """The partitioned topics that a client puts to."""

    def __init__(
        self,
        refresh: Callable[[str], None] = lambda topic: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rng = Random()
        self._refresh, self._clock = refresh, clock
        self._known: dict[str, Router] = {}
        # Batches of topics whose other batches are still in flight, in order.
        self.returning: dict[str, list[Returned]] = {}

    def __bool__(self) -> bool:
        return bool(self._known or self.returning)

    def get(self, topic: str) -> Router | None:
        router = self._known.get(topic)
        if router is not None and router.stale:
            router.refreshed = self._clock()
            self._refresh(topic)
        return router

    def learn(self, topic: str, count: int) -> None:
        router = self._known.get(topic)
        if router is None:
            self._known[topic] = Router(topic, count, self._rng, self._clock)
        else:
            router.learn(count)

    def update(self, topic: str, count: int) -> None:
        """Note the number of partitions if this client puts to the topic. 0 if it is gone."""
        if not count:
            self._known.pop(topic, None)
        elif topic in self._known:
            self._known[topic].learn(count)

    def returned(self) -> list[Parcel]:
        """Return the refused batches that are not put again yet."""
        every = (each.parcel for some in self.returning.values() for each in some)
        return [parcel for parcel in every if parcel is not None]

    def forget(self, router: Router) -> None:
        """Forget a topic whose partitions were deleted."""
        if self._known.get(router.topic) is router:
            del self._known[router.topic]


class PlacedReceipt(Receipt):
    """The receipt of a message in a partition. Its offset counts within the partition."""

    _partition = -1

    @property
    def partition(self) -> int:
        return self._partition


def placed(offset: int, kept: bool | None, partition: int) -> Receipt:
    receipt = PlacedReceipt(offset, kept)
    receipt._partition = partition  # a tuple subclass has no constructor of its own
    return receipt
