"""The blocking face of the client: the same names, without `await`.

    with oncecast.blocking.connect("127.0.0.1:7400") as client:
        news = client.subscribe("news")
        client.put("news", b"hello")
        for message in news: ...

A thread runs the asynchronous client; each call here hands its work over and waits. Only what is
called once a message takes a shorter way: `put_nowait` gathers, and a message that has arrived is
taken without asking the thread. A client may be shared by threads, a subscription is for one.
"""

# ruff: noqa: ASYNC109

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self, TypeVar

from oncecast.client import client as asynchronous
from oncecast.client.errors import Closed
from oncecast.client.putting import Receipt
from oncecast.client.subscription import Subscription as AsyncSubscription
from oncecast.pubsub.batch import Message
from oncecast.pubsub.commands import Start
from oncecast.pubsub.retention import DEFAULT, Policy
from oncecast.session.frames import TopicView, View

T = TypeVar("T")
NEW = asynchronous.NEW
GATHERED_MAX = 10_000  # messages that `put_nowait` gathers before it waits for the thread


class Portal:
    """A thread with a loop, and the way into it."""

    def __init__(self) -> None:
        self._started: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=self._run, name="oncecast-client", daemon=True)
        self._thread.start()
        self.loop = self._started.result()

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

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


def new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class Client:
    """Made by `connect` or `embedded`; see `oncecast.Client` for what each call does."""

    def __init__(
        self, make: Callable[[], AbstractAsyncContextManager[asynchronous.Client]]
    ) -> None:
        self._make = make
        self._portal: Portal | None = None
        self._context: AbstractAsyncContextManager[asynchronous.Client]
        self._client: asynchronous.Client
        self._gathered: deque[tuple[Any, ...]] = deque()

    # -- life --

    def __enter__(self) -> Self:
        portal = Portal()
        try:
            self._context = self._make()
            self._client = portal.call(_enter(self._context))
        except BaseException:
            portal.stop()
            raise
        self._portal = portal
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        portal, self._portal = self._portal, None
        if portal is None:
            return
        try:
            portal.call(self._leave(kind, error, traceback))
        finally:
            portal.stop()

    async def _leave(self, *reason: Any) -> None:
        self._scatter()
        await self._context.__aexit__(*reason)

    def close(self) -> None:
        self.__exit__(None, None, None)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._open(work).call(work)

    def _open(self, work: Coroutine[Any, Any, Any] | None = None) -> Portal:
        if self._portal is None:
            if work is not None:
                work.close()
            raise Closed("the client is not open")
        return self._portal

    @property
    def name(self) -> str:
        return self._client.name

    # -- putting --

    def put(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        return self._call(self._put(topic, value, key, headers, timeout))

    async def _put(self, *message: Any) -> Receipt:
        self._scatter()
        return await self._client.put(*message)

    def put_nowait(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
    ) -> None:
        """Put without waiting; `flush` tells what became of it. It waits when too much waits."""
        portal, gathered = self._open(), self._gathered
        gathered.append((topic, value, key, headers))
        if len(gathered) == 1:
            portal.loop.call_soon_threadsafe(self._scatter)
        elif len(gathered) >= GATHERED_MAX:
            portal.call(self._make_room())

    def put_many(
        self, topic: str, values: Sequence[bytes], timeout: float | None = None
    ) -> Receipt | None:
        return self._call(self._put_many(topic, values, timeout))

    async def _put_many(self, *messages: Any) -> Receipt | None:
        self._scatter()
        return await self._client.put_many(*messages)

    def flush(self, timeout: float | None = None) -> None:
        self._call(self._flush(timeout))

    async def _flush(self, timeout: float | None) -> None:
        self._scatter()
        await self._client.flush(timeout)

    async def _make_room(self) -> None:
        self._scatter()
        await self._client.room()

    def _scatter(self) -> None:
        """In the loop: put what was gathered."""
        gathered, put = self._gathered, self._client.put_later
        while gathered:
            put(*gathered.popleft())

    # -- subscriptions --

    def subscribe(
        self,
        topic: str,
        subscription: str | None = None,
        *,
        start: Start = NEW,
        start_at: int | None = None,
        auto_ack: bool = True,
    ) -> Subscription:
        work = self._client.subscribe(
            topic, subscription, start=start, start_at=start_at, auto_ack=auto_ack
        )
        return Subscription(self._call, self._call(work))

    def read(
        self,
        topic: str,
        subscription: str | None = None,
        *,
        start_at: int | None = None,
        auto_ack: bool = True,
    ) -> Subscription:
        work = self._client.read(topic, subscription, start_at=start_at, auto_ack=auto_ack)
        return Subscription(self._call, self._call(work))

    def unsubscribe(self, topic: str, subscription: str | None = None) -> bool:
        return self._call(self._client.unsubscribe(topic, subscription))

    def get(self, topic: str, timeout: float | None = None) -> Message | None:
        return self._call(self._client.get(topic, timeout))

    def get_many(self, topic: str, count: int, timeout: float | None = None) -> list[Message]:
        return self._call(self._client.get_many(topic, count, timeout))

    def seek(self, topic: str, subscription: str, start: Start) -> int:
        return self._call(self._client.seek(topic, subscription, start))

    # -- topics --

    def create_topic(self, topic: str, policy: Policy = DEFAULT) -> bool:
        return self._call(self._client.create_topic(topic, policy))

    def set_policy(self, topic: str, policy: Policy) -> None:
        self._call(self._client.set_policy(topic, policy))

    def delete_topic(self, topic: str) -> bool:
        return self._call(self._client.delete_topic(topic))

    def describe(self, topic: str) -> TopicView:
        return self._call(self._client.describe(topic))

    def topics(self, prefix: str = "") -> Iterator[TopicView]:
        return iter(self._call(_all(self._client, prefix)))

    def ping(self) -> View:
        return self._call(self._client.ping())


class Subscription:
    """`for message in subscription`, or `get`; see `oncecast.Subscription`."""

    def __init__(
        self, call: Callable[[Coroutine[Any, Any, Any]], Any], inner: AsyncSubscription
    ) -> None:
        self._call, self._inner = call, inner
        self.topic, self.name = inner.topic, inner.name

    def get(self, timeout: float | None = None) -> Message | None:
        message: Message | None = self._inner.take_arrived()
        return message if message is not None else self._call(self._inner.get(timeout))

    def get_many(self, count: int, timeout: float | None = None) -> list[Message]:
        taken: list[Message] = self._call(self._inner.get_many(count, timeout))
        return taken

    def __iter__(self) -> Iterator[Message]:
        while True:
            message = self.get()
            if message is not None:
                yield message

    def ack(self, message: Message) -> None:
        self._call(_do(self._inner.ack, message))

    def nack(self, message: Message) -> None:
        self._call(_do(self._inner.nack, message))

    def flush(self, timeout: float | None = None) -> None:
        self._call(self._inner.flush(timeout))

    def seek(self, start: Start, timeout: float | None = None) -> None:
        self._call(self._inner.seek(start, timeout))

    def close(self, *, ack: bool = True) -> None:
        self._call(self._inner.close(ack=ack))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(ack=kind is None)


async def _enter(context: AbstractAsyncContextManager[T]) -> T:
    return await context.__aenter__()


async def _all(client: asynchronous.Client, prefix: str) -> list[TopicView]:
    return [view async for view in client.topics(prefix)]


async def _do(work: Callable[[Message], None], message: Message) -> None:
    work(message)


def connect(address: str = asynchronous.DEFAULT_ADDRESS, **options: Any) -> Client:
    """As `oncecast.connect`, with the same options."""
    return Client(lambda: asynchronous.Client(address, **options))


def embedded(path: str | os.PathLike[str], **options: Any) -> Client:
    """As `oncecast.embedded`."""
    from oncecast.client.embedded import Embedded

    return Client(lambda: Embedded(path, **options))
