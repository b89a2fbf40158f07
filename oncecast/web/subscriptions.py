"""Handlers for subscriptions: create, get, acknowledge, settle, seek, and dead letters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from oncecast.client.dead_letters import DeadLetter
from oncecast.client.jobs import Job
from oncecast.client.starts import EARLIEST, NEW
from oncecast.errors import InvalidArgument, NotSubscribed, WrongKind
from oncecast.web import shapes
from oncecast.web.backend import messages_of, offset
from oncecast.web.exchange import Answer, Call
from oncecast.web.views import message_shape, shared_of, subscription_shape
from oncecast.wire.commands import FromTime, Start
from oncecast.wire.sharing import DEFAULT_SHARED

BYTES_EACH = 64 << 10  # bytes of a get for each message that it asks for
BYTES_MIN = 256 << 10

STARTS: dict[str, Start] = {"earliest": EARLIEST, "latest": NEW}


async def shown(call: Call) -> shapes.SubscriptionShape:
    view = await call.session.backend.subscription(call.topic, call.name)
    return subscription_shape(call.topic, view)


async def created(call: Call) -> Answer:
    body = call.body or shapes.Subscribe()
    start = offset(body.start) if isinstance(body.start, int) else STARTS[body.start]
    shared = None
    if body.shared:
        now = DEFAULT_SHARED
        try:
            view = await call.session.backend.subscription(call.topic, call.name)
        except LookupError:
            view = None
        if view is not None and view.shared is not None:
            now = view.shared.settings
        given = body.shared if isinstance(body.shared, shapes.SharedBody) else shapes.SharedBody()
        shared = shared_of(given, now)
    done = await call.client.create_subscription(call.topic, call.name, start=start, shared=shared)
    call.session.census.forget()
    return Answer(201 if done.new else 200, await shown(call))


async def deleted(call: Call) -> None:
    if not await call.client.unsubscribe(call.topic, call.name):
        raise NotSubscribed(call.topic, call.name)


# Get and acknowledge


async def got(call: Call) -> shapes.Got:
    """Get messages, or jobs if the subscription is shared."""
    with call.hub.wait():
        try:
            return await got_messages(call)
        except WrongKind:
            return await got_jobs(call)


async def got_messages(call: Call) -> shapes.Got:
    limit = call["limit"]
    most = call.hub.limits.response_bytes
    taken = await call.session.readers.take(
        call.topic,
        call.name,
        size=min(most, max(BYTES_MIN, BYTES_EACH * limit)),
        wait=min(call["wait"], call.hub.limits.wait_seconds),
        epoch=call["epoch"],
        take_over=call["take_over"],
    )
    page, lost = taken.page, None
    if page.offset > taken.cursor:
        lost = shapes.Lost(first=taken.cursor, next=page.offset)
        page = await call.session.backend.page(call.topic, offset(page.offset), size=BYTES_MIN)
    messages, room = [], most
    for each in messages_of(page, limit):
        messages.append(message_shape(each))
        messages[-1].redelivered = each.offset < taken.suspect_below
        room -= 200 + 3 * len(each.value)
        if room <= 0:
            break
    end = messages[-1].offset + 1 if messages else page.offset
    taken.deliver(end)
    return shapes.Got(messages=messages, epoch=taken.epoch, next=end, end=page.next, lost=lost)


async def got_jobs(call: Call) -> shapes.Got:
    wait = min(call["wait"], call.hub.limits.wait_seconds)
    jobs, lease = await call.session.workers.take(
        call.topic, call.name, limit=call["limit"], wait=wait
    )
    return shapes.Got(jobs=[job_shape(each, lease) for each in jobs])


def job_shape(job: Job, lease: float) -> shapes.JobShape:
    return shapes.JobShape(
        token=job.token,
        deliveries=job.deliveries,
        lease=lease,
        message=message_shape(job.message),
    )


async def acknowledged(call: Call) -> shapes.Acked:
    cursor = await call.session.readers.ack(
        call.topic, call.name, call.body.offset + 1, call.body.epoch
    )
    return shapes.Acked(cursor=cursor)


async def settled(call: Call) -> shapes.Settled:
    body = call.body
    changes: list[tuple[tuple[int, int], Callable[[Job], None]]] = []
    changes += [((each.token, each.offset), Job.ack) for each in body.accept]
    changes += [
        ((each.token, each.offset), partial(Job.nack, delay=each.delay, reason=each.reason))
        for each in body.release
    ]
    changes += [
        ((each.token, each.offset), partial(Job.reject, reason=each.reason)) for each in body.reject
    ]
    workers = call.session.workers
    lost = workers.renew(call.topic, call.name, [(each.token, each.offset) for each in body.renew])
    lost += await workers.settle(call.topic, call.name, changes)
    return shapes.Settled(
        settled=len(changes) + len(body.renew) - len(lost),
        lost=[shapes.JobName(token=token, offset=at) for token, at in lost],
    )


async def sought(call: Call) -> shapes.Acked:
    body = call.body
    given = [each for each in (body.offset, body.timestamp_us, body.to) if each is not None]
    if len(given) != 1:
        raise InvalidArgument(
            "the body needs exactly one of offset, timestamp_us and to", "send one of them"
        )
    start: Start
    if body.offset is not None:
        start = offset(body.offset)
    elif body.timestamp_us is not None:
        start = FromTime(body.timestamp_us)
    else:
        start = STARTS[body.to]
    return shapes.Acked(cursor=await call.client.seek(call.topic, call.name, start))


# Dead letters


async def letters(call: Call) -> shapes.Letters:
    dead = call.client.dead_letters(call.topic, call.name)
    limit = call["limit"]
    found = await dead.first(limit + 1, call["after"])
    more = len(found) > limit
    found = found[:limit]
    return shapes.Letters(
        letters=[letter_shape(each) for each in found],
        count=await dead.count(),
        next=found[-1].offset if more else None,
    )


def letter_shape(letter: DeadLetter) -> shapes.Letter:
    return shapes.Letter(
        offset=letter.offset,
        origin=letter.origin,
        reason=letter.reason,
        detail=letter.detail,
        deliveries=letter.deliveries,
        message=message_shape(letter.message),
    )


def chosen(call: Call) -> list[int] | None:
    """Return the offsets in the body, or None for all."""
    body = call.body
    if body.all == (body.offsets is not None):
        raise InvalidArgument("the body needs either offsets or all", "send one of them")
    return None if body.all else list(body.offsets)


async def retried(call: Call) -> shapes.Handled:
    dead = call.client.dead_letters(call.topic, call.name)
    return shapes.Handled(count=await dead.retry(chosen(call), call.body.to))


async def dropped(call: Call) -> shapes.Handled:
    dead = call.client.dead_letters(call.topic, call.name)
    return shapes.Handled(count=await dead.drop(chosen(call)))
