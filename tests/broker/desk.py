"""Run a node without a network: it takes messages from clients and returns its answers in order."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

from oncecast.broker.dispatching import Dispatcher
from oncecast.broker.gateway import Gateway
from oncecast.broker.service import Service
from oncecast.kernel.protocol import (
    Append,
    Emit,
    NodeId,
    Send,
    Snapshot,
    Trim,
    Unwatch,
    Value,
    Watch,
)
from oncecast.kernel.stack import Output, Stack
from oncecast.kernel.values import Wake
from oncecast.replication.options import GroupOptions
from oncecast.replication.paxos import Paxos
from oncecast.simulator.disk import SimulatedDisk
from oncecast.storage.journal import Journal
from oncecast.wire import batch, levels
from oncecast.wire import commands as do
from oncecast.wire.frames import Answer, Call, Chunk, Delivery, Fetch

ME = NodeId("node")
ANN, BOB = NodeId("client/ann"), NodeId("client/bob")


class Alone:
    """A stub replica group, used to test a service or a gateway in isolation."""

    applied = 0
    level = 1

    def entry(self, slot: int) -> bytes:
        raise AssertionError(f"no entry at {slot}")

    def leads(self, now: float) -> bool:
        return True

    def follows(self, now: float) -> bool:
        return False

    def nodes(self) -> tuple[NodeId, ...]:
        return (ME,)


class Desk:
    """A node whose disk syncs at once, unless a test delays it."""

    def __init__(
        self, *, service: dict[str, Any] | None = None, gateway: dict[str, Any] | None = None
    ) -> None:
        self.disk = SimulatedDisk(Random(0))
        self._options = service or {}, gateway or {}
        self.now = 0.0
        self._ids = 1_000_000  # call ids, far above those in tests
        self.begin()

    def begin(self) -> None:
        self.waiting = False
        of_service, of_gateway = self._options
        rng = Random(0)
        level = of_service.get("level", levels.KNOWN)
        group = Paxos(ME, rng, options=GroupOptions(), level=level)
        self.service = Service(ME, rng, group=group, **of_service)
        group.attach(self.service)
        self.gateway = Gateway(ME, rng, service=self.service, **of_gateway)
        self.dispatcher = Dispatcher(ME, rng, service=self.service)
        self.stack = Stack([group, self.service, self.gateway, self.dispatcher])
        self.journal = Journal.open(self.disk, self.stack, segment_bytes=16 * 1024)
        self.sent: list[tuple[NodeId, Value]] = []
        self.watched: dict[NodeId, None] = {}
        self._awaiting_lease: list[Send] = []
        self._busy = False
        self._wakes: list[Wake] = []
        self._do(self.stack.start(self.now))

    def restart(self, **of_service: Any) -> None:
        """Restart the node after a crash, with these settings."""
        self._options[0].update(of_service)
        self.disk.crash()
        self.begin()

    # -- clients --

    def send(self, client: NodeId, message: Value) -> list[Value]:
        """Send a message and return the answers to that client."""
        self._do(self.stack.receive(self.now, client, message))
        return self.took(client)

    def took(self, client: NodeId) -> list[Value]:
        mine = [message for to, message in self.sent if to == client]
        self.sent = [each for each in self.sent if each[0] != client]
        return mine

    def call(self, client: NodeId, command: Any, id: int = 0) -> Any:
        """Execute a command and return its result. Without an `id`, the call gets a new one."""
        self._ids += 1
        id = id or self._ids
        self._do(self.stack.receive(self.now, client, Call(id, command)))
        for to, message in self.sent:
            if to == client and isinstance(message, Answer) and message.id == id:
                self.sent.remove((to, message))
                return message.result
        raise AssertionError(f"no answer to {command}")

    def leave(self, client: NodeId) -> None:
        self._do(self.stack.down(self.now, client))

    # -- disk and time --

    def sync(self) -> None:
        """Complete the pending writes."""
        self.waiting = False
        self._do([])

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        due = [wake for wake in self._wakes if wake.at <= self.now]
        self._wakes = [wake for wake in self._wakes if wake.at > self.now]
        for wake in due:
            self._do(self.stack.wake(self.now, wake))

    def _do(self, outputs: list[Output]) -> None:
        for output in outputs:
            match output:
                case Append() | Snapshot() | Trim():
                    self.journal.take(output)
                case Send():
                    self._awaiting_lease.append(output)
                case Wake():
                    self._wakes.append(output)
                case Watch(peer):
                    self.watched[peer] = None
                case Unwatch() | Emit():
                    raise AssertionError(f"{output} has no receiver")
        if not self._busy:
            self._settle()

    def _settle(self) -> None:
        """Process effects until none are left. The node's messages to itself arrive in order."""
        self._busy = True
        while True:
            if not self.waiting:
                self.journal.sync()
            free = [each for each in self._awaiting_lease if each.after <= self.journal.synced]
            if not free:
                break
            self._awaiting_lease = [
                each for each in self._awaiting_lease if each.after > self.journal.synced
            ]
            for each in free:
                if each.to == ME:
                    self._do(self.stack.receive(self.now, ME, each.message))
                else:
                    self.sent.append((each.to, each.message))
        self._busy = False


def packed(*values: bytes) -> bytes:
    return batch.encode(values, timestamps=0)


def put(epoch: int, sequence: int, *values: bytes, topic: str = "topic") -> do.Put:
    data = packed(*values)
    return do.Put(topic, "p", epoch, sequence, len(values), len(data), 0, data)


def fetch(
    epoch: int,
    offset: int,
    *,
    ack: int = 0,
    messages: int = 100,
    size: int = 1 << 20,
    topic: str = "topic",
) -> Fetch:
    return Fetch(topic, "sub", epoch, offset, ack, messages, size)


def reading(desk: Desk, client: NodeId = ANN, topic: str = "topic") -> int:
    """Subscribe and attach a reader, and return its epoch."""
    desk.call(client, do.Subscribe(topic, "sub", do.FromEarliest(), 0))
    attached = desk.call(client, do.Attach(topic, "sub", f"inc of {client}"))
    return int(attached.epoch)


def producing(desk: Desk, client: NodeId = BOB, topic: str = "topic") -> int:
    return int(desk.call(client, do.OpenProducer(topic, "p", "inc-1", 0)).epoch)


def values(messages: list[Value]) -> list[bytes]:
    """Return all delivered values, which must be contiguous."""
    chunks: list[Chunk] = []
    for message in messages:
        assert isinstance(message, Delivery), message
        chunks += message.chunks
    for before, after in pairwise(chunks):
        assert after.offset == before.offset + before.count
    return [value for each in chunks for value in batch.values(each.batch, each.skip, each.count)]
