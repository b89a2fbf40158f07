"""Groups, locks, queues and streams for programs without an event loop: `oncecast.blocking.join`.

The node runs in its own thread. Any thread can call its methods.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Self, TypeVar

from oncecast.client.client import Client
from oncecast.client.portal import Portal
from oncecast.coordination import handles, node
from oncecast.coordination.handles import View
from oncecast.kernel.protocol import NodeId
from oncecast.streams.blocking import Stream
from oncecast.streams.protocols.policies import QoS

T = TypeVar("T")


class Node:
    """A member of a group, for programs without an event loop. See `oncecast.join`."""

    def __init__(
        self,
        listen: str,
        *,
        peers: Iterable[str] = (),
        acceptors: Iterable[str] | None = None,
        directory: str | os.PathLike[str] | None = None,
        group: str = "",
        through: str | Client | None = None,
        founders: int = 1,
        heartbeat: float = 0.5,
        suspect_after: float = 2.0,
        lease: float = 10.0,
        grace: float = 0.0,
        insecure: bool = False,
        cluster_secret_file: str | os.PathLike[str] = "",
    ) -> None:
        self._node = node.Node(
            listen,
            peers=peers,
            acceptors=acceptors,
            directory=directory,
            group=group,
            through=through,
            founders=founders,
            heartbeat=heartbeat,
            suspect_after=suspect_after,
            lease=lease,
            grace=grace,
            insecure=insecure,
            cluster_secret_file=cluster_secret_file,
        )

    def __enter__(self) -> Self:
        self._portal = Portal()
        try:
            self.call(self._node.__aenter__())
        except BaseException:
            self._portal.stop()
            raise
        self.me = self._node.me
        self.group, self.election = Group(self, self._node), LeaderElection(self, self._node)
        return self

    def __exit__(self, *raised: Any) -> None:
        try:
            self.call(self._node.__aexit__(*raised))
        finally:
            self._portal.stop()

    def lock(self, name: str) -> Lock:
        return Lock(self, self.read(lambda: self._node.lock(name)))

    def queue(self, name: str) -> Queue:
        return Queue(self, self.read(lambda: self._node.queue(name)))

    def stream(self, name: str, qos: QoS = node.BEST_EFFORT) -> Stream:
        return Stream(self, self._node.stream(name, qos))

    def soon(self, work: Callable[[], None]) -> None:
        """Run `work` in the node's thread, without waiting for it."""
        self._portal.loop.call_soon_threadsafe(work)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._portal.call(work)

    def read(self, value: Callable[[], T]) -> T:
        """Call `value` in the node's thread, where the state is consistent. Return its result."""

        async def look() -> T:
            return value()

        return self.call(look())


class Group:
    def __init__(self, thread: Node, of: node.Node) -> None:
        self._thread, self._of = thread, of

    @property
    def view(self) -> View:
        return self._of.group.view

    def wait_for_view_size(self, size: int, timeout: float = 30.0) -> View:
        return self._thread.call(self._of.group.wait_for_view_size(size, timeout))

    def leave(self) -> None:
        self._thread.read(self._of.group.leave)


class LeaderElection:
    def __init__(self, thread: Node, of: node.Node) -> None:
        self._thread, self._of = thread, of

    @property
    def leader(self) -> NodeId:
        return self._of.election.leader

    @property
    def leading(self) -> bool:
        return self._of.election.leading

    def wait_until_leading(self) -> None:
        self._thread.call(self._of.election.wait_until_leading())


class Lock:
    """A lock that one thread of one process in the group holds at a time. Use it in `with`."""

    def __init__(self, thread: Node, of: handles.Lock) -> None:
        self._thread, self._of = thread, of

    @property
    def held(self) -> bool:
        return self._of.held

    @property
    def token(self) -> int:
        return self._of.token

    def acquire(self) -> int:
        return self._thread.call(self._of.acquire())

    def release(self) -> None:
        self._thread.call(self._of.release())

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._thread.call(self._of.__aexit__(*raised))


class Queue:
    def __init__(self, thread: Node, of: handles.Queue) -> None:
        self._thread, self._of = thread, of

    def __len__(self) -> int:
        return self._thread.read(lambda: len(self._of))

    @property
    def empty(self) -> bool:
        return not len(self)

    def peek(self, count: int) -> list[bytes]:
        return self._thread.read(lambda: self._of.peek(count))

    def enqueue(self, data: bytes) -> None:
        self._thread.call(self._of.enqueue(data))

    def deposit(self, data: bytes, timeout: float = 30.0) -> None:
        self._thread.call(self._of.deposit(data, timeout))

    def dequeue(self) -> bytes | None:
        return self._thread.call(self._of.dequeue())

    def sdequeue(self, timeout: float | None = None) -> bytes | None:
        return self._thread.call(self._of.sdequeue(timeout))


join = Node
