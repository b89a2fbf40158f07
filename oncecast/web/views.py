"""Convert messages, policies and views of the nodes to the shapes of responses, and back."""

from __future__ import annotations

from typing import TypeVar

from oncecast.client.shared import Shared
from oncecast.errors import InvalidArgument
from oncecast.web import shapes
from oncecast.wire.frames import SharedView, SubscriptionView, TopicView
from oncecast.wire.message import Message
from oncecast.wire.retention import Policy
from oncecast.wire.sharing import Shared as WireShared

MICRO = 1_000_000
UTF8_BYTES = 4  # maximum bytes of a character


def text_of(data: bytes, *, cut: bool = False) -> str | None:
    """Return the data as text, or None if it is not UTF-8. If it is cut, its end may be partial."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if cut and error.start > len(data) - UTF8_BYTES and error.end == len(data):
            return data[: error.start].decode()
        return None


def bytes_shape(data: bytes) -> shapes.Bytes:
    return shapes.Bytes(value=data, text=text_of(data))


def message_shape(message: Message, value_bytes: int | None = None) -> shapes.MessageShape:
    """Return a message, with at most `value_bytes` of its value."""
    value, size = message.value, len(message.value)
    truncated = value_bytes is not None and size > value_bytes
    if truncated:
        value = value[:value_bytes]
    key = message.key
    return shapes.MessageShape(
        offset=message.offset,
        timestamp_us=message.timestamp,
        value=value,
        text=text_of(value, cut=truncated),
        size=size,
        truncated=truncated,
        key=None if key is None else bytes_shape(key),
        headers={name: bytes_shape(data) for name, data in message.headers.items()},
        producer=message.producer,
        sequence=message.sequence,
        redelivered=message.redelivered,
    )


# Policies


def policy_shape(policy: Policy) -> shapes.PolicyShape:
    return shapes.PolicyShape(
        age=policy.age_us / MICRO,
        bytes=policy.bytes_max,
        keep_all=policy.keep_all,
        drop_unread=policy.drop_unread,
        gossip=policy.gossip,
        drop_expired=policy.drop_expired,
    )


T = TypeVar("T")


def chosen(given: T | None, kept: T) -> T:
    return kept if given is None else given


def policy_of(body: shapes.PolicyBody, now: Policy) -> Policy:
    """Return the policy `now` with the fields that the body sets. Raise InvalidArgument."""

    policy = Policy(
        age_us=now.age_us if body.age is None else round(body.age * MICRO),
        bytes_max=chosen(body.bytes, now.bytes_max),
        keep_all=chosen(body.keep_all, now.keep_all),
        drop_unread=chosen(body.drop_unread, now.drop_unread),
        gossip=chosen(body.gossip, now.gossip),
        drop_expired=chosen(body.drop_expired, now.drop_expired),
    )
    if policy.fault:
        raise InvalidArgument(policy.fault)
    return policy


# Topics


def topic_shape(view: TopicView, rate: float | None) -> shapes.TopicShape:
    return shapes.TopicShape(
        name=view.name,
        id=view.id,
        first=view.first,
        end=view.next,
        bytes=view.bytes,
        producers=view.producers,
        delayed=view.delayed,
        subscriptions=len(view.subscriptions),
        partitions=view.partitions,
        policy=policy_shape(view.policy),
        puts_per_second=rate,
    )


def topic_details(
    view: TopicView, rate: float | None, most: int, partitions: list[TopicView]
) -> shapes.TopicDetails:
    return shapes.TopicDetails(
        name=view.name,
        id=view.id,
        first=view.first,
        end=view.next,
        bytes=view.bytes,
        producers=view.producers,
        delayed=view.delayed,
        subscriptions=[subscription_shape(view.name, each) for each in view.subscriptions[:most]],
        subscription_count=len(view.subscriptions),
        partitions=[
            shapes.Partition(name=each.name, first=each.first, end=each.next, bytes=each.bytes)
            for each in partitions
        ],
        partition_of=view.partition_of,
        policy=policy_shape(view.policy),
        puts_per_second=rate,
    )


# Subscriptions


def settings_shape(settings: WireShared) -> shapes.SharedSettings:
    return shapes.SharedSettings(
        lease=settings.lease_us / MICRO,
        deliveries_max=settings.deliveries_max,
        backoff_min=settings.backoff_min_us / MICRO,
        backoff_max=settings.backoff_max_us / MICRO,
        in_flight_max=settings.in_flight_max,
        dead_letters=settings.dead_letters or None,
        by_key=settings.by_key,
    )


def shared_shape(shared: SharedView) -> shapes.SharedShape:
    return shapes.SharedShape(
        workers=shared.workers,
        leased=shared.leased,
        waiting=shared.waiting,
        dead=shared.dead,
        dead_letters=shared.dead_letters,
        settings=settings_shape(shared.settings),
    )


def subscription_shape(topic: str, view: SubscriptionView) -> shapes.SubscriptionShape:
    shared = view.shared
    return shapes.SubscriptionShape(
        topic=topic,
        name=view.name,
        cursor=view.cursor,
        lag=view.lag,
        epoch=view.epoch,
        attached=view.attached,
        shared=None if shared is None else shared_shape(shared),
    )


def shared_of(body: shapes.SharedBody, now: WireShared) -> Shared:
    """Return the settings `now` with the fields that the body sets."""
    kept = settings_shape(now)
    names = ("lease", "deliveries_max", "backoff_min", "backoff_max", "in_flight_max", "by_key")
    fields = {name: chosen(getattr(body, name), getattr(kept, name)) for name in names}
    return Shared(dead_letters=body.dead_letters or kept.dead_letters, **fields)
