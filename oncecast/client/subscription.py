"""A subscription as its reader sees it: messages in order, each once in this life."""

# ruff: noqa: ASYNC109  # what happens when time is over is part of the interface

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

from oncecast.client.errors import (
    Closed,
    InvalidArgument,
    MessagesLost,
    OncecastError,
    TimedOut,
    raised,
)
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
from oncecast.wire.batch import Message
from oncecast.wire.errors import NoSuchTopic

if TYPE_CHECKING:
    from oncecast.client.client import Client
    from oncecast.wire.commands import Start

TELL_AFTER = 0.05  # seconds after which the session hears what was taken
NOT_BY_COUNT = -1  # a mark that no count of messages falls to


class Subscription:
    """`async for message in subscription`, or `get`. Made by `Client.subscribe`.

    With `auto_ack` (the default), asking for the next message acknowledges the messages before it,
    whether or not there is a next one. Without it, only `ack` acknowledges.
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        name: str,
        *,
        auto_ack: bool,
        start_at: int | None,
        push: bool,
    ) -> None:
        self.topic, self.name, self.auto_ack = topic, name, auto_ack
        self._client = client
        self._inbox = Inbox(auto_ack=auto_ack)
        self._queue = self._inbox.queue
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._end_of_topic = 0
        self._ready = False
        self._lost: MessagesLost | None = None  # to be raised once
        self._error: OncecastError | None = None  # to be raised from now on
        self._telling: asyncio.TimerHandle | None = None
        self._slow: float = NEVER  # with more than so many here, taking one is all there is to do
        self._hailed = False  # another thread has asked for `_took`
        client.session_request(Read(topic, name, -1 if start_at is None else start_at, push))

    # -- getting --

    async def get(self, timeout: float | None = None) -> Message | None:
        """The next message; None if there is none within `timeout` seconds.

        Without a timeout it waits for as long as it takes. With 0 it does not wait for anything to
        be put: it asks the node, and takes what is there.
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
        """What is there, at least one and at most `count`; [] if nothing comes in time."""
        if count < 1:
            raise InvalidArgument(f"count {count}: ask for at least one message")
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
        """For another thread than the loop's: a message if one is here, and nothing is amiss."""
        if len(self._queue) > self._slow:
            return self._queue.popleft()
        message = self._inbox.take()
        if message is not None and not self._hailed:
            self._hailed = True
            self._client.from_thread(self._took)
        return message

    def _take(self) -> Message | None:
        message = self._inbox.take()
        if message is not None:
            self._took()
        return message

    def _ask(self) -> None:
        """The application asks for a message and none is here: it is done with those before."""
        if self._inbox.auto_ack and self._inbox.last:
            self._slow = NEVER  # taking from the queue is not noted, and `last` must be 1 for it
            self._inbox.acknowledge_all()
            self._tell_later()

    def _took(self) -> None:
        """The session hears of it: at once when its credit is low, otherwise in a while."""
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
            self._telling = self._client.loop.call_later(TELL_AFTER, self._tell)

    def _tell(self) -> None:
        self._slow = NEVER
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        inbox = self._inbox
        if self._error is None and self._ready:
            self._client.session_request(Want(self.topic, self.name, inbox.handed, inbox.ack))

    # -- waiting --

    async def _arrival(self, timeout: float | None) -> bool:
        """Whether there is something to take now; raises what there is to be raised."""
        if timeout is None:
            await self._message()
            return True
        if timeout <= 0:
            return await self._at_hand()
        try:
            async with asyncio.timeout(timeout):
                await self._message()
        except TimeoutError:
            return False
        return True

    async def _at_hand(self) -> bool:
        """Whether the node has something that was not taken yet; then it has come when we return.

        That takes no longer than a call may.
        """
        patience = self._client.patience(None)
        try:
            async with asyncio.timeout(patience):
                if not await self._due():
                    return False
                await self._message()
        except TimedOut:
            raise
        except TimeoutError:
            raise TimedOut(f"topic {self.topic!r}: nothing comes within {patience:g} s") from None
        return True

    async def _message(self) -> None:
        """When there is one to take."""
        while not self._queue:
            self._raise()
            await self._wait()

    def _raise(self) -> None:
        lost, self._lost = self._lost, None
        if lost is not None:
            raise lost
        self._raise_error()

    async def _wait(self) -> None:
        waiter = self._client.loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    async def _due(self) -> bool:
        """Is there anything that was not taken yet? The node knows, of what is not here."""
        self._raise()
        if self._inbox.handed >= self._end_of_topic:
            patience = self._client.patience(None)
            view = await self._client.finished(
                lambda ticket: Show(ticket, self.topic, subscriptions=False, timeout=patience), None
            )
            if not view.topics:
                raise raised(NoSuchTopic(self.topic))
            self._end_of_topic = max(self._end_of_topic, view.topics[0].next)
        return self._inbox.handed < self._end_of_topic or self._lost is not None

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def ready(self) -> Self:
        """When it is attached; raises why it cannot be."""
        while not self._ready:
            self._raise()
            await self._wait()
        return self

    # -- what the session says --

    def _to(self, offset: int) -> None:
        self._slow = NEVER
        self._inbox.position(offset)

    def positioned(self, event: Positioned) -> None:
        self._to(event.offset)
        self._end_of_topic = event.next
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
        self.fail(raised(event.why))

    def fail(self, error: OncecastError) -> None:
        self._error = self._error or error
        self._to(self._inbox.handed)  # what was not taken is somebody else's now
        if self._telling is not None:
            self._telling.cancel()
        self._client.readings.forget(self)
        self._wake()

    # -- acknowledging --

    def ack(self, message: Message) -> None:
        """This message and all before it are done with. The node hears it soon; `flush` waits."""
        self._check(message)
        try:
            self._inbox.acknowledge(message.offset)
        except ValueError as error:
            raise InvalidArgument(str(error)) from None
        self._took()

    def nack(self, message: Message) -> None:
        """Hand out this message, and all behind it, once more; they are marked `redelivered`.

        A `get` that waits meanwhile returns this message. Raise InvalidArgument if the message is
        acknowledged: with `auto_ack`, asking for the next message acknowledges those before it.
        """
        self._check(message)
        try:
            self._slow = NEVER
            handed = self._inbox.back(message.offset)
        except ValueError as error:
            raise InvalidArgument(str(error)) from None
        self._client.session_request(Again(self.topic, self.name, message.offset, handed))

    def _check(self, message: Message) -> None:
        self._raise_error()
        if message.topic != self.topic:
            raise InvalidArgument(
                f"a message of topic {message.topic!r}: it was not got from {self.topic!r}"
            )

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    async def flush(self, timeout: float | None = None) -> None:
        """Return when the node has on disk what was acknowledged."""
        self._raise_error()
        inbox = self._inbox
        await self._client.finished(
            lambda ticket: Settle(ticket, self.topic, self.name, inbox.handed, inbox.ack),
            timeout,
        )

    async def seek(self, start: Start, timeout: float | None = None) -> None:
        """Read on from another place: an offset, a time, `EARLIEST` or `NEW`."""
        self._raise_error()
        await self._client.finished(
            lambda ticket: Move(
                ticket, self.topic, self.name, start, self._client.patience(timeout)
            ),
            None,
        )

    # -- the end --

    async def close(self, *, ack: bool = True) -> None:
        """Stop reading; the subscription stays, and keeps what comes.

        With `auto_ack` all that was got is acknowledged, unless `ack` is false: then the last that
        was got comes again, marked `redelivered`.
        """
        if self._error is not None:
            return
        inbox = self._inbox
        if inbox.auto_ack and ack:
            inbox.acknowledge_all()
        handed, acked = inbox.handed, inbox.ack
        self.fail(Closed(f"the subscription {self.name!r} of topic {self.topic!r} is closed"))
        patience = self._client.patience(None)
        try:
            await self._client.readings.leave(
                self, lambda ticket: Leave(ticket, self.topic, self.name, handed, acked, patience)
            )
        except TimedOut as late:
            fact = f"topic {self.topic!r}: subscription {self.name!r} is closed, but {late.fact}"
            raise type(late)(fact, "the last messages may be delivered again") from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close(ack=kind is None)
