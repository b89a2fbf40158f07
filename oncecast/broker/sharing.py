"""Handlers for commands on shared subscriptions. The module `wire.sharing` describes the commands.

The cursor of a shared subscription is its lowest unsettled offset. So retention treats it like any
other subscription.

The dead-letter topic exists from the start, so that the topic limit cannot prevent its creation
later. If a subscription has no delivery limit, the first rejected message creates the topic.
"""

from __future__ import annotations

from oncecast.broker.clock import Clock
from oncecast.broker.queue import Expiry, Queue, shares
from oncecast.broker.registry import Registry
from oncecast.broker.subscription import Subscription
from oncecast.broker.topic import Topic
from oncecast.dht.identifiers import key_of_topic
from oncecast.wire.commands import Bury, Lease, Settles, SubscribeShared
from oncecast.wire.errors import (
    InvalidArgument,
    InvalidName,
    InvalidTopic,
    NoSuchTopic,
    NotKept,
    NotSubscribed,
    Partitioned,
    TooMany,
    WrongKind,
)
from oncecast.wire.limits import is_name
from oncecast.wire.results import (
    Buried,
    GrantMade,
    Leased,
    Settled,
    SettleResult,
    SettlesDone,
    Subscribed,
)
from oncecast.wire.retention import Policy
from oncecast.wire.sharing import (
    DEFAULT_SHARED,
    EXPIRED,
    LEASE_ENDED,
    WINDOW_MAX,
    Settle,
    Shared,
    dead_letter_topic,
    runs_of,
)
from oncecast.wire.timing import TIMING_LEVEL

KEEP_ALL = Policy(keep_all=True)

Missing = InvalidTopic | NoSuchTopic | NotSubscribed | WrongKind
Found = tuple[Topic, Subscription, Queue]


