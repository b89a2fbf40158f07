"""A small machine on top of a replica group: it counts what its clients put, each put once.

It stands for whatever runs there: a command is deduplicated by (producer, sequence), the state
refers to entries that must stay readable, and is compacted, transferred and compared. `Top` is all
that a campaign asks of it.
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
from oncecast.runtime.checkers import Checker, Violation
from oncecast.runtime.simulated import Simulation

KEPT = 20  # puts that the state refers to
COMPACT_EVERY = 40
SCRUB_EVERY = 1.0
PUTS = 70  # of each producer
PRODUCERS = 3
WINDOW = 6  # puts of a producer on their way
FILLING = b"." * 600  # so that a state has several pieces

decode = msgspec.msgpack.Decoder(tuple[int, int, bytes]).decode
encode = msgspec.msgpack.Encoder().encode


class Top(Interface):
    """What runs on top of the group."""

    def layers(self, me: NodeId, rng: Random, group: Paxos) -> list[Protocol]:
        """The layers above `group`, which is told who learns from it."""

    def begin(self, sim: Simulation, leaders: Callable[[], list[NodeId]], until: float) -> None:
        """Let clients work until then, and finish what is left later."""

    def checkers(self) -> list[Checker]: ...

    def end(self, stacks: dict[NodeId, list[Protocol]]) -> None:
        """All is calm: everything outstanding must have happened, and all replicas be equal."""


class Put(Value):
    producer: int
    sequence: int
    payload: bytes


def command(put: Put) -> bytes:
    return encode((put.producer, put.sequence, put.payload))


class Acked(Value):
    """To the application: this put stands at `place`, or stood somewhere before."""

    producer: int
    sequence: int
    place: int


class Scrub(Value):
    """Time to read again all that the state refers to."""


class State(NamedTuple):
    place: int
    next: dict[int, int]  # sequence that each producer puts next
    kept: list[tuple[int, int]]  # place and checksum of the last puts
    fold: int  # checksum of all puts, in order


class Ledger(Protocol):
    name = "ledger"
    Request = Put
    Observed = Decided | LeaderChanged | StateWanted | Installed | Compare
    Timer = Scrub

    def __init__(self, me: NodeId, rng: Random, group: Paxos) -> None:
        super().__init__(me, rng)
        self.group = group
        self.place, self.fold = 0, 0
        self.next: dict[int, int] = {}
        self.kept: deque[tuple[int, int]] = deque(maxlen=KEPT)
        self.leading = False
        self.token = 0
        self.waiting: dict[int, Put] = {}
        self.decided = 0

    def start(self) -> None:
        self.later(SCRUB_EVERY, Scrub())

    # -- the state --

    def install(self, place: int, state: tuple[bytes, ...]) -> None:
        _, self.next, kept, self.fold = msgspec.msgpack.decode(state[0], type=State)
        self.place, self.kept = place, deque(kept, maxlen=KEPT)

    def learn(self, place: int, value: bytes) -> None:
        assert place > self.place, f"{self.me}: place {place} after {self.place}"
        self.place = place
        producer, sequence, _ = decode(value)
        if sequence == self.next.get(producer, 0):
            self.next[producer] = sequence + 1
            self.kept.append((place, google_crc32c.value(value)))
            self.fold = google_crc32c.extend(self.fold, value)

    @property
    def needed(self) -> int:
        return self.kept[0][0] if self.kept else self.place + 1

    def state(self) -> bytes:
        return encode(State(self.place, self.next, list(self.kept), self.fold))

    def digest(self) -> bytes:
        """Without the place, which need not be that of a command."""
        return encode((sorted(self.next.items()), list(self.kept), self.fold))

    def compact(self) -> None:
        self.ask(Compact(self.place, self.needed, (self.state(), FILLING)))

    # -- clients --

    def request(self, put: Put) -> None:
        if self.leading:
            self.token += 1
            self.waiting[self.token] = put
            self.ask(Propose(self.token, command(put)))

    def observe(self, event: Decided | LeaderChanged | StateWanted | Installed | Compare) -> None:
        match event:
            case Decided(place, value, token):
                self.learn(place, value)
                put = self.waiting.pop(token, None)
                if put is not None and value != command(put):
                    raise Violation(f"{self.me} is told at place {place} that {put} is decided")
                if put is not None and put.sequence < self.next.get(put.producer, 0):
                    self.emit(Acked(put.producer, put.sequence, place), after=0)
                self.decided += 1
                if self.decided % COMPACT_EVERY == 0:
                    self.compact()
            case LeaderChanged(leader):
                self.leading = leader == self.me
                self.waiting.clear()
            case StateWanted():
                self.compact()
            case Installed(place, state):
                self.install(place, state)
            case Compare(place):
                self.ask(Digest(place, self.digest()))

    def timeout(self, timer: Scrub) -> None:
        for place, checksum in self.kept:
            try:
                value = self.group.entry(place)
            except Missing:
                continue
            if google_crc32c.value(value) != checksum:
                raise Violation(f"{self.me}: entry {place} is not what it was")
        self.later(SCRUB_EVERY, timer)


class Promises(Checker):
    """A put that was acknowledged is in every later state, at the same place."""

    def __init__(self, acked: dict[tuple[int, int], int]) -> None:
        self.acked = acked
        self.digests: dict[int, tuple[bytes, NodeId]] = {}

    def heard(self, sim: Simulation, node: NodeId, event: Value) -> None:
        if isinstance(event, Acked):
            self.acked.setdefault((event.producer, event.sequence), event.place)


class Ledgers:
    """The Top that most storms have: it costs least."""

    def __init__(self) -> None:
        self.acked: dict[tuple[int, int], int] = {}
        self._waiting: list[list[Put]] = []

    def layers(self, me: NodeId, rng: Random, group: Paxos) -> list[Protocol]:
        ledger = Ledger(me, rng, group)
        group.learner = ledger
        return [ledger]

    def checkers(self) -> list[Checker]:
        return [Promises(self.acked)]

    def begin(self, sim: Simulation, leaders: Callable[[], list[NodeId]], until: float) -> None:
        for producer in range(PRODUCERS):
            puts = [
                Put(producer, sequence, sim.rng.randbytes(sim.rng.randrange(60)))
                for sequence in range(PUTS)
            ]
            self._waiting.append(puts)
            self._put(sim, leaders, producer, until / PUTS)

    def _put(
        self, sim: Simulation, leaders: Callable[[], list[NodeId]], producer: int, every: float
    ) -> None:
        """To whoever thinks that it leads, what is not acknowledged, until it is."""
        puts = self._waiting[producer]
        while puts and (producer, puts[0].sequence) in self.acked:
            puts.pop(0)
        due = int(sim.now / every)
        for node in leaders():
            for put in puts[:WINDOW]:
                if put.sequence <= due:
                    sim.ask(node, put)
        if puts:
            pause = every * sim.rng.uniform(0.2, 1.0)
            sim.call(pause, lambda: self._put(sim, leaders, producer, every))

    def end(self, stacks: dict[NodeId, list[Protocol]]) -> None:
        for producer, puts in enumerate(self._waiting):
            left = [put.sequence for put in puts if (producer, put.sequence) not in self.acked]
            if left:
                raise Violation(f"producer {producer} was never told of {left}")
        digests: dict[bytes, NodeId] = {}
        for node, layers in stacks.items():
            (ledger,) = layers
            assert isinstance(ledger, Ledger)
            if ledger.next != dict.fromkeys(range(PRODUCERS), PUTS):
                raise Violation(f"{node} has {ledger.next} of {PUTS} puts of each producer")
            for place, _ in ledger.kept:
                ledger.group.entry(place)
            digests.setdefault(ledger.digest(), node)
        if len(digests) != 1:
            raise Violation(f"{', '.join(digests.values())} have different states")
