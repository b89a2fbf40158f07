"""Read a topic with partitions as a member of a consumer group."""

# ruff: noqa: ASYNC109  # timeouts are part of the interface

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from oncecast.client.arguments import check_count, check_wait
from oncecast.client.membership import Membership
from oncecast.client.partition_reader import PartitionReader
from oncecast.client.partitioning import each_of
from oncecast.client.requests import Requests
from oncecast.client.subscription import Subscription
from oncecast.errors import (
    Closed,
    Fenced,
    InvalidArgument,
    MessagesLost,
    NoSuchTopic,
    NotAssigned,
    NotSubscribed,
    OncecastError,
    Overloaded,
    TimedOut,
)
from oncecast.network.entropy import random_hex
from oncecast.wire.message import Message
from oncecast.wire.partitions import Enlist, LeaveGroup, partition_topic

if TYPE_CHECKING:
    from oncecast.client.groups import Groups
    from oncecast.wire.commands import Start

LIFETIME = 10.0  # seconds after which the partitions of a silent member go to other members
# Maximum seconds that a member keeps a partition that it shall release, while the application
# handles its last message.
PATIENCE = 30.0
TURN = 100  # maximum number of messages from one partition before those of another one
TRY_AGAIN = (TimedOut, Overloaded)


class Part:
    """A partition that this member reads."""

    def __init__(self, reader: PartitionReader, partition: int, term: int) -> None:
        self.reader, self.partition, self.term = reader, partition, term
        self.leaving = False  # no more of its messages are handed out
        self.idle = asyncio.Event()  # the application has handled all messages handed out
        self.stopping: asyncio.Task[None] | None = None


