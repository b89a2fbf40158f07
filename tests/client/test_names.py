"""A newer client or reader takes over a name. A client without a name leaves nothing behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import oncecast
from oncecast import errors
from oncecast.node.config import Settings
from oncecast.node.server import Server
from tests.client.serving import run, serving


def test_newer_client_with_the_same_name_fences_the_older_client(tmp_path: Path) -> None:
    """SVC-8"""

    async def scenario() -> None:
        async with serving(tmp_path) as node, oncecast.connect(node, name="me") as older:
            topic = await older.subscribe("t")
            await older.put("t", b"0")
            waiting = asyncio.create_task(topic.get_many(10))
            assert len(await waiting) == 1
            waiting = asyncio.create_task(topic.get_many(10))
            async with oncecast.connect(node, name="me") as newer:
                with pytest.raises(errors.Fenced):
                    await waiting
                with pytest.raises(errors.Fenced):
                    await older.put("t", b"1")
                assert (await newer.put("t", b"2")).offset == 1
                message = await newer.get("t")
                assert message is not None
                assert (message.offset, message.redelivered) == (0, True)

    run(scenario())


def test_fenced_client_does_not_reclaim_its_name(tmp_path: Path) -> None:
    """SVC-8"""

    async def scenario() -> None:
        settings = Settings(data=str(tmp_path), listen="127.0.0.1:0")
        async with Server(settings) as server, oncecast.connect(server.me, name="me") as older:
            topic = await older.subscribe("t")
            async with oncecast.connect(server.me, name="me") as newer:
                with pytest.raises(errors.Fenced):
                    await topic.get()
                older.parts.runtime._transport.watch(server.me)
                for number in range(10):
                    assert (await newer.put("t", b"x")).offset == number
            assert server.runtime.stats.accepted == 2

    run(scenario())


def test_newer_reader_of_a_subscription_fences_the_older_reader(tmp_path: Path) -> None:
    """SVC-8"""

    async def scenario() -> None:
        async with (
            serving(tmp_path) as node,
            oncecast.connect(node) as older,
            oncecast.connect(node) as newer,
        ):
            old = await older.subscribe("t", "s")
            waiting = asyncio.create_task(old.get())
            new = await newer.subscribe("t", "s")
            with pytest.raises(errors.Fenced):
                await waiting
            await newer.put("t", b"0")
            assert await new.get() is not None

    run(scenario())


def test_client_without_a_name_leaves_no_topic_behind(tmp_path: Path) -> None:
    """SVC-8 SVC-9"""

    async def scenario() -> None:
        async with serving(tmp_path) as node, oncecast.connect(node) as observer:
            async with oncecast.connect(node) as client:
                await client.subscribe("t")
                await client.put("t", b"0")
                assert [view.name async for view in observer.topics()] == ["t"]
                assert client.name != observer.name
            assert [view.name async for view in observer.topics()] == []

    run(scenario())
