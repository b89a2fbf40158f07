"""PaxosQueue: the eventual queue, where a majority says who takes what.

The second implementation of Tucci-Piergiovanni and Corsaro, "Classical Distributed Algorithms with
DDS". Elements come by reliable broadcast (Recovery), so each member has a copy of the queue. Who
takes an element is settled by the Synod, one number for each: a requester petitions the leader for
any element of its copy, a majority accepts, the leader tells all. Whoever loses tries another one.

Needs Publish, Discard and Delivered, Decide and Settled. Serves Enqueue, Deposit, Dequeue and
Withdraw; gives Dequeued and Deposited.

Goes on while a majority of acceptors is up, whoever crashes, the leader and those with a petition
under way included; wrong suspicions cost time and nothing else. No element ever has two takers.
One that is settled for a process that has crashed since is gone with it.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from random import Random
from typing import assert_never

import msgspec

from oncecast.coordination.protocols.events import (
    NOBODY,
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

SERIES = "queue/"  # others may have the Synod settle other things
# Elements that are next. If all took the oldest one, all but one would lose each time; if any, what
# is settled would have a gap for each that is left, and gaps are what members tell each other of.
WINDOW = 64
ENTRUSTED_MAX = 10_000  # deposits of others that are remembered, so that none counts twice


class Item(Value):
    """What is broadcast: an element of a queue."""

    queue: str
    data: bytes


class Entrusted(Value, tag="Entrusted"):
    """Put this in for me. A process that restarts counts its tickets anew."""

    depositor: str
    ticket: int
    queue: str
    data: bytes


class Kept(Value, tag="Kept"):
    """I have, and it is on my disk."""

    ticket: int
    depositor: str = ""  # earlier versions do not say


class DepositNoted(Value, tag="DepositNoted"):
    """Record: this deposit is put in, and not again if its message comes a second time."""

    depositor: str
    ticket: int


class DepositsNoted(Value, tag="DepositsNoted"):
    """Snapshot: the last deposits that were put in, oldest first."""

    deposits: tuple[DepositNoted, ...]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Item).decode


class Copy:
    """The elements of one queue that this node knows of and nobody is known to have taken."""

    __slots__ = ("asked", "elements", "next", "untried")

    def __init__(self) -> None:
        self.elements: dict[MessageId, bytes] = {}
        self.asked: dict[MessageId, None] = {}  # those that we have petitioned for
        self.untried: deque[MessageId] = deque()  # the others, and some that are gone,
        self.next: list[MessageId] = []  # but for these

    def add(self, id: MessageId, data: bytes) -> None:
        self.elements[id] = data
        self.untried.append(id)

    def pick(self, rng: Random) -> MessageId | None:
        """Any of those that are next."""
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
    Request = Enqueue | Deposit | Dequeue | Withdraw
    Message = Entrusted | Kept
    Observed = Delivered | Lost | Settled | CaughtUp
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
        """The two layers below, of which it reads what they have."""
        super().__init__(me, rng)
        self.elements, self.takers, self.snapshot_every = elements, takers, snapshot_every
        # A process that restarts is another one: it has not taken what its forerunner took.
        self.myself = f"{me}~{rng.getrandbits(48):012x}"
        self.copies: dict[str, Copy] = {}
        self.queues: dict[MessageId, str] = {}  # which queue each element is in
        self.waiting = Waiting()
        self.depositing: dict[int, str] = {}  # by ticket, into which queue
        # Of what this node publishes: for which node, which life of it, and under which ticket.
        self.publishing: deque[tuple[NodeId, str, int]] = deque()
        self.entrusted: dict[DepositNoted, None] = {}  # what others had this node put in
        self.saved_at = 0  # the last record before our last snapshot
        self.dropped = 0  # broadcasts that are no elements

    def length(self, queue: str) -> int:
        """Of this node's copy."""
        return len(self._copy(queue).elements)

    def restore(self, record: DepositNoted | DepositsNoted) -> None:
        for deposit in record.deposits if isinstance(record, DepositsNoted) else (record,):
            self._note(deposit)

    def start(self) -> None:
        for id, payload in self.elements.held.items():
            self._add(id, payload)

    def peek(self, queue: str, count: int) -> list[bytes]:
        """So many of this node's copy, the first to come first."""
        return list(islice(self._copy(queue).elements.values(), count))

    def request(self, request: Enqueue | Deposit | Dequeue | Withdraw) -> None:
        match request:
            case Enqueue(queue, data):
                self._publish(queue, data)
            case Deposit(queue, ticket, data):
                self.depositing[ticket] = queue
                if self.takers.leader == self.me:
                    self._publish(queue, data, self.me, self.myself, ticket)
                elif self.takers.leader != NOBODY:
                    self.send(self.takers.leader, Entrusted(self.myself, ticket, queue, data))
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
                # An answer to an earlier life of this process says nothing of our own tickets.
                if depositor in ("", self.myself):
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
        node: NodeId = NOBODY,
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
                self._drop_what_is_settled()
            case Lost():
                pass  # it was taken long ago, or this node was away for too long
            case _:
                assert_never(event)

    def _save_if_due(self) -> None:
        """The log is shared with the layers below, and is cut off only behind our snapshot."""
        if self.after >= self.saved_at + self.snapshot_every:
            self.saved_at = self.after
            self.snapshot(DepositsNoted(tuple(self.entrusted)))
            self.trim(self.after + 1)

    def _confirm(self, node: NodeId, depositor: str, ticket: int) -> None:
        if node == self.me:
            self._deposited(ticket, True)
        elif node != NOBODY:
            self.send(node, Kept(ticket, depositor))

    def _add(self, id: MessageId, payload: bytes) -> None:
        if self.takers.is_settled(SERIES + id.origin, id.number):
            self.ask(Discard(id))
            return
        try:
            item = _decode(payload)
        except msgspec.MsgspecError:
            self.dropped += 1
            return
        self.queues[id] = item.queue
        self._copy(item.queue).add(id, item.data)
        self._petition(item.queue)

    def _copy(self, queue: str) -> Copy:
        return self.copies.setdefault(queue, Copy())

    def _petition(self, queue: str) -> None:
        """For as many elements as there are tickets; who need not wait is told if there is none."""
        copy = self._copy(queue)
        while len(copy.asked) < self.waiting.count(queue):
            id = copy.pick(self.rng)
            if id is None:
                break
            self.ask(Decide(SERIES + id.origin, id.number, self.myself))
        if not copy.asked:
            for ticket in self.waiting.impatient(queue):
                self.emit(Dequeued(queue, ticket, None))

    def _settled(self, id: MessageId, taker: str) -> None:
        self.ask(Discard(id), after=0)
        queue = self.queues.pop(id, None)
        if queue is None:
            return  # it has not come yet, and will not be added
        copy = self._copy(queue)
        data = copy.elements.pop(id)
        copy.asked.pop(id, None)
        if taker == self.myself:
            self._hand_over(queue, data)
        self._petition(queue)

    def _drop_what_is_settled(self) -> None:
        """But not what we have petitioned for: it may be ours, and we are yet to be told."""
        for copy in self.copies.values():
            for id in [id for id in copy.elements if id not in copy.asked]:
                if self.takers.is_settled(SERIES + id.origin, id.number):
                    del copy.elements[id], self.queues[id]
                    self.ask(Discard(id), after=0)
        for series, numbers in self.takers.settled.items():
            if series.startswith(SERIES):
                origin = NodeId(series.removeprefix(SERIES))
                self.ask(Disregard(origin, numbers.top, tuple(numbers.gaps)), after=0)

    def _hand_over(self, queue: str, data: bytes) -> None:
        if self.waiting.count(queue):
            self.emit(Dequeued(queue, self.waiting.first(queue), data))
        else:
            self._publish(queue, data)  # who waited has withdrawn: back, under a new name
