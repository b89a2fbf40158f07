"""A machine of a ring at feature level 5, with input and output topics of several tags."""

from __future__ import annotations

from typing import Any

from oncecast.broker import moves
from oncecast.broker.machine import Machine
from oncecast.broker.staging import HeldShare, Source
from oncecast.wire import commands as do
from oncecast.wire import results as done
from oncecast.wire.limits import Limits
from oncecast.wire.results import TransactionPrepared
from oncecast.wire.ring_transactions import (
    RING_TRANSACTION_LEVEL,
    Confirmed,
    ConfirmTransactions,
    DecideTransaction,
    ExpireTransaction,
    PrepareTransaction,
    ResolveTransaction,
    Share,
)
from oncecast.wire.sharing import Shared
from oncecast.wire.transactions import Consumed, EndTransaction, Output
from tests.broker.machine_steps import Steps

SOURCE = "copier"
ELSEWHERE = Share("orders", 7, 3)  # a coordinator in another group
PREPARED, AGAIN = TransactionPrepared(already=False), TransactionPrepared(already=True)
SETTINGS = Shared(lease_us=1000, backoff_min_us=500, backoff_max_us=500)


class RingDesk(Steps):
    """Topic `{t}in` has five messages. `{t}out` and `u` have a subscription that keeps theirs."""

    def __init__(self, limits: Limits = Limits()) -> None:  # noqa: B008  # frozen
        super().__init__(limits)
        self.apply(moves.Found("g", True))
        self.apply(do.SetLimits(limits, RING_TRANSACTION_LEVEL))
        for topic in ("{t}in", "{t}out", "u"):
            self.subscribe(topic=topic)
        self.put(self.open("{t}in"), 0, 5, topic="{t}in")
        self.reader = self.attach_reader("reader-1").epoch
        self.epoch = self.begin("inc-1").epoch

    def attach_reader(self, incarnation: str) -> Any:
        return self.apply(do.Attach("{t}in", "s", incarnation))

    def begin(self, incarnation: str, tag: str = "t") -> done.SourceOpened:
        opened = self.apply(do.OpenSource(SOURCE, incarnation, tag, self.now))
        assert isinstance(opened, done.SourceOpened)
        return opened

    def stage_part(self, number: int, part: str, topic: str = "{t}out") -> Any:
        facts = (SOURCE, number, part, topic, 2, 50, self.now, b"part")
        return self.apply(do.Stage(*facts, epoch=self.epoch))

    def prepare(self, number: int = 0, **fields: Any) -> Any:
        fields = {"epoch": self.epoch, "finished": 0, "at": self.now} | fields
        fields.setdefault("coordinator", ELSEWHERE)
        return self.apply(PrepareTransaction(SOURCE, "t", number=number, **fields))

    def end(self, number: int = 0, **fields: Any) -> Any:
        fields = {"epoch": self.epoch, "finished": 0, "at": self.now} | fields
        return self.apply(EndTransaction(SOURCE, "t", number=number, **fields))

    def decide(self, number: int = 0, **fields: Any) -> Any:
        fields = {"epoch": self.epoch, "finished": 0, "at": self.now} | fields
        return self.apply(DecideTransaction(SOURCE, "t", number=number, **fields))

    def resolve(self, number: int = 0, *, commit: bool, epoch: int = 0) -> Any:
        epoch = epoch or self.epoch
        return self.apply(ResolveTransaction(SOURCE, "t", epoch, number, self.now, commit))

    def expire(self, number: int = 0, epoch: int = 0) -> Any:
        epoch = epoch or self.epoch
        return self.apply(ExpireTransaction(SOURCE, "t", epoch, number, self.now))

    def confirm(self, *tags: str, number: int = 0) -> Any:
        confirmed = (Confirmed(self.epoch, number, tags),)
        return self.apply(ConfirmTransactions(SOURCE, "t", confirmed))

    def output(self, count: int = 2, topic: str = "{t}out") -> tuple[Output, ...]:
        return (Output(topic, count, 10, b"x"),)

    def read(self, first: int, upto: int) -> tuple[Consumed, ...]:
        return (Consumed("{t}in", "s", self.reader, first, upto),)

    @property
    def cursor(self) -> int:
        return self.machine.registry.topics["{t}in"].subscriptions["s"].cursor

    @property
    def source(self) -> Source:
        registry = self.machine.registry
        return registry.staging.sources[registry.transaction_key(SOURCE, "t")]

    @property
    def held(self) -> dict[int, HeldShare]:
        return self.source.held

    def restart(self) -> None:
        """Replace the machine with one that was restored from its snapshot."""
        before = self.machine.checksum()
        self.machine = Machine.restore(list(self.machine.state()))
        assert self.machine.checksum() == before
