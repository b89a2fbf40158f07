"""A node whose disk is nearly full says so, keeps what it has, and goes on when there is room."""

from __future__ import annotations

from pathlib import Path

import pytest

import oncecast
from oncecast import errors
from oncecast.node.config import Settings
from oncecast.node.server import Server
from tests.client.rooms import run


def test_a_put_that_finds_no_room_says_why_and_is_stored_when_there_is_some(tmp_path: Path) -> None:
    """SVC-7: what is under way stays so; it must not be put again."""

    async def story() -> None:
        async with (
            Server(Settings(data=str(tmp_path), listen="127.0.0.1:0")) as server,
            oncecast.connect(server.me) as client,
        ):
            topic = await client.subscribe("t")
            await client.put("t", b"before")
            there_is, server.parts.gateway.room = server.parts.gateway.room, lambda: 0
            with pytest.raises(errors.Overloaded, match=r"not stored within .*disk"):
                await client.put("t", b"late", timeout=0.2)
            with pytest.raises(errors.Overloaded, match=r"not all is stored .*disk"):
                await client.flush(timeout=0.2)
            assert [each.value for each in await topic.get_many(9)] == [b"before"]
            server.parts.gateway.room = there_is
            await client.flush()
            assert [each.value for each in await topic.get_many(9)] == [b"late"]

    run(story())
