"""A node timestamps messages with its wall clock, and logs clock disputes."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from oncecast.client.client import Client
from oncecast.node.config import Settings
from oncecast.node.replica import wall_us
from oncecast.node.server import Server
from tests.client.serving import run

YEAR_US = 365 * 86_400 * 1_000_000


def test_node_logs_and_counts_clock_disputes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """OPS-1 SVC-9"""
    caplog.set_level(logging.INFO, "oncecast.node")

    async def scenario() -> None:
        settings = Settings(data=str(tmp_path), listen="127.0.0.1:0")
        async with Server(settings) as server, Client(server.replica.me) as client:
            service = server.parts.service
            await client.create_topic("right")
            assert abs(service.machine.registry.clock.now - wall_us()) < 60_000_000
            service.wall = lambda: wall_us() + YEAR_US
            await client.create_topic("wrong")
            assert "oncecast_clock_disputed_seconds 3153" in server.metrics().body
            service.wall = wall_us
            await client.create_topic("right again")
            assert "oncecast_clock_disputed_seconds 0" in server.metrics().body

    run(scenario())
    reported = [each.message.split()[0] for each in caplog.records if "clock_" in each.message]
    assert reported == ["clock_disputed", "clock_agreed"]
