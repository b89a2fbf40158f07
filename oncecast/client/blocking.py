"""The blocking client: the methods of the asynchronous client, without `await`.

    with oncecast.blocking.connect("127.0.0.1:7400") as client:
        news = client.subscribe("news")
        client.put("news", b"hello")
        for message in news: ...

A background thread runs the asynchronous client. Each call runs a coroutine in that thread and
waits for the result. There are two exceptions: `put_nowait` only queues the message, and `get`
returns a message that has already arrived. Threads may share a client, but not a subscription.
"""

from __future__ import annotations

import os
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from oncecast.client import client as asynchronous
from oncecast.client.access import AccessControl, TokenInfo
from oncecast.client.dead_letters import DeadLetter
from oncecast.client.dead_letters import DeadLetters as AsyncDeadLetters
from oncecast.client.jobs import PREFETCH, Handler, Job
from oncecast.client.jobs import SharedSubscription as AsyncSharedSubscription
from oncecast.client.options import SCAN_BYTES
from oncecast.client.parcel import Receipt
from oncecast.client.portal import Gathering, Portal, call, check_open
from oncecast.client.scanning import Located, Slice
from oncecast.client.shared import Shared
from oncecast.client.starts import EARLIEST, NEW
from oncecast.client.subscription import Subscription as AsyncSubscription
from oncecast.client.subscriptions import Subscribed
from oncecast.client.transactions import Transaction as AsyncTransaction
from oncecast.network.tls import Tls
from oncecast.security.values import Rule
from oncecast.wire.commands import Start
from oncecast.wire.frames import GroupView, RingView, TopicView, View
from oncecast.wire.message import Message
from oncecast.wire.results import PublishedRange
from oncecast.wire.retention import DEFAULT, Policy

if TYPE_CHECKING:
    from datetime import datetime

T = TypeVar("T")


