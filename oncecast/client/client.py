"""The asynchronous client.

    async with oncecast.connect("127.0.0.1:7400") as client:
        news = await client.subscribe("news")
        await client.put("news", b"hello")
        async for message in news: ...

It batches, pipelines, resends and reconnects by itself. A call that gets no answer in `timeout`
seconds raises TimedOut; putting and getting wait for as long as they are told to.
"""

# ruff: noqa: ASYNC109  # what happens when time is over is part of the interface

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Mapping
from random import Random
from types import TracebackType
from typing import Any, Self

import msgspec

from oncecast.client.driver import ClientRuntime
from oncecast.client.errors import (
    Closed,
    InvalidArgument,
    NotConnected,
    OncecastError,
    raised,
)
from oncecast.client.parcel import Receipt
from oncecast.client.putting import Putting
from oncecast.client.starts import EARLIEST, NEW, from_offset, from_time
from oncecast.client.state import StateDirectory
from oncecast.client.subscription import Subscription
from oncecast.client.tickets import Tickets
from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.pubsub import commands as do
from oncecast.pubsub import errors as refusals
from oncecast.pubsub.batch import Message
from oncecast.pubsub.limits import is_name
from oncecast.pubsub.retention import DEFAULT, Policy
from oncecast.replication.events import Change, HandOver
from oncecast.runtime.addresses import split
from oncecast.runtime.errors import BadAddress
from oncecast.runtime.tls import Tls
from oncecast.session import local
from oncecast.session.client import ClientSession
from oncecast.session.frames import ClientCommand, GroupView, TopicView, View

__all__ = ["EARLIEST", "NEW", "Client", "connect", "from_offset", "from_time"]

DEFAULT_ADDRESS = "127.0.0.1:7400"
LOOK = 1000


