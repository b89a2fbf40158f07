"""Batches convert to Arrow and back, for columns of any type."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncecast.wire import batch, batch_arrow
from oncecast.wire.batch import BYTES_MAX, Oversized
from oncecast.wire.batch_arrow import SCHEMA, from_arrow, to_arrow
from oncecast.wire.message import Message

Row = tuple[bytes, bytes | None, Mapping[str, bytes], int]
PLACE: dict[str, Any] = {"topic": "my data", "offset": 100, "producer": "p", "sequence": 7}

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
rows = st.tuples(
    st.binary(max_size=40),
    st.none() | st.binary(max_size=10),
    st.dictionaries(names, st.binary(max_size=10), max_size=3),
    st.just(5) | st.integers(-(10**17), 10**17),
)


def packed(rows: list[Row], **options: Any) -> bytes:
    values, keys, headers, timestamps = zip(*rows, strict=True)
    return batch.encode(values, keys=keys, headers=headers, timestamps=timestamps, **options)


def as_messages(rows: pa.RecordBatch) -> list[Message]:
    times = rows.column("timestamp").cast(pa.int64())
    columns = rows.set_column(5, "timestamp", times).to_pylist()
    return [
        Message(**{**row, "headers": dict(row["headers"])}, redelivered=False) for row in columns
    ]


@given(st.lists(rows, min_size=1, max_size=20), st.integers(0, 5), st.none() | st.integers(0, 5))
def test_arrow_rows_match_the_messages_in_the_batch(
    rows: list[Row], skip: int, count: int | None
) -> None:
    """SVC-1."""
    data = packed(rows, zstd=3 if len(rows) % 2 else None, zstd_from=0)
    table = to_arrow(data, **PLACE, skip=skip, count=count)
    table.validate(full=True)
    assert table.schema == SCHEMA
    assert as_messages(table) == batch.messages(data, **PLACE, skip=skip, count=count)


@given(st.lists(rows, min_size=1, max_size=20))
def test_arrow_round_trip_preserves_the_encoded_bytes(rows: list[Row]) -> None:
    data = packed(rows)
    assert from_arrow(to_arrow(data, **PLACE), timestamp=0) == data


@given(st.lists(rows, min_size=2, max_size=20), st.data())
def test_slices_and_chunked_tables_are_encoded(rows: list[Row], data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(rows) - 1))
    end = data.draw(st.integers(begin + 1, len(rows)))
    table = to_arrow(packed(rows), **PLACE)
    assert from_arrow(table.slice(begin, end - begin), timestamp=0) == packed(rows[begin:end])
    chunks = pa.Table.from_batches([table.slice(begin, end - begin), table.slice(0, begin), table])
    mixed = rows[begin:end] + rows[:begin] + rows
    assert from_arrow(chunks, timestamp=0) == packed(mixed)


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(3),
        pa.dictionary(pa.int32(), pa.string()),
    ],
    ids=str,
)
def test_any_binary_or_string_type_is_encoded(kind: pa.DataType) -> None:
    values = pa.array(["one", "two", "six", "ten"])
    if kind == pa.binary(3):
        values = values.cast(pa.binary())
    values = values.cast(kind).slice(1)
    rows = pa.record_batch({"value": values, "key": values})
    expected = [b"two", b"six", b"ten"]
    assert from_arrow(rows, timestamp=9) == batch.encode(expected, keys=expected, timestamps=9)


def test_large_header_types_and_other_timestamp_units_are_encoded() -> None:
    headers = pa.array([[("a", b"1")], None], pa.map_(pa.large_string(), pa.large_binary()))
    times = pa.array([1_001, None], pa.timestamp("ns"))
    rows = pa.record_batch({"value": [b"x", b"y"], "headers": headers, "timestamp": times})
    assert from_arrow(rows, timestamp=8) == batch.encode(
        [b"x", b"y"], headers=[{"a": b"1"}, None], timestamps=[1, 8]
    )
    whole = pa.record_batch({"value": ["x"], "timestamp": pa.array([77], pa.int64())})
    assert from_arrow(whole, timestamp=8) == batch.encode([b"x"], timestamps=77)


def test_bytes_behind_null_entries_are_dropped() -> None:
    """Arrow allows bytes behind a null entry. They are not part of the message."""
    offsets = pa.array([0, 2, 4], pa.int32()).buffers()[1]
    key = pa.Array.from_buffers(
        pa.binary(), 2, [pa.py_buffer(b"\x02"), offsets, pa.py_buffer(b"NOok")]
    )
    headers = pa.MapArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()), ["no", "ok"], [b"N", b"o"], mask=pa.array([True, False])
    )
    rows = pa.record_batch({"value": [b"x", b"y"], "key": key, "headers": headers})
    data = from_arrow(rows, timestamp=0)
    assert b"NO" not in data
    assert data == batch.encode(
        [b"x", b"y"], keys=[None, b"ok"], headers=[None, {"ok": b"o"}], timestamps=0
    )


@pytest.mark.parametrize("name", ["key", "headers", "timestamp"])
def test_all_null_column_is_omitted(name: str) -> None:
    kind = SCHEMA.field(name).type
    rows = pa.record_batch({"value": [b"a", b"b"], name: pa.nulls(2, kind)})
    assert from_arrow(rows, timestamp=6) == batch.encode([b"a", b"b"], timestamps=6)


def test_compressed_arrow_rows_can_be_read_back() -> None:
    rows = pa.record_batch({"value": ["x" * 500] * 20})
    data = from_arrow(rows, timestamp=0, zstd=3)
    assert len(data) < 500
    assert batch.values(data) == [b"x" * 500] * 20


@pytest.mark.parametrize(
    ("columns", "error", "text"),
    [
        ({"other": [b"x"]}, ValueError, "column 'value' is missing"),
        ({"value": pa.array([b"x", None])}, ValueError, "contains nulls"),
        ({"value": pa.array([1.5])}, TypeError, "column 'value' is double; cast it to binary"),
        ({"value": pa.array([b""]), "key": pa.array([bytes(65_536)])}, Oversized, "key: 65,536"),
        ({"value": pa.array([], pa.binary())}, Oversized, "0 messages"),
        ({"value": pa.nulls(1_000_001, pa.binary())}, Oversized, "messages in a batch: 1,000,001"),
    ],
    ids=["missing", "null", "number", "key", "none", "many"],
)
def test_invalid_columns_are_refused(
    columns: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        from_arrow(pa.record_batch(columns), timestamp=0)


@pytest.mark.long
def test_oversized_columns_are_refused() -> None:
    """Huge columns are refused before they are copied."""
    half = pa.array([bytes(BYTES_MAX // 2)])
    over = pa.chunked_array([half] * 2)
    with pytest.raises(Oversized, match="limit 67,108,864"):
        from_arrow(pa.table({"value": over}), timestamp=0)
    huge = pa.chunked_array([half] * 200)
    with pytest.raises(Oversized, match="bytes of column value: 6,"):
        from_arrow(pa.table({"value": huge}), timestamp=0)


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ([("a", None)], "null value"),
        ([("", b"")], "empty name"),
        ([("é" * 128, b"")], "header name: 256"),
        ([("a", bytes(65_536))], "header: 65,536"),
        ([(str(i), b"") for i in range(65)], "number of headers: 65"),
    ],
    ids=["null", "nameless", "name", "value", "many"],
)
def test_invalid_headers_are_refused(headers: list[Any], text: str) -> None:
    column = pa.array([headers], SCHEMA.field("headers").type)
    with pytest.raises(ValueError, match=text):
        from_arrow(pa.record_batch({"value": [b"x"], "headers": column}), timestamp=0)


def test_import_without_pyarrow_names_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"oncecast\[arrow\]"):
        importlib.reload(batch_arrow)
