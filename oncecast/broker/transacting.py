"""Handlers for transactions. The module `wire.transactions` describes them.

A commit first checks everything. After the checks, nothing can fail. So a transaction takes effect
as a whole, in one command, or not at all.
"""

from __future__ import annotations

from oncecast.broker.clock import Clock
from oncecast.broker.producing import batch_fault
from oncecast.broker.publishing import Publishing
from oncecast.broker.registry import Registry
from oncecast.broker.sharing import Sharing
from oncecast.broker.staging import Part, Source
from oncecast.broker.subscription import Subscription
from oncecast.broker.topic import Topic, stale
from oncecast.kernel.topic_tag import tag_of
from oncecast.wire.commands import ANY_EPOCH, OpenSource
from oncecast.wire.errors import (
    Fenced,
    InvalidArgument,
    InvalidName,
    InvalidTopic,
    MachineRefusal,
    NotAcknowledged,
    NotStaged,
    OldNumber,
    Repositioned,
    TooMany,
)
from oncecast.wire.limits import is_name
from oncecast.wire.results import SourceOpened, TransactionEnded
from oncecast.wire.transactions import Accepted, Consumed, EndTransaction, across_groups

EndResult = TransactionEnded | MachineRefusal
ABORTED = TransactionEnded(committed=False, ranges=(), already=False)

Held = tuple[Consumed | Accepted, Topic, Subscription]


class Transacting:
    def __init__(self, registry: Registry, publishing: Publishing, sharing: Sharing) -> None:
        self._registry, self._publishing, self._sharing = registry, publishing, sharing

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
        return SourceOpened(staging.sources[key].opened, ring=registry.holdings is not None)

    # -- end --

    def end(self, slot: int, command: EndTransaction) -> EndResult:
        """Commit or abort a transaction, or return the result of an earlier copy."""
        registry = self._registry
        clock = registry.pass_time(command.at)
        if not is_name(command.source):
            return InvalidName("source")
        if command.fault:
            return InvalidArgument(command.fault)
        key = registry.transaction_key(command.source, command.topic)
        registry.use_source(key)
        source = registry.staging.sources.get(key)
        opening = None if source is None else source.opening
        if source is None or opening is None:
            return Fenced(0)
        known = ended_before(registry, command)
        if known is not None:
            return known
        if command.epoch != opening.epoch:
            return Fenced(opening.epoch)
        if command.number < opening.finished:
            return OldNumber(command.source, command.number, opening.finished - 1)
        self._finish(key, source, command.finished)
        result = self._commit(slot, key, source, command, clock) if command.commit else ABORTED
        opening.results[command.epoch, command.number] = result
        registry.staging.drop(key, command.number)
        return result

    def _finish(self, key: str, source: Source, before: int) -> None:
        """Forget the results of all transactions before this number, and drop their parts."""
        assert source.opening is not None
        source.opening.finish(before)
        for number in [each for each in source.staged if each < before]:
            self._registry.staging.drop(key, number)

    def _commit(
        self, slot: int, key: str, source: Source, command: EndTransaction, clock: Clock
    ) -> EndResult:
        staged = source.staged.get(command.number, {})
        for name in command.parts:
            if name not in staged:
                return NotStaged(command.source, command.number, name)
        outputs = [
            Part(slot, each.topic, each.count, each.size, clock.now) for each in command.outputs
        ]
        parts = [*(staged[name] for name in command.parts), *outputs]
        refusal = self._refusal_of_outputs(command) or self._publishing.refusal_to_append(
            command.source, parts
        )
        if refusal is not None:
            return refusal
        inputs: list[Held] = []
        for each in command.inputs:
            held = self._held(each)
            if isinstance(held, NotAcknowledged):
                return held
            inputs.append(held)
        for _ in outputs:
            self._registry.live_slots.add(slot)
        ranges = self._publishing.append(command.source, parts, clock)
        self._registry.staging.take(key, command.number, command.parts)
        for held in inputs:
            self._acknowledge(*held, clock)
        return TransactionEnded(committed=True, ranges=ranges, already=False)

    def _refusal_of_outputs(self, command: EndTransaction) -> MachineRefusal | None:
        for each in command.outputs:
            if not is_name(each.topic):
                return InvalidTopic()
            fault = batch_fault(each.count, each.size, self._registry.limits)
            if fault is not None:
                return fault
        if self._registry.holdings is None:
            return None
        puts = [each.topic for each in command.outputs]
        for name in (*puts, *(each.topic for each in command.inputs)):
            if tag_of(name) != tag_of(command.topic):
                return InvalidArgument(across_groups(command.topic, name))
        return None

    # -- what the transaction consumed --

    def _held(self, consumed: Consumed | Accepted) -> Held | NotAcknowledged:
        """Return the messages with their subscription if they can be acknowledged."""
        first = consumed.first if isinstance(consumed, Consumed) else consumed.runs[0][1]

        def refused(fact: str, offset: int = first) -> NotAcknowledged:
            return NotAcknowledged(consumed.topic, consumed.subscription, offset, fact)

        topic = self._registry.topics.get(consumed.topic)
        if topic is None:
            return refused("the topic does not exist")
        subscription = topic.subscriptions.get(consumed.subscription)
        if subscription is None:
            return refused("the subscription does not exist")
        queue = subscription.queue
        if isinstance(consumed, Consumed):
            if queue is not None:
                return refused("the subscription is shared")
            fact = unread(topic, subscription, consumed)
            return refused(fact) if fact else (consumed, topic, subscription)
        if queue is None:
            return refused("the subscription is exclusive")
        offset = queue.stale(consumed.worker, consumed.runs)
        if offset is not None:
            return refused("its lease has ended", offset)
        return consumed, topic, subscription

    def _acknowledge(
        self,
        consumed: Consumed | Accepted,
        topic: Topic,
        subscription: Subscription,
        clock: Clock,
    ) -> None:
        if isinstance(consumed, Consumed):
            subscription.acknowledge(consumed.upto)
            topic.collect(clock)
        elif subscription.queue is not None:
            subscription.queue.accept(consumed.worker, consumed.runs, clock.trusted)
            self._sharing.advance(topic, subscription, subscription.queue, clock)


def unread(topic: Topic, subscription: Subscription, consumed: Consumed) -> str:
    """Return why a reader may no longer acknowledge these messages, or "" if it may."""
    if consumed.epoch != subscription.epoch:
        if isinstance(stale(subscription, consumed.epoch), Repositioned):
            return "the subscription was moved"
        return "another reader has taken over"
    if consumed.first < subscription.cursor:
        return "it is already acknowledged"
    if consumed.upto > topic.index.next:
        return f"the next offset of the topic is {topic.index.next}"
    return ""


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