# Long because each operation of a client is one short method here.
class Client:
    """A client for programs without an event loop. Create one with `connect` or `embedded`.

    See `oncecast.Client` for the documentation of each method.
    """

    def __init__(
        self, make: Callable[[], AbstractAsyncContextManager[asynchronous.Client]]
    ) -> None:
        self._make = make
        self._portal: Portal | None = None
        self._context: AbstractAsyncContextManager[asynchronous.Client]
        self._inner: asynchronous.Client
        self._gathering: Gathering
        # The cluster's users, tokens and rules, for administrators.
        self.access = Access(self._call, lambda: self._client.access)

    # -- open and close --

    def __enter__(self) -> Self:
        portal = Portal()
        try:
            self._context = self._make()
            self._inner = portal.call(_enter(self._context))
        except BaseException:
            portal.stop()
            raise
        self._gathering = Gathering(portal, self._inner.parts.putting)
        self._portal = portal
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(ack=kind is None)

    def close(self, *, ack: bool = True, timeout: float | None = None) -> None:
        portal, self._portal = self._portal, None
        if portal is None or portal.forked:
            return

        async def leave() -> None:
            try:
                await self._gathering.close(self._inner.parts.requests.seconds(timeout))
            finally:
                try:
                    await self._inner.close(ack=ack, timeout=timeout)
                finally:
                    await self._context.__aexit__(None, None, None)

        try:
            portal.call(leave())
        finally:
            portal.stop()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return call(self._portal, work)

    @property
    def _client(self) -> asynchronous.Client:
        check_open(self._portal)
        return self._inner

    @property
    def name(self) -> str:
        return self._client.name

    @property
    def led(self) -> bool:
        return self._client.led

    def node_of(self, topic: str) -> str:
        return self._client.node_of(topic)

    # -- put --

    def _put(
        self,
        work: Callable[[asynchronous.Client, float | None], Coroutine[Any, Any, T]],
        timeout: float | None,
    ) -> T:
        """Put the messages queued by `put_nowait`, then run `work` with the remaining timeout."""

        async def put() -> T:
            left = await self._gathering.all_put(timeout)
            return await work(self._client, left)

        return self._call(put())

    def put(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timeout: float | None = None,
        *,
        delay: float | None = None,
        at: float | datetime | None = None,
        ttl: float | None = None,
    ) -> Receipt:
        return self._put(
            lambda client, left: client.put(
                topic, value, key, headers, left, delay=delay, at=at, ttl=ttl
            ),
            timeout,
        )

    def put_nowait(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
    ) -> None:
        """Queue a message without waiting. If it fails, the next `flush` raises the error.

        Block only while more than 8 MiB are queued.
        """
        if self._portal is None or not self._portal.alive:
            check_open(self._portal)
        self._gathering.put(topic, value, key, headers)

    def put_many(
        self,
        topic: str,
        values: Iterable[bytes],
        timeout: float | None = None,
        *,
        delay: float | None = None,
        at: float | datetime | None = None,
        ttl: float | None = None,
    ) -> Receipt | None:
        return self._put(
            lambda client, left: client.put_many(topic, values, left, delay=delay, at=at, ttl=ttl),
            timeout,
        )

    def flush(self, timeout: float | None = None) -> None:
        self._put(lambda client, left: client.flush(left), timeout)

    # -- subscribe and get --

    def subscribe(
        self,
        topic: str,
        subscription: str | None = None,
        *,
        start: Start = NEW,
        start_at: int | None = None,
        auto_ack: bool = True,
        push: bool = False,
    ) -> Subscription:
        work = self._client.subscribe(
            topic, subscription, start=start, start_at=start_at, auto_ack=auto_ack, push=push
        )
        return Subscription(check_open(self._portal), self._call(work))

    def read(
        self,
        topic: str,
        subscription: str | None = None,
        *,
        start_at: int | None = None,
        auto_ack: bool = True,
        push: bool = False,
    ) -> Subscription:
        work = self._client.read(
            topic, subscription, start_at=start_at, auto_ack=auto_ack, push=push
        )
        return Subscription(check_open(self._portal), self._call(work))

    def work(
        self,
        topic: str,
        subscription: str,
        *,
        prefetch: int = PREFETCH,
        start: Start = NEW,
        shared: Shared | None = None,
        create: bool = True,
    ) -> SharedSubscription:
        work = self._client.work(
            topic, subscription, prefetch=prefetch, start=start, shared=shared, create=create
        )
        return SharedSubscription(check_open(self._portal), self._call(work))

    def dead_letters(self, topic: str, subscription: str) -> DeadLetters:
        inner = self._client.dead_letters(topic, subscription)
        return DeadLetters(check_open(self._portal), inner)

    def create_subscription(
        self,
        topic: str,
        subscription: str | None = None,
        *,
        start: Start = NEW,
        shared: Shared | None = None,
    ) -> Subscribed:
        return self._call(
            self._client.create_subscription(topic, subscription, start=start, shared=shared)
        )

    def unsubscribe(self, topic: str, subscription: str | None = None) -> bool:
        return self._call(self._client.unsubscribe(topic, subscription))

    def get(self, topic: str, timeout: float | None = None) -> Message | None:
        return self._call(self._client.get(topic, timeout))

    def get_many(self, topic: str, count: int, timeout: float | None = None) -> list[Message]:
        return self._call(self._client.get_many(topic, count, timeout))

    def seek(self, topic: str, subscription: str, start: Start) -> int:
        return self._call(self._client.seek(topic, subscription, start))

    # -- topics --

    def create_topic(
        self, topic: str, policy: Policy = DEFAULT, *, partitions: int | None = None
    ) -> bool:
        return self._call(self._client.create_topic(topic, policy, partitions=partitions))

    def set_partitions(self, topic: str, partitions: int) -> int:
        return self._call(self._client.set_partitions(topic, partitions))

    def partitions(self, topic: str) -> list[TopicView]:
        return self._call(self._client.partitions(topic))

    def set_policy(self, topic: str, policy: Policy) -> None:
        self._call(self._client.set_policy(topic, policy))

    def delete_topic(self, topic: str) -> bool:
        return self._call(self._client.delete_topic(topic))

    def describe(self, topic: str) -> TopicView:
        return self._call(self._client.describe(topic))

    def topics(self, prefix: str = "") -> Iterator[TopicView]:
        return iter(self._call(_all(self._client, prefix)))

    def locate(self, topic: str, start: Start) -> Located:
        return self._call(self._client.locate(topic, start))

    def scan(
        self,
        topic: str,
        start: Start = EARLIEST,
        until: int | None = None,
        *,
        topic_id: int = 0,
        size: int = SCAN_BYTES,
    ) -> Iterator[Slice]:
        portal = check_open(self._portal)
        pages = self._client.parts.usable.scans.pages(
            topic, start, until, topic_id=topic_id, size=size
        )
        try:
            while page := self._call(_next(pages)):
                yield from page
        finally:
            portal.leave(pages.aclose())

    def hold(self, topic: str, subscription: str, start: Start) -> int:
        return self._call(self._client.hold(topic, subscription, start))

    # -- transactions --

    def transaction(self, source: str | None = None) -> Transaction:
        return Transaction(check_open(self._portal), self._client.transaction(source))

    # -- staged puts --

    def stage(
        self,
        source: str,
        number: int,
        part: str,
        topic: str,
        count: int,
        batch: bytes,
        *,
        run: str = "",
    ) -> bool:
        return self._call(self._client.stage(source, number, part, topic, count, batch, run=run))

    def publish_staged(
        self,
        source: str,
        number: int,
        parts: Iterable[str],
        topic: str = "",
        *,
        run: str = "",
        digest: bytes = b"",
        keep: bool = False,
    ) -> tuple[PublishedRange, ...]:
        call = self._client.publish_staged(
            source, number, parts, topic, run=run, digest=digest, keep=keep
        )
        return self._call(call)

    def drop_staged(self, source: str, number: int, topic: str = "", *, run: str = "") -> int:
        return self._call(self._client.drop_staged(source, number, topic, run=run))

    def close_source(self, source: str, topic: str = "") -> bool:
        return self._call(self._client.close_source(source, topic))

    # -- the cluster --

    def group(self) -> GroupView:
        return self._call(self._client.group())

    def add_replica(self, node: str) -> GroupView:
        return self._call(self._client.add_replica(node))

    def remove_replica(self, node: str) -> GroupView:
        return self._call(self._client.remove_replica(node))

    def transfer_leader(self, node: str) -> GroupView:
        return self._call(self._client.transfer_leader(node))

    def ring(self, tree: str = "") -> RingView:
        return self._call(self._client.ring(tree))

    def leave_ring(self) -> RingView:
        return self._call(self._client.leave_ring())

    def ping(self) -> View:
        return self._call(self._client.ping())


