"""Limit the cost of decoding a buffer before the decoder builds any object.

A few megabytes of MessagePack can hold millions of items, which take seconds and gigabytes to
decode. `skim` counts the items of a buffer without building them, and stops at a limit.
"""

from __future__ import annotations

from oncecast.errors import Malformed

SKIMMED_FROM = 64 * 1024  # smaller buffers need no check, because they hold at most 65,536 items
ITEMS_MAX = 20_000  # maximum items in one buffer
TEXT_BYTES_MAX = 64 * 1024  # maximum size of one string; only byte strings may be longer

FIXED = {  # length of each item after its first byte
    **dict.fromkeys((0xC0, 0xC2, 0xC3), 0),
    **dict.fromkeys((0xCC, 0xD0), 1),
    **dict.fromkeys((0xCD, 0xD1), 2),
    **dict.fromkeys((0xCE, 0xD2, 0xCA), 4),
    **dict.fromkeys((0xCF, 0xD3, 0xCB), 8),
}
TEXTS = {0xD9: 1, 0xDA: 2, 0xDB: 4}  # size of the length field
BYTES = {0xC4: 1, 0xC5: 2, 0xC6: 4}
ARRAYS = {0xDC: 2, 0xDD: 4}


def skim(buffer: bytes | bytearray | memoryview) -> None:
    """Raise Malformed if the buffer has too many items, an overlong string or an unknown type."""
    at, left, items, size = 0, 1, 0, len(buffer)
    while left:
        if at >= size:
            raise Malformed(f"cannot decode {size} bytes: they end in the middle of a value")
        first = buffer[at]
        at += 1
        left -= 1
        items += 1
        length = 0  # number of elements in an array
        if first <= 0x7F or first >= 0xE0:
            pass  # a small number
        elif 0xA0 <= first <= 0xBF:
            at += first & 0x1F
        elif 0x90 <= first <= 0x9F:
            length = first & 0x0F
        elif first in FIXED:
            at += FIXED[first]
        elif first in TEXTS:
            text = int.from_bytes(buffer[at : at + TEXTS[first]], "big")
            if text > TEXT_BYTES_MAX:
                raise Malformed(f"a string is {text:,} bytes long (limit {TEXT_BYTES_MAX:,})")
            at += TEXTS[first] + text
        elif first in BYTES:
            at += BYTES[first] + int.from_bytes(buffer[at : at + BYTES[first]], "big")
        elif first in ARRAYS:
            length = int.from_bytes(buffer[at : at + ARRAYS[first]], "big")
            at += ARRAYS[first]
        else:  # maps and extensions, which messages never contain
            raise Malformed(f"cannot decode {size} bytes: unexpected item {first:#x}")
        left += length
        if items + left > ITEMS_MAX:
            raise Malformed(f"a message has more than {ITEMS_MAX:,} items; split it")
