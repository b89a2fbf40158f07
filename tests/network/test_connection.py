"""Test the writes and timeouts of a connection over a fake transport."""

from __future__ import annotations

import asyncio

import pytest

from oncecast.errors import OutOfPlace
from oncecast.kernel.codec import Buffer
from oncecast.network.connection import Connection, Greeting, Wires
from oncecast.network.framing import GREETING, MESSAGE, PREAMBLE, frame
from oncecast.network.handshake import GREETINGS, Refusal
from oncecast.network.options import Options, Stats
from tests.network.talk import drive


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.backlog = 0
        self.aborted = self.paused = False
        self.read_limits: tuple[int | None, int | None] | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return self.backlog

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high

    def set_read_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.read_limits = (low, high)

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        pass


class Listens:
    def __init__(self) -> None:
        self.frames: list[tuple[int, bytes]] = []
        self.reasons: list[str] = []

    def frame(self, kind: int, body: Buffer) -> None:
        if kind == 99:
            raise OutOfPlace("not here")
        self.frames.append((kind, bytes(body)))

    def lost(self, reason: str) -> None:
        self.reasons.append(reason)


class Desk:
    """A connection with a fake transport, session and clock."""

    def __init__(self, **options: int | float) -> None:
        self.stats = Stats()
        self.wires = Wires(Options(**options), self.stats)  # type: ignore[arg-type]
        self.session, self.transport = Listens(), FakeTransport()
        self.connection = Connection(self.wires, self.session, "peer")
        self.connection.connection_made(self.transport)
        self.start = self.connection.heard

    def feed(self, data: bytes) -> None:
        self.connection.get_buffer(-1)[: len(data)] = data
        self.connection.buffer_updated(len(data))

    def look(self, seconds: float) -> None:
        self.connection.overdue(self.start + seconds)


def test_frames_sent_in_one_loop_turn_share_a_write() -> None:
    async def test() -> None:
        desk = Desk()
        for n in range(100):
            desk.connection.send(MESSAGE, b"%d" % n)
        assert desk.transport.writes == [PREAMBLE]
        await asyncio.sleep(0)
        frames = b"".join(frame(MESSAGE, b"%d" % n) for n in range(100))
        assert desk.transport.writes == [PREAMBLE, frames]

    drive(test())


def test_large_batch_of_frames_is_written_before_the_turn_ends() -> None:
    async def test() -> None:
        desk = Desk()
        for _ in range(5):
            desk.connection.send(MESSAGE, bytes(100_000))
        assert [len(write) for write in desk.transport.writes] == [8, 300_015]

    drive(test())


def test_full_send_queue_resets_the_connection_but_one_large_message_does_not() -> None:
    async def test() -> None:
        desk = Desk(queue_bytes_max=1000)
        desk.transport.backlog = 1000
        desk.connection.send(MESSAGE, bytes(300_000))
        assert not desk.session.reasons
        desk.transport.backlog = 1001
        desk.connection.send(MESSAGE, b"")
        desk.wires.flush()
        assert desk.session.reasons == ["1006 bytes unsent; link reset"]
        assert desk.transport.aborted
        assert desk.stats.slow == 1

    drive(test())


def test_frames_sent_after_the_connection_ended_are_dropped() -> None:
    async def test() -> None:
        desk = Desk()
        desk.connection.drop("over")
        desk.connection.send(MESSAGE, b"late")
        desk.wires.flush()
        assert desk.transport.writes == [PREAMBLE]
        assert desk.connection.unsent_bytes == 0

    drive(test())


def test_connection_to_a_silent_peer_is_closed() -> None:
    async def test() -> None:
        desk = Desk(keepalive=2.0)
        desk.look(6.0)
        assert not desk.session.reasons
        desk.look(6.1)
        assert desk.session.reasons == ["no data received for 6.1 s"]
        assert desk.stats.silent == 1

    drive(test())


def test_peer_that_drains_its_backlog_does_not_count_as_silent() -> None:
    """A slow peer cannot answer a ping that waits behind megabytes."""

    async def test() -> None:
        desk = Desk(keepalive=2.0)
        desk.connection.send(MESSAGE, bytes(200_000))
        desk.wires.flush()
        for seconds in range(1, 20):
            desk.transport.backlog = 200_000 - 1000 * seconds
            desk.look(seconds)
        for seconds in range(20, 26):  # a backlog without progress does not count
            desk.look(seconds)
        assert not desk.session.reasons
        desk.look(25.5)
        assert desk.session.reasons == ["no data received for 6.5 s"]

    drive(test())


def test_bytes_accepted_by_the_kernel_do_not_prove_that_the_peer_is_alive() -> None:
    """The kernel of a stopped process accepts many bytes."""

    async def test() -> None:
        desk = Desk(keepalive=2.0)
        for seconds in range(1, 7):
            desk.connection.send(MESSAGE, b"small")
            desk.wires.flush()
            desk.look(seconds)
        desk.look(6.1)
        assert desk.session.reasons == ["no data received for 6.1 s"]

    drive(test())


