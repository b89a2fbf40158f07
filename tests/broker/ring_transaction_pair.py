"""Apply random transactions across groups to a machine and to a slow model, and compare both.

The machine is the coordinator of some transactions and a participant of others. Commands are mostly
valid, and sometimes late copies, or of a process or a reader that another one has replaced.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from msgspec.structs import replace

from oncecast.broker.holding import outcome_of
from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire.results import (
    Attached,
    MoveStep,
    PublishedRange,
    Result,
    Sought,
    SourceOpened,
    TransactionEnded,
    TransactionPrepared,
)
from oncecast.wire.ring_transactions import (
    Confirmed,
    ConfirmTransactions,
    DecideTransaction,
    ExpireTransaction,
    PrepareTransaction,
    ResolveTransaction,
    Share,
)
from oncecast.wire.transactions import Consumed, EndTransaction, Output
from tests.broker.ring_desk import ELSEWHERE, SOURCE, RingDesk

OUT, IN = "{t}out", "{t}in"
ABORTED = TransactionEnded(False, (), already=False)
Number = tuple[int, int]  # an epoch and a number


@dataclass
class Model:
    """The expected state. A held share has its epoch, its messages and its range of the input."""

    epoch: int
    reader: int
    attached: int
    incarnation: str = "inc-1"
    finished: int = 0
    cursor: int = 0
    out: int = 0  # number of messages in the output
    results: dict[Number, Result] = field(default_factory=dict)
    held: dict[int, tuple[int, int, tuple[Consumed, ...]]] = field(default_factory=dict)
    decisions: dict[Number, set[str]] = field(default_factory=dict)
    committed: set[Number] = field(default_factory=set)

    def open(self, incarnation: str, epoch: int) -> None:
        if incarnation != self.incarnation:
            self.results = {key: each for key, each in self.results.items() if key[0] == self.epoch}
            self.incarnation, self.epoch = incarnation, epoch
            self.finished = max(self.held, default=-1) + 1

    def end(self, command: EndTransaction) -> Result:
        key = command.epoch, command.number
        known = self.results.get(key)
        if known is not None:
            return replace(known, already=True) if isinstance(known, TransactionEnded) else known
        if self.held.get(command.number, (0,))[0] == command.epoch:
            if isinstance(command, PrepareTransaction):
                return TransactionPrepared(already=True)
            fact = "the transaction is prepared; only its coordinator decides"
            if command.commit:
                return errors.InvalidArgument(fact)
            return self._settle(command.number, commit=False)
        if command.epoch != self.epoch:
            return errors.Fenced(self.epoch)
        if command.number < self.finished:
            return errors.OldNumber(SOURCE, command.number, self.finished - 1)
        self.finished = max(self.finished, command.finished)
        kept = {each for each in self.results if each[0] == self.epoch and each[1] >= self.finished}
        self.results = {each: result for each, result in self.results.items() if each in kept}
        result = self._commit(command) if command.commit else ABORTED
        if not isinstance(result, TransactionPrepared):
            self.results[key] = result
        return result

    def _commit(self, command: EndTransaction) -> Result:
        for each in command.consumed:
            why = self._unread(each)
            if why:
                return errors.NotAcknowledged(IN, "s", each.first, why)
        count = sum(each.count for each in command.outputs)
        if isinstance(command, PrepareTransaction):
            self.held[command.number] = command.epoch, count, command.consumed
            return TransactionPrepared(already=False)
        self.cursor = max([self.cursor, *(each.upto for each in command.consumed)])
        if isinstance(command, DecideTransaction):
            tags = {each.topic for each in command.participants}
            self.decisions[command.epoch, command.number] = tags
            self.committed.add((command.epoch, command.number))
        return self._publish(count)

    def _unread(self, consumed: Consumed) -> str:
        if consumed.epoch != self.reader:
            moved = self.attached <= consumed.epoch < self.reader
            return "the subscription was moved" if moved else "another reader has taken over"
        if consumed.first < self.cursor:
            return "it is already acknowledged"
        if consumed.upto > 5:
            return "the next offset of the topic is 5"
        held = "another transaction of the reader is not decided yet"
        return held if self.holds_reader else ""

    @property
    def holds_reader(self) -> bool:
        ranges = [each for _, _, consumed in self.held.values() for each in consumed]
        return any(each.epoch == self.reader for each in ranges)

    def _publish(self, count: int) -> TransactionEnded:
        ranges = (PublishedRange(OUT, self.out, count, kept=True),) if count else ()
        self.out += count
        return TransactionEnded(True, ranges, already=False)

    def _settle(self, number: int, *, commit: bool) -> TransactionEnded:
        epoch, count, consumed = self.held.pop(number)
        result = ABORTED
        if commit:
            result = self._publish(count)
            for each in consumed:
                if each.epoch == self.reader:
                    self.cursor = max(self.cursor, each.upto)
        if epoch != self.epoch or number >= self.finished:
            self.results[epoch, number] = result
        return result

    def resolve(self, command: ResolveTransaction) -> Result:
        if self.held.get(command.number, (0,))[0] == command.epoch:
            return self._settle(command.number, commit=command.commit)
        known = self.results.get((command.epoch, command.number))
        ranges = known.ranges if isinstance(known, TransactionEnded) else ()
        return TransactionEnded(command.commit, ranges, already=True)

    def undecided(self, key: Number) -> bool:
        ended = key[1] < self.finished or key in self.results
        return key[0] == self.epoch and not ended and key[1] not in self.held

    def expire(self, key: Number) -> Result:
        if not self.undecided(key):
            return MoveStep(False)
        self.results[key] = errors.NotDecided(SOURCE)
        return MoveStep(True)

    def confirm(self, key: Number, tags: tuple[str, ...]) -> Result:
        if key not in self.decisions:
            return MoveStep(False)
        self.decisions[key] -= set(tags)
        if not self.decisions[key]:
            del self.decisions[key]
        return MoveStep(True)


class RingTransactionPair:
    def __init__(self, rng: Random) -> None:
        self.rng, self.desk = rng, RingDesk()
        self.model = Model(self.desk.epoch, self.desk.reader, self.desk.reader)
        self.commands: list[Any] = []
        self.next, self.incarnations = 0, 1
        self.decided: dict[Number, bool] = {}  # the first outcome that the coordinator told
        self.alone: set[Number] = set()  # committed without participants
        self.outcomes: dict[str, int] = {}

    # -- one step of each kind --

    def open(self) -> None:
        self.incarnations += self.rng.random() < 0.7
        name = f"inc-{self.incarnations}"
        opened = self.desk.apply(do.OpenSource(SOURCE, name, "t", self.desk.now))
        assert isinstance(opened, SourceOpened)
        self.model.open(name, opened.epoch)
        assert opened == SourceOpened(self.model.epoch, True, self.model.finished)
        self.next = max(self.next, self.model.finished)

    def _number(self) -> Number:
        older = self.rng.random() < 0.1
        number = max(self.next - self.rng.choice([0, 0, 0, 1, 2, 3]), 0)
        self.next = max(self.next, number + 1)
        return self.model.epoch - older, number

    def _facts(self) -> dict[str, Any]:
        consumed: tuple[Consumed, ...] = ()
        if self.rng.random() < 0.4:
            first = max(self.model.cursor + self.rng.choice([0, 0, 0, -1]), 0)
            epoch = self.model.reader - (self.rng.random() < 0.1)
            consumed = (Consumed(IN, "s", epoch, first, first + self.rng.randint(1, 2)),)
        outputs = (Output(OUT, self.rng.randint(1, 3), 10, b""),)
        return {"outputs": outputs[: self.rng.randint(0, 1)], "consumed": consumed}

    def end(self) -> None:
        epoch, number = self._number()
        finished = max(number - self.rng.choice([0, 1, 5, 50]), 0)
        where = (SOURCE, "t", epoch, number, finished, self.desk.now)
        match self.rng.randrange(4):
            case 0:
                self.apply(EndTransaction(*where, commit=False))
            case 1:
                self.apply(EndTransaction(*where, **self._facts()))
            case 2:
                others = (Share("u", 9, number), Share("v", 9, number))
                some = others[: self.rng.randint(1, 2)]
                self.apply(DecideTransaction(*where, **self._facts(), participants=some))
            case _:
                self.apply(PrepareTransaction(*where, **self._facts(), coordinator=ELSEWHERE))

    def resolve(self) -> None:
        held = [(epoch, number) for number, (epoch, _, _) in self.model.held.items()]
        epoch, number = self.rng.choice([*held, *held, self._number()])
        commit = self.rng.random() < 0.6
        self.apply(ResolveTransaction(SOURCE, "t", epoch, number, self.desk.now, commit))

    def expire(self) -> None:
        self.apply(ExpireTransaction(SOURCE, "t", *self._number(), self.desk.now))

    def confirm(self) -> None:
        epoch, number = self.rng.choice([*self.model.decisions, self._number()])
        tags = tuple(self.rng.sample(["u", "v"], self.rng.randint(1, 2)))
        confirmed = (Confirmed(epoch, number, tags),)
        self.apply(ConfirmTransactions(SOURCE, "t", confirmed))

    def attach(self) -> None:
        result = self.desk.attach_reader(f"reader at {self.desk.slot}")
        if self.model.holds_reader:
            assert result == errors.Overloaded(errors.UNDECIDED)
            return
        assert isinstance(result, Attached)
        assert result.cursor == self.model.cursor
        self.model.reader = self.model.attached = result.epoch

    def seek(self) -> None:
        start, token = do.FromOffset(self.rng.randint(0, 5)), f"token {self.desk.slot}"
        sought = self.desk.apply(do.Seek(IN, "s", start, self.desk.now, token))
        assert isinstance(sought, Sought)
        self.model.reader, self.model.cursor = sought.epoch, sought.cursor

    def copy(self) -> None:
        if self.commands:
            self.apply(self.rng.choice(self.commands[-10:]))

    def snapshot(self) -> None:
        self.desk.restart()

    # -- compare --

    def apply(self, command: Any) -> None:
        self.commands.append(command)
        result = self.desk.apply(command)
        match command:
            case ResolveTransaction():
                expected = self.model.resolve(command)
            case ExpireTransaction(_, _, epoch, number):
                expected = self.model.expire((epoch, number))
            case ConfirmTransactions():
                (each,) = command.confirmed
                expected = self.model.confirm((each.epoch, each.number), each.participants)
            case _:
                expected = self.model.end(command)
        assert result == expected, f"{command}: {result}, not {expected}"
        name = f"{type(command).__name__}: {type(result).__name__}"
        self.outcomes[name] = self.outcomes.get(name, 0) + 1

    def check(self) -> None:
        model, source, staging = self.model, self.desk.source, self.desk.machine.registry.staging
        assert self.desk.kept(OUT) == list(range(model.out))
        assert self.desk.cursor == model.cursor
        assert {number: each.epoch for number, each in source.held.items()} == {
            number: epoch for number, (epoch, _, _) in model.held.items()
        }
        assert {key: set(each) for key, each in source.decisions.items()} == model.decisions
        assert staging.decisions == len(model.decisions)
        assert bool(staging.unsettled) == bool(model.held or model.decisions)
        assert staging.parts == sum(count > 0 for _, count, _ in model.held.values())
        for number in range(self.next):
            self._check_outcome((model.epoch, number))

    def _check_outcome(self, key: Number) -> None:
        """Check that the coordinator never tells a participant two different outcomes."""
        found = outcome_of(self.desk.source, *key)
        assert (found is None) == self.model.undecided(key)
        if found and key not in self.model.committed:
            self.alone.add(key)
        confirmed = key in self.model.committed and key not in self.model.decisions
        if found is None or confirmed or key in self.alone:
            return  # no participant asks, or the outcome is not known yet
        assert self.decided.setdefault(key, found) == found
        if key in self.model.decisions:
            assert found


KINDS = {
    "end": 12, "resolve": 4, "copy": 4, "expire": 2, "confirm": 2, "attach": 2, "open": 1,
    "seek": 1, "snapshot": 1,
}  # fmt: skip


def ring_transaction_run(seed: int, steps: int = 120) -> RingTransactionPair:
    rng = Random(seed)
    pair = RingTransactionPair(rng)
    for kind in rng.choices(list(KINDS), list(KINDS.values()), k=steps):
        getattr(pair, kind)()
        pair.check()
    return pair
