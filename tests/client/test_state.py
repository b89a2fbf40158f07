"""The messages of a restarted publisher are stored once, even after a crash."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import oncecast
from oncecast import errors
from oncecast.client.state import SEGMENT_BYTES
from oncecast.node.config import Settings
from oncecast.node.server import Server
from tests.client.serving import run, serving


async def read_all(client: oncecast.Client, topic: str) -> list[bytes]:
    found: list[bytes] = []
    while messages := await client.get_many(topic, 1000, timeout=0):
        found += [message.value for message in messages]
    return found


def test_client_name_is_stored_in_the_state_directory(tmp_path: Path) -> None:
    """SVC-8 SVC-12"""

    async def scenario() -> None:
        async with serving(tmp_path) as node:
            async with oncecast.connect(node, state=tmp_path / "me") as client:
                name = client.name
            async with oncecast.connect(node, state=tmp_path / "me") as client:
                assert client.name == name
            with pytest.raises(errors.StateUnusable, match=name):
                async with oncecast.connect(node, name="other", state=tmp_path / "me"):
                    pass

    run(scenario())


def test_state_directory_can_be_used_by_only_one_client(tmp_path: Path) -> None:
    """SVC-8"""

    async def scenario() -> None:
        async with serving(tmp_path) as node, oncecast.connect(node, state=tmp_path / "me"):
            with pytest.raises(errors.StateUnusable, match="in use"):
                async with oncecast.connect(node, state=tmp_path / "me"):
                    pass

    run(scenario())


def test_embedded_node_locks_its_directory(tmp_path: Path) -> None:
    """SVC-7 SVC-8"""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path):
            with pytest.raises(errors.StateUnusable, match="in use"):
                async with oncecast.embedded(tmp_path):
                    pass
        with pytest.raises(TypeError, match="async with"):
            await oncecast.embedded(tmp_path)

    run(scenario())


def test_damaged_state_directory_raises_an_error_with_a_remedy(tmp_path: Path) -> None:
    """SVC-7: a client has no peers to restore its state from."""

    async def scenario() -> None:
        me = tmp_path / "me"
        async with serving(tmp_path) as node:
            async with oncecast.connect(node, state=me) as client:
                await client.put("t", b"x")
            assert sum(file.stat().st_size for file in me.iterdir()) < 4 * SEGMENT_BYTES
            for file in me.iterdir():
                if file.stat().st_size > 60:
                    content = bytearray(file.read_bytes())
                    content[40] ^= 0xFF
                    file.write_bytes(content)
            with pytest.raises(errors.StateUnusable, match="new directory") as caught:
                await oncecast.connect(node, state=me)
            assert "peers" not in str(caught.value)

    run(scenario())


def test_message_larger_than_a_segment_survives_in_the_outbox(tmp_path: Path) -> None:
    """SVC-2"""

    async def scenario() -> None:
        async with serving(tmp_path) as node:
            client = await oncecast.connect(node, state=tmp_path / "me", timeout=0.1)
        client.put_nowait("t", bytes(2 * SEGMENT_BYTES))
        with pytest.raises(errors.TimedOut, match="state directory"):
            await client.close()
        async with (
            serving(tmp_path, node),
            oncecast.connect(node, state=tmp_path / "me") as client,
        ):
            await client.flush()
            assert (await client.describe("t")).next == 1

    run(scenario())


def test_sequence_continues_in_the_next_process(tmp_path: Path) -> None:
    """SVC-2"""

    async def scenario() -> None:
        async with serving(tmp_path) as node, oncecast.connect(node, name="reader") as reader:
            await reader.subscribe("t")
            for number in range(5):
                async with oncecast.connect(node, state=tmp_path / "me") as client:
                    assert (await client.put("t", b"%d" % number)).offset == number
            assert await read_all(reader, "t") == [b"%d" % number for number in range(5)]

    run(scenario())


def test_next_process_sends_the_outbox(tmp_path: Path) -> None:
    """SVC-2 SVC-12"""

    async def scenario() -> None:
        async with Server(Settings(data=str(tmp_path / "node"), listen="127.0.0.1:0")) as server:
            node = server.me
            async with oncecast.connect(node, name="reader") as reader:
                await reader.subscribe("t")
            client = await oncecast.connect(node, state=tmp_path / "me", timeout=0.2).__aenter__()
            await client.put("t", b"0")
        # The node is down: new puts stay in the state directory.
        with pytest.raises(errors.TimedOut):
            await client.put("t", b"1", timeout=0.1)
        client.put_nowait("t", b"2")
        with pytest.raises(errors.TimedOut):
            await client.close()
        async with (
            serving(tmp_path, node),
            oncecast.connect(node, state=tmp_path / "me") as client,
            oncecast.connect(node, name="reader") as reader,
        ):
            await client.flush()
            assert (await client.describe("t")).next == 3
            assert (await client.put("t", b"3")).offset == 3
            assert await read_all(reader, "t") == [b"0", b"1", b"2", b"3"]

    run(scenario())


def test_client_continues_after_its_node_restarts(tmp_path: Path) -> None:
    """SVC-2 SVC-3 SVC-10"""

    async def scenario() -> None:
        async with Server(Settings(data=str(tmp_path / "node"), listen="127.0.0.1:0")) as server:
            node = server.me
            client = await oncecast.connect(node).__aenter__()
            topic = await client.subscribe("t")
            await client.put("t", b"0")
        putting = asyncio.create_task(client.put("t", b"1"))
        getting = asyncio.create_task(topic.get_many(10))
        assert [message.value for message in await getting] == [b"0"]
        getting = asyncio.create_task(topic.get_many(10))
        async with serving(tmp_path, node):
            assert (await putting).offset == 1
            assert [message.value for message in await getting] == [b"1"]
            await client.close()

    run(scenario())


def test_storing_offset_and_result_together_gives_exactly_once_effects(tmp_path: Path) -> None:
    """SVC-3"""

    async def scenario() -> None:
        books: list[int] = []
        async with serving(tmp_path) as node, oncecast.connect(node) as client:
            topic = await client.subscribe("t", "sum", auto_ack=False)
            await client.put_many("t", [b"1", b"2", b"3", b"4"])
            books += [int(each.value) for each in await topic.get_many(3)]
            await topic.close()  # nothing was acknowledged
            again = await client.subscribe("t", "sum", auto_ack=False, start_at=len(books))
            message = await again.get()
            assert message is not None
            assert (message.offset, message.value) == (3, b"4")
            again.ack(message)
            await again.close()
            # The database was restored from an older copy: the reader seeks back as far as it can.
            await client.put("t", b"5")
            with pytest.raises(errors.MessagesLost):
                await (await client.subscribe("t", "sum", start_at=2)).get()

    run(scenario())
