"""Feed inputs to a single client session, and observe its exact effects."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from oncecast.client.session.client import ClientSession
from oncecast.client.session.local import AllDone, NotStored
from oncecast.kernel.protocol import Append, Effect, Emit, NodeId, Send, Unwatch, Value, Watch
from oncecast.kernel.stack import Output, Stack
from oncecast.kernel.values import Wake
from oncecast.wire import batch
from oncecast.wire.commands import Put
from oncecast.wire.frames import Answer, Call, Chunk, Delivery, Fetch

ME, NODE = NodeId("client/me"), NodeId("node")
UNSAVED = 10**6  # a record that is not on disk yet; only effects that depend on it may wait
T = TypeVar("T", bound=Value)


def packed(*values: bytes) -> bytes:
    return batch.encode(values, timestamps=1)


def chunk(offset: int, *values: bytes) -> Chunk:
    return Chunk(offset, 0, len(values), "p", offset, packed(*values))


def waits_for_disk(output: Output) -> bool:
    """Return whether an output waits for the disk. A batch may wait for its own record."""
    match output:
        case Send(_, Call(_, Put()), after):
            return after >= UNSAVED
        case Emit(AllDone() | NotStored()):
            return False
        case Send(_, _, after) | Emit(_, after):
            return after > 0
        case _:
            return False


class Lone:
    """Drives one session. `sent` and `events` are the effects of the last input."""

    def __init__(
        self,
        *others: NodeId,
        durable: bool = False,
        incarnation: str = "inc",
        read_ahead: int = 100,
        rng: Random | None = None,
        any_replica: bool = False,
    ) -> None:
        self.session = ClientSession(
            ME,
            rng or Random(1),
            node=NODE,
            others=others,
            producer="p",
            incarnation=incarnation,
            durable=durable,
            read_ahead=read_ahead,
            outbox_bytes=200,
            any_replica=any_replica,
        )
        self.session.after = UNSAVED
        self.stack = Stack([self.session])
        self.now = 0.0
        self.outputs: list[Output] = []
        self.wakes: list[Wake] = []

    def measure(self, moved: Callable[[NodeId], int]) -> None:
        """Let the session call `moved` for the number of bytes that crossed the link to a node."""
        self.session.routes._moved = moved

    def start(self, *records: Value) -> Lone:
        for number, record in enumerate(records, 1):
            self.stack.restore(number, record)
        self._did(self.stack.start(self.now))
        return self

    def ask(self, request: Value) -> Lone:
        self._did(self.stack.request(self.now, request))
        return self

    def hear(self, message: Value, sender: NodeId = NODE) -> Lone:
        self._did(self.stack.receive(self.now, sender, message))
        return self

    def answer(self, call: Call, result: Any, sender: NodeId = NODE) -> Lone:
        return self.hear(Answer(call.id, result), sender)

    def deliver(
        self, epoch: int, *chunks: Chunk, suspect_below: int = 0, sender: NodeId = NODE
    ) -> Lone:
        end = chunks[-1].offset + chunks[-1].count
        return self.hear(Delivery("t", "s", epoch, chunks, suspect_below, end), sender)

    def down(self, node: NodeId = NODE) -> Lone:
        self._did(self.stack.down(self.now, node))
        return self.wait(0.2)

    def wait(self, seconds: float) -> Lone:
        """Let time pass, so that all due timers fire."""
        until, outputs = self.now + seconds, []
        while due := [wake for wake in self.wakes if wake.at <= until]:
            wake = min(due, key=lambda each: each.at)
            self.wakes.remove(wake)
            self.now = wake.at
            self._did(self.stack.wake(self.now, wake))
            outputs += self.outputs
        self.now = until
        self.outputs = outputs
        return self

    def _did(self, outputs: list[Output]) -> None:
        assert [each for each in outputs if waits_for_disk(each)] == []
        self.outputs = [each for each in outputs if not isinstance(each, Wake)]
        self.wakes += [each for each in outputs if isinstance(each, Wake)]

    # -- effects of the last input --

    @property
    def sent(self) -> list[Value]:
        return [each.message for each in self.outputs if isinstance(each, Send)]

    @property
    def addressed(self) -> list[tuple[NodeId, Value]]:
        return [(each.to, each.message) for each in self.outputs if isinstance(each, Send)]

    @property
    def links(self) -> list[Output]:
        return [each for each in self.outputs if isinstance(each, Watch | Unwatch)]

    @property
    def events(self) -> list[Value]:
        return [each.event for each in self.outputs if isinstance(each, Emit)]

    @property
    def records(self) -> list[Value]:
        return [each.record for each in self.outputs if isinstance(each, Append)]

    @property
    def call(self) -> Call:
        (call,) = [each for each in self.sent if isinstance(each, Call)]
        return call

    @property
    def fetch(self) -> Fetch:
        (fetch,) = [each for each in self.sent if isinstance(each, Fetch)]
        return fetch

    def effects(self) -> list[Effect]:
        return self.stack.effects