def test_unfinished_frame_times_out() -> None:
    async def test() -> None:
        desk = Desk(frame_timeout=10.0, keepalive=1000.0)
        desk.feed(PREAMBLE + frame(MESSAGE, b"whole") + frame(MESSAGE, b"cut")[:-1])
        desk.look(10.0)
        assert not desk.session.reasons
        desk.look(11.0)
        assert desk.session.reasons[0].startswith("a frame was incomplete after 11.0 s")
        assert desk.stats.overdue == 1

    drive(test())


def test_large_frame_that_makes_progress_does_not_time_out() -> None:
    """A slow link must not lose its connection."""

    async def test() -> None:
        desk = Desk(frame_timeout=10.0, keepalive=1000.0)
        desk.connection.framer.trust(1_000_000)
        large = frame(MESSAGE, bytes(200_000))
        desk.feed(PREAMBLE + large[:100_000])
        desk.look(100.0)
        assert not desk.session.reasons
        desk.look(108.0)  # no further bytes have arrived
        assert desk.session.reasons[0].startswith("a frame was incomplete after 108.0 s")

    drive(test())


def test_peer_that_drains_the_kernel_queue_does_not_count_as_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a slow link a ping waits behind megabytes in the kernel's queue."""

    async def test() -> None:
        desk = Desk(keepalive=2.0)
        desk.connection.send(MESSAGE, bytes(200_000))
        desk.wires.flush()
        for seconds in range(1, 20):
            monkeypatch.setattr(Connection, "in_kernel", 200_000 - 1000 * seconds)
            desk.look(seconds)
        assert not desk.session.reasons
        desk.look(25.5)
        assert desk.session.reasons == ["no data received for 6.5 s"]

    drive(test())


def test_paused_connection_does_not_count_as_silent() -> None:
    async def test() -> None:
        desk = Desk(keepalive=2.0)
        desk.connection.pause()
        desk.look(100.0)
        desk.connection.resume()
        assert not desk.session.reasons
        assert not desk.transport.paused

    drive(test())


def test_frames_after_an_invalid_frame_are_ignored() -> None:
    async def test() -> None:
        desk = Desk()
        desk.feed(PREAMBLE + frame(1, b"a") + frame(99) + frame(2, b"b"))
        assert desk.session.frames == [(1, b"a")]
        assert desk.session.reasons == [str(OutOfPlace("not here"))]
        assert desk.transport.aborted
        assert desk.stats.hostile == 1

    drive(test())


def test_closed_connection_is_reported_once() -> None:
    async def test() -> None:
        desk = Desk()
        desk.connection.fail("hostile", "first")
        desk.connection.drop("second")
        desk.connection.connection_lost(None)
        assert desk.session.reasons == ["first"]
        assert desk.wires.connections == {}

    drive(test())


def test_closing_connection_is_aborted_if_the_peer_does_not_read() -> None:
    """SEC-3: otherwise a refused client that does not read would keep its connection."""

    async def test() -> None:
        desk = Desk(drain_timeout=2.0)
        desk.connection.close("refused")
        desk.start = desk.wires.loop.time()
        desk.look(1.9)
        assert not desk.transport.aborted
        desk.look(2.1)
        assert desk.transport.aborted

    drive(test())


@pytest.mark.parametrize("closed", [False, True])
def test_early_refusal_is_delivered_as_the_answer_to_the_greeting(closed: bool) -> None:
    """SVC-7: a full node refuses before it reads a greeting, and the client gets the reason."""

    async def test() -> None:
        desk = Desk()
        greeting = Greeting(desk.wires)
        desk.connection.switch(greeting)
        desk.feed(PREAMBLE + frame(GREETING, GREETINGS.encode(Refusal("too many"))))
        if closed:
            desk.connection.connection_lost(None)
        assert await greeting.ask(desk.connection, Refusal("hello")) == Refusal("too many")

    drive(test())


@pytest.mark.parametrize("tls", [False, True])
def test_tls_client_that_is_not_read_keeps_few_encrypted_bytes(tls: bool) -> None:
    """SEC-3: the default limit of TLS is 512 KiB per connection."""

    async def test() -> None:
        desk = Desk()
        if tls:
            desk.transport._extra = {"sslcontext": object()}  # type: ignore[attr-defined]
        desk.connection.take_turns("host 10.0.0.1")
        record = 5 + 16 * 1024 + 256  # the largest TLS record
        if tls:
            assert desk.transport.read_limits is not None
            low, high = desk.transport.read_limits
            assert record < (low or 0) < (high or 0) <= 32 * 1024
        else:
            assert desk.transport.read_limits is None

    drive(test())
