"""The leader's side of push delivery: it sends what is decided to the roots of trees, once.

A topic is cast while the root of its tree asks for it, or always if its policy says gossip. What
the trees lose is asked for by offset and read from the log. Nothing here is durable, and a new
leader begins anew: whoever misses something asks.

Needs the service of its group. Gives nothing upwards.
"""

from __future__ import annotations

from random import Random
from typing import assert_never

from oncecast.broker.chunks import chunks_of
from oncecast.broker.delivery import standing
from oncecast.broker.scanning import scanned
from oncecast.broker.service import Changed, Service
from oncecast.broker.subscription import Subscription
from oncecast.broker.topic import Topic
from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.replication.events import LeaderChanged, Missing
from oncecast.ring.casts import (
    READINGS_MAX,
    TOPICS_MAX,
    AcksUp,
    Cast,
    Casting,
    Fill,
    Filled,
    Reading,
    Vouch,
    Vouched,
    Voucher,
)
from oncecast.storage.errors import Corrupt

CAST_BYTES = 1 << 20  # at once, unless one batch is larger
ASKED_FOR = 4.0  # seconds that a root's wish holds
REMIND_EVERY = 0.5  # an idle topic says how far it reaches
ALL = 1 << 40


class CastDue(Value, tag="CastDue"):
    """Message, to itself: what was decided meanwhile goes out together."""


class Remind(Value):
    """Timer."""


class Wish:
    """A root wants a topic."""

    __slots__ = ("asked", "life", "next", "root", "said")

    def __init__(self, root: NodeId, asked: float, topic: Topic, next_: int) -> None:
        self.root, self.asked = root, asked
        self.life, self.next = topic.id, next_  # what is cast next, in this life of the topic
        self.said = asked  # when something was cast


class Caster(Protocol):
    name = "caster"
    Message = Casting | Fill | Vouch | AcksUp | CastDue
    Observed = Changed | LeaderChanged
    Timer = Remind

    def __init__(self, me: NodeId, rng: Random, *, service: Service, home: NodeId) -> None:
        super().__init__(me, rng)
        self._service, self._home = service, home
        self.wishes: dict[str, Wish] = {}
        self._changed: dict[str, None] = {}
        self._pumping = False
        self.casts = 0

    def start(self) -> None:
        self.later(REMIND_EVERY, Remind())

    @property
    def _speaks(self) -> bool:
        return self._service.leading and self._service.group.leads(self.now)

    def _topic(self, name: str) -> Topic | None:
        return self._service.machine.registry.topics.get(name)

    # -- inputs --

    def observe(self, event: Changed | LeaderChanged) -> None:
        if isinstance(event, LeaderChanged):
            self.wishes.clear()
        elif event.topic in self.wishes or self._gossips(event.topic):
            self._changed[event.topic] = None
            if not self._pumping:
                self._pumping = True
                self.send(self.me, CastDue())

    def _gossips(self, name: str) -> bool:
        topic = self._topic(name)
        return topic is not None and topic.policy.gossip and self._service.leading

    def receive(self, sender: NodeId, message: Casting | Fill | Vouch | AcksUp | CastDue) -> None:
        if isinstance(message, CastDue):
            if sender == self.me:
                self._pump()
        elif self._speaks:
            match message:
                case Casting(topics):
                    self._wanted(sender, topics[:TOPICS_MAX])
                case Fill():
                    self._fill(sender, message)
                case Vouch(readings):
                    vouchers = [self._voucher(each) for each in readings[:READINGS_MAX]]
                    self.send(sender, Vouched(tuple(vouchers)))
                case AcksUp(_, acks):
                    for ack in acks[:READINGS_MAX]:
                        self.ask(ack)
                case _:
                    assert_never(message)

    def timeout(self, timer: Remind) -> None:
        self.later(REMIND_EVERY, timer)
        for name, wish in list(self.wishes.items()):
            topic = self._topic(name)
            if self.now > wish.asked + ASKED_FOR or topic is None:
                del self.wishes[name]
            elif self.now >= wish.said + REMIND_EVERY and self._speaks:
                wish.said = self.now
                self.send(wish.root, self._reach(topic))

    # -- casting --

    def _wanted(self, root: NodeId, topics: tuple[str, ...]) -> None:
        for name in topics:
            topic, wish = self._topic(name), self.wishes.get(name)
            if topic is None:
                continue
            if wish is None or wish.root != root:
                self.wishes[name] = Wish(root, self.now, topic, topic.index.next)
                self.send(root, self._reach(topic))
            else:
                wish.asked = self.now

    def _reach(self, topic: Topic) -> Cast:
        """Return a cast that only says how far the topic reaches."""
        return Cast(topic.name, topic.id, topic.index.next, (), fenced=topic.fenced)

    def _pump(self) -> None:
        self._pumping = False
        changed, self._changed = self._changed, {}
        if not self._speaks:
            return
        for name in changed:
            topic = self._topic(name)
            if topic is None:
                continue
            wish = self.wishes.get(name)
            if wish is None:
                if not topic.policy.gossip:
                    continue
                newest = max(topic.index.first, topic.index.newest_batch)
                wish = self.wishes[name] = Wish(self._home, self.now, topic, newest)
            elif topic.policy.gossip:
                wish.root, wish.asked = self._home, self.now
            if wish.life != topic.id:
                wish.life, wish.next = topic.id, topic.index.first
            while self._cast(topic, wish):
                pass

    def _cast(self, topic: Topic, wish: Wish) -> bool:
        """Some of what is new; whether there may be more."""
        extents = tuple(topic.index.extents(wish.next, ALL, CAST_BYTES))
        try:
            chunks, _ = chunks_of(self._service, extents, CAST_BYTES)
        except (Missing, Corrupt):
            return False  # who misses it asks for it
        if not chunks:
            return False
        wish.next = chunks[-1].offset + chunks[-1].count
        wish.said = self.now
        self.casts += 1
        gossip = topic.policy.gossip
        cast = Cast(topic.name, topic.id, topic.index.next, chunks, gossip, topic.fenced)
        self.send(wish.root, cast)
        return True

    # -- what trees lose --

    def _fill(self, sender: NodeId, fill: Fill) -> None:
        topic = self._topic(fill.scan.topic)
        if topic is not None:
            try:
                found = scanned(self._service, topic, fill.scan)
                self.send(sender, Filled(topic.name, found, topic.fenced))
            except (Missing, Corrupt):
                pass  # it is being fetched; or lost, which the owner tells its readers

    def _voucher(self, reading: Reading) -> Voucher:
        machine = self._service.machine
        found = standing(machine, reading.topic, reading.subscription, reading.epoch)
        if not isinstance(found, Subscription):
            return Voucher(reading, 0, 0, 0, 0, 0, found)
        topic = machine.registry.topics[reading.topic]
        ends = (topic.id, topic.index.first, topic.index.next)
        epochs = machine.registry.epochs
        return Voucher(reading, found.cursor, found.suspect_below, *ends, epochs=epochs)
