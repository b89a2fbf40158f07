"""Test the values that a node derives from its settings."""

from __future__ import annotations

import logging

import pytest

from oncecast.node.config import Settings
from oncecast.node.derived import options_of, warn_of_batches


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        (Settings(), False),
        (Settings(heartbeat=0.1, suspicion=0.5), True),
        (Settings(heartbeat=0.1, suspicion=0.5, batch_bytes_max=16 << 20), False),
    ],
)
def test_node_warns_about_batches_that_outlast_the_suspicion_time(
    settings: Settings, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "oncecast.node"):
        warn_of_batches(settings)
    assert ("long_batches" in caplog.text) is warned


def test_frame_and_queue_limits_fit_the_largest_batch() -> None:
    settings = Settings(batch_bytes_max=100 << 20)
    options = options_of(settings)
    assert options.frame_bytes_max > settings.batch_bytes_max
    assert options.queue_bytes_max >= 2 * options.frame_bytes_max
