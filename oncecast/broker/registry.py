"""The state of the pub/sub machine, and the methods that create and remove topics."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from oncecast.broker.answered import Answered
from oncecast.broker.clock import Clock, Retiming
from oncecast.broker.holdings import Holdings
from oncecast.broker.live_slots import LiveSlots
from oncecast.broker.staging import (
    Part,
    Staging,
    key_of_source,
    source_of_key,
    topic_of_key,
)
from oncecast.broker.topic import Topic
from oncecast.broker.topics import Topics
from oncecast.kernel.topic_tag import tag_of
from oncecast.security.access import OPEN, Access
from oncecast.wire.commands import Stage
from oncecast.wire.errors import InvalidTopic, NoSuchTopic, NotHere, Partitioned, TooMany
from oncecast.wire.limits import Limits, is_name
from oncecast.wire.retention import DEFAULT, Policy
from oncecast.wire.sharing import SHARED_LEVEL


class Registry:
    """All topics, staged parts, answers, users, rules and counters of a group.

    All names share one epoch counter, so a command for an earlier epoch of a name is never mistaken
    for a current one.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.level = 1  # the group's feature level
        self.last_slot = -1  # slot of the last applied command
        self.clock = Clock()
        self.last_topic_id = 0  # topic ids start at 1
        self.last_epoch = 0
        self.live_slots = LiveSlots()
        self.topics = Topics()
        self.aging: dict[str, Topic] = {}  # topics with an age limit
        self.sharing: dict[str, Topic] = {}  # topics with a shared subscription
        self.delaying: dict[str, Topic] = {}  # topics with delayed messages
        self.divided: dict[str, Topic] = {}  # topics with partitions, which have no messages
        self.staging = Staging(self.live_slots)
        self.answered = Answered()
        self.access: Access = OPEN  # immutable; each change replaces it
        self.holdings: Holdings | None = None  # None outside a ring: the group owns all topics

    def pass_time(self, at: int, elapsed: int = 0) -> Clock:
        """Apply a leader's stamp to the clock, and return the clock."""
        retiming = self.clock.pass_time(at, self.limits.clock_step_us, elapsed)
        if retiming is not None:
            self._retime(retiming)
        return self.clock

    def _retime(self, retiming: Retiming) -> None:
        """Correct stored times after a clock dispute."""
        holdings = self.holdings
        moving = (holdings.incoming, holdings.outgoing) if holdings is not None else ()
        for topic in chain(self.topics.values(), *(each.values() for each in moving)):
            topic.retime(retiming)
        sources = list(self.staging.sources.values())
        parts: list[Part] = []
        if holdings is not None:
            parts += holdings.parts.values()
            sources += holdings.sources.values()
        for source in sources:
            parts += source.parts()
            if source.used > retiming.above:
                source.used = retiming.rule(source.used)
            for share in source.held.values():
                if share.time > retiming.above:
                    share.time = retiming.rule(share.time)
        for part in parts:
            if part.time > retiming.above:
                part.time = retiming.rule(part.time)

    def is_held(self, topic: str, subscription: str, epoch: int) -> bool:
        """Return whether an undecided transaction holds messages of the reader with this epoch."""
        tag = tag_of(topic)
        return any(
            share.holds(topic, subscription, epoch)
            for key, source in self.staging.unsettled.items()
            if topic_of_key(key) == tag
            for share in source.held.values()
        )

    def is_reserved(self, topic: str, producer: str) -> bool:
        """Return whether a held share will put to the topic as this producer."""
        source = self.staging.unsettled.get(self.transaction_key(producer, topic))
        return source is not None and source.will_put_to(topic)

    def is_awaited(self, topic: str) -> bool:
        """Return whether a held share will put to the topic."""
        tag, unsettled = tag_of(topic), self.staging.unsettled
        mine = (source for key, source in unsettled.items() if topic_of_key(key) == tag)
        return any(source.will_put_to(topic) for source in mine)

    def new_epoch(self) -> int:
        self.last_epoch += 1
        return self.last_epoch

    @property
    def owns_arc(self) -> bool:
        """Return whether the group owns part of a ring.

        A group receives users, tokens and rules with its first part.
        """
        return self.holdings is not None and self.holdings.low is not None

    def elsewhere(self, name: str) -> NotHere | None:
        """Return NotHere if the topic belongs or is moving to another group, otherwise None."""
        if self.holdings is None or name in self.topics or self.holdings.owns(name):
            return None
        return NotHere(name)

    def source_key(self, source: str, topic: str) -> str:
        """Return a source's key. On a ring, a source has one record per topic."""
        return source if self.holdings is None else key_of_source(source, topic)

    def transaction_key(self, source: str, topic: str) -> str:
        """Return the key of a source of transactions. On a ring, it has one record per tag."""
        return self.source_key(source, tag_of(topic))

    def stage_key(self, stage: Stage) -> str:
        """Return the key of the source that a part belongs to."""
        if stage.epoch:
            return self.transaction_key(stage.source, stage.topic)
        return self.source_key(stage.source, stage.topic)

    def refusal_to_make(self, name: str, more: int = 1) -> InvalidTopic | TooMany | None:
        """Return a refusal if this topic and `more - 1` others cannot be made, otherwise None."""
        if not is_name(name):
            return InvalidTopic()
        if len(self.topics) + more > self.limits.topics_max:
            return TooMany("topics", self.limits.topics_max)
        return None

    def refusal_to_subscribe(self, topic: Topic | None) -> TooMany | None:
        """Return a refusal if the topic cannot have another subscription, otherwise None."""
        limits = self.limits
        if topic is not None and len(topic.subscriptions) >= limits.subscriptions_max:
            return TooMany("subscriptions of the topic", limits.subscriptions_max)
        if 0 < limits.subscriptions_total_max <= self.topics.subscriptions.count:
            return TooMany("subscriptions of all topics", limits.subscriptions_total_max)
        return None

    def refusal_to_produce(self, topic: Topic | None, more: int = 1) -> TooMany | None:
        """Return a refusal if `more` new producers would exceed a limit, otherwise None."""
        limits = self.limits
        if topic is not None and len(topic.producers) >= limits.producers_max:
            return TooMany("producers in the topic", limits.producers_max)
        if 0 < limits.producers_total_max < self.topics.producers.count + more:
            return TooMany("producers of all topics", limits.producers_total_max)
        return None

    def make(self, name: str, policy: Policy = DEFAULT, *, declared: bool = False) -> Topic:
        self.last_topic_id += 1
        topic = self.topics[name] = Topic(
            self.last_topic_id, name, policy, declared, self.live_slots
        )
        self.follow_age(topic)
        return topic

    def missing(self, name: str) -> InvalidTopic | NoSuchTopic:
        return NoSuchTopic(name) if is_name(name) else InvalidTopic()

    def remove(self, topic: Topic) -> None:
        topic.clear()
        del self.topics[topic.name]
        self.aging.pop(topic.name, None)
        self.sharing.pop(topic.name, None)
        self.delaying.pop(topic.name, None)
        self.divided.pop(topic.name, None)

    def release(self, topic: Topic) -> None:
        """Delete the topic if it is idle."""
        if topic.idle:
            self.remove(topic)

    def use_source(self, key: str) -> None:
        if self.limits.source_idle_us:
            self.staging.use(key, self.clock.now)

    def follow_sources(self) -> None:
        """Start measuring the idle time of sources."""
        for key in self.staging.sources:
            self.staging.use(key, self.clock.now)

    def idle_sources(self, trusted: int) -> Iterator[str]:
        """Return the sources that have been idle longer than the limit."""
        idle = self.limits.source_idle_us
        return self.staging.unused(trusted - idle) if idle else iter(())

    def delete_source(self, key: str) -> bool:
        """Delete a source with its parts and producers. Return False if it does not exist."""
        known = self.staging.sources.get(key)
        if known is None:
            return False
        self.staging.close(key)
        if known.unsettled:
            return True
        # A late copy of a publish expects an older epoch, so it publishes nothing.
        self.staging.floor = self.last_epoch
        source, topics = key, list(self.topics.values())
        if self.holdings is not None:  # on a ring, each key belongs to one topic or one tag
            source, name = source_of_key(key), topic_of_key(key)
            if known.opening is not None:
                topics = [each for each in topics if tag_of(each.name) == name]
            else:
                topics = [self.topics[name]] if name in self.topics else []
        for topic in topics:
            producer = topic.producers.get(source)
            if producer is not None and not producer.incarnation:
                del topic.producers[source]
                self.release(topic)
        return True

    def follow_use(self) -> None:
        """Start measuring the idle time of producers, as `follow_sources` does for sources."""
        for topic in self.topics.values():
            for producer in topic.producers.values():
                if producer.incarnation:
                    producer.follow_use(self.clock.now)

    def idle_producers(self, trusted: int) -> Iterator[tuple[Topic, str]]:
        """Yield the producers that have been idle longer than the limit."""
        before = trusted - self.limits.producer_idle_us
        for topic in self.topics.values() if self.limits.producer_idle_us else ():
            for name, producer in topic.producers.items():
                if producer.record and producer.used <= before:
                    yield topic, name

    def follow_level(self) -> None:
        """Apply the rules of the feature level."""
        if self.holdings is not None:
            self.holdings.tagged = self.level >= SHARED_LEVEL

    def follow_sharing(self, topic: Topic) -> None:
        if topic.shared:
            self.sharing[topic.name] = topic
        else:
            self.sharing.pop(topic.name, None)

    def follow_delays(self, topic: Topic) -> None:
        if topic.delays.batches:
            self.delaying[topic.name] = topic
        else:
            self.delaying.pop(topic.name, None)

    def follow_partitions(self, topic: Topic) -> None:
        if topic.descriptor is not None:
            self.divided[topic.name] = topic

    def refusal_to_use(self, name: str) -> Partitioned | NoSuchTopic | None:
        """Return a refusal if the topic has partitions and so no messages, otherwise None."""
        topic = self.divided.get(name)
        if topic is None or topic.descriptor is None:
            return None
        descriptor = topic.descriptor
        return NoSuchTopic(name) if descriptor.closing else Partitioned(name, descriptor.count)

    def base_of(self, name: str) -> str:
        """Return the topic that this topic is a partition of, or "" for any other topic."""
        topic = self.topics.get(name)
        if topic is None and self.holdings is not None:
            topic = self.holdings.outgoing.get(name)
        return "" if topic is None else topic.partition_of

    def permits(self, principal: str, verb: str, topic: str, name: str = "") -> bool:
        """Return whether the rules allow this. A rule on a topic covers its partitions."""
        if self.access.permits(principal, verb, topic, name):
            return True
        base = self.base_of(topic)
        return bool(base) and self.access.permits(principal, verb, base, name)

    def release_delayed(self) -> tuple[str, ...]:
        """Append the delayed messages that are due, and return their topics."""
        released = [each for each in self.delaying.values() if each.release(self.clock)]
        for topic in released:
            self.follow_delays(topic)
            self.release(topic)
        return tuple([topic.name for topic in released])

    @property
    def due(self) -> int | None:
        """Return when the next delayed message is due, or None without one."""
        times = [each.delays.due for each in self.delaying.values()]
        return min([due for due in times if due is not None], default=None)

    def follow_age(self, topic: Topic) -> None:
        if topic.policy.age_us:
            self.aging[topic.name] = topic
        else:
            self.aging.pop(topic.name, None)
