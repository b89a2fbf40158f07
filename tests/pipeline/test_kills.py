"""PIPE-2: exactly once, though the driver is killed; `kills.py` does it as often as one likes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.kills import MESSAGES, tell

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]


def test_each_result_is_there_once_after_the_driver_was_killed(tmp_path: Path) -> None:
    told: list[str] = []
    assert tell(tmp_path, 1, "local[2]", told.append) == 2 * MESSAGES
    assert told == [f"driver killed 1 times, {MESSAGES} messages put"]
