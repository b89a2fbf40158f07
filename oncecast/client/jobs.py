"""The application's view of a shared subscription: jobs, which it settles one by one.

async for job in jobs:
    async with job:
        await handle(job.value)
"""

# ruff: noqa: ASYNC109  # timeouts are part of the interface

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from enum import IntEnum
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Self
from weakref import WeakValueDictionary

from oncecast.client.arguments import check_count, check_wait
from oncecast.client.requests import Requests
from oncecast.client.session.local import (
    Confirm,
    Ended,
    Expired,
    Given,
    Handle,
    Join,
    Lost,
    Part,
    Window,
)
from oncecast.client.shared import microseconds
from oncecast.errors import Closed, InvalidArgument, LeaseLost, OncecastError, TimedOut
from oncecast.wire.message import Message
from oncecast.wire.sharing import BY_BACKOFF, REASON_BYTES_MAX, WINDOW_MAX

if TYPE_CHECKING:
    from oncecast.client.subscriptions import Subscriptions

LOG = logging.getLogger("oncecast.worker")

PREFETCH = 16  # maximum messages that a worker holds, including those that it is handling

Handler = Callable[["Job"], object]  # async, or a plain function


class Stage(IntEnum):
    QUEUED = 0
    STARTED = 1
    CLAIMED = 2  # claimed by a transaction that has not ended
    SETTLED = 3


