"""Values to bytes and back: MessagePack, and only the types that a codec was given.

A value is an array whose first element names its type, so a message costs its content and little
more. Nothing in a buffer can name a type, a size or a function that is not already here: there is
no pickle, and a length is only believed as far as the bytes that are really there.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Union

import msgspec
from msgspec import inspect

from oncecast.errors import Malformed
from oncecast.kernel.protocol import Value

Buffer = bytes | bytearray | memoryview

ENCODER = msgspec.msgpack.Encoder()
VOCABULARIES_MAX = 256  # remembered; a node has about five


class Codec:
    """One role's vocabulary, such as the messages of a stack, or the records of its log."""

    def __init__(self, kinds: tuple[type[Value], ...]) -> None:
        self.kinds = kinds
        self.encode = ENCODER.encode
        self._decode = _decoder(kinds).decode

    def decode(self, buffer: Buffer) -> Value:
        """The value in `buffer`, which may be reused at once; `Malformed` if there is none."""
        try:
            value: Value = self._decode(buffer)
        # Beside its own errors (ValueErrors too) the decoder lets through what Python says to text
        # that is no UTF-8 and to arrays nested without end.
        except (ValueError, RecursionError) as error:
            raise Malformed(f"{len(buffer)} bytes are no known value: {error}") from None
        return value


class Nothing(Value):
    """Stands in for a vocabulary without words."""


@lru_cache(maxsize=VOCABULARIES_MAX)
def _decoder(kinds: tuple[type[Value], ...]) -> msgspec.msgpack.Decoder[Any]:
    """Looked through once: a simulated node starts again and again, with the same words."""
    _refuse_equal_tags(kinds)
    _refuse_views(kinds)
    union: Any = Union[kinds] if kinds else Nothing  # noqa: UP007  # the members are only known now
    return msgspec.msgpack.Decoder(union)


def _refuse_equal_tags(kinds: tuple[type[Value], ...]) -> None:
    known: dict[object, type[Value]] = {}
    for kind in kinds:
        tag = kind.__struct_config__.tag
        other = known.setdefault(tag, kind)
        if other is not kind:
            raise TypeError(
                f"{named(other)} and {named(kind)} are both tagged {tag!r}: rename one, or give it "
                "a tag of its own "
                f'(class {kind.__name__}(Value, tag="..."))'
            )


def _refuse_views(kinds: tuple[type[Value], ...]) -> None:
    """A decoded view would point into a receive buffer that is overwritten by the next read."""
    for kind in kinds:
        for type_ in _types_in(inspect.type_info(kind), []):
            if isinstance(type_, inspect.MemoryViewType | inspect.RawType):
                raise TypeError(
                    f"{named(kind)} has a field that is a view of the "
                    "buffer it is decoded from, and that buffer is reused: declare it as bytes"
                )


def named(kind: type[Value]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _types_in(type_: object, seen: list[object]) -> Iterator[object]:
    """A type and all that its fields, items and alternatives are made of."""
    if any(type_ is other for other in seen):
        return
    seen.append(type_)
    yield type_
    for name in getattr(type_, "__struct_fields__", ()):
        content = getattr(type_, name)
        for part in content if isinstance(content, tuple) else (content,):
            if isinstance(part, inspect.Type | inspect.Field):
                yield from _types_in(part, seen)
