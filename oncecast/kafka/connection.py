"""A connection of a Kafka client, which splits bytes into requests within limits."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol as Interface
from typing import cast

from oncecast.kafka.events import Received
from oncecast.security.certificates import Certificate, parse

LENGTH_BYTES = 4
KEY_BYTES = 2  # size of the API key at the start of a request
PRODUCE = bytes(KEY_BYTES)
REQUEST_BYTES_MAX = 64 << 20  # maximum size of a Produce request
OTHER_BYTES_MAX = 1 << 20  # any other request; its decoded form is many times larger
FIRST_REQUEST_BYTES_MAX = 64 << 10  # each request until the first valid one
BUFFER_BYTES = 64 << 10  # the buffer grows with the bytes of a larger request
KEPT_BUFFER_BYTES_MAX = 1 << 20  # a larger buffer is given up after its request
UNANSWERED_MAX = 32  # requests of one connection; further ones wait until some are answered
UNANSWERED_BYTES_MAX = 64 << 20  # unanswered requests of one connection
HELD_BYTES_MAX = 1 << 30  # buffers and unanswered requests of all connections
UNSENT_BYTES_MAX = 64 << 20  # responses to a client that does not read
ALL_UNSENT_BYTES_MAX = 1 << 30  # responses to all clients that do not read
UNSENT_BYTES_HIGH = 1 << 20  # no further request is handled until the client reads
IDLE_MAX = 600.0  # seconds without a request, as in Kafka
FIRST_REQUEST_SECONDS = 30.0  # until the login and the first valid request


class Owner(Interface):
    """The listener, as its connections see it."""

    @property
    def now(self) -> float: ...
    @property
    def unsent(self) -> int: ...
    def opened(self, connection: Connection) -> None: ...
    def lost(self, connection: Connection) -> None: ...
    def hold(self, size: int) -> bool: ...
    def ask(self, request: Received) -> None: ...


class Connection(asyncio.BufferedProtocol):
    """A connection of a Kafka client. It splits the bytes into requests."""

    def __init__(self, listener: Owner, number: int, now: float) -> None:
        self._listener, self.number = listener, number
        self.admitted = True  # False until the client has logged in
        self.host = ""  # the client's address
        self._buffer = bytearray(BUFFER_BYTES)
        self._begin = self._end = 0  # the unread bytes in the buffer
        self._transport: asyncio.Transport | None = None
        self._unanswered: deque[int] = deque()  # the size of each request
        self.held = 0  # bytes of the buffer beyond its first size, and of unanswered requests
        self._valid = self._cutting = self._unread = False
        self.used = now  # when the connection opened, or was used after its login

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop has its own class
        self._transport.set_write_buffer_limits(UNSENT_BYTES_HIGH)
        peer = transport.get_extra_info("peername") or ("",)
        self.host = str(peer[0])
        self._listener.opened(self)

    # -- requests --

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._begin == self._end:
            self._begin = self._end = 0
            if len(self._buffer) > KEPT_BUFFER_BYTES_MAX:
                self._replace_buffer(BUFFER_BYTES)
        if self._end == len(self._buffer):
            # It doubles, so a client has to send the bytes that it makes this process allocate.
            size = min(self._needed(), 2 * len(self._buffer))
            if size > len(self._buffer):
                self._replace_buffer(size)
            else:
                held = self._end - self._begin
                self._buffer[:held] = self._buffer[self._begin : self._end]
                self._begin, self._end = 0, held
        return memoryview(self._buffer)[self._end :]

    def _replace_buffer(self, size: int) -> None:
        if not self._hold(size - len(self._buffer)):
            self._begin = self._end = 0  # The connection is closed.
            return
        unread = self._buffer[self._begin : self._end]
        self._buffer, self._begin, self._end = bytearray(size), 0, len(unread)
        self._buffer[: len(unread)] = unread

    def _hold(self, size: int) -> bool:
        """Count bytes as held. Close the connection if all connections hold too many."""
        if not self._listener.hold(size):
            self.close()
            return False
        self.held += size
        return True

    def _needed(self) -> int:
        """Return the size of the current request, as far as it is known."""
        if self._end - self._begin < LENGTH_BYTES:
            return LENGTH_BYTES
        head = self._buffer[self._begin : self._begin + LENGTH_BYTES]
        return LENGTH_BYTES + int.from_bytes(head, "big")

    def _limit(self) -> int:
        if not self._valid:
            return FIRST_REQUEST_BYTES_MAX
        begin = self._begin + LENGTH_BYTES
        key = self._buffer[begin : min(begin + KEY_BYTES, self._end)]
        return REQUEST_BYTES_MAX if PRODUCE.startswith(key) else OTHER_BYTES_MAX

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        self._cut()

    def _cut(self) -> None:
        """Pass on the requests in the buffer, and read more unless too many are unanswered."""
        if self._cutting:
            # Re-entrant call: a reply arrived while the loop below was passing on a request.
            return
        self._cutting = True
        while not self._busy and self._take():
            pass
        self._cutting = False
        if self._transport is not None and not self._transport.is_closing():
            if self._busy:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    @property
    def _busy(self) -> bool:
        """Return whether the client must wait until requests are answered or responses read."""
        return (
            self._unread
            or len(self._unanswered) >= (UNANSWERED_MAX if self.admitted else 1)
            or sum(self._unanswered) >= UNANSWERED_BYTES_MAX
        )

    def _take(self) -> bool:
        """Pass on the next request. Return False if there is none."""
        if self._transport is None or self._transport.is_closing():
            return False
        if self._end - self._begin < LENGTH_BYTES:
            return False
        size = self._needed()
        if size - LENGTH_BYTES > self._limit():
            self.close()
            return False
        if self._end - self._begin < size or not self._hold(size):
            return False
        begin, end = self._begin + LENGTH_BYTES, self._begin + size
        request = bytes(memoryview(self._buffer)[begin:end])
        self._begin = end
        if self.admitted:
            self.used = self._listener.now
        self._unanswered.append(size)
        self._listener.ask(Received(self.number, request))
        return True

    # -- responses --

    def reply(self, response: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(response)
        if self._reads_too_slowly:
            self.close()
        else:
            self.answered()

    @property
    def _reads_too_slowly(self) -> bool:
        if self.unsent <= UNSENT_BYTES_HIGH:
            return False
        return self.unsent > UNSENT_BYTES_MAX or self._listener.unsent > ALL_UNSENT_BYTES_MAX

    @property
    def unsent(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def answered(self) -> None:
        """Note that a request is done, and continue with further ones."""
        self._valid = self.admitted
        if self.admitted:
            self.used = self._listener.now
        self._hold(-self._unanswered.popleft())
        self._cut()

    def pause_writing(self) -> None:
        self._unread = True

    def resume_writing(self) -> None:
        self._unread = False
        self._cut()

    def expired(self, now: float) -> bool:
        """Return whether the client has sent no request for too long."""
        if self._valid and self._unanswered:
            return False
        return now - self.used >= (IDLE_MAX if self._valid else FIRST_REQUEST_SECONDS)

    @property
    def certificate(self) -> Certificate | None:
        """Return the client's verified certificate, or None if it presented none."""
        tls = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        der = None if tls is None else tls.getpeercert(binary_form=True)
        return parse(der) if der else None

    def finish(self, response: bytes) -> None:
        """Send a last response, and close the connection."""
        if self._transport is not None:
            self._transport.write(response)
            self._transport.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._listener.lost(self)
