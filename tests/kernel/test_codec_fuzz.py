"""A million damaged frames raise only protocol errors."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from msgspec import inspect

from oncecast.errors import ProtocolError
from oncecast.kernel.codec import Codec
from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.network.framing import GREETING, HEADER_BYTES, MESSAGE, Buffers, Framer, frame
from oncecast.network.handshake import GREETINGS
from oncecast.overlay import Mesh, Plumtree, Recovery

FRAMES = 250_000  # per run; there are four runs
EXAMPLES = 400


class Everything(Value):
    """A message with a field of each supported type."""

    number: int
    fraction: float
    text: str
    blob: bytes
    flag: bool
    some: frozenset[str]
    table: dict[tuple[int, str], bytes]
    either: int | str | None
    deep: Everything | None


def vocabulary() -> tuple[type[Value], ...]:
    me, rng = NodeId("a:1"), Random(0)
    stack = Stack([Mesh(me, rng, peers=[me]), Plumtree(me, rng), Recovery(me, rng)])
    return (*stack.wiring.owners("Message"), *stack.wiring.owners("Record"), Everything)


def example(type_: Any, rng: Random, depth: int = 0) -> Any:
    """Return a random value of this type."""
    match type_:
        case inspect.IntType():
            return rng.choice((0, 1, -1, 2**31, 2**62, rng.getrandbits(16)))
        case inspect.FloatType():
            return rng.random()
        case inspect.StrType():
            return rng.choice(("", "127.0.0.1:7400", "Zürich", "x" * 40))
        case inspect.BytesType():
            return rng.randbytes(rng.choice((0, 5, 40)))
        case inspect.BoolType():
            return rng.random() < 0.5
        case inspect.NoneType():
            return None
        case inspect.TupleType():
            return tuple(example(item, rng, depth + 1) for item in type_.item_types)
        case inspect.ListType() | inspect.VarTupleType() | inspect.FrozenSetType():
            items = [example(type_.item_type, rng, depth + 1) for _ in range(rng.randrange(4))]
            made = {inspect.ListType: list, inspect.FrozenSetType: frozenset}.get(
                type(type_), tuple
            )
            return made(items)
        case inspect.DictType():
            keys = [example(type_.key_type, rng, depth + 1) for _ in range(rng.randrange(3))]
            return {key: example(type_.value_type, rng, depth + 1) for key in keys}
        case inspect.UnionType():
            simple = [t for t in type_.types if depth < 3 or not isinstance(t, inspect.StructType)]
            return example(rng.choice(simple), rng, depth + 1)
        case inspect.StructType():
            return type_.cls(*(example(field.type, rng, depth + 1) for field in type_.fields))
        case _:
            raise AssertionError(f"no example of {type_}")


def flip(whole: bytearray, rng: Random, other: bytes) -> None:
    for _ in range(rng.randrange(1, 4)):
        whole[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)


def overwrite(whole: bytearray, rng: Random, other: bytes) -> None:
    """Insert a byte with a special meaning in MessagePack: a length, a type or nil."""
    at = rng.randrange(HEADER_BYTES, len(whole))
    whole[at] = rng.choice(
        b"\x00\x7f\x80\x8f\x90\x9f\xa0\xc0\xc1\xc4\xc6\xc9\xcb\xcf\xd3\xd9\xdb\xdd\xdf"
    )


def cut(whole: bytearray, rng: Random, other: bytes) -> None:
    """Correct the length in the header, so that the decoder gets the damaged body."""
    del whole[rng.randrange(HEADER_BYTES, len(whole)) :]
    whole[:4] = (len(whole) - HEADER_BYTES).to_bytes(4, "big")


def splice(whole: bytearray, rng: Random, other: bytes) -> None:
    whole[rng.randrange(HEADER_BYTES, len(whole)) :] = other[
        rng.randrange(HEADER_BYTES, len(other)) :
    ]
    whole[:4] = (len(whole) - HEADER_BYTES).to_bytes(4, "big")


def stretch(whole: bytearray, rng: Random, other: bytes) -> None:
    """Change a length field, so that the rest of the stream is split wrongly."""
    whole[:4] = rng.choice((rng.randrange(64), rng.getrandbits(32))).to_bytes(4, "big")
    whole += other


DAMAGES: tuple[Callable[[bytearray, Random, bytes], None], ...] = (
    flip,
    overwrite,
    overwrite,
    cut,
    splice,
    stretch,
)


def examples(rng: Random) -> tuple[Codec, list[bytes]]:
    kinds = vocabulary()
    codec = Codec(kinds)
    frames = []
    for codec_, kind in ((codec, MESSAGE), (GREETINGS, GREETING)):
        for type_ in codec_.kinds:
            for _ in range(EXAMPLES // len(kinds) + 1):
                value = example(inspect.type_info(type_), rng)
                body = codec_.encode(value)
                assert codec_.decode(body) == value
                frames.append(frame(kind, body))
    return codec, frames


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_damaged_frames_give_values_or_protocol_errors(seed: int) -> None:
    rng = Random(seed)
    codec, frames = examples(rng)
    decoders = {MESSAGE: codec.decode, GREETING: GREETINGS.decode}
    buffers = Buffers()
    outcomes = {"values": 0, "errors": 0, "unfinished": 0}
    framer = Framer(buffers)
    framer.greeted = True
    for n in range(FRAMES):
        whole = bytearray(rng.choice(frames))
        DAMAGES[n % len(DAMAGES)](whole, rng, rng.choice(frames))
        try:
            framer.get_buffer()[: len(whole)] = whole
            for kind, body in framer.received(len(whole)):
                if kind in decoders:
                    decoders[kind](body)
                    outcomes["values"] += 1
        except ProtocolError:
            outcomes["errors"] += 1
        if framer.unfinished:
            outcomes["unfinished"] += 1
        if framer.unfinished or n % len(DAMAGES) == len(DAMAGES) - 1:
            framer = Framer(buffers)
            framer.greeted = True
            framer.trust(rng.choice((4096, 64 * 1024 * 1024)))
    # Every outcome must occur: if all frames failed immediately, the test would prove little.
    assert min(outcomes.values()) > FRAMES // 50, outcomes
