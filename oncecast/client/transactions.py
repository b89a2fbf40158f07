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
from oncecast.client.session.local import Begin, Begun, End, EndAll
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
from oncecast.wire.partitions import partition_topic
from oncecast.wire.results import PublishedRange, TransactionEnded
from oncecast.wire.ring_transactions import PARTICIPANTS_MAX
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
        # Whether a group may have held the messages, and given them back itself.
        self.held = False

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
            owner.give_back(jobs, error, tolerant=self.held)


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
        self._bytes = self._staged = 0  # bytes in these batches, and the number of staged parts
        self._topics: dict[str, None] = {}  # all topics with messages
        self._parts: dict[str, list[str]] = {}  # staged parts by tag, or by "" outside a ring
        self._staging: list[asyncio.Task[None]] = []
        # The number of the transaction by tag. The first one also tells whether there are tags.
        self._beginning: dict[str, asyncio.Task[Begun]] = {}
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
        count = self._staged + len(parcels)
        if count > STAGED_MAX:
            raise too_many("needs", count, "staged parts of about 4 MiB", STAGED_MAX)
        for topic, parcel in parcels.items():
            batch, count = parcel.build(self._owner.zstd), parcel.count
            name, self._staged = f"{self._staged:06}", self._staged + 1
            stage = self._stage(name, topic, count, batch)
            self._staging.append(asyncio.create_task(stage))

    async def _stage(self, name: str, topic: str, count: int, batch: bytes) -> None:
        begun = await self._begin(topic)
        self._parts.setdefault(begun.tag, []).append(name)
        facts = (self.source, begun.number, name, topic, count, len(batch), 0, batch)
        with explained(self.source):
            await self._owner.requests.call(do.Stage(*facts, epoch=begun.epoch))

    async def _begin(self, topic: str) -> Begun:
        """Return the number of the transaction for a topic. Open the source if necessary."""
        first = next(iter(self._beginning), "")
        if first:
            begun = await self._number(first)
            if not begun.tag:
                return begun
        return await self._number(tag_of(topic))

    async def _number(self, tag: str) -> Begun:
        if tag not in self._beginning:
            seconds = self._owner.requests.timeout
            begin = self._owner.requests.answer(
                lambda ticket: Begin(ticket, self.source, tag, seconds)
            )
            self._beginning[tag] = asyncio.create_task(begin)
        with explained(self.source):
            return await asyncio.shield(self._beginning[tag])

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
            topic = consumed.topic
            if consumed.partition >= 0:  # a member of a consumer group reads the partition
                topic = partition_topic(topic, consumed.partition)
            found = self._owner.reader(topic, subscription)
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
        shares = await self._shares(topics, outputs)
        self._beginning = {}  # From here on, there is nothing to abort.
        if len(shares) == 1:
            return await self._end(lambda ticket: End(ticket, shares[0]))
        self._inputs.held = True
        return await self._end(lambda ticket: EndAll(ticket, shares))

    async def _shares(
        self, topics: list[str], outputs: tuple[Output, ...]
    ) -> tuple[EndTransaction, ...]:
        """Return one command for each tag, or a single one outside a ring.

        The numbers are taken in the order of the tags. So transactions that wait for a number do
        not wait for each other.
        """
        tags = sorted({tag_of(each) for each in topics})
        first = await self._begin(tags[0])
        consumed, accepted = self._inputs.consumed(), self._inputs.accepted()
        if not first.tag:
            parts = tuple(sorted(self._parts.get("", ())))
            return (self._share(first, parts, outputs, consumed, accepted),)
        if len(tags) > PARTICIPANTS_MAX + 1:
            raise too_many("uses", len(tags), "tags", PARTICIPANTS_MAX + 1)
        shares = []
        for tag in tags:
            share = self._share(
                await self._begin(tag),
                tuple(sorted(self._parts.get(tag, ()))),
                tuple([each for each in outputs if tag_of(each.topic) == tag]),
                tuple([each for each in consumed if tag_of(each.topic) == tag]),
                tuple([each for each in accepted if tag_of(each.topic) == tag]),
            )
            shares.append(share)
        return tuple(shares)

    def _share(
        self,
        begun: Begun,
        parts: tuple[str, ...],
        outputs: tuple[Output, ...],
        consumed: tuple[Consumed, ...],
        accepted: tuple[Accepted, ...],
    ) -> EndTransaction:
        facts = (self.source, begun.topic, begun.epoch, begun.number, 0, 0, True)
        return EndTransaction(*facts, parts, outputs, consumed, accepted)

    def _output(self, parcel: Parcel) -> Output:
        batch = parcel.build(self._owner.zstd)
        return Output(parcel.topic, parcel.count, len(batch), batch)

    async def _end(self, make: Callable[[int], End | EndAll]) -> TransactionEnded:
        with explained(self.source):
            ended: TransactionEnded = await self._owner.requests.answer(make)
        return ended

    def _abort(self, error: BaseException) -> None:
        """Give back what was consumed, and drop what was staged, without waiting for the node."""
        self._inputs.give_back(error)
        if self._beginning:
            self._owner.run(self._drop())

    async def _drop(self) -> None:
        for task in self._staging:
            task.cancel()
        await asyncio.gather(*self._staging, return_exceptions=True)
        for beginning in list(self._beginning.values()):
            with suppress(OncecastError):
                begun = await beginning
                facts = (self.source, begun.topic, begun.epoch, begun.number, 0, 0)
                command = EndTransaction(*facts, commit=False)
                await self._end(lambda ticket, command=command: End(ticket, command))  # type: ignore[misc]


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
                "pass ack() a message from an exclusive subscription that this client has open; "
                "for a shared subscription, pass the job",
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
