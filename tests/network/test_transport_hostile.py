"""A connection that sends invalid bytes is closed and logged once.

Other connections are unaffected.
"""

from __future__ import annotations

import logging
from random import Random

import pytest

from oncecast.kernel.protocol import NodeId
from oncecast.network.framing import GREETING, HEADER, MESSAGE, PREAMBLE, frame
from oncecast.network.handshake import GREETINGS, Refusal, Welcome
from oncecast.network.incidents import LINES_AT_ONCE, Incidents
from oncecast.network.options import Options, Stats
from tests.network.raw import Raw, hello
from tests.network.talk import LOOPS, Heard, Node, Tell, drive

every_loop = pytest.mark.parametrize("loop", LOOPS)

ME = NodeId("127.0.0.1:1")
HELLO = PREAMBLE + frame(GREETING, GREETINGS.encode(hello(ME)))
INVALID_GREETINGS = {
    "random bytes": (Random(1).randbytes(300), "does not speak the oncecast protocol"),
    "HTTP": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP request"),
    "TLS": (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        "TLS; give this node a certificate",
    ),
    "another format": (PREAMBLE[:-1] + b"\x02", "wire format 2"),
    "a huge length": (
        PREAMBLE + HEADER.pack(0xFFFFFFFF, GREETING),
        "4,294,967,295 bytes long (limit 4,096)",
    ),
    "a message before the Hello": (
        PREAMBLE + frame(MESSAGE, b"x"),
        "before the end of the handshake",
    ),
    "two Hellos": (HELLO + HELLO[len(PREAMBLE) :], "a second greeting"),
    "a Welcome for a Hello": (
        PREAMBLE + frame(GREETING, GREETINGS.encode(Welcome("x", 1))),
        "first frame is not a Hello",
    ),
    "a Hello of noise": (PREAMBLE + frame(GREETING, Random(2).randbytes(50)), "cannot decode"),
}


async def serves(node: Node) -> None:
    """Check that a genuine peer can still connect."""
    async with Node() as honest:
        honest.request(Tell(node.me, b"hi"))
        assert await node.event() == Heard(honest.me, b"hi")


@every_loop
@pytest.mark.parametrize("case", INVALID_GREETINGS)
def test_invalid_bytes_close_the_connection(
    case: str, loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    greeting, reported = INVALID_GREETINGS[case]

    async def test() -> None:
        async with Node() as node:
            raw = await Raw.dial(node.port)
            raw.write(greeting)
            await raw.closed()
            await serves(node)
            assert node.stats.hostile == 1

    drive(test(), loop)
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) == 1
    assert lines[0].startswith("hostile peer=127.0.0.1:")
    assert reported in lines[0]
    assert lines[0].isprintable()


@pytest.mark.parametrize("begun", [b"", PREAMBLE[:3], PREAMBLE, HELLO[:-1]])
def test_unfinished_handshake_times_out(begun: bytes) -> None:
    async def test() -> None:
        async with Node(handshake_timeout=0.05) as node:
            raw = await Raw.dial(node.port)
            raw.write(begun)
            await raw.closed()
            assert node.stats.overdue == 1
            await serves(node)

    drive(test())


def test_peer_with_an_unfinished_frame_is_disconnected() -> None:
    async def test() -> None:
        async with Node(frame_timeout=0.05) as node:
            raw = await Raw.dial(node.port)
            raw.greet(hello(node.me))
            await raw.greeting()
            raw.write(HEADER.pack(1000, MESSAGE), bytes(999))
            await raw.closed()
            assert node.stats.overdue == 1
            await serves(node)

    drive(test())


@pytest.mark.parametrize("kind", [0, GREETING, 200])
def test_peer_with_an_unexpected_frame_is_disconnected(kind: int) -> None:
    async def test() -> None:
        async with Node() as node:
            raw = await Raw.dial(node.port)
            raw.greet(hello(node.me))
            await raw.greeting()
            raw.write(frame(kind))
            await raw.closed()
            assert node.stats.hostile == 1

    drive(test())


def test_peer_that_announces_a_long_frame_is_disconnected() -> None:
    async def test() -> None:
        async with Node(frame_bytes_max=1000) as node:
            raw = await Raw.dial(node.port)
            raw.greet(hello(node.me))
            await raw.greeting()
            raw.write(HEADER.pack(1001, MESSAGE))
            await raw.closed()
            assert node.stats.hostile == 1

    drive(test())


@every_loop
def test_peer_can_connect_during_many_pending_handshakes(loop: str) -> None:
    """The oldest pending handshake is closed."""

    async def test() -> None:
        async with Node(handshakes_max=5) as node:
            connections = [await Raw.dial(node.port) for _ in range(20)]
            await serves(node)
            for connection in connections[:15]:
                await connection.closed()
            assert node.stats.crowded == 16  # the genuine peer counts too
            for connection in connections[15:]:
                connection.close()

    drive(test(), loop)


def test_number_of_peer_connections_is_limited() -> None:
    async def test() -> None:
        async with Node(peers_max=3) as node:
            raws = [await Raw.dial(node.port) for _ in range(3)]
            for n, raw in enumerate(raws):
                raw.greet(hello(node.me, f"127.0.0.1:{n + 1}"))
                await raw.greeting()
            fourth = await Raw.dial(node.port)
            fourth.greet(hello(node.me, "127.0.0.1:4"))
            assert isinstance(await fourth.greeting(), Refusal)
            await fourth.closed()
            assert node.stats.crowded == 1
            raws[0].close()
            raws[1].write(frame(200))
            await raws[1].closed()
            await serves(node)
            raws[2].close()

    drive(test())


def test_many_incidents_produce_only_a_few_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    stats, clock = Stats(), [0.0]
    incidents = Incidents(stats, clock=lambda: clock[0])
    for n in range(1000):
        incidents.report("hostile", peer=n)
    assert stats.hostile == 1000
    assert len(caplog.records) == LINES_AT_ONCE
    clock[0] = 2.0
    incidents.report("hostile", peer="last")
    assert caplog.records[-1].getMessage() == f"hostile peer=last left_out={1000 - LINES_AT_ONCE}"


def test_remote_bytes_cannot_forge_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    Incidents(Stats()).report("hostile", reason='x"\nhostile peer=innocent \x1b[2J')
    assert caplog.records[-1].getMessage() == (
        'hostile reason="x\\"\\x0ahostile peer=innocent \\x1b[2J"'
    )


def test_default_limits_leave_file_descriptors_for_the_log() -> None:
    """A journal needs file descriptors too, and most systems allow 1024."""
    assert Options().connections_max + Options().peers_max < 950
