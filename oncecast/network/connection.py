"""One TCP or TLS connection that sends and receives frames.

A session handles the frames: first a Greeting, then a Link, an Inbound or a role's session. A
session can raise a ProtocolError to end the connection.
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, cast
from typing import Protocol as Interface

from oncecast.errors import NetworkError, OutOfPlace, ProtocolError
from oncecast.kernel.codec import Buffer
from oncecast.kernel.protocol import Value
from oncecast.network.framing import (
    GREETING,
    HEADER,
    HEADER_BYTES,
    PREAMBLE,
    SCRATCH_BYTES,
    Buffers,
    Framer,
)
from oncecast.network.handshake import GREETINGS, Refusal
from oncecast.network.incidents import Incidents
from oncecast.network.options import Options, Stats
from oncecast.network.turns import Account, Backlogs, Turns

if TYPE_CHECKING:
    from oncecast.security.certificates import Certificate

# Number of unsent bytes above which to write before the loop iteration ends.
WRITE_BYTES = 256 * 1024
COPIED_BYTES_MAX = 16 * 1024  # maximum average size of parts that are joined into one write
SILENT_AFTER = 3  # keepalive intervals
SLOWEST_LINK = 1024  # minimum bytes per second; slower frames are abandoned
# Maximum frames that a connection handles before another connection gets its turn.
FRAMES_PER_SHARE = 1000
NEVER = float("inf")
CLOSED, LOST = "closed by the other side", "connection lost"  # why a connection ended
READ_BYTES_MIN = 16 * 1024  # bytes per read from a client that sends small frames
FRAME_BYTES_FEW = 1024  # maximum size of a small frame
# Encrypted bytes kept for a connection that does not read. Reading continues below the second
# number, which must exceed the size of a TLS record.
TLS_READ_BYTES_MAX, TLS_READ_BYTES_LOW = 32 * 1024, 20 * 1024
KERNEL_BYTES = 64 * 1024  # a shorter queue in the kernel does not show whether the peer reads


class Session(Interface):
    """Handles the frames and the end of a connection."""

    def frame(self, kind: int, body: Buffer) -> None: ...
    def lost(self, reason: str) -> None: ...


class Wires:
    """Options, counters and buffers shared by a process's connections."""

    def __init__(self, options: Options, stats: Stats) -> None:
        self.options, self.stats = options, stats
        self.loop = asyncio.get_running_loop()
        self.incidents = Incidents(stats)
        self.buffers = Buffers()
        self.connections: dict[Connection, None] = {}  # the open connections
        self.turns, self.backlogs = Turns(self.loop), Backlogs(options.unsent_total_max)
        self._unflushed: list[Connection] = []

    def flush_soon(self, connection: Connection) -> None:
        """Flush the connection when this loop iteration ends, so one write sends all frames."""
        if not self._unflushed:
            self.loop.call_soon(self.flush)
        self._unflushed.append(connection)

    def flush(self) -> bool:
        """Write the pending frames. Return whether there were any."""
        connections, self._unflushed = self._unflushed, []
        for connection in connections:
            connection.flush()
        return bool(connections)


