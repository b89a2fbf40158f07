"""Batches are encoded, and read in full or in part."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncecast.wire import batch, batch_builder, batch_layout
from oncecast.wire.batch import BadBatch, Builder, Oversized
from oncecast.wire.message import Message

Row = tuple[bytes, bytes | None, Mapping[str, bytes], int]
PLACE: dict[str, Any] = {"topic": "my data", "offset": 100, "producer": "p", "sequence": 7}

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
times = st.one_of(st.just(5), st.integers(-(2**63) + 1, 2**63 - 1))
rows = st.tuples(
    st.binary(max_size=40),
    st.none() | st.binary(max_size=10),
    st.dictionaries(names, st.binary(max_size=10), max_size=3),
    times,
)


def packed(rows: list[Row], **options: Any) -> bytes:
    values, keys, headers, timestamps = zip(*rows, strict=True)
    return batch.encode(values, keys=keys, headers=headers, timestamps=timestamps, **options)


def expected(rows: list[Row]) -> list[Message]:
    return [
        Message("my data", 100 + i, key, value, headers, time, "p", 7 + i, False)
        for i, (value, key, headers, time) in enumerate(rows)
    ]


@given(st.lists(rows, min_size=1, max_size=30))
def test_messages_round_trip(rows: list[Row]) -> None:
    """SVC-1: a message has a value, an optional key and headers. An empty key is not None."""
    data = packed(rows)
    assert batch.check(data).count == len(rows)
    assert batch.messages(data, **PLACE) == expected(rows)
    assert batch.values(data) == [value for value, *_ in rows]


@given(st.lists(rows, min_size=1, max_size=30), st.integers(1, 19))
def test_compressed_messages_round_trip(rows: list[Row], level: int) -> None:
    """SVC-1."""
    padded: list[Row] = [(value * 50, key, found, time) for value, key, found, time in rows]
    data = packed(padded, zstd=level, zstd_from=0)
    assert batch.check(data).count == len(rows)
    assert batch.messages(data, **PLACE) == expected(padded)


@given(
    st.lists(rows, min_size=1, max_size=12),
    st.integers(0, 15),
    st.none() | st.integers(0, 15),
    st.booleans(),
)
def test_any_part_of_a_batch_can_be_read(
    rows: list[Row], skip: int, count: int | None, zstd: bool
) -> None:
    data = packed(rows, zstd=1 if zstd else None, zstd_from=0)
    end = None if count is None else skip + count
    # Offset and sequence are those of the first returned message.
    assert batch.messages(data, **PLACE, skip=skip, count=count) == expected(rows[skip:end])
    assert batch.values(data, skip, count) == batch.values(data)[skip:end]


@given(st.lists(rows, min_size=1, max_size=30))
def test_builder_never_underestimates_the_size_of_its_batch(rows: list[Row]) -> None:
    builder = Builder()
    assert [builder.add(*row) for row in rows] == list(range(len(rows)))
    data = builder.build()
    assert len(data) <= builder.bytes
    assert data == packed(rows)
    assert len(builder) == len(rows)


def test_extend_builds_the_same_batch_as_single_adds() -> None:
    together, alone = Builder(), Builder()
    for time, group in ((5, [b"a", b""]), (5, [b"b"]), (6, []), (7, [b"c", b"dd"])):
        assert together.extend(group, time) == len(alone)
        for value in group:
            alone.add(value, None, None, time)
    assert together.build() == alone.build()
    assert together.bytes == alone.bytes
    assert [m.timestamp for m in batch.messages(alone.build(), **PLACE)] == [5, 5, 5, 7, 7]


def test_equal_timestamps_take_no_space() -> None:
    same = batch.encode([b"x"] * 100, timestamps=9)
    assert len(same) == batch_layout.FRAME_BYTES + 100 * (4 + 1)
    assert len(batch.encode([b"x"] * 100, timestamps=range(100))) == len(same) + 800


def test_redelivered_flag_is_set_on_every_message() -> None:
    data = batch.encode([b"a", b"b"], timestamps=0)
    assert all(m.redelivered for m in batch.messages(data, **PLACE, redelivered=True))


def test_empty_headers_are_immutable() -> None:
    message = batch.messages(batch.encode([b"a"], timestamps=0), **PLACE)[0]
    assert message.headers == {}
    with pytest.raises(TypeError):
        message.headers["x"] = b"y"  # type: ignore[index]


def test_builder_copies_added_buffers() -> None:
    """SVC-1."""
    buffer: Any = bytearray(b"before")
    builder = Builder()
    builder.add(buffer, buffer[:2], {"h": buffer}, 0)
    builder.extend([memoryview(buffer)], 0)  # type: ignore[list-item]
    buffer[:] = b"behind"
    first, second = batch.messages(builder.build(), **PLACE)
    assert (first.value, first.key, first.headers) == (b"before", b"be", {"h": b"before"})
    assert second.value == b"before"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_batch_can_be_read_from_any_buffer_type(kind: type) -> None:
    data = kind(batch.encode([b"a", b"bc"], timestamps=3))
    assert batch.peek(data).count == batch.check(data).count == 2
    assert batch.values(data) == [b"a", b"bc"]
    assert [m.value for m in batch.messages(data, **PLACE)] == [b"a", b"bc"]


@pytest.mark.parametrize(
    ("row", "error", "text"),
    [
        (("text", None, None, 0), TypeError, "value is str, not bytes"),
        ((b"", "text", None, 0), TypeError, "key is str, not bytes"),
        ((b"", None, {"h": 1}, 0), TypeError, "header 'h' is int, not bytes"),
        ((b"", None, {"": b""}, 0), ValueError, "empty name"),
        ((b"", None, {"\ud800": b""}, 0), ValueError, "not valid Unicode"),
        ((b"", None, None, 0.5), TypeError, "timestamp is float, not int"),
        ((b"", None, None, 2**63), Oversized, "timestamp"),
        ((bytes(batch.BYTES_MAX), None, None, 0), Oversized, "split the message"),
        ((b"", bytes(batch_layout.KEY_BYTES_MAX + 1), None, 0), Oversized, "key: 65,536"),
        ((b"", None, {"é" * 128: b""}, 0), Oversized, "header name: 256"),
        ((b"", None, {"h": bytes(65_536)}, 0), Oversized, "header 'h': 65,536"),
        ((b"", None, {str(i): b"" for i in range(65)}, 0), Oversized, "number of headers: 65"),
    ],
)
def test_refused_message_leaves_the_builder_unchanged(
    row: tuple[Any, ...], error: type[Exception], text: str
) -> None:
    builder = Builder()
    builder.add(b"first", None, None, 1)
    with pytest.raises(error, match=text):
        builder.add(*row)
    with pytest.raises(error):
        builder.add(row[0], b"key" if row[1] is None else row[1], row[2] or {"a": b""}, row[3])
    builder.add(b"second", None, None, 1)
    assert builder.build() == batch.encode([b"first", b"second"], timestamps=1)


def test_full_batch_refuses_another_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_builder, "MESSAGES_MAX", 3)
    builder = Builder()
    builder.extend([b"a", b"b"], 0)
    with pytest.raises(Oversized, match="start another"):
        builder.extend([b"c", b"d"], 0)
    builder.add(b"c", None, None, 0)
    with pytest.raises(Oversized, match="start another"):
        builder.add(b"d", None, None, 0)
    assert batch.values(builder.build()) == [b"a", b"b", b"c"]


def test_empty_batch_cannot_be_built() -> None:
    with pytest.raises(Oversized, match="1 to 1,000,000"):
        Builder().build()


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        batch.encode([b"a", b"b"], keys=[b"k"], timestamps=0)


def test_small_or_incompressible_batches_stay_uncompressed() -> None:
    plain = batch.encode([b"x" * 500], timestamps=0)
    assert batch.encode([b"x" * 500], timestamps=0, zstd=3) == plain
    assert len(batch.encode([b"x" * 500], timestamps=0, zstd=3, zstd_from=100)) < len(plain)
    assert batch.encode([b"xy"], timestamps=0, zstd=3, zstd_from=0) == batch.encode(
        [b"xy"], timestamps=0
    )


def test_compressed_batch_can_be_checked_but_not_read_without_zstandard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = batch.encode([b"x" * 2000], timestamps=0, zstd=3)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    assert batch.check(data).count == 1
    with pytest.raises(BadBatch, match=r"zstd.* pip install zstandard"):
        batch.values(data)
    with pytest.raises(ImportError, match="pip install zstandard"):
        batch.encode([b"x" * 2000], timestamps=0, zstd=3)


# 256 is the format of Kafka clients, which readers open.
@given(st.binary(max_size=50), st.integers(257, 65_535), st.integers(1, 1_000_000))
def test_payload_in_a_foreign_format_round_trips(payload: bytes, number: int, count: int) -> None:
    """SVC-1: foreign formats are counted and verified, but not opened."""
    data = batch.wrap(payload, format=number, count=count, timestamp=4)
    header = batch.check(data)
    assert (header.format, header.count, header.time) == (number, count, 4)
    assert batch.unwrap(data) == payload
    with pytest.raises(BadBatch, match="foreign format"):
        batch.values(data)


def test_reserved_format_numbers_cannot_be_wrapped() -> None:
    with pytest.raises(ValueError, match="256 to 65535"):
        batch.wrap(b"", format=255, count=1, timestamp=0)
    with pytest.raises(BadBatch, match="not wrapped"):
        batch.unwrap(batch.encode([b"a"], timestamps=0))


@pytest.mark.parametrize(("skip", "count"), [(-1, None), (0, -1)])
def test_negative_skip_and_count_are_refused(skip: int, count: int | None) -> None:
    with pytest.raises(ValueError, match="negative"):
        batch.values(batch.encode([b"a"], timestamps=0), skip, count)


def test_docs_page_matches_the_layout_and_limits_in_the_code() -> None:
    page = (Path(__file__).parents[2] / "docs" / "batch.md").read_text()
    fields = re.findall(r"^\| (\d+) \| (\d) \| (.+?) \|", page, re.MULTILINE)
    ends = list(accumulate(int(size) for _, size, _ in fields))
    assert [int(at) for at, _, _ in fields] == [0, *ends[:-1]]
    assert ends[-1] == batch_layout.HEADER_BYTES
    assert [name.replace(" ", "_") for *_, name in fields] == list(batch.Header.__struct_fields__)
    assert batch_layout.MAGIC.hex(" ") in page
    for limit in ("MESSAGES_MAX", "BYTES_MAX", "KEY_BYTES_MAX", "HEADERS_MAX", "NAME_BYTES_MAX"):
        assert re.search(rf"\b{getattr(batch_layout, limit):,} \|$", page, re.MULTILINE), limit
