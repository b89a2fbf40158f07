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
    declared = (
        f"declares {len(content):,} bytes, but the batch header declares {len(content) + 1:,}"
    )
    assert declared in frame_fault(frame, len(content) + 1)


@pytest.mark.parametrize("content", CONTENTS[2:], ids=len)
def test_truncated_or_extended_frame_is_reported(content: bytes) -> None:
    """SEC-3"""
    frame = compressed(content)
    for size in {*range(min(len(frame), 40)), len(frame) - 1}:
        assert frame_fault(frame[:size], len(content))
    end = len(frame)
    assert frame_fault(frame + b"x", len(content)) == (
        f"the zstd blocks end at byte {end:,}, but the frame ends at byte {end + 1:,}"
    )


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
    assert passed < 20  # random bytes pass only if a length happens to fit


@pytest.mark.parametrize(
    ("frame", "fault"),
    [
        (b"\x28\xb5\x2f\xfd\x21", "is 5 bytes long (minimum 6)"),
        (b"\x28\xb5\x2f\xfd\x21\x00\x00", "needs a dictionary"),
        (b"\x28\xb5\x2f\xfd\x28\x00\x00", "descriptor 0x28 sets the reserved bit"),
        (b"\x28\xb5\x2f\xfd\x00\x00\x01\x00\x00", "does not declare the size of its content"),
        (b"\x28\xb5\x2f\xfd\x20\x05\x07\x00\x00", "unknown kind 3"),
        (b"\x28\xb5\x2f\xfd\x20\x05\x01\x00\x20", "262,144 bytes long (limit 131,072)"),
        (b"\x28\xb5\x2f\xfd\x20\x05\x33\x00\x00x", "contain 6 bytes instead of 5"),
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
    with pytest.raises(batch.BadBatch, match="instead of the zstd magic number"):
        batch.check(garbage)
    cut = seal(header.format, header.flags, 1, 0, totals, [good[HEADER_BYTES:-5]])
    with pytest.raises(batch.BadBatch, match=r"before its last block|blocks end at byte"):
        batch.check(cut)
