"""The wire below the messages, without any I/O: a preamble, then frames.

    preamble   7 bytes magic, 1 byte format      once, first, in both directions
    frame      u32 length of the body, u8 kind, body        big-endian, then the next frame

The first byte that does not fit the preamble ends the connection, so a web browser, a TLS greeting
or a port scanner costs a few bytes. A length is checked before anything is reserved for it, and the
buffer of a large frame grows with the bytes that arrive, not with the bytes that were announced.

A framer is driven as `asyncio.BufferedProtocol` is: `get_buffer()`, fill it, `received(count)`. All
framers of a loop share their buffers, because frames are used up before the next read; an idle
connection therefore owns none.
"""

from __future__ import annotations

from struct import Struct

from oncecast.kernel.errors import FrameTooLong, NotOncecast, WrongFormat

FORMAT = 1
MAGIC = b"\xf0once\r\n"  # no text, no TLS record; a transfer that mends line ends breaks it
PREAMBLE = MAGIC + bytes([FORMAT])

HEADER = Struct(">IB")
HEADER_BYTES = HEADER.size

HELLO_BYTES_MAX = 4 * 1024  # what a stranger may send us
SCRATCH_BYTES = 256 * 1024
TAIL_BYTES_MAX = 16 * 1024  # a longer unfinished frame gets a buffer of its own
SPARE_BYTES_MAX = 8 * 1024 * 1024  # a larger one is not kept for the next large frame

# Kinds of frames.
GREETING, MESSAGE, PING, PONG, BYE = range(1, 6)

Frame = tuple[int, memoryview]


def frame(kind: int, body: bytes = b"") -> bytes:
    return HEADER.pack(len(body), kind) + body


class Buffers:
    """What the framers of a loop share: a scratch buffer, and a large one that is not in use.

    Memory that is given back and asked for again at every large frame costs more than the frame.
    """

    def __init__(self) -> None:
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._spare = bytearray()

    def take(self, size: int) -> bytearray:
        """A buffer of at least this size."""
        spare, self._spare = self._spare, bytearray()
        return spare if len(spare) >= size else bytearray(size)

    def give_back(self, buffer: bytearray) -> None:
        if len(self._spare) < len(buffer) <= SPARE_BYTES_MAX:
            self._spare = buffer


class Framer:
    """Cuts what arrives into frames. A body is valid until the next `get_buffer` of any framer."""

    __slots__ = ("_buffers", "_filled", "_large", "_limit", "_scratch", "_tail", "greeted")

    def __init__(self, buffers: Buffers) -> None:
        self.greeted = False  # the preamble was seen
        self._buffers = buffers
        self._scratch = buffers.scratch
        self._limit = HELLO_BYTES_MAX
        self._tail = b""  # of an unfinished frame that fits into the scratch buffer
        self._large = bytearray()  # for an unfinished frame of its own, filled as far as `_filled`
        self._filled = 0

    def trust(self, frame_bytes_max: int) -> None:
        """The handshake is done: longer frames may come."""
        self._limit = frame_bytes_max

    @property
    def unfinished(self) -> int:
        """So many of the last bytes were the beginning of something."""
        return self._filled or len(self._tail)

    def get_buffer(self) -> memoryview:
        if self._filled:
            return self._room()
        if self._tail:
            self._scratch[: len(self._tail)] = self._tail
            return self._scratch[len(self._tail) :]
        return self._scratch

    def received(self, count: int) -> list[Frame]:
        """The frames that `count` more bytes complete; a ProtocolError if they break the rules."""
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
                raise too_long(kind, length, limit)
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
        """Check the preamble as far as it is there; whether it is whole."""
        seen = bytes(self._scratch[: min(end, len(PREAMBLE))])
        if not MAGIC.startswith(seen[: len(MAGIC)]):
            raise NotOncecast(f"not oncecast: it begins with {seen!r}{guess(seen)}")
        if len(seen) < len(PREAMBLE):
            return False
        if seen != PREAMBLE:
            raise WrongFormat(
                f"it speaks wire format {seen[-1]}, this node {FORMAT}: upgrade the older one"
            )
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

    def _room(self) -> memoryview:
        """Room for the rest of a large frame; new memory only for as much again as has arrived."""
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


def too_long(kind: int, length: int, limit: int) -> FrameTooLong:
    return FrameTooLong(
        f"a frame of kind {kind} announces {length} bytes where {limit} are allowed; if it is "
        "meant, raise frame_bytes_max on all nodes"
    )


def guess(first: bytes) -> str:
    """What a stranger probably wanted, for the log."""
    if first[:2] == b"\x16\x03":
        return " (a TLS greeting: give this node a certificate, or turn TLS off on the other side)"
    if first[:4] in (b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI", b"PRI ", b"CONN"):
        return " (an HTTP request: this port is for nodes and clients of oncecast)"
    return ""
