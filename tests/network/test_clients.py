"""Test client connections: roles, names, and messages in both directions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from oncecast.kernel.codec import Codec
from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.network.framing import BYE, GREETING, MESSAGE, PING, PONG, frame
from oncecast.network.handshake import CLIENT, GREETINGS, Refusal, Welcome
from oncecast.network.login import Logins
from oncecast.network.network import Runtime
from oncecast.network.options import Options
from oncecast.network.tls import Tls
from oncecast.security.secret import ClusterSecret
from tests.network.raw import Raw, hello
from tests.network.talk import Gone, Heard, Keep, Talk, Tell, Word, drive, port_of, reserve

WORDS = Codec((Word,))


class Murmur(Value):
    """A message for peers only."""

    text: bytes


class Talkative(Talk):
    Message = Word | Murmur


class Host(Runtime):
    def __init__(
        self,
        clients: tuple[type[Value], ...] = (Word,),
        *,
        logins: Logins | None = None,
        secret: ClusterSecret | None = None,
        tls: Tls | None = None,
        **options: Any,
    ) -> None:
        sock = reserve()
        self.port = port_of(sock)
        self.events: asyncio.Queue[Value] = asyncio.Queue()
        me = NodeId(f"127.0.0.1:{self.port}")
        super().__init__(
            Stack([Talkative(me)]),
            me=me,
            listen=sock,
            clients=clients,
            on_event=self.events.put_nowait,
            logins=logins,
            secret=secret,
            tls=tls,
            options=Options(**options),
        )


@asynccontextmanager
async def guest(host: Host, name: str = "ann", **how: Any) -> AsyncIterator[tuple[Raw, Value]]:
    raw = await Raw.dial(host.port)
    raw.greet(hello(host.me, name, role=CLIENT, **how))
    try:
        yield raw, await raw.greeting()
    finally:
        raw.close()


def word(text: bytes) -> bytes:
    return frame(MESSAGE, WORDS.encode(Word(text)))


def test_client_is_answered_over_its_own_connection() -> None:
    async def test() -> None:
        async with Host() as host, guest(host) as (ann, welcome):
            assert isinstance(welcome, Welcome)
            assert (welcome.sender, welcome.you) == (host.me, "ann")
            ann.write(word(b"hello"))
            assert await host.events.get() == Heard(NodeId("client/ann"), b"hello")
            host.request(Tell(NodeId("client/ann"), b"answer"))
            assert await ann.read() == (MESSAGE, WORDS.encode(Word(b"answer")))
            ann.write(frame(PING))
            assert await ann.read() == (PONG, b"")

    drive(test())


def test_client_without_a_name_gets_a_unique_name() -> None:
    """SVC-8"""

    async def test() -> None:
        async with Host() as host, guest(host, "") as (_, one), guest(host, "") as (_, other):
            assert isinstance(one, Welcome)
            assert isinstance(other, Welcome)
            assert one.you
            assert other.you
            assert one.you != other.you

    drive(test())


def test_client_cannot_send_peer_messages() -> None:
    async def test() -> None:
        async with Host() as host, guest(host) as (ann, _):
            ann.write(frame(MESSAGE, Codec((Murmur,)).encode(Murmur(b"psst"))), word(b"hello"))
            assert await host.events.get() == Heard(NodeId("client/ann"), b"hello")
            assert host.stats.malformed == 1

    drive(test())


def test_peer_cannot_send_client_messages() -> None:
    async def test() -> None:
        async with Host() as host:
            raw = await Raw.dial(host.port)
            raw.greet(hello(host.me))
            assert isinstance(await raw.greeting(), Welcome)
            raw.write(word(b"hello"), frame(PING))
            assert await raw.read() == (PONG, b"")
            assert (host.stats.malformed, host.events.empty()) == (1, True)
            raw.close()

    drive(test())


def test_new_client_connection_replaces_the_older_one() -> None:
    """SVC-8"""

    async def test() -> None:
        async with Host() as host, guest(host) as (older, _):
            older.write(word(b"older"))
            await host.events.get()
            host.request(Keep(NodeId("client/ann")))
            async with guest(host) as (newer, _):
                assert await host.events.get() == Gone(NodeId("client/ann"))
                kind, body = await older.read()
                reported = GREETINGS.decode(body)
                assert kind == GREETING
                assert isinstance(reported, Refusal)
                assert "taken over the name" in reported.reason
                await older.closed()
                host.request(Tell(NodeId("client/ann"), b"to the newer"))
                assert await newer.read() == (MESSAGE, WORDS.encode(Word(b"to the newer")))

    drive(test())


def test_losing_a_watched_client_is_reported_once() -> None:
    async def test() -> None:
        async with Host() as host:
            async with guest(host) as (ann, _):
                ann.write(word(b"hello"))
                await host.events.get()
                host.request(Keep(NodeId("client/ann")))
            assert await host.events.get() == Gone(NodeId("client/ann"))
            host.request(Keep(NodeId("client/nobody")))
            assert await host.events.get() == Gone(NodeId("client/nobody"))
            host.request(Tell(NodeId("client/ann"), b"too late"))
            assert host.stats.bytes_dropped > 0

    drive(test())


def test_connection_is_reset_if_the_client_does_not_read() -> None:
    async def test() -> None:
        async with Host(queue_bytes_max=100_000) as host, guest(host) as (ann, _):
            ann.write(word(b"hello"))
            await host.events.get()
            host.request(Keep(NodeId("client/ann")))
            while host.events.empty():
                host.request(Tell(NodeId("client/ann"), bytes(1_000_000)))
                await asyncio.sleep(0)
            assert await host.events.get() == Gone(NodeId("client/ann"))
            assert host.stats.slow == 1

    drive(test())


def test_stopping_node_sends_bye_after_the_last_message() -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            host = await stack.enter_async_context(Host())
            ann, _ = await stack.enter_async_context(guest(host))
            ann.write(word(b"hello"))
            await host.events.get()
            host.request(Tell(NodeId("client/ann"), b"last"))
            leaving = asyncio.create_task(host.__aexit__(None, None, None))
            assert await ann.read() == (MESSAGE, WORDS.encode(Word(b"last")))
            assert await ann.read() == (BYE, b"")
            ann.close()
            await leaving
            stack.pop_all()

    drive(test())


@pytest.mark.parametrize(
    ("name", "how", "clients", "fact"),
    [
        ("x" * 256, {}, (Word,), "256 bytes long (limit 255); choose a shorter name"),
        ("a\nb", {}, (Word,), r"'a\nb' contains unprintable characters; remove them"),
        ("ann", {"version": 99}, (Word,), "upgrade"),
        ("ann", {"cluster": "other"}, (Word,), "ann belongs to cluster 'other'"),
        ("", {"cluster": "other"}, (Word,), "a client belongs to cluster 'other'"),
        ("", {"version": 99}, (Word,), "a client uses protocol version 99"),
        ("ann", {}, (), "unknown role 'client'"),
    ],
)
def test_refused_client_gets_the_reason(
    name: str, how: dict[str, Any], clients: tuple[type[Value], ...], fact: str
) -> None:
    """SVC-7: the client may use another protocol version, for example."""

    async def test() -> None:
        async with Host(clients) as host, guest(host, name, **how) as (_, refusal):
            assert isinstance(refusal, Refusal)
            assert fact in refusal.reason

    drive(test())
