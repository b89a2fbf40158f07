"""Transactions: put, and acknowledge what was consumed, in one step or not at all (TXN-1).

async with client.transaction("billing") as t:
    await t.put("bills", bill)
    t.ack(order)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

from oncecast.client.arguments import check_name, check_topic
from oncecast.client.jobs import Job, SharedSubscription
from oncecast.client.parcel import Parcel
from oncecast.client.requests import Requests
from oncecast.client.session.local import Begin, Begun, End
from oncecast.client.subscription import Subscription
from oncecast.errors import (
    Closed,
    Fenced,
    InvalidArgument,
    NotAcknowledged,
    OncecastError,
    PayloadTooLarge,
    Revoked,
    TooMany,
)
from oncecast.kernel.topic_tag import tag_of
from oncecast.wire import commands as do
from oncecast.wire.batch import Oversized
from oncecast.wire.message import Message
from oncecast.wire.results import PublishedRange, TransactionEnded
from oncecast.wire.sharing import runs_of
from oncecast.wire.transactions import (
    JOBS_MAX,
    STAGED_MAX,
    SUBSCRIPTIONS_MAX,
    TOPICS_MAX,
    Accepted,
    Consumed,
    EndTransaction,
    Output,
    across_groups,
)

if TYPE_CHECKING:
    from oncecast.client.subscriptions import Subscriptions

STAGE_BYTES = 4 * 1024 * 1024  # size at which a transaction stages its messages in parts
STAGING_MAX = 4  # maximum parts of one transaction in flight
# After these errors, the commit may have taken effect: this one, or one before it in doubt.
DOUBTFUL = (Revoked, Fenced, NotAcknowledged)


class Range:
    """The messages that a transaction consumed from an exclusive subscription."""

    __slots__ = ("epoch", "first", "upto")

    def __init__(self, epoch: int, first: int) -> None:
        self.epoch, self.first, self.upto = epoch, first, first


class Inputs:
    """The messages that a transaction consumed, by subscription."""

    def __init__(self) -> None:
        self.ranges: dict[Subscription, Range] = {}
        self.jobs: dict[SharedSubscription, list[Job]] = {}
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self.ranges or self.jobs)

    @property
    def topics(self) -> list[str]:
        return [each.topic for each in self.ranges] + [each.topic for each in self.jobs]

    def add_message(self, subscription: Subscription, message: Message) -> None:
        if subscription not in self.ranges:
            self._check_subscriptions()
        epoch, first = subscription.claim(message, self)
        found = self.ranges.setdefault(subscription, Range(epoch, first))
        if found.epoch != epoch:
            raise InvalidArgument(
                f"subscription {subscription.name!r} of topic {message.topic!r} was moved during "
                "the transaction",
                "start again with the messages that arrive now",
            )
        found.upto = max(found.upto, message.offset + 1)

    def add_job(self, owner: SharedSubscription, job: Job) -> None:
        if owner not in self.jobs:
            self._check_subscriptions()
        if self._count >= JOBS_MAX:
            raise too_many("acknowledges", self._count + 1, "jobs", JOBS_MAX)
        owner.claim(job)
        self._count += 1
        self.jobs.setdefault(owner, []).append(job)

    def _check_subscriptions(self) -> None:
        count = len(self.ranges) + len(self.jobs) + 1
        if count > SUBSCRIPTIONS_MAX:
            raise too_many("acknowledges", count, "subscriptions", SUBSCRIPTIONS_MAX)

    def consumed(self) -> tuple[Consumed, ...]:
        return tuple(
            [
                Consumed(each.topic, each.name, found.epoch, found.first, found.upto)
                for each, found in self.ranges.items()
            ]
        )

    def accepted(self) -> tuple[Accepted, ...]:
        return tuple(
            [
                Accepted(
                    *owner.where,
                    owner.worker,
                    tuple(runs_of(sorted((job.token, job.offset) for job in jobs))),
                )
                for owner, jobs in self.jobs.items()
            ]
        )

    def keep(self) -> None:
        """Tell the subscriptions that the messages are acknowledged."""
        for subscription, found in self.ranges.items():
            subscription.transacted(found.epoch, found.upto)
        for owner, jobs in self.jobs.items():
            owner.transacted(jobs)

    async def ask_node(self, error: OncecastError) -> None:
        """Find out which messages are acknowledged, after a commit with an unknown outcome."""
        ranges, self.ranges = self.ranges, {}
        for subscription, found in ranges.items():
            await subscription.resolve(found.epoch, found.first, found.upto, error)

    def give_back(self, error: BaseException) -> None:
        """Have the messages delivered again."""
        for subscription, found in self.ranges.items():
            subscription.give_back(found.epoch, found.first)
        for owner, jobs in self.jobs.items():
            owner.give_back(jobs, error)


class Transaction:
    """Puts and acknowledgements that take effect together, or not at all.

    Use it in `async with`: the end of the block commits it, and an exception aborts it and is
    raised again. Created by `Client.transaction`.
    """

    def __init__(self, owner: Transactions, source: str) -> None:
        self._owner, self.source = owner, source
        self.ranges: tuple[PublishedRange, ...] = ()  # the offsets of the messages, once committed
        self._inputs = Inputs()
        self._open: dict[str, Parcel] = {}  # batches that accept more messages, by topic
        self._bytes = 0
        self._topics: dict[str, None] = {}  # all topics with messages
        self._parts: list[str] = []
        self._staging: list[asyncio.Task[None]] = []
        self._beginning: asyncio.Task[Begun] | None = None
        self._entered = self._is_open = False

    def __repr__(self) -> str:
        return f"<Transaction of {self.source!r}>"

    # -- put --

    async def put(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
    ) -> None:
        """Put a message when the transaction commits. Messages to one topic keep their order."""
        self._check_open()
        check_topic(topic)
        if topic not in self._topics:
            if len(self._topics) >= TOPICS_MAX:
                raise too_many("puts to", len(self._topics) + 1, "topics", TOPICS_MAX)
            self._topics[topic] = None
        self._add(topic, value, key, headers)
        if self._bytes >= min(STAGE_BYTES, self._owner.most // 2):
            self._stage_all()
            while len(self._staging) > STAGING_MAX:
                await self._staging.pop(0)

    def _add(
        self, topic: str, value: bytes, key: bytes | None, headers: Mapping[str, bytes] | None
    ) -> None:
        most = self._owner.most
        parcel = self._open.get(topic)
        if parcel is None:
            parcel = self._open[topic] = Parcel(topic, most, most)
        before = parcel.bytes
        if not parcel.take(value, key, headers):
            try:
                parcel.add(value, key, headers)
            except Oversized as error:
                raise PayloadTooLarge("bytes", most).reworded(str(error)) from None
        self._bytes += parcel.bytes - before

    def _stage_all(self) -> None:
        """Stage all messages so far, in parts that readers do not see."""
        parcels, self._open, self._bytes = self._open, {}, 0
        count = len(self._parts) + len(parcels)
        if count > STAGED_MAX:
            raise too_many("needs", count, "staged parts of about 4 MiB", STAGED_MAX)
        for topic, parcel in parcels.items():
            batch, count = parcel.build(self._owner.zstd), parcel.count
            name = f"{len(self._parts):06}"
            self._parts.append(name)
            stage = self._stage(name, topic, count, batch)
            self._staging.append(asyncio.create_task(stage))

    async def _stage(self, name: str, topic: str, count: int, batch: bytes) -> None:
        begun = await self._begin(topic)
        check_tag(begun, topic)
        facts = (self.source, begun.number, name, topic, count, len(batch), 0, batch)
        with explained(self.source):
            await self._owner.requests.call(do.Stage(*facts, epoch=begun.epoch))

    async def _begin(self, topic: str) -> Begun:
        """Return the number of the transaction. Open the source if necessary."""
        if self._beginning is None:
            seconds = self._owner.requests.timeout
            begin = self._owner.requests.answer(
                lambda ticket: Begin(ticket, self.source, topic, seconds)
            )
            self._beginning = asyncio.create_task(begin)
        with explained(self.source):
            return await asyncio.shield(self._beginning)

    # -- acknowledge --

    def ack(self, consumed: Message | Job, subscription: str | None = None) -> None:
        """Acknowledge a message and all before it, or a job, when the transaction commits.

        A message belongs to the open exclusive subscription of its topic. If the client reads
        several, pass the name of the subscription.
        """
        self._check_open()
        if isinstance(consumed, Job):
            self._inputs.add_job(consumed.owner, consumed)
        elif isinstance(consumed, Message):
            found = self._owner.reader(consumed.topic, subscription)
            self._inputs.add_message(found, consumed)
        else:
            raise InvalidArgument(f"{consumed!r:.80} is neither a message nor a job")

    # -- end --

    def _check_open(self) -> None:
        if not self._is_open:
            raise Closed("the transaction is not open", "use it in `async with`, and only once")

    async def __aenter__(self) -> Self:
        if self._entered:
            raise Closed("the transaction was used before", "start another one")
        self._entered = self._is_open = True
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, _: object) -> None:
        self._is_open = False
        if error is not None:
            self._abort(error)
            return
        # If the caller is cancelled, the commit continues, because it may have been sent.
        await asyncio.shield(self._owner.run(self._commit()))

    async def _commit(self) -> None:
        try:
            ended = await self._committed()
        except BaseException as error:
            if isinstance(error, DOUBTFUL):
                await self._inputs.ask_node(error)
            self._abort(error)
            raise
        self._inputs.keep()
        self.ranges = ended.ranges

    async def _committed(self) -> TransactionEnded:
        while self._staging:
            await self._staging.pop(0)
        outputs = tuple([self._output(parcel) for parcel in self._open.values()])
        topics = [*self._topics, *self._inputs.topics]
        if not topics:
            return TransactionEnded(True, (), already=False)
        begun = await self._begin(topics[0])
        for topic in topics:
            check_tag(begun, topic)
        consumed, accepted = self._inputs.consumed(), self._inputs.accepted()
        self._beginning = None  # From here on, there is nothing to abort.
        return await self._end(
            begun, True, tuple(self._parts), outputs, consumed=consumed, accepted=accepted
        )

    def _output(self, parcel: Parcel) -> Output:
        batch = parcel.build(self._owner.zstd)
        return Output(parcel.topic, parcel.count, len(batch), batch)

    async def _end(
        self,
        begun: Begun,
        commit: bool,
        parts: tuple[str, ...] = (),
        outputs: tuple[Output, ...] = (),
        **inputs: Any,
    ) -> TransactionEnded:
        facts = (self.source, begun.topic, begun.epoch, begun.number, 0, 0)
        command = EndTransaction(*facts, commit, parts, outputs, **inputs)
        with explained(self.source):
            ended: TransactionEnded = await self._owner.requests.answer(
                lambda ticket: End(ticket, command)
            )
        return ended

    def _abort(self, error: BaseException) -> None:
        """Give back what was consumed, and drop what was staged, without waiting for the node."""
        self._inputs.give_back(error)
        if self._beginning is not None:
            self._owner.run(self._drop(self._beginning))

    async def _drop(self, beginning: asyncio.Task[Begun]) -> None:
        for task in self._staging:
            task.cancel()
        await asyncio.gather(*self._staging, return_exceptions=True)
        with suppress(OncecastError):
            await self._end(await beginning, commit=False)


class Transactions:
    """The transactions of a client."""

    def __init__(
        self,
        requests: Requests,
        subscriptions: Subscriptions,
        limit: Callable[[], int],  # the maximum size of a batch
        zstd: int | None,
    ) -> None:
        self.requests, self.zstd = requests, zstd
        self._subscriptions, self._limit = subscriptions, limit
        self._running: dict[asyncio.Task[None], None] = {}

    @property
    def most(self) -> int:
        return self._limit()

    def make(self, source: str) -> Transaction:
        check_name("transaction", source)
        return Transaction(self, source)

    def reader(self, topic: str, name: str | None) -> Subscription:
        """Return the open exclusive subscription of a topic."""
        found = list(islice(self._subscriptions.readers(topic, name), 2))
        if len(found) == 1:
            return found[0]
        ended = self._subscriptions.end_of(topic, name) if not found else None
        if ended is not None:
            raise ended
        if name is not None or not found:
            which = "" if name is None else f" {name!r}"
            raise InvalidArgument(
                f"the client has no open exclusive subscription{which} of topic {topic!r}",
                "acknowledge messages that this client reads, or the job of a message",
            )
        raise InvalidArgument(
            f"the client reads several subscriptions of topic {topic!r}",
            "pass the name of the subscription to ack()",
        )

    def run(self, work: Any) -> asyncio.Task[None]:
        """Run the end of a transaction, which the caller may not wait for."""
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._running[task] = None
        task.add_done_callback(self._ran)
        return task

    def _ran(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        if not task.cancelled():
            # Mark the exception as retrieved. A caller that waits for the task gets it too.
            task.exception()

    async def finish(self) -> None:
        """Wait until all transactions that are ending have ended."""
        while self._running:
            await asyncio.wait(self._running)


def too_many(verb: str, count: int, what: str, limit: int) -> TooMany:
    message = f"the transaction {verb} {count:,} {what} (limit {limit:,})"
    return TooMany(what, limit).reworded(message, "use several transactions")


def check_tag(begun: Begun, topic: str) -> None:
    """Raise an error if the topic can be in another group of the ring."""
    if begun.tag and tag_of(topic) != begun.tag:
        raise InvalidArgument(across_groups(begun.tag, topic))


@contextmanager
def explained(source: str) -> Iterator[None]:
    """Replace the message of a refusal that concerns the source, not the client."""
    try:
        yield
    except Fenced as fenced:
        if fenced.message != Fenced.message:
            raise
        if fenced.epoch:
            message = f"another process has taken over the transactions of {source!r}"
            raise fenced.reworded(message) from None
        message = f"the record of the transactions of {source!r} was deleted"
        raise fenced.reworded(message, "start the transaction again") from None
