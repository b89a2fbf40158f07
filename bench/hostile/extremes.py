"""Generate well-typed messages with extreme numbers and unusual texts. This module does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec
from msgspec import inspect

from oncecast.kernel.codec import ENCODER
from oncecast.kernel.protocol import NodeId, Value
from oncecast.node.assemble import assemble
from oncecast.node.replica import CLIENTS
from oncecast.wire import commands as do
from oncecast.wire.frames import Govern, LeaveRing

WHOLE = (0, 1, -1, 2, 3, 255, 2**31, 2**32 - 1, 2**53, 2**62, 2**63 - 1, -(2**63), 2**64 - 1)
REAL = (0.0, -0.0, 1.0, -1.0, 1e308, -1e308, 5e-324, float("inf"), float("-inf"), float("nan"))
TEXTS = (
    *("", "a", "mallory", "mallory.a", "mallory.*", "*", "?", "/", "..", "a" * 255, "a" * 256),
    *("\0", "\n", "\x1b[2J", "é" * 128, "\u202e", "client/a", "127.0.0.1:9", "[::1]:9", "g-1"),
    *("127.0.0.1:99999", "oncecast:node", "mallory." + "x" * 200, "x" * 5000),
)
BLOBS = (b"", b"\0", b"\xff" * 8, b"\x28\xb5\x2f\xfd" + bytes(20), bytes(1000), b"\x90" * 4000)
ITEMS = (0, 1, 1, 2, 3, 50)
DEPTH_MAX = 4

Make = Callable[[Random], Any]


def messages_of_clients() -> tuple[type[Value], ...]:
    return CLIENTS


def messages_of_peers() -> tuple[type[Value], ...]:
    parts = assemble(NodeId("127.0.0.1:1"), Random(0))
    return tuple(kind for kind in parts.stack.wiring.receiver if kind not in CLIENTS)


class Extremes:
    """Creates encoded messages of these types."""

    def __init__(self, kinds: Sequence[type[Value]], *, spare: Sequence[type[Value]] = ()) -> None:
        self._spare = frozenset(spare)
        self._types = [inspect.type_info(kind) for kind in kinds if kind not in self._spare]

    def make(self, rng: Random) -> bytes:
        """Return a message. Occasionally, one of its fields is very large."""
        while True:
            made = self._value(rng, rng.choice(self._types), 0)
            try:
                return ENCODER.encode(made)
            except (
                OverflowError,
                msgspec.EncodeError,
            ):  # the value has more than 64 bits, or is nested too deeply
                continue

    # This function is long because it has one case for each kind of type.
    def _value(self, rng: Random, type_: inspect.Type, depth: int) -> Any:
        match type_:
            case inspect.IntType():
                return rng.choice(WHOLE) if rng.random() < 0.8 else rng.randrange(-5, 2000)
            case inspect.FloatType():
                return rng.choice(REAL)
            case inspect.BoolType():
                return rng.random() < 0.5
            case inspect.StrType():
                return rng.choice(TEXTS)
            case inspect.BytesType():
                return rng.choice(BLOBS) if rng.random() < 0.99 else bytes(200_000)
            case inspect.NoneType():
                return None
            case inspect.UnionType(types):
                kept = [each for each in types if getattr(each, "cls", None) not in self._spare]
                return self._value(rng, rng.choice(kept), depth)
            case inspect.VarTupleType(item) | inspect.ListType(item):
                count = rng.choice(ITEMS) if depth < DEPTH_MAX else 0
                return [self._value(rng, item, depth + 1) for _ in range(count)]
            case inspect.TupleType(items):
                return [self._value(rng, item, depth + 1) for item in items]
            case inspect.StructType() | inspect.NamedTupleType():
                fields = [self._value(rng, each.type, depth + 1) for each in type_.fields]
                tag = getattr(type_, "tag", None)
                return fields if tag is None else [tag, *fields]
            case inspect.EnumType(cls):
                return rng.choice(list(cls)).value
            case inspect.LiteralType(values):
                return rng.choice(values)
            case _:
                raise TypeError(f"no extreme values of {type_}")


# On a node without users, every client is an administrator, so these commands would take effect.
ADMINISTRATIVE = (
    Govern,
    LeaveRing,
    do.AddUser,
    do.RemoveUser,
    do.CreateToken,
    do.RevokeToken,
    do.Allow,
    do.Disallow,
)
