"""REP-3: invalid options are rejected, with the value and the limit."""

from __future__ import annotations

import pytest

from oncecast.replication.options import GroupOptions


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size is 0; it must be at least 1"),
        ({"window_slots": 0}, "window_slots is 0; it must be at least 1"),
        ({"window_bytes": -1}, "window_bytes is -1; it must be at least 1"),
        ({"accept_bytes": 0}, "accept_bytes is 0; it must be at least 1"),
        ({"piece_bytes": 0}, "piece_bytes is 0; it must be at least 1"),
        ({"ahead_min": 0}, "ahead_min is 0; it must be at least 1"),
        ({"heartbeat": 0.0}, "heartbeat is 0.0 s; it must be above 0"),
        ({"suspicion": float("nan")}, "suspicion is nan s; it must be above 0"),
        ({"resend": -0.5}, "resend is -0.5 s; it must be above 0"),
        ({"unclaimed_after": 0.0}, "unclaimed_after is 0.0 s; it must be above 0"),
        ({"replace_after": -1.0}, "replace_after is -1.0 s; it must not be negative"),
        ({"compare_every": -1.0}, "compare_every is -1.0 s; it must not be negative"),
        ({"drift": -0.5}, "drift is -0.5; it must be at least 0 and below 1"),
        ({"drift": 1.0}, "drift is 1.0; it must be at least 0 and below 1"),
        ({"heartbeat": 2.0}, "suspicion is 2.0 s and heartbeat is 2.0 s"),
    ],
)
def test_invalid_group_option_is_rejected(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GroupOptions(**options)  # type: ignore[arg-type]


def test_smallest_option_values_are_allowed() -> None:
    tiny = GroupOptions(window_slots=1, window_bytes=1, accept_bytes=1, piece_bytes=1, drift=0.0)
    assert (tiny.ahead_slots, tiny.step_slots, tiny.give_bytes) == (4096, 64, 1 << 16)
    assert GroupOptions(window_slots=2, ahead_min=1).ahead_slots == 8
    large = GroupOptions(window_slots=5000, accept_bytes=1 << 22)
    assert (large.ahead_slots, large.step_slots, large.give_bytes) == (20000, 5000, 1 << 22)


def test_promise_size_is_four_windows_and_at_least_64_kibibytes() -> None:
    """REP-1"""
    sizes = {1: 65_536, 16_384: 65_536, 16_385: 65_540, 1 << 20: 4 << 20}
    found = {size: GroupOptions(window_bytes=size).promise_bytes for size in sizes}
    assert found == sizes


@pytest.mark.parametrize("name", ["replace_after", "compare_every"])
def test_negative_time_is_rejected_even_where_0_is_allowed(name: str) -> None:
    """REP-1"""
    assert getattr(GroupOptions(**{name: 0.0}), name) == 0.0  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"{name} is -0.5 s; it must not be negative"):
        GroupOptions(**{name: -0.5})  # type: ignore[arg-type]
