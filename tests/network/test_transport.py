"""NET-1: test the order, limits and losses of links between nodes."""

from __future__ import annotations

import asyncio

import pytest

from oncecast.kernel.codec import Codec
from oncecast.kernel.protocol import NodeId
from oncecast.network.connection import Wires
from oncecast.network.framing import BYE, MESSAGE, PING, PONG, frame
from oncecast.network.handshake import Identity
from oncecast.network.links import Link
from oncecast.network.options import Options, Stats
from oncecast.network.trust import Trust
from tests.network.raw import RawPeer
from tests.network.talk import (
    LOOPS,
    Gone,
    Heard,
    Keep,
    Leave,
    Node,
    Tell,
    Word,
    drive,
    reserve,
)

KB = 1000
every_loop = pytest.mark.parametrize("loop", LOOPS)


def message(text: bytes) -> bytes:
    return frame(MESSAGE, Codec((Word,)).encode(Word(text)))


@every_loop
def test_messages_arrive_once_and_in_order(loop: str) -> None:
    """NET-1"""

    async def test() -> None:
        async with Node() as a, Node() as b:
            texts = [b"%d" % n for n in range(2000)]
            for text in texts:
                a.request(Tell(b.me, text))
            assert [await b.event() for _ in texts] == [Heard(a.me, text) for text in texts]

    drive(test(), loop)


@every_loop
def test_large_and_small_messages_arrive_in_order(loop: str) -> None:
    async def test() -> None:
        async with Node() as a, Node() as b:
            a.request(Tell(b.me, b"connected"))
            await b.event()
            texts = [b"small", bytes(5_000 * KB), b"", bytes(300 * KB), b"last"]
            for text in texts:
                a.request(Tell(b.me, text))
            assert [await b.event() for _ in texts] == [Heard(a.me, text) for text in texts]

    drive(test(), loop)


