"""Damaged and forged batches raise BadBatch, and never yield a wrong message."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

import msgspec
import pytest
import zstandard
from google_crc32c import value
from hypothesis import given
from hypothesis import strategies as st

from oncecast.wire import batch
from oncecast.wire.batch import BadBatch
from oncecast.wire.batch_layout import (
    BYTES_MAX,
    HEADER_BYTES,
    HEADERS,
    KEYS,
    MESSAGES_MAX,
    TIMES,
    ZSTD,
    Parts,
    seal,
    seal_columns,
)

PLACE: dict[str, Any] = {"topic": "t", "offset": 0, "producer": "p", "sequence": 0}
FIELDS = struct.Struct("<8sHHIqIIIIII")

PLAIN = batch.encode([b"one", b"", b"three"], timestamps=5)
FULL = batch.encode(
    [b"one", b"", b"three"],
    keys=[b"k", None, b""],
    headers=[{"é": b"1", "h": b""}, None, {"n": b"22"}],
    timestamps=[1, 2, 3],
)
COMPRESSED = batch.encode([b"x" * 40] * 4, timestamps=range(4), zstd=3, zstd_from=0)
FOREIGN = batch.wrap(b"whatever", format=999, count=3, timestamp=1)
KINDS = pytest.mark.parametrize(
    "data", [PLAIN, FULL, COMPRESSED, FOREIGN], ids=["plain", "full", "compressed", "foreign"]
)


def sealed(data: bytes) -> bytes:
    """Return the batch with a correct checksum."""
    return data[:-4] + int(value(data[:-4])).to_bytes(4, "little")


def lying(data: bytes, **fields: int) -> bytes:
    header = msgspec.structs.replace(batch.peek(data), **fields)
    return sealed(FIELDS.pack(*msgspec.structs.astuple(header)) + data[HEADER_BYTES:])


def lengths(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def made(**parts: bytes) -> bytes:
    return seal_columns(Parts(**parts), 0, zstd=None, zstd_from=0)


def headed(*, names: tuple[int, int], values: tuple[int, int]) -> bytes:
    """Return a batch with two headers of these sizes."""
    return made(
        value_lengths=lengths(0),
        header_counts=lengths(2),
        name_lengths=lengths(*names),
        header_lengths=lengths(*values),
        names=b"n" * sum(names),
        headers=bytes(sum(values)),
    )


def read(data: bytes) -> None:
    """Read a batch that passed the check. Only a compressed batch may still raise BadBatch."""
    header = batch.check(data)
    if header.format != 1:
        batch.unwrap(data)
        return
    try:
        messages = batch.messages(data, **PLACE)
    except BadBatch:
        assert header.flags & ZSTD
        raise
    assert len(messages) == header.count
    assert sum(len(message.value) for message in messages) == header.value_bytes


@KINDS
def test_every_flipped_bit_is_detected(data: bytes) -> None:
    """SVC-10: damage is found by the checksum and never served."""
    for place in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            with pytest.raises(BadBatch):
                batch.check(flipped)
            with pytest.raises(BadBatch):
                batch.messages(flipped, **PLACE)


@KINDS
def test_truncated_or_extended_batch_is_always_refused(data: bytes) -> None:
    """SVC-10."""
    for size in range(len(data)):
        with pytest.raises(BadBatch):
            batch.check(data[:size])
        with pytest.raises(BadBatch):
            batch.values(data[:size])
    with pytest.raises(BadBatch, match="send all of it"):
        batch.check(data + b"\0")


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_bad_batch(data: bytes) -> None:
    for attempt in (data, PLAIN[:8] + data, sealed(PLAIN[:24] + data + bytes(4))):
        with pytest.raises(BadBatch):
            read(attempt)


@KINDS
@given(place=st.integers(0, 200), put=st.binary(min_size=1, max_size=8))
def test_forged_contents_with_a_valid_checksum_do_not_crash_readers(
    data: bytes, place: int, put: bytes
) -> None:
    place %= len(data) - 4
    forged = sealed((data[:place] + put + data[place + len(put) :])[: len(data) - 4] + bytes(4))
    with suppress(BadBatch):
        read(forged)


@given(st.data())
def test_forged_header_fields_raise_bad_batch(data: st.DataObject) -> None:
    source = data.draw(st.sampled_from([PLAIN, FULL, COMPRESSED]))
    name = data.draw(
        st.sampled_from(
            ["flags", "count", "value_bytes", "key_bytes", "pairs", "name_bytes", "header_bytes"]
        )
    )
    true = getattr(batch.peek(source), name)
    most = 0xFFFF if name == "flags" else 0xFFFFFFFF
    number = data.draw(st.integers(0, 50) | st.integers(0, most))
    if number != true:
        with pytest.raises(BadBatch):
            read(lying(source, **{name: number}))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (lying(PLAIN, count=0), "0 messages"),
        (lying(PLAIN, count=MESSAGES_MAX + 1), "1,000,001 messages"),
        (lying(PLAIN, count=MESSAGES_MAX), "4,000,008 bytes of columns"),
        (lying(PLAIN, value_bytes=0xFFFFFFFF), "4,294,967,307 bytes"),
        (lying(PLAIN, value_bytes=9), "21 bytes of columns"),
        (lying(PLAIN, bytes=0xFFFFFFFF), "send all of it"),
        (lying(PLAIN, format=2), "unknown format 2"),
        (lying(PLAIN, flags=16), "unknown flags 0x10"),
        (lying(PLAIN, key_bytes=1, value_bytes=7), "but its flags (0x"),
        (lying(PLAIN, name_bytes=1, value_bytes=7), "but its flags (0x"),
        (lying(FULL, flags=TIMES | KEYS), "but its flags (0x"),
        (lying(FULL, flags=KEYS | HEADERS), "bytes of columns"),
        (b"not a batch, but as long as one would be at the least", "it starts with"),
        (b"", "is 0 bytes long (minimum 52)"),
        (made(value_lengths=lengths(3, 3), values=b"seven b"), "value lengths do not add up"),
        (made(value_lengths=lengths(3, 3), values=b"five "), "value lengths do not add up"),
        (
            made(value_lengths=lengths(0xFFFFFFFF, 8), values=b"seven b"),
            "value lengths do not add up",
        ),
        (
            made(value_lengths=lengths(0), key_lengths=lengths(2), keys=b"k"),
            "key column do not add up",
        ),
        (
            made(value_lengths=lengths(0), key_lengths=lengths(65_536), keys=bytes(65_536)),
            "key: 65,536 to 65,536 (limits 0 to 65,535",
        ),
        (made(value_lengths=lengths(0), header_counts=lengths(1)), "number of headers"),
        (
            made(
                value_lengths=lengths(0),
                header_counts=lengths(65),
                name_lengths=lengths(*[1] * 65),
                header_lengths=lengths(*[0] * 65),
                names=b"n" * 65,
            ),
            "number of headers: 65",
        ),
        (
            made(
                value_lengths=lengths(0),
                header_counts=lengths(2),
                name_lengths=lengths(1, 1),
                header_lengths=lengths(0, 0),
                names="é".encode(),
            ),
            "not valid UTF-8",
        ),
        (
            made(
                value_lengths=lengths(0),
                header_counts=lengths(1),
                name_lengths=lengths(0),
                header_lengths=lengths(0),
            ),
            "header name: 0 to 0 (limits 1 to 255",
        ),
        (
            made(
                value_lengths=lengths(0, 0),
                key_lengths=lengths(0, 65_536),
                keys=bytes(65_536),
            ),
            "key: 0 to 65,536 (limits 0 to 65,535",
        ),
        (headed(names=(0, 3), values=(0, 0)), "header name: 0 to 3 (limits 1 to 255"),
        (headed(names=(1, 256), values=(0, 0)), "header name: 1 to 256 (limits 1 to 255"),
        (headed(names=(1, 1), values=(0, 65_536)), "header value: 0 to 65,536 (limits 0 to 65,535"),
        (
            lying(headed(names=(1, 1), values=(2, 3)), header_bytes=4, name_bytes=3),
            "header name column do not add up",
        ),
        (
            made(
                value_lengths=lengths(0),
                header_counts=lengths(3),
                name_lengths=lengths(1, 1, 1),
                header_lengths=lengths(0, 0, 0),
                names="aé".encode(),
            ),
            "not valid UTF-8",
        ),
        (
            made(
                value_lengths=lengths(0),
                header_counts=lengths(1),
                name_lengths=lengths(1),
                header_lengths=lengths(2),
                names=b"n",
                headers=b"x",
            ),
            "header value column do not add up",
        ),
        (lying(PLAIN, flags=TIMES), "44 bytes of columns"),
        (made(value_lengths=lengths(0x01000003), values=b"abc"), "value lengths do not add up"),
    ],
)
def test_error_describes_the_invalid_field(data: bytes, text: str) -> None:
    with pytest.raises(BadBatch) as raised:
        batch.check(data)
    assert text in str(raised.value)


@pytest.mark.parametrize("count", [1, 2])
def test_declared_value_size_must_match_the_actual_size(count: int) -> None:
    """SVC-10: the lengths of the values may still add up to the declared size."""
    for size in range(40):
        numbers = lengths(size, *[0] * (count - 1))
        data = lying(made(value_lengths=numbers, values=b"twelve bytes"), value_bytes=size)
        if size == 12:
            batch.check(data)
        else:
            with pytest.raises(BadBatch):
                batch.check(data)


def test_checksum_is_never_read_as_a_length() -> None:
    """SVC-10: for some of these timestamps, the checksum looks like the end of a length."""
    for time in range(2048):
        data = seal(1, 0, 1, time, (1, 0, 0, 0, 0), [lengths(1)[:3]])
        with pytest.raises(BadBatch, match="5 bytes of columns"):
            batch.check(data)


def test_header_flag_without_headers_is_valid() -> None:
    """SVC-1"""
    data = made(value_lengths=lengths(1), header_counts=lengths(0), values=b"x")
    batch.check(data)
    assert [each.headers for each in batch.messages(data, **PLACE)] == [{}]


@pytest.mark.long
def test_valid_batch_over_the_size_limit_is_refused() -> None:
    data = lying(PLAIN + bytes(BYTES_MAX), bytes=len(PLAIN) + BYTES_MAX)
    with pytest.raises(BadBatch, match="limit 67,108,864"):
        batch.check(data)


def bomb(frame: bytes, value_bytes: int) -> bytes:
    return seal(1, ZSTD, 1, 0, (value_bytes, 0, 0, 0, 0), [frame])


def frame_of(data: bytes, **options: Any) -> bytes:
    return zstandard.ZstdCompressor(**options).compress(data)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (bomb(frame_of(bytes(BYTES_MAX + 1)), BYTES_MAX - 3), "limit 67,108,864"),
        (bomb(frame_of(bytes(BYTES_MAX + 1)), 10), "declares 67,108,865 bytes"),
        (bomb(frame_of(bytes(14), write_content_size=False), 10), "does not declare the size"),
        (bomb(frame_of(bytes(14)) + b"more", 10), "cannot be decompressed"),
        (bomb(frame_of(bytes(14)) + frame_of(bytes(9)), 10), "cannot be decompressed"),
        (bomb(frame_of(bytes(range(200)) * 9)[:-5], 1796), "cannot be decompressed"),
        (bomb(b"no frame at all", 10), "cannot be decompressed"),
        (bomb(frame_of(lengths(9) + bytes(10)), 10), "do not add up"),
    ],
    ids=["large", "lie", "silent", "surplus", "two", "cut", "noise", "inside"],
)
def test_invalid_compressed_batch_is_refused(
    data: bytes, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong size is detected before any data is decompressed."""
    if "declare" in text or text == "limit 67,108,864":
        monkeypatch.setattr(zstandard, "ZstdDecompressor", None)
    with pytest.raises(BadBatch, match=text):
        batch.values(data)
