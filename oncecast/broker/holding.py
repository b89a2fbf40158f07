"""Shares of transactions across groups: held, published or dropped, and the decisions (TXN-2).

The module `wire.ring_transactions` describes the commands. A held share can always be published,
because everything was checked before, and nothing else may take its messages or its names.
"""

from __future__ import annotations

from oncecast.broker.clock import Clock
from oncecast.broker.contents import Checked, Contents
from oncecast.broker.registry import Registry
from oncecast.broker.staging import HeldShare, Opening, Source
from oncecast.wire.errors import InvalidArgument, MachineRefusal, NotDecided, TooMany
from oncecast.wire.results import MoveStep, TransactionEnded
from oncecast.wire.ring_transactions import (
    HELD_MAX,
    RESULTS_MAX,
    ConfirmTransactions,
    ExpireTransaction,
    PrepareTransaction,
    ResolveTransaction,
)
from oncecast.wire.transactions import Accepted, Consumed

OUTPUT = "output/"  # prefix of the parts that a prepared share brings along

NO, YES = MoveStep(False), MoveStep(True)


def output_part(topic: str) -> str:
    """Return the part name of a prepared share's messages for a topic."""
    return OUTPUT + topic


class Holding:
    def __init__(self, registry: Registry, contents: Contents) -> None:
        self._registry, self._contents = registry, contents

    # -- participants --

    def begin(
        self,
        slot: int,
        key: str,
        source: Source,
        command: PrepareTransaction,
        checked: Checked,
        clock: Clock,
    ) -> MachineRefusal | None:
        """Hold a share that was checked. Return a refusal if that needs too much."""
        staging, limits = self._registry.staging, self._registry.limits
        names = [output_part(each.topic) for each in command.outputs]
        for name in names:
            if name in source.staged.get(command.number, {}):
                return InvalidArgument(f"the name of part {name!r} is reserved; use another name")
        if len(source.held) >= HELD_MAX:
            return TooMany("undecided transactions of one source", HELD_MAX)
        if staging.parts + len(names) > limits.staged_parts_max:
            return TooMany("staged parts", limits.staged_parts_max)
        if staging.bytes + sum([each.size for each in checked.outputs]) > limits.staged_bytes_max:
            return TooMany("staged bytes", limits.staged_bytes_max)
        for name, part in zip(names, checked.outputs, strict=True):
            self._registry.live_slots.add(slot)
            staging.add_to(source, command.number, name, part)
        parts = (*command.parts, *names)
        inputs = (command.consumed, command.accepted)
        share = HeldShare(command.epoch, command.coordinator, parts, *inputs, clock.trusted)
        staging.hold(key, command.number, share)
        self._contents.hold(checked.inputs, clock)
        return None

    def resolve(self, slot: int, command: ResolveTransaction) -> TransactionEnded | MachineRefusal:
        """Publish or drop a held share, or return the result of an earlier copy."""
        registry = self._registry
        clock = registry.pass_time(command.at)
        key = registry.transaction_key(command.source, command.topic)
        source = registry.staging.sources.get(key)
        share = None if source is None else source.held.get(command.number)
        if share is None or share.epoch != command.epoch:
            opening = None if source is None else source.opening
            number = command.epoch, command.number
            known = None if opening is None else opening.results.get(number)
            ranges = known.ranges if isinstance(known, TransactionEnded) else ()
            return TransactionEnded(command.commit, ranges, already=True)
        return self.end(key, command.source, command.number, clock, commit=command.commit)

    def end(
        self, key: str, name: str, number: int, clock: Clock, *, commit: bool
    ) -> TransactionEnded:
        staging = self._registry.staging
        source = staging.sources[key]
        share = source.held.pop(number)
        inputs: tuple[Consumed | Accepted, ...] = (*share.consumed, *share.accepted)
        if commit:
            parts = [source.staged[number][each] for each in share.parts]
            ranges = self._contents.append(name, parts, clock)
            if parts:
                staging.take(key, number, share.parts)
        else:
            ranges = ()
            staging.drop(key, number)
        self._contents.end_hold(inputs, clock, accept=commit)
        staging.follow(key)
        result = TransactionEnded(commit, ranges, already=False)
        opening = source.opening
        if opening is not None and needs_result(opening, share.epoch, number):
            opening.results[share.epoch, number] = result
        self._registry.use_source(key)
        return result

    # -- coordinator --

    def expire(self, slot: int, command: ExpireTransaction) -> MoveStep:
        """Abort an undecided transaction, so that no later command can commit it."""
        registry = self._registry
        registry.pass_time(command.at)
        key = registry.transaction_key(command.source, command.topic)
        source = registry.staging.sources.get(key)
        epoch, number = command.epoch, command.number
        if source is None or source.opening is None or not is_undecided(source, epoch, number):
            return NO
        if len(source.opening.results) >= RESULTS_MAX:
            registry.staging.open(key, registry.new_epoch(), "")  # aborts all of its transactions
            return YES
        source.opening.results[epoch, number] = NotDecided(command.source)
        registry.staging.drop(key, number)
        return YES

    def confirm(self, slot: int, command: ConfirmTransactions) -> MoveStep:
        registry = self._registry
        key = registry.transaction_key(command.source, command.topic)
        known = False
        for each in command.confirmed:
            number = each.epoch, each.number
            known = registry.staging.confirm(key, number, each.participants) or known
        return MoveStep(known)


def needs_result(opening: Opening, epoch: int, number: int) -> bool:
    """Return whether the process may still ask for the result of its transaction."""
    return epoch != opening.epoch or number >= opening.finished


def is_undecided(source: Source, epoch: int, number: int) -> bool:
    """Return whether the coordinator could still commit the transaction.

    A transaction with an older epoch, an ended number or a result can no longer commit. A number
    under which the source holds a share belongs to another transaction.
    """
    opening = source.opening
    if opening is None or opening.epoch != epoch or number in source.held:
        return False
    return not opening.has_ended(number)


def outcome_of(source: Source | None, epoch: int, number: int) -> bool | None:
    """Return whether the coordinator has committed a transaction, or None if it is undecided.

    A transaction without a record was aborted, or all its participants have confirmed.
    """
    if source is None or source.opening is None:
        return False
    result = source.opening.results.get((epoch, number))
    if isinstance(result, TransactionEnded):
        return result.committed
    if (epoch, number) in source.decisions:
        return True
    return None if is_undecided(source, epoch, number) else False
