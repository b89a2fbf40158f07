"""Check all that a transaction puts and acknowledges, then apply all of it.

After the checks, nothing can fail. So a transaction takes effect as a whole, or not at all.
"""

from __future__ import annotations

from typing import NamedTuple

from oncecast.broker.clock import Clock
from oncecast.broker.producing import batch_fault
from oncecast.broker.publishing import Publishing
from oncecast.broker.registry import Registry
from oncecast.broker.sharing import Sharing
from oncecast.broker.staging import Part, Source
from oncecast.broker.subscription import Subscription
from oncecast.broker.topic import Topic, stale
from oncecast.kernel.topic_tag import tag_of
from oncecast.wire.errors import (
    InvalidArgument,
    InvalidTopic,
    MachineRefusal,
    NotAcknowledged,
    NotStaged,
    Repositioned,
)
from oncecast.wire.limits import is_name
from oncecast.wire.results import PublishedRange
from oncecast.wire.transactions import Accepted, Consumed, EndTransaction, across_groups

Input = tuple[Consumed | Accepted, Topic, Subscription]


class Checked(NamedTuple):
    """The parts and inputs of a transaction that may commit. `outputs` are its last parts."""

    parts: list[Part]
    outputs: list[Part]
    inputs: list[Input]


class Contents:
    def __init__(self, registry: Registry, publishing: Publishing, sharing: Sharing) -> None:
        self._registry, self._publishing, self._sharing = registry, publishing, sharing

    # -- check --

    def check(
        self, slot: int, source: Source, command: EndTransaction, clock: Clock
    ) -> Checked | MachineRefusal:
        """Return what the transaction puts and acknowledges, or the first refusal."""
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
        inputs: list[Input] = []
        for each in command.inputs:
            found = self._input(each)
            if isinstance(found, NotAcknowledged):
                return found
            inputs.append(found)
        return Checked(parts, outputs, inputs)

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

    def _input(self, consumed: Consumed | Accepted) -> Input | NotAcknowledged:
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
            if not fact and self._registry.is_held(*reader_of(consumed)):
                fact = "another transaction of the reader is not decided yet"
            return refused(fact) if fact else (consumed, topic, subscription)
        if queue is None:
            return refused("the subscription is exclusive")
        offset = queue.stale(consumed.worker, consumed.runs)
        if offset is not None:
            return refused("its lease has ended", offset)
        return consumed, topic, subscription

    # -- apply --

    def append(self, source: str, parts: list[Part], clock: Clock) -> tuple[PublishedRange, ...]:
        return self._publishing.append(source, parts, clock)

    def acknowledge(self, inputs: list[Input], clock: Clock) -> None:
        for consumed, topic, subscription in inputs:
            if isinstance(consumed, Consumed):
                subscription.acknowledge(consumed.upto)
                topic.collect(clock)
            elif subscription.queue is not None:
                subscription.queue.accept(consumed.worker, consumed.runs, clock.trusted)
                self._sharing.advance(topic, subscription, subscription.queue, clock)

    # -- hold until the transaction is decided --

    def hold(self, inputs: list[Input], clock: Clock) -> None:
        """Keep these messages from other workers. Exclusive readers are held by their record."""
        for consumed, _, subscription in inputs:
            if isinstance(consumed, Accepted) and subscription.queue is not None:
                subscription.queue.hold(consumed.worker, consumed.runs, clock.trusted)

    def end_hold(
        self,
        inputs: tuple[Consumed | Accepted, ...],
        clock: Clock,
        *,
        accept: bool,
    ) -> None:
        """Acknowledge what was held, or deliver it again.

        A subscription that was deleted or moved in the meantime has no held messages.
        """
        for consumed in inputs:
            topic = self._registry.topics.get(consumed.topic)
            found = None if topic is None else topic.subscriptions.get(consumed.subscription)
            if topic is None or found is None:
                continue
            if isinstance(consumed, Accepted):
                if found.queue is not None:
                    found.queue.end_hold(consumed.runs, clock.trusted, accept=accept)
                    self._sharing.advance(topic, found, found.queue, clock)
            elif accept and found.epoch == consumed.epoch:
                found.acknowledge(consumed.upto)
                topic.collect(clock)


def reader_of(consumed: Consumed) -> tuple[str, str, int]:
    return consumed.topic, consumed.subscription, consumed.epoch


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