class GroupSubscription(Subscription):
    """The messages of the partitions that the group assigns to this member.

    Use it like any `Subscription`. Created by `Client.subscribe` for a topic with partitions. It
    has a reader for each of its partitions, and no queue of its own.
    """

    def __init__(
        self, requests: Requests, owner: Groups, topic: str, name: str, *, auto_ack: bool
    ) -> None:
        self.topic, self.name, self.auto_ack = topic, name, auto_ack
        self.start = -1  # each partition has its own offsets
        self.member = random_hex(8)
        self._requests, self._groups = requests, owner
        self._membership = Membership(LIFETIME)
        self._parts: dict[int, Part] = {}  # by partition
        self._current: Part | None = None  # the partition of the last message
        self._turn = 0  # number of messages taken from it in a row
        self._arrived = asyncio.Event()
        self._changed = asyncio.Event()  # wakes the task that enlists
        self._error: OncecastError | None = None
        self._enlisting: asyncio.Task[None] | None = None
        self._stopping: dict[asyncio.Task[None], None] = {}

    def __repr__(self) -> str:
        return f"<GroupSubscription {self.name!r} of topic {self.topic!r}>"

    @property
    def partitions(self) -> tuple[int, ...]:
        """Return the partitions that this member reads now."""
        return tuple(sorted(each.partition for each in self._parts.values() if not each.leaving))

    # -- membership --

    async def join(self) -> Self:
        """Enlist, and start to read the partitions that are assigned to this member."""
        await self._enlist()
        self._enlisting = asyncio.create_task(self._keep_enlisting())
        return self

    async def ready(self) -> Self:
        self._raise_error()
        return self

    async def _enlist(self) -> None:
        membership, sent = self._membership, self._requests.loop.time()
        lifetime_us = int(membership.lifetime * 1e6)
        released = tuple(membership.released)
        command = Enlist(self.topic, self.name, self.member, lifetime_us, 0, released)
        found = await self._requests.call(command, min(membership.lifetime, self._requests.timeout))
        if self._error is not None:
            return
        self._groups.saw(self.topic, found.partitions)
        changes = membership.enlisted(sent, found)
        for partition in changes.drop:
            self._drop(partition)
        for partition, _ in changes.release:
            self._release(self._parts[partition])
        for partition, term in changes.take:
            reader = self._groups.open(self, partition, term, self._wake)
            self._parts[partition] = Part(reader, partition, term)
        self._wake()

    async def _keep_enlisting(self) -> None:
        loop = self._requests.loop
        while self._error is None:
            self._changed.clear()
            pause = max(self._membership.due - loop.time(), 0.0)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            try:
                await self._enlist()
            except TRY_AGAIN:
                continue  # the request has already waited
            except OncecastError as error:
                self.fail(error)

    def _release(self, part: Part) -> None:
        part.leaving = True
        if part is not self._current and self._handled(part):
            part.idle.set()
        part.stopping = self._run(self._stop(part))

    async def _stop(self, part: Part) -> None:
        """Stop to read a partition as soon as the application has handled its messages."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await part.idle.wait()
        with suppress(OncecastError):
            await part.reader.close(ack=part.idle.is_set())
        if self._parts.get(part.partition) is part:
            del self._parts[part.partition]
            self._membership.stopped(part.partition, part.term, self._requests.loop.time())
            self._changed.set()

    def _handled(self, part: Part) -> bool:
        """Return whether no message handed out waits for its acknowledgement."""
        return self.auto_ack or part.reader.acknowledged

    def _drop(self, partition: int) -> None:
        """Stop to read a partition that belongs to another member."""
        part = self._parts.pop(partition, None)
        if part is not None:
            part.leaving = True
            part.idle.set()
            if part is self._current:
                self._current = None
            part.reader.drop(NotAssigned(part.reader.topic, self.name))

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._stopping[task] = None
        task.add_done_callback(lambda done: self._stopping.pop(done, None))
        return task

    # -- getting --

    async def get(self, timeout: float | None = None) -> Message | None:
        """Return the next message, or None if none arrives within `timeout` seconds.

        It has the name of the topic, its partition, and its offset within the partition.
        """
        message = self._take()
        if message is not None or (timeout is not None and not await self._comes(timeout)):
            return message
        while (message := self._take()) is None:
            await self._wait()
        return message

    async def get_many(self, count: int, timeout: float | None = None) -> list[Message]:
        """Return 1 to `count` messages, or [] if none arrives within `timeout` seconds."""
        check_count(count)
        first = await self.get(timeout)
        if first is None:
            return []
        current = self._current
        # All come from one partition, so that the next call acknowledges all of them together.
        if count == 1 or current is None or current.leaving:
            return [first]
        return [first, *current.reader.take_more(count - 1)]

    async def __aiter__(self) -> AsyncIterator[Message]:
        while True:
            message = await self.get()
            if message is not None:
                yield message

    def take_arrived(self) -> Message | None:
        """Return None: only the event loop's thread may take messages of a group."""
        return None

    def _take(self) -> Message | None:
        """Return the next message that has arrived, or None. Acknowledge those taken before."""
        self._raise_error()
        current = self._current
        if self._membership.over(self._requests.loop.time()):
            self._finish_turn()
            return None
        if current is not None and not current.leaving and self._turn < TURN:
            message = current.reader.take_next()
            if message is not None:
                self._turn += 1
                return message
        self._finish_turn()
        # The partitions take turns: the one read last comes last.
        for partition, part in list(self._parts.items()):
            self._check_part(part)
            if part.leaving and self._handled(part):
                part.idle.set()  # a transaction may have acknowledged its messages
            message = None if part.leaving else part.reader.take_next()
            if message is not None:
                del self._parts[partition]
                self._parts[partition] = self._current = part
                self._turn = 1
                return message
        return None

    def _finish_turn(self) -> None:
        """Acknowledge the messages taken from the current partition, if `auto_ack` is set."""
        current, self._current = self._current, None
        if current is not None:
            current.reader.acknowledge_taken()
            if current.leaving and self._handled(current):
                current.idle.set()

    def _check_part(self, part: Part) -> None:
        """Raise the error of a reader, unless the partition was given to another member."""
        try:
            part.reader.raise_error()
        except MessagesLost:
            raise
        except (Fenced, NotAssigned):
            part.leaving = True  # the next answer drops it, or gives it a new term
            part.idle.set()
            self._membership.due = 0.0
            self._changed.set()
        except OncecastError as error:
            if not part.leaving:
                self.fail(error)
                raise

    def _wake(self) -> None:
        self._arrived.set()

    async def _wait(self) -> None:
        self._arrived.clear()
        await self._arrived.wait()

    async def _comes(self, timeout: float) -> bool:
        """Wait for a message. Return False if none arrives within `timeout` seconds."""
        check_wait(timeout)
        if timeout <= 0:
            return await self._at_hand()
        try:
            async with asyncio.timeout(timeout):
                while not self._queued():
                    await self._wait()
        except TimeoutError:
            return False
        return True

    async def _at_hand(self) -> bool:
        """Return whether one of the partitions holds another message, and wait for it."""
        for part in list(self._parts.values()):
            if not part.leaving:
                with suppress(Fenced, NotAssigned):
                    if await part.reader.has_more():
                        return True
        return False

    def _queued(self) -> bool:
        if self._error is not None:
            return True  # so that the caller raises it
        if self._membership.over(self._requests.loop.time()):
            return False
        return any(each.reader.queued and not each.leaving for each in self._parts.values())

    # -- acknowledging --

    def ack(self, message: Message) -> None:
        """Acknowledge this message and all before it in its partition."""
        part = self._part_of(message)
        part.reader.ack(message)
        if part.leaving and self._handled(part):
            part.idle.set()

    def nack(self, message: Message) -> None:
        """Redeliver this message and all after it in its partition, marked `redelivered`."""
        self._part_of(message).reader.nack(message)

    def _part_of(self, message: Message) -> Part:
        self._raise_error()
        if not isinstance(message, Message):
            raise InvalidArgument(
                f"{message!r:.80} is not a message", "pass a message that get() returned"
            )
        if message.topic != self.topic or message.partition < 0:
            raise InvalidArgument(
                f"the message is from topic {message.topic!r}, not {self.topic!r}"
            )
        part = self._parts.get(message.partition)
        if part is None or isinstance(part.reader.end, Fenced | NotAssigned | Closed):
            raise NotAssigned(partition_topic(self.topic, message.partition), self.name)
        return part

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until the nodes have stored all acknowledgements."""
        self._raise_error()
        await each_of([self._flush(each, timeout) for each in list(self._parts.values())])

    async def _flush(self, part: Part, timeout: float | None) -> None:
        try:
            await part.reader.flush(timeout)
        except Closed:
            if part.stopping is None:
                raise
            await asyncio.wait([part.stopping])  # it stores the acknowledgements
        except (Fenced, NotAssigned):
            raise NotAssigned(part.reader.topic, self.name) from None

    async def seek(self, start: Start, timeout: float | None = None) -> None:
        """Continue reading all partitions of the group at a time, at `EARLIEST` or at `NEW`."""
        self._raise_error()
        await self._groups.seek(self.topic, self.name, start)

    # -- the end --

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def fail(self, error: OncecastError) -> None:
        if self._error is None:
            self._error = error
            self._groups.forget(self)
            for part in list(self._parts.values()):
                part.reader.fail(error)
            self._changed.set()
            self._wake()

    async def close(self, *, ack: bool = True) -> None:
        """Stop reading, and give the partitions to other members.

        `ack` has the same meaning as in `Subscription.close`.
        """
        if self._error is not None:
            return
        self._error = Closed(f"subscription {self.name!r} of topic {self.topic!r} is closed")
        self._wake()
        self._changed.set()
        if self._enlisting is not None:
            await asyncio.wait([self._enlisting])
        for task in list(self._stopping):
            task.cancel()
        current = self._current
        closings = [
            each.reader.close(ack=ack or each is not current) for each in self._parts.values()
        ]
        outcomes = await asyncio.gather(*closings, return_exceptions=True)
        self._groups.forget(self)
        with suppress(NoSuchTopic, NotSubscribed):  # the topic or the group is gone
            await self._requests.call(LeaveGroup(self.topic, self.name, self.member, 0))
        for each in outcomes:
            if isinstance(each, BaseException) and not isinstance(each, Fenced | NotAssigned):
                raise each

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close(ack=kind is None)
