"""Test which peers the handshake accepts and refuses."""

from __future__ import annotations

import logging

import pytest

from oncecast.kernel.protocol import NodeId
from oncecast.network.framing import MESSAGE, PREAMBLE, frame
from oncecast.network.handshake import Refusal, Welcome
from tests.network.raw import Raw, RawPeer, hello
from tests.network.talk import Gone, Heard, Keep, Node, drive
from tests.network.test_transport import message


def test_hello_is_answered_with_a_welcome() -> None:
    async def test() -> None:
        async with Node() as a:
            raw = await Raw.dial(a.port)
            raw.greet(hello(a.me))
            welcome = await raw.greeting()
            assert isinstance(welcome, Welcome)
            assert welcome.sender == a.me
            raw.write(message(b"hi"))
            assert await a.event() == Heard(NodeId("127.0.0.1:1"), b"hi")
            raw.close()

    drive(test())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": 7}, "uses protocol version 7, but .* uses 1; upgrade the older"),
        ({"cluster": "other"}, "belongs to cluster 'other', .* to 'oncecast'; correct"),
        ({"role": "ghost"}, "unknown role 'ghost'; use peer"),
        ({"to": "127.0.0.1:2"}, "dialled 127.0.0.1:2, but this is .*the same way"),
        ({"sender": "me"}, "two nodes have the id .*; give each node its own address"),
        ({"sender": "nonsense"}, "'nonsense' is not a valid address; write"),
    ],
)
def test_invalid_hello_is_refused_with_a_reason(
    change: dict[str, str], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> str:
        async with Node() as a:
            fields: dict[str, object] = {"to": a.me, **change}
            if change.get("sender") == "me":
                fields["sender"] = a.me
            raw = await Raw.dial(a.port)
            raw.greet(hello(**fields))  # type: ignore[arg-type]
            refusal = await raw.greeting()
            assert isinstance(refusal, Refusal)
            await raw.closed()
            assert a.stats.refused == 1
            return refusal.reason

    reasons: list[str] = []

    async def keep() -> None:
        reasons.append(await test())

    drive(keep())
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(reasons[0])
    assert "refused peer=127.0.0.1:" in caplog.text


def test_refused_node_logs_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with Node(cluster="red") as a, Node(cluster="blue") as b:
            a.request(Keep(b.me))
            assert await a.event() == Gone(b.me)
            assert (a.stats.refused, b.stats.refused) == (1, 1)

    with caplog.at_level(logging.INFO):
        drive(test())
    assert caplog.text.count("belongs to cluster 'red'") == 2


def test_node_that_dials_itself_is_refused() -> None:
    async def test() -> None:
        async with Node() as a:
            alias = NodeId(f"localhost:{a.port}")
            a.request(Keep(alias))
            assert await a.event() == Gone(alias)
            assert a.stats.refused == 2  # both sides count the refusal

    drive(test())


def test_welcome_from_an_unexpected_node_is_refused() -> None:
    async def test() -> None:
        async with Node() as a, RawPeer() as peer:
            a.request(Keep(peer.id))
            raw = await peer.accepted.get()
            await raw.greeting()
            raw.greet(Welcome("127.0.0.1:2", 1))
            assert await a.event() == Gone(peer.id)

    drive(test())


def test_peer_that_dials_again_replaces_its_connection() -> None:
    async def test() -> None:
        async with Node() as a:
            older, newer = await Raw.dial(a.port), await Raw.dial(a.port)
            for raw in (older, newer):
                raw.greet(hello(a.me))
                await raw.greeting()
            await older.closed()
            newer.write(message(b"hi"))
            assert await a.event() == Heard(NodeId("127.0.0.1:1"), b"hi")
            newer.close()

    drive(test())


def test_malformed_message_is_counted_without_breaking_the_link() -> None:
    async def test() -> None:
        async with Node() as a:
            raw = await Raw.dial(a.port)
            raw.greet(hello(a.me))
            await raw.greeting()
            raw.write(frame(MESSAGE, b"\x91\xa7Unknown"), frame(MESSAGE, b""), message(b"hi"))
            assert await a.event() == Heard(NodeId("127.0.0.1:1"), b"hi")
            assert a.stats.malformed == 2
            raw.close()

    drive(test())


def test_concurrent_connections_are_independent() -> None:
    """Connections share one receive buffer."""

    async def test() -> None:
        async with Node() as a:
            senders = [NodeId(f"127.0.0.1:{port}") for port in (1, 2)]
            raws = [await Raw.dial(a.port) for _ in senders]
            for raw, sender in zip(raws, senders, strict=True):
                raw.greet(hello(a.me, sender))
                await raw.greeting()
            whole = message(bytes(100))
            for i in range(len(whole)):
                for raw in raws:
                    raw.write(whole[i : i + 1])
                    await raw.writer.drain()
            heard = [await a.event() for _ in senders]
            assert sorted(heard, key=str) == [Heard(sender, bytes(100)) for sender in senders]
            for raw in raws:
                raw.close()

    drive(test())


def test_acceptor_sends_the_preamble_without_waiting_for_the_dialler() -> None:
    async def test() -> None:
        async with Node() as a:
            raw = await Raw.dial(a.port)
            assert await raw.reader.readexactly(len(PREAMBLE)) == PREAMBLE
            raw.close()

    drive(test())