class Client:
    """Made by `connect`. One connection, one name, any number of topics and subscriptions."""

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,  # of a node, or of several, with commas between
        *,
        name: str | None = None,  # a durable one; without, the node gives one that is forgotten
        state: str | os.PathLike[str] | None = None,  # a directory: puts survive this process
        timeout: float = 30.0,
        connect_timeout: float = 5.0,
        tls: Tls | None = None,
        cluster: str = "oncecast",
        zstd: int | None = None,  # level to compress batches with
    ) -> None:
        if name is not None and not is_name(name):
            raise raised(refusals.InvalidName("client"))
        try:
            addresses = [each.strip() for each in address.split(",")]
            for each in addresses:
                split(each)
        except BadAddress as error:
            raise NotConnected(str(error)) from None
        self._addresses, self._timeout, self._tls, self._cluster = addresses, timeout, tls, cluster
        self._connect_timeout, self._zstd = connect_timeout, zstd
        self._given, self._state_path = name, state
        self._state: StateDirectory | None = None
        self.loop: asyncio.AbstractEventLoop
        self._session: ClientSession
        self._runtime: ClientRuntime
        self.putting: Putting
        self._tickets = Tickets()
        self._subscriptions: dict[tuple[str, str], Subscription] = {}
        self._leaving: dict[tuple[str, str], asyncio.Future[None]] = {}  # done when they have left
        self._passing: dict[str, None] = {}  # topics of subscriptions that end with this client
        self._running = False
        self._closed: OncecastError | None = Closed(
            "the client is not open", "use it in `async with`, or await it"
        )

    # -- life --

    @property
    def name(self) -> str:
        """The name that it brought, or was given (SVC-8)."""
        if not hasattr(self, "_session"):
            self._check_open()
        return self._session.producer

    @property
    def durable_name(self) -> bool:
        return self._given is not None or self._state_path is not None

    def __await__(self) -> Generator[Any, None, Self]:
        """Opens it as `async with` does; whoever awaits it closes it."""
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        if self._running:
            return self
        self.loop = asyncio.get_running_loop()
        me = NodeId(f"client/{secrets.token_hex(8)}")
        self._session = ClientSession(
            me,
            Random(),  # the system's own is a call of it for each number
            node=NodeId(self._addresses[0]),
            others=tuple(map(NodeId, self._addresses[1:])),
            producer=self._given or "",
            life=secrets.token_hex(16),
            durable=self._state_path is not None,
        )
        stack, journal = Stack([self._session]), None
        if self._state_path is not None:
            self._state = StateDirectory(self._state_path)
        try:
            if self._state is not None:
                journal = self._state.open(stack, self._session)
            self._runtime = ClientRuntime(
                stack,
                self._session,
                journal=journal,
                on_event=self._hear,
                ended=self._break,
                limited=lambda most: self.putting.limit(most),
                tls=self._tls,
                cluster=self._cluster,
                connect_timeout=self._connect_timeout,
            )
            runtime = self._runtime
            self.putting = Putting(
                runtime.request,
                runtime.send_now,
                busy=lambda: self._session.busy,
                zstd=self._zstd,
                left=self._session.unsettled,
            )
            self._handlers = self._events()
            await self._runtime.__aenter__()
        except BaseException:
            self._close_state()
            raise
        # The same as the methods below, with one call less for each message.
        self.put_nowait = self.putting.put_nowait  # type: ignore[method-assign]
        self.put = self.putting.put  # type: ignore[method-assign]
        self._closed, self._running = None, True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close(ack=kind is None)

    async def close(self, *, ack: bool = True) -> None:
        """Store what was put, end the subscriptions, and go; `ack` as in `Subscription.close`.

        What is not done within the client's `timeout` is left undone, and raised.
        """
        if not self._running:
            return
        self._running = False
        try:
            if self._closed is None:
                await self._leave_in_time(ack)
        finally:
            self._break(self._closed or Closed("the client is closed"))
            try:
                await self._runtime.__aexit__(None, None, None)
            finally:
                self._close_state()

    async def _leave_in_time(self, ack: bool) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await self._leave(ack)
        except OncecastError:
            raise
        except TimeoutError:
            where = "lost" if self._state_path is None else "in the state directory"
            remedy = f"what was put and is not stored is {where}" if self.putting.left else ""
            fact = f"the client is closed, but not all was done within {self._timeout:g} s"
            raise self.putting.late(fact, remedy or "the node does not answer") from None

    async def _leave(self, ack: bool) -> None:
        """Every step is taken, whatever became of those before; the first failure is raised."""
        failures: list[BaseException] = []
        try:
            await self.putting.flush(None)
        except (OncecastError, TypeError, ValueError) as error:
            failures.append(error)
            ack = False  # what was made of the last message may be what could not be stored
        closing = [each.close(ack=ack) for each in list(self._subscriptions.values())]
        failures += await failed(closing)
        unsubscribe = [do.Unsubscribe(topic, self.name, 0) for topic in self._passing]
        failures += await failed([self.call(command) for command in unsubscribe])
        forget = not self.durable_name
        await self.finished(lambda ticket: local.Finish(ticket, forget, self._timeout), None)
        if failures:
            raise failures[0]

    def _close_state(self) -> None:
        if self._state is not None:
            self._state.close()
            self._state = None

    # -- putting --

    async def put(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """Return when the message is on disk. Puts that wait at the same time share a batch."""
        self._check_open()
        return await self.putting.put(topic, value, key, headers, timeout)

    def put_nowait(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
    ) -> None:
        """Put without waiting; `flush` tells what became of it. Overloaded when too much waits."""
        self._check_open()
        self.putting.put_nowait(topic, value, key, headers)

    async def put_many(
        self, topic: str, values: Iterable[bytes], timeout: float | None = None
    ) -> Receipt | None:
        """Put all in order; return when they are on disk, with the receipt of the last."""
        self._check_open()
        return await self.putting.put_many(topic, values, timeout)

    async def flush(self, timeout: float | None = None) -> None:
        """Return when all that was put is on disk; raise the first failure since the last flush."""
        self._check_open()
        await self.putting.flush(timeout)

    async def room(self) -> None:
        """Return when there is room for more puts that nobody waits for."""
        self._check_open()
        await self.putting.wait_for_room()

    # -- subscriptions --

    async def subscribe(
        self,
        topic: str,
        subscription: str | None = None,  # by default it has the client's own name
        *,
        start: do.Start = NEW,  # where a new subscription begins; one that exists goes on
        start_at: int | None = None,  # read from this offset, whatever was acknowledged (E3)
        auto_ack: bool = True,
    ) -> Subscription:
        """Subscribe, if that was not done before, and read. The topic is made if it is missing.

        The same subscription twice in one client is the same object.
        """
        name = self._subscription_name(subscription)
        if (topic, name) in self._subscriptions:
            return await self.read(topic, name, start_at=start_at, auto_ack=auto_ack)
        await self.call(do.Subscribe(topic, name, start, 0))
        if subscription is None and not self.durable_name:
            self._passing[topic] = None
        return await self.read(topic, name, start_at=start_at, auto_ack=auto_ack)

    async def read(
        self,
        topic: str,
        subscription: str | None = None,
        *,
        start_at: int | None = None,
        auto_ack: bool = True,
    ) -> Subscription:
        """Read a subscription that exists; NotSubscribed if it does not."""
        key = (topic, self._subscription_name(subscription))
        found = self._subscriptions.get(key)
        if found is not None and (auto_ack != found.auto_ack or start_at is not None):
            raise InvalidArgument(
                f"the subscription {key[1]!r} of topic {topic!r} is being read with "
                f"auto_ack={found.auto_ack}: close it before it is read in another way, or seek"
            )
        return await (found or await self._read(key, auto_ack, start_at)).ready()

    async def _read(
        self, key: tuple[str, str], auto_ack: bool, start_at: int | None
    ) -> Subscription:
        check_names(do.Attach(*key, life=""))
        check_sendable(local.Read(*key, -1 if start_at is None else start_at))
        if start_at is not None and start_at < 0:
            raise InvalidArgument(f"start_at {start_at}: offsets begin at 0")
        while key in self._leaving:
            await asyncio.wait([self._leaving[key]])
        self._check_open()
        if key not in self._subscriptions:
            reading = Subscription(self, *key, auto_ack=auto_ack, start_at=start_at)
            self._subscriptions[key] = reading
        return self._subscriptions[key]

    async def unsubscribe(self, topic: str, subscription: str | None = None) -> bool:
        """Forget the subscription and what it had not read; whether there was one."""
        name = self._subscription_name(subscription)
        reading = self._subscriptions.pop((topic, name), None)
        if reading is not None:
            await reading.close(ack=False)
        result = await self.call(do.Unsubscribe(topic, name, 0))
        return not result.already

    async def get(self, topic: str, timeout: float | None = None) -> Message | None:
        """The next message of the subscription with the client's own name; None if none comes."""
        return await (await self._own(topic)).get(timeout)

    async def get_many(self, topic: str, count: int, timeout: float | None = None) -> list[Message]:
        return await (await self._own(topic)).get_many(count, timeout)

    async def _own(self, topic: str) -> Subscription:
        found = self._subscriptions.get((topic, self._subscription_name(None)))
        return await (self.read(topic) if found is None else found.ready())

    async def seek(self, topic: str, subscription: str, start: do.Start) -> int:
        """Move a subscription that anybody may be reading; returns the offset it is at now."""
        seek = do.Seek(topic, subscription, start, 0, secrets.token_hex(16))
        return int((await self.call(seek)).cursor)

    def _subscription_name(self, name: str | None) -> str:
        self._check_open()
        return self.name if name is None else name

    def forget(self, subscription: Subscription) -> None:
        key = (subscription.topic, subscription.name)
        if self._subscriptions.get(key) is subscription:
            del self._subscriptions[key]

    async def leave(self, subscription: Subscription, request: Callable[[int], Value]) -> None:
        """Whoever wants to read it again meanwhile waits until it is left."""
        key = (subscription.topic, subscription.name)
        left = self._leaving[key] = self.loop.create_future()
        try:
            await self.finished(request, None)
        finally:
            left.set_result(None)
            if self._leaving.get(key) is left:
                del self._leaving[key]

    # -- topics --

    async def create_topic(self, topic: str, policy: Policy = DEFAULT) -> bool:
        """Make a topic that stays until it is deleted; whether it is new."""
        return not (await self.call(do.CreateTopic(topic, 0, policy))).already

    async def set_policy(self, topic: str, policy: Policy) -> None:
        await self.call(do.SetPolicy(topic, 0, policy))

    async def delete_topic(self, topic: str) -> bool:
        """Delete it with all its messages and subscriptions; whether there was one."""
        return not (await self.call(do.DeleteTopic(topic, 0))).already

    async def describe(self, topic: str) -> TopicView:
        if not is_name(topic):
            raise raised(refusals.InvalidTopic())
        view = await self._look(topic=topic)
        if not view.topics:
            raise raised(refusals.NoSuchTopic(topic))
        return view.topics[0]

    async def topics(self, prefix: str = "") -> AsyncIterator[TopicView]:
        """All topics whose names begin with `prefix`, by name."""
        after, more = "", True
        while more:
            view = await self._look(prefix=prefix, after=after, limit=LOOK)
            for each in view.topics:
                yield each
                after = each.name
            more = view.more

    # -- the group of nodes --

    async def group(self) -> GroupView:
        """The replicas, as the node sees them that this client talks to; it need not lead."""
        return await self._govern(None)

    async def add_replica(self, node: str) -> GroupView:
        """Take in a node that waits for a place; return when it has one."""
        return await self._govern(Change(add=NodeId(node)))

    async def remove_replica(self, node: str) -> GroupView:
        """Let a node go; return when it has no say any more."""
        return await self._govern(Change(remove=NodeId(node)))

    async def transfer_leader(self, node: str) -> GroupView:
        """Return when this node leads."""
        return await self._govern(HandOver(NodeId(node)))

    async def _govern(self, wish: Change | HandOver | None) -> GroupView:
        view: GroupView = await self.finished(
            lambda ticket: local.Group(ticket, wish, self._timeout), None
        )
        return view

    @property
    def led(self) -> bool:
        """Whether the nodes have a leader, as far as this client has heard."""
        return self._session.whereabouts.led

    async def ping(self) -> View:
        """Who is there: the node's address and version."""
        return await self._look(prefix="\uffff", limit=1)

    async def _look(self, **look: Any) -> View:
        view: View = await self.finished(
            lambda ticket: local.Show(ticket, timeout=self._timeout, **look), None
        )
        return view

    # -- the session --

    async def call(self, command: ClientCommand, timeout: float | None = None) -> Any:
        """Have the node do this, once; returns its result or raises its refusal."""
        check_names(command)
        return await self.finished(
            lambda ticket: local.Do(ticket, command, self.patience(timeout)), None
        )

    def patience(self, timeout: float | None) -> float:
        return self._timeout if timeout is None else timeout

    def from_thread(self, work: Callable[[], None]) -> None:
        """Do this in the loop, asked for from another thread."""
        self.loop.call_soon_threadsafe(work)

    def session_request(self, request: Value) -> None:
        if self._closed is None:
            self._runtime.request(request)

    async def finished(self, request: Callable[[int], Value], timeout: float | None) -> Any:
        """Ask the session for something and wait for what comes of it."""
        self._check_open()
        check_sendable(request(0))
        return await self._tickets.wait(self._runtime.request, request, timeout)

    def _events(self) -> dict[type[Value], Callable[[Any], None]]:
        return {
            local.Stored: self.putting.stored,
            local.NotStored: self.putting.not_stored,
            local.Finished: lambda event: self._tickets.answer(event.ticket, event.outcome),
            local.Shown: lambda event: self._tickets.answer(event.ticket, event.view),
            local.AllDone: lambda event: self._tickets.answer(event.ticket, None),
            local.Positioned: self._of_subscription(Subscription.positioned),
            local.Arrived: self._of_subscription(Subscription.arrived),
            local.Skipped: self._of_subscription(Subscription.skipped),
            local.Ended: self._of_subscription(Subscription.ended),
        }

    def _hear(self, event: Value) -> None:
        self._handlers[type(event)](event)

    def _of_subscription(self, method: Callable[[Subscription, Any], None]) -> Callable[..., None]:
        def tell(event: Any) -> None:
            subscription = self._subscriptions.get((event.topic, event.subscription))
            if subscription is not None:
                method(subscription, event)

        return tell

    def _break(self, error: OncecastError) -> None:
        """There will be no answers any more: all who wait are told."""
        self._closed = error
        self.putting.fail(error)
        self._tickets.fail(error)
        for subscription in list(self._subscriptions.values()):
            subscription.fail(error)

    def _check_open(self) -> None:
        if self._closed is not None:
            raise self._closed


def check_names(command: ClientCommand) -> None:
    """What no frame can carry, or no node will take, is refused here."""
    if not is_name(getattr(command, "topic", " ")):
        raise raised(refusals.InvalidTopic())
    if not is_name(getattr(command, "subscription", " ")):
        raise raised(refusals.InvalidName("subscription"))


def check_sendable(value: Value) -> None:
    """What no frame can carry would end the session, and what is of another type be dropped."""
    try:
        msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=type(value))
    except (UnicodeEncodeError, OverflowError, TypeError, msgspec.ValidationError) as error:
        raise InvalidArgument(f"this cannot be asked for: {error}") from None


async def failed(work: list[Coroutine[Any, Any, Any]]) -> list[BaseException]:
    """Do all of it at once; what went wrong."""
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    return [outcome for outcome in outcomes if isinstance(outcome, BaseException)]


connect = Client
