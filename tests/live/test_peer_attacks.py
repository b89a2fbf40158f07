"""SEC-1: an attacker that impersonates a replica is refused, and the group keeps serving."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from pathlib import Path

import oncecast
from oncecast import blocking
from oncecast.kernel.codec import Codec
from oncecast.kernel.protocol import NodeId
from oncecast.network.framing import GREETING, HEADER, HEADER_BYTES, MESSAGE, PREAMBLE, frame
from oncecast.network.handshake import GREETINGS, PEER, VERSION, Hello, Refusal
from oncecast.node.config import Settings
from oncecast.node.server import Server
from oncecast.replication.ballot import Ballot
from oncecast.replication.messages import Beat
from tests.client.serving import run
from tests.live.replicas import PATIENCE, replicas

ATTACKER = NodeId("127.0.0.1:1")
BEATS = (
    Beat(Ballot(9, ATTACKER), 0, 0.0, group=666),  # this Beat names another group
    Beat(Ballot(2**64 - 1, ATTACKER), 0, 0.0),  # this Beat has the highest ballot
)


def attack(node: str, port: int) -> object:
    """Pose as a replica, send forged messages at once, and return the answer to the Hello."""
    hello = Hello(VERSION, "oncecast", PEER, ATTACKER, node, 1, nonce=os.urandom(32))
    forged = b"".join(frame(MESSAGE, Codec((Beat,)).encode(beat)) for beat in BEATS)
    with (
        socket.create_connection(("127.0.0.1", port), PATIENCE) as sock,
        sock.makefile("rb") as stream,
    ):
        sock.sendall(PREAMBLE + frame(GREETING, GREETINGS.encode(hello)))
        assert stream.read(len(PREAMBLE)) == PREAMBLE
        length, kind = HEADER.unpack(stream.read(HEADER_BYTES))
        assert kind == GREETING
        answer = GREETINGS.decode(stream.read(length))
        with contextlib.suppress(ConnectionError):  # the node may close before it reads them
            sock.sendall(forged)
            assert stream.read() == b""  # the node closes the connection
    return answer


def secret_in(directory: Path) -> Path:
    secret = directory / "secret"
    secret.touch(0o600)
    secret.write_text("the secret of the whole cluster\n")
    return secret


def test_group_with_a_secret_refuses_forged_replicas_and_keeps_serving(tmp_path: Path) -> None:
    """SEC-1"""
    with replicas(tmp_path, 2, "--cluster-secret-file", str(secret_in(tmp_path))) as group:
        for each in group.all:
            attack(each.address, int(each.address.rpartition(":")[2]))
            assert each.has_said("hostile peer=127.0.0.1:.* before the end of the handshake")
        group.settled()
        with blocking.connect(group.server) as client:
            client.create_topic("news", oncecast.Policy(keep_all=True))
            assert client.put("news", b"still here").offset == 0


def test_publicly_reachable_node_refuses_forged_replicas(tmp_path: Path) -> None:
    """SEC-1"""

    async def test() -> None:
        settings = Settings(data=str(tmp_path / "node"), listen="0.0.0.0:0", insecure=True)
        async with Server(settings) as server:
            port = int(server.me.rpartition(":")[2])
            answer = await asyncio.to_thread(attack, server.me, port)
            assert isinstance(answer, Refusal)
            assert "refuses all nodes" in answer.reason
            async with oncecast.connect(f"127.0.0.1:{port}") as client:
                await client.create_topic("news", oncecast.Policy(keep_all=True))
                assert (await client.put("news", b"still here")).offset == 0

    run(test())