class Sharing:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    # -- subscribe --

    def subscribe(
        self, slot: int, command: SubscribeShared
    ) -> Subscribed | InvalidTopic | InvalidName | InvalidArgument | TooMany | WrongKind | NotKept:
        registry = self._registry
        registry.pass_time(command.at)
        fault = self._fault(command)
        if fault is not None:
            return fault
        topic = registry.topics.get(command.topic)
        known = topic.subscriptions.get(command.subscription) if topic is not None else None
        if topic is not None and known is not None:
            return self._change(topic, known, command)
        settings = command.settings or DEFAULT_SHARED
        refusal = self._refusal(topic, command, settings)
        if refusal is not None:
            return refusal
        if topic is None:
            topic = registry.make(command.topic)
        made = topic.subscribe(command.subscription, registry.new_epoch(), command.start)
        made.queue = Queue(settings, made.cursor)
        registry.follow_sharing(topic)
        if settings.deliveries_max:
            self._dead_letters(command.topic, command.subscription, settings)
        return Subscribed(made.cursor, topic.id, already=False)

    def _fault(self, command: SubscribeShared) -> InvalidName | InvalidArgument | None:
        if not is_name(command.subscription):
            return InvalidName("subscription")
        settings = command.settings or DEFAULT_SHARED
        if settings.fault:
            return InvalidArgument(settings.fault)
        name = dead_letters(command.topic, command.subscription, settings)
        if not is_name(name):
            return InvalidName("dead-letter topic")
        if name in self._registry.divided:
            return InvalidArgument(
                f"the dead-letter topic {name!r} has partitions; choose another name"
            )
        if name == command.topic:
            return InvalidArgument("the dead-letter topic is the topic itself; choose another name")
        apart = key_of_topic(name) != key_of_topic(command.topic)
        if self._registry.holdings is not None and apart:
            return InvalidArgument(
                f"the dead-letter topic {name!r} can be in another group of the ring; "
                "give it the same tag in braces as the topic"
            )
        return None

    def _refusal(
        self, topic: Topic | None, command: SubscribeShared, settings: Shared
    ) -> InvalidTopic | TooMany | NotKept | None:
        """Return the refusal to create the subscription and its topics, or None if it is valid."""
        registry = self._registry
        name = dead_letters(command.topic, command.subscription, settings)
        dead = registry.topics.get(name)
        new = (topic is None) + (dead is None and settings.deliveries_max > 0)
        if new:
            refusal = registry.refusal_to_make(command.topic, new)
            if refusal is not None:
                return refusal
        if dead is not None and not dead.keeps:
            return NotKept(name)
        return registry.refusal_to_subscribe(topic)

    def _change(
        self, topic: Topic, known: Subscription, command: SubscribeShared
    ) -> Subscribed | WrongKind | InvalidArgument | InvalidTopic | TooMany | NotKept:
        """Change the settings of a subscription, for leases and releases from now on."""
        queue, settings = known.queue, command.settings
        if queue is None:
            return WrongKind(command.topic, command.subscription, "exclusive")
        if settings is not None and settings != queue.settings:
            if settings.by_key != queue.settings.by_key and queue.open:
                return InvalidArgument(
                    f"by_key cannot change while {len(queue.open):,} messages are in flight; "
                    "wait until they are settled"
                )
            name = dead_letters(command.topic, command.subscription, settings)
            dead = self._registry.topics.get(name)
            if dead is not None and not dead.keeps:
                return NotKept(name)
            if dead is None and settings.deliveries_max:
                refusal = self._registry.refusal_to_make(name)
                if refusal is not None:
                    return refusal
                self._dead_letters(command.topic, command.subscription, settings)
            queue.settings = settings
        return Subscribed(known.cursor, topic.id, already=True)

    def _dead_letters(self, topic: str, subscription: str, settings: Shared) -> Topic:
        """Return the dead-letter topic. Create it if it does not exist."""
        name = dead_letters(topic, subscription, settings)
        known = self._registry.topics.get(name)
        return known or self._registry.make(name, KEEP_ALL, declared=True)

    # -- lease and settle --

    def lease(self, slot: int, command: Lease) -> Leased | Missing:
        clock = self._registry.pass_time(command.at)
        found = self._find(command.topic, command.subscription)
        if not isinstance(found, tuple):
            return found
        topic, subscription, queue = found
        now = clock.trusted
        new = self._registry.level >= TIMING_LEVEL
        queue.expire(now, topic.index.first, LEASE_ENDED if new else EXPIRED)
        expiry = expiry_of(topic)
        for worker in command.gone:
            queue.lose(worker, now)
        if not command.wants:
            for worker in queue.idle_workers(now):
                del queue.workers[worker]
        if expiry is not None:
            queue.end_expired(now, expiry)
        grants = self._grant(topic, queue, command, now, expiry)
        self.advance(topic, subscription, queue, clock)
        return Leased(grants)

    def _grant(
        self, topic: Topic, queue: Queue, command: Lease, now: int, expiry: Expiry | None
    ) -> tuple[GrantMade, ...]:
        workers, rooms = [], []
        for worker, window in dict(command.wants).items():
            room = queue.room(worker, min(window, WINDOW_MAX))
            if room > 0 and is_name(worker):
                workers.append(worker)
                rooms.append(room)
        keys = command.keys if command.keys_from == queue.next else ()
        taken = queue.take(sum(rooms), now, topic.index.next, keys, expiry)
        made, at = [], 0
        for worker, share in zip(workers, shares(rooms, len(taken)), strict=True):
            if share:
                token, mine = self._registry.new_epoch(), taken[at : at + share]
                at += share
                queue.grant(worker, token, now, mine)
                runs = tuple((first, count) for _, first, count in runs_of((0, o) for o in mine))
                made.append(GrantMade(worker, token, runs))
        return tuple(made)

    def settles(self, slot: int, command: Settles) -> SettlesDone:
        clock = self._registry.pass_time(command.at)
        return SettlesDone(tuple([self._settle(each, clock) for each in command.settles]))

    def _settle(self, settle: Settle, clock: Clock) -> SettleResult:
        elsewhere = self._registry.elsewhere(settle.topic)
        if elsewhere is not None:
            return elsewhere
        found = self._find(settle.topic, settle.subscription)
        if not isinstance(found, tuple):
            return found
        if settle.fault:
            return InvalidArgument(settle.fault)
        topic, subscription, queue = found
        stale = queue.settle(settle, clock.trusted)
        self.advance(topic, subscription, queue, clock)
        return Settled(subscription.cursor, stale)

    # -- dead letters --

    def bury(
        self, slot: int, command: Bury
    ) -> Buried | Missing | InvalidTopic | TooMany | Partitioned:
        registry, put = self._registry, command.put
        clock = registry.pass_time(command.at)
        found = self._find(command.topic, command.subscription)
        if not isinstance(found, tuple):
            return found
        topic, subscription, queue = found
        name = dead_letters(command.topic, command.subscription, queue.settings)
        unknown = [each for each in command.offsets if each not in queue.dead]
        if unknown or put.topic != name or not 0 < put.count == len(set(command.offsets)):
            return Buried(done=False)
        if name not in registry.topics or name in registry.divided:
            refusal = registry.refusal_to_use(name) or registry.refusal_to_make(name)
            if refusal is not None:
                return refusal
        dead = self._dead_letters(command.topic, command.subscription, queue.settings)
        registry.live_slots.add(slot)
        offset = dead.index.append(slot, put.count, put.size, clock.now)
        for each in command.offsets:
            queue.close(each)
        self.advance(topic, subscription, queue, clock)
        dead.collect(clock)
        return Buried(True, offset)

    # -- helpers --

    def _find(self, name: str, label: str) -> Found | Missing:
        topic = self._registry.topics.get(name)
        if topic is None:
            return self._registry.missing(name)
        subscription = topic.subscriptions.get(label)
        if subscription is None:
            return NotSubscribed(name, label)
        if subscription.queue is None:
            return WrongKind(name, label, "exclusive")
        return topic, subscription, subscription.queue

    def advance(self, topic: Topic, subscription: Subscription, queue: Queue, clock: Clock) -> None:
        """Move the cursor to the lowest offset that is not settled."""
        cursor = queue.cursor
        if cursor > subscription.cursor:
            subscription.cursor = cursor
            topic.collect(clock)


def expiry_of(topic: Topic) -> Expiry | None:
    """Return how the topic's messages expire, or None if none has a time to live."""
    index = topic.index
    return Expiry(index, topic.policy.drop_expired) if index.lifetimes else None


def dead_letters(topic: str, subscription: str, settings: Shared) -> str:
    """Return the name of the dead-letter topic of a subscription."""
    return settings.dead_letters or dead_letter_topic(topic, subscription)
