"""WEB-3: a recording is packed into few bytes."""

from __future__ import annotations

import json
import zlib
from typing import Any

from oncecast.playback.packing import differences, pack, varints
from oncecast.playback.recording import Recording, Violation
from tests.playback.pinging import calls


def unpack(packed: bytes) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """Read a packed recording, as the page does."""
    data = zlib.decompress(packed)
    end = 4 + int.from_bytes(data[:4], "little")
    header = json.loads(data[4:end])
    columns = {}
    for name, (offset, length, count, delta) in header["columns"].items():
        numbers = decoded(data[end + offset : end + offset + length])
        assert len(numbers) == count
        columns[name] = [sum(numbers[: at + 1]) for at in range(count)] if delta else numbers
    return header, columns


def decoded(data: bytes) -> list[int]:
    numbers, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(value // 2 if value % 2 == 0 else -(value + 1) // 2)
            value = shift = 0
    return numbers


def test_numbers_take_one_byte_for_seven_bits() -> None:
    """WEB-3"""
    assert varints([0, -1, 1, 63, -64, 64]) == bytes([0, 1, 2, 126, 127, 128, 1])
    assert differences([5, 7, 6]) == [5, 2, -1]
    assert decoded(varints([2**53, -(2**40), 0])) == [2**53, -(2**40), 0]


def test_packed_recording_has_all_rows() -> None:
    """WEB-3"""
    header, columns = unpack(pack(calls(1)))
    assert header["nodes"] == ["*", "ann", "bob"]
    assert columns["steps.time"][:5] == [0, 0, 0, 100_000, 200_000]
    words = [header["words"][word] for word in columns["steps.kind"]]
    assert words[:5] == ["start", "start", "request", "receive", "receive"]
    assert columns["steps.back"][:5] == [0, 0, 0, 1, 1]
    assert columns["messages.took"][:2] == [100_000, 100_000]
    assert columns["messages.got"][:2] == [3, 4]
    texts = [header["strings"][text] for text in columns["messages.text"]]
    assert texts[:2] == ["word=0", "word=0"]
    assert [header["keys"][key]["key"] for key in columns["changes.key"]][:2] == ["up", "paused"]


def test_steps_of_a_violation_are_rows_of_the_recording() -> None:
    """WEB-3"""
    recording = calls(1)
    recording.first = 2  # as after two steps were dropped
    recording.violation = Violation("broken", 0.2, step=6, chain=[1, 5, 6], related=[0, 3])
    header, _ = unpack(pack(recording))
    assert header["violation"] == {
        "text": "broken",
        "time": 200_000,
        "step": 4,
        "chain": [-1, 3, 4],
        "related": [1],
        "slots": [],
    }


def test_empty_recording_can_be_packed() -> None:
    """WEB-3"""
    header, columns = unpack(pack(Recording(title="nothing")))
    assert header["title"] == "nothing"
    assert not any(columns.values())


def test_thousand_steps_take_few_bytes() -> None:
    """WEB-3"""
    recording = calls(150)
    assert len(recording.steps) > 400
    assert len(pack(recording)) < 12 * len(recording.steps)
