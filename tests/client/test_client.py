"""The async client works with a real node, embedded and over real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import oncecast
from oncecast import errors
from tests.client.serving import run, serving


def test_message_is_received_as_it_was_put(tmp_path: Path) -> None:
    """SVC-1 SVC-12"""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            data = await client.subscribe("my data")
            receipt = await client.put("my data", b"v", key=b"k", headers={"h": b"x"})
            assert receipt == (0, True)
            message = await data.get()
            assert message is not None
            assert (message.topic, message.offset, message.redelivered) == ("my data", 0, False)
            assert (message.value, message.key, message.headers) == (b"v", b"k", {"h": b"x"})
            assert message.producer == client.name

    run(scenario())


def test_get_from_an_empty_topic_returns_none_or_an_empty_list(tmp_path: Path) -> None:
    """SVC-4 SVC-7"""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            topic = await client.subscribe("t")
            assert await topic.get(timeout=0) is None
            assert await topic.get(timeout=0.01) is None
            assert await topic.get_many(10, timeout=0) == []
            assert await client.get("t", timeout=0) is None
            assert await client.get_many("t", 3, timeout=0.01) == []

    run(scenario())


def test_get_with_a_zero_timeout_returns_stored_messages(tmp_path: Path) -> None:
    """SVC-4"""

    async def scenario() -> None:
        async with (
            serving(tmp_path) as node,
            oncecast.connect(node) as writer,
            oncecast.connect(node) as reader,
        ):
            topic = await reader.subscribe("t")
            for number in range(50):
                await writer.put("t", b"%d" % number)
                message = await topic.get(timeout=0)
                assert message is not None
                assert message.value == b"%d" % number

    run(scenario())


def test_waiting_subscriber_gets_the_next_message(tmp_path: Path) -> None:
    """SVC-4"""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            topic = await client.subscribe("t")
            waiting = asyncio.create_task(topic.get())
            await asyncio.sleep(0)
            await client.put("t", b"x")
            message = await waiting
            assert message is not None
            assert message.value == b"x"

    run(scenario())


def test_concurrent_puts_are_stored_in_order(tmp_path: Path) -> None:
    """SVC-2"""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            topic = await client.subscribe("t")
            values = [b"%d" % number for number in range(500)]
            receipts = await asyncio.gather(*(client.put("t", value) for value in values))
            assert [receipt.offset for receipt in receipts] == list(range(500))
            got: list[bytes] = []
            while len(got) < 500:
                got += [message.value for message in await topic.get_many(100)]
            assert got == values

    run(scenario())


def test_mixed_puts_keep_their_order(tmp_path: Path) -> None:
    """SVC-1 SVC-2"""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            topic = await client.subscribe("t")
            client.put_nowait("t", b"0")
            client.put_nowait("t", b"1", key=b"k")
            client.put_nowait("t", bytearray(b"2"))  # type: ignore[arg-type]
            client.put_nowait("t", b"3", headers={"h": b"v"})
            client.put_nowait("t", b"4")
            receipt = await client.put_many("t", [b"5", b"6", b"7"])
            assert receipt == (7, True)
            messages = await topic.get_many(100)
            assert [message.value for message in messages] == [b"%d" % each for each in range(8)]
            assert [message.key for message in messages[:3]] == [None, b"k", None]

    run(scenario())


def test_large_put_many_arrives_complete_and_in_order(tmp_path: Path) -> None:
    """SVC-2 SVC-3"""

    async def scenario() -> None:
        values = [bytes([each % 256]) * 100_000 for each in range(300)]
        async with oncecast.embedded(tmp_path) as client:
            topic = await client.subscribe("t")
            await client.put_many("t", values)
            got: list[bytes] = []
            async for message in topic:
                got.append(message.value)
                if len(got) == len(values):
                    break
            assert got == values

    run(scenario())


def test_repeated_subscribe_and_unsubscribe_change_nothing(tmp_path: Path) -> None:
    """SVC-5 SVC-6"""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            topic = await client.subscribe("t", "s")
            assert await client.subscribe("t", "s") is topic
            await client.put("t", b"0")
            assert await client.unsubscribe("t", "s")
            assert not await client.unsubscribe("t", "s")
            with pytest.raises(errors.OncecastError):
                await topic.get(timeout=0)
            with pytest.raises(errors.NotSubscribed):
                await client.read("t", "s")
            fresh = await client.subscribe("t", "s")
            assert await fresh.get(timeout=0) is None

    run(scenario())


def test_receipt_shows_whether_the_message_is_kept(tmp_path: Path) -> None:
    """SVC-5"""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            assert await client.put("nobody", b"0") == (0, False)
            await client.subscribe("nobody")
            assert await client.put("nobody", b"1") == (1, True)

    run(scenario())


def test_topics_are_created_described_listed_and_deleted(tmp_path: Path) -> None:
    """SVC-1"""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            assert await client.create_topic("b/1", oncecast.Policy(keep_all=True))
            assert not await client.create_topic("b/1", oncecast.Policy(keep_all=True))
            assert await client.create_topic("a")
            await client.set_policy("a", oncecast.Policy(bytes_max=10))
            assert (await client.describe("a")).policy.bytes_max == 10
            assert [view.name async for view in client.topics()] == ["a", "b/1"]
            assert [view.name async for view in client.topics("b")] == ["b/1"]
            assert await client.delete_topic("a")
            assert not await client.delete_topic("a")
            assert (await client.ping()).version == oncecast.__version__

    run(scenario())
