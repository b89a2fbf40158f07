"""The writer of a stream as the application uses it.

Values written in one iteration of the event loop are sent together, so a write costs little more
than appending to a list.
"""

# ruff: noqa: ASYNC109  # each method defines what happens when its timeout expires

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Self

from oncecast.errors import CacheFull, NotReceived
from oncecast.kernel.protocol import NodeId
from oncecast.streams.endpoint import Endpoint
from oncecast.streams.observable import Observable
from oncecast.streams.protocols import writing
from oncecast.streams.protocols.events import CloseWriter, NotWritten, Side, Stable, Write, Written
from oncecast.streams.protocols.policies import QoS

if TYPE_CHECKING:
    from oncecast.streams.host import Host

BATCH_VALUES = 512  # maximum number of values that are sent together
BATCH_BYTES = 1 << 17
VALUE_BYTES_MAX = 16 << 20
LINGER = 5.0  # maximum seconds that a closing writer waits for its readers


class Writer(Endpoint):
    """A writer, created by `node.stream(...).writer()`. Use it in `async with`, or close it."""

    side: Side = "writer"
    counterparts = "readers"

    def __init__(self, node: Host, name: str, qos: QoS) -> None:
        super().__init__(node, name, qos)
        self._loop = asyncio.get_running_loop()
        self._values: list[bytes] = []  # buffered values, not yet passed to the protocol
        self._keys: list[bytes] = []
        self._bytes = 0
        self._idle, self._busy = True, False
        self.buffer_space = 0  # number of values that may be buffered without asking the protocol
        self._answers: dict[int, asyncio.Future[None]] = {}
        self._stable: Observable[int] = Observable(1)

    def opened(self, pure: writing.Writer) -> None:
        self._pure = pure
        self._update_buffer_space()

    @property
    def readers(self) -> tuple[NodeId, ...]:
        """Return the matched readers."""
        return self._matched.value

    async def wait_for_readers(self, count: int = 1, timeout: float = 30.0) -> tuple[NodeId, ...]:
        """Wait until `count` readers are matched, and return them.

        Raise NotMatched after `timeout` seconds. The error lists incompatible readers.
        """
        return await self._wait_for(count, timeout)

    # -- writing --

    async def write(self, value: bytes, key: bytes = b"") -> None:
        """Write a value. Wait only if the cache is full. Raise CacheFull after `blocking_max`."""
        if type(value) is not bytes or type(key) is not bytes or len(value) > VALUE_BYTES_MAX:
            self.refuse(value, key)
        values = self._values
        if len(values) >= self.buffer_space:
            await self._write_one(value, key)
            return
        values.append(value)
        self._keys.append(key)
        self._bytes += len(value)
        if self._idle:
            self._idle = False
            self._send_buffered()
            self._loop.call_soon(self._end_iteration)
        elif len(values) >= BATCH_VALUES or self._bytes >= BATCH_BYTES:
            self._busy = True
            self._send_buffered()
            await asyncio.sleep(0)  # let other tasks run, because a write does not block

    def _end_iteration(self) -> None:
        """Send the values that followed the first one in this iteration of the loop."""
        if self._values or self._busy:
            self._busy = False
            self._send_buffered()
            self._loop.call_soon(self._end_iteration)
        else:
            self._idle = True

    def refuse(self, value: bytes, key: bytes) -> None:
        if type(value) is not bytes or type(key) is not bytes:
            raise TypeError(f"stream {self.name!r}: values and keys must be bytes; encode them")
        message = f"the value is {len(value):,} bytes long (limit {VALUE_BYTES_MAX:,})"
        raise CacheFull(self.name, message, "split the value")

    def write_all(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        """Write pairs of values and keys, which must be valid and fit into the buffer space."""
        for value, key in pairs:
            self._values.append(value)
            self._keys.append(key)
            self._bytes += len(value)
            if len(self._values) >= BATCH_VALUES or self._bytes >= BATCH_BYTES:
                self._send_buffered()
        self._send_buffered()

    def _send_buffered(self) -> None:
        """Pass the buffered values to the protocol, whose cache has space for them."""
        values, keys = tuple(self._values), tuple(self._keys)
        if not values:
            return
        self._values.clear()
        self._keys.clear()
        self._bytes = 0
        if keys.count(keys[0]) == len(keys):
            keys = keys[:1]
        self._node.request_now(Write(self.name, 0, keys, values))
        self._update_buffer_space()

    def _update_buffer_space(self) -> None:
        """Set how many values may be buffered. More values go to the protocol one by one."""
        if self.closed or self._node.stopping or self._pure.is_waiting:
            self.buffer_space = 0
        elif self._pure.may_wait:
            cache = self._pure.cache
            keys = self.qos.keys_max - cache.key_count
            self.buffer_space = min(keys, self.qos.samples_max - len(cache))
        else:
            self.buffer_space = BATCH_VALUES

    async def _write_one(self, value: bytes, key: bytes) -> None:
        self._check_open()
        self._send_buffered()
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
            self._update_buffer_space()

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until all reliable readers have all values. Raise NotReceived after `timeout`."""
        self._check_open()
        self._send_buffered()
        end = self._pure.next
        try:
            async with asyncio.timeout(timeout):
                await self._node.unless_stopped(self._stable.wait(lambda number: number >= end))
        except TimeoutError:
            left = end - self._stable.value
            message = f"readers have not acknowledged {left} values within {timeout:g} s"
            raise NotReceived(self.name, message) from None

    async def close(self, timeout: float = LINGER) -> None:
        """Flush and close the writer. Raise NotReceived if readers lack values after `timeout`."""
        if not self.closed:
            try:
                await self.flush(timeout)
            finally:
                self.abandon()

    def abandon(self) -> None:
        """Close the writer without waiting for readers."""
        self._send_buffered()
        self.closed, self.buffer_space = True, 0
        self._node.streams.forget(self)
        self._node.request(CloseWriter(self.name))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, *_: object) -> None:
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
            answer.set_exception(CacheFull(self.name, event.reason))
