"""Draws messages that are well typed but extreme, as an attacker would send them.

A codec accepts all of them, because each is encoded and decoded again. Some fields have values that
the nodes under attack know, so that a message is not dropped at the first check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from msgspec import inspect

from oncecast.errors import Malformed
from oncecast.kernel.codec import Codec
from oncecast.kernel.protocol import Value

INTEGERS = (0, 1, -1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**63))
FLOATS = (0.0, -1.0, 1e308, -1e308, float("inf"), float("-inf"), float("nan"), 5e-324)
LENGTHS = (0, 0, 0, 1, 1, 1, 2, 3, 100)
LONG = 10_000  # length of an extremely long text
DEPTH_MAX = 6
TRIES = 20


class Extremes:
    """Draws messages of `kinds`. `texts` are names that the nodes under attack know."""

    def __init__(self, rng: Random, kinds: Sequence[type[Value]], texts: Sequence[str]) -> None:
        self._rng, self._kinds, self._texts = (
            rng,
            sorted(kinds, key=lambda kind: kind.__name__),
            texts,
        )
        self._codecs = {kind: Codec((kind,)) for kind in self._kinds}
        self._types = {kind: inspect.type_info(kind) for kind in self._kinds}
        self._drawers: dict[type, Callable[[Any, int], Any]] = {
            inspect.IntType: lambda type_, depth: self._integer(),
            inspect.FloatType: lambda type_, depth: self._rng.choice(FLOATS),
            inspect.BoolType: lambda type_, depth: self._rng.random() < 0.5,
            inspect.StrType: lambda type_, depth: self._text(),
            inspect.BytesType: lambda type_, depth: self._bytes(),
            inspect.NoneType: lambda type_, depth: None,
            inspect.AnyType: lambda type_, depth: self._integer(),
            inspect.LiteralType: lambda type_, depth: self._rng.choice(type_.values),
            inspect.UnionType: lambda type_, depth: self._any(self._rng.choice(type_.types), depth),
            inspect.TupleType: lambda type_, depth: tuple(
                self._any(each, depth + 1) for each in type_.item_types
            ),
            inspect.VarTupleType: lambda type_, depth: tuple(self._several(type_, depth)),
            inspect.ListType: lambda type_, depth: self._several(type_, depth),
            inspect.NamedTupleType: self._record,
            inspect.StructType: self._record,
        }

    def message(self) -> Value:
        """Return a message that the codec of its type accepts."""
        while True:
            kind = self._rng.choice(self._kinds)
            codec = self._codecs[kind]
            for _ in range(TRIES):
                try:
                    return codec.decode(codec.encode(self._any(self._types[kind], 0)))
                except (OverflowError, Malformed):
                    continue

    def _any(self, type_: Any, depth: int) -> Any:
        return self._drawers[type(type_)](type_, depth)

    def _record(self, type_: Any, depth: int) -> Any:
        return type_.cls(*[self._any(field.type, depth + 1) for field in type_.fields])

    def _several(self, type_: Any, depth: int) -> list[Any]:
        length = self._rng.choice(LENGTHS) if depth < DEPTH_MAX else 0
        if length > 3:
            return [self._any(type_.item_type, DEPTH_MAX)] * length
        return [self._any(type_.item_type, depth + 1) for _ in range(length)]

    def _integer(self) -> int:
        rng = self._rng
        return rng.choice(INTEGERS) if rng.random() < 0.5 else rng.randrange(64)

    def _text(self) -> str:
        rng = self._rng
        if rng.random() < 0.7:
            return rng.choice(self._texts)
        return rng.choice(("", "x", "\0", "é" * 10, "/", "x" * LONG))

    def _bytes(self) -> bytes:
        rng = self._rng
        return rng.choice((b"", b"\xc0", b"\x00" * 32, rng.randbytes(32), b"\xff" * LONG))
