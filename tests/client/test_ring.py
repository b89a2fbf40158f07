"""A client follows a topic that moves between two groups in a ring."""

from __future__ import annotations

import socket
from pathlib import Path
from random import Random

import pytest

from oncecast.client.client import connect
from oncecast.kernel.protocol import NodeId
from oncecast.kernel.stack import Stack
from oncecast.network.network import Runtime
from oncecast.node.assemble import RingMembership, assemble
from oncecast.storage.disk import OsDisk
from oncecast.storage.journal import Journal
from oncecast.wire.frames import Call, Fetch, Look, Scan
from tests.client.serving import run
from tests.client.session.client_world import TOPIC
from tests.client.session.ring_world import NEW, OLD, STAYS, RingProcess

FRAMES = (Call, Fetch, Look, Scan)

pytestmark = pytest.mark.long


def process() -> Runtime:
    sock = socket.create_server(("127.0.0.1", 0))
    me = NodeId(f"127.0.0.1:{sock.getsockname()[1]}")
    return Runtime(
        Stack([RingProcess(me, Random(), {}, processes=1)]), me=me, listen=sock, clients=FRAMES
    )


def replica(host: Runtime, group: str, path: Path) -> Runtime:
    """Return the only replica of a group, in the process of `host`."""
    me = NodeId(f"{host.me}/{group}")
    stack = assemble(
        me, Random(), membership=RingMembership(group, host.me, first=group == OLD)
    ).stack
    journal = Journal.open(OsDisk(path / group), stack)
    return Runtime(stack, me=me, journal=journal, clients=FRAMES, primary=host)


def test_client_finds_its_topics_and_follows_them_to_another_group(tmp_path: Path) -> None:
    """SVC-2 SVC-3 SVC-13: the client knows one process, and no groups."""

    async def test() -> None:
        async with (
            process() as host,
            replica(host, OLD, tmp_path),
            connect(host.me, timeout=20.0) as client,
        ):
            news, rest = await client.subscribe(TOPIC), await client.subscribe(STAYS)
            put = 0
            async with replica(host, NEW, tmp_path):
                while client.parts.session.routes.of(TOPIC).group != NEW:
                    await client.put(TOPIC, b"%d" % put)
                    await client.put(STAYS, b"%d" % put)
                    put += 1
                assert await client.put(TOPIC, b"last")
                for reading, count in ((news, put), (rest, put)):
                    for number in range(count):
                        message = await reading.get(timeout=10.0)
                        assert message is not None
                        assert (message.offset, message.value) == (number, b"%d" % number)
                assert client.parts.session.routes.of(STAYS).group == OLD
                assert (await client.describe(TOPIC)).next == put + 1
                assert (await client.describe(STAYS)).next == put
                await client.close()

    run(test())
