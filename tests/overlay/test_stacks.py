"""Test three stacks wired by hand, without a driver or a clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

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
from oncecast.overlay import Delivered, Lost, Mesh, MessageId, Plumtree, Publish, Recovery
from oncecast.overlay.messages import Gossip

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
NODES = (A, B, C)


class World:
    """An ordered network with instant disks. Time passes when no message is in flight."""

    def __init__(self, *, kept_max: int = 100) -> None:
        self.now = 0.0
        self.kept_max = kept_max
        self.stacks: dict[NodeId, Stack] = {}
        self.disks: dict[NodeId, list[tuple[int, Value]]] = {node: [] for node in NODES}
        self.events: dict[NodeId, list[Value]] = {node: [] for node in NODES}
        self.waiting: deque[tuple[NodeId, Callable[[Stack], list[Output]]]] = deque()
        self.wakes: list[tuple[NodeId, Stack, Wake]] = []
        self.lose: Callable[[NodeId, Send], bool] = lambda sender, send: False

    def recovery(self, node: NodeId) -> Recovery:
        protocol = self.stacks[node].protocols[2]
        assert isinstance(protocol, Recovery)
        return protocol

    def start(self, node: NodeId) -> None:
        rng = Random(f"{node}/{len(self.disks[node])}")
        stack = self.stacks[node] = Stack(
            [
                Mesh(node, rng, peers=NODES),
                Plumtree(node, rng),
                Recovery(node, rng, kept_max=self.kept_max, snapshot_every=4),
            ]
        )
        for number, record in self.disks[node]:
            stack.restore(number, record)
        self.do(node, stack.start(self.now))

    def crash(self, node: NodeId) -> None:
        del self.stacks[node]
        for other in self.stacks:
            self.waiting.append((other, loss(self, node)))

    def publish(self, node: NodeId, payload: bytes) -> None:
        self.do(node, self.stacks[node].request(self.now, Publish(payload)))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while True:
            while self.waiting:
                node, step = self.waiting.popleft()
                if node in self.stacks:
                    self.do(node, step(self.stacks[node]))
            due = [entry for entry in self.wakes if entry[2].at <= end]
            if not due:
                break
            first = min(due, key=lambda entry: entry[2].at)
            self.wakes.remove(first)
            node, stack, wake = first
            self.now = wake.at
            if self.stacks.get(node) is stack:
                self.do(node, stack.wake(self.now, wake))
        self.now = end

    def do(self, node: NodeId, outputs: list[Output]) -> None:
        for output in list(outputs):
            match output:
                case Send(to, message):
                    if not self.lose(node, output):
                        self.waiting.append((to, arrival(self, node, message)))
                case Emit(event):
                    self.events[node].append(event)
                case Append(record, number):
                    self.disks[node].append((number, record))
                case Snapshot(state, number):
                    self.disks[node] = [(number, state)]
                case Wake():
                    self.wakes.append((node, self.stacks[node], output))
                case Watch(peer):
                    if peer not in self.stacks:
                        self.waiting.append((node, loss(self, peer)))
                case Trim() | Unwatch():
                    pass


def loss(world: World, peer: NodeId) -> Callable[[Stack], list[Output]]:
    return lambda stack: stack.down(world.now, peer)


def arrival(world: World, sender: NodeId, message: Value) -> Callable[[Stack], list[Output]]:
    return lambda stack: stack.receive(world.now, sender, message)


def started(**options: int) -> World:
    world = World(**options)
    for node in NODES:
        world.start(node)
    world.run(5.0)
    return world


def messages(node: NodeId, *payloads: bytes, first: int = 1) -> list[Value]:
    return [
        Delivered(MessageId(node, number), payload)
        for number, payload in enumerate(payloads, first)
    ]


def test_each_node_delivers_each_message_once() -> None:
    """NET-3"""
    world = started()
    for payload in (b"1", b"2", b"3"):
        world.publish(A, payload)
        world.run(1.0)
    assert world.events == {node: messages(A, b"1", b"2", b"3") for node in NODES}


def test_links_settle_to_a_tree_that_carries_each_payload_once() -> None:
    """NET-3"""
    world = started()
    world.publish(A, b"1")
    world.run(5.0)
    carried: list[NodeId] = []

    def count(sender: NodeId, send: Send) -> bool:
        if isinstance(send.message, Gossip):
            carried.append(send.to)
        return False

    world.lose = count
    world.publish(A, b"2")
    world.run(5.0)
    assert sorted(carried) == [B, C]


def test_recovery_delivers_payloads_that_plumtree_lost() -> None:
    """NET-3"""
    world = started()
    world.lose = lambda sender, send: isinstance(send.message, Gossip)
    world.publish(A, b"1")
    world.publish(A, b"2")
    world.run(20.0)
    assert world.events == {node: messages(A, b"1", b"2") for node in NODES}


def test_restarted_node_gets_only_the_messages_it_missed() -> None:
    """NET-3"""
    world = started()
    world.publish(A, b"1")
    world.run(1.0)
    world.crash(C)
    world.publish(A, b"2")
    world.run(5.0)
    world.start(C)
    world.run(20.0)
    assert world.events[C] == messages(A, b"1", b"2")
    assert list(world.recovery(C).held.values()) == [b"1", b"2"]


def test_restarted_publisher_continues_with_the_next_number() -> None:
    world = started()
    for payload in (b"1", b"2", b"3", b"4", b"5"):  # more than fit between two snapshots
        world.publish(A, payload)
    world.run(1.0)
    world.crash(A)
    world.start(A)
    world.run(5.0)
    world.publish(A, b"6")
    world.run(5.0)
    assert world.events == {node: messages(A, b"1", b"2", b"3", b"4", b"5", b"6") for node in NODES}


def test_node_offline_for_too_long_reports_its_losses() -> None:
    """NET-3"""
    world = started(kept_max=2)
    world.publish(A, b"1")
    world.run(1.0)
    world.crash(C)
    for payload in (b"2", b"3", b"4", b"5"):
        world.publish(A, payload)
    world.run(5.0)
    world.start(C)
    world.run(30.0)
    assert world.events[C] == [
        *messages(A, b"1"),
        *messages(A, b"4", b"5", first=4),
        Lost(A, 2, 3),
    ]
    world.publish(A, b"6")
    world.run(5.0)
    assert world.events[C][-1:] == messages(A, b"6", first=6)


def test_log_size_stays_bounded() -> None:
    world = started(kept_max=2)
    for _ in range(100):
        world.publish(A, b"x" * 100)
        world.run(0.1)
    assert all(len(disk) <= 4 for disk in world.disks.values())
    assert len(world.events[C]) == 100
