"""A small state machine on top of a replica group, which counts the puts of its clients.

It deduplicates commands by (producer, sequence). Its state refers to entries that must stay
readable. The state is compacted, transferred and compared. `Top` is the interface that a campaign
uses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import NamedTuple
from typing import Protocol as Interface

import google_crc32c
import msgspec

from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.lab.scenarios.draw import Load, Shape, Snapshots
from oncecast.replication.events import (
    Compact,
    Compare,
    Decided,
    Digest,
    Installed,
    LeaderChanged,
    Missing,
    Propose,
    StateWanted,
)
from oncecast.replication.paxos import Paxos
from oncecast.simulator.checkers import Checker, Violation
from oncecast.simulator.simulated import Simulation

SCRUB_EVERY = 1.0
BURSTS = 4  # number of bursts per producer

decode = msgspec.msgpack.Decoder(tuple[int, int, bytes]).decode
encode = msgspec.msgpack.Encoder().encode


class Top(Interface):
    """The layers that run on top of the group."""

    def layers(self, me: NodeId, rng: Random, group: Paxos) -> list[Protocol]:
        """Return the layers above `group`, with a state machine attached to it."""

    def begin(self, sim: Simulation, leaders: Callable[[], list[NodeId]], until: float) -> None:
        """Start the clients. The storm lasts until `until`."""

    def stop(self) -> None:
        """Stop new puts, because all seats of the group are taken again."""

    def checkers(self) -> list[Checker]: ...

    def end(self, stacks: dict[NodeId, list[Protocol]]) -> None:
        """Check that all pending work is complete and that all replicas are equal."""


class Put(Value):
    producer: int
    sequence: int
    payload: bytes


def command(put: Put) -> bytes:
    return encode((put.producer, put.sequence, put.payload))


class Acked(Value):
    """Tells the application that a put is stored in `slot`, now or earlier."""

    producer: int
    sequence: int
    slot: int


class Scrub(Value):
    """Timer: reread every entry that the state refers to."""


class State(NamedTuple):
    slot: int
    next: dict[int, int]  # producer -> next sequence
    kept: list[tuple[int, int]]  # slot and checksum of each of the last puts
    fold: int  # checksum of all puts, in order


Key = tuple[int, int]  # (producer, sequence)


class Order:
    """Checks during the run that puts are linearizable.

    If put B is made after put A was acknowledged, B must have a higher slot than A. A put has the
    same slot at every replica. The check keeps only puts that are not settled.
    """

    def __init__(self) -> None:
        self._latest = 0  # the highest slot of all acknowledged puts
        self._behind: dict[Key, int] = {}  # the slot that each unsettled put must follow
        self._slots: dict[Key, int] = {}

    def made(self, key: Key) -> None:
        self._behind[key] = self._latest

    def applied(self, key: Key, slot: int) -> None:
        """Check a put that a replica applies for the first time since its start."""
        if key not in self._behind:
            return
        known = self._slots.setdefault(key, slot)
        if known != slot:
            raise Violation(f"put {key} is both at slot {known} and at slot {slot}")
        if slot <= self._behind[key]:
            raise Violation(
                f"put {key} is at slot {slot}, but a put at slot {self._behind[key]} was "
                "acknowledged before this put was made"
            )

    def acknowledged(self, key: Key) -> bool:
        """Record an acknowledgement, and return whether the producer still waits for it."""
        if key not in self._behind:
            return False
        if key not in self._slots:
            raise Violation(f"put {key} is acknowledged, but no replica has applied it")
        self._latest = max(self._latest, self._slots[key])
        return True

    def settled(self, key: Key) -> None:
        del self._behind[key], self._slots[key]


class Ledger(Protocol):
    name = "ledger"
    Request = Put
    Observed = Decided | LeaderChanged | StateWanted | Installed | Compare
    Timer = Scrub

    def __init__(
        self,
        me: NodeId,
        rng: Random,
        group: Paxos,
        snapshots: Snapshots = Snapshots(),  # noqa: B008  # frozen
        order: Order | None = None,
    ) -> None:
        super().__init__(me, rng)
        self.group, self.snapshots, self.order = group, snapshots, order or Order()
        self._filling = bytes(snapshots.filling)
        self.slot, self.fold = 0, 0
        self.next: dict[int, int] = {}
        self.kept: deque[tuple[int, int]] = deque(maxlen=snapshots.kept)
        self.leading = False
        self.token = 0
        self.waiting: dict[int, Put] = {}
        self.decided = 0

    def start(self) -> None:
        self.later(SCRUB_EVERY, Scrub())

    # -- the state --

    def install(self, slot: int, state: tuple[bytes, ...]) -> None:
        _, self.next, kept, self.fold = msgspec.msgpack.decode(state[0], type=State)
        self.slot, self.kept = slot, deque(kept, maxlen=self.snapshots.kept)

    def learn(self, slot: int, value: bytes) -> None:
        assert slot > self.slot, f"{self.me}: slot {slot} arrived after slot {self.slot}"
        self.slot = slot
        producer, sequence, _ = decode(value)
        if sequence == self.next.get(producer, 0):
            self.next[producer] = sequence + 1
            self.order.applied((producer, sequence), slot)
            self.kept.append((slot, google_crc32c.value(value)))
            self.fold = google_crc32c.extend(self.fold, value)

    @property
    def needed(self) -> int:
        return self.kept[0][0] if self.kept else self.slot + 1

    def state(self) -> bytes:
        return encode(State(self.slot, self.next, list(self.kept), self.fold))

    def digest(self) -> bytes:
        """Return the state without the slot, because the last slot may not hold a command."""
        return encode((sorted(self.next.items()), list(self.kept), self.fold))

    def compact(self) -> None:
        self.ask(Compact(self.slot, self.needed, (self.state(), self._filling)))

    # -- clients --

    def request(self, put: Put) -> None:
        if self.leading:
            self.token += 1
            self.waiting[self.token] = put
            self.ask(Propose(self.token, command(put)))

    def observe(self, event: Decided | LeaderChanged | StateWanted | Installed | Compare) -> None:
        match event:
            case Decided(slot, value, token):
                self.learn(slot, value)
                put = self.waiting.pop(token, None)
                if put is not None and value != command(put):
                    raise Violation(
                        f"{self.me} reports {put} at slot {slot}, but the slot has another value"
                    )
                if put is not None and put.sequence < self.next.get(put.producer, 0):
                    self.emit(Acked(put.producer, put.sequence, slot), after=0)
                self.decided += 1
                if self.decided % self.snapshots.every == 0:
                    self.compact()
            case LeaderChanged(leader):
                self.leading = leader == self.me
                self.waiting.clear()
            case StateWanted():
                self.compact()
            case Installed(slot, state):
                self.install(slot, state)
            case Compare(slot):
                self.ask(Digest(slot, self.digest()))

    def timeout(self, timer: Scrub) -> None:
        for slot, checksum in self.kept:
            try:
                value = self.group.entry(slot)
            except Missing:
                continue
            if google_crc32c.value(value) != checksum:
                raise Violation(f"{self.me}: the entry at slot {slot} has changed")
        self.later(SCRUB_EVERY, timer)


class Promises(Checker):
    """Records acknowledged puts until their producers have processed the acknowledgement."""

    def __init__(self, acked: dict[Key, None], order: Order) -> None:
        self.acked, self.order = acked, order

    def heard(self, sim: Simulation, node: NodeId, event: Value) -> None:
        if isinstance(event, Acked):
            key = (event.producer, event.sequence)
            if self.order.acknowledged(key):
                self.acked[key] = None


class Producer:
    """A client that makes puts when they are due and repeats each until it is acknowledged."""

    def __init__(self, number: int, load: Load, rng: Random, until: float, order: Order) -> None:
        self.number, self.load, self.rng, self.until = number, load, rng, until
        self.order = order
        self.made = 0
        self.stopped = False
        self.waiting: deque[Put] = deque()
        # Sequence -> when to repeat the put to each node.
        self._due_again: dict[int, dict[NodeId, tuple[float, float]]] = {}
        times = sorted(rng.uniform(0.0, until) for _ in range(BURSTS))
        self._bursts = [until * 0.1, *times]

    def step(
        self, now: float, leaders: list[NodeId], acked: dict[Key, None]
    ) -> list[tuple[NodeId, Put]]:
        """Return the puts to send now, each with a node that considers itself the leader."""
        while self.waiting and (self.number, self.waiting[0].sequence) in acked:
            self._settle(self.waiting.popleft().sequence, acked)
        due = self._due(now)
        while self.made < due and len(self.waiting) < self.load.ahead and not self.stopped:
            payload = self.rng.randbytes(self.rng.randrange(self.load.bytes_max))
            self.waiting.append(Put(self.number, self.made, payload))
            self.order.made((self.number, self.made))
            self.made += 1
        puts = [(node, put) for node in leaders for put in self.waiting]
        return [(node, put) for node, put in puts if self._ask(now, node, put)]

    def _settle(self, sequence: int, acked: dict[Key, None]) -> None:
        del acked[self.number, sequence]
        self.order.settled((self.number, sequence))
        self._due_again.pop(sequence, None)

    def _ask(self, now: float, node: NodeId, put: Put) -> bool:
        """Return whether to send the put to this node now.

        The pause between repeats doubles, so that they do not crowd out new puts.
        """
        again = self._due_again.setdefault(put.sequence, {})
        due, pause = again.get(node, (now, self.load.patience))
        if now < due:
            return False
        again[node] = now + pause, 2 * pause
        return True

    def _due(self, now: float) -> int:
        load = self.load
        match load.shape:
            case Shape.FLOOD:
                return int(now * load.rate)
            case Shape.STEADY:
                return min(load.puts, 1 + int(now / self.until * load.puts))
            case _:
                burst = load.puts / len(self._bursts)
                return round(burst * sum(now >= each for each in self._bursts))

    @property
    def done(self) -> bool:
        """Return whether all puts are made and acknowledged."""
        over = self.stopped or (self.load.puts and self.made >= self.load.puts)
        return bool(over) and not self.waiting

    @property
    def pause(self) -> float:
        """Return the seconds until the next step."""
        every = self.until / self.load.puts if self.load.shape is Shape.STEADY else 0.04
        return every * self.rng.uniform(0.2, 1.0)


class Ledgers:
    """The default Top of a storm, because it is the cheapest one."""

    def __init__(
        self,
        load: Load = Load(),  # noqa: B008  # frozen
        snapshots: Snapshots = Snapshots(),  # noqa: B008
    ) -> None:
        self.load, self.snapshots = load, snapshots
        self.acked: dict[Key, None] = {}
        self.order = Order()
        self.producers: list[Producer] = []

    def layers(self, me: NodeId, rng: Random, group: Paxos) -> list[Protocol]:
        ledger = Ledger(me, rng, group, self.snapshots, self.order)
        group.attach(ledger)
        return [ledger]

    def checkers(self) -> list[Checker]:
        return [Promises(self.acked, self.order)]

    def begin(self, sim: Simulation, leaders: Callable[[], list[NodeId]], until: float) -> None:
        for number in range(self.load.producers):
            producer = Producer(number, self.load, sim.rng, until, self.order)
            self.producers.append(producer)
            self._put(sim, leaders, producer)

    def stop(self) -> None:
        for producer in self.producers:
            producer.stopped = True

    def _put(
        self, sim: Simulation, leaders: Callable[[], list[NodeId]], producer: Producer
    ) -> None:
        for node, put in producer.step(sim.now, leaders(), self.acked):
            sim.ask(node, put)
        if not producer.done:
            sim.call(producer.pause, lambda: self._put(sim, leaders, producer))

    def end(self, stacks: dict[NodeId, list[Protocol]]) -> None:
        made = {producer.number: producer.made for producer in self.producers if producer.made}
        for producer in self.producers:
            left = [
                put.sequence
                for put in producer.waiting
                if (producer.number, put.sequence) not in self.acked
            ]
            if left:
                raise Violation(
                    f"producer {producer.number} got no acknowledgement for puts {left}"
                )
        digests: dict[bytes, NodeId] = {}
        for node, layers in stacks.items():
            (ledger,) = layers
            assert isinstance(ledger, Ledger)
            if ledger.next != made:
                raise Violation(f"{node} has the put counts {ledger.next}, expected {made}")
            damaged = [
                slot for slot, _ in ledger.kept if ledger.group.status.log.readable(slot) is None
            ]
            if damaged:
                raise Violation(f"{node} cannot read slots {damaged}, but has not fetched them")
            digests.setdefault(ledger.digest(), node)
        if len(digests) != 1:
            raise Violation(f"{', '.join(digests.values())} have different states")
