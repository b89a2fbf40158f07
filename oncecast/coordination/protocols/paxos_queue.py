"""PaxosQueue: a distributed queue in which a majority decides which process takes an element.

This is the second implementation of Tucci-Piergiovanni and Corsaro, "Classical Distributed
Algorithms with DDS". Elements arrive by reliable broadcast (Recovery), so each member has a copy of
the queue. The Synod settles which process takes an element (the taker). A requester petitions the
leader for an element from its copy, a majority accepts, and the leader announces the taker. A
requester that loses tries another element.

Needs Publish, Discard and Delivered, Decide and Settled. Serves Enqueue, Deposit, Dequeue and
Withdraw. Emits Dequeued and Deposited.

The queue works while a majority of the acceptors is running. Requesters and the leader may crash at
any time, and wrong suspicions only cost time. An element never has two takers. An element whose
taker crashes is lost.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from random import Random
from typing import ClassVar, assert_never

import msgspec

from oncecast.coordination.protocols.events import (
    NO_NODE,
    CaughtUp,
    Decide,
    Deposit,
    Deposited,
    Dequeue,
    Dequeued,
    Enqueue,
    Settled,
    Withdraw,
)
from oncecast.coordination.protocols.synod import Synod
from oncecast.coordination.protocols.waiting import Waiting
from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.overlay.events import Delivered, Discard, Disregard, Lost, MessageId, Publish
from oncecast.overlay.recovery import Recovery

SERIES = "queue/"  # other protocols use other series of the Synod
# A requester picks one of this many oldest elements. If all requesters picked the oldest element,
# only one of them would get it. If they picked any element, the settled numbers would have many
# gaps, which members must send to each other.
WINDOW = 64
ENTRUSTED_MAX = 10_000  # maximum number of deposits to remember, so that none is added twice


class Item(Value):
    """An element of a queue, as it is broadcast."""

    queue: str
    data: bytes


class Entrusted(Value, tag="Entrusted"):
    """A request to the leader to add an element. `depositor` is the incarnation of the sender."""

    depositor: str
    ticket: int
    queue: str
    data: bytes


class Kept(Value, tag="Kept"):
    """The answer to Entrusted: the element is on the leader's disk."""

    ticket: int
    depositor: str = ""  # empty in messages from earlier versions


class DepositNoted(Value, tag="DepositNoted"):
    """Record: this deposit was added, so a repeated Entrusted is ignored."""

    depositor: str
    ticket: int


class DepositsNoted(Value, tag="DepositsNoted"):
    """Snapshot: the last deposits that were added, oldest first."""

    deposits: tuple[DepositNoted, ...]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Item).decode


class Copy:
    """The elements of one queue that this node knows, and that have no known taker."""

    __slots__ = ("asked", "elements", "next", "untried")

    def __init__(self) -> None:
        self.elements: dict[MessageId, bytes] = {}
        self.asked: dict[MessageId, None] = {}  # elements that this node has petitioned for
        self.untried: deque[MessageId] = deque()  # other elements; some may have been taken
        self.next: list[MessageId] = []  # the oldest of the other elements

    def add(self, id: MessageId, data: bytes) -> None:
        self.elements[id] = data
        self.untried.append(id)

    def pick(self, rng: Random) -> MessageId | None:
        """Return one of the oldest elements at random, or None if no element is left."""
        window, untried = self.next, self.untried
        while window or untried:
            while untried and len(window) < WINDOW:
                window.append(untried.popleft())
            at = rng.randrange(len(window))
            window[at], window[-1] = window[-1], window[at]
            id = window.pop()
            if id in self.elements:
                self.asked[id] = None
                return id
        return None


