"""The objects that an application uses: group, leader election, locks and queues."""

# ruff: noqa: ASYNC109  # each method defines what happens when its timeout expires

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Self

from oncecast.coordination.protocols.events import (
    NO_NODE,
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
from oncecast.streams.observable import Observable

if TYPE_CHECKING:
    from oncecast.coordination.node import Node

View = tuple[NodeId, ...]
UNSENT_BYTES = 4 << 20  # limit on the unsent bytes to a peer, above which `enqueue` waits
PAUSE = 0.005


class Group:
    """The members of the group that seem to be alive."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._views: Observable[View] = Observable(())

    @property
    def view(self) -> View:
        return self._views.value

    async def wait_for_view_size(self, size: int, timeout: float = 30.0) -> View:
        """Return the view once it has `size` members. Raise NotReached after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                return await self._node.unless_stopped(self._views.wait(lambda v: len(v) >= size))
        except TimeoutError:
            raise NotReached(size, self.view) from None

    def watch(self) -> AsyncIterator[View]:
        """Yield the current view, then each later view."""
        return self._views.watch()

    def leave(self) -> None:
        """Leave the group. The other members remove this node at once, without suspecting it."""
        self._node.request(Leave())

    def changed(self, view: View) -> None:
        self._views.set(view)


class LeaderElection:
    """The leader is the lowest member that is not suspected. For a while, there may be two."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._leaders: Observable[NodeId] = Observable(NO_NODE)

    @property
    def leader(self) -> NodeId:
        """Return the leader, or an empty string if it is unknown."""
        return self._leaders.value

    @property
    def leading(self) -> bool:
        return self.leader == self._node.me

    def watch(self) -> AsyncIterator[NodeId]:
        """Yield the current leader, then each later leader."""
        return self._leaders.watch()

    async def wait_until_leading(self) -> None:
        me = self._node.me
        await self._node.unless_stopped(self._leaders.wait(lambda leader: leader == me))

    def changed(self, leader: NodeId) -> None:
        self._leaders.set(leader)


class Lock:
    """A lock that one task of one process in the group holds at a time. Use it in `async with`.

    Pass `token` to the protected resource. The resource can then reject a holder whose lease has
    expired.
    """

    def __init__(self, node: Node, name: str) -> None:
        self.name = name
        self._node = node
        self._local = asyncio.Lock()  # a lock between the tasks of this process
        self._token: Observable[int] = Observable(0)
        self._lapsed = 0

    @property
    def held(self) -> bool:
        return self._token.value > 0

    @property
    def token(self) -> int:
        """Return the fencing token, which grows with each renewal. Raise Lapse without the lock."""
        if not self.held:
            raise Lapse(self.name, self._lapsed)
        return self._token.value

    def watch(self) -> AsyncIterator[int]:
        """Yield the current token, then each later token. 0 means that the lock is not held."""
        return self._token.watch()

    async def acquire(self) -> int:
        """Wait for the lock and return its token. Cancel the call to stop waiting."""
        await self._local.acquire()
        try:
            self._node.request(Acquire(self.name))
            return await self._node.unless_stopped(self._token.wait(lambda token: token > 0))
        except BaseException:
            self._let_go()
            raise

    async def release(self) -> None:
        """Release the lock. Raise Lapse if its lease has expired in the meantime."""
        lapsed = not self.held
        self._let_go()
        if lapsed:
            raise Lapse(self.name, self._lapsed)

    async def __aenter__(self) -> Self:
        await self.acquire()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        if error is None:
            await self.release()
        else:
            self._let_go()

    def _let_go(self) -> None:
        self._token.set(0)
        self._node.request(Release(self.name))
        self._local.release()

    def on_event(self, event: Acquired | Renewed | Lapsed) -> None:
        if isinstance(event, Lapsed):
            self._lapsed = event.token
            self._token.set(0)
        elif self._local.locked():
            self._token.set(event.token)

    def stopped(self) -> None:
        """Report the lock as lapsed, because a stopped node does not renew it."""
        if self.held:
            self.on_event(Lapsed(self.name, self._token.value))


class Queue:
    """A queue that gives each element to one process. It does not guarantee an order."""

    def __init__(self, node: Node, name: str) -> None:
        self.name = name
        self._node = node
        self._answers: dict[int, asyncio.Future[bytes | None]] = {}
        self._deposits: dict[int, asyncio.Future[bool]] = {}

    def __len__(self) -> int:
        """Return the number of elements in the local copy."""
        return self._node.length(self.name)

    @property
    def empty(self) -> bool:
        return not len(self)

    def peek(self, count: int) -> list[bytes]:
        """Return up to `count` elements of the local copy, without taking them."""
        return self._node.peek(self.name, count)

    async def enqueue(self, data: bytes) -> None:
        """Add an element. Wait only while a peer reads its messages too slowly."""
        self._node.request(Enqueue(self.name, data))
        await self._wait_for_slow_peers()

    async def deposit(self, data: bytes, timeout: float = 30.0) -> None:
        """Let the leading acceptor add an element, and wait until the leader has stored it.

        The leader stores it on disk if it has a directory. Use this method in short-lived
        processes. Raise NotDeposited if the leader does not confirm the element in time.
        """
        ticket = self._node.next_ticket()
        answer = self._deposits[ticket] = asyncio.get_running_loop().create_future()
        self._node.request(Deposit(self.name, ticket, data))
        try:
            async with asyncio.timeout(timeout):
                await self._wait_for_slow_peers()
                done = await self._node.unless_stopped(answer)
        except TimeoutError:
            raise NotDeposited(self.name, perhaps=True) from None
        finally:
            del self._deposits[ticket]
            if not answer.done() or answer.cancelled():
                self._node.request(Withdraw(self.name, ticket))
        if not done:
            raise NotDeposited(self.name, perhaps=False)

    async def _wait_for_slow_peers(self) -> None:
        await asyncio.sleep(0)
        while self._node.unsent_bytes() > UNSENT_BYTES:  # noqa: ASYNC110  # links have no event
            await asyncio.sleep(PAUSE)

    def deposited(self, ticket: int, done: bool) -> None:
        answer = self._deposits.get(ticket)
        if answer is not None and not answer.done():
            answer.set_result(done)

    async def dequeue(self) -> bytes | None:
        """Take an element, or return None if the local copy is empty."""
        return await self._take(wait=False, timeout=None)

    async def sdequeue(self, timeout: float | None = None) -> bytes | None:
        """Wait for an element and take it. Return None after `timeout` seconds."""
        return await self._take(wait=True, timeout=timeout)

    async def _take(self, *, wait: bool, timeout: float | None) -> bytes | None:
        ticket = self._node.next_ticket()
        answer = self._answers[ticket] = asyncio.get_running_loop().create_future()
        self._node.request(Dequeue(self.name, ticket, wait))
        try:
            async with asyncio.timeout(timeout):
                return await self._node.unless_stopped(answer)
        except TimeoutError:
            # The element may have arrived just before the timeout.
            return None if answer.cancelled() else answer.result()
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
        """Put an element back into the queue if its caller was cancelled."""
        if data is not None:
            self._node.request(Enqueue(self.name, data))
