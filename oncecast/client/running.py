"""An open client: a session, the runtime that drives it, and the parts that use the session."""

# ruff: noqa: ASYNC109  # timeouts are part of the interface

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import cached_property, partial
from random import Random
from typing import TYPE_CHECKING, Any, Protocol, Self

from oncecast.client.cluster import Cluster
from oncecast.client.driver import ClientRuntime, broken
from oncecast.client.options import ClientOptions
from oncecast.client.putting import Putting
from oncecast.client.requests import Requests
from oncecast.client.routing import Routers
from oncecast.client.session import local
from oncecast.client.session.client import ClientSession
from oncecast.client.subscription import Subscription
from oncecast.client.subscriptions import MakeSubscription, Subscribed, Subscriptions
from oncecast.errors import Closed, OncecastError, Partitioned
from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.network.entropy import random_hex
from oncecast.wire.commands import Start
from oncecast.wire.frames import TopicView

if TYPE_CHECKING:
    from oncecast.client.access import AccessControl
    from oncecast.client.groups import Groups
    from oncecast.client.partitioning import Partitions
    from oncecast.client.scanning import Scans
    from oncecast.client.state import StateDirectory
    from oncecast.client.topics import Topics
    from oncecast.client.transactions import Transactions


class Observer(Protocol):
    """Observes all requests to a session and all events from it."""

    def asked(self, request: Value) -> None: ...
    def heard(self, event: Value) -> None: ...