class Job:
    """A leased message. The first call to `ack`, `nack` or `reject` settles it.

    Use it in `with` or `async with`: the end of the block acknowledges the job, and an exception
    gives it back and is raised again. The client renews the lease until the job is settled. All
    methods may be called from any thread.

    `token` grows with each delivery of a message. Store the token with the result, and refuse a
    result with a smaller token. `deliveries` counts the message's deliveries, including this one.
    """

    __slots__ = ("__weakref__", "_owner", "_stage", "deliveries", "lost", "message", "token")

    def __init__(
        self, owner: SharedSubscription, message: Message, token: int, deliveries: int
    ) -> None:
        self._owner, self._stage = owner, Stage.QUEUED
        self.message, self.token, self.deliveries = message, token, deliveries
        self.lost = False  # whether the lease has ended, so that another worker may have the job

    def __repr__(self) -> str:
        return f"<Job {self.message.offset} of topic {self.message.topic!r}, token {self.token}>"

    @property
    def topic(self) -> str:
        return self.message.topic

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
    def headers(self) -> Mapping[str, bytes]:
        return self.message.headers

    @property
    def owner(self) -> SharedSubscription:
        """Return the subscription that has handed out this job."""
        return self._owner

    @property
    def settled(self) -> bool:
        """Return whether the application has settled this job."""
        return self._stage is Stage.SETTLED

    def ack(self) -> None:
        """Settle the job as done. The subscription's `flush` waits until this is stored."""
        self._owner.settle(self, lambda lease: Handle(*self._owner.where, accept=(lease,)))

    def nack(self, delay: float | None = None, reason: str = "") -> None:
        """Give the job back. A worker gets it again after `delay` seconds.

        Without a delay, the backoff of the subscription applies. After the last allowed delivery,
        the job becomes a dead letter with this reason.
        """
        pause = BY_BACKOFF if delay is None else microseconds("delay", delay)
        check_reason(reason)
        self._owner.settle(
            self, lambda lease: Handle(*self._owner.where, release=((*lease, pause, reason),))
        )

    def reject(self, reason: str = "") -> None:
        """Make the job a dead letter now. Use this if another delivery cannot help."""
        check_reason(reason)
        self._owner.settle(
            self, lambda lease: Handle(*self._owner.where, reject=((*lease, reason),))
        )

    def _leave(self, error: BaseException | None) -> None:
        if self.settled:
            return
        if error is None:
            self.ack()
            return
        with suppress(OncecastError):  # do not hide the handler's error
            stopped = not isinstance(error, Exception)
            self.nack(0 if stopped else None, shortened(f"{type(error).__name__}: {error}"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        self._leave(error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, _: object) -> None:
        self._leave(error)


class SharedSubscription:
    """The jobs of one worker. Use `async for`, `get` or `run`. Created by `Client.work`."""

    def __init__(
        self, requests: Requests, owner: Subscriptions, topic: str, name: str, *, prefetch: int
    ) -> None:
        self.topic, self.name, self.prefetch = topic, name, prefetch
        self.where = (topic, name)
        self._requests, self._owner = requests, owner
        self._thread = threading.get_ident()
        self._queue: deque[Job] = deque()
        self._started: dict[tuple[int, int], Job] = {}  # by token and offset, until settled
        self._known: WeakValueDictionary[tuple[int, int], Job] = WeakValueDictionary()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._settling: list[Handle] = []  # sent at the end of this event loop iteration
        self._draining = False
        self._idle: asyncio.Future[None] | None = None  # the future that `drain` waits for
        self._refused: LeaseLost | None = None  # the error that the next flush raises
        # Jobs of aborted transactions, which the node may have taken back, until the next flush.
        self._given_back: dict[tuple[int, int], None] = {}
        self._error: OncecastError | None = None  # the error that every later call raises
        self.worker = ""  # the name of the worker in the session
        requests.send(Join(topic, name, prefetch))

    def __repr__(self) -> str:
        return f"<SharedSubscription {self.name!r} of topic {self.topic!r}>"

    @property
    def error(self) -> OncecastError | None:
        """Return the error that every call raises, or None while the worker is open."""
        return self._error

    @property
    def queued(self) -> int:
        """Return the number of jobs that have arrived and were not handed out."""
        return len(self._queue)

    # -- getting --

    async def get(self, timeout: float | None = None) -> Job | None:
        """Return the next job, or None if none arrives within `timeout` seconds.

        Without a timeout, wait until a job arrives. Return None once the worker drains.
        """
        if timeout is None:
            await self._arrival()
        else:
            check_wait(timeout)
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._arrival()
        if not self._queue:
            return None
        job = self._queue.popleft()
        job._stage = Stage.STARTED
        self._started[job.token, job.offset] = job
        return job

    async def _arrival(self) -> None:
        """Wait until a job is queued, or until the worker drains."""
        while not self._queue and not self._draining:
            self._raise_error()
            waiter = self._requests.loop.create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    async def __aiter__(self) -> AsyncIterator[Job]:
        """Yield jobs until the worker drains."""
        while (job := await self.get()) is not None:
            yield job

    async def run(self, handler: Handler, *, concurrency: int = 1) -> None:
        """Call `handler(job)` for each job, for up to `concurrency` jobs at a time, until drained.

        The job is acknowledged when the handler returns. If it raises an exception, the exception
        is logged and the job is given back. A function that is not `async` runs in a thread.
        """
        check_count(concurrency)
        handle = handler if iscoroutinefunction(handler) else in_thread(handler)
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(concurrency):
                    tasks.create_task(self._run(handle))
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    async def _run(self, handle: Callable[[Job], Awaitable[object]]) -> None:
        async for job in self:
            try:
                async with job:
                    await handle(job)
            except Exception as error:  # the worker continues with the next job
                LOG.warning("%r failed: %s", job, error, exc_info=error)

    def resize(self, prefetch: int) -> None:
        """Hold up to `prefetch` jobs from now on, and give back queued jobs beyond that.

        With 0, no more jobs arrive, except those that are on the way.
        """
        self._raise_error()
        self.prefetch = prefetch
        self._requests.send(Window(*self.where, prefetch))
        queue = self._queue
        spare = min(len(queue), len(self._started) + len(queue) - prefetch)
        self._give_back([queue.pop() for _ in range(spare)])

    # -- settling --

    def settle(self, job: Job, make: Callable[[tuple[int, int]], Handle]) -> None:
        """Settle a started job. Called by the job."""
        self._raise_error()
        self._check_started(job)
        job._stage = Stage.SETTLED
        handle = make((job.token, job.offset))
        if threading.get_ident() == self._thread:
            self._settle(handle, job)
        else:
            self._requests.loop.call_soon_threadsafe(self._settle, handle, job)

    def _check_started(self, job: Job) -> None:
        if job._stage is Stage.CLAIMED:
            fact = f"offset {job.offset} is part of a transaction that has not ended"
            raise InvalidArgument(fact, "end the transaction first")
        if job._stage is not Stage.STARTED:
            raise InvalidArgument(
                f"offset {job.offset} is already settled", "settle each job only once"
            )

    # -- transactions --

    def claim(self, job: Job) -> None:
        """Leave the settlement of a started job to a transaction."""
        self._raise_error()
        self._check_started(job)
        job._stage = Stage.CLAIMED

    def transacted(self, jobs: list[Job]) -> None:
        """Forget jobs that a transaction has acknowledged."""
        for job in jobs:
            job._stage, job.lost = Stage.SETTLED, False
            self._started.pop((job.token, job.offset), None)
        leases = tuple([(job.token, job.offset) for job in jobs])
        self._requests.send(Handle(*self.where, transacted=leases))
        self._tell_idle()

    def give_back(self, jobs: list[Job], error: BaseException, *, tolerant: bool = False) -> None:
        """Give back the jobs of a transaction that was aborted.

        With `tolerant`, the node may have taken them back already.
        """
        for job in jobs:
            if tolerant:
                self._given_back[job.token, job.offset] = None
            job._stage = Stage.STARTED
            job._leave(error)

    def _settle(self, handle: Handle, job: Job) -> None:
        self._started.pop((job.token, job.offset), None)
        self._send(handle)
        self._tell_idle()

    def _send(self, handle: Handle) -> None:
        if not self._settling:
            self._requests.loop.call_soon(self._tell)
        self._settling.append(handle)

    def _tell(self) -> None:
        """Send all settlements from this iteration to the session in one request."""
        some, self._settling = self._settling, []
        if len(some) == 1:
            self._requests.send(some[0])
        elif some:
            self._requests.send(
                Handle(
                    *self.where,
                    tuple([each for handle in some for each in handle.accept]),
                    tuple([each for handle in some for each in handle.release]),
                    tuple([each for handle in some for each in handle.reject]),
                    tuple([each for handle in some for each in handle.unused]),
                )
            )

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until the node has stored all settlements.

        Raise LeaseLost if it has refused a settlement since the last flush.
        """
        self._raise_error()
        self._tell()
        await self._requests.answer(lambda ticket: Confirm(ticket, *self.where), timeout)
        self._given_back.clear()
        refused, self._refused = self._refused, None
        if refused is not None:
            raise refused

    def _give_back(self, jobs: list[Job]) -> None:
        leases = tuple([(job.token, job.offset) for job in jobs])
        for job in jobs:
            job._stage = Stage.SETTLED
        if leases:
            self._send(Handle(*self.where, unused=leases))

    # -- session events --

    def given(self, event: Given) -> None:
        self.worker = event.worker
        jobs = [
            Job(self, message, event.token, deliveries)
            for message, deliveries in zip(event.messages, event.deliveries, strict=True)
        ]
        if self._draining:
            self._give_back(jobs)
            return
        for job in jobs:
            self._known[job.token, job.offset] = job
        self._queue.extend(jobs)
        self._wake()

    def expired(self, event: Expired) -> None:
        self._give_back(self._dequeue(set(event.leases)))

    def lost(self, event: Lost) -> None:
        self._dequeue(set(event.leases))
        for lease in event.leases:
            job = self._known.get(lease)
            if job is not None:
                job.lost = True
            started = self._started.pop(lease, None)
            tolerated = lease in self._given_back
            self._given_back.pop(lease, None)
            if started is None and (job is None or job.settled) and not tolerated:
                self._refused = self._refused or LeaseLost(*self.where, lease[1])
        self._tell_idle()

    def _dequeue(self, leases: set[tuple[int, int]]) -> list[Job]:
        """Remove and return the queued jobs with these leases."""
        found = [job for job in self._queue if (job.token, job.offset) in leases]
        if found:
            left = [job for job in self._queue if (job.token, job.offset) not in leases]
            self._queue.clear()
            self._queue.extend(left)
        return found

    def ended(self, event: Ended) -> None:
        self.fail(event.why.raised())

    def fail(self, error: OncecastError) -> None:
        self._error = self._error or error
        self._queue.clear()
        self._owner.forget(self, self._error)
        self._wake()
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    # -- the end --

    def stop(self) -> None:
        """Start draining: hand out no more jobs, and give back those that are not started."""
        if self._draining or self._error is not None:
            return
        self._draining = True
        self._requests.send(Window(*self.where, 0))
        self._give_back(list(self._queue))
        self._queue.clear()
        self._wake()

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def drain(self, timeout: float | None = None) -> None:
        """Hand out no more jobs, wait until all started jobs are settled, then close.

        Jobs that are not started go back at once. If the started jobs take longer than `timeout`
        seconds, give them back too, and raise TimedOut.
        """
        if timeout is not None:
            check_wait(timeout)
        self.stop()
        try:
            async with asyncio.timeout(timeout):
                await self._until_idle()
        except TimeoutError:
            count = len(self._started)
            await self.close()
            fact = f"topic {self.topic!r}: not all jobs ended within {timeout:g} s ({count} left)"
            raise TimedOut(fact, "other workers will get the remaining jobs") from None
        await self.close()

    async def _until_idle(self) -> None:
        while self._started and self._error is None:
            self._idle = self._idle or self._requests.loop.create_future()
            await asyncio.shield(self._idle)

    def _tell_idle(self) -> None:
        if self._idle is not None and not self._started:
            if not self._idle.done():
                self._idle.set_result(None)
            self._idle = None

    async def close(self) -> None:
        """Store all settlements, and give back all other jobs. The subscription remains.

        Jobs that are started but not settled go to other workers after the backoff.
        """
        if self._error is not None:
            return
        self.stop()
        self._tell()
        self.fail(
            Closed(f"the worker of subscription {self.name!r} of topic {self.topic!r} is closed")
        )
        seconds = self._requests.timeout
        try:
            await self._owner.leave(self, lambda ticket: Part(ticket, *self.where, seconds))
        except TimedOut as late:
            closed = (
                f"subscription {self.name!r} of topic {self.topic!r} is closed, but unconfirmed: "
            )
            remedy = "the last jobs may be delivered again"
            raise late.reworded(closed + late.message, remedy) from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def in_thread(handler: Handler) -> Callable[[Job], Awaitable[object]]:
    async def handle(job: Job) -> object:
        return await asyncio.to_thread(handler, job)

    return handle


def check_prefetch(prefetch: object) -> None:
    if not isinstance(prefetch, int) or not 1 <= prefetch <= WINDOW_MAX:
        raise InvalidArgument(
            f"prefetch is {prefetch!r:.80} (limits 1 and {WINDOW_MAX:,})",
            "use a number within the limits",
        )


def check_reason(reason: object) -> None:
    if not isinstance(reason, str):
        raise InvalidArgument(f"reason is {reason!r:.80}, not a str")
    size = len(reason.encode(errors="replace"))
    if size > REASON_BYTES_MAX:
        raise InvalidArgument(
            f"the reason is {size:,} bytes long (limit {REASON_BYTES_MAX:,})",
            "use a shorter reason",
        )


def shortened(reason: str) -> str:
    """Return the reason, cut to the maximum length."""
    return reason.encode(errors="replace")[:REASON_BYTES_MAX].decode(errors="ignore")