class Access:
    """Users, tokens and rules. See `oncecast.client.access.AccessControl` for each method."""

    def __init__(
        self, call: Callable[[Coroutine[Any, Any, Any]], Any], inner: Callable[[], AccessControl]
    ) -> None:
        self._call, self._inner = call, inner

    def add_user(self, name: str, password: str | None = None, *, admin: bool = False) -> None:
        self._call(self._inner().add_user(name, password, admin=admin))

    def remove_user(self, name: str) -> bool:
        return bool(self._call(self._inner().remove_user(name)))

    def users(self) -> list[str]:
        found: list[str] = self._call(self._inner().users())
        return found

    def create_token(self, principal: str, expires_after: float | None = None) -> str:
        return str(self._call(self._inner().create_token(principal, expires_after)))

    def revoke_token(self, token: str) -> bool:
        return bool(self._call(self._inner().revoke_token(token)))

    def tokens(self) -> list[TokenInfo]:
        found: list[TokenInfo] = self._call(self._inner().tokens())
        return found

    def allow(self, principal: str, *verbs: str, topic: str = "", name: str = "") -> bool:
        return bool(self._call(self._inner().allow(principal, *verbs, topic=topic, name=name)))

    def disallow(self, principal: str, *verbs: str, topic: str = "", name: str = "") -> bool:
        return bool(self._call(self._inner().disallow(principal, *verbs, topic=topic, name=name)))

    def rules(self) -> list[Rule]:
        found: list[Rule] = self._call(self._inner().rules())
        return found


class Subscription:
    """The messages of one subscription. Use `for` or `get`. See `oncecast.Subscription`."""

    def __init__(self, portal: Portal, inner: AsyncSubscription) -> None:
        self._portal, self._inner = portal, inner
        self.topic, self.name, self.start = inner.topic, inner.name, inner.start

    def __repr__(self) -> str:
        return repr(self._inner)

    def get(self, timeout: float | None = None) -> Message | None:
        if not self._portal.alive:
            check_open(self._portal)
        message: Message | None = self._inner.take_arrived()
        return message if message is not None else self._call(self._inner.get(timeout))

    def get_many(self, count: int, timeout: float | None = None) -> list[Message]:
        return self._call(self._inner.get_many(count, timeout))

    def __iter__(self) -> Iterator[Message]:
        while True:
            message = self.get()
            if message is not None:
                yield message

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return call(self._portal, work)

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

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(ack=kind is None)