class Connection(asyncio.BufferedProtocol):
    def __init__(self, wires: Wires, session: Session, name: str) -> None:
        self.session, self.name = session, name
        self.transport: asyncio.Transport | None = None
        self.ended = ""  # why the session ended, or empty while it is open
        self._ended_at = 0.0
        self.over: asyncio.Future[str] = wires.loop.create_future()  # the reason, set when closed
        self.framer = Framer(wires.buffers)
        # when the last bytes arrived, and when the unfinished frame began to arrive
        self.heard = self.began = wires.loop.time()
        self.used = 0.0  # seconds of work so far, if the connection takes turns
        self.account: Account  # set only if the connection takes turns
        self._wires = wires
        self._takes_turns = self._paused = self._choked = self._held = False
        self._waiting: deque[tuple[int, bytes]] = deque()  # frames for the next turn
        self._unread = b""  # bytes for the next turn, to be split after these frames
        self._read_most = READ_BYTES_MIN  # maximum bytes per read, if the connection takes turns
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._written = 0
        self._taken = -1  # bytes acknowledged at the last check; -1 without a backlog

    def switch(self, session: Session, name: str = "") -> None:
        """Pass the next frames to `session`, and use `name` in log lines."""
        self.session, self.name = session, name or self.name

    # -- receiving --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's class does not inherit it
        self._wires.connections[self] = None
        if self.ended:  # dropped while connecting
            self.transport.abort()
        else:
            self.transport.write(PREAMBLE)

    def get_buffer(self, sizehint: int) -> memoryview:
        buffer = self.framer.get_buffer()
        return buffer[: self._read_most] if self._takes_turns else buffer

    def buffer_updated(self, count: int) -> None:
        framer, stats = self.framer, self._wires.stats
        stats.bytes_in += count
        self.heard = self._wires.loop.time()
        if not framer.unfinished:
            self.began = self.heard
        if self._takes_turns and not self._may_work():
            # Splitting bytes into frames takes time too, so it waits for the next turn. Copy the
            # bytes, because the buffer is reused.
            self._unread += bytes(framer.get_buffer()[:count])
            self._wires.turns.queue(self)
            self._steer()
            return
        try:
            frames = self._split(count)
            if not self._takes_turns:
                self._handle(frames, NEVER)
            elif frames:
                self._handle_in_turn(frames)
        except ProtocolError as error:
            self.fail("hostile", str(error))

    def _split(self, count: int) -> list[tuple[int, memoryview]]:
        """Return the frames completed by the new bytes, and adjust how much to read next."""
        frames = self.framer.received(count)
        if frames:
            self.began = self.heard
        if count <= FRAME_BYTES_FEW * len(frames):  # splitting many small frames takes a long time
            self._read_most = READ_BYTES_MIN
        elif count >= self._read_most:
            self._read_most = min(2 * self._read_most, SCRATCH_BYTES)
        return frames

    def _handle(self, frames: Sequence[tuple[int, Buffer]], until: float) -> int:
        """Handle frames until the given time, but at least one. Return how many were handled."""
        time = self._wires.loop.time
        for done, (kind, body) in enumerate(frames):
            if self.ended:
                break
            if done and until != NEVER and (self._paused or self._choked or time() >= until):
                return done
            self.session.frame(kind, body)
        return len(frames)

    # -- turns --

    def take_turns(self, owner: str) -> None:
        """Take turns with other owners, and limit how many bytes the client may leave unread."""
        self._takes_turns = True
        self._wires.turns.join(self, owner)
        assert self.transport is not None
        self.transport.set_write_buffer_limits(high=self._wires.options.unsent_bytes_max)
        if self.transport.get_extra_info("sslcontext") is not None:
            # While the connection does not read, TLS would keep up to 512 KiB of encrypted bytes.
            set_limits = getattr(self.transport, "set_read_buffer_limits")  # noqa: B009
            set_limits(high=TLS_READ_BYTES_MAX, low=TLS_READ_BYTES_LOW)

    def _handle_in_turn(self, frames: list[tuple[int, memoryview]]) -> None:
        """Handle frames if it is this connection's turn, and keep the rest for the next turn."""
        turns, done = self._wires.turns, 0
        if until := self._may_work():
            began = self._wires.loop.time()
            done = self._handle(frames, until)
            turns.count(self, self._wires.loop.time() - began)
        if done < len(frames) and not self.ended:
            # Copy the frames, because another connection will reuse the buffer.
            self._waiting.extend((kind, bytes(body)) for kind, body in frames[done:])
            turns.queue(self)
            self._steer()

    def _may_work(self) -> float:
        """Return the time until which new frames may be handled, or 0 if they must wait."""
        if self._waiting or self._unread or self._paused or self._choked:
            return 0.0
        return self._wires.turns.begin(self)

    @property
    def ready(self) -> bool:
        waits = self._waiting or self._unread
        return bool(waits) and not (self.ended or self._paused or self._choked)

    def work(self, until: float) -> None:
        """Handle the frames that waited for this turn."""
        try:
            if self._unread and not self._waiting:
                self._read_again()
            frames = list(islice(self._waiting, FRAMES_PER_SHARE))
            for _ in range(self._handle(frames, until)):
                self._waiting.popleft()
        except ProtocolError as error:
            self.fail("hostile", str(error))
        if self.ended:
            self._waiting.clear()
            self._unread = b""
        self._steer()

    def _read_again(self) -> None:
        """Split the bytes that were kept for this turn into frames."""
        unread, self._unread = memoryview(self._unread), b""
        while unread:
            buffer = self.framer.get_buffer()
            count = min(len(buffer), len(unread))
            buffer[:count], unread = unread[:count], unread[count:]
            self._waiting.extend((kind, bytes(body)) for kind, body in self._split(count))

    def pause_writing(self) -> None:
        """Stop serving a client that does not read its answers."""
        self._choked = self._takes_turns
        self._steer()

    def resume_writing(self) -> None:
        self._choked = False
        self._wires.backlogs.note(self, self.backlog)
        self._wires.turns.queue(self)
        self._steer()

    def _steer(self) -> None:
        """Read from the connection only while it has no waiting frames and is not paused."""
        held = self._paused or self._choked or bool(self._waiting or self._unread)
        if held == self._held or self.transport is None or self.ended:
            return
        self._held = held
        if held:
            self.transport.pause_reading()
        else:
            self.heard = self.began = self._wires.loop.time()  # we were not reading
            self.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._end(f"{LOST}: {error}" if error else CLOSED)
        self._forget()

    # -- sending --

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
            self.fail("slow", f"{self.unsent_bytes} bytes unsent; link reset")
        self._unsent, self._unsent_bytes = [], 0
        if unsent and self.transport is not None and not self.ended:
            # Check the limit before the write, so that one large message always fits.
            if count < COPIED_BYTES_MAX * len(unsent):
                self.transport.write(b"".join(unsent))
            else:
                self.transport.writelines(unsent)
            self._written += count
            self._wires.stats.bytes_out += count
            if self._takes_turns:
                self._wires.backlogs.note(self, self.backlog)

    @property
    def backlog(self) -> int:
        """Return the bytes that wait in this process because the kernel buffer is full."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    @property
    def unsent_bytes(self) -> int:
        return self._unsent_bytes + self.backlog

    @property
    def in_flight(self) -> int:
        """Return the written bytes that the peer's kernel has not acknowledged."""
        return self.backlog + self.in_kernel

    @property
    def in_kernel(self) -> int:
        """Return the size of the kernel's send queue, which can reach megabytes on a slow link."""
        socket = None if self.transport is None else self.transport.get_extra_info("socket")
        if socket is None or self.ended:
            return 0
        try:
            answer = fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, bytes(4))
        except OSError:  # not supported on this system
            return 0
        return int(struct.unpack("i", answer)[0])

    def pause(self) -> None:
        self._paused = True
        self._steer()

    def resume(self) -> None:
        self._paused = False
        self._wires.turns.queue(self)
        self._steer()

    def peer_certificate(self) -> Certificate | None:
        """Return the peer's verified certificate, or None if it presented none."""
        assert self.transport is not None
        tls = self.transport.get_extra_info("ssl_object")
        der = None if tls is None else tls.getpeercert(binary_form=True)
        if not der:
            return None
        from oncecast.security.certificates import parse  # imported here because only TLS needs it

        return parse(der)

    # -- closing --

    def overdue(self, now: float) -> None:
        """Close the connection if a frame takes too long or the peer is silent."""
        options = self._wires.options
        if self.ended and self.transport is not None:
            if now - self._ended_at > options.drain_timeout:
                self.transport.abort()  # the peer does not read the remaining bytes
            return
        if self._moves() or self._paused or self.ready:
            self.heard = now
        patience = options.frame_timeout + self.framer.unfinished / SLOWEST_LINK
        if self.framer.unfinished and now - self.began > patience:
            self.fail("overdue", f"a frame was incomplete after {now - self.began:.1f} s")
        elif now - self.heard > SILENT_AFTER * options.keepalive:
            self.fail("silent", f"no data received for {now - self.heard:.1f} s")

    def _moves(self) -> bool:
        """Return whether the peer has acknowledged part of a backlog since the last check.

        A ping waits behind the backlog, but progress also shows that the peer is reading.
        """
        before, rest = self._taken, self.in_flight
        self._taken = self._written - rest if self.backlog or rest > KERNEL_BYTES else -1
        return 0 <= before < self._taken

    def fail(self, incident: str, reason: str) -> None:
        """Report an incident and close at once, without sending the remaining bytes."""
        if not self.ended:
            self._wires.incidents.report(incident, peer=self.name, reason=reason)
            self.drop(reason)

    def drop(self, reason: str) -> None:
        self._end(reason)
        if self.transport is not None:
            self.transport.abort()

    def abandon(self, reason: str) -> None:
        """Drop a connection whose handshake failed. uvloop may not call `connection_lost`."""
        if not self.ended:
            self.drop(reason)
        self._forget()

    def close(self, reason: str) -> None:
        """Send the remaining bytes, then close."""
        self.flush()
        self._end(reason)
        if self.transport is not None:
            self.transport.close()

    def _forget(self) -> None:
        self._wires.connections.pop(self, None)
        self._waiting.clear()
        self._unread = b""
        self._wires.backlogs.note(self, 0)
        if not self.over.done():
            self.over.set_result(self.ended)

    def _end(self, reason: str) -> None:
        if not self.ended:
            self.ended, self._ended_at = reason, self._wires.loop.time()
            self.session.lost(reason)


