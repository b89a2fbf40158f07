"""A topic: an index of messages, with its producers and subscriptions."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace
from typing import assert_never

from oncecast.broker.clock import Clock, Retiming
from oncecast.broker.delays import Delayed, Delays
from oncecast.broker.index import PLAIN, Index
from oncecast.broker.live_slots import LiveSlots
from oncecast.broker.partitioning import Descriptor
from oncecast.broker.producer import Producer
from oncecast.broker.subscription import Subscription
from oncecast.broker.totals import Counted
from oncecast.wire.commands import (
    ANY_EPOCH,
    Ack,
    Detach,
    FromEarliest,
    FromNew,
    FromOffset,
    FromTime,
    Put,
    Seek,
    Start,
    TimedPut,
)
from oncecast.wire.errors import (
    Fenced,
    Gap,
    NotSubscribed,
    OutOfRange,
    Repositioned,
    TooMany,
    Unopened,
    WrongKind,
)
from oncecast.wire.results import (
    Acked,
    AckResult,
    Already,
    Appended,
    Attached,
    Detached,
    Sought,
)
from oncecast.wire.retention import DEFAULT, Policy
from oncecast.wire.timing import DELAYED_MAX, RELEASED_MAX


class Topic:
    """A topic from its creation to its deletion. Offsets count from 0 and are never reused."""

    __slots__ = (
        "_cursors",
        "_live_slots",
        "declared",
        "delays",
        "descriptor",
        "fenced",
        "id",
        "index",
        "name",
        "partition_of",
        "policy",
        "producers",
        "subscriptions",
    )

    def __init__(
        self, id_: int, name: str, policy: Policy, declared: bool, live_slots: LiveSlots
    ) -> None:
        self.id = id_
        self.name = name
        self.policy = policy
        self.declared = declared  # created by CreateTopic, so it exists until DeleteTopic
        self.partition_of = ""  # the partitioned topic that this topic is a partition of
        self.descriptor: Descriptor | None = None  # None if the topic has no partitions
        self._live_slots = live_slots
        self.index = Index(live_slots)
        self.delays = Delays()
        self.producers: Counted[Producer] = Counted()
        self.subscriptions: Counted[Subscription] = Counted()
        # The last epoch that may have fenced a reader. Snapshots omit this value, so after a
        # restart it may be higher, up to the group's last epoch.
        self.fenced = 0
        # A heap with at least one (cursor, name) per subscription. Its cursors may lag behind.
        self._cursors: list[tuple[int, str]] = []

    @property
    def keeps(self) -> bool:
        """Return whether the topic would keep a new message, at least for some time."""
        return self.policy.retains or bool(self.subscriptions)

    @property
    def shared(self) -> bool:
        """Return whether the topic has a shared subscription."""
        return any(each.queue is not None for each in self.subscriptions.values())

    @property
    def has_deadlines(self) -> bool:
        """Return whether a lease, a retry or a time to live waits for the clock."""
        queues = [each.queue for each in self.subscriptions.values() if each.queue is not None]
        lives = bool(queues) and bool(self.index.lifetimes)
        return lives or any(queue.next_due() is not None for queue in queues)

    @property
    def idle(self) -> bool:
        """Return whether the topic can be deleted: it is neither declared nor in use."""
        used = self.subscriptions or self.producers or self.delays.batches
        return not (self.declared or used or self.policy.retains)

    # Producers.

    def put(
        self, slot: int, put: Put, clock: Clock
    ) -> Appended | Already | Unopened | Fenced | Gap:
        producer = self.producers.get(put.producer)
        if producer is None:
            return Unopened(put.topic, put.producer)
        if put.epoch != producer.epoch:
            return Fenced(producer.epoch)
        if producer.record:
            producer.used = clock.now
        known = producer.next - put.sequence
        if known < 0:
            return Gap(producer.next)
        count = put.count - known
        if count <= 0:
            return Already(producer.offset_of(put.sequence, put.count), put.count)
        self._live_slots.add(slot)
        note = (known, -1) if known else PLAIN
        offset, kept = self.append(slot, producer, count, put.size, clock, note)
        return Appended(offset, count, kept)

    def put_timed(
        self, slot: int, put: TimedPut, clock: Clock
    ) -> Appended | Already | Unopened | Fenced | Gap | TooMany:
        """Store a put with a delay, a time to live, or both."""
        timing = put.timing
        due = timing.due_us or (clock.now + timing.delay_us if timing.delay_us else 0)
        if due <= clock.trusted:
            appended = self.put(slot, put, clock)
            if timing.ttl_us and isinstance(appended, Appended) and appended.kept:
                self.index.expire_last(clock.now + timing.ttl_us)
            return appended
        producer = self.producers.get(put.producer)
        ours = producer is not None and put.epoch == producer.epoch
        known = producer.next - put.sequence if producer is not None and ours else -1
        if producer is None or not 0 <= known < put.count:
            return self.put(slot, put, clock)  # a refusal, or the answer to a copy
        if len(self.delays.batches) >= DELAYED_MAX:
            return TooMany("delayed batches of the topic", DELAYED_MAX)
        if producer.record:
            producer.used = clock.now
        count, times = put.count - known, (timing.delay_us, timing.due_us, timing.ttl_us)
        self._live_slots.add(slot)
        self.delays.add(Delayed(slot, count, put.size, known, clock.now, *times))
        producer.delayed(count)
        return Appended(-1, count, self.keeps)

    def release(self, clock: Clock) -> bool:
        """Append the delayed messages that are due. Return False if there are none."""
        released = False
        for batch in self.delays.take(clock.trusted, RELEASED_MAX):
            note = (batch.skip, -1) if batch.skip else PLAIN
            self.index.append(batch.slot, batch.count, batch.size, clock.now, note)
            if batch.ttl:
                self.index.expire_last(batch.time + batch.ttl)
            released = True
        if released:
            self.collect(clock)
        return released

    def already(self, put: Put) -> Already | None:
        """Return the answer to a put if all its messages are already stored, else None."""
        producer = self.producers.get(put.producer)
        if producer is None or put.epoch != producer.epoch:
            return None
        if put.sequence < 0 or put.sequence + put.count > producer.next:
            return None
        return Already(producer.offset_of(put.sequence, put.count), put.count)

    def append(
        self,
        slot: int,
        producer: Producer,
        count: int,
        size: int,
        clock: Clock,
        note: tuple[int, int] = PLAIN,
    ) -> tuple[int, bool]:
        """Append messages. Return the offset of the first, and whether the topic keeps them."""
        index = self.index
        offset = index.append(slot, count, size, clock.now, note)
        producer.appended(offset, count)
        if self.policy == DEFAULT and self.subscriptions:
            return offset, True  # subscriptions need the new messages, and no old message expires
        self.collect(clock)
        return offset, index.first <= offset

    # Subscriptions.

    def subscribe(self, name: str, epoch: int, start: Start) -> Subscription:
        subscription = Subscription(epoch, self.nearest_offset(start))
        self.subscriptions[name] = subscription
        self.fenced = epoch  # a client may still be reading a removed subscription with this name
        self._note_cursor(subscription.cursor, name)
        return subscription

    def attach(self, subscription: Subscription, incarnation: str, epoch: int) -> None:
        """Make `incarnation` the only reader of the subscription."""
        if subscription.incarnation:
            self.fenced = epoch
        subscription.attach(incarnation, epoch, self.index.next)

    def unsubscribe(self, name: str, clock: Clock) -> bool:
        if self.subscriptions.pop(name, None) is None:
            return False
        self.collect(clock)
        return True

    def attached(self, subscription: Subscription) -> Attached:
        return Attached(
            subscription.epoch,
            subscription.cursor,
            self.index.first,
            self.index.next,
            subscription.suspect_below,
            self.id,
        )

    def detach(
        self, detach: Detach
    ) -> Detached | NotSubscribed | WrongKind | Fenced | Repositioned:
        subscription = self.subscriptions.get(detach.subscription)
        if subscription is None:
            return NotSubscribed(self.name, detach.subscription)
        if subscription.queue is not None:
            return WrongKind(self.name, detach.subscription, "shared")
        if detach.epoch != subscription.epoch:
            return stale(subscription, detach.epoch)
        subscription.detach(min(detach.delivered, self.index.next))
        return Detached(subscription.suspect_below)

    def ack(self, ack: Ack, clock: Clock) -> AckResult:
        subscription = self.subscriptions.get(ack.subscription)
        if subscription is None:
            return NotSubscribed(self.name, ack.subscription)
        if subscription.queue is not None:
            return WrongKind(self.name, ack.subscription, "shared")
        if ack.epoch != subscription.epoch:
            return stale(subscription, ack.epoch)
        if ack.upto > self.index.next:
            return OutOfRange(self.index.next)
        subscription.acknowledge(ack.upto)
        self.collect(clock)
        return Acked(subscription.cursor)

    def seek(
        self, seek: Seek, new_epoch: Callable[[], int], clock: Clock
    ) -> Sought | NotSubscribed | Fenced | Repositioned:
        subscription = self.subscriptions.get(seek.subscription)
        if subscription is None:
            return NotSubscribed(self.name, seek.subscription)
        if seek.token == subscription.seek_token and not fenced(subscription, seek.epoch):
            return Sought(subscription.epoch, subscription.cursor, already=True)
        if seek.epoch not in (0, subscription.epoch):
            return stale(subscription, seek.epoch)
        if not seek.epoch and seek.expected not in (ANY_EPOCH, subscription.epoch):
            return Fenced(subscription.epoch)
        subscription.seek(self.nearest_offset(seek.start), new_epoch(), seek.token)
        self.fenced = subscription.epoch
        self._note_cursor(subscription.cursor, seek.subscription)
        self.collect(clock)
        return Sought(subscription.epoch, subscription.cursor, already=False)

    def nearest_offset(self, start: Start) -> int:
        """Return the kept offset nearest to `start`, or the next one to be assigned."""
        index = self.index
        match start:
            case FromNew():
                return index.next
            case FromEarliest():
                return index.first
            case FromOffset(offset):
                return min(max(offset, index.first), index.next)
            case FromTime(at):
                return index.since(at)
            case _:
                assert_never(start)

    # Time.

    def retime(self, retiming: Retiming) -> None:
        self.index.retime(retiming)
        if self.delays.batches:
            self.delays.retime(retiming)
        for producer in self.producers.values():
            if producer.used > retiming.above:
                producer.used = retiming.rule(producer.used)
        if self.descriptor is not None and retiming.shift:
            self.descriptor.shift(retiming.shift)
        for subscription in self.subscriptions.values() if retiming.shift else ():
            if subscription.queue is not None:
                subscription.queue.shift(retiming.shift)

    # Retention.

    def collect(self, clock: Clock) -> None:
        """Drop messages that neither the policy nor a subscription needs."""
        floor = self.floor(clock.trusted)
        if floor > self.index.first:
            self.index.drop_below(floor)

    def floor(self, trusted: int) -> int:
        """Return the offset below which no message is needed."""
        floor = self.index.floor(self.policy, trusted)
        if self.subscriptions and not self.policy.drop_unread:
            floor = min(floor, self.low_water())
        return floor

    def low_water(self) -> int:
        """Return the smallest cursor. The topic must have a subscription."""
        heap, subscriptions = self._cursors, self.subscriptions
        while True:
            cursor, name = heap[0]
            subscription = subscriptions.get(name)
            if subscription is None:
                heappop(heap)
            elif subscription.cursor > cursor:
                heapreplace(heap, (subscription.cursor, name))
            else:
                return cursor

    def clear(self) -> None:
        """Drop all messages, because the topic is deleted or has moved."""
        self.index.clear()
        for slot in self.delays.clear():
            self._live_slots.drop(slot)

    def rebuild(self) -> None:
        """Recompute the values that are not in a snapshot."""
        self.fenced = max((each.epoch for each in self.subscriptions.values()), default=0)
        self._gather_cursors()

    def _gather_cursors(self) -> None:
        self._cursors = [(each.cursor, name) for name, each in self.subscriptions.items()]
        heapify(self._cursors)

    def _note_cursor(self, cursor: int, name: str) -> None:
        heappush(self._cursors, (cursor, name))
        if len(self._cursors) > 2 * len(self.subscriptions) + 16:
            self._gather_cursors()


def fenced(subscription: Subscription, epoch: int) -> bool:
    """Return whether another reader has attached since `epoch`. No reader has epoch 0."""
    return 0 < epoch < subscription.attached


def stale(subscription: Subscription, epoch: int) -> Fenced | Repositioned:
    """Return Repositioned if only a seek ended `epoch` and the reader may continue, else Fenced."""
    if subscription.incarnation and subscription.attached <= epoch < subscription.epoch:
        return Repositioned(subscription.epoch, subscription.cursor)
    return Fenced(subscription.epoch)
