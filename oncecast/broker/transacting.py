"""Handlers for transactions. The module `wire.transactions` describes them.

A commit first checks everything. After the checks, nothing can fail. So a transaction takes effect
as a whole, in one command, or not at all.
"""

from __future__ import annotations

from oncecast.broker.clock import Clock
from oncecast.broker.contents import Checked, Contents
from oncecast.broker.holding import Holding
from oncecast.broker.registry import Registry
from oncecast.broker.staging import Source
from oncecast.wire.commands import ANY_EPOCH, OpenSource
from oncecast.wire.errors import (
    Fenced,
    InvalidArgument,
    InvalidName,
    InvalidTopic,
    MachineRefusal,
    OldNumber,
    TooMany,
)
from oncecast.wire.limits import is_name
from oncecast.wire.results import SourceOpened, TransactionEnded, TransactionPrepared
from oncecast.wire.ring_transactions import DECISIONS_MAX, DecideTransaction, PrepareTransaction
from oncecast.wire.transactions import EndTransaction

EndResult = TransactionEnded | MachineRefusal
ABORTED = TransactionEnded(committed=False, ranges=(), already=False)
PREPARED = TransactionPrepared(already=False)


class Transacting:
    def __init__(self, registry: Registry, contents: Contents, holding: Holding) -> None:
        self._registry, self._contents, self._holding = registry, contents, holding

    # -- open --

    def open(
        self, slot: int, command: OpenSource
    ) -> SourceOpened | InvalidName | InvalidTopic | TooMany | Fenced:
        registry, staging = self._registry, self._registry.staging
        registry.pass_time(command.at)
        for what, name in (("source", command.source), ("incarnation", command.incarnation)):
            if not is_name(name):
                return InvalidName(what)
        if not is_name(command.topic):
            return InvalidTopic()
        key = registry.transaction_key(command.source, command.topic)
        source = staging.sources.get(key)
        if source is None and len(staging.sources) >= registry.limits.sources_max:
            return TooMany("sources", registry.limits.sources_max)
        opening = None if source is None else source.opening
        if opening is None or opening.incarnation != command.incarnation:
            current = 0 if opening is None else opening.epoch
            if command.expected not in (ANY_EPOCH, current):
                return Fenced(current)
            staging.open(key, registry.new_epoch(), command.incarnation)
        registry.use_source(key)
        opening = staging.sources[key].opening
        assert opening is not None
        return SourceOpened(opening.epoch, registry.holdings is not None, opening.finished)

    # -- end --

    def end(self, slot: int, command: EndTransaction) -> EndResult | TransactionPrepared:
        """Commit, abort, prepare or decide a transaction. Return the result of an earlier copy."""
        registry = self._registry
        clock = registry.pass_time(command.at)
        if not is_name(command.source):
            return InvalidName("source")
        if command.fault:
            return InvalidArgument(command.fault)
        if type(command) is not EndTransaction and registry.holdings is None:
            return InvalidArgument("the cluster is not a ring; use EndTransaction")
        key = registry.transaction_key(command.source, command.topic)
        registry.use_source(key)
        source = registry.staging.sources.get(key)
        opening = None if source is None else source.opening
        if source is None or opening is None:
            return Fenced(0)
        known = ended_before(registry, command)
        if known is not None:
            return known
        share = source.held.get(command.number)
        if share is not None and share.epoch == command.epoch:
            if isinstance(command, PrepareTransaction):
                return TransactionPrepared(already=True)
            if command.commit:
                return InvalidArgument("the transaction is prepared; only its coordinator decides")
            return self._holding.end(key, command.source, command.number, clock, commit=False)
        if command.epoch != opening.epoch:
            return Fenced(opening.epoch)
        if command.number < opening.finished:
            return OldNumber(command.source, command.number, opening.finished - 1)
        self._finish(key, source, command.finished)
        result: EndResult | TransactionPrepared
        result = self._commit(slot, key, source, command, clock) if command.commit else ABORTED
        if isinstance(result, TransactionPrepared):
            return result
        opening.results[command.epoch, command.number] = result
        registry.staging.drop(key, command.number)
        return result

    def _finish(self, key: str, source: Source, before: int) -> None:
        """Forget the results of all transactions before this number, and drop their parts."""
        assert source.opening is not None
        source.opening.finish(before)
        old = [each for each in source.staged if each < before and each not in source.held]
        for number in old:
            self._registry.staging.drop(key, number)

    def _commit(
        self, slot: int, key: str, source: Source, command: EndTransaction, clock: Clock
    ) -> EndResult | TransactionPrepared:
        staging = self._registry.staging
        decides = isinstance(command, DecideTransaction) and bool(command.participants)
        if decides and staging.decisions >= DECISIONS_MAX:
            return TooMany(
                "transactions across groups whose participants have not confirmed", DECISIONS_MAX
            )
        checked = self._contents.check(slot, source, command, clock)
        if not isinstance(checked, Checked):
            return checked
        if isinstance(command, PrepareTransaction):
            return self._holding.begin(slot, key, source, command, checked, clock) or PREPARED
        for _ in checked.outputs:
            self._registry.live_slots.add(slot)
        ranges = self._contents.append(command.source, checked.parts, clock)
        staging.take(key, command.number, command.parts)
        self._contents.acknowledge(checked.inputs, clock)
        if isinstance(command, DecideTransaction) and command.participants:
            participants = {each.topic: each for each in command.participants}
            staging.decide(key, (command.epoch, command.number), participants)
        return TransactionEnded(committed=True, ranges=ranges, already=False)


def again(result: EndResult) -> EndResult:
    """Return the result for a later copy of the command."""
    if isinstance(result, TransactionEnded):
        return TransactionEnded(result.committed, result.ranges, already=True)
    return result


def ended_before(registry: Registry, command: EndTransaction) -> EndResult | None:
    """Return the result of an earlier copy of the command, or None if there is none."""
    key = registry.transaction_key(command.source, command.topic)
    source = registry.staging.sources.get(key)
    if source is None or source.opening is None:
        return None
    known = source.opening.results.get((command.epoch, command.number))
    return None if known is None else again(known)
