"""Small clients for the simulator that put and read, and repeat unanswered calls."""

from __future__ import annotations

from random import Random

from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.wire import batch, errors
from oncecast.wire import commands as do
from oncecast.wire import results as done
from oncecast.wire.frames import Answer, Call, Delivery, Fetch, FlowEnded

PATIENCE = 0.4


class Again(Value):
    """Timer: repeat unanswered calls, and continue."""


class Acked(Value):
    """Event: the node has acknowledged these messages."""

    producer: str
    sequence: int
    count: int


class Got(Value):
    """Event: the reader got a message for the first time since it started."""

    subscription: str
    epoch: int
    offset: int
    value: bytes


class Publisher(Protocol):
    name = "publisher"
    Message = Answer
    Timer = Again

    def __init__(
        self, me: NodeId, rng: Random, *, node: NodeId, topic: str, batches: int, pause: float
    ) -> None:
        super().__init__(me, rng)
        self.node, self.topic, self.batches, self.pause = node, topic, batches, pause
        self.epoch = 0
        self.made = 0  # number of batches
        self.next = 0  # next sequence
        self.in_flight: dict[int, do.Put] = {}

    def start(self) -> None:
        self.timeout(Again())

    def timeout(self, timer: Value) -> None:
        if not self.epoch:
            open_ = do.OpenProducer(self.topic, self.me, f"{self.me}/life", 0)
            self.send(self.node, Call(0, open_))
        for id, put in self.in_flight.items():
            self.send(self.node, Call(id, put))
        for _ in range(self.rng.randint(0, 3)):
            self.put()
        if self.made < self.batches or self.in_flight or not self.epoch:
            self.later(self.rng.uniform(0.0, self.pause), Again())

    def put(self) -> None:
        if not self.epoch or self.made >= self.batches or len(self.in_flight) > 8:
            return
        self.made += 1
        count = self.rng.randint(1, 3)
        values = [
            b"%s/%d %s" % (self.me.encode(), self.next + at, bytes(self.rng.randint(0, 200)))
            for at in range(count)
        ]
        data = batch.encode(values, timestamps=0)
        put = do.Put(self.topic, self.me, self.epoch, self.next, count, len(data), 0, data)
        self.next += count
        self.in_flight[self.made] = put
        self.send(self.node, Call(self.made, put))

    def receive(self, sender: NodeId, answer: Answer) -> None:
        match answer.result:
            case done.Opened(epoch):
                self.epoch = epoch
            case done.Appended() | done.Already():
                put = self.in_flight.pop(answer.id, None)
                if put is not None:
                    self.emit(Acked(self.me, put.sequence, put.count))
            case errors.Gap(expected):
                for id, put in self.in_flight.items():
                    if put.sequence >= expected:
                        self.send(self.node, Call(id, put))
            case _:
                pass  # the node is overloaded or closed, so retry later


class Reader(Protocol):
    name = "reader"
    Message = Answer | Delivery | FlowEnded
    Timer = Again

    def __init__(
        self, me: NodeId, rng: Random, *, node: NodeId, topic: str, window: int, wait: float = 0.0
    ) -> None:
        """Subscribe at once, and read later."""
        super().__init__(me, rng)
        self.node, self.topic, self.window, self.wait = node, topic, window, wait
        self.subscribed = False
        self.epoch = 0
        self.next = 0
        self.incarnation = 0

    def start(self) -> None:
        self.timeout(Again())

    def timeout(self, timer: Value) -> None:
        if not self.subscribed:
            command: do.Subscribe | do.Attach = do.Subscribe(
                self.topic, self.me, do.FromEarliest(), 0
            )
            self.send(self.node, Call(1, command))
        elif self.now < self.wait:
            pass
        elif not self.epoch:
            command = do.Attach(self.topic, self.me, f"{self.me}/{self.incarnation}")
            self.send(self.node, Call(2 + self.incarnation, command))
        else:
            self.fetch()
        self.later(PATIENCE, Again())

    def fetch(self) -> None:
        ack = max(0, self.next - self.rng.randint(0, 3))
        fetch = Fetch(self.topic, self.me, self.epoch, self.next, ack, self.window, 1000)
        self.send(self.node, fetch)

    def receive(self, sender: NodeId, message: Answer | Delivery | FlowEnded) -> None:
        match message:
            case Answer(1, done.Subscribed()):
                self.subscribed = True
            case Answer(id, done.Attached(epoch, cursor)) if id == 2 + self.incarnation:
                if not self.epoch:
                    self.epoch, self.next = epoch, max(self.next, cursor)
                    self.fetch()
            case FlowEnded(epoch=epoch) if epoch == self.epoch:
                self.epoch = 0
                self.incarnation += 1
            case Delivery(epoch=epoch) if epoch == self.epoch:
                self.take(message)

    def take(self, delivery: Delivery) -> None:
        before = self.next
        for chunk in delivery.chunks:
            if chunk.offset > self.next:
                return  # a message was lost and will be fetched again
            values = batch.values(chunk.batch, chunk.skip, chunk.count)
            for at, value in enumerate(values, chunk.offset):
                if at == self.next:
                    self.next += 1
                    self.emit(Got(self.me, self.epoch, at, value))
        if self.next > before and self.rng.random() < 0.7:
            self.fetch()
