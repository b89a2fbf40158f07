"""Test clients and nodes that poll instead of sleeping."""

from __future__ import annotations

from pathlib import Path

import oncecast
from oncecast.node.config import Settings
from oncecast.node.server import Server
from tests.client.serving import run


def test_messages_arrive_while_both_sides_poll(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = Settings(data=str(tmp_path), listen="127.0.0.1:0", busy_poll=5.0)
        async with (
            Server(settings) as server,
            oncecast.connect(server.me, busy_poll=5.0) as client,
        ):
            subscription = await client.subscribe("t", "s")
            for value in (b"a", b"b"):
                await client.put("t", value)
            for value in (b"a", b"b"):
                message = await subscription.get()
                assert message is not None
                assert message.value == value

    run(scenario())


def test_nodes_and_clients_sleep_by_default() -> None:
    assert Settings().busy_poll == 0.0
    assert oncecast.connect()._options.busy_poll == 0.0
