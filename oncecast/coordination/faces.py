"""What an application sees of the toolkit: group, leader, locks, queues."""

# ruff: noqa: ASYNC109  # what happens when time is over is part of the interface

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

from oncecast.coordination.protocols.events import (
    NOBODY,
    Acquire,
    Acquired,
    Deposit,
    Dequeue,
    Enqueue,
    Lapsed,
    Leave,
    Release,
    Renewed,
    Withdraw,
)
from oncecast.errors import Lapse, NotDeposited, NotReached
from oncecast.kernel.protocol import NodeId
from oncecast.streams.feed import Feed

if TYPE_CHECKING:
    from oncecast.coordination.node import Node

View = tuple[NodeId, ...]
UNSENT_BYTES = 4 << 20  # to one peer: beyond, who enqueues waits for it
PAUSE = 0.005


class Group:
    """Who is a member and seems to be alive."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._views: Feed[View] = Feed(())

    @property
    def view(self) -> View:
        return self._views.value

    async def wait_for_view_size(self, size: int, timeout: float = 30.0) -> View:
        """Raises NotReached."""
        try:
            async with asyncio.timeout(timeout):
                return await self._node.unless_stopped(self._views.wait(lambda v: len(v) >= size))
        except TimeoutError:
            raise NotReached(size, self.view) from None

    def watch(self) -> AsyncIterator[View]:
        """The view, and each that comes later."""
        return self._views.watch()

    def leave(self) -> None:
        """Be a member no longer; others need not suspect it first."""
        self._node.request(Leave())

    def changed(self, view: View) -> None:
        self._views.set(view)


class LeaderElection:
    """Who leads: the lowest member that is not suspected. There may be two for a while."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._leaders: Feed[NodeId] = Feed(NOBODY)

    @property
    def leader(self) -> NodeId:
        """Empty if there is none."""
        return self._leaders.value

    @property
    def leading(self) -> bool:
        return self.leader == self._node.me

    def watch(self) -> AsyncIterator[NodeId]:
        """The leader, and each that comes later."""
        return self._leaders.watch()

    async def wait_until_leading(self) -> None:
        me = self._node.me
        await self._node.unless_stopped(self._leaders.wait(lambda leader: leader == me))

    def changed(self, leader: NodeId) -> None:
        self._leaders.set(leader)


class Lock:
    """One holder in the group, and one task of this process. `async with` it.

    Give `token` with all that is done under it: what it protects can then refuse who is late.
    """

    def __init__(self, node: Node, name: str) -> None:
        self.name = name
        self._node = node
        self._turn = asyncio.Lock()  # among the tasks of this process
        self._token: Feed[int] = Feed(0)
        self._lapsed = 0

    @property
    def held(self) -> bool:
        return self._token.value > 0

    @property
    def token(self) -> int:
        """It grows while the lock is held. Raises Lapse."""
        if not self.held:
            raise Lapse(self.name, self._lapsed)
        return self._token.value

    def watch(self) -> AsyncIterator[int]:
        """Its token, and each that renews it; 0 as soon as it is held no longer."""
        return self._token.watch()

    async def acquire(self) -> int:
        """Its token. Who cancels it waits no longer."""
        await self._turn.acquire()
        try:
            self._node.request(Acquire(self.name))
            return await self._node.unless_stopped(self._token.wait(lambda token: token > 0))
        except BaseException:
            self._give_back()
            raise

    async def release(self) -> None:
        """Raises Lapse if it was lost meanwhile."""
        lapsed = not self.held
        self._give_back()
        if lapsed:
            raise Lapse(self.name, self._lapsed)

    async def __aenter__(self) -> Self:
        await self.acquire()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            await self.release()
        else:
            self._give_back()

    def _give_back(self) -> None:
        self._token.set(0)
        self._node.request(Release(self.name))
        self._turn.release()

    def heard(self, event: Acquired | Renewed | Lapsed) -> None:
        if isinstance(event, Lapsed):
            self._lapsed = event.token
            self._token.set(0)
        elif self._turn.locked():
            self._token.set(event.token)

    def stopped(self) -> None:
        """Nobody renews it any more."""
        if self.held:
            self.heard(Lapsed(self.name, self._token.value))


class Queue:
    """Each element to one taker in the group; order is not promised."""

    def __init__(self, node: Node, name: str) -> None:
        self.name = name
        self._node = node
        self._answers: dict[int, asyncio.Future[bytes | None]] = {}
        self._deposits: dict[int, asyncio.Future[bool]] = {}

    def __len__(self) -> int:
        """Of the copy that this process has."""
        return self._node.length(self.name)

    @property
    def empty(self) -> bool:
        return not len(self)

    def peek(self, count: int) -> list[bytes]:
        """So many elements of the copy that this process has; they stay."""
        return self._node.peek(self.name, count)

    async def enqueue(self, data: bytes) -> None:
        """Waits for nobody, unless others read too slowly what is sent to them."""
        self._node.request(Enqueue(self.name, data))
        await self._unless_crowded()

    async def deposit(self, data: bytes, timeout: float = 30.0) -> None:
        """Have the leading acceptor put it in, which has it on its disk then, if it has one.

        For processes that come and go. Raises NotDeposited.
        """
        ticket = self._node.next_ticket()
        answer = self._deposits[ticket] = asyncio.get_running_loop().create_future()
        self._node.request(Deposit(self.name, ticket, data))
        try:
            async with asyncio.timeout(timeout):
                await self._unless_crowded()
                done = await self._node.unless_stopped(answer)
        except TimeoutError:
            raise NotDeposited(self.name, perhaps=True) from None
        finally:
            del self._deposits[ticket]
            if not answer.done() or answer.cancelled():
                self._node.request(Withdraw(self.name, ticket))
        if not done:
            raise NotDeposited(self.name, perhaps=False)

    async def _unless_crowded(self) -> None:
        await asyncio.sleep(0)
        while self._node.unsent_bytes() > UNSENT_BYTES:  # noqa: ASYNC110  # a link tells nobody
            await asyncio.sleep(PAUSE)

    def deposited(self, ticket: int, done: bool) -> None:
        answer = self._deposits.get(ticket)
        if answer is not None and not answer.done():
            answer.set_result(done)

    async def dequeue(self) -> bytes | None:
        """None if this process knows of no element."""
        return await self._take(wait=False, timeout=None)

    async def sdequeue(self, timeout: float | None = None) -> bytes | None:
        """Waits for an element; None if there was none in time."""
        return await self._take(wait=True, timeout=timeout)

    async def _take(self, *, wait: bool, timeout: float | None) -> bytes | None:
        ticket = self._node.next_ticket()
        answer = self._answers[ticket] = asyncio.get_running_loop().create_future()
        self._node.request(Dequeue(self.name, ticket, wait))
        try:
            async with asyncio.timeout(timeout):
                return await self._node.unless_stopped(answer)
        except TimeoutError:
            return None if answer.cancelled() else answer.result()  # it came in this very moment
        except asyncio.CancelledError:
            if not answer.cancelled():
                self._put_back(answer.result())
            raise
        finally:
            del self._answers[ticket]
            if answer.cancelled():
                self._node.request(Withdraw(self.name, ticket))

    def answered(self, ticket: int, data: bytes | None) -> None:
        answer = self._answers.get(ticket)
        if answer is not None and not answer.done():
            answer.set_result(data)
        else:
            self._put_back(data)

    def _put_back(self, data: bytes | None) -> None:
        """Whoever waited for it has just been cancelled."""
        if data is not None:
            self._node.request(Enqueue(self.name, data))
