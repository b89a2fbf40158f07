"""List, retry and drop the dead letters of a shared subscription.

    letters = client.dead_letters("emails", "sender")
    for letter in await letters.first(10):
        print(letter.offset, letter.reason, letter.value)
    await letters.retry()

Dead letters are messages in the dead-letter topic. That topic's shared subscription `dead` records
which letters are handled. The first retry or drop creates the subscription. From then on, the topic
keeps only letters that are not handled, unless its policy was changed before.

A retry puts the message back into its topic. Each retry publishes under its own source, so an
interrupted retry that runs again puts nothing twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from oncecast.client.arguments import check_count, check_names, check_topic
from oncecast.client.jobs import Job
from oncecast.client.shared import Shared
from oncecast.client.starts import EARLIEST, from_offset
from oncecast.errors import (
    InvalidArgument,
    NoSuchTopic,
    NotSubscribed,
    OutOfRange,
    TimedOut,
    WrongKind,
)
from oncecast.wire import batch
from oncecast.wire.commands import FromNew, SubscribeShared
from oncecast.wire.frames import SharedView, SubscriptionView, TopicView
from oncecast.wire.message import Message
from oncecast.wire.retention import DEFAULT, Policy
from oncecast.wire.sharing import (
    DEAD_DELIVERIES,
    DEAD_DETAIL,
    DEAD_HEADERS,
    DEAD_OFFSET,
    DEAD_REASON,
    WINDOW_MAX,
)

if TYPE_CHECKING:
    from oncecast.client.client import Client

HANDLED = "dead"  # the subscription of the dead-letter topic
SETTINGS = Shared(deliveries_max=0, backoff_min=0, backoff_max=0)
QUIET = 5.0  # seconds without a letter, after which the remaining letters count as unavailable
PART = "letter"


class DeadLetter(NamedTuple):
    """A message in a dead-letter topic, and why it is there. The offset is that of the letter."""

    message: Message

    @property
    def offset(self) -> int:
        return self.message.offset

    @property
    def key(self) -> bytes | None:
        return self.message.key

    @property
    def value(self) -> bytes:
        return self.message.value

    @property
    def headers(self) -> dict[str, bytes]:
        """Return the headers that the message had in its topic."""
        headers = self.message.headers
        return {name: value for name, value in headers.items() if name not in DEAD_HEADERS}

    @property
    def reason(self) -> str:
        """Return `rejected`, `exhausted`, `expired` or `worker-lost`."""
        return self._text(DEAD_REASON)

    @property
    def detail(self) -> str:
        """Return the reason that the worker gave."""
        return self._text(DEAD_DETAIL)

    @property
    def deliveries(self) -> int:
        return self._number(DEAD_DELIVERIES) or 0

    @property
    def origin(self) -> int | None:
        """Return the offset of the message in its topic. A client's own put has none."""
        return self._number(DEAD_OFFSET)

    def _text(self, name: str) -> str:
        return self.message.headers.get(name, b"").decode(errors="replace")

    def _number(self, name: str) -> int | None:
        text = self._text(name)
        return int(text) if text.isdecimal() else None


