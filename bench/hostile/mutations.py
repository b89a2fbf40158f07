"""Mutate frames: flip bits, cut and splice messages, and write false lengths. This module does no
I/O.

A mutated body keeps its frame intact, so that the connection survives and the next frame is read. A
broken frame has a false length or kind, so that it ends the connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from oncecast.network.framing import BYE, HEADER, MESSAGE, frame

LENGTHS = (0, 1, 5, 127, 128, 255, 256, 65_535, 65_536, 2**24, 2**31 - 1, 2**31, 2**32 - 1)
# The first bytes of MessagePack items: integers, strings, bytes, arrays, maps, floats, nil, unused.
MARKS = bytes((0x00, 0x7F, 0x80, 0x90, 0x9F, 0xA0, 0xC0, 0xC1, 0xC4, 0xC6, 0xCA, 0xCB, 0xCF, 0xD3))
MARKS += bytes((0xD9, 0xDB, 0xDC, 0xDD, 0xDE, 0xDF, 0xE0, 0xFF))


def mutated(rng: Random, corpus: Sequence[bytes]) -> bytes:
    """Return the body of a message with one to four mutations."""
    body = bytearray(rng.choice(corpus))
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        kind = rng.randrange(6)
        at = rng.randrange(len(body)) if body else 0
        if not body:
            body += rng.randbytes(4)
        elif kind == 0:
            body[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            body[at] = rng.choice(MARKS)
        elif kind == 2:
            del body[at:]
        elif kind == 3:
            other = rng.choice(corpus)
            body[at:] = other[rng.randrange(len(other)) :]
        elif kind == 4:
            body[at:at] = rng.randbytes(rng.randrange(1, 9))
        else:
            del body[at : at + rng.randrange(1, 9)]
    return bytes(body)


def broken(rng: Random, corpus: Sequence[bytes]) -> bytes:
    """Return a frame with a wrong header, a truncated frame, or random bytes."""
    body = rng.choice(corpus)
    kind = rng.randrange(4)
    if kind == 0:
        return HEADER.pack(rng.choice(LENGTHS), MESSAGE) + body
    if kind == 1:
        return frame(rng.choice((0, 1, *range(BYE + 1, 256))), body)
    if kind == 2:
        whole = frame(MESSAGE, body)
        return whole[: rng.randrange(1, len(whole))]
    return rng.randbytes(rng.randrange(1, 600))


def damaged(rng: Random, greeting: bytes) -> bytes:
    """Return a greeting with up to three changed bytes, which may also be cut off."""
    data = bytearray(greeting)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data))
        data[at] = rng.choice((data[at] ^ 1 << rng.randrange(8), rng.choice(MARKS)))
    return bytes(data if rng.random() < 0.7 else data[: rng.randrange(1, len(data))])
