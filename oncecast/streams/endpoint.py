"""What a writer and a reader of a stream have in common: whom they are matched with, and events."""

# ruff: noqa: ASYNC109  # what happens when time is over is part of the interface

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from math import inf
from typing import TYPE_CHECKING

from oncecast.errors import NotMatched, NotOpen, Stopped
from oncecast.kernel.protocol import NodeId
from oncecast.streams.feed import Feed
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

EVENTS_MAX = 1000  # that nobody has looked at; then the oldest go

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


class End:
    """What a writer and a reader of a stream have in common."""

    side: Side
    others: str

    def __init__(self, node: Host, name: str, qos: QoS) -> None:
        self.name, self.qos = name, qos
        self._node = node
        self._matched: Feed[tuple[NodeId, ...]] = Feed(())
        self._mismatched: dict[NodeId, tuple[str, ...]] = {}
        self._events: deque[StreamEvent] = deque(maxlen=EVENTS_MAX)
        self._happened: Feed[int] = Feed(0)
        self.closed = False

    # -- what happens to it --

    async def next_event(self, timeout: float | None = None) -> StreamEvent | None:
        """What has happened and nobody has looked at, oldest first; None if nothing did in time."""
        try:
            async with asyncio.timeout(timeout):
                await self._node.unless_stopped(self._happened.wait(lambda _: bool(self._events)))
        except TimeoutError:
            return None
        return self._events.popleft()

    async def events(self) -> AsyncIterator[StreamEvent]:
        while (event := await self.next_event()) is not None:
            yield event

    def heard(self, event: StreamEvent) -> None:
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
            wanted = f"{count} {self.others} for {timeout:g} s"
            others = [each for each in self._node.streams.elsewhere() if each != self.name]
            raise NotMatched(
                self.name, wanted, len(matched.value), self._mismatched, others
            ) from None

    def _check_open(self) -> None:
        if self._node.stopping:
            raise Stopped
        if self.closed:
            raise NotOpen(self.name, f"its {self.side} is closed", "open another one")