def test_oversized_message_is_logged_without_breaking_the_link(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        async with Node(frame_bytes_max=10 * KB) as a, Node() as b:
            a.request(Tell(b.me, bytes(10 * KB)))
            a.request(Tell(b.me, b"short"))
            assert await b.event() == Heard(a.me, b"short")
            assert a.stats.too_long == 1

    drive(test())
    assert "Word of 10009 bytes not sent (limit 10000); raise frame_bytes_max" in caplog.text


@every_loop
def test_unreachable_peer_is_reported_down_once_per_watch(loop: str) -> None:
    async def test() -> None:
        with reserve() as nobody:
            peer = NodeId(f"127.0.0.1:{nobody.getsockname()[1]}")
            async with Node(backoff_min=0.001) as a:
                for _ in range(3):
                    a.request(Keep(peer))
                    assert await a.event() == Gone(peer)
                assert a.events.empty()

    drive(test(), loop)


@pytest.mark.parametrize(
    "peer", ["nowhere", "127.0.0.1:99999", "a b:1", "a" * 70 + ".x:1", ":1", "\x00:1"]
)
def test_peer_with_an_invalid_address_is_reported_down(peer: str) -> None:
    async def test() -> None:
        async with Node() as a:
            a.request(Keep(NodeId(peer)))
            assert await a.event() == Gone(NodeId(peer))

    drive(test())


def test_stopped_peer_is_reported_down_to_its_watcher() -> None:
    async def test() -> None:
        async with Node() as a:
            async with Node() as b, Node() as c:
                a.request(Keep(b.me))
                a.request(Tell(b.me, b"hi"))
                a.request(Tell(c.me, b"hi"))
                await b.event()
                await c.event()
            assert await a.event() == Gone(b.me)
            assert a.events.empty()

    drive(test())


def test_losing_an_unwatched_peer_is_not_reported() -> None:
    async def test() -> None:
        async with Node() as a:
            async with Node() as b, Node() as c:
                for peer in (b, c):
                    a.request(Keep(peer.me))
                    a.request(Tell(peer.me, b"hi"))
                    await peer.event()
                a.request(Leave(b.me))
            assert await a.event() == Gone(c.me)

    drive(test())


def test_restarted_peer_is_dialled_again() -> None:
    async def test() -> None:
        async with Node(backoff_min=0.001) as a:
            sock = reserve()
            async with Node(sock.dup()) as b:
                a.request(Keep(b.me))
                a.request(Tell(b.me, b"first life"))
                await b.event()
            assert await a.event() == Gone(b.me)
            async with Node(sock) as b:
                a.request(Tell(b.me, b"second life"))
                assert await b.event() == Heard(a.me, b"second life")

    drive(test())


def test_peer_that_connects_is_dialled_without_waiting_for_the_backoff() -> None:
    """Otherwise a restarted node would wait for the backoff of its peers."""

    async def test() -> None:
        sock = reserve()
        peer = NodeId(f"127.0.0.1:{sock.getsockname()[1]}")
        async with Node(backoff_min=1000.0, backoff_max=1000.0) as a:
            a.request(Keep(peer))
            assert await a.event() == Gone(peer)
            a.request(Tell(peer, b"waits"))
            async with Node(sock) as b:
                b.request(Tell(a.me, b"I am here"))
                assert await a.event() == Heard(b.me, b"I am here")
                assert await b.event() == Heard(a.me, b"waits")

    drive(test())


def test_watched_peer_is_reported_down_only_once() -> None:
    """Later messages may be lost without another report."""

    async def test() -> None:
        downs: list[NodeId] = []
        identity = Identity(NodeId("127.0.0.1:1"), "oncecast", incarnation=1)
        nowhere = NodeId("nowhere")
        link = Link(Wires(Options(), Stats()), identity, nowhere, downs.append, Trust())
        link.watched = True
        for _ in range(2):
            await link._connect()
        assert downs == [nowhere]

    drive(test())


# -- slow, stopped and idle peers --


@every_loop
def test_peer_that_does_not_read_is_reset_and_reported(
    loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Memory is limited to the queue plus one write."""

    async def test() -> None:
        async with Node(queue_bytes_max=1000 * KB) as a, RawPeer() as peer:
            a.request(Keep(peer.id))
            (await peer.welcome()).writer.transport.pause_reading()  # type: ignore[attr-defined]
            while a.events.empty():
                a.request(Tell(peer.id, bytes(100 * KB)))
                await asyncio.sleep(0)
            assert await a.event() == Gone(peer.id)
            assert a.stats.slow == 1
            assert 1000 * KB < a.stats.bytes_dropped < 1400 * KB

    drive(test(), loop)
    assert "slow peer=127.0.0.1:" in caplog.text
    assert "bytes unsent; link reset" in caplog.text


@every_loop
def test_peer_that_ignores_pings_is_reported_down(loop: str) -> None:
    async def test() -> None:
        async with Node(keepalive=0.02) as a, RawPeer() as peer:
            a.request(Keep(peer.id))
            raw = await peer.welcome()
            assert (await raw.read())[0] == PING
            assert await a.event() == Gone(peer.id)
            assert a.stats.silent == 1

    drive(test(), loop)


def test_peer_that_never_answers_the_handshake_is_reported_down() -> None:
    """This is how a stopped process behaves: its kernel still accepts connections."""

    async def test() -> None:
        async with Node(handshake_timeout=0.05, backoff_min=0.001) as a, RawPeer() as peer:
            for _ in range(2):
                a.request(Keep(peer.id))
                assert await a.event() == Gone(peer.id)
            assert a.stats.unreachable == 2

    drive(test())


def test_peer_that_answers_pings_is_not_reported_down() -> None:
    async def test() -> None:
        async with Node(keepalive=0.02) as a, RawPeer() as peer:
            a.request(Keep(peer.id))
            raw = await peer.welcome()
            for _ in range(10):  # three unanswered pings would end the link
                assert await raw.read() == (PING, b"")
                raw.write(frame(PONG))
            assert a.events.empty()

    drive(test())


def test_queue_to_a_disconnected_peer_is_limited() -> None:
    async def test() -> None:
        async with Node(waiting_bytes_max=1000 * KB) as a, RawPeer() as peer:
            for letter in (b"a", b"b", b"c"):
                a.request(Tell(peer.id, letter * 400 * KB))
            assert a.stats.bytes_dropped == 400_011
            raw = await peer.welcome()
            for letter in (b"a", b"b"):
                _, body = await raw.read()
                assert Codec((Word,)).decode(body) == Word(letter * 400 * KB)

    drive(test())


def test_failed_connection_attempt_drops_the_queued_messages() -> None:
    async def test() -> None:
        async with Node(handshake_timeout=0.05, backoff_min=0.001) as a, RawPeer() as peer:
            a.request(Keep(peer.id))
            a.request(Tell(peer.id, b"too early"))
            await a.event()
            assert a.stats.bytes_dropped == len(message(b"too early")) - 5
            (await peer.accepted.get()).close()
            a.request(Tell(peer.id, b"in time"))
            raw = await peer.welcome()
            _, body = await raw.read()
            assert Codec((Word,)).decode(body) == Word(b"in time")

    drive(test())


def test_unused_link_is_closed() -> None:
    async def test() -> None:
        async with Node(unused_after=0.05) as a, RawPeer() as peer, Node() as watched:
            a.request(Keep(watched.me))
            a.request(Tell(peer.id, b"once"))
            raw = await peer.welcome()
            assert (await raw.read())[0] == MESSAGE
            assert (await raw.read())[0] == BYE
            raw.close()
            a.request(Tell(peer.id, b"again"))
            assert (await (await peer.welcome()).read())[0] == MESSAGE
            assert a.stats.lost == 0
            assert a.events.empty()

    drive(test())
