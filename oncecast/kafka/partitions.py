"""Map the partitions of a Kafka topic to topics: partition 3 of `orders` is the topic `orders#3`.

A topic without partitions of its own is a Kafka topic with the single partition 0. The front end
learns the number of partitions with each Metadata request. If it does not know it, it looks it up
for the client's next try.
"""

from __future__ import annotations

from collections import OrderedDict

from oncecast.kafka.backend import Backend
from oncecast.kafka.errors import Code
from oncecast.kernel.protocol import Value
from oncecast.wire import errors
from oncecast.wire.frames import TopicView, View
from oncecast.wire.partitions import partition_topic

TIMEOUT = 10.0
TOPICS_MAX = 100_000  # topics whose partitions the front end remembers
# Clients ask for metadata again, and repeat the request.
UNKNOWN_YET = Code.NOT_LEADER_OR_FOLLOWER


class Partitions:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._counts: OrderedDict[str, int] = OrderedDict()  # 0 for a plain topic
        self._looking: set[str] = set()
        backend.watch = self._answered

    def place(self, topic: str, index: int) -> str | Code:
        """Return the topic that stores a partition, or an error code."""
        count = self._counts.get(topic)
        if index == 0 and not count:
            return topic
        if count is not None and 0 <= index < count:
            return partition_topic(topic, index)
        if count == 0 or index < 0:
            self._look(topic)  # The topic may have been created again with more partitions.
            return Code.UNKNOWN_TOPIC_OR_PARTITION
        self._look(topic)
        return UNKNOWN_YET if count is None else Code.UNKNOWN_TOPIC_OR_PARTITION

    def names(self, view: TopicView) -> list[str]:
        """Return the topics that store the partitions of a topic, in order."""
        self.learn(view.name, view.partitions)
        if not view.partitions:
            return [view.name]
        return [partition_topic(view.name, index) for index in range(view.partitions)]

    def is_plain(self, topic: str) -> bool:
        """Return whether the topic certainly has no partitions of its own."""
        return self._counts.get(topic) == 0

    def learn(self, topic: str, count: int) -> None:
        self._counts[topic] = count
        self._counts.move_to_end(topic)
        if len(self._counts) > TOPICS_MAX:
            self._counts.popitem(last=False)

    def forget(self, topic: str) -> None:
        self._counts.pop(topic, None)

    def _answered(self, outcome: Value) -> None:
        """Learn from a refusal that a topic has partitions."""
        if isinstance(outcome, errors.Partitioned):
            self.learn(outcome.topic, outcome.partitions)

    def _look(self, topic: str) -> None:
        if topic in self._looking:
            return

        def seen(outcome: Value) -> None:
            self._looking.discard(topic)
            if isinstance(outcome, View) and outcome.topics:
                self.learn(topic, outcome.topics[0].partitions)
            elif isinstance(outcome, View):
                self.forget(topic)

        self._looking.add(topic)
        self._backend.look(seen, TIMEOUT, topic=topic)


def kafka_name(view: TopicView) -> tuple[str, int]:
    """Return the Kafka topic and the partition that a topic stores."""
    if not view.partition_of:
        return view.name, 0
    return view.partition_of, int(view.name.removeprefix(view.partition_of)[1:])
