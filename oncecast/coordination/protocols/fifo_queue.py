"""FifoQueue: the eventual queue, by mutual exclusion over one stream of commands.

The first implementation of Tucci-Piergiovanni and Corsaro, "Classical Distributed Algorithms with
DDS"; names are theirs. Each member has a copy of the queue. To take an element a member asks all
others, which acknowledge at once, or after their own turn if their request is older; with all
acknowledgements it takes the oldest element, has the others pop it, and lets the next one in.

Needs links between all members that lose nothing and keep the order, so that a Pop comes before the
Ack that lets another member in. Not fault-tolerant: a member that crashes blocks all others, be it
that its Ack is missing, or that its turn has come and its Pop is never sent.

Serves Enqueue, Dequeue, Withdraw; gives Dequeued.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import assert_never

from oncecast.coordination.protocols.clock import LamportClock, Stamp
from oncecast.coordination.protocols.events import Dequeue, Dequeued, Enqueue, Withdraw
from oncecast.coordination.protocols.waiting import Waiting
from oncecast.kernel.protocol import NodeId, Protocol, Value

NOT_ASKING = Stamp(0, NodeId(""))


class Element(Value, tag="Element"):
    """Its stamp is its name."""

    queue: str
    stamp: Stamp
    data: bytes


class Deq(Value, tag="Deq"):
    """I want to take an element."""

    stamp: Stamp


class Ack(Value, tag="Ack"):
    """Go ahead, as far as I am concerned."""

    stamp: Stamp


class Pop(Value, tag="Pop"):
    """I have taken this element: remove it."""

    queue: str
    element: Stamp
    stamp: Stamp


class FifoQueue(Protocol):
    name = "fifo_queue"
    Request = Enqueue | Dequeue | Withdraw
    Message = Element | Deq | Ack | Pop

    def __init__(self, me: NodeId, rng: Random, *, members: Iterable[NodeId]) -> None:
        super().__init__(me, rng)
        self.others = tuple(node for node in members if node != me)
        self.clock = LamportClock(me)
        self.copies: dict[str, dict[Stamp, bytes]] = {}
        self.popped: dict[Stamp, None] = {}  # before they came
        self.waiting = Waiting()
        self.asking = NOT_ASKING  # the stamp of our own request
        self.acks: dict[NodeId, None] = {}
        self.deferred: dict[NodeId, None] = {}  # who is acknowledged after our turn
        self.dropped = 0  # messages of strangers

    def length(self, queue: str) -> int:
        """Of this node's copy."""
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
        self._go_on()

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
                self._enter_if_all_agree()
            case Pop(queue, element):
                if self.copies.get(queue, {}).pop(element, None) is None:
                    self.popped[element] = None
            case _:
                assert_never(message)
        self._go_on()

    def _tell_others(self, message: Element | Deq | Pop) -> None:
        for node in self.others:
            self.send(node, message)

    def _add(self, element: Element) -> None:
        # Streams of different members are not in step: the pop may have been faster.
        if element.stamp in self.popped:
            del self.popped[element.stamp]
        else:
            self.copies.setdefault(element.queue, {})[element.stamp] = element.data

    def _go_on(self) -> None:
        """Answer who need not wait; ask for a turn if somebody here could use it."""
        for queue in self.waiting.queues():
            if not self.length(queue):
                for ticket in self.waiting.impatient(queue):
                    self.emit(Dequeued(queue, ticket, None))
        while self.asking == NOT_ASKING and any(map(self.length, self.waiting.queues())):
            self.asking = self.clock.tick()
            self.acks.clear()
            self._tell_others(Deq(self.asking))
            self._enter_if_all_agree()

    def _enter_if_all_agree(self) -> None:
        if len(self.acks) == len(self.others):
            self._take()
            self._let_others_in()

    def _take(self) -> None:
        """The critical section: one element, if there is one left that somebody waits for."""
        for queue in self.waiting.queues():
            if copy := self.copies.get(queue):
                element = min(copy)
                data = copy.pop(element)
                self._tell_others(Pop(queue, element, self.clock.tick()))
                self.emit(Dequeued(queue, self.waiting.first(queue), data))
                return

    def _let_others_in(self) -> None:
        self.asking = NOT_ASKING
        deferred, self.deferred = self.deferred, {}
        for node in deferred:
            self.send(node, Ack(self.clock.tick()))
