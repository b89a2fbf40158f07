"""Explains why an answer contradicts the model's state."""

from __future__ import annotations

from oncecast.history.operation import NO_SUCH_TOPIC, NOT_SUBSCRIBED, Operation
from oncecast.history.subscription_model import ANYWHERE, Move, SubscriptionState
from oncecast.history.topic_model import Effect, TopicState


def reason(state: TopicState | SubscriptionState, effect: Effect | Move) -> str:
    """Return why the answer is impossible in the farthest state that the search reached."""
    if isinstance(state, TopicState):
        return of_topic(state, effect.operation)
    assert isinstance(effect, Move)
    return of_subscription(state, effect)


def of_topic(state: TopicState, operation: Operation) -> str:
    if not state.exists:
        return "the topic does not exist"
    if operation.error == NO_SUCH_TOPIC:
        return "the topic exists"
    if operation.error == NOT_SUBSCRIBED:
        return f"the subscription {operation.subscription!r} exists"
    if operation.topic_id and state.epoch and operation.topic_id != state.epoch:
        return f"the topic is in epoch {state.epoch}, not {operation.topic_id}"
    if operation.kind in ("put", "publish") and operation.offset not in (-1, state.next):
        return f"the topic ends at {state.next}, so no put gets offset {operation.offset}"
    if operation.kind == "get":
        if operation.offset + operation.messages > state.next:
            return f"the topic ends at {state.next}"
        return f"another message was put at {operation.offset} or after it"
    if operation.next not in (-1, state.next):
        return f"the topic ends at {state.next}, not at {operation.next}"
    if 0 <= operation.first < state.first:
        return f"messages before {state.first} are gone, but the answer shows {operation.first}"
    names = sorted(state.names)
    if operation.views is not None and [each.name for each in operation.views] != names:
        return f"the subscriptions are {', '.join(names) or 'none'}"
    if operation.policy is not None and operation.policy != state.policy:
        return "the topic has another policy"
    if operation.digests:
        return "the topic has other messages"
    return f"the topic ends at {state.next} and has the subscriptions {', '.join(names) or 'none'}"


def of_subscription(state: SubscriptionState, move: Move) -> str:
    operation = move.operation
    if not state.exists:
        return "the subscription does not exist"
    if operation.error or not move.seen:
        return "the subscription exists"
    where = "anywhere" if state.cursor == ANYWHERE else f"at {state.cursor}"
    epoch = move.epoch or operation.epoch
    if operation.kind in ("ack", "leave"):
        if epoch and epoch != state.epoch:
            return f"epoch {state.epoch} has fenced epoch {epoch}, and the cursor is {where}"
        return f"the cursor is {where}, but everything before {operation.upto} was acknowledged"
    if epoch and epoch <= state.epoch and operation.kind in ("attach", "seek"):
        return f"epoch {state.epoch} is already current"
    if move.first > state.cursor >= 0 and operation.views is None:
        return f"messages from {state.cursor} on are unread, but those before {move.first} are gone"
    return f"the cursor is {where} in epoch {state.epoch}, and no ack moves it further"
