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
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from random import Random
from types import TracebackType
from typing import Any, Self

from oncecast.client.arguments import check_compression, check_names, check_sendable
from oncecast.client.driver import ClientRuntime, broken
from oncecast.client.errors import (
    Closed,
    NotConnected,
    OncecastError,
    raised,
)
from oncecast.client.parcel import Receipt
from oncecast.client.putting import Putting
from oncecast.client.readings import Readings
from oncecast.client.session import local
from oncecast.client.session.client import ClientSession
from oncecast.client.staging import Staging
from oncecast.client.starts import EARLIEST, NEW, from_offset, from_time
from oncecast.client.state import StateDirectory
from oncecast.client.subscription import Subscription
from oncecast.client.tickets import Tickets
from oncecast.kernel.errors import BadAddress
from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.network.addresses import split
from oncecast.network.tls import Tls
from oncecast.wire import commands as do
from oncecast.wire import errors as refusals
from oncecast.wire.batch import Message
from oncecast.wire.frames import ClientCommand
from oncecast.wire.limits import is_name

__all__ = ["EARLIEST", "NEW", "Client", "connect", "from_offset", "from_time"]

DEFAULT_ADDRESS = "127.0.0.1:7400"


class Client(Staging):
    """Made by `connect`. One connection, one name, any number of topics and subscriptions."""

    subscription_type = Subscription

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
        if zstd is not None:
            check_compression(zstd)
        self._addresses, self._timeout, self._tls, self._cluster = addresses, timeout, tls, cluster
        self._connect_timeout, self._zstd = connect_timeout, zstd
        self._given, self._state_path = name, state
        self._state: StateDirectory | None = None
        self.loop: asyncio.AbstractEventLoop
        self._session: ClientSession
        self._runtime: ClientRuntime
        self.putting: Putting
        self._tickets = Tickets()
        self.readings = Readings(self)
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
            self.check_open()
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
                self._ask,
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

    async def close(self, *, ack: bool = True, timeout: float | None = None) -> None:
        """Store what was put, end the subscriptions, and go; `ack` as in `Subscription.close`.

        What is not done within `timeout`, or else the client's, is left undone, and raised.
        """
        if not self._running:
            return
        self._running = False
        try:
            if self._closed is None:
                await self._leave_in_time(ack, self.patience(timeout))
            else:
                self.putting.raise_failure()
        finally:
            self._break(self._closed or Closed("the client is closed"))
            try:
                await self._runtime.__aexit__(None, None, None)
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
            where = "lost" if self._state_path is None else "in the state directory"
            remedy = f"what was put and is not stored is {where}" if self.putting.left else ""
            fact = f"the client is closed, but not all was done within {timeout:g} s"
            raise self.putting.late(fact, remedy or "the node does not answer") from None

    async def _leave(self, ack: bool) -> None:
        """Every step is taken, whatever became of those before; the first failure is raised."""
        failures: list[BaseException] = []
        try:
            await self.putting.flush(None)
        except Exception as error:  # noqa: BLE001  # it is raised when all else is done
            failures.append(error)
            ack = False  # what was made of the last message may be what could not be stored
        closing = [each.close(ack=ack) for each in self.readings.all()]
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
        self.check_open()
        return await self.putting.put(topic, value, key, headers, timeout)

    def put_nowait(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
    ) -> None:
        """Put without waiting; `flush` tells what became of it. Overloaded when too much waits."""
        self.check_open()
        self.putting.put_nowait(topic, value, key, headers)

    async def put_many(
        self, topic: str, values: Iterable[bytes], timeout: float | None = None
    ) -> Receipt | None:
        """Put all in order; return when they are on disk, with the receipt of the last."""
        self.check_open()
        return await self.putting.put_many(topic, values, timeout)

    async def flush(self, timeout: float | None = None) -> None:
        """Return when all that was put is on disk; raise the first failure since the last flush."""
        self.check_open()
        await self.putting.flush(timeout)

    async def room(self) -> None:
        """Return when there is room for more puts that nobody waits for."""
        self.check_open()
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
        push: bool = False,  # on a ring: by way of the process that this client is at
    ) -> Subscription:
        """Subscribe, if that was not done before, and read. The topic is made if it is missing.

        The same subscription twice in one client is the same object.
        """
        name = self._subscription_name(subscription)
        if self.readings.get(topic, name) is None:
            await self.call(do.Subscribe(topic, name, start, 0))
            if subscription is None and not self.durable_name:
                self._passing[topic] = None
        return await self.read(topic, name, start_at=start_at, auto_ack=auto_ack, push=push)

    async def read(
        self,
        topic: str,
        subscription: str | None = None,
        *,
        start_at: int | None = None,
        auto_ack: bool = True,
        push: bool = False,
    ) -> Subscription:
        """Read a subscription that exists; NotSubscribed if it does not."""
        name = self._subscription_name(subscription)
        return await self.readings.begin(
            topic, name, auto_ack=auto_ack, start_at=start_at, push=push
        )

    async def unsubscribe(self, topic: str, subscription: str | None = None) -> bool:
        """Forget the subscription and what it had not read; whether there was one."""
        name = self._subscription_name(subscription)
        reading = self.readings.get(topic, name)
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
        found = self.readings.get(topic, self._subscription_name(None))
        return await (self.read(topic) if found is None else found.ready())

    def _subscription_name(self, name: str | None) -> str:
        self.check_open()
        return self.name if name is None else name

    # -- the session --

    @property
    def led(self) -> bool:
        """Whether the nodes have a leader, as far as this client has heard."""
        return all(way.led for way in self._session.ways)

    def node_of(self, topic: str) -> str:
        """Which node it asks about the topic at present."""
        return self._session.ways.bound_to(topic).node

    async def call(self, command: ClientCommand, timeout: float | None = None) -> Any:
        """Have the node do this, once; returns its result or raises its refusal."""
        check_names(command)
        return await self.finished(
            lambda ticket: local.Do(ticket, command, self.patience(timeout)), None
        )

    def patience(self, timeout: float | None) -> float:
        return self._timeout if timeout is None else timeout

    def hurry(self, timeout: float) -> None:
        """Wait no longer than this for any answer from now on: the process is to end."""
        self._timeout = min(self._timeout, timeout)

    def from_thread(self, work: Callable[[], None]) -> None:
        """Do this in the loop, asked for from another thread."""
        self.loop.call_soon_threadsafe(work)

    def session_request(self, request: Value) -> None:
        if self._closed is None:
            self._ask(request)

    def _ask(self, request: Value) -> None:
        """Every request to the session passes here, as every event passes `_hear`."""
        self._runtime.request(request)

    async def finished(self, request: Callable[[int], Value], timeout: float | None) -> Any:
        """Ask the session for something and wait for what comes of it."""
        self.check_open()
        check_sendable(request(0))
        return await self._tickets.wait(self._ask, request, timeout)

    def _events(self) -> dict[type[Value], Callable[[Any], None]]:
        return {
            local.Stored: self.putting.stored,
            local.NotStored: self.putting.not_stored,
            local.Finished: lambda event: self._tickets.answer(event.ticket, event.outcome),
            local.Shown: lambda event: self._tickets.answer(event.ticket, event.view),
            local.AllDone: lambda event: self._tickets.answer(event.ticket, None),
            **self.readings.events(),
        }

    def _hear(self, event: Value) -> None:
        self._handlers[type(event)](event)

    def _break(self, error: OncecastError) -> None:
        """There will be no answers any more: all who wait are told."""
        self._closed = error
        self.putting.fail(error)
        self._tickets.fail(error)
        self.readings.fail(error)

    def check_open(self) -> None:
        if self._closed is not None:
            raise self._closed


async def failed(work: list[Coroutine[Any, Any, Any]]) -> list[BaseException]:
    """Do all of it at once; what went wrong."""
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    return [outcome for outcome in outcomes if isinstance(outcome, BaseException)]


connect = Client