class Greeting:
    """The session during the handshake. It waits for one frame at a time."""

    def __init__(self, wires: Wires) -> None:
        self._wires = wires
        self._lost = ""
        self._refusal: Refusal | None = None  # may arrive before we ask
        self._greeting: asyncio.Future[Value] = wires.loop.create_future()

    async def wait(self) -> Value:
        return await self._greeting

    async def ask(self, connection: Connection, greeting: Value) -> Value:
        """Send a greeting. Return the next greeting from the peer, or its earlier refusal."""
        if self._refusal is not None:
            return self._refusal
        if self._lost:
            raise NetworkError(self._lost)
        self._greeting = self._wires.loop.create_future()
        connection.send(GREETING, GREETINGS.encode(greeting))
        return await self._greeting

    def frame(self, kind: int, body: Buffer) -> None:
        if kind != GREETING:
            raise OutOfPlace(f"a frame of kind {kind} arrived before the end of the handshake")
        if self._greeting.cancelled():
            return  # the handshake timed out, so the connection is about to be dropped
        if self._greeting.done():
            raise OutOfPlace("a second greeting arrived")
        greeting = GREETINGS.decode(body)
        if isinstance(greeting, Refusal):
            self._refusal = greeting
        self._greeting.set_result(greeting)

    def lost(self, reason: str) -> None:
        self._lost = reason
        if not self._greeting.done():
            self._greeting.set_exception(NetworkError(reason))
            self._greeting.exception()  # mark it as retrieved in case no task waits for it


class Leaving:
    """The session of a connection that is only sending its last bytes."""

    def frame(self, kind: int, body: Buffer) -> None:
        pass

    def lost(self, reason: str) -> None:
        pass
