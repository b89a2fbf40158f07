"""Hand-made histories: operations with the times of their calls and returns."""

from __future__ import annotations

from typing import Any

from oncecast.history.operation import Kind, Operation, SubscriptionSeen, digests_of_values
from oncecast.pubsub.commands import FromEarliest

TOPIC, NAME = "topic", "sub"


def op(kind: Kind, call: float, returned: float | None = None, **fields: Any) -> Operation:
    client = fields.pop("client", "ann")
    return Operation(client, kind, fields.pop("topic", TOPIC), call, returned, **fields)


def put(
    call: float, returned: float | None, offset: int, *values: str, life: int = 1, **fields: Any
) -> Operation:
    digests = digests_of_values([value.encode() for value in values])
    return op("put", call, returned, offset=offset, life=life, digests=digests, **fields)


def lost_put(call: float, *values: str, **fields: Any) -> Operation:
    """A put that was never answered."""
    return put(call, None, -1, *values, life=0, **fields)


def got(time: float, offset: int, *values: str, life: int = 1, **fields: Any) -> Operation:
    fields = {"epoch": 2, "reader": "r1", "subscription": NAME, **fields}
    digests = digests_of_values([value.encode() for value in values])
    return op("get", time, time, offset=offset, life=life, digests=digests, **fields)


def subscribed(
    call: float, returned: float | None, cursor: int = 0, life: int = 1, **fields: Any
) -> Operation:
    fields = {"subscription": NAME, "start": FromEarliest(), **fields}
    return op("subscribe", call, returned, offset=cursor, life=life, **fields)


def attached(
    call: float,
    returned: float | None,
    cursor: int,
    next: int,
    *,
    epoch: int = 2,
    reader: str = "r1",
    life: int = 1,
    **fields: Any,
) -> Operation:
    where = {"subscription": NAME, "reader": reader, "epoch": epoch, "life": life}
    return op("attach", call, returned, offset=cursor, next=next, **{**where, **fields})


def ack(
    call: float, returned: float | None, upto: int, *, epoch: int = 2, reader: str = "r1"
) -> Operation:
    where = {"subscription": NAME, "reader": reader, "epoch": epoch, "life": 1}
    return op("ack", call, returned, upto=upto, offset=upto, **where)


def look(
    call: float,
    returned: float,
    next: int,
    *cursors: tuple[str, int, int],
    first: int = 0,
    life: int = 1,
    **fields: Any,
) -> Operation:
    views = tuple(
        SubscriptionSeen(name, cursor, next - max(first, cursor), epoch)
        for name, cursor, epoch in cursors
    )
    where = {"first": first, "next": next, "life": life}
    return op("look", call, returned, **where, **{"views": views or None, **fields})


def no_topic(call: float, returned: float) -> Operation:
    return op("look", call, returned, error="no-such-topic")
