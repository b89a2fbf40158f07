"""Several nodes share a process, are reached by name, and stay independent."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from oncecast.errors import BadAddress, CannotListen
from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.network.addresses import name_of, process_of, split, split_process
from oncecast.network.framing import BYE, MESSAGE
from oncecast.network.handshake import CLIENT, Refusal, Welcome
from oncecast.network.network import Runtime
from oncecast.storage.disk import OsDisk
from oncecast.storage.journal import Journal
from tests.network.raw import Raw, hello
from tests.network.talk import (
    LOOPS,
    Break,
    Gone,
    Heard,
    Keep,
    Leave,
    Node,
    Noted,
    Talk,
    Tell,
    TellDurably,
    Word,
    drive,
)
from tests.network.test_clients import WORDS, Talkative, word
from tests.network.test_transport import message

every_loop = pytest.mark.parametrize("loop", LOOPS)


class Secondary(Runtime):
    """A secondary node with its events in a queue."""

    def __init__(self, primary: Runtime, name: str, *, talk: type[Talk] = Talk, **how: Any) -> None:
        self.events: asyncio.Queue[Value] = asyncio.Queue()
        me = NodeId(f"{primary.me}/{name}")
        self.talk = talk(me)
        stack = Stack([self.talk])
        if path := how.pop("path", None):
            how["journal"] = Journal.open(OsDisk(path), stack)
        super().__init__(stack, me=me, primary=primary, on_event=self.events.put_nowait, **how)

    async def event(self) -> Value:
        return await self.events.get()


# -- names --


@pytest.mark.parametrize("node", ["a.example:1/g-3f2a", "[::1]:7400/x", "h:1/" + "a" * 64])
def test_named_node_has_its_process_address(node: str) -> None:
    address, _, name = node.partition("/")
    assert (process_of(NodeId(node)), name_of(node)) == (address, name)
    assert split(node) == split(address)
    with pytest.raises(
        BadAddress, match=r'names a node within a process; use only the "host:port"'
    ):
        split_process(node)


@pytest.mark.parametrize("name", ["", "A", "a/b", "a b", "a_b", "a\n", "ä", "a" * 65])
def test_invalid_node_name_is_rejected(name: str) -> None:
    with pytest.raises(BadAddress, match=r'write "host:port"'):
        split(f"127.0.0.1:7400/{name}")


# -- from outside --


@every_loop
def test_peers_reach_each_node_in_a_process_by_name(loop: str) -> None:
    async def test() -> None:
        async with (
            Node() as host,
            Node() as far,
            Secondary(host, "a") as a,
            Secondary(host, "b") as b,
        ):
            for stack in (host, a, b):
                far.request(Tell(stack.me, stack.me.encode()))
                assert await stack.event() == Heard(far.me, stack.me.encode())
                stack.request(Tell(far.me, b"answer"))
                assert await far.event() == Heard(stack.me, b"answer")

    drive(test(), loop)


def test_secondary_nodes_in_two_processes_reach_each_other() -> None:
    async def test() -> None:
        async with Node() as one, Node() as two, Secondary(one, "g") as a, Secondary(two, "g") as b:
            a.request(Tell(b.me, b"hi"))
            assert await b.event() == Heard(a.me, b"hi")
            b.request(Tell(a.me, b"hello"))
            assert await a.event() == Heard(b.me, b"hello")

    drive(test())


def test_client_can_use_the_same_name_on_several_nodes() -> None:
    """SVC-8: a client with the same name at another node does not replace it."""

    async def test() -> None:
        async with Node() as host, client_stack(host, "a") as a, client_stack(host, "b") as b:
            raws = []
            for stack in (a, b):
                raw = await Raw.dial(host.port)
                # The client may have dialled another spelling of the address.
                raw.greet(hello(NodeId(f"localhost:1/{name_of(stack.me)}"), "ann", role=CLIENT))
                welcome = await raw.greeting()
                assert isinstance(welcome, Welcome)
                assert (welcome.sender, welcome.you) == (stack.me, "ann")
                raws.append(raw)
            for stack, raw in zip((a, b), raws, strict=True):
                raw.write(word(b"hello"))
                assert await stack.event() == Heard(NodeId("client/ann"), b"hello")
                stack.request(Tell(NodeId("client/ann"), b"from " + stack.me.encode()))
                heard = (MESSAGE, WORDS.encode(Word(b"from " + stack.me.encode())))
                assert await raw.read() == heard
                raw.close()

    drive(test())


def client_stack(host: Runtime, name: str) -> Secondary:
    return Secondary(host, name, talk=Talkative, clients=(Word,))


@pytest.mark.parametrize("role", ["peer", CLIENT])
def test_unknown_node_name_gets_a_temporary_refusal(
    role: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with Node() as host, Secondary(host, "a"):
            raw = await Raw.dial(host.port)
            raw.greet(hello(NodeId(f"{host.me}/g-1"), role=role))
            reported = "this process has no replica of g-1; ask it which processes have one"
            assert await raw.greeting() == Refusal(reported, passing=True)
            await raw.closed()

    with caplog.at_level(logging.INFO):
        drive(test())
    assert [each.levelname for each in caplog.records if "refused" in each.message] == ["INFO"]


@pytest.mark.parametrize(
    ("sender", "to", "reason"),
    [
        ("{host}/b", "{host}/a", "two nodes have the id {host}; give each node its own address"),
        ("127.0.0.1:1/b", "127.0.0.1:1/a", "dialled 127.0.0.1:1/a, but this is {host}/a"),
        ("127.0.0.1:1/B", "{host}/a", "'127.0.0.1:1/B' is not a valid address"),
    ],
)
def test_secondary_node_refuses_peers_with_invalid_ids(sender: str, to: str, reason: str) -> None:
    async def test() -> None:
        async with Node() as host, Secondary(host, "a"):
            raw = await Raw.dial(host.port)
            raw.greet(hello(NodeId(to.format(host=host.me)), sender.format(host=host.me)))
            refusal = await raw.greeting()
            assert isinstance(refusal, Refusal)
            assert reason.format(host=host.me) in refusal.reason
            assert not refusal.passing
            raw.close()

    drive(test())


def test_peer_retries_until_the_node_is_running() -> None:
    async def test() -> None:
        async with Node() as host, Node(backoff_min=0.001) as far:
            peer = NodeId(f"{host.me}/a")
            for _ in range(3):
                far.request(Keep(peer))
                assert await far.event() == Gone(peer)
            assert far.stats.unreachable == 3
            async with Secondary(host, "a") as a:
                far.request(Tell(peer, b"at last"))
                assert await a.event() == Heard(far.me, b"at last")

    drive(test())


# -- starting and stopping --


@every_loop
def test_closing_a_node_closes_only_its_own_connections(loop: str) -> None:
    async def test() -> None:
        async with Node() as host, Node() as far, client_stack(host, "b") as b:
            raw = await Raw.dial(host.port)
            raw.greet(hello(b.me, "ann", role=CLIENT))
            await raw.greeting()
            async with client_stack(host, "a") as a:
                guest = await Raw.dial(host.port)
                guest.greet(hello(a.me, "ann", role=CLIENT))
                await guest.greeting()
                peer = await Raw.dial(host.port)
                peer.greet(hello(a.me))
                await peer.greeting()
                far.request(Keep(a.me))
                far.request(Keep(host.me))
                for stack in (a, host):
                    stack.request(Tell(far.me, b"hi"))
                    assert await far.event() == Heard(stack.me, b"hi")
                a.request(Tell(NodeId("client/ann"), b"last"))
                closing = asyncio.create_task(a.close())
                assert await guest.read() == (MESSAGE, WORDS.encode(Word(b"last")))
                assert await guest.read() == (BYE, b"")
                guest.close()
                await closing
                await peer.closed()
            assert await far.event() == Gone(a.me)
            host.request(Tell(far.me, b"still here"))
            assert await far.event() == Heard(host.me, b"still here")
            raw.write(word(b"so am I"))
            assert await b.event() == Heard(NodeId("client/ann"), b"so am I")
            assert far.events.empty()
            raw.close()

    drive(test(), loop)


def test_restarted_secondary_node_is_reached_again() -> None:
    async def test() -> None:
        async with Node() as host, Node(backoff_min=0.001) as far:
            for _ in range(3):
                async with Secondary(host, "a") as a:
                    far.request(Keep(a.me))
                    far.request(Tell(a.me, b"hi"))
                    assert await a.event() == Heard(far.me, b"hi")
                assert await far.event() == Gone(a.me)

    drive(test())


def test_stopping_the_primary_closes_secondary_nodes_first(tmp_path: Path) -> None:
    """SVC-10: by then, all records are on disk and all messages that waited for them are sent."""

    async def test() -> None:
        async with Node() as far:
            async with Node() as host:
                started = asyncio.Event()
                secondary = Secondary(host, "a", path=tmp_path, trace=lambda *step: started.set())
                running = asyncio.create_task(secondary.run())
                await started.wait()
                secondary.request(Tell(far.me, b"connected"))
                assert await far.event() == Heard(secondary.me, b"connected")
                secondary.request(TellDurably(far.me, b"kept"))
            await running
            assert await far.event() == Heard(secondary.me, b"kept")
            assert await secondary.event() == Noted(b"kept")
            with pytest.raises(CannotListen, match="is stopping; restart the process"):
                async with Secondary(host, "b"):
                    pass
        again = Talk(secondary.me)
        Journal.open(OsDisk(tmp_path, read_only=True), Stack([again]))
        assert again.restored == [b"kept"]

    drive(test())


@every_loop
def test_exception_in_a_secondary_node_stops_the_primary(loop: str) -> None:
    async def test() -> None:
        started = asyncio.Event()
        host = Node(trace=lambda *step: started.set())
        running = asyncio.create_task(host.run())
        await started.wait()
        with pytest.raises(ZeroDivisionError):
            async with Secondary(host, "a") as a:
                a.request(Break())
        with pytest.raises(ZeroDivisionError, match="a bug in a protocol"):
            await running

    drive(test(), loop)


@pytest.mark.parametrize("alone", [False, True])
def test_disk_failure_in_a_stopping_secondary_node_stops_the_primary(
    tmp_path: Path, alone: bool
) -> None:
    async def test() -> None:
        async with Node() as host:
            secondary = Secondary(host, "a", path=tmp_path)
            await secondary.__aenter__()
            assert secondary.journal is not None

            def full() -> None:
                raise OSError("no space")

            secondary.journal.sync = full  # type: ignore[method-assign]
            secondary.request(TellDurably(host.me, b"lost"))
            secondary.stop()
            if alone:
                assert isinstance(await secondary.close(), OSError)
                assert host.stopping

    with pytest.raises(OSError, match="no space"):
        drive(test())


def test_tolerated_failure_stops_only_the_secondary_node() -> None:
    async def test() -> None:
        async with Node() as host, Secondary(host, "b") as b:
            with pytest.raises(ZeroDivisionError):
                await asyncio.gather(break_soon(secondary := spared(host)), secondary.run())
            host.request(Tell(b.me, b"still here"))
            assert await b.event() == Heard(host.me, b"still here")
            async with spared(host) as again:
                host.request(Tell(again.me, b"and again"))
                assert await again.event() == Heard(host.me, b"and again")

    drive(test())


def spared(host: Runtime) -> Secondary:
    return Secondary(host, "a", tolerated=(ZeroDivisionError,))


async def break_soon(secondary: Secondary) -> None:
    await asyncio.sleep(0)
    secondary.request(Break())


# -- stacks of one process --


@every_loop
def test_local_messages_arrive_in_order_without_a_network(loop: str) -> None:
    async def test() -> None:
        async with Node() as host, Secondary(host, "a") as a, Secondary(host, "b") as b:
            texts = [b"%d" % n for n in range(2000)]
            ways: list[tuple[Node | Secondary, Node | Secondary]] = [
                (host, a),
                (a, host),
                (a, b),
                (b, a),
            ]
            for one, other in ways:
                for text in texts:
                    one.request(Tell(other.me, text))
                assert other.events.empty()  # the event arrives only in the next turn
                assert [await other.event() for _ in texts] == [Heard(one.me, t) for t in texts]
            assert (host.stats.bytes_out, host.stats.accepted) == (0, 0)

    drive(test(), loop)


def test_local_message_waits_until_its_sender_has_synced(tmp_path: Path) -> None:
    async def test() -> None:
        async with Node() as host, Secondary(host, "a", path=tmp_path) as a:
            a.request(TellDurably(host.me, b"kept"))
            assert await host.event() == Heard(a.me, b"kept")
            assert a.journal is not None
            assert a.journal.synced == 1

    drive(test())


def test_watching_a_local_node_reports_when_it_goes_down() -> None:
    async def test() -> None:
        async with Node() as host, Secondary(host, "b") as b:
            nobody = NodeId(f"{host.me}/a")
            for _ in range(2):
                b.request(Keep(nobody))
                assert b.events.empty()
                assert await b.event() == Gone(nobody)
            async with Secondary(host, "a") as a:
                for stack in (host, b):
                    stack.request(Keep(a.me))
                host.request(Leave(a.me))
                b.request(Tell(a.me, b"hi"))
                assert await a.event() == Heard(b.me, b"hi")
                assert b.events.empty()
            assert await b.event() == Gone(a.me)
            assert b.events.empty()
            assert host.events.empty()

    drive(test())


def test_restarted_local_node_gets_no_old_messages() -> None:
    async def test() -> None:
        async with Node() as host:
            async with Secondary(host, "a") as a:
                a._transport.pause()
                host.request(Tell(a.me, b"early"))
            host.request(Tell(a.me, b"between"))
            async with Secondary(host, "a") as a:
                host.request(Tell(a.me, b"late"))
                assert await a.event() == Heard(host.me, b"late")
            assert host.stats.bytes_dropped > 0

    drive(test())


def test_queue_to_a_paused_local_node_is_limited(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As with a slow peer, the limit is the queue plus one message."""

    async def test() -> None:
        async with Node(queue_bytes_max=100_000) as host, Secondary(host, "a") as a:
            a._transport.pause()
            host.request(Keep(a.me))
            host.request(Tell(a.me, bytes(90_000)))
            host.request(Tell(a.me, bytes(60_000)))
            assert host.events.empty()
            assert 150_000 < host.unsent_bytes(a.me) < 150_100
            host.request(Tell(a.me, b"begins anew"))
            assert await host.event() == Gone(a.me)
            assert host.unsent_bytes(a.me) < 100
            assert host.stats.slow == 1
            a._transport.resume()
            assert await a.event() == Heard(host.me, b"begins anew")

    drive(test())
    assert "slow peer=127.0.0.1:" in caplog.text


