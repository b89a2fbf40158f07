"""Readers and clients close in time and release all resources."""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path

import pytest

import oncecast
from oncecast import errors
from oncecast.client.state import StateDirectory
from tests.client.serving import run, serving


def test_deleted_topic_can_be_subscribed_to_again(tmp_path: Path) -> None:
    """SVC-5 SVC-7"""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            topic = await client.subscribe("t", "s")
            await client.delete_topic("t")
            with pytest.raises(errors.NoSuchTopic):
                await topic.get()
            again = await client.subscribe("t", "s")
            await client.put("t", b"x")
            assert await again.get() is not None
            with pytest.raises(errors.NoSuchTopic):
                await topic.get()

    run(scenario())


def test_client_can_subscribe_again_after_its_subscription_was_deleted(tmp_path: Path) -> None:
    """SVC-5 SVC-6"""

    async def scenario() -> None:
        async with (
            serving(tmp_path) as node,
            oncecast.connect(node) as client,
            oncecast.connect(node) as operator,
        ):
            topic = await client.subscribe("t", "s")
            assert await operator.unsubscribe("t", "s")
            with pytest.raises(errors.OncecastError):
                await topic.get()
            again = await client.subscribe("t", "s")
            await client.put("t", b"x")
            assert await again.get() is not None

    run(scenario())


def test_subscription_can_be_read_again_after_a_cancelled_close(tmp_path: Path) -> None:
    """SVC-3: late messages for the old reader do not end the new one."""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            topic = await client.subscribe("t", "s")
            await client.put_many("t", [b"0", b"1", b"2"])
            assert len(await topic.get_many(1)) == 1
            closing = asyncio.create_task(topic.close())
            await asyncio.sleep(0)
            closing.cancel()
            again = await client.read("t", "s")
            assert again is not topic
            got: list[bytes] = []
            while len(got) < 2:
                got += [message.value for message in await again.get_many(3)]
            assert got == [b"1", b"2"]
            await client.put("t", b"3")
            assert await again.get() is not None

    run(scenario())


def test_subscribe_during_a_close_returns_a_working_subscription(tmp_path: Path) -> None:
    """SVC-5"""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            topic = await client.subscribe("t", "s")
            closing = asyncio.create_task(topic.close())
            await asyncio.sleep(0)
            again = await client.subscribe("t", "s")
            await closing
            await client.put("t", b"x")
            assert await again.get() is not None

    run(scenario())


def test_open_subscription_cannot_be_opened_with_other_options(tmp_path: Path) -> None:
    """SVC-7: options that cannot be applied are refused, not ignored."""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            topic = await client.subscribe("t", auto_ack=False)
            await client.put("t", b"x")
            for other in ({"auto_ack": True}, {"auto_ack": False, "start_at": 0}):
                with pytest.raises(errors.InvalidArgument, match="close it"):
                    await client.subscribe("t", **other)
            assert await client.subscribe("t", auto_ack=False) is topic
            assert await client.get("t") is not None

    run(scenario())


def test_close_returns_even_if_the_node_is_down(tmp_path: Path) -> None:
    """SVC-7: this holds even if the node never answered a reader."""

    async def scenario() -> None:
        async with serving(tmp_path) as node:
            client = await oncecast.connect(node, timeout=0.3)
            for number in range(4):
                await client.subscribe(f"t{number}")
        reading = asyncio.create_task(client.read("t", "s"))
        await asyncio.sleep(0)
        with pytest.raises(errors.TimedOut):
            await client.close()
        with pytest.raises(errors.OncecastError):
            await reading
        await client.close()

    run(scenario())


def test_unattached_subscription_can_be_closed(tmp_path: Path) -> None:
    """SVC-7"""

    async def scenario() -> None:
        async with serving(tmp_path) as node:
            client = await oncecast.connect(node, timeout=0.2)
        reading = asyncio.create_task(client.read("t", "s"))
        await asyncio.sleep(0)
        with pytest.raises(errors.TimedOut):
            await client.unsubscribe("t", "s")
        with pytest.raises(errors.Closed):
            await reading
        await client.close()

    run(scenario())


def test_cancelled_close_releases_all_resources(tmp_path: Path) -> None:
    """SVC-12"""

    async def scenario() -> None:
        before = asyncio.all_tasks()
        async with serving(tmp_path) as node:
            client = await oncecast.connect(node, state=tmp_path / "me")
            await client.subscribe("t")
        closing = asyncio.create_task(client.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        StateDirectory(tmp_path / "me").close()
        assert asyncio.all_tasks() == before

    run(scenario())


def test_client_closes_after_a_failed_put(tmp_path: Path) -> None:
    """SVC-3 SVC-7: the last message is redelivered, because its result may not be stored."""

    async def scenario() -> None:
        async with serving(tmp_path) as node:
            with pytest.raises(errors.PayloadTooLarge):
                async with oncecast.connect(node, name="me") as client:
                    topic = await client.subscribe("t")
                    await client.put("t", b"0")
                    assert await topic.get() is not None
                    client.parts.putting.limit(100)
                    client.parts.putting.put_gathered(deque([("t", bytes(1000), None, None)]))
            async with oncecast.connect(node, name="me") as client:
                assert not (await client.describe("t")).subscriptions[0].attached
                message = await client.get("t")
                assert message is not None
                assert message.redelivered

    run(scenario())


def test_client_raises_closed_until_it_is_awaited(tmp_path: Path) -> None:
    """SVC-7"""

    async def scenario() -> None:
        async with serving(tmp_path) as node:
            client = oncecast.connect(node)
            for ask in (lambda: client.name, lambda: client.put_nowait("t", b"")):
                with pytest.raises(errors.Closed, match="await it"):
                    ask()
            for work in (client.wait_for_space(), client.subscribe("t"), client.get("t")):
                with pytest.raises(errors.Closed, match="await it"):
                    await work
            assert await client is client
            async with client:
                await client.put("t", b"x")

    run(scenario())
