"""A thread with an event loop that runs the calls and queued puts of a blocking client."""

# ruff: noqa: ASYNC109  # timeouts are part of the interface

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar
from weakref import WeakSet

from oncecast.client.parcel import MESSAGE_BYTES
from oncecast.client.putting import Putting
from oncecast.errors import Closed

T = TypeVar("T")
GATHERED_BYTES = 8 * 1024 * 1024  # limit on queued bytes, above which `put_nowait` blocks


class Portal:
    """A thread with an event loop. Threads do not survive a fork, so a child cannot use it."""

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
        except BaseException:  # For example, Ctrl-C in the caller cancels the work.
            future.cancel()
            raise

    def leave(self, work: Coroutine[Any, Any, object]) -> None:
        """Run `work` without waiting for it.

        The garbage collector may call this in any thread, including the loop's own.
        """
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
        raise Closed("the client belongs to the parent process")
    raise Closed("the client is not open", "use it in `with`, or open a new one")


def call(portal: Portal | None, work: Coroutine[Any, Any, T]) -> T:
    try:
        portal = check_open(portal)
    except Closed:
        work.close()  # Avoid a warning that the coroutine was never awaited.
        raise
    return portal.call(work)


class Gathering:
    """A queue that passes puts from all threads to the event loop, in order and without loss.

    A put that finds `_woken` unset wakes the loop. The loop unsets `_woken` before it empties the
    queue, so it never misses a put. If the buffer is full, the loop waits for space and then
    continues.
    """

    def __init__(self, portal: Portal, putting: Putting) -> None:
        self._portal, self._putting = portal, putting
        self._queue: deque[tuple[Any, ...]] = deque()
        self._bytes = 0  # queued bytes; approximate, because threads update it concurrently
        self._woken = False
        self._continuing: asyncio.Task[None] | None = None  # the task that waits for buffer space
        self._closed = False

    def put(
        self, topic: str, value: bytes, key: bytes | None, headers: Mapping[str, bytes] | None
    ) -> None:
        size = MESSAGE_BYTES + len(value)
        if key is not None:
            size += len(key)
        if headers:
            size += sum(map(len, dict(headers).values()))
        self._queue.append((topic, value, key, headers))
        self._bytes += size
        if self._closed:  # The loop may have emptied the queue for the last time.
            raise Closed("the client is being closed by another thread")
        if self._bytes > GATHERED_BYTES:
            self._portal.call(self.all_put(None))
        elif not self._woken:
            self._woken = True
            self._portal.loop.call_soon_threadsafe(self._wake)

    # -- in the event loop's thread --

    def _wake(self) -> None:
        self._woken = False
        if self._continuing is None and not self._put():
            self._continuing = asyncio.create_task(self._continue())

    def _put(self) -> bool:
        """Put all queued messages. Return False if there is not enough buffer space."""
        done = self._putting.put_gathered(self._queue)
        if done:
            self._bytes = 0
        return done

    async def _continue(self) -> None:
        try:
            while not self._put():
                await self._putting.wait_for_space()
        finally:
            self._continuing = None

    async def close(self, timeout: float) -> None:
        """Put all queued messages. Later puts from other threads raise Closed."""
        self._closed = True
        await self.all_put(timeout)

    async def all_put(self, timeout: float | None) -> float | None:
        """Put all queued messages. Return the remaining timeout, or raise an error on expiry."""
        loop = self._portal.loop
        end = None if timeout is None else loop.time() + timeout
        self._wake()
        if self._continuing is not None:
            try:
                async with asyncio.timeout_at(end):
                    await asyncio.shield(self._continuing)
            except TimeoutError:
                fact = (
                    f"no space for the messages queued by put_nowait() became free in {timeout:g} s"
                )
                remedy = "they will be put later, but the messages in this call were not put"
                raise self._putting.late(fact, remedy) from None
        return None if end is None else max(0.0, end - loop.time())
