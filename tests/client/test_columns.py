"""PIPE-1: slices are joined into one Arrow batch with the same rows."""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from oncecast.client.columns import batches, joined
from oncecast.client.scanning import Slice
from oncecast.errors import BadBatch
from oncecast.wire import batch
from oncecast.wire.frames import Chunk

NAMES = ["key", "value", "topic", "offset", "timestamp", "producer", "sequence", "headers"]
PLAIN = batch.encode([b"one", b"", b"three"], timestamps=7)
RICH = batch.encode(
    [b"a", b"bb", b"ccc", b"dddd"],
    timestamps=[1, 2, 3, 4],
    keys=[b"k", None, b"", b"key"],
    headers=[{"h": b"1"}, None, {}, {"h": b"2", "i": b"3"}],
)


def slice_of(data: bytes, offset: int, producer: str = "p", skip: int = 0, count: int = 3) -> Slice:
    return Slice("t", Chunk(offset, skip, count, producer, 100 + offset, data))


@pytest.mark.parametrize(
    "slices",
    [
        [slice_of(PLAIN, 0)],
        [slice_of(PLAIN, 0), slice_of(PLAIN, 3)],
        [slice_of(PLAIN, 5, skip=1, count=1), slice_of(PLAIN, 6, "q")],
        [slice_of(PLAIN, 0), slice_of(RICH, 3, skip=1), slice_of(RICH, 90, "q", count=4)],
        [slice_of(RICH, 0, skip=3, count=1)],
    ],
    ids=["one", "alike", "parts", "unlike", "last"],
)
def test_joined_slices_have_the_same_rows_as_separate_slices(slices: list[Slice]) -> None:
    apart = pa.Table.from_batches([each.to_arrow().select(NAMES) for each in slices])
    together = joined(slices, NAMES)
    together.validate(full=True)
    assert together.schema == apart.schema
    assert together.to_pylist() == apart.to_pylist()


def test_damaged_batch_is_rejected() -> None:
    damaged = bytes([*PLAIN[:-9], PLAIN[-9] ^ 1, *PLAIN[-8:]])
    with pytest.raises(batch.BadBatch):
        joined([slice_of(damaged, 0)], NAMES)


def test_messages_before_a_damaged_batch_are_read_before_the_error() -> None:
    damaged = bytes([*PLAIN[:-9], PLAIN[-9] ^ 1, *PLAIN[-8:]])
    slices = [slice_of(PLAIN, 0), slice_of(RICH, 3), slice_of(damaged, 6), slice_of(PLAIN, 9)]
    found = batches(slices, ["offset"])
    assert [next(found)["offset"].to_pylist() for _ in range(2)] == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(BadBatch, match="offsets 6 to 8 of topic 't'"):
        next(found)


def test_batches_end_after_the_requested_number_of_rows() -> None:
    slices = [slice_of(PLAIN, 3 * number) for number in range(4)]
    assert [len(each) for each in batches(slices, ["offset"], rows_max=5)] == [6, 6]
