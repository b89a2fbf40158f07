"""Handlers for subscription commands. An ack needs the current epoch and only moves forward.

Nacks need no command, because the client session redelivers the message itself.
"""

from __future__ import annotations

import msgspec

from oncecast.broker.registry import Registry
from oncecast.wire.commands import (
    ANY_EPOCH,
    SEEK_LEVEL,
    Ack,
    Acks,
    Attach,
    Detach,
    Seek,
    Subscribe,
    Unsubscribe,
)
from oncecast.wire.errors import (
    UNDECIDED,
    Fenced,
    InvalidName,
    InvalidTopic,
    NoSuchTopic,
    NotAssigned,
    NotSubscribed,
    Overloaded,
    Repositioned,
    TooMany,
    WrongKind,
)
from oncecast.wire.limits import is_name
from oncecast.wire.results import (
    AckResult,
    AcksDone,
    Detached,
    Result,
    Sought,
    Subscribed,
    Unsubscribed,
)


class Subscribing:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def subscribe(
        self, slot: int, command: Subscribe
    ) -> Subscribed | InvalidTopic | NoSuchTopic | InvalidName | TooMany | WrongKind:
        registry = self._registry
        registry.pass_time(command.at)
        if not is_name(command.subscription):
            return InvalidName("subscription")
        topic = registry.topics.get(command.topic)
        if topic is None and not command.create:
            return registry.missing(command.topic)
        if topic is None:
            refusal = registry.refusal_to_make(command.topic)
            if refusal is not None:
                return refusal
            topic = registry.make(command.topic)
        known = topic.subscriptions.get(command.subscription)
        if known is not None and known.queue is not None:
            return WrongKind(command.topic, command.subscription, "shared")
        if known is not None:
            return Subscribed(known.cursor, topic.id, already=True)
        full = registry.refusal_to_subscribe(topic)
        if full is not None:
            registry.release(topic)  # removes the topic if this command created it
            return full
        made = topic.subscribe(command.subscription, registry.new_epoch(), command.start)
        return Subscribed(made.cursor, topic.id, already=False)

    def unsubscribe(self, slot: int, command: Unsubscribe) -> Unsubscribed:
        clock = self._registry.pass_time(command.at)
        topic = self._registry.topics.get(command.topic)
        if topic is None or not topic.unsubscribe(command.subscription, clock):
            return Unsubscribed(already=True)
        self._registry.follow_sharing(topic)
        self._registry.release(topic)
        return Unsubscribed(already=False)

    def attach(self, slot: int, command: Attach) -> Result:
        registry = self._registry
        if not is_name(command.incarnation):
            return InvalidName("incarnation")
        topic = registry.topics.get(command.topic)
        if topic is None:
            return registry.missing(command.topic)
        subscription = topic.subscriptions.get(command.subscription)
        if subscription is None:
            return NotSubscribed(command.topic, command.subscription)
        if subscription.queue is not None:
            return WrongKind(command.topic, command.subscription, "shared")
        if command.term < subscription.term and command.term:
            return NotAssigned(command.topic, command.subscription)
        if subscription.incarnation != command.incarnation:
            current = subscription.epoch if subscription.incarnation else 0
            if command.expected not in (ANY_EPOCH, current):
                return Fenced(current)
            if registry.is_held(command.topic, command.subscription, subscription.epoch):
                return Overloaded(UNDECIDED)
            topic.attach(subscription, command.incarnation, registry.new_epoch())
            subscription.term = max(subscription.term, command.term)
        return topic.attached(subscription)

    def detach(
        self, slot: int, command: Detach
    ) -> Detached | NoSuchTopic | InvalidTopic | NotSubscribed | WrongKind | Fenced | Repositioned:
        topic = self._registry.topics.get(command.topic)
        return self._registry.missing(command.topic) if topic is None else topic.detach(command)

    def ack(self, slot: int, command: Ack) -> AckResult:
        topic = self._registry.topics.get(command.topic)
        if topic is None:
            return self._registry.missing(command.topic)
        return topic.ack(command, self._registry.clock)

    def acks(self, slot: int, command: Acks) -> AcksDone:
        self._registry.pass_time(command.at)
        return AcksDone(tuple([self.ack(slot, each) for each in command.acks]))

    def seek(self, slot: int, command: Seek) -> Result:
        """Move the cursor, unless a copy of the command has moved it before.

        A reader or caller that was refused with another epoch tries again with that epoch and the
        same token. So such a refusal is not kept as the answer.
        """
        registry = self._registry
        registry.pass_time(command.at)
        if not is_name(command.token):
            return InvalidName("token")
        once = not command.epoch or registry.level >= SEEK_LEVEL
        known = registry.answered.get(command.token, command.topic) if once else None
        if known is not None:
            return known
        result = self._seek(command)
        if once and not isinstance(result, Fenced | Repositioned):
            registry.answered.add(command.token, command.topic, result)
        return result

    def _seek(
        self, command: Seek
    ) -> Sought | NoSuchTopic | InvalidTopic | NotSubscribed | Fenced | Repositioned:
        registry = self._registry
        topic = registry.topics.get(command.topic)
        if topic is None:
            return registry.missing(command.topic)
        if registry.level < SEEK_LEVEL:
            command = msgspec.structs.replace(command, expected=ANY_EPOCH)
        return topic.seek(command, registry.new_epoch, registry.clock)
