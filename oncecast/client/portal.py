"""A thread with a loop, and the ways into it: calls that wait, and puts that are gathered."""

# ruff: noqa: ASYNC109  # what happens when time is over is part of the interface

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar
from weakref import WeakSet

from oncecast.client.errors import Closed
from oncecast.client.parcel import MESSAGE_BYTES
from oncecast.client.putting import Putting

T = TypeVar("T")
GATHERED_BYTES = 8 * 1024 * 1024  # beyond, `put_nowait` waits


class Portal:
    """The thread does not survive a fork: in the child nobody would ever answer."""

    def __init__(self) -> None:
        self.alive = True
        self.forked = False
        self._started: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=self._run, name="oncecast-client", daemon=True)
        self._thread.start()
        self.loop = self._started.result()
        _portals.add(self)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self._started.set_result(asyncio.get_running_loop())
        await self._stop.wait()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:  # of the caller, an interrupt for example: the work ends too
            future.cancel()
            raise

    def leave(self, work: Coroutine[Any, Any, object]) -> None:
        """Have it done, if anybody is left to do it, and wait for nothing: who tidies up may be
        the collector of garbage, in any thread, also in the loop's own."""
        if self.alive:
            asyncio.run_coroutine_threadsafe(work, self.loop)
        else:
            work.close()

    def stop(self) -> None:
        self.alive = False
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


def new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


_portals: WeakSet[Portal] = WeakSet()


def _mark_forked() -> None:
    for portal in _portals:
        portal.alive, portal.forked = False, True


os.register_at_fork(after_in_child=_mark_forked)


def check_open(portal: Portal | None) -> Portal:
    if portal is not None and portal.alive:
        return portal
    if portal is not None and portal.forked:
        raise Closed("the client belongs to the process that forked this one", "open another one")
    raise Closed("the client is not open", "use it in `with`, or open another one")


def call(portal: Portal | None, work: Coroutine[Any, Any, T]) -> T:
    try:
        portal = check_open(portal)
    except Closed:
        work.close()  # it never begins
        raise
    return portal.call(work)


class Gathering:
    """Puts of any thread on their way into the loop: in order, and none is dropped.

    Whoever finds that the loop was not woken wakes it; the loop says that it is awake before it
    looks, so that nothing is given unseen. Without room it stops, and goes on when there is some.
    """

    def __init__(self, portal: Portal, putting: Putting) -> None:
        self._portal, self._putting = portal, putting
        self._given: deque[tuple[Any, ...]] = deque()
        self._bytes = 0  # of that, about: threads may count at once
        self._woken = False
        self._going_on: asyncio.Task[None] | None = None  # when there is room
        self._closed = False

    def put(
        self, topic: str, value: bytes, key: bytes | None, headers: Mapping[str, bytes] | None
    ) -> None:
        size = MESSAGE_BYTES + len(value)
        if key is not None:
            size += len(key)
        if headers:
            size += sum(map(len, dict(headers).values()))
        self._given.append((topic, value, key, headers))
        self._bytes += size
        if self._closed:  # no one may look at it any more
            raise Closed("the client is being closed by another thread")
        if self._bytes > GATHERED_BYTES:
            self._portal.call(self.all_put(None))
        elif not self._woken:
            self._woken = True
            self._portal.loop.call_soon_threadsafe(self._look)

    # In the loop.

    def _look(self) -> None:
        self._woken = False
        if self._going_on is None and not self._put():
            self._going_on = asyncio.create_task(self._go_on())

    def _put(self) -> bool:
        """Whether there was room for all that was here."""
        done = self._putting.put_gathered(self._given)
        if done:
            self._bytes = 0
        return done

    async def _go_on(self) -> None:
        try:
            while not self._put():
                await self._putting.wait_for_room()
        finally:
            self._going_on = None

    async def close(self, timeout: float) -> None:
        """Put all that was given before; raise Closed to a thread that gives more."""
        self._closed = True
        await self.all_put(timeout)

    async def all_put(self, timeout: float | None) -> float | None:
        """All that was given before; returns what is left of the time."""
        loop = self._portal.loop
        end = None if timeout is None else loop.time() + timeout
        self._look()
        if self._going_on is not None:
            try:
                async with asyncio.timeout_at(end):
                    await asyncio.shield(self._going_on)
            except TimeoutError:
                fact = f"no room after {timeout:g} s for what `put_nowait` was given"
                remedy = "that is put when there is some; nothing behind it was put"
                raise self._putting.late(fact, remedy) from None
        return None if end is None else max(0.0, end - loop.time())
