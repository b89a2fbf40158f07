"""The common base of stream writers and readers, with matched peers and events."""

# ruff: noqa: ASYNC109  # each method defines what happens when its timeout expires

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from math import inf
from typing import TYPE_CHECKING

from oncecast.errors import NotMatched, NotOpen, Stopped
from oncecast.kernel.protocol import NodeId
from oncecast.streams.observable import Observable
from oncecast.streams.protocols.events import (
    DeadlineMissed,
    LimitReached,
    Liveliness,
    Matched,
    Mismatched,
    SamplesLost,
    SamplesRejected,
    Side,
    Unmatched,
)
from oncecast.streams.protocols.policies import QoS

if TYPE_CHECKING:
    from oncecast.streams.host import Host

EVENTS_MAX = 1000  # maximum number of unread events; beyond this, the oldest are dropped

StreamEvent = (
    Matched
    | Mismatched
    | Unmatched
    | DeadlineMissed
    | Liveliness
    | LimitReached
    | SamplesLost
    | SamplesRejected
)


class Endpoint:
    """The base class of writer and reader."""

    side: Side
    counterparts: str

    def __init__(self, node: Host, name: str, qos: QoS) -> None:
        self.name, self.qos = name, qos
        self._node = node
        self._matched: Observable[tuple[NodeId, ...]] = Observable(())
        self._mismatched: dict[NodeId, tuple[str, ...]] = {}
        self._events: deque[StreamEvent] = deque(maxlen=EVENTS_MAX)
        self._happened: Observable[int] = Observable(0)
        self.closed = False

    # -- events --

    async def next_event(self, timeout: float | None = None) -> StreamEvent | None:
        """Return the oldest unread event, or None if none occurs within `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._node.unless_stopped(self._happened.wait(lambda _: bool(self._events)))
        except TimeoutError:
            return None
        return self._events.popleft()

    async def events(self) -> AsyncIterator[StreamEvent]:
        while (event := await self.next_event()) is not None:
            yield event

    def on_event(self, event: StreamEvent) -> None:
        match event:
            case Matched():
                self._mismatched.pop(event.peer, None)
                self._matched.set((*self._matched.value, event.peer))
            case Unmatched():
                self._matched.set(tuple(each for each in self._matched.value if each != event.peer))
            case Mismatched():
                self._mismatched[event.peer] = event.qualities
            case _:
                pass
        self._events.append(event)
        self._happened.set(self._happened.value + 1)

    async def _wait_for(self, count: int, timeout: float) -> tuple[NodeId, ...]:
        matched = self._matched
        try:
            async with asyncio.timeout(timeout if timeout < inf else None):
                enough = matched.wait(lambda peers: len(peers) >= count)
                return await self._node.unless_stopped(enough)
        except TimeoutError:
            noun = self.counterparts.removesuffix("s" if count == 1 else "")
            wanted = f"{timeout:g} s for {count} {noun}"
            others = [each for each in self._node.streams.remote_streams() if each != self.name]
            raise NotMatched(
                self.name, wanted, len(matched.value), self._mismatched, others
            ) from None

    def _check_open(self) -> None:
        if self._node.stopping:
            raise Stopped
        if self.closed:
            raise NotOpen(self.name, f"this {self.side} is closed", "open another one")
