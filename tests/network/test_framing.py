"""Test framing: any split of the stream, limits and invalid bytes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from itertools import combinations

import pytest

from oncecast.errors import FrameTooLong, NotOncecast, WrongWireFormat
from oncecast.network.framing import (
    HEADER,
    HELLO_BYTES_MAX,
    MESSAGE,
    PREAMBLE,
    SCRATCH_BYTES,
    TAIL_BYTES_MAX,
    Buffers,
    Framer,
    frame,
)

MiB = 1024 * 1024
FRAMES = [(1, b"hello"), (2, b""), (3, b"x" * 20), (255, bytes(3))]
STREAM = PREAMBLE + b"".join(frame(kind, body) for kind, body in FRAMES)


def framer(*, trusted: bool = True) -> Framer:
    made = Framer(Buffers())
    if trusted:
        made.trust(64 * MiB)
    return made


def feed(made: Framer, pieces: Iterable[bytes]) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    for piece in pieces:
        while piece:
            buffer = made.get_buffer()
            count = min(len(buffer), len(piece))
            buffer[:count] = piece[:count]
            found += [(kind, bytes(body)) for kind, body in made.received(count)]
            piece = piece[count:]
    return found


def test_every_split_of_a_stream_gives_the_same_frames() -> None:
    for first, second in combinations(range(len(STREAM) + 1), 2):
        made = framer()
        pieces = (STREAM[:first], STREAM[first:second], STREAM[second:])
        assert feed(made, pieces) == FRAMES, (first, second)
        assert not made.unfinished


def test_stream_read_byte_by_byte_gives_the_same_frames() -> None:
    assert feed(framer(), (STREAM[i : i + 1] for i in range(len(STREAM)))) == FRAMES


@pytest.mark.parametrize("piece", [1000, 65_536, 200_000, 10 * MiB])
def test_frames_of_any_size_can_arrive_in_pieces_of_any_size(piece: int) -> None:
    edges = [SCRATCH_BYTES, TAIL_BYTES_MAX]
    sizes = [0, 3 * MiB, 1, *(edge + off for edge in edges for off in (-6, -5, -1, 0, 1)), 7]
    bodies = [bytes([n]) * size for n, size in enumerate(sizes)]
    stream = PREAMBLE + b"".join(frame(MESSAGE, body) for body in bodies)
    pieces = (stream[i : i + piece] for i in range(0, len(stream), piece))
    assert feed(framer(), pieces) == [(MESSAGE, body) for body in bodies]


@pytest.mark.parametrize("sizes", [(5, 0, 20), (100_000, 3, MiB, 50_000, 2 * MiB)])
def test_framers_that_share_buffers_do_not_mix_their_frames(sizes: tuple[int, ...]) -> None:
    buffers = Buffers()
    framers = [Framer(buffers) for _ in range(3)]
    bodies = [[bytes([n]) * size for size in sizes] for n in range(3)]
    streams = [PREAMBLE + b"".join(frame(MESSAGE, body) for body in each) for each in bodies]
    found: list[list[bytes]] = [[], [], []]
    piece = max(1, len(streams[0]) // 100)
    for i in range(0, len(streams[0]), piece):
        for n, made in enumerate(framers):
            made.trust(64 * MiB)
            found[n] += [body for _, body in feed(made, [streams[n][i : i + piece]])]
    assert found == bodies


def test_frames_before_the_handshake_have_a_small_limit() -> None:
    with pytest.raises(FrameTooLong, match=r"4,097 bytes long \(limit 4,096\).* frame_bytes_max"):
        feed(framer(trusted=False), [PREAMBLE, HEADER.pack(HELLO_BYTES_MAX + 1, 1)])
    fits = frame(1, bytes(HELLO_BYTES_MAX))
    assert feed(framer(trusted=False), [PREAMBLE + fits]) == [(1, bytes(HELLO_BYTES_MAX))]


def test_frame_beyond_the_length_limit_is_refused_before_its_body_arrives() -> None:
    with pytest.raises(FrameTooLong):
        feed(framer(), [PREAMBLE, HEADER.pack(64 * MiB + 1, MESSAGE)])


def test_announced_frame_length_does_not_allocate_memory() -> None:
    made = framer()
    tracemalloc.start()
    try:
        assert (
            feed(made, [PREAMBLE, HEADER.pack(64 * MiB, MESSAGE), bytes(TAIL_BYTES_MAX + 10)]) == []
        )
        made.get_buffer()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert made.unfinished
    assert peak < 8 * TAIL_BYTES_MAX


@pytest.mark.parametrize(
    ("greeting", "reported"),
    [
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "TLS"),
        (b"\x00", "does not speak the oncecast protocol"),
        (b"\xf0onceXX", "does not speak the oncecast protocol"),
    ],
)
def test_other_protocol_is_recognized_by_its_first_bytes(greeting: bytes, reported: str) -> None:
    with pytest.raises(NotOncecast, match=reported):
        feed(framer(), [greeting])


def test_first_wrong_byte_in_a_preamble_is_an_error() -> None:
    made = framer()
    assert feed(made, [PREAMBLE[:3]]) == []
    with pytest.raises(NotOncecast):
        feed(made, [b"?"])


def test_other_wire_format_has_its_own_error() -> None:
    with pytest.raises(WrongWireFormat, match="wire format 9, but this node uses 1; upgrade"):
        feed(framer(), [PREAMBLE[:-1] + b"\x09"])