class Running:
    """The parts of one open client, wired together. Use it in `async with`."""

    # Long because all the wiring is in one place.
    def __init__(
        self,
        options: ClientOptions,
        *,
        make_subscription: MakeSubscription = Subscription,
        observe: Callable[[ClientSession], Observer] | None = None,
    ) -> None:
        rng = Random()  # not SystemRandom, which makes a system call for each number
        first, *others = options.begin_at(rng)
        self.options = options
        self.session = ClientSession(
            NodeId(f"client/{random_hex(8)}"),
            rng,
            node=NodeId(first),
            others=tuple(map(NodeId, others)),
            producer=options.name or "",
            incarnation=random_hex(16),
            durable=options.state is not None,
            moved=self._moved,
            any_replica=options.any_replica,
        )
        stack = Stack([self.session])
        self._state = open_state(options)
        self.runtime = ClientRuntime(
            stack,
            self.session,
            journal=None if self._state is None else self._state.open(stack, self.session),
            on_event=self._heard,
            ended=self.fail,
            limited=lambda bytes_max: self.putting.limit(bytes_max),
            tls=options.tls,
            login=options.login,
            secret=options.secret,
            cluster=options.cluster,
            connect_timeout=options.connect_timeout,
            busy_poll=options.busy_poll,
        )
        self._observer = observe(self.session) if observe is not None else None
        session = self.session
        self.requests = Requests(self._ask, options.timeout, led=lambda: session.led)
        self.putting = Putting(
            self._ask,
            self.runtime.send_now,
            busy=lambda: session.busy,
            zstd=options.zstd,
            left=session.unsettled,
            patience=options.timeout,
            routers=Routers(self._refresh),
        )
        self.subscriptions = Subscriptions(self.requests, make_subscription)
        self.cluster = Cluster(self.requests)
        self._tasks: dict[asyncio.Future[None], None] = {}  # keeps running tasks alive
        self.temporary: dict[str, None] = {}  # topics whose subscriptions end with this client
        # A client runs only one operation at a time on each dead-letter topic.
        self.handling: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._handlers: dict[type[Value], Callable[[Any], None]] = {
            local.Stored: self.putting.stored,
            local.NotStored: self.putting.not_stored,
            **self.requests.handlers(),
            **self.subscriptions.handlers(),
        }

    # Created and imported on first use, because short commands need none of them.

    @cached_property
    def access(self) -> AccessControl:
        from oncecast.client.access import AccessControl

        return AccessControl(self.requests, self.cluster, partial(access_at, self.options))

    @cached_property
    def scans(self) -> Scans:
        from oncecast.client.scanning import Scans

        return Scans(self.requests)

    @cached_property
    def topics(self) -> Topics:
        from oncecast.client.topics import Topics

        return Topics(self.cluster, partial(topics_at, self.options))

    @cached_property
    def partitions(self) -> Partitions:
        from oncecast.client.partitioning import Partitions

        return Partitions(self.requests, self.topics.describe)

    @cached_property
    def groups(self) -> Groups:
        from oncecast.client.groups import Groups

        saw = self.putting.routers.update
        return Groups(self.requests, self.subscriptions, self.partitions, saw)

    @cached_property
    def transactions(self) -> Transactions:
        from oncecast.client.transactions import Transactions

        putting, zstd = self.putting, self.options.zstd
        return Transactions(self.requests, self.subscriptions, lambda: putting.most, zstd)

    @property
    def usable(self) -> Self:
        """Return this object, or raise an error if the client is closed."""
        self.requests.check_open()
        return self

    def subscription_name(self, name: str | None) -> str:
        """Return `name`, or the client's name if it is None."""
        return self.session.producer if name is None else name

    async def own_subscription(self, topic: str) -> Subscription:
        """Return the subscription that has the client's name. Start reading it if necessary."""
        self.requests.check_open()
        name = self.session.producer
        if found := self.subscriptions.get(topic, name):
            return await found.ready()
        return await self.read(topic, name)

    # A topic with partitions refuses the request, so plain topics need only one.

    async def create(self, topic: str, name: str, start: Start) -> Subscribed:
        """Create a subscription, or a consumer group if the topic has partitions."""
        try:
            return await self.subscriptions.create(topic, name, start)
        except Partitioned:
            return await self.groups.create(topic, name, start)

    async def read(
        self,
        topic: str,
        name: str,
        *,
        auto_ack: bool = True,
        start_at: int | None = None,
        push: bool = False,
    ) -> Subscription:
        """Read a subscription, or join a consumer group if the topic has partitions."""
        if not self.joined(topic, name):
            with suppress(Partitioned):
                return await self.subscriptions.read(
                    topic, name, auto_ack=auto_ack, start_at=start_at, push=push
                )
        return await self.groups.join(topic, name, auto_ack=auto_ack, start_at=start_at, push=push)

    def joined(self, topic: str, name: str) -> bool:
        """Return whether the client is a member of this consumer group."""
        return "groups" in vars(self) and self.groups.get(topic, name) is not None

    async def unsubscribe(self, topic: str, name: str) -> bool:
        """Delete a subscription or a consumer group. Return whether it existed."""
        try:
            return await self.subscriptions.remove(topic, name)
        except Partitioned:
            return await self.groups.remove(topic, name)

    async def seek(self, topic: str, name: str, start: Start) -> int:
        """Move a subscription or a consumer group. Return its next offset, or their sum."""
        try:
            return await self.subscriptions.seek(topic, name, start)
        except Partitioned:
            return await self.groups.seek(topic, name, start)

    # -- between the session and the parts --

    def _ask(self, request: Value) -> None:
        if self._observer is not None:
            self._observer.asked(request)
        self.runtime.request(request)

    def _heard(self, event: Value) -> None:
        if self._observer is not None:
            self._observer.heard(event)
        self._handlers[type(event)](event)

    def _refresh(self, topic: str) -> None:
        """Find out whether a topic that the client puts to has more partitions now."""
        task = asyncio.ensure_future(self.partitions.refresh(topic, self.putting.routers.update))
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def _moved(self, node: NodeId) -> int:
        return self.runtime.moved(node)

    def fail(self, error: OncecastError) -> None:
        """Raise `error` in all waiting and all later calls."""
        self.putting.fail(error)
        self.requests.fail(error)
        if "groups" in vars(self):  # the client has read a topic with partitions
            self.groups.fail(error)
        self.subscriptions.fail(error)

    # -- begin and end --

    async def __aenter__(self) -> Self:
        try:
            await self.runtime.__aenter__()
        except BaseException:
            self._close_state()
            raise
        self.requests.open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close(ack=kind is None, timeout=None)

    async def close(self, *, ack: bool, timeout: float | None) -> None:
        """Flush, close the subscriptions and disconnect. Disconnect even if a step fails."""
        try:
            if self.requests.closed is None:
                await self._leave_in_time(ack, self.requests.seconds(timeout))
            else:
                self.putting.raise_failure()
        finally:
            self.fail(self.requests.closed or Closed())
            try:
                await self.runtime.__aexit__(None, None, None)
            except Exception as error:
                raise broken("session", error) from error
            finally:
                self._close_state()

    async def _leave_in_time(self, ack: bool, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self._leave(ack)
        except OncecastError:
            raise
        except TimeoutError:
            fact = f"the client is closed, but some work did not finish within {timeout:g} s"
            remedy = "check whether the node is responding"
            if self.putting.left:
                kept = "lost" if self.options.state is None else "kept in the state directory"
                remedy = f"messages that are not stored yet are {kept}"
            raise self.putting.late(fact, remedy) from None

    async def _leave(self, ack: bool) -> None:
        """Run every step, even if an earlier one failed, then raise the first error."""
        failures: list[BaseException] = []
        try:
            if "transactions" in vars(self):  # the client has used transactions
                await self.transactions.finish()
            await self.putting.flush(None)
        except Exception as error:  # noqa: BLE001  # raised at the end
            failures.append(error)
            ack = False  # Puts made in response to the last message may be lost.
        if "groups" in vars(self):
            failures += await failed(self.groups.closings(ack=ack))
        failures += await failed(self.subscriptions.closings(ack=ack))
        name, unsubscribe = self.session.producer, self.unsubscribe
        failures += await failed([unsubscribe(topic, name) for topic in self.temporary])
        forget, seconds = not self.options.durable_name, self.requests.timeout
        await self.requests.answer(lambda ticket: local.Finish(ticket, forget, seconds))
        if failures:
            raise failures[0]

    def _close_state(self) -> None:
        if self._state is not None:
            self._state.close()
            self._state = None


def open_state(options: ClientOptions) -> StateDirectory | None:
    if options.state is None:
        return None
    from oncecast.client.state import StateDirectory  # imported here because few clients need it

    return StateDirectory(options.state)


async def failed(work: list[Coroutine[Any, Any, Any]]) -> list[BaseException]:
    """Run all coroutines concurrently. Return their exceptions."""
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    return [outcome for outcome in outcomes if isinstance(outcome, BaseException)]


@asynccontextmanager
async def access_at(options: ClientOptions, address: str) -> AsyncIterator[AccessControl]:
    """Yield the access control of one group in a ring, over a separate connection."""
    async with Running(options.anonymous_at(address)) as other:
        yield other.access


async def topics_at(options: ClientOptions, address: str, prefix: str) -> list[TopicView]:
    """Return the topics of one group in a ring, over a separate connection."""
    async with Running(options.anonymous_at(address)) as other:
        return [each async for each in other.topics.of_group(prefix)]
