"""The application's view of a subscription: each message once and in order."""

# ruff: noqa: ASYNC109  # timeouts are part of the interface

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from oncecast.client.arguments import check_count, check_start, check_wait
from oncecast.client.requests import Requests
from oncecast.client.session.inbox import Inbox
from oncecast.client.session.local import (
    NEVER,
    Again,
    Arrived,
    Ended,
    Leave,
    Move,
    Positioned,
    Read,
    Settle,
    Show,
    Skipped,
    Want,
)
from oncecast.errors import (
    Closed,
    InvalidArgument,
    MessagesLost,
    NoSuchTopic,
    OncecastError,
    TimedOut,
)
from oncecast.wire.message import Message

if TYPE_CHECKING:
    from oncecast.client.subscriptions import Subscriptions
    from oncecast.wire.commands import Start

TELL_AFTER = 0.05  # maximum seconds before the session learns which messages were taken
NOT_BY_COUNT = -1  # a queue length that is never reached


class Subscription:
    """The messages of one subscription. Use `async for` or `get`. Created by `Client.subscribe`.

    `start` is the offset at which reading started.

    With `auto_ack` (the default), asking for the next message acknowledges all messages before it,
    even if none arrives. Without `auto_ack`, only `ack` acknowledges messages.
    """

    def __init__(
        self,
        requests: Requests,
        owner: Subscriptions,
        topic: str,
        name: str,
        *,
        auto_ack: bool,
        start_at: int | None,
        push: bool,
        read: Read | None = None,
    ) -> None:
        self.topic, self.name, self.auto_ack = topic, name, auto_ack
        self.start = -1
        self._requests, self._owner = requests, owner
        self._inbox = Inbox(auto_ack=auto_ack)
        self._queue = self._inbox.queue
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._end_of_topic = self._epoch = 0
        self._claimer: object = None  # the transaction that has messages of this subscription
        self._ready = False
        self._lost: MessagesLost | None = None  # raised once
        self._error: OncecastError | None = None  # the error that every later call raises
        self._telling: asyncio.TimerHandle | None = None
        # While more messages than this are queued, taking a message needs no bookkeeping.
        self._slow: float = NEVER
        self._hailed = False  # whether another thread has scheduled `_took`
        requests.send(read or Read(topic, name, -1 if start_at is None else start_at, push))

    def __repr__(self) -> str:
        return f"<Subscription {self.name!r} of topic {self.topic!r}>"

    # -- getting --

    async def get(self, timeout: float | None = None) -> Message | None:
        """Return the next message, or None if none arrives within `timeout` seconds.

        Without a timeout, wait until a message arrives. With a timeout of 0, ask the node and
        return a message only if the topic holds one now.
        """
        if len(self._queue) > self._slow:
            return self._queue.popleft()
        if not self._queue:
            self._ask()
            if timeout is None:
                await self._message()
            elif not await self._arrival(timeout):
                return None
        return self._take()

    async def get_many(self, count: int, timeout: float | None = None) -> list[Message]:
        """Return 1 to `count` messages, or [] if none arrives within `timeout` seconds."""
        check_count(count)
        if not self._queue:
            self._ask()
            if not await self._arrival(timeout):
                return []
        self._slow = NEVER
        taken = self._inbox.take_many(count)
        self._took()
        return taken

    async def __aiter__(self) -> AsyncIterator[Message]:
        queue = self._queue
        while True:
            if len(queue) > self._slow:
                yield queue.popleft()
            elif (message := self._take()) is not None:
                yield message
            else:
                self._ask()
                await self._arrival(None)

    def take_arrived(self) -> Message | None:
        """Return a queued message, or None. Call this only outside the event loop's thread."""
        if len(self._queue) > self._slow:
            return self._queue.popleft()
        message = self._inbox.take()
        if message is not None and not self._hailed:
            self._hailed = True
            self._requests.loop.call_soon_threadsafe(self._took)
        return message

    def _take(self) -> Message | None:
        message = self._inbox.take()
        if message is not None:
            self._took()
        return message

    def _ask(self) -> None:
        """Acknowledge all taken messages before asking for more, if `auto_ack` is set."""
        if self._inbox.auto_ack and self._inbox.last:
            self._slow = NEVER  # The fast path relies on `last` being 1.
            self._inbox.acknowledge_all()
            self._tell_later()

    def _took(self) -> None:
        """Report taken messages to the session: at once if its credit is low, otherwise later."""
        self._hailed = False
        inbox = self._inbox
        if len(self._queue) <= inbox.mark:
            inbox.mark = len(self._queue) // 2
            self._tell()
        else:
            self._tell_later()
        if self._telling is not None and inbox.last == 1:
            self._slow = max(inbox.mark, 0)

    def _tell_later(self) -> None:
        if self._telling is None:
            self._telling = self._requests.loop.call_later(TELL_AFTER, self._tell)

    def _tell(self) -> None:
        self._slow = NEVER
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        inbox = self._inbox
        if self._error is None and self._ready:
            self._requests.send(Want(self.topic, self.name, inbox.delivered, inbox.ack))

    # -- waiting --

    async def _arrival(self, timeout: float | None) -> bool:
        """Wait for a message. Return False if none arrives within `timeout` seconds."""
        if timeout is None:
            await self._message()
            return True
        check_wait(timeout)
        if timeout <= 0:
            return await self._at_hand()
        try:
            async with asyncio.timeout(timeout):
                await self._message()
        except TimeoutError:
            return False
        return True

    async def _at_hand(self) -> bool:
        """Return whether the topic holds another message. If so, wait for it to arrive first."""
        seconds = self._requests.timeout
        try:
            async with asyncio.timeout(seconds):
                if not await self._due():
                    return False
                await self._message()
        except TimedOut:
            raise
        except TimeoutError:
            raise TimedOut(f"topic {self.topic!r}: no answer within {seconds:g} s") from None
        return True

    async def _message(self) -> None:
        """Wait until a message is queued."""
        while not self._queue:
            self._raise()
            await self._wait()

    def _raise(self) -> None:
        lost, self._lost = self._lost, None
        if lost is not None:
            raise lost
        self._raise_error()

    async def _wait(self) -> None:
        waiter = self._requests.loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    async def _due(self) -> bool:
        """Return whether the topic holds a message that has not been taken yet.

        Ask the node if all known messages have been taken.
        """
        self._raise()
        if self._inbox.delivered >= self._end_of_topic:
            seconds = self._requests.timeout
            view = await self._requests.answer(
                lambda ticket: Show(ticket, self.topic, subscriptions=False, timeout=seconds)
            )
            if not view.topics:
                raise NoSuchTopic(self.topic)
            self._end_of_topic = max(self._end_of_topic, view.topics[0].next)
        return self._inbox.delivered < self._end_of_topic or self._lost is not None

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def ready(self) -> Self:
        """Wait until the node accepts this reader, then return the reader. Raise its refusal."""
        while not self._ready:
            self._raise()
            await self._wait()
        return self

    # -- session events --

    def _to(self, offset: int) -> None:
        self._slow = NEVER
        self._inbox.position(offset)

    def positioned(self, event: Positioned) -> None:
        self._to(event.offset)
        self._end_of_topic, self._epoch = event.next, event.epoch
        if not self._ready:
            self.start = event.offset
        self._ready = True
        self._wake()

    def arrived(self, event: Arrived) -> None:
        self._end_of_topic = event.next
        if self._inbox.arrive(event.messages):
            if not event.low:
                self._inbox.mark = NOT_BY_COUNT
            self._wake()

    def skipped(self, event: Skipped) -> None:
        self._to(event.next)
        self._lost = MessagesLost(self.topic, event.first, event.next)
        self._wake()

    def ended(self, event: Ended) -> None:
        self.fail(event.why.raised())

    def fail(self, error: OncecastError) -> None:
        self._error = self._error or error
        self._to(self._inbox.delivered)  # The next reader gets the messages that were not taken.
        if self._telling is not None:
            self._telling.cancel()
        self._owner.forget(self, self._error)
        self._wake()

    # -- acknowledging --

    def ack(self, message: Message) -> None:
        """Acknowledge this message and all before it. `flush` waits until this is stored."""
        self._check(message)
        self._check_unclaimed()
        try:
            self._inbox.acknowledge(message.offset)
        except ValueError as error:
            raise InvalidArgument(str(error)) from None
        self._took()

    def nack(self, message: Message) -> None:
        """Redeliver this message and all after it, marked `redelivered`.

        Raise InvalidArgument if the message is already acknowledged. With `auto_ack`, asking for
        the next message acknowledges all messages before it.
        """
        self._check(message)
        self._check_unclaimed()
        try:
            self._slow = NEVER
            delivered = self._inbox.back(message.offset)
        except ValueError as error:
            raise InvalidArgument(str(error)) from None
        self._requests.send(Again(self.topic, self.name, message.offset, delivered))

    # -- transactions --

    def claim(self, message: Message, claimer: object) -> tuple[int, int]:
        """Return the epoch, and the first offset that is not acknowledged, for a transaction."""
        self._check(message)
        name = f"subscription {self.name!r} of topic {self.topic!r}"
        if self.auto_ack:
            raise InvalidArgument(
                f"{name} acknowledges messages automatically",
                "subscribe with auto_ack=False, and let transactions acknowledge",
            )
        if self._claimer is not claimer:
            self._check_unclaimed()
        inbox = self._inbox
        if not inbox.ack <= message.offset < inbox.delivered:
            raise InvalidArgument(
                f"offset {message.offset} of {name} is not waiting for an acknowledgement",
                "acknowledge messages once, and after they were delivered",
            )
        self._claimer = claimer
        return self._epoch, inbox.ack

    def _check_unclaimed(self) -> None:
        if self._claimer is not None:
            raise InvalidArgument(
                f"subscription {self.name!r} of topic {self.topic!r} has messages in a transaction "
                "that has not ended",
                "end it first, or use a shared subscription for concurrent work",
            )

    def transacted(self, epoch: int, upto: int) -> None:
        """Continue after messages that a transaction has acknowledged."""
        self._claimer = None
        if self._error is None and epoch == self._epoch:
            self._inbox.acknowledge(upto - 1)
            self._took()

    def give_back(self, epoch: int, first: int) -> None:
        """Redeliver the messages of a transaction that was aborted."""
        self._claimer = None
        if self._error is None and epoch == self._epoch:
            self._slow = NEVER
            delivered = self._inbox.back(first)
            self._requests.send(Again(self.topic, self.name, first, delivered))

    async def resolve(self, epoch: int, first: int, upto: int, error: OncecastError) -> None:
        """Continue after a commit that ended with `error`, and may have taken effect.

        Ask the node for the cursor. If it does not answer, end the reader: the next reader starts
        at the cursor.
        """
        try:
            cursor = await self._owner.cursor(self.topic, self.name)
        except OncecastError:
            with suppress(OncecastError):
                await self._leave(error)
            return
        if cursor > first:
            self.transacted(epoch, min(cursor, upto))
        else:
            self.give_back(epoch, first)

    def _check(self, message: Message) -> None:
        self._raise_error()
        if not isinstance(message, Message):
            raise InvalidArgument(
                f"{message!r:.80} is not a message", "pass a message that get() returned"
            )
        if message.topic != self.topic:
            raise InvalidArgument(
                f"the message is from topic {message.topic!r}, not {self.topic!r}"
            )

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until the node has stored all acknowledgements."""
        self._raise_error()
        inbox = self._inbox
        await self._requests.answer(
            lambda ticket: Settle(ticket, self.topic, self.name, inbox.delivered, inbox.ack),
            timeout,
        )

    async def seek(self, start: Start, timeout: float | None = None) -> None:
        """Continue reading at `start`: an offset, a time, `EARLIEST` or `NEW`."""
        self._raise_error()
        check_start(start)
        seconds = self._requests.seconds(timeout)
        await self._requests.answer(
            lambda ticket: Move(ticket, self.topic, self.name, start, seconds)
        )

    # -- the end --

    async def close(self, *, ack: bool = True) -> None:
        """Stop reading. The subscription remains, and new messages are kept for it.

        With `auto_ack`, acknowledge all messages returned by `get`. With `ack=False`, leave out the
        last message, so that the next reader gets it again. Raise an error if the acknowledgements
        may not be stored.
        """
        if self._error is not None:
            return
        inbox = self._inbox
        if inbox.auto_ack and ack:
            inbox.acknowledge_all()
        try:
            await self._leave(
                Closed(f"subscription {self.name!r} of topic {self.topic!r} is closed")
            )
        except TimedOut as late:
            closed = (
                f"subscription {self.name!r} of topic {self.topic!r} is closed, but unconfirmed: "
            )
            remedy = "the last messages may be delivered again"
            raise late.reworded(closed + late.message, remedy) from None

    async def _leave(self, why: OncecastError) -> None:
        """Stop reading. Later calls raise `why`."""
        delivered, acked = self._inbox.delivered, self._inbox.ack
        self.fail(why)
        seconds = self._requests.timeout
        await self._owner.leave(
            self, lambda ticket: Leave(ticket, self.topic, self.name, delivered, acked, seconds)
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close(ack=kind is None)
