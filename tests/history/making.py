"""Build hand-made histories: operations with their call and return times."""

from __future__ import annotations

from typing import Any

from oncecast.history.operation import Kind, Operation, SubscriptionSeen, digests_of_values
from oncecast.wire.commands import FromEarliest

TOPIC, NAME = "topic", "sub"


def op(kind: Kind, call: float, returned: float | None = None, **fields: Any) -> Operation:
    client = fields.pop("client", "ann")
    return Operation(client, kind, fields.pop("topic", TOPIC), call, returned, **fields)


def digests(*values: str) -> bytes:
    return digests_of_values([value.encode() for value in values])


def put(
    call: float, returned: float | None, offset: int, *values: str, topic_id: int = 1, **fields: Any
) -> Operation:
    return op(
        "put", call, returned, offset=offset, topic_id=topic_id, digests=digests(*values), **fields
    )


def lost_put(call: float, *values: str, **fields: Any) -> Operation:
    """Return a put that was never answered."""
    return put(call, None, -1, *values, topic_id=0, **fields)


def publish(
    call: float,
    returned: float | None,
    offset: int,
    *,
    value: str = "staged",
    number: int = 1,
    **fields: Any,
) -> list[Operation]:
    """Return operations that stage one message and publish it."""
    source = {"source": "source", "number": number, "parts": ("part",)}
    stage = op("stage", call - 1, call - 0.5, digests=digests(value), **source)
    return [stage, op("publish", call, returned, offset=offset, count=1, **source, **fields)]


def dropped(call: float, returned: float | None, number: int = 1) -> Operation:
    return op("drop", call, returned, source="source", number=number)


def of_reader(kind: Kind, time: float, **fields: Any) -> Operation:
    where = {"epoch": 2, "reader": "r1", "subscription": NAME, "topic_id": 1}
    return op(kind, time, time, **{**where, **fields})


def got(time: float, offset: int, *values: str, **fields: Any) -> Operation:
    return of_reader("get", time, offset=offset, digests=digests(*values), **fields)


def again(time: float, offset: int, delivered: int) -> Operation:
    where = {"epoch": 2, "reader": "r1", "subscription": NAME, "topic_id": 1}
    return op("again", time, None, offset=offset, upto=delivered, **where)


def subscribed(
    call: float, returned: float | None, cursor: int = 0, topic_id: int = 1, **fields: Any
) -> Operation:
    fields = {"subscription": NAME, "start": FromEarliest(), **fields}
    return op("subscribe", call, returned, offset=cursor, topic_id=topic_id, **fields)


def unsubscribed(call: float, returned: float | None, **fields: Any) -> Operation:
    return op("unsubscribe", call, returned, **{"subscription": NAME, **fields})


def attached(
    call: float,
    returned: float | None,
    cursor: int,
    next: int,
    *,
    epoch: int = 2,
    reader: str = "r1",
    topic_id: int = 1,
    **fields: Any,
) -> Operation:
    where = {"subscription": NAME, "reader": reader, "epoch": epoch, "topic_id": topic_id}
    return op("attach", call, returned, offset=cursor, next=next, **{**where, **fields})


def ack(
    call: float, returned: float | None, upto: int, *, epoch: int = 2, reader: str = "r1"
) -> Operation:
    where = {"subscription": NAME, "reader": reader, "epoch": epoch, "topic_id": 1}
    return op("ack", call, returned, upto=upto, offset=upto, **where)


def left(call: float, returned: float | None, upto: int, delivered: int) -> Operation:
    where = {"subscription": NAME, "reader": "r1", "epoch": 2, "topic_id": 1}
    return op("leave", call, returned, upto=upto, next=delivered, **where)


def sought(
    call: float, returned: float | None, cursor: int, epoch: int, **fields: Any
) -> Operation:
    where = {"subscription": NAME, "start": FromEarliest(), "epoch": epoch}
    return op("seek", call, returned, offset=cursor, **{**where, **fields})


def look(
    call: float,
    returned: float,
    next: int,
    *cursors: tuple[str, int, int],
    first: int = 0,
    topic_id: int = 1,
    **fields: Any,
) -> Operation:
    """Return a status request. `cursors` lists subscription names, cursors and epochs."""
    views = tuple(
        SubscriptionSeen(name, cursor, next - max(first, cursor), epoch)
        for name, cursor, epoch in cursors
    )
    where = {"first": first, "next": next, "topic_id": topic_id}
    return op("look", call, returned, **where, **{"views": views or None, **fields})


def scanned(
    call: float, returned: float, next: int, offset: int, *values: str, **fields: Any
) -> Operation:
    fields = {"first": 0, "topic_id": 1, "start": FromEarliest(), **fields}
    return op("scan", call, returned, next=next, offset=offset, digests=digests(*values), **fields)


def no_topic(call: float, returned: float) -> Operation:
    return op("look", call, returned, error="no-such-topic")


def created(call: float, returned: float | None, topic_id: int = 1, **fields: Any) -> Operation:
    return op("create", call, returned, topic_id=topic_id, **fields)


def deleted(call: float, returned: float | None, **fields: Any) -> Operation:
    return op("delete", call, returned, **fields)


# Histories begin with these: a subscription, its reader, and three messages put and read.
SUB = subscribed(0, 1)
READ = attached(1.5, 1.6, 0, 0)
ABC = put(2, 3, 0, "a", "b", "c")
READ_ABC = attached(3.1, 3.2, 0, 3)
