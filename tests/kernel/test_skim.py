"""The cost of decoding an untrusted message is limited before it is decoded."""

from __future__ import annotations

import msgspec
import pytest

from oncecast.errors import Malformed
from oncecast.kernel.codec import Codec
from oncecast.kernel.skim import ITEMS_MAX, SKIMMED_FROM, TEXT_BYTES_MAX, skim
from oncecast.wire.commands import PublishStaged, Put
from oncecast.wire.frames import Call, Look

WARY = Codec((Call, Look), wary=True)


def test_large_batch_is_decoded() -> None:
    """SEC-3"""
    put = Call(1, Put("topic", "p", 1, 2, 3, 4, 5, bytes(1 << 20)))
    assert WARY.decode(WARY.encode(put)) == put


def test_large_message_with_many_items_is_refused() -> None:
    """SEC-3: otherwise 22 million part names would take 15 seconds and 1.8 GB."""
    publish = Call(1, PublishStaged("source", 1, ("",) * (SKIMMED_FROM + 1), 0))
    with pytest.raises(Malformed, match="more than 20,000 items"):
        WARY.decode(WARY.encode(publish))


def test_message_that_announces_too_many_items_is_refused_at_once() -> None:
    """SEC-3"""
    announced = b"\xdd" + (1 << 30).to_bytes(4, "big") + bytes(SKIMMED_FROM)
    with pytest.raises(Malformed, match="items"):
        WARY.decode(announced)


def test_long_text_is_refused() -> None:
    """SEC-3"""
    with pytest.raises(Malformed, match="string is 65,537 bytes long"):
        WARY.decode(WARY.encode(Look(1, "x" * (TEXT_BYTES_MAX + 1))))


def test_item_limit_is_exact() -> None:
    """SEC-3"""
    skim(msgspec.msgpack.encode(["", *range(ITEMS_MAX - 2)]))
    with pytest.raises(Malformed):
        skim(msgspec.msgpack.encode(["", *range(ITEMS_MAX - 1)]))


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        1.5,
        [0, 127, 128, 255, 256, 65_535, 65_536, 2**32, 2**64 - 1],
        [-1, -32, -33, -128, -129, -32_768, -32_769, -(2**31) - 1, -(2**63)],
        ["", "x" * 31, "x" * 32, "x" * 256, "x" * TEXT_BYTES_MAX],
        [b"", bytes(256), bytes(65_536)],
        [[], [[1], 2] * 20, [0] * 16, ["a", [b"b"]]],
    ],
)
def test_message_truncated_inside_any_kind_of_item_is_refused(value: object) -> None:
    encoded = msgspec.msgpack.encode([value, "end"])
    skim(encoded)
    for size in range(max(0, len(encoded) - 4), len(encoded) - 3):
        with pytest.raises(Malformed, match="middle"):
            skim(encoded[:size])


@pytest.mark.parametrize("first", [0x80, 0x8F, 0xC1, 0xC7, 0xD4, 0xDE, 0xDF])
def test_maps_and_extensions_are_refused(first: int) -> None:
    with pytest.raises(Malformed, match="unexpected item"):
        skim(bytes([first]) + bytes(16))