def test_resumed_local_node_gets_all_queued_messages() -> None:
    async def test() -> None:
        async with Node() as host, Secondary(host, "a") as a:
            a._transport.pause()
            texts = [b"one", b"two", b"three"]
            for text in texts:
                host.request(Tell(a.me, text))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert a.events.empty()
            a._transport.resume()
            assert [await a.event() for _ in texts] == [Heard(host.me, text) for text in texts]

    drive(test())


def test_unused_local_link_is_removed() -> None:
    async def test() -> None:
        async with Node() as host, Secondary(host, "a") as a, Secondary(host, "b") as b:
            host.request(Keep(b.me))
            for name in range(100):
                host.request(Tell(NodeId(f"{host.me}/nobody-{name}"), b"hi"))
            host.request(Tell(a.me, b"hi"))
            assert await a.event() == Heard(host.me, b"hi")
            assert len(host._transport.local_links) == 102
            host._transport._look_at_links(now=0.0)
            assert list(host._transport.local_links) == [b.me]

    drive(test())


def test_local_link_rejects_long_and_unknown_messages() -> None:
    async def test() -> None:
        async with Node(frame_bytes_max=10_000) as host, Secondary(host, "a") as a:
            host.request(Tell(a.me, bytes(10_000)))
            host._transport.hear(a.me, b"\x91\xa7Unknown")
            host.request(Tell(a.me, b"hi"))
            assert await a.event() == Heard(host.me, b"hi")
            assert (host.stats.too_long, host.stats.malformed) == (1, 1)

    drive(test())


def test_remote_peer_cannot_use_a_local_node_id() -> None:
    async def test() -> None:
        async with Node() as host, Secondary(host, "a") as a:
            raw = await Raw.dial(host.port)
            raw.greet(hello(host.me, a.me))
            assert isinstance(await raw.greeting(), Refusal)
            raw.write(message(b"I am a"))
            await raw.closed()
            assert host.events.empty()

    drive(test())
