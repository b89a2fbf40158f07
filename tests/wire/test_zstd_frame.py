"""The structure of a compressed batch is checked without decompressing it."""

from __future__ import annotations

from random import Random

import pytest
import zstandard

from oncecast.wire import batch
from oncecast.wire.batch_layout import HEADER_BYTES, seal
from oncecast.wire.zstd_frame import frame_fault

RNG = Random(1)
CONTENTS = [
    b"",
    b"x",
    bytes(300),
    b"hello " * 100,
    bytes(70_000),
    RNG.randbytes(200_000),
    bytes(400_000) + RNG.randbytes(1000) + b"abc" * 10_000,
]


def compressed(content: bytes, *, write_checksum: bool = False) -> bytes:
    return zstandard.ZstdCompressor(level=3, write_checksum=write_checksum).compress(content)


@pytest.mark.parametrize("content", CONTENTS, ids=len)
@pytest.mark.parametrize("checksum", [False, True])
def test_every_frame_written_by_zstandard_is_valid(content: bytes, checksum: bool) -> None:
    """SEC-3"""
    frame = compressed(content, write_checksum=checksum)
    assert frame_fault(frame, len(content)) == ""
    assert frame_fault(memoryview(frame), len(content)) == ""
    assert "different sizes" in frame_fault(frame, len(content) + 1)


@pytest.mark.parametrize("content", CONTENTS[2:], ids=len)
def test_truncated_or_extended_frame_is_reported(content: bytes) -> None:
    """SEC-3"""
    frame = compressed(content)
    for size in {*range(min(len(frame), 40)), len(frame) - 1}:
        assert frame_fault(frame[:size], len(content))
    assert frame_fault(frame + b"x", len(content)) == "its blocks do not add up to its size"


def test_garbage_frames_are_reported() -> None:
    """SEC-3"""
    rng = Random(2)
    passed = 0
    for _ in range(2000):
        content = rng.randbytes(rng.randrange(6, 200))
        assert frame_fault(content, 100)
        good = compressed(b"hello " * 100)
        garbage = good[:8] + rng.randbytes(len(good) - 8)
        passed += not frame_fault(garbage, 600)
    assert passed < 20  # passes only if a length happens to fit


@pytest.mark.parametrize(
    ("frame", "fault"),
    [
        (b"\x28\xb5\x2f\xfd\x21\x00\x00", "needs a dictionary or a newer zstd"),
        (b"\x28\xb5\x2f\xfd\x28\x00\x00", "needs a dictionary or a newer zstd"),
        (b"\x28\xb5\x2f\xfd\x00\x00\x01\x00\x00", "different sizes"),
        (b"\x28\xb5\x2f\xfd\x20\x05\x07\x00\x00", "unknown kind or is too large"),
        (b"\x28\xb5\x2f\xfd\x20\x05\x01\x00\x20", "unknown kind or is too large"),
        (b"\x28\xb5\x2f\xfd\x20\x05\x33\x00\x00x", "do not add up"),
    ],
)
def test_invalid_frame_is_reported(frame: bytes, fault: str) -> None:
    """SEC-3"""
    assert fault in frame_fault(frame, 5)


def test_node_refuses_a_compressed_batch_without_a_valid_frame() -> None:
    """SEC-3: such a batch was once stored, and stopped all readers of the topic."""
    good = batch.encode([b"hello " * 500], timestamps=0, zstd=3)
    header = batch.check(good)
    totals = (header.value_bytes, 0, 0, 0, 0)
    garbage = seal(header.format, header.flags, 1, 0, totals, [Random(1).randbytes(100)])
    with pytest.raises(batch.BadBatch, match="does not start with the zstd magic number"):
        batch.check(garbage)
    cut = seal(header.format, header.flags, 1, 0, totals, [good[HEADER_BYTES:-5]])
    with pytest.raises(batch.BadBatch, match=r"last block is missing|do not add up"):
        batch.check(cut)
