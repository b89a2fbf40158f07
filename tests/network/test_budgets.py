"""Clients and peers have separate connection limits, and hosts share the limit for pending
handshakes."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack

from oncecast.network.handshake import Refusal, Welcome
from oncecast.network.pending import Handshake, Pending
from tests.network.raw import Raw, hello
from tests.network.talk import drive
from tests.network.test_clients import Host, guest


def test_client_connections_cannot_lock_out_peers() -> None:
    """SEC-3"""

    async def test() -> None:
        async with Host(connections_max=3, peers_max=2) as node, AsyncExitStack() as stack:
            for n in range(3):
                _, welcome = await stack.enter_async_context(guest(node, f"client {n}"))
                assert isinstance(welcome, Welcome)
            _, refusal = await stack.enter_async_context(guest(node, "one more"))
            assert isinstance(refusal, Refusal)
            assert refusal.passing
            assert "too many connections from clients (limit 3)" in refusal.reason
            for n in range(3):
                raw = await Raw.dial(node.port)
                stack.callback(raw.close)
                raw.greet(hello(node.me, f"127.0.0.1:{n + 1}"))
                answer = await raw.greeting()
                assert isinstance(answer, Welcome if n < 2 else Refusal)
            assert node.stats.crowded == 2

    drive(test())


def test_silent_connections_cannot_lock_out_peers() -> None:
    """SEC-3"""

    async def test() -> None:
        async with Host(connections_max=2, peers_max=1) as node, AsyncExitStack() as stack:
            for n in range(2):
                await stack.enter_async_context(guest(node, f"client {n}"))
            silent = [await Raw.dial(node.port) for _ in range(5)]
            raw = await Raw.dial(node.port)
            raw.greet(hello(node.me))
            assert isinstance(await raw.greeting(), Welcome)
            for each in silent:
                await each.closed()
            raw.close()

    drive(test())


def handshake(host: str) -> Handshake:
    made = Handshake(socket.socket(), host, 1)
    made.task = asyncio.create_task(asyncio.sleep(0))
    return made


def test_host_that_floods_handshakes_blocks_only_itself() -> None:
    """SEC-3: a flood from one host does not end the handshake of another."""

    async def test() -> None:
        pending = Pending()
        honest = handshake("10.0.0.1")
        pending.add(honest)
        flood = [handshake("10.0.0.2") for _ in range(10)]
        for each in flood:
            pending.add(each)
        for _ in range(9):
            pending.cancel_one()
        assert len(pending) == 2
        assert honest.sock.fileno() >= 0
        assert [each.sock.fileno() >= 0 for each in flood] == [False] * 9 + [True]
        pending.remove(honest)
        pending.remove(honest)
        honest.sock.close()
        assert len(pending.cancel_all()) == 1
        assert len(pending) == 0

    drive(test())