class SharedSubscription:
    """The jobs of one worker. Use `for`, `get` or `run`. See `oncecast.SharedSubscription`."""

    def __init__(self, portal: Portal, inner: AsyncSharedSubscription) -> None:
        self._portal, self._inner = portal, inner
        self.topic, self.name, self.prefetch = inner.topic, inner.name, inner.prefetch

    def __repr__(self) -> str:
        return repr(self._inner)

    def get(self, timeout: float | None = None) -> Job | None:
        return self._call(self._inner.get(timeout))

    def __iter__(self) -> Iterator[Job]:
        while (job := self.get()) is not None:
            yield job

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return call(self._portal, work)

    def run(self, handler: Handler, *, concurrency: int = 1) -> None:
        """Run `handler` in `concurrency` threads. See `oncecast.SharedSubscription.run`."""
        self._call(self._inner.run(handler, concurrency=concurrency))

    def flush(self, timeout: float | None = None) -> None:
        self._call(self._inner.flush(timeout))

    def stop(self) -> None:
        """Start to drain. Signal handlers and other threads may call this."""
        check_open(self._portal).loop.call_soon_threadsafe(self._inner.stop)

    def resize(self, prefetch: int) -> None:
        check_open(self._portal).loop.call_soon_threadsafe(self._inner.resize, prefetch)
        self.prefetch = prefetch

    def drain(self, timeout: float | None = None) -> None:
        self._call(self._inner.drain(timeout))

    def close(self) -> None:
        self._call(self._inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class DeadLetters:
    """The dead letters of one shared subscription. See `oncecast.DeadLetters`."""

    def __init__(self, portal: Portal, inner: AsyncDeadLetters) -> None:
        self._portal, self._inner = portal, inner
        self.topic, self.subscription = inner.topic, inner.subscription

    def __repr__(self) -> str:
        return repr(self._inner)

    def count(self) -> int:
        return call(self._portal, self._inner.count())

    def first(self, count: int = 100, after: int = -1) -> list[DeadLetter]:
        return call(self._portal, self._inner.first(count, after))

    def show(self, offset: int) -> DeadLetter:
        return call(self._portal, self._inner.show(offset))

    def drop(self, offsets: Collection[int] | None = None) -> int:
        return call(self._portal, self._inner.drop(offsets))

    def retry(self, offsets: Collection[int] | None = None, to: str | None = None) -> int:
        return call(self._portal, self._inner.retry(offsets, to))


class Transaction:
    """Puts and acknowledgements that take effect together. See `oncecast.Transaction`."""

    def __init__(self, portal: Portal, inner: AsyncTransaction) -> None:
        self._portal, self._inner = portal, inner
        self.source = inner.source

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def ranges(self) -> tuple[PublishedRange, ...]:
        return self._inner.ranges

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return call(self._portal, work)

    def put(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
    ) -> None:
        self._call(self._inner.put(topic, value, key, headers))

    def ack(self, consumed: Message | Job, subscription: str | None = None) -> None:
        self._call(_do(self._inner.ack, consumed, subscription))

    def __enter__(self) -> Self:
        self._call(self._inner.__aenter__())
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._call(self._inner.__aexit__(kind, error, trace))


async def _enter(context: AbstractAsyncContextManager[T]) -> T:
    return await context.__aenter__()


async def _all(client: asynchronous.Client, prefix: str) -> list[TopicView]:
    return [view async for view in client.topics(prefix)]


async def _next(pages: AsyncGenerator[list[Slice], None]) -> list[Slice]:
    return await anext(pages, [])


async def _do(work: Callable[..., None], *arguments: Any) -> None:
    work(*arguments)


def connect(
    address: str = asynchronous.DEFAULT_ADDRESS,
    *,
    name: str | None = None,
    state: str | os.PathLike[str] | None = None,
    timeout: float = 30.0,
    connect_timeout: float = 5.0,
    tls: Tls | None = None,
    cluster: str = "oncecast",
    zstd: int | None = None,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    any_replica: bool = False,
) -> Client:
    """Return a blocking client. Takes the same options as `oncecast.connect`."""
    make = partial(
        asynchronous.Client,
        address,
        name=name,
        state=state,
        timeout=timeout,
        connect_timeout=connect_timeout,
        tls=tls,
        cluster=cluster,
        zstd=zstd,
        user=user,
        password=password,
        token=token,
        any_replica=any_replica,
    )
    make()  # Raise an error for an invalid option now, not on entering `with`.
    return Client(make)


def embedded(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    state: str | os.PathLike[str] | None = None,
    timeout: float = 30.0,
    connect_timeout: float = 5.0,
    tls: Tls | None = None,
    cluster: str = "oncecast",
    zstd: int | None = None,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
) -> Client:
    """Return a blocking client for a node in this process. See `oncecast.embedded`."""
    from oncecast.client.embedded import Embedded

    make = partial(
        Embedded,
        path,
        name=name,
        state=state,
        timeout=timeout,
        connect_timeout=connect_timeout,
        tls=tls,
        cluster=cluster,
        zstd=zstd,
        user=user,
        password=password,
        token=token,
    )
    make()
    return Client(make)