class PaxosQueue(Protocol):
    name = "paxos_queue"
    Request: ClassVar = Enqueue | Deposit | Dequeue | Withdraw
    Message: ClassVar = Entrusted | Kept
    Observed: ClassVar = Delivered | Lost | Settled | CaughtUp
    Record = DepositNoted
    State = DepositsNoted

    def __init__(
        self,
        me: NodeId,
        rng: Random,
        *,
        elements: Recovery,
        takers: Synod,
        snapshot_every: int = 10_000,
    ) -> None:
        """Create a queue that reads the state of the two layers below."""
        super().__init__(me, rng)
        self.elements, self.takers, self.snapshot_every = elements, takers, snapshot_every
        # A restarted process has a new incarnation, and does not own elements taken before.
        self.incarnation = f"{me}~{rng.getrandbits(48):012x}"
        self.copies: dict[str, Copy] = {}
        self.queues: dict[MessageId, str] = {}  # the queue of each element
        self.waiting = Waiting()
        self.depositing: dict[int, str] = {}  # ticket -> queue
        # For each broadcast in flight: the depositor, its incarnation and its ticket.
        self.publishing: deque[tuple[NodeId, str, int]] = deque()
        self.entrusted: dict[DepositNoted, None] = {}  # deposits added for other nodes
        self.saved_at = 0  # the last record before the last snapshot
        self.dropped = 0  # number of broadcasts that cannot be decoded

    def length(self, queue: str) -> int:
        """Return the number of elements in the local copy."""
        return len(self._copy(queue).elements)

    def restore(self, record: DepositNoted | DepositsNoted) -> None:
        for deposit in record.deposits if isinstance(record, DepositsNoted) else (record,):
            self._note(deposit)

    def start(self) -> None:
        for id, payload in self.elements.held.items():
            self._add(id, payload)

    def peek(self, queue: str, count: int) -> list[bytes]:
        """Return up to `count` elements of the local copy, oldest first."""
        return list(islice(self._copy(queue).elements.values(), count))

    def request(self, request: Enqueue | Deposit | Dequeue | Withdraw) -> None:
        match request:
            case Enqueue(queue, data):
                self._publish(queue, data)
            case Deposit(queue, ticket, data):
                self.depositing[ticket] = queue
                if self.takers.leader == self.me:
                    self._publish(queue, data, self.me, self.incarnation, ticket)
                elif self.takers.leader != NO_NODE:
                    self.send(self.takers.leader, Entrusted(self.incarnation, ticket, queue, data))
                else:
                    self._deposited(ticket, False)
            case Dequeue(queue, ticket, wait):
                self.waiting.add(queue, ticket, wait)
                self._petition(queue)
            case Withdraw(queue, ticket):
                self.waiting.remove(queue, ticket)
                self.depositing.pop(ticket, None)
            case _:
                assert_never(request)

    def receive(self, sender: NodeId, message: Entrusted | Kept) -> None:
        match message:
            case Entrusted(depositor, ticket, queue, data):
                deposit = DepositNoted(depositor, ticket)
                if deposit not in self.entrusted:
                    self._note(deposit)
                    self.append(deposit)
                    self._publish(queue, data, sender, depositor, ticket)
            case Kept(ticket, depositor):
                # An answer to an earlier incarnation does not confirm a ticket of this one.
                if depositor in ("", self.incarnation):
                    self._deposited(ticket, True)
            case _:
                assert_never(message)

    def _deposited(self, ticket: int, done: bool) -> None:
        queue = self.depositing.pop(ticket, None)
        if queue is not None:
            self.emit(Deposited(queue, ticket, done))

    def _note(self, deposit: DepositNoted) -> None:
        self.entrusted[deposit] = None
        if len(self.entrusted) > ENTRUSTED_MAX:
            del self.entrusted[next(iter(self.entrusted))]

    def _publish(
        self,
        queue: str,
        data: bytes,
        node: NodeId = NO_NODE,
        depositor: str = "",
        ticket: int = 0,
    ) -> None:
        self.publishing.append((node, depositor, ticket))
        self.ask(Publish(_encode(Item(queue, data))))

    def observe(self, event: Delivered | Lost | Settled | CaughtUp) -> None:
        self._save_if_due()
        match event:
            case Delivered(id, payload):
                self._add(id, payload)
                if id.origin == self.elements.origin:
                    self._confirm(*self.publishing.popleft())
            case Settled(series, number, taker):
                if series.startswith(SERIES):
                    origin = NodeId(series.removeprefix(SERIES))
                    self._settled(MessageId(origin, number), taker)
            case CaughtUp():
                self._drop_settled()
            case Lost():
                pass  # the element was taken, or this node was offline for too long
            case _:
                assert_never(event)

    def _save_if_due(self) -> None:
        """Take a snapshot if one is due, so that the stack's log can be trimmed."""
        if self.after >= self.saved_at + self.snapshot_every:
            self.saved_at = self.after
            self.snapshot(DepositsNoted(tuple(self.entrusted)))
            self.trim(self.after + 1)

    def _confirm(self, node: NodeId, depositor: str, ticket: int) -> None:
        if node == self.me:
            self._deposited(ticket, True)
        elif node != NO_NODE:
            self.send(node, Kept(ticket, depositor))

    def _add(self, id: MessageId, payload: bytes) -> None:
        if self.takers.is_settled(SERIES + id.origin, id.number):
            self.ask(Discard(id))
            return
        try:
            item = _decode(payload)
        except (ValueError, RecursionError):
            self.dropped += 1
            return
        self.queues[id] = item.queue
        self._copy(item.queue).add(id, item.data)
        self._petition(item.queue)

    def _copy(self, queue: str) -> Copy:
        return self.copies.setdefault(queue, Copy())

    def _petition(self, queue: str) -> None:
        """Petition for one element per ticket. Answer None to tickets that do not wait."""
        copy = self._copy(queue)
        while len(copy.asked) < self.waiting.count(queue):
            id = copy.pick(self.rng)
            if id is None:
                break
            self.ask(Decide(SERIES + id.origin, id.number, self.incarnation))
        if not copy.asked:
            for ticket in self.waiting.impatient(queue):
                self.emit(Dequeued(queue, ticket, None))

    def _settled(self, id: MessageId, taker: str) -> None:
        self.ask(Discard(id), after=0)
        queue = self.queues.pop(id, None)
        if queue is None:
            return  # the element has not arrived; _add will discard it
        copy = self._copy(queue)
        data = copy.elements.pop(id)
        copy.asked.pop(id, None)
        if taker == self.incarnation:
            self._deliver(queue, data)
        self._petition(queue)

    def _drop_settled(self) -> None:
        """Drop settled elements, except those that this node has petitioned for and may own."""
        for copy in self.copies.values():
            for id in [id for id in copy.elements if id not in copy.asked]:
                if self.takers.is_settled(SERIES + id.origin, id.number):
                    del copy.elements[id], self.queues[id]
                    self.ask(Discard(id), after=0)
        for series, numbers in self.takers.settled.items():
            if series.startswith(SERIES):
                origin = NodeId(series.removeprefix(SERIES))
                self.ask(Disregard(origin, numbers.top, tuple(numbers.gaps)), after=0)

    def _deliver(self, queue: str, data: bytes) -> None:
        if self.waiting.count(queue):
            self.emit(Dequeued(queue, self.waiting.first(queue), data))
        else:
            # The request was withdrawn, so the element goes back to the queue.
            self._publish(queue, data)
