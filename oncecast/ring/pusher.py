"""The leader's side of push delivery: send new messages once, to the root of a topic's tree.

The leader pushes a topic while the root of its tree asks for it, or always if its policy is gossip.
Processes request lost messages by offset, and the leader reads them from the log. The push state is
not durable: after a leader change, a process requests the messages that it misses.

Needs the group's service. Emits no events.
"""

from __future__ import annotations

from random import Random
from typing import ClassVar, assert_never

from oncecast.broker.chunks import chunks_of
from oncecast.broker.delivery import readable_subscription
from oncecast.broker.events import Changed
from oncecast.broker.scanning import scanned
from oncecast.broker.service import Service
from oncecast.broker.subscription import Subscription
from oncecast.broker.topic import Topic
from oncecast.errors import Corrupt
from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.replication.events import LeaderChanged, Missing
from oncecast.ring.push_messages import (
    READERS_MAX,
    TOPICS_MAX,
    AcksUp,
    CheckReaders,
    Fill,
    Filled,
    Push,
    PushWanted,
    ReaderId,
    ReadersChecked,
    ReadPermit,
)
from oncecast.security.access import ACK, READ
from oncecast.wire.errors import Denied, NotHere

PUSH_BYTES = 1 << 20  # maximum bytes per message, unless one batch is larger
ASKED_FOR = 4.0  # seconds for which a request from a root is valid
REMIND_EVERY = 0.5  # seconds between reports of an idle topic's end
ALL = 1 << 40


class PushDue(Value, tag="CastDue"):
    """Message to itself: push everything decided since the last push."""


class Remind(Value):
    """Timer: report the ends of idle topics to their roots."""


class PushTarget:
    """A root that wants a topic, and the next offset to push to it."""

    __slots__ = ("asked", "next", "root", "said", "topic_id")

    def __init__(self, root: NodeId, asked: float, topic: Topic, next_: int) -> None:
        self.root, self.asked = root, asked
        # The id of the topic, and the next offset to push.
        self.topic_id, self.next = topic.id, next_
        self.said = asked  # time of the last push, or of the request


