"""A node reports a nearly full disk, keeps its data, and continues once space is free."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

import oncecast
from oncecast import errors
from oncecast.node.config import Settings
from oncecast.node.server import Server
from oncecast.storage.journal import Journal
from tests.client.serving import run


def test_put_to_a_full_disk_raises_and_is_stored_once_space_is_free(tmp_path: Path) -> None:
    """SVC-7: the message stays in flight and must not be put again."""

    async def scenario() -> None:
        async with (
            Server(Settings(data=str(tmp_path), listen="127.0.0.1:0")) as server,
            oncecast.connect(server.me) as client,
        ):
            topic = await client.subscribe("t")
            await client.put("t", b"before")
            there_is, server.parts.gateway.free_disk_bytes = (
                server.parts.gateway.free_disk_bytes,
                lambda: 0,
            )
            with pytest.raises(errors.Overloaded, match=r"not stored within .*disk"):
                await client.put("t", b"late", timeout=0.2)
            with pytest.raises(errors.Overloaded, match=r"not all messages are stored .*disk"):
                await client.flush(timeout=0.2)
            assert [each.value for each in await topic.get_many(9)] == [b"before"]
            server.parts.gateway.free_disk_bytes = there_is
            await client.flush()
            assert [each.value for each in await topic.get_many(9)] == [b"late"]

    run(scenario())


def test_put_without_a_timeout_does_not_wait_forever_for_a_full_disk(tmp_path: Path) -> None:
    """SVC-7: the timeout of the client applies, and the message stays in flight."""

    async def scenario() -> None:
        async with (
            Server(Settings(data=str(tmp_path), listen="127.0.0.1:0")) as server,
            oncecast.connect(server.me, timeout=0.3) as client,
        ):
            gateway = server.parts.gateway
            await client.put("t", b"before")
            there_is, gateway.free_disk_bytes = gateway.free_disk_bytes, lambda: 0
            with pytest.raises(errors.Overloaded, match=r"not stored within 0.3 s.*disk") as late:
                await client.put("t", b"one")
            assert late.value.in_flight
            with pytest.raises(errors.Overloaded, match=r"not stored within 0.3 s.*disk"):
                await client.put_many("t", [b"two", b"three"])
            with pytest.raises(errors.Overloaded, match=r"not all messages are stored .*disk"):
                await client.flush()
            patient = asyncio.create_task(client.put("t", b"four", timeout=20.0))
            with pytest.raises(errors.Overloaded):
                await client.flush()
            assert not patient.done()  # this put has its own timeout
            gateway.free_disk_bytes = there_is
            assert (await patient).offset == 4
            await client.flush()

    run(scenario())


@pytest.mark.long
def test_idle_node_notices_freed_disk_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """SVC-10: otherwise the node would check only after a refused put."""
    allocate, full = os.posix_fallocate, [False]

    def full_or_not(file: int, start: int, size: int) -> None:
        if full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        allocate(file, start, size)

    monkeypatch.setattr(os, "posix_fallocate", full_or_not)
    monkeypatch.setattr(Journal, "open", partial(Journal.open, segment_bytes=20 << 20))
    caplog.set_level(logging.INFO, "oncecast.node")

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            await client.create_topic("t", oncecast.Policy(keep_all=True))
            full[0] = True
            puts = 0
            while not await refused(client):  # the node may have allocated the next segment
                client.put_nowait("t", bytes(1 << 20))
                puts += 1
            full[0] = False
            await client.flush()
            assert (await client.describe("t")).next == puts

    run(scenario())
    reported = [each.getMessage().split()[0] for each in caplog.records]
    assert [each for each in reported if each in ("disk_full", "disk_space_available")] == [
        "disk_full",
        "disk_space_available",
    ]


async def refused(client: oncecast.Client) -> bool:
    """Flush for 0.2 seconds, and return whether the node reports a full disk."""
    try:
        await client.flush(timeout=0.2)
    except errors.Overloaded as full:
        return "disk" in str(full)
    except errors.TimedOut:
        pass
    return False


def test_leader_with_a_full_disk_steps_down_so_that_puts_succeed(tmp_path: Path) -> None:
    """SVC-10: the other members have space."""

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            servers: list[Server] = []
            for number in range(3):
                join = servers[0].me if servers else ""
                settings = Settings(
                    data=str(tmp_path / str(number)),
                    join=join,
                    listen="127.0.0.1:0",
                    heartbeat=0.1,
                    suspicion=0.5,
                )
                servers.append(await stack.enter_async_context(Server(settings)))
            client = await stack.enter_async_context(oncecast.connect(servers[0].me))
            while len((await client.group()).members) < 3:
                pass
            assert (await client.put("t", b"before")).offset == 0
            leading = (await client.group()).leader
            leader = next(each for each in servers if each.me == leading)
            leader.parts.gateway.free_disk_bytes = lambda: 0
            assert (await client.put("t", b"after", timeout=20.0)).offset == 1
            assert (await client.group()).leader != leader.me

    run(scenario())
