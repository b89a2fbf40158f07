"""Encode values as MessagePack, and decode only known types.

A value is an array whose first element is the tag of its type. The decoder builds no other types,
and rejects a declared length that exceeds the buffer.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Union

import msgspec

from oncecast.errors import Malformed
from oncecast.kernel.protocol import Value
from oncecast.kernel.skim import SKIMMED_FROM, skim

Buffer = bytes | bytearray | memoryview

ENCODER = msgspec.msgpack.Encoder()
DECODERS_MAX = 256  # maximum cached decoders; a node needs about five


class Codec:
    """Encodes and decodes a set of types, such as a stack's messages or records.

    A field must not be a memoryview, because the next read overwrites the receive buffer. Pass
    `wary` to decode input from untrusted senders: `decode` then rejects a buffer with too many
    items.
    """

    def __init__(self, kinds: tuple[type[Value], ...], *, wary: bool = False) -> None:
        self.kinds, self._wary = kinds, wary
        self.encode = ENCODER.encode
        self._decode = _decoder(kinds).decode

    def decode(self, buffer: Buffer) -> Value:
        """Return the value in `buffer` or raise Malformed. The caller may then reuse the buffer."""
        if self._wary and len(buffer) > SKIMMED_FROM:
            skim(buffer)
        try:
            value: Value = self._decode(buffer)
        # The decoder's own errors are ValueErrors. It also raises Python's errors for invalid UTF-8
        # and for deeply nested arrays.
        except (ValueError, RecursionError) as error:
            raise Malformed(f"cannot decode {len(buffer)} bytes: {error}") from None
        return value


class Nothing(Value):
    """A type that stands in for an empty set of types."""


@lru_cache(maxsize=DECODERS_MAX)
def _decoder(kinds: tuple[type[Value], ...]) -> msgspec.msgpack.Decoder[Any]:
    """Check the types and return a decoder. It is cached because simulated nodes restart often."""
    _refuse_equal_tags(kinds)
    union: Any = Union[kinds] if kinds else Nothing  # noqa: UP007  # `|` cannot join a tuple
    return msgspec.msgpack.Decoder(union)


def _refuse_equal_tags(kinds: tuple[type[Value], ...]) -> None:
    known: dict[object, type[Value]] = {}
    for kind in kinds:
        tag = kind.__struct_config__.tag
        other = known.setdefault(tag, kind)
        if other is not kind:
            raise TypeError(
                f"{named(other)} and {named(kind)} have the same tag {tag!r}; change one of them "
                f'(class {kind.__name__}(Value, tag="..."))'
            )


def named(kind: type[Value]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
