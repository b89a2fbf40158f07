"""FifoQueue: a distributed queue with mutual exclusion over one stream of commands.

This is the first implementation of Tucci-Piergiovanni and Corsaro, "Classical Distributed
Algorithms with DDS", with its names. Each member has a copy of the queue. To take an element, a
member sends Deq to all other members. Each of them answers Ack at once, or after its own turn if
its own request is older. With all Acks, the member takes the oldest element and sends Pop, so that
the other members remove it.

Needs reliable, ordered links between all members, so that a Pop arrives before the Ack that gives
another member its turn. The queue is not fault-tolerant: a crashed member blocks all others,
because its Ack is missing or its turn never ends.

Serves Enqueue, Dequeue and Withdraw. Emits Dequeued.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import ClassVar, assert_never

from oncecast.coordination.protocols.clock import LamportClock, Stamp
from oncecast.coordination.protocols.events import Dequeue, Dequeued, Enqueue, Withdraw
from oncecast.coordination.protocols.waiting import Waiting
from oncecast.kernel.protocol import NodeId, Protocol, Value

NOT_ASKING = Stamp(0, NodeId(""))


class Element(Value, tag="Element"):
    """An element, identified by its stamp."""

    queue: str
    stamp: Stamp
    data: bytes


class Deq(Value, tag="Deq"):
    """A request to take an element."""

    stamp: Stamp


class Ack(Value, tag="Ack"):
    """Permission from one member to take an element."""

    stamp: Stamp


class Pop(Value, tag="Pop"):
    """The sender has taken this element. The receiver removes it."""

    queue: str
    element: Stamp
    stamp: Stamp


class FifoQueue(Protocol):
    name = "fifo_queue"
    Request: ClassVar = Enqueue | Dequeue | Withdraw
    Message: ClassVar = Element | Deq | Ack | Pop

    def __init__(self, me: NodeId, rng: Random, *, members: Iterable[NodeId]) -> None:
        super().__init__(me, rng)
        self.others = tuple(node for node in members if node != me)
        self.clock = LamportClock(me)
        self.copies: dict[str, dict[Stamp, bytes]] = {}
        self.popped: dict[Stamp, None] = {}  # elements whose Pop arrived first
        self.waiting = Waiting()
        self.asking = NOT_ASKING  # the stamp of this node's request
        self.acks: dict[NodeId, None] = {}
        self.deferred: dict[NodeId, None] = {}  # members that get an Ack after this node's turn
        self.dropped = 0  # number of messages from nodes that are not members

    def length(self, queue: str) -> int:
        """Return the number of elements in the local copy."""
        return len(self.copies.get(queue, ()))

    def request(self, request: Enqueue | Dequeue | Withdraw) -> None:
        match request:
            case Enqueue(queue, data):
                element = Element(queue, self.clock.tick(), data)
                self._tell_others(element)
                self._add(element)
            case Dequeue(queue, ticket, wait):
                self.waiting.add(queue, ticket, wait)
            case Withdraw(queue, ticket):
                self.waiting.remove(queue, ticket)
            case _:
                assert_never(request)
        self._advance()

    def receive(self, sender: NodeId, message: Element | Deq | Ack | Pop) -> None:
        if sender not in self.others or not message.stamp.possible:
            self.dropped += 1
            return
        self.clock.witness(message.stamp)
        match message:
            case Element():
                self._add(message)
            case Deq(stamp):
                if NOT_ASKING != self.asking < stamp:
                    self.deferred[sender] = None
                else:
                    self.send(sender, Ack(self.clock.tick()))
            case Ack():
                self.acks[sender] = None
                self._enter_if_all_acked()
            case Pop(queue, element):
                if self.copies.get(queue, {}).pop(element, None) is None:
                    self.popped[element] = None
            case _:
                assert_never(message)
        self._advance()

    def _tell_others(self, message: Element | Deq | Pop) -> None:
        for node in self.others:
            self.send(node, message)

    def _add(self, element: Element) -> None:
        # Only a single link keeps order, so a Pop of another member can arrive before the element.
        if element.stamp in self.popped:
            del self.popped[element.stamp]
        else:
            self.copies.setdefault(element.queue, {})[element.stamp] = element.data

    def _advance(self) -> None:
        """Answer requests that do not wait, and ask for a turn if a request can be served."""
        for queue in self.waiting.queues():
            if not self.length(queue):
                for ticket in self.waiting.impatient(queue):
                    self.emit(Dequeued(queue, ticket, None))
        while self.asking == NOT_ASKING and any(map(self.length, self.waiting.queues())):
            self.asking = self.clock.tick()
            self.acks.clear()
            self._tell_others(Deq(self.asking))
            self._enter_if_all_acked()

    def _enter_if_all_acked(self) -> None:
        if len(self.acks) == len(self.others):
            self._take()
            self._end_turn()

    def _take(self) -> None:
        """Take one element that a local request waits for. This is the critical section."""
        for queue in self.waiting.queues():
            if copy := self.copies.get(queue):
                element = min(copy)
                data = copy.pop(element)
                self._tell_others(Pop(queue, element, self.clock.tick()))
                self.emit(Dequeued(queue, self.waiting.first(queue), data))
                return

    def _end_turn(self) -> None:
        self.asking = NOT_ASKING
        deferred, self.deferred = self.deferred, {}
        for node in deferred:
            self.send(node, Ack(self.clock.tick()))
