"""The whole state of the pub/sub machine, and the few ways in which topics come and go."""

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
from oncecast.wire.errors import InvalidTopic, NoSuchTopic, NotHere, TooMany
from oncecast.wire.limits import Limits, is_name
from oncecast.wire.retention import DEFAULT, Policy


class Registry:
    """Epochs come from one counter for all names. So no command that was sent to an earlier life of
    a producer, a subscription or a whole topic can be taken for one of the present life.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.last_slot = -1  # of the last command
        self.clock = Clock()
        self.last_topic_id = 0  # of topics, so far
        self.last_epoch = 0
        self.live_slots = LiveSlots()
        self.topics: dict[str, Topic] = {}
        self.aging: dict[str, Topic] = {}  # those that keep for an age
        self.staging = Staging(self.live_slots)
        self.answered = Answered()
        self.holdings: Holdings | None = None  # of a group that is alone: it owns all

    def pass_time(self, at: int, elapsed: int = 0) -> Clock:
        """A stamp of a leader has come; what time it is now."""
        retiming = self.clock.pass_time(at, self.limits.clock_step_us, elapsed)
        if retiming is not None:
            self._retime(retiming)
        return self.clock

    def _retime(self, retiming: Retiming) -> None:
        """Times that were given were wrong."""
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
        for part in parts:
            if part.time > retiming.above:
                part.time = retiming.rule(part.time)

    def new_epoch(self) -> int:
        self.last_epoch += 1
        return self.last_epoch

    def elsewhere(self, name: str) -> NotHere | None:
        """Whether other groups own this name, or it is on its way to them."""
        if self.holdings is None or name in self.topics or self.holdings.owns(name):
            return None
        return NotHere(name)

    def source_key(self, source: str, topic: str) -> str:
        """By what a source is known: on a ring, where topics may part, one for each topic."""
        return source if self.holdings is None else key_of_source(source, topic)

    def refusal_to_make(self, name: str, more: int = 1) -> InvalidTopic | TooMany | None:
        """Why a topic cannot be made of this name, as one of `more` new ones."""
        if not is_name(name):
            return InvalidTopic()
        if len(self.topics) + more > self.limits.topics_max:
            return TooMany("topics", self.limits.topics_max)
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
        topic.index.clear()
        del self.topics[topic.name]
        self.aging.pop(topic.name, None)

    def release(self, topic: Topic) -> None:
        """Lets a topic go that nobody would miss."""
        if topic.idle:
            self.remove(topic)

    def use_source(self, key: str) -> None:
        if self.limits.source_idle_us:
            self.staging.use(key, self.clock.now)

    def follow_sources(self) -> None:
        """From now on it counts how long sources of staged puts are idle."""
        for key in self.staging.sources:
            self.staging.use(key, self.clock.now)

    def idle_sources(self, trusted: int) -> Iterator[str]:
        """Return the sources whose records were not used for so long that they are deleted."""
        idle = self.limits.source_idle_us
        return self.staging.unused(trusted - idle) if idle else iter(())

    def delete_source(self, key: str) -> bool:
        """Delete the record of a source, with its parts, and its producers; False if unknown."""
        if not self.staging.close(key):
            return False
        # Late copies of a stage and its publish expect an older epoch, and publish nothing again.
        self.staging.floor = self.last_epoch
        source, topics = key, list(self.topics.values())
        if self.holdings is not None:  # on a ring a source has one topic
            source, name = source_of_key(key), topic_of_key(key)
            topics = [self.topics[name]] if name in self.topics else []
        for topic in topics:
            producer = topic.producers.get(source)
            if producer is not None and not producer.incarnation:
                del topic.producers[source]
                self.release(topic)
        return True

    def follow_use(self) -> None:
        """From now on it counts how long producers are idle; a source is followed as a whole."""
        for topic in self.topics.values():
            for producer in topic.producers.values():
                if producer.incarnation:
                    producer.follow_use(self.clock.now)

    def idle_producers(self, trusted: int) -> Iterator[tuple[Topic, str]]:
        """Those whose records were not used for so long that they are given back."""
        before = trusted - self.limits.producer_idle_us
        for topic in self.topics.values() if self.limits.producer_idle_us else ():
            for name, producer in topic.producers.items():
                if producer.record and producer.used <= before:
                    yield topic, name

    def follow_age(self, topic: Topic) -> None:
        if topic.policy.age_us:
            self.aging[topic.name] = topic
        else:
            self.aging.pop(topic.name, None)
