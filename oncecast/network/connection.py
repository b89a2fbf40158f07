"""One TCP or TLS connection as frames in and frames out, whichever side opened it.

What happens to it is the business of its session: first a Greeting, then a Link, an Inbound, or
whatever a role has registered. A session may raise a ProtocolError, which ends the connection.
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from typing import Any, cast
from typing import Protocol as Interface

from oncecast.kernel.errors import NetworkError, OutOfPlace, ProtocolError
from oncecast.kernel.protocol import Value
from oncecast.network.framing import GREETING, HEADER, HEADER_BYTES, PREAMBLE, Buffers, Framer
from oncecast.network.handshake import GREETINGS
from oncecast.network.incidents import Incidents
from oncecast.network.options import Options, Stats

WRITE_BYTES = 256 * 1024  # so much is written at once, without waiting for the end of the turn
COPIED_BYTES_MAX = 16 * 1024  # larger parts, on average, are not joined for their write
SILENT_AFTER = 3  # keepalives
SLOWEST_LINK = (
    1024  # bytes a second: a frame that comes no faster than this is not worth waiting for
)
KERNEL_BYTES = 64 * 1024  # so much in the kernel's queue tells nothing about the other side


class Session(Interface):
    """Who a connection belongs to."""

    def frame(self, kind: int, body: memoryview) -> None: ...
    def lost(self, reason: str) -> None: ...


class Wires:
    """What all connections of a node share."""

    def __init__(self, options: Options, stats: Stats) -> None:
        self.options, self.stats = options, stats
        self.loop = asyncio.get_running_loop()
        self.incidents = Incidents(stats)
        self.buffers = Buffers()
        self.connections: dict[Connection, None] = {}  # from made to lost
        self._unflushed: list[Connection] = []

    def flush_soon(self, connection: Connection) -> None:
        """At the end of this turn of the loop: what is sent until then leaves in one write."""
        if not self._unflushed:
            self.loop.call_soon(self.flush)
        self._unflushed.append(connection)

    def flush(self) -> bool:
        """Write all that was sent; whether there was anything."""
        connections, self._unflushed = self._unflushed, []
        for connection in connections:
            connection.flush()
        return bool(connections)


class Connection(asyncio.BufferedProtocol):
    def __init__(self, wires: Wires, session: Session, name: str) -> None:
        self.session, self.name = session, name
        self.transport: asyncio.Transport | None = None
        self.ended = ""  # why, once its session knows
        self.over: asyncio.Future[str] = wires.loop.create_future()  # why, when all is closed
        self.framer = Framer(wires.buffers)
        self.heard = self.began = (
            wires.loop.time()
        )  # when bytes came, and when the open frame began
        self._wires, self._paused = wires, False
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._written = 0
        self._taken = -1  # by the other side, when we last looked; -1: all of it

    # -- the other side speaks --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's own is one in all but name
        self._wires.connections[self] = None
        if self.ended:  # given up while it was being made
            self.transport.abort()
        else:
            self.transport.write(PREAMBLE)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.framer.get_buffer()

    def buffer_updated(self, count: int) -> None:
        framer, stats = self.framer, self._wires.stats
        stats.bytes_in += count
        self.heard = self._wires.loop.time()
        if not framer.unfinished:
            self.began = self.heard
        try:
            frames = framer.received(count)
            for kind, body in frames:
                if self.ended:
                    return
                self.session.frame(kind, body)
        except ProtocolError as error:
            self.fail("hostile", str(error))
            return
        if frames:
            self.began = self.heard

    def connection_lost(self, error: Exception | None) -> None:
        self._end(f"connection lost: {error}" if error else "closed by the other side")
        self._forget()

    # -- we speak --

    def send(self, kind: int, body: bytes = b"") -> None:
        if not self._unsent:
            self._wires.flush_soon(self)
        self._unsent.append(HEADER.pack(len(body), kind))
        self._unsent.append(body)
        self._unsent_bytes += HEADER_BYTES + len(body)
        if self._unsent_bytes > WRITE_BYTES:
            self.flush()

    def flush(self) -> None:
        unsent, count = self._unsent, self._unsent_bytes
        if self.backlog > self._wires.options.queue_bytes_max:
            self.fail("slow", f"{self.unsent_bytes} bytes unsent; its link is reset")
        self._unsent, self._unsent_bytes = [], 0
        if unsent and self.transport is not None and not self.ended:
            # It goes on top of a queue that may be nearly full, so a large message fits into any.
            if count < COPIED_BYTES_MAX * len(unsent):
                self.transport.write(b"".join(unsent))
            else:
                self.transport.writelines(unsent)
            self._written += count
            self._wires.stats.bytes_out += count

    @property
    def backlog(self) -> int:
        """Bytes that we wrote and the kernel has not taken."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    @property
    def unsent_bytes(self) -> int:
        return self._unsent_bytes + self.backlog

    @property
    def under_way(self) -> int:
        """Bytes that we wrote and the other side's kernel has not acknowledged."""
        return self.backlog + self.in_kernel

    @property
    def in_kernel(self) -> int:
        """On a slow link this may be megabytes, of which the backlog knows nothing."""
        socket = None if self.transport is None else self.transport.get_extra_info("socket")
        if socket is None or self.ended:
            return 0
        try:
            answer = fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, bytes(4))
        except OSError:  # this system does not say
            return 0
        return int(struct.unpack("i", answer)[0])

    def pause(self) -> None:
        if self.transport is not None and not self.ended:
            self._paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        if self.transport is not None and not self.ended:
            self._paused = False
            self.heard = self.began = self._wires.loop.time()  # it was we who did not listen
            self.transport.resume_reading()

    def peer_certificate(self) -> dict[str, Any] | None:
        assert self.transport is not None
        certificate: dict[str, Any] | None = self.transport.get_extra_info("peercert")
        return certificate

    # -- the end --

    def overdue(self, now: float) -> None:
        """Close it if its last frame stays unfinished, or nothing at all is heard."""
        options = self._wires.options
        if self._moves() or self._paused:
            self.heard = now
        patience = options.frame_timeout + self.framer.unfinished / SLOWEST_LINK
        if self.framer.unfinished and now - self.began > patience:
            self.fail("overdue", f"a frame was begun {now - self.began:.1f} s ago and not finished")
        elif now - self.heard > SILENT_AFTER * options.keepalive:
            self.fail("silent", f"nothing heard for {now - self.heard:.1f} s")

    def _moves(self) -> bool:
        """Pings wait behind a backlog. But while it moves the other side lives: a full kernel takes
        no more before its process has read something."""
        before, rest = self._taken, self.under_way
        self._taken = self._written - rest if self.backlog or rest > KERNEL_BYTES else -1
        return 0 <= before < self._taken

    def fail(self, incident: str, reason: str) -> None:
        """Give it up at once, and say so in the log; what is unsent is dropped."""
        if not self.ended:
            self._wires.incidents.report(incident, peer=self.name, reason=reason)
            self.drop(reason)

    def drop(self, reason: str) -> None:
        self._end(reason)
        if self.transport is not None:
            self.transport.abort()

    def abandon(self, reason: str) -> None:
        """Forget one that was never used; uvloop may not tell us its end if it was cancelled."""
        if not self.ended:
            self.drop(reason)
        self._forget()

    def close(self, reason: str) -> None:
        """Write what is unsent, then close."""
        self.flush()
        self._end(reason)
        if self.transport is not None:
            self.transport.close()

    def _forget(self) -> None:
        self._wires.connections.pop(self, None)
        if not self.over.done():
            self.over.set_result(self.ended)

    def _end(self, reason: str) -> None:
        if not self.ended:
            self.ended = reason
            self.session.lost(reason)


class Greeting:
    """The session of a connection until its handshake is done: waits for one frame."""

    def __init__(self, wires: Wires) -> None:
        self._greeting: asyncio.Future[Value] = wires.loop.create_future()

    async def wait(self) -> Value:
        return await self._greeting

    def frame(self, kind: int, body: memoryview) -> None:
        if kind != GREETING:
            raise OutOfPlace(f"a frame of kind {kind} before the handshake")
        if self._greeting.cancelled():
            return  # whoever waited has given up, and the connection is about to be abandoned
        if self._greeting.done():
            raise OutOfPlace("a second greeting")
        self._greeting.set_result(GREETINGS.decode(body))

    def lost(self, reason: str) -> None:
        if not self._greeting.done():
            self._greeting.set_exception(NetworkError(reason))
            self._greeting.exception()  # whoever waited may be gone


class Leaving:
    """The session of a connection that is only there to send its last bytes."""

    def frame(self, kind: int, body: memoryview) -> None:
        pass

    def lost(self, reason: str) -> None:
        pass
