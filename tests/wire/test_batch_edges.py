"""SVC-1: batches at their limits."""

from __future__ import annotations

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from oncecast.wire import batch, batch_arrow, batch_builder, batch_layout
from oncecast.wire.batch import Builder, Oversized
from oncecast.wire.batch_arrow import from_arrow, to_arrow
from oncecast.wire.batch_builder import of_values
from oncecast.wire.batch_layout import FRAME_BYTES, check_level

PLACE: dict[str, Any] = {"topic": "my data", "offset": 100, "producer": "p", "sequence": 7}


# -- reading --


def test_reading_zero_messages_returns_an_empty_list() -> None:
    one = batch.encode([b"a"], timestamps=0)
    assert batch.messages(one, **PLACE, count=0) == []
    assert batch.messages(one, **PLACE, skip=1, count=1) == []
    assert batch.values(one, 0, 0) == []
    assert len(batch.messages(one, **PLACE, count=1)) == 1
    assert len(batch.messages(one, **PLACE, count=2)) == 1


@pytest.mark.parametrize(
    "data",
    [
        batch.encode([b"a"], timestamps=9),
        batch.encode([b"a", b"b"], timestamps=9),
        batch.encode([b"a"], keys=[b""], timestamps=9),
        batch.encode([b"a"], headers=[{"h": b""}], timestamps=9),
        batch.encode([b"a"] * 9, timestamps=9, zstd=3, zstd_from=0),
    ],
    ids=["alone", "first", "key", "headers", "compressed"],
)
def test_reading_one_message_returns_the_first_message(data: bytes) -> None:
    """SVC-1"""
    assert batch.messages(data, **PLACE, count=1) == batch.messages(data, **PLACE)[:1]


def test_wrapped_payload_is_never_read_as_messages() -> None:
    """SVC-1: the bytes would be a valid column with one empty value."""
    with pytest.raises(batch.BadBatch, match="foreign format"):
        batch.messages(batch.wrap(bytes(4), format=999, count=1, timestamp=0), **PLACE, count=1)


def test_compressed_batch_reports_its_uncompressed_size() -> None:
    """SVC-1"""
    columns: dict[str, Any] = {"keys": [b"k", None], "headers": [None, {"h": b"x"}]}
    values = [b"x" * 500, b"y" * 500]
    plain = batch.encode(values, **columns, timestamps=[1, 2])
    packed = batch.encode(values, **columns, timestamps=[1, 2], zstd=3)
    assert len(packed) < len(plain)
    assert [batch.opened_bytes(each) for each in (plain, packed)] == [len(plain)] * 2
    foreign = batch.wrap(b"payload", format=999, count=9, timestamp=0)
    assert batch.opened_bytes(foreign) == len(foreign)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_single_message_value_is_bytes_for_any_buffer_type(kind: type) -> None:
    data = kind(batch.encode([b"abc"], timestamps=9))
    (message,) = batch.messages(data, **PLACE, count=1)
    assert (type(message.value), message.value, message.timestamp) == (bytes, b"abc", 9)


def test_headers_are_encoded_without_keys() -> None:
    data = batch.encode([b"a"], headers=[{"h": b"x"}], timestamps=0)
    assert batch.messages(data, **PLACE)[0].headers == {"h": b"x"}


# -- foreign batches --


def test_wrapped_batch_declares_no_columns() -> None:
    header = batch.check(batch.wrap(b"payload", format=0xFFFF, count=3, timestamp=4))
    assert (header.format, header.flags, header.count, header.time) == (0xFFFF, 0, 3, 4)
    sizes = header.value_bytes, header.key_bytes, header.pairs, header.name_bytes
    assert (*sizes, header.header_bytes) == (0, 0, 0, 0, 0)
    with pytest.raises(ValueError, match="256 to 65535"):
        batch.wrap(b"", format=0x10000, count=1, timestamp=0)


# -- building --


def test_builder_size_is_exact_for_messages_with_all_fields() -> None:
    builder = Builder()
    for at in range(3):
        builder.add(b"value", b"key", {"a": b"1", "bc": b"23"}, at)
    assert len(builder.build()) == builder.bytes


def test_builder_accepts_messages_up_to_its_byte_limit() -> None:
    space = FRAME_BYTES + 20 + 10
    for value, key in ((bytes(10), None), (bytes(4), bytes(6))):
        Builder(space).add(value, key, None, 0)
        with pytest.raises(Oversized, match="start another"):
            Builder(space - 1).add(value, key, None, 0)
    assert Builder(space).extend([bytes(10)], 0) == 0
    with pytest.raises(Oversized, match="start another"):
        Builder(space - 1).extend([bytes(10)], 0)
    with pytest.raises(Oversized, match="start another"):
        Builder(space).add(b"", b"", {"name": bytes(10)}, 0)
    full = Builder(space)
    full.add(bytes(10), None, None, 0)
    with pytest.raises(Oversized, match="start another"):
        full.add(b"", None, None, 0)
    assert len(full) == 1


def test_builder_limit_is_capped_by_the_batch_limit() -> None:
    assert Builder(1 << 40)._most == batch_layout.BYTES_MAX


def test_builder_accepts_messages_up_to_the_message_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch_builder, "MESSAGES_MAX", 3)
    builder = Builder()
    builder.extend([b"a", b"b"], 0)
    assert builder.add(b"c", None, None, 0) == 2
    with pytest.raises(Oversized):
        builder.extend([b"d"], 0)
    with pytest.raises(Oversized):
        builder.add(b"d", None, None, 0)
    assert len(builder) == 3


