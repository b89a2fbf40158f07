"""Helpers for commands that most state machine tests start with."""

from __future__ import annotations

from collections.abc import Iterator

from oncecast.broker.machine import Machine
from oncecast.broker.moves import AnyCommand
from oncecast.wire import commands as do
from oncecast.wire import results as done
from oncecast.wire.limits import Limits
from oncecast.wire.retention import DEFAULT, Policy

ALL = 1 << 30


class Steps:
    """A machine with one slot per command, and a manual clock."""

    def __init__(self, limits: Limits = Limits()) -> None:  # noqa: B008  # frozen
        self.machine = Machine(limits)
        self.slot = 0
        self.now = 1000

    def apply(self, command: AnyCommand) -> done.Result:
        self.slot += 1
        return self.machine.apply(self.slot, command)

    def create(self, topic: str = "t", policy: Policy = DEFAULT) -> done.Result:
        return self.apply(do.CreateTopic(topic, self.now, policy))

    def open(self, topic: str = "t", producer: str = "p", incarnation: str = "inc-1") -> int:
        opened = self.apply(do.OpenProducer(topic, producer, incarnation, self.now))
        assert isinstance(opened, done.Opened)
        return opened.epoch

    def put(
        self,
        epoch: int,
        sequence: int,
        count: int = 1,
        *,
        topic: str = "t",
        producer: str = "p",
        size: int = 100,
    ) -> done.Result:
        return self.apply(do.Put(topic, producer, epoch, sequence, count, size, self.now, b"bytes"))

    def subscribe(
        self, subscription: str = "s", start: do.Start | None = None, *, topic: str = "t"
    ) -> done.Result:
        return self.apply(do.Subscribe(topic, subscription, start or do.FromNew(), self.now))

    def attach(self, subscription: str = "s", incarnation: str = "inc-1") -> done.Attached:
        attached = self.apply(do.Attach("t", subscription, incarnation))
        assert isinstance(attached, done.Attached)
        return attached

    def ack(self, epoch: int, upto: int, subscription: str = "s") -> done.Result:
        return self.apply(do.Ack("t", subscription, epoch, upto))

    def stage(
        self, number: int, part: str, count: int = 1, *, topic: str = "t", size: int = 100
    ) -> done.Result:
        return self.apply(do.Stage("query", number, part, topic, count, size, self.now, b"bytes"))

    def publish(self, number: int, *parts: str, expected: int = do.ANY_EPOCH) -> done.Result:
        return self.apply(do.PublishStaged("query", number, parts, self.now, expected=expected))

    def tick(self, now: int) -> None:
        self.now = now
        self.apply(do.Tick(now))

    def kept(self, topic: str = "t") -> list[int]:
        return list(self._kept(topic))

    def _kept(self, topic: str) -> Iterator[int]:
        for extent in self.machine.fetch(topic, 0, ALL, ALL):
            yield from range(extent.offset, extent.offset + extent.count)
