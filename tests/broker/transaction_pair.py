"""Apply random transactions to a machine and to a slow model, and compare both at every step.

The model keeps a list of all messages. The commands are mostly valid, and sometimes late copies, or
of a process, a reader or a worker that another one has replaced.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from msgspec.structs import replace

from oncecast.broker.machine import Machine
from oncecast.lab.scenarios import shared_model
from oncecast.lab.scenarios.shared_model import SharedModel
from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire.results import (
    Attached,
    Leased,
    PublishedRange,
    Result,
    Sought,
    SourceOpened,
    Staged,
    TransactionEnded,
)
from oncecast.wire.sharing import Shared
from oncecast.wire.transactions import Accepted, Consumed, EndTransaction, Output
from tests.broker.machine_steps import ALL, Steps

SOURCE, WORKERS = "copier", ["ann", "bob"]
OUT = ["x", "y"]
SETTINGS = Shared(lease_us=2000, deliveries_max=0, backoff_min_us=0, backoff_max_us=0)

Message = tuple[int, int]  # its slot and its position in the batch


@dataclass
class Model:
    """The expected state. `staged` has the parts of the current process."""

    shared: SharedModel
    topics: dict[str, list[Message]] = field(default_factory=lambda: {"in": [], "x": [], "y": []})
    cursor: int = 0
    reader: int = 0  # the epoch of the reader
    attached: int = 0  # the epoch at which this reader attached; a seek changes the other one
    epoch: int = 0
    incarnation: str = ""
    finished: int = 0
    results: dict[tuple[int, int], Result] = field(default_factory=dict)
    staged: dict[tuple[int, str], tuple[str, list[Message]]] = field(default_factory=dict)

    def open(self, command: do.OpenSource, epoch: int) -> Result:
        if command.incarnation != self.incarnation:
            if command.expected not in (do.ANY_EPOCH, self.epoch):
                return errors.Fenced(self.epoch)
            earlier, self.epoch = self.epoch, epoch
            self.incarnation, self.finished = command.incarnation, 0
            self.results = {key: each for key, each in self.results.items() if key[0] == earlier}
            self.staged = {}
        return SourceOpened(self.epoch, next=self.finished)

    def stage(self, slot: int, command: do.Stage) -> Result:
        if command.epoch != self.epoch:
            return errors.Fenced(self.epoch)
        number, name = command.number, command.part
        ended = number < self.finished or (self.epoch, number) in self.results
        if ended or (number, name) in self.staged:
            return Staged(already=True)
        messages = [(slot, position) for position in range(command.count)]
        self.staged[number, name] = command.topic, messages
        return Staged(already=False)

    def end(self, slot: int, command: EndTransaction) -> Result:
        key = command.epoch, command.number
        if key in self.results:
            known = self.results[key]
            return replace(known, already=True) if isinstance(known, TransactionEnded) else known
        if command.epoch != self.epoch:
            return errors.Fenced(self.epoch)
        if command.number < self.finished:
            return errors.OldNumber(SOURCE, command.number, self.finished - 1)
        self.finished = max(self.finished, command.finished)
        mine = {each for each in self.results if each[0] == self.epoch}
        kept = {each for each in mine if each[1] >= self.finished}
        self.results = {each: result for each, result in self.results.items() if each in kept}
        self.results[key] = result = self._ended(slot, command)
        gone = (number for number, _ in self.staged if number < self.finished)
        for number in {*gone, command.number}:
            for each in [each for each in self.staged if each[0] == number]:
                del self.staged[each]
        return result

    def _ended(self, slot: int, command: EndTransaction) -> Result:
        if not command.commit:
            return TransactionEnded(False, (), already=False)
        for name in command.parts:
            if (command.number, name) not in self.staged:
                return errors.NotStaged(SOURCE, command.number, name)
        for each in command.consumed:
            why = self._unread(each)
            if why:
                return errors.NotAcknowledged("in", "s", each.first, why)
        for job in command.accepted:
            for offset, held in self._jobs(job):
                if not held:
                    fact = "its lease has ended"
                    return errors.NotAcknowledged("in", "w", offset, fact)
        new = [self.staged[command.number, name] for name in command.parts]
        new += [(each.topic, [(slot, at) for at in range(each.count)]) for each in command.outputs]
        ranges: dict[str, tuple[int, int]] = {}
        for topic, messages in new:
            first, count = ranges.get(topic, (len(self.topics[topic]), 0))
            ranges[topic] = first, count + len(messages)
            self.topics[topic] += messages
        for each in command.consumed:
            self.cursor = each.upto
        for job in command.accepted:
            for offset, _ in self._jobs(job):
                self.shared.done(offset)
        found = tuple(PublishedRange(topic, *each, kept=True) for topic, each in ranges.items())
        return TransactionEnded(True, found, already=False)

    def _unread(self, consumed: Consumed) -> str:
        if consumed.epoch != self.reader:
            moved = self.attached <= consumed.epoch < self.reader
            return "the subscription was moved" if moved else "another reader has taken over"
        if consumed.first < self.cursor:
            return "it is already acknowledged"
        end = len(self.topics["in"])
        return f"the next offset of the topic is {end}" if consumed.upto > end else ""

    def _jobs(self, job: Accepted) -> list[tuple[int, bool]]:
        found = []
        for token, first, count in job.runs:
            for offset in range(first, first + count):
                mine = offset in self.shared.held(job.worker)
                found.append((offset, mine and self.shared.messages[offset].token == token))
        return found


class TransactionPair:
    def __init__(self, rng: Random) -> None:
        self.rng, self.steps = rng, Steps()
        self.log: dict[int, Any] = {}
        self.commands: list[Any] = []
        self.numbers: dict[int, int] = {}  # next number by epoch
        self.epochs: list[int] = []
        self.outcomes: dict[str, int] = {}
        self.tokens = 0
        self._do(do.SubscribeShared("in", "w", do.FromNew(), 0, SETTINGS))
        self.model = Model(SharedModel(SETTINGS, 0))
        for topic in ("in", *OUT):
            self._do(do.Subscribe(topic, "s", do.FromNew(), 0))
            self._do(do.Subscribe(topic, "keeper", do.FromNew(), 0))
        self.producer = self.steps.open("in")
        self._attach()
        self.apply(do.OpenSource(SOURCE, "one", "in", 0))

    def _do(self, command: Any) -> Any:
        result = self.steps.apply(command)
        self.log[self.steps.slot] = command
        return result

    # -- one step of each kind --

    def put(self) -> None:
        count, first = self.rng.randint(1, 3), len(self.model.topics["in"])
        own = [each for each in self.model.topics["in"] if isinstance(self._at(each), do.Put)]
        self._do(do.Put("in", "p", self.producer, len(own), count, 10, self.steps.now, b""))
        self.model.topics["in"] += [(self.steps.slot, at) for at in range(count)]
        assert first + count == len(self.model.topics["in"])
        self.model.shared.append([0] * count)

    def _at(self, message: Message) -> Any:
        return self.log[message[0]]

    def _attach(self) -> None:
        attached = self._do(do.Attach("in", "s", f"reader {self.steps.slot}"))
        assert isinstance(attached, Attached)
        assert attached.cursor == self.model.cursor
        self.model.reader = self.model.attached = attached.epoch

    def reader(self) -> None:
        if self.rng.random() < 0.5:
            self._attach()
            return
        offset = self.rng.randrange(len(self.model.topics["in"]) + 1)
        token = f"seek {self.steps.slot}"
        sought = self._do(do.Seek("in", "s", do.FromOffset(offset), self.steps.now, token))
        assert isinstance(sought, Sought)
        self.model.reader, self.model.cursor = sought.epoch, sought.cursor

    def lease(self) -> None:
        self.steps.now += self.rng.choice([0, 0, 500, 2500])
        wants = tuple((each, self.rng.choice([0, 2, 4])) for each in WORKERS)
        self.model.shared.token = self.steps.machine.registry.last_epoch
        leased = self._do(do.Lease("in", "w", self.steps.now, wants))
        assert isinstance(leased, Leased)
        assert leased == self.model.shared.lease(self.steps.now, wants, (), ALL)

    def open(self) -> None:
        incarnation = self.rng.choice(["one", "two", "three", self.model.incarnation or "one"])
        expected = self.rng.choice([do.ANY_EPOCH, self.model.epoch, self.model.epoch, 0, 3])
        self.apply(do.OpenSource(SOURCE, incarnation, "in", self.steps.now, expected))

    def stage(self) -> None:
        epoch, number = self._number()
        topic, part = self.rng.choice(OUT), self.rng.choice("abc")
        facts = (topic, self.rng.randint(1, 2), 10, self.steps.now, b"")
        self.apply(do.Stage(SOURCE, number, part, *facts, epoch=epoch))

    def end(self) -> None:
        rng, (epoch, number) = self.rng, self._number()
        self.numbers[epoch] = max(self.numbers.get(epoch, 0), number + 1)
        staged = [name for at, name in self.model.staged if at == number]
        parts = tuple(staged if rng.random() < 0.9 else ["a", "missing"])
        topics = rng.sample([*OUT, "in"] if rng.random() < 0.1 else OUT, rng.randint(0, 2))
        command = EndTransaction(
            SOURCE,
            "in",
            epoch,
            number,
            max(number - rng.choice([0, 1, 2, 5, 50]), 0),
            self.steps.now,
            commit=rng.random() < 0.9,
            parts=parts,
            outputs=tuple(Output(each, rng.randint(1, 3), 10, b"") for each in topics),
            consumed=self._consumed() if rng.random() < 0.5 else (),
            accepted=self._accepted() if rng.random() < 0.5 else (),
        )
        self.apply(command)

    def _number(self) -> tuple[int, int]:
        """Return an epoch and a number. Both are mostly current."""
        epoch = self.model.epoch if self.rng.random() < 0.9 else self.rng.choice(self.epochs)
        number = self.numbers.get(epoch, 0) + self.rng.choice([0, 0, 0, 1, -1, -2])
        return epoch, max(number, 0)

    def _consumed(self) -> tuple[Consumed, ...]:
        first = max(self.model.cursor + self.rng.choice([0, 0, 0, 1, -1]), 0)
        upto = first + self.rng.randint(1, 2)
        epoch = self.model.reader - self.rng.choice([0, 0, 0, 0, 1])
        return (Consumed("in", "s", epoch, first, upto),)

    def _accepted(self) -> tuple[Accepted, ...]:
        worker = self.rng.choice(WORKERS)
        held = self.model.shared.held(worker if self.rng.random() < 0.9 else WORKERS[0])
        some = self.rng.sample(held, min(len(held), self.rng.randint(1, 3)))
        slip = self.rng.choice([0] * 9 + [1])
        runs = [(self.model.shared.messages[each].token - slip, each, 1) for each in some]
        return (Accepted("in", "w", worker, tuple(runs)),) if runs else ()

    def copy(self) -> None:
        """Repeat an earlier command, as after a lost answer."""
        if self.commands:
            self.apply(self.rng.choice(self.commands[-10:]))

    def snapshot(self) -> None:
        machine = self.steps.machine
        copy = Machine.restore(list(machine.state()))
        assert b"".join(copy.state()) == b"".join(machine.state())
        self.steps.machine = copy

    # -- compare --

    def apply(self, command: Any) -> None:
        self.commands.append(command)
        inputs = len(self.model.topics["in"])
        result = self._do(command)
        match command:
            case do.OpenSource():
                opened = result.epoch if isinstance(result, SourceOpened) else 0
                expected = self.model.open(command, opened)
                if opened and opened not in self.epochs[-1:]:
                    assert opened > max(self.epochs, default=0), "an epoch was used twice"
                    self.epochs.append(opened)
            case do.Stage():
                expected = self.model.stage(self.steps.slot, command)
            case _:
                expected = self.model.end(self.steps.slot, command)
        assert result == expected, f"{command}: {result}, not {expected}"
        self.outcomes[outcome(result)] = self.outcomes.get(outcome(result), 0) + 1
        self.model.shared.append([0] * (len(self.model.topics["in"]) - inputs))
        self.check()

    def check(self) -> None:
        registry = self.steps.machine.registry
        for name, expected in self.model.topics.items():
            found = [
                (extent.slot, extent.skip + at)
                for extent in self.steps.machine.fetch(name, 0, ALL, ALL)
                for at in range(extent.count)
            ]
            assert found == expected, f"{name} has other messages"
            sequences = [
                extent.sequence + at
                for extent in self.steps.machine.fetch(name, 0, ALL, ALL)
                for at in range(extent.count)
                if extent.sequence >= 0
            ]
            assert sequences == list(range(len(sequences)))
        topic = registry.topics["in"]
        assert topic.subscriptions["s"].cursor == self.model.cursor
        assert topic.subscriptions["w"].cursor == self.model.shared.cursor
        queue = topic.subscriptions["w"].queue
        assert queue is not None
        assert sorted(queue.open) == self.model.shared.in_state(*shared_model.OPEN)
        source = registry.staging.sources.get(SOURCE)
        staged = source.staged if source is not None else {}
        parts = sorted((number, name) for number, each in staged.items() for name in each)
        assert parts == sorted(self.model.staged)
        assert registry.staging.parts == len(parts)
        live = {slot for messages in self.model.topics.values() for slot, _ in messages}
        live |= {slot for _, messages in self.model.staged.values() for slot, _ in messages}
        lowest = min(live, default=self.steps.slot + 1)
        assert self.steps.machine.needed() == lowest


KINDS = {
    "end": 10, "stage": 5, "copy": 5, "lease": 4, "put": 4, "open": 2, "reader": 1, "snapshot": 1,
}  # fmt: skip


def transaction_run(seed: int, steps: int = 100) -> TransactionPair:
    rng = Random(seed)
    pair = TransactionPair(rng)
    kinds = [kind for kind, weight in KINDS.items() for _ in range(weight)]
    for _ in range(steps):
        getattr(pair, rng.choice(kinds))()
        pair.check()
    return pair


def outcome(result: Result) -> str:
    if isinstance(result, TransactionEnded):
        return "already" if result.already else "committed" if result.committed else "aborted"
    return type(result).__name__