def test_timestamps_are_stored_only_if_they_differ() -> None:
    builder = Builder()
    builder.extend([], 4)
    builder.extend([b"a"], 5)
    builder.extend([b"b"], 5)
    builder.extend([], 6)
    assert builder.build() == batch.encode([b"a", b"b"], timestamps=5)
    assert batch.check(builder.build()).flags == 0


def test_zero_timestamp_on_the_first_message_is_kept() -> None:
    """SVC-1"""
    data = batch.encode([b"a", b"b"], timestamps=[0, 5])
    assert [each.timestamp for each in batch.messages(data, **PLACE)] == [0, 5]


def test_headers_must_be_a_dict_with_string_names() -> None:
    with pytest.raises(TypeError, match="headers is list, not a dict"):
        Builder().add(b"", None, ["a"], 0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="header name is int, not str"):
        Builder().add(b"", None, {1: b""}, 0)  # type: ignore[dict-item]


def test_headers_at_the_limits_are_accepted() -> None:
    headers = {f"{at:03}": b"" for at in range(64)}
    headers["n" * 255] = headers.pop("000")
    headers["001"] = bytes(65_535)
    data = batch.encode([b""], keys=[bytes(65_535)], headers=[headers], timestamps=0)
    (message,) = batch.messages(data, **PLACE)
    assert message.headers == headers


@pytest.mark.parametrize(("size", "smaller"), [(1019, False), (1020, True)])
def test_columns_of_at_least_one_kibibyte_are_compressed(size: int, smaller: bool) -> None:
    """The length of the value takes four bytes."""
    value = b"x" * size
    assert (len(batch.encode([value], timestamps=0, zstd=3)) < size) == smaller
    assert (len(of_values([value], 0, zstd=3)) < size) == smaller


class Zstandard:
    """A fake zstandard package. Its frames are a fixed number of bytes shorter than their input."""

    def __init__(self, shorter: int) -> None:
        self.shorter = shorter
        self.levels: list[int] = []

    def ZstdCompressor(self, *, level: int = 3) -> Zstandard:  # noqa: N802
        self.levels.append(level)
        return self

    def compress(self, data: bytes) -> bytes:
        return bytes(len(data) - self.shorter)


@pytest.mark.parametrize("shorter", [0, 1])
def test_columns_that_do_not_shrink_stay_uncompressed(
    monkeypatch: pytest.MonkeyPatch, shorter: int
) -> None:
    """SVC-1"""
    zstandard = Zstandard(shorter)
    monkeypatch.setattr(batch_layout, "_zstandard", lambda: zstandard)
    data = batch.encode([b"abc"], timestamps=0, zstd=7, zstd_from=0)
    assert batch.peek(data).flags == (batch_layout.ZSTD if shorter else 0)
    assert zstandard.levels == [7]


def test_batch_at_the_size_limit_can_be_encoded_and_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SVC-7: the limit applies after decompression, or a small batch could fill the memory."""
    plain = FRAME_BYTES + 4 + 500
    for most, zstd in ((plain, None), (plain - FRAME_BYTES, 3)):
        monkeypatch.setattr(batch_layout, "BYTES_MAX", most)
        data = batch.encode([bytes(500)], timestamps=0, zstd=zstd, zstd_from=0)
        assert batch.check(data).count == 1
        assert batch.values(data) == [bytes(500)]
        monkeypatch.setattr(batch_layout, "BYTES_MAX", most - 1)
        with pytest.raises(batch.BadBatch, match=f"limit {most - 1}"):
            batch.check(data)
        with pytest.raises(Oversized, match=f"limit {most - 1}"):
            batch.encode([bytes(500)], timestamps=0, zstd=zstd, zstd_from=0)


def test_of_values_and_encode_build_the_same_batch() -> None:
    values = [b"a", b"", b"ccc" * 1000]
    assert of_values(values, 7) == batch.encode(values, timestamps=7)
    assert of_values(values, 7, zstd=3) == batch.encode(values, timestamps=7, zstd=3)


def test_only_valid_zstd_levels_are_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for level in (-131_072, 1, 22):
        check_level(level)
    for wrong in (-131_073, 23, "3"):
        with pytest.raises(ValueError, match="zstd level is"):
            check_level(wrong)
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    with pytest.raises(ValueError, match="pip install zstandard"):
        check_level(3)


# -- Arrow --


def test_timestamp_before_1970_survives_an_arrow_round_trip() -> None:
    data = batch.encode([b"a"], timestamps=-1)
    table = to_arrow(data, **PLACE)
    assert table.column("timestamp").cast(pa.int64()).to_pylist() == [-1]
    assert from_arrow(table, timestamp=0) == data


def test_empty_table_is_refused() -> None:
    empty = pa.table(
        {
            "value": pa.array([], pa.binary()),
            "key": pa.array([], pa.binary()),
            "timestamp": pa.array([], pa.timestamp("us", "UTC")),
        }
    )
    with pytest.raises(Oversized, match="1 to 1,000,000"):
        from_arrow(empty, timestamp=0)


def test_column_may_be_twice_as_large_as_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table may be a slice of a larger column, or the batch may be compressed."""
    rows = pa.table({"value": pa.array([bytes(100)] * 10, pa.binary())})
    size = rows.column("value").nbytes
    monkeypatch.setattr(batch_arrow, "BYTES_MAX", size // 2)
    assert from_arrow(rows, timestamp=0)
    monkeypatch.setattr(batch_arrow, "BYTES_MAX", size // 2 - 1)
    with pytest.raises(Oversized, match="bytes of column value"):
        from_arrow(rows, timestamp=0)
