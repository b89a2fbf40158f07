"""The writer of a stream on a node.

Values that are written in one turn of the loop leave together, so a call costs little more than an
entry in a list.
"""

# ruff: noqa: ASYNC109  # what happens when time is over is part of the interface

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from oncecast.errors import NoRoom, NotReceived
from oncecast.kernel.protocol import NodeId
from oncecast.streams.endpoint import End
from oncecast.streams.feed import Feed
from oncecast.streams.protocols import writing
from oncecast.streams.protocols.events import CloseWriter, NotWritten, Side, Stable, Write, Written
from oncecast.streams.protocols.policies import QoS

if TYPE_CHECKING:
    from oncecast.streams.host import Host

GATHERED = 512  # values that leave together, though more are written in a turn
GATHERED_BYTES = 1 << 17
VALUE_BYTES_MAX = 16 << 20
LINGER = 5.0  # seconds that a writer which is closed gives its readers


class Writer(End):
    """Made by `node.stream(...).writer()`; `async with` it, or close it."""

    side: Side = "writer"
    others = "readers"

    def __init__(self, node: Host, name: str, qos: QoS) -> None:
        super().__init__(node, name, qos)
        self._loop = asyncio.get_running_loop()
        self._values: list[bytes] = []  # that have not been given to the protocol
        self._keys: list[bytes] = []
        self._bytes = 0
        self._idle, self._busy = True, False
        self.room = 0  # values that may be gathered before the protocol must be asked
        self._answers: dict[int, asyncio.Future[None]] = {}
        self._stable: Feed[int] = Feed(1)

    def opened(self, pure: writing.Writer) -> None:
        self._pure = pure
        self._look_for_room()

    @property
    def readers(self) -> tuple[NodeId, ...]:
        """Who is matched."""
        return self._matched.value

    async def wait_for_readers(self, count: int = 1, timeout: float = 30.0) -> tuple[NodeId, ...]:
        """Raises NotMatched, which says who is incompatible and in what."""
        return await self._wait_for(count, timeout)

    # -- writing --

    async def write(self, value: bytes, key: bytes = b"") -> None:
        """Waits only if values that readers must have fill the cache; raises NoRoom then."""
        if type(value) is not bytes or type(key) is not bytes or len(value) > VALUE_BYTES_MAX:
            self.refuse(value, key)
        values = self._values
        if len(values) >= self.room:
            await self._write_one(value, key)
            return
        values.append(value)
        self._keys.append(key)
        self._bytes += len(value)
        if self._idle:
            self._idle = False
            self._leave()
            self._loop.call_soon(self._turn_ends)
        elif len(values) >= GATHERED or self._bytes >= GATHERED_BYTES:
            self._busy = True
            self._leave()
            await asyncio.sleep(0)  # a loop that only writes would keep all others from working

    def _turn_ends(self) -> None:
        """The first value after a pause leaves at once; those that follow in its turn, together."""
        if self._values or self._busy:
            self._busy = False
            self._leave()
            self._loop.call_soon(self._turn_ends)
        else:
            self._idle = True

    def refuse(self, value: bytes, key: bytes) -> None:
        if type(value) is not bytes or type(key) is not bytes:
            raise TypeError(f"stream {self.name!r}: values and keys are bytes; encode them")
        message = f"the value is {len(value):,} bytes long (limit {VALUE_BYTES_MAX:,})"
        raise NoRoom(self.name, message, "send it in parts")

    def write_all(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        """Values and keys that were checked, no more than there is room for."""
        for value, key in pairs:
            self._values.append(value)
            self._keys.append(key)
            self._bytes += len(value)
            if len(self._values) >= GATHERED or self._bytes >= GATHERED_BYTES:
                self._leave()
        self._leave()

    def _leave(self) -> None:
        """What was gathered goes to the protocol; there is room for it."""
        values, keys = tuple(self._values), tuple(self._keys)
        if not values:
            return
        self._values.clear()
        self._keys.clear()
        self._bytes = 0
        if keys.count(keys[0]) == len(keys):
            keys = keys[:1]
        self._node.request_now(Write(self.name, 0, keys, values))
        self._look_for_room()

    def _look_for_room(self) -> None:
        """It may be less than there is: then values are given to the protocol one by one."""
        if self.closed or self._node.stopping or self._pure.waits:
            self.room = 0
        elif self._pure.may_wait:
            cache = self._pure.cache
            keys = self.qos.keys_max - cache.key_count
            self.room = min(keys, self.qos.samples_max - len(cache))
        else:
            self.room = GATHERED

    async def _write_one(self, value: bytes, key: bytes) -> None:
        self._check_open()
        self._leave()
        ticket = self._node.next_ticket()
        answer = self._answers[ticket] = self._loop.create_future()
        try:
            self._node.request(Write(self.name, ticket, (key,), (value,)))
            if answer.done():
                answer.result()
            else:
                await self._node.unless_stopped(answer)
        finally:
            del self._answers[ticket]
            self._look_for_room()

    async def flush(self, timeout: float | None = None) -> None:
        """Waits until all reliable readers have all that was written. Raises NotReceived."""
        self._check_open()
        self._leave()
        end = self._pure.next
        try:
            async with asyncio.timeout(timeout):
                await self._node.unless_stopped(self._stable.wait(lambda number: number >= end))
        except TimeoutError:
            left = end - self._stable.value
            message = f"readers have not acknowledged {left} values within {timeout:g} s"
            raise NotReceived(self.name, message) from None

    async def close(self, timeout: float = LINGER) -> None:
        """Readers get so much time for what was written. Raises NotReceived."""
        if not self.closed:
            try:
                await self.flush(timeout)
            finally:
                self.abandon()

    def abandon(self) -> None:
        """Close it, whatever readers have."""
        self._leave()
        self.closed, self.room = True, 0
        self._node.streams.forget(self)
        self._node.request(CloseWriter(self.name))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            await self.close()
        else:
            self.abandon()

    def answered(self, event: Written | NotWritten | Stable) -> None:
        if isinstance(event, Stable):
            self._stable.set(event.number)
            return
        answer = self._answers.get(event.ticket)
        if answer is None or answer.done():
            return
        if isinstance(event, Written):
            answer.set_result(None)
        else:
            answer.set_exception(NoRoom(self.name, event.why))
