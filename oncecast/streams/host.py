"""The interfaces that streams need from their node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from oncecast.client.client import Client
from oncecast.kernel.protocol import NodeId, Value

if TYPE_CHECKING:
    from oncecast.streams.streams import Streams

T = TypeVar("T")


class Host(Protocol):
    me: NodeId
    streams: Streams

    @property
    def stopping(self) -> bool:
        """Return whether the node no longer accepts requests."""

    def request(self, request: Value) -> None:
        """Pass `request` to the protocol that serves it."""

    def request_now(self, request: Value) -> None:
        """Pass on `request`, and send the resulting messages at once."""

    def next_ticket(self) -> int:
        """Return a number that no other request of this node has."""

    async def unless_stopped(self, work: Awaitable[T]) -> T:
        """Return the result of `work`. Raise Stopped if the node stops first."""

    def client_for(self, stream: str) -> Client:
        """Return the client of the cluster that stores persistent values."""


class Thread(Protocol):
    """The thread in which a blocking node runs."""

    def soon(self, work: Callable[[], None]) -> None:
        """Run `work` in the thread, without waiting for it."""

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in the thread, and return its result."""

    def read(self, value: Callable[[], T]) -> T:
        """Call `value` in the thread, and return its result."""
