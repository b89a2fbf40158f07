"""Get calls return in time, even if the node is down."""

from __future__ import annotations

from pathlib import Path

import pytest

import oncecast
from oncecast import errors
from oncecast.node.config import Settings
from oncecast.node.server import Server
from tests.client.serving import run


def test_get_with_a_zero_timeout_fails_when_the_node_is_down(tmp_path: Path) -> None:
    """SVC-4 SVC-7: TimedOut is raised if a stored message does not arrive."""

    async def scenario() -> None:
        async with Server(Settings(data=str(tmp_path), listen="127.0.0.1:0")) as server:
            client = await oncecast.connect(server.me, name="me", timeout=0.2).__aenter__()
            topic = await client.subscribe("t")
            await client.put_many("t", [bytes(1_000_000)] * 12)  # more than the client reads ahead
            assert await topic.get(timeout=0) is not None
        got = 1
        with pytest.raises(errors.TimedOut):
            while await topic.get(timeout=0) is not None:
                got += 1
        assert got < 12
        with pytest.raises(errors.TimedOut):
            await topic.get_many(1, timeout=0)
        with pytest.raises(errors.OncecastError):
            await client.close()

    run(scenario())


def test_messages_dropped_during_a_read_are_reported(tmp_path: Path) -> None:
    """SVC-4 SVC-9: this holds even if no message follows the dropped ones."""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            await client.create_topic("t", oncecast.Policy(bytes_max=1 << 30, drop_unread=True))
            topic = await client.subscribe("t", "s")
            await client.put_many("t", [bytes(1_000_000)] * 12)
            assert await topic.get() is not None
            await client.set_policy("t", oncecast.Policy(bytes_max=1, drop_unread=True))
            with pytest.raises(errors.MessagesLost) as caught:
                while await topic.get(timeout=0) is not None:
                    pass
            assert caught.value.next == 12
            assert await topic.get(timeout=0) is None

    run(scenario())


def test_read_without_a_leader_raises_no_quorum(tmp_path: Path) -> None:
    """SVC-7 REP-5"""

    async def scenario() -> None:
        settings = Settings(data=str(tmp_path), listen="127.0.0.1:0", join="127.0.0.1:9")
        async with Server(settings) as server:
            client = await oncecast.connect(server.me, name="me", timeout=0.5)
            for _ in range(2):
                with pytest.raises(errors.NoQuorum):
                    await client.read("t", "s")
            with pytest.raises(errors.TimedOut):
                await client.close()

    run(scenario())