class DeadLetters:
    """The dead letters of one shared subscription. Created by `Client.dead_letters`."""

    def __init__(self, client: Client, topic: str, subscription: str) -> None:
        check_names(SubscribeShared(topic, subscription, FromNew(), 0))
        self._client, self.topic, self.subscription = client, topic, subscription

    def __repr__(self) -> str:
        return f"<DeadLetters of subscription {self.subscription!r} of topic {self.topic!r}>"

    # -- look --

    async def _where(self) -> str:
        """Return the dead-letter topic."""
        return (await self._shared()).dead_letters

    async def _shared(self) -> SharedView:
        for each in (await self._client.describe(self.topic)).subscriptions:
            if each.name == self.subscription:
                if each.shared is None:
                    raise WrongKind(self.topic, self.subscription, "exclusive")
                return each.shared
        raise NotSubscribed(self.topic, self.subscription)

    async def count(self) -> int:
        """Return the number of dead letters that are not handled."""
        return await unhandled(self._client, await self._where())

    async def first(self, count: int = 100, after: int = -1) -> list[DeadLetter]:
        """Return the first `count` dead letters after offset `after` that are not handled."""
        check_count(count)
        name = await self._where()
        found: list[DeadLetter] = []
        for begin, end in await self._open(name):
            first = max(begin, after + 1)
            if len(found) >= count:
                break
            if first >= end:
                continue
            last = min(end, first + count - len(found))
            async for part in self._client.scan(name, from_offset(first), last):
                found += map(DeadLetter, part.messages())
        return found

    async def _open(self, name: str) -> list[tuple[int, int]]:
        """Return the first and next offset of each run of unhandled letters."""
        view = await described(self._client, name)
        if view is None:
            return []
        subscription = handled(view)
        shared = subscription.shared if subscription is not None else None
        if shared is None:
            return [(view.first, view.next)] if view.first < view.next else []
        runs = [(max(first, view.first), first + count) for first, count in shared.open]
        if shared.shows_all:
            runs.append((max(shared.fresh, view.first), view.next))
        return [(first, end) for first, end in runs if first < end]

    async def show(self, offset: int) -> DeadLetter:
        """Return the dead letter at this offset, even if it is already handled."""
        name = await self._where()
        async for part in self._client.scan(name, from_offset(offset), offset + 1):
            return DeadLetter(part.messages()[0])
        raise OutOfRange(offset)

    # -- handle --

    async def drop(self, offsets: Collection[int] | None = None) -> int:
        """Delete the letters at these offsets, or all. Return how many were deleted."""

        async def dropped(_: DeadLetter) -> None: ...

        return await self._handle(offsets, dropped)

    async def retry(self, offsets: Collection[int] | None = None, to: str | None = None) -> int:
        """Put the letters at these offsets, or all, back into their topic or into topic `to`.

        Return how many were put. Other subscriptions of the topic would get the messages too, so
        without `to` the topic must not have any.
        """
        if to is not None:
            check_topic(to)
        else:
            count = len((await self._client.describe(self.topic)).subscriptions)
            if count > 1:
                raise InvalidArgument(
                    f"topic {self.topic!r} has {count} subscriptions, and all of them would get "
                    "the messages",
                    "name the target topic, even if it is the same topic",
                )
        target = to or self.topic
        origin = (await self._client.describe(await self._where())).id
        sources: list[str] = []

        async def put(letter: DeadLetter) -> None:
            sources.append(f"dead-letter-{origin}-{letter.offset}")
            await self._publish(letter, target, sources[-1])

        done = await self._handle(offsets, put)
        for source in sources:
            await self._client.close_source(source, target)
        return done

    async def _publish(self, letter: DeadLetter, target: str, source: str) -> None:
        message, client = letter.message, self._client
        data = batch.encode(
            [message.value],
            timestamps=[message.timestamp],
            keys=[message.key],
            headers=[letter.headers],
        )
        await client.stage(source, 1, PART, target, 1, data)
        await client.publish_staged(source, 1, [PART], target, keep=True)

    async def _handle(
        self, offsets: Collection[int] | None, work: Callable[[DeadLetter], Awaitable[None]]
    ) -> int:
        name = await self._where()
        async with self._client.parts.handling[name]:
            await self._prepare(name)
            if offsets is not None:
                await self._check(name, offsets)
            wanted = None if offsets is None else set(offsets)
            total = await unhandled(self._client, name) if wanted is None else len(wanted)
            done = 0
            async for job in self._jobs(name, wanted, total):
                await work(DeadLetter(job.message))
                job.ack()
                done += 1
        if done < total and wanted is not None:
            raise TimedOut(
                f"{total - done} of the dead letters are not available",
                "another command may hold them, or too many letters may precede them; handle the "
                "earlier letters, then try again",
            )
        return done

    async def _jobs(
        self, name: str, wanted: Collection[int] | None, total: int
    ) -> AsyncIterator[Job]:
        """Yield the jobs of up to `total` wanted letters."""
        jobs = await self._client.work(name, HANDLED, prefetch=WINDOW_MAX, create=False)
        async with jobs:
            while total and (job := await jobs.get(QUIET)) is not None:
                if wanted is None or job.offset in wanted:
                    total -= 1
                    yield job
            await jobs.flush()

    async def _check(self, name: str, wanted: Collection[int]) -> None:
        runs = await self._open(name)
        for offset in wanted:
            if not any(first <= offset < end for first, end in runs):
                raise InvalidArgument(
                    f"offset {offset} of topic {name!r} is not an open dead letter",
                    "list the dead letters to find the open ones",
                )

    async def _prepare(self, name: str) -> None:
        """Create the subscription that records which letters are handled."""
        client = self._client
        view = await described(client, name)
        if view is None or handled(view) is None:
            await client.create_subscription(name, HANDLED, start=EARLIEST, shared=SETTINGS)
            view = await client.describe(name)
        if view.policy == Policy(keep_all=True):
            await client.set_policy(name, DEFAULT)


async def described(client: Client, topic: str) -> TopicView | None:
    """Return the topic, or None if it does not exist."""
    try:
        return await client.describe(topic)
    except NoSuchTopic:
        return None


def handled(view: TopicView) -> SubscriptionView | None:
    """Return the subscription that records which letters are handled, or None."""
    for each in view.subscriptions:
        if each.name == HANDLED and each.shared is not None:
            return each
    return None


async def unhandled(client: Client, topic: str) -> int:
    """Return the number of letters in a dead-letter topic that are not handled."""
    view = await described(client, topic)
    if view is None:
        return 0
    subscription = handled(view)
    return view.next - view.first if subscription is None else subscription.lag
