"""The frame format, without I/O: a preamble, then frames.

    preamble   7 bytes magic, 1 byte format          once in each direction
    frame      u32 length of the body, u8 kind, body  big-endian

The first byte that differs from the preamble ends the connection, so browsers, TLS clients and port
scanners cost only a few bytes. Lengths are checked before memory is allocated. The buffer for a
large frame grows with the bytes received, not with the declared length.

A framer works like `asyncio.BufferedProtocol`: call `get_buffer()`, fill it and call
`received(count)`. The framers of a loop share their buffers, because each frame is processed before
the next read.
"""

from __future__ import annotations

from struct import Struct

from oncecast.errors import FrameTooLong, NotOncecast, WrongWireFormat

FORMAT = 1
MAGIC = b"\xf0once\r\n"  # neither text nor TLS; newline conversion breaks it
PREAMBLE = MAGIC + bytes([FORMAT])

HEADER = Struct(">IB")
HEADER_BYTES = HEADER.size

HELLO_BYTES_MAX = 4 * 1024  # maximum size of a frame until the handshake is done
SCRATCH_BYTES = 256 * 1024
# Maximum size of an unfinished frame in the shared buffer; a longer frame gets its own.
TAIL_BYTES_MAX = 16 * 1024
SPARE_BYTES_MAX = 8 * 1024 * 1024  # maximum size of a buffer that is kept for the next frame

# Kinds of frames.
GREETING, MESSAGE, PING, PONG, BYE = range(1, 6)

Frame = tuple[int, memoryview]


def frame(kind: int, body: bytes = b"") -> bytes:
    return HEADER.pack(len(body), kind) + body


class Buffers:
    """The buffers shared by the framers of a loop: one for small frames and one spare large one.

    Allocating memory for each large frame would cost more than handling the frame.
    """

    def __init__(self) -> None:
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._spare = bytearray()

    def take(self, size: int) -> bytearray:
        """Return a buffer of at least `size` bytes."""
        spare, self._spare = self._spare, bytearray()
        return spare if len(spare) >= size else bytearray(size)

    def give_back(self, buffer: bytearray) -> None:
        if len(self._spare) < len(buffer) <= SPARE_BYTES_MAX:
            self._spare = buffer


class Framer:
    """Splits received bytes into frames. A body is valid until any framer's next `get_buffer`."""

    __slots__ = ("_buffers", "_filled", "_large", "_limit", "_scratch", "_tail", "greeted")

    def __init__(self, buffers: Buffers) -> None:
        self.greeted = False  # the preamble has arrived
        self._buffers = buffers
        self._scratch = buffers.scratch
        self._limit = HELLO_BYTES_MAX
        self._tail = b""  # a small unfinished frame
        self._large = bytearray()  # a large unfinished frame; its first `_filled` bytes are valid
        self._filled = 0

    def trust(self, frame_bytes_max: int) -> None:
        """Raise the frame limit to `frame_bytes_max` once the handshake is done."""
        self._limit = frame_bytes_max

    @property
    def unfinished(self) -> int:
        """Return how many bytes of an unfinished frame have arrived."""
        return self._filled or len(self._tail)

    def get_buffer(self) -> memoryview:
        if self._filled:
            return self._rest_of_large()
        if self._tail:
            self._scratch[: len(self._tail)] = self._tail
            return self._scratch[len(self._tail) :]
        return self._scratch

    def received(self, count: int) -> list[Frame]:
        """Return the frames completed by `count` more bytes, or raise a ProtocolError."""
        if self._filled:
            return self._continue_large(count)
        start, end = 0, len(self._tail) + count
        if not self.greeted:
            if not self._greet(end):
                self._keep(self._scratch[:end])
                return []
            start = len(PREAMBLE)
        frames: list[Frame] = []
        scratch, limit, unpack = self._scratch, self._limit, HEADER.unpack_from
        while end - start >= HEADER_BYTES:
            length, kind = unpack(scratch, start)
            if length > limit:
                raise FrameTooLong(kind, length, limit)
            body = start + HEADER_BYTES
            if end - body < length:
                break
            start = body + length
            frames.append((kind, scratch[body:start]))
        if start < end:
            self._keep(scratch[start:end])
        else:
            self._tail = b""
        return frames

    def _greet(self, end: int) -> bool:
        """Check the preamble bytes received so far. Return whether the preamble is complete."""
        seen = bytes(self._scratch[: min(end, len(PREAMBLE))])
        if not MAGIC.startswith(seen[: len(MAGIC)]):
            raise NotOncecast(
                f"the peer does not speak the oncecast protocol: its first bytes are {seen!r}",
                guess(seen),
            )
        if len(seen) < len(PREAMBLE):
            return False
        if seen != PREAMBLE:
            raise WrongWireFormat(seen[-1], FORMAT)
        self.greeted = True
        return True

    def _keep(self, rest: memoryview) -> None:
        self._tail = b""
        if len(rest) <= TAIL_BYTES_MAX:
            self._tail = bytes(rest)
            return
        self._filled = len(rest)
        self._large = self._buffers.take(2 * self._filled)
        self._large[: self._filled] = rest

    def _wanted(self) -> int:
        length, _ = HEADER.unpack_from(self._large)
        return int(HEADER_BYTES + length)

    def _rest_of_large(self) -> memoryview:
        """Return the free part of a large frame's buffer. Double the buffer if it is full."""
        wanted = self._wanted()
        if self._filled == len(self._large):
            small, self._large = self._large, self._buffers.take(min(wanted, 2 * self._filled))
            self._large[: self._filled] = small
            self._buffers.give_back(small)
        return memoryview(self._large)[self._filled : wanted]

    def _continue_large(self, count: int) -> list[Frame]:
        self._filled += count
        wanted = self._wanted()
        if self._filled < wanted:
            return []
        whole = memoryview(self._large)[:wanted]
        self._buffers.give_back(self._large)
        self._large, self._filled = bytearray(), 0
        return [(whole[HEADER_BYTES - 1], whole[HEADER_BYTES:])]


def guess(first: bytes) -> str:
    """Return a hint for the log if these bytes belong to another protocol, else ""."""
    if first[:2] == b"\x16\x03":
        return "the peer speaks TLS; give this node a certificate, or turn off TLS on the peer"
    if first[:4] in (b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI", b"PRI ", b"CONN"):
        return "the peer sent an HTTP request; this port is for oncecast nodes and clients"
    return ""
