"""The exact requests that the jobs of a worker send to its session (WRK)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from oncecast import errors
from oncecast.client.jobs import Job, SharedSubscription
from oncecast.client.requests import Requests
from oncecast.client.session.local import (
    Confirm,
    Expired,
    Finished,
    Given,
    Handle,
    Join,
    Lost,
    Part,
    Window,
)
from oncecast.client.subscriptions import Subscriptions
from oncecast.kernel.protocol import Value
from oncecast.wire.message import Message
from oncecast.wire.results import Settled
from oncecast.wire.sharing import BY_BACKOFF
from tests.client.serving import run

HERE = ("t", "s")


class Desk:
    """A worker whose session is the test. `asked` has the requests since the last look."""

    def __init__(self) -> None:
        self._asked: list[Value] = []
        self.requests = Requests(self._asked.append, 30.0, led=lambda: True)
        self.requests.open()
        subscriptions = Subscriptions(self.requests)
        self.jobs = SharedSubscription(self.requests, subscriptions, *HERE, prefetch=10)
        self._handlers = {**self.requests.handlers(), **subscriptions.handlers()}
        subscriptions._open[HERE] = self.jobs

    def give(self, *offsets: int, token: int = 7) -> None:
        messages = [Message("t", each, None, b"v", {}, 0, "p", each, False) for each in offsets]
        self.tell(Given(*HERE, token, messages, [1] * len(messages)))

    def tell(self, event: Value) -> None:
        self._handlers[type(event)](event)

    async def asked(self) -> list[Value]:
        """Return the requests, once the event loop has run its callbacks."""
        await asyncio.sleep(0)
        found = self._asked[:]
        self._asked.clear()
        return found

    async def start(self) -> Job:
        job = await self.jobs.get(timeout=0)
        assert job is not None
        return job


def play(scenario: Callable[[Desk], Awaitable[None]]) -> None:
    async def playing() -> None:
        desk = Desk()
        assert await desk.asked() == [Join(*HERE, 10)]
        await scenario(desk)

    run(playing())


def test_settlements_of_one_iteration_are_sent_together() -> None:
    """WRK-2"""

    async def scenario(desk: Desk) -> None:
        desk.give(0, 1, 2, 3)
        first, second, third, fourth = [await desk.start() for _ in range(4)]
        first.ack()
        second.nack(2.5, "later")
        third.reject("bad")
        fourth.nack()
        assert await desk.asked() == [
            Handle(
                *HERE,
                accept=((7, 0),),
                release=((7, 1, 2_500_000, "later"), (7, 3, BY_BACKOFF, "")),
                reject=((7, 2, "bad"),),
            )
        ]

    play(scenario)


def test_job_that_is_returned_without_delay_does_not_wait_for_the_backoff() -> None:
    """WRK-2"""

    async def scenario(desk: Desk) -> None:
        desk.give(0)
        (await desk.start()).nack(delay=0)
        assert await desk.asked() == [Handle(*HERE, release=((7, 0, 0, ""),))]

    play(scenario)


@pytest.mark.parametrize("stop", [asyncio.CancelledError, KeyboardInterrupt, SystemExit])
def test_job_of_a_stopped_handler_is_returned_at_once(stop: type[BaseException]) -> None:
    """WRK-6: the handler has not finished, so the job must not count as done."""

    async def scenario(desk: Desk) -> None:
        desk.give(0)
        job = await desk.start()
        with pytest.raises(stop):
            async with job:
                raise stop
        reason = f"{stop.__name__}: "
        assert await desk.asked() == [Handle(*HERE, release=((7, 0, 0, reason),))]

    play(scenario)


def test_settlement_in_a_thread_is_sent_by_the_event_loop() -> None:
    """WRK-6: the session must not run in two threads."""

    async def scenario(desk: Desk) -> None:
        desk.give(0)
        job = await desk.start()
        threads: list[int] = []
        send = desk.jobs._send

        def recorded(handle: Handle) -> None:
            threads.append(threading.get_ident())
            send(handle)

        desk.jobs._send = recorded  # type: ignore[method-assign]
        await asyncio.to_thread(job.ack)
        assert await desk.asked() == [Handle(*HERE, accept=((7, 0),))]
        assert threads == [threading.get_ident()]

    play(scenario)


# Leases.


def test_job_that_expires_before_it_is_started_is_returned() -> None:
    """WRK-1: another worker may have it already."""

    async def scenario(desk: Desk) -> None:
        desk.give(0, 1, 2)
        started = await desk.start()
        desk.tell(Expired(*HERE, ((7, 0), (7, 1))))
        assert await desk.asked() == [Handle(*HERE, unused=((7, 1),))]
        assert (await desk.start()).offset == 2
        started.ack()  # a renewal may still be in time
        assert await desk.asked() == [Handle(*HERE, accept=((7, 0),))]

    play(scenario)


def test_job_that_is_lost_before_it_is_started_is_dropped() -> None:
    """WRK-3"""

    async def scenario(desk: Desk) -> None:
        desk.give(0, 1)
        desk.tell(Lost(*HERE, ((7, 0),)))
        assert (await desk.start()).offset == 1
        assert await desk.jobs.get(timeout=0) is None
        assert await desk.asked() == []

    play(scenario)


def test_only_a_refused_settlement_fails_the_next_flush() -> None:
    """WRK-3: a job that is lost before its settlement reports it by `lost`."""

    async def scenario(desk: Desk) -> None:
        desk.give(0, 1)
        first, second = await desk.start(), await desk.start()
        second.ack()
        desk.tell(Lost(*HERE, ((7, 0),)))
        assert first.lost
        assert await flush(desk) is None
        desk.tell(Lost(*HERE, ((7, 1),)))
        error = await flush(desk)
        assert isinstance(error, errors.LeaseLost)
        assert await flush(desk) is None

    async def flush(desk: Desk) -> errors.OncecastError | None:
        flushing = asyncio.ensure_future(desk.jobs.flush())
        confirm = (await desk.asked())[-1]
        assert isinstance(confirm, Confirm)
        desk.tell(Finished(confirm.ticket, Settled(0)))
        try:
            await flushing
        except errors.OncecastError as error:
            return error
        return None

    play(scenario)


# The end.


def test_job_that_arrives_while_the_worker_drains_is_returned() -> None:
    """WRK-6: otherwise it would wait for the end of its lease."""

    async def scenario(desk: Desk) -> None:
        desk.give(0)
        desk.jobs.stop()
        assert await desk.asked() == [Window(*HERE, 0), Handle(*HERE, unused=((7, 0),))]
        desk.give(1, 2, token=8)
        assert await desk.asked() == [Handle(*HERE, unused=((8, 1), (8, 2)))]
        assert await desk.jobs.get() is None

    play(scenario)


def test_close_sends_the_last_settlements_before_it_leaves() -> None:
    """WRK-6"""

    async def scenario(desk: Desk) -> None:
        desk.give(0, 1)
        (await desk.start()).ack()
        closing = asyncio.ensure_future(desk.jobs.close())
        *settled, part = await desk.asked()
        assert settled == [
            Handle(*HERE, accept=((7, 0),)),
            Window(*HERE, 0),
            Handle(*HERE, unused=((7, 1),)),
        ]
        assert isinstance(part, Part)
        desk.tell(Finished(part.ticket, Settled(1)))
        await closing

    play(scenario)


def test_drain_ends_when_a_started_job_is_lost() -> None:
    """WRK-6: the worker cannot settle the job any more."""

    async def scenario(desk: Desk) -> None:
        desk.give(0)
        await desk.start()
        draining: Any = asyncio.ensure_future(desk.jobs.drain())
        await desk.asked()
        desk.tell(Lost(*HERE, ((7, 0),)))
        await asyncio.sleep(0)
        (part,) = await desk.asked()
        assert isinstance(part, Part)
        desk.tell(Finished(part.ticket, Settled(1)))
        await draining

    play(scenario)