class Pusher(Protocol):
    name = "caster"
    Message: ClassVar = PushWanted | Fill | CheckReaders | AcksUp | PushDue
    Observed: ClassVar = Changed | LeaderChanged
    Timer = Remind

    def __init__(self, me: NodeId, rng: Random, *, service: Service, process: NodeId) -> None:
        super().__init__(me, rng)
        self._service, self._process = service, process
        self.targets: dict[str, PushTarget] = {}
        self._changed: dict[str, None] = {}
        self._pumping = False
        self.pushed = 0

    def start(self) -> None:
        self.later(REMIND_EVERY, Remind())

    @property
    def _has_lease(self) -> bool:
        return self._service.leading and self._service.group.leads(self.now)

    def _topic(self, name: str) -> Topic | None:
        return self._service.machine.registry.topics.get(name)

    # -- inputs --

    def observe(self, event: Changed | LeaderChanged) -> None:
        if isinstance(event, LeaderChanged):
            self.targets.clear()
        elif event.topic in self.targets or self._gossips(event.topic):
            self._changed[event.topic] = None
            if not self._pumping:
                self._pumping = True
                self.send(self.me, PushDue())

    def _gossips(self, name: str) -> bool:
        topic = self._topic(name)
        return topic is not None and topic.policy.gossip and self._service.leading

    def receive(
        self, sender: NodeId, message: PushWanted | Fill | CheckReaders | AcksUp | PushDue
    ) -> None:
        if isinstance(message, PushDue):
            if sender == self.me:
                self._pump()
        elif self._has_lease:
            match message:
                case PushWanted(topics):
                    self._wanted(sender, topics[:TOPICS_MAX])
                case Fill():
                    self._fill(sender, message)
                case CheckReaders(reader_ids):
                    permits = [self._permit(each) for each in reader_ids[:READERS_MAX]]
                    self.send(sender, ReadersChecked(tuple(permits)))
                case AcksUp(_, acks):
                    for ack in acks[:READERS_MAX]:
                        self.ask(ack)
                case _:
                    assert_never(message)

    def timeout(self, timer: Remind) -> None:
        self.later(REMIND_EVERY, timer)
        for name, target in list(self.targets.items()):
            topic = self._topic(name)
            if self.now > target.asked + ASKED_FOR or topic is None:
                del self.targets[name]
            elif self.now >= target.said + REMIND_EVERY and self._has_lease:
                target.said = self.now
                self.send(target.root, self._reach(topic))

    # -- pushing --

    def _wanted(self, root: NodeId, topics: tuple[str, ...]) -> None:
        for name in topics:
            topic, target = self._topic(name), self.targets.get(name)
            if topic is None:
                continue
            if target is None or target.root != root:
                self.targets[name] = PushTarget(root, self.now, topic, topic.index.next)
                self.send(root, self._reach(topic))
            else:
                target.asked = self.now

    def _reach(self, topic: Topic) -> Push:
        """Return a push that only reports the end of the topic."""
        return Push(topic.name, topic.id, topic.index.next, (), fenced=topic.fenced)

    def _pump(self) -> None:
        self._pumping = False
        changed, self._changed = self._changed, {}
        if not self._has_lease:
            return
        for name in changed:
            topic = self._topic(name)
            if topic is None:
                continue
            target = self.targets.get(name)
            if target is None:
                if not topic.policy.gossip:
                    continue
                newest = max(topic.index.first, topic.index.newest_batch)
                target = self.targets[name] = PushTarget(self._process, self.now, topic, newest)
            elif topic.policy.gossip:
                target.root, target.asked = self._process, self.now
            if target.topic_id != topic.id:
                target.topic_id, target.next = topic.id, topic.index.first
            while self._push(topic, target):
                pass

    def _push(self, topic: Topic, target: PushTarget) -> bool:
        """Push one batch of new messages. Return whether there may be more."""
        extents = tuple(topic.index.extents(target.next, ALL, PUSH_BYTES))
        try:
            chunks, _ = chunks_of(self._service, topic.name, extents, PUSH_BYTES)
        except (Missing, Corrupt):
            return False  # a process that does not get the batch requests it later
        if not chunks:
            return False
        target.next = chunks[-1].offset + chunks[-1].count
        target.said = self.now
        self.pushed += 1
        gossip = topic.policy.gossip
        push = Push(topic.name, topic.id, topic.index.next, chunks, gossip, topic.fenced)
        self.send(target.root, push)
        return True

    # -- repairs --

    def _fill(self, sender: NodeId, fill: Fill) -> None:
        topic = self._topic(fill.scan.topic)
        if topic is not None:
            try:
                found = scanned(self._service, topic, fill.scan)
                self.send(sender, Filled(topic.name, found, topic.fenced))
            except (Missing, Corrupt):
                pass  # the batch is being fetched, or it is lost, which the gateway reports

    def _permit(self, reader_id: ReaderId) -> ReadPermit:
        machine = self._service.machine
        permits = machine.registry.permits
        found = readable_subscription(
            machine, reader_id.topic, reader_id.subscription, reader_id.epoch
        )
        names = (reader_id.topic, reader_id.subscription)
        if not isinstance(found, NotHere) and not permits(reader_id.principal, READ, *names):
            return ReadPermit(reader_id, 0, 0, 0, 0, 0, Denied())
        if not isinstance(found, Subscription):
            return ReadPermit(reader_id, 0, 0, 0, 0, 0, found)
        topic = machine.registry.topics[reader_id.topic]
        ends = (topic.id, topic.index.first, topic.index.next)
        last_epoch = machine.registry.last_epoch
        return ReadPermit(
            reader_id,
            found.cursor,
            found.suspect_below,
            *ends,
            last_epoch=last_epoch,
            may_ack=permits(reader_id.principal, ACK, *names),
        )
