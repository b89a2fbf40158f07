"""Test how the listener splits bytes into requests, and limits memory for hostile clients
(KAF-1)."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from oncecast.kafka import connection as limits
from oncecast.kafka.connection import BUFFER_BYTES, UNANSWERED_MAX, Connection, Owner
from oncecast.kafka.events import Received


class Transport:
    """A transport that records what the connection does."""

    def __init__(self) -> None:
        self.reading, self.closed, self.unsent = True, False, 0
        self.written: list[bytes] = []

    def get_extra_info(self, _: str) -> tuple[str]:
        return ("127.0.0.1",)

    def set_write_buffer_limits(self, _: int) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def abort(self) -> None:
        self.closed = True


class FakeListener:
    """A fake listener that records requests. It answers them only if `answers` is set."""

    def __init__(self, *, answers: bool = False) -> None:
        self.requests: list[bytes] = []
        self.now = 0.0
        self.held = self.others_unsent = 0
        self.transport = Transport()
        self.connection = Connection(cast("Owner", self), 1, 0.0)
        self.connection.connection_made(cast("asyncio.Transport", self.transport))
        self.answers = answers
        self.greet()

    def greet(self) -> None:
        """Let the client send its first valid request."""
        self.send(request(b"\x00\x12"))
        self.requests.clear()
        if not self.answers:
            self.connection.reply(b"")

    @property
    def unsent(self) -> int:
        return self.transport.unsent + self.others_unsent

    def opened(self, *_: object) -> None:
        pass

    def lost(self, connection: Connection) -> None:
        self.hold(-connection.held)

    def hold(self, size: int) -> bool:
        if size > 0 and self.held + size > limits.HELD_BYTES_MAX:
            return False
        self.held += size
        return True

    def ask(self, received: Received) -> None:
        self.requests.append(received.request)
        if self.answers:
            self.connection.reply(b"answer")

    def send(self, data: bytes) -> int:
        """Pass bytes to the connection while it reads. Return the number of bytes that it read."""
        at = 0
        while at < len(data) and self.transport.reading and not self.transport.closed:
            space = self.connection.get_buffer(-1)
            count = min(len(space), len(data) - at)
            assert count
            space[:count] = data[at : at + count]
            at += count
            self.connection.buffer_updated(count)
        return at


def request(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("piece", [7, 1000, 1 << 20])
def test_requests_may_be_split_at_any_byte(piece: int) -> None:
    fake = FakeListener(answers=True)
    bodies = [b"\x00\x00" + bytes([at % 256]) * (at * 37 % 9000) for at in range(100)]
    stream = b"".join(map(request, bodies))
    for at in range(0, len(stream), piece):
        fake.send(stream[at : at + piece])
    assert fake.requests == bodies


def test_number_of_unanswered_requests_per_connection_is_limited() -> None:
    fake = FakeListener()
    bodies = [b"\x00\x12" + at.to_bytes(4, "big") for at in range(1000)]
    fake.send(b"".join(map(request, bodies)))
    assert fake.requests == bodies[:UNANSWERED_MAX]
    assert not fake.transport.reading
    fake.connection.reply(b"")
    assert fake.requests == bodies[: UNANSWERED_MAX + 1]
    for _ in range(999):
        fake.connection.reply(b"")
    assert fake.requests == bodies
    assert fake.transport.reading


def test_requests_without_a_response_do_not_stop_the_connection() -> None:
    """A client with acks=0 gets no responses, but may send more than 32 requests."""
    fake = FakeListener()
    for _ in range(3 * UNANSWERED_MAX):
        assert fake.send(request(b"\x00\x00"))
        fake.connection.answered()
    assert len(fake.requests) == 3 * UNANSWERED_MAX
    assert not fake.transport.written[1:]


def test_announced_bytes_are_not_allocated_before_they_arrive() -> None:
    fake = FakeListener()
    fake.send((64 << 20).to_bytes(4, "big") + bytes(100))
    assert len(fake.connection._buffer) == BUFFER_BYTES
    fake.send(bytes(BUFFER_BYTES))
    assert len(fake.connection._buffer) == 2 * BUFFER_BYTES


def test_large_buffer_is_freed_after_its_request() -> None:
    fake = FakeListener(answers=True)
    fake.send(request(bytes(5 << 20)))
    assert [len(each) for each in fake.requests] == [5 << 20]
    fake.send(request(bytes(2)))
    assert len(fake.connection._buffer) == BUFFER_BYTES
    assert (fake.held, fake.connection.held) == (0, 0)


@pytest.mark.parametrize(
    ("head", "closed"),
    [
        (request(b"\x00\x01" + bytes((1 << 20) - 2))[:100], False),
        (((1 << 20) + 1).to_bytes(4, "big") + b"\x00\x01", True),  # this is not a Produce request
        ((64 << 20).to_bytes(4, "big") + b"\x00\x00", False),
        (((64 << 20) + 1).to_bytes(4, "big") + b"\x00\x00", True),
        (b"\xff\xff\xff\xff", True),  # the length is negative
    ],
)
def test_oversized_request_ends_the_connection(head: bytes, closed: bool) -> None:
    fake = FakeListener()
    fake.send(head)
    assert fake.transport.closed == closed
    assert not fake.requests


def test_total_bytes_held_for_all_connections_are_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "HELD_BYTES_MAX", 4 * BUFFER_BYTES)
    fake = FakeListener()
    fake.send((64 << 20).to_bytes(4, "big") + bytes(20 * BUFFER_BYTES))
    assert fake.transport.closed
    assert fake.held <= 4 * BUFFER_BYTES
    fake.connection.connection_lost(None)
    assert fake.held == 0


def test_connection_stops_reading_at_its_limit_of_unanswered_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "UNANSWERED_BYTES_MAX", 1000)
    fake = FakeListener()
    fake.send(request(bytes(1000)) + request(bytes(5)))
    assert [len(each) for each in fake.requests] == [1000]
    assert not fake.transport.reading
    fake.connection.reply(b"")
    assert [len(each) for each in fake.requests] == [1000, 5]
    assert fake.transport.reading


def test_client_that_does_not_read_gets_no_further_responses() -> None:
    fake = FakeListener()
    fake.connection.pause_writing()
    fake.send(request(bytes(2)))
    assert not fake.requests
    fake.connection.resume_writing()
    assert len(fake.requests) == 1
    fake.transport.unsent = limits.UNSENT_BYTES_MAX + 1
    fake.connection.reply(b"")
    assert fake.transport.closed


def test_closed_connection_forwards_no_further_requests() -> None:
    fake = FakeListener()
    ask = fake.ask

    def refuse(received: Any) -> None:
        ask(received)
        fake.connection.close()

    fake.ask = refuse  # type: ignore[method-assign]
    fake.send(request(bytes(2)) * 3)
    assert len(fake.requests) == 1


def test_idle_connection_expires() -> None:
    fake = FakeListener()
    assert not fake.connection.expired(limits.IDLE_MAX - 1)
    assert fake.connection.expired(limits.IDLE_MAX)
    fake.send(request(bytes(2)))
    assert not fake.connection.expired(limits.IDLE_MAX)  # the client waits for its response
    silent = Connection(cast("Owner", fake), 2, 0.0)
    assert not silent.expired(limits.FIRST_REQUEST_SECONDS - 1)
    assert silent.expired(limits.FIRST_REQUEST_SECONDS)


def test_slow_reader_is_disconnected_at_the_limit_of_all_unsent_responses() -> None:
    fake = FakeListener()
    fake.others_unsent = limits.ALL_UNSENT_BYTES_MAX
    fake.send(request(bytes(2)) * 2)
    fake.connection.reply(b"")
    assert not fake.transport.closed
    fake.transport.unsent = limits.UNSENT_BYTES_HIGH + 1
    fake.connection.reply(b"")
    assert fake.transport.closed


def test_unanswered_first_request_does_not_keep_a_connection_open() -> None:
    fake = FakeListener()
    silent = Connection(cast("Owner", fake), 2, 0.0)
    silent.connection_made(cast("asyncio.Transport", Transport()))
    data = request(b"\x00\x12")
    silent.get_buffer(-1)[: len(data)] = data
    silent.buffer_updated(len(data))
    assert silent.expired(limits.FIRST_REQUEST_SECONDS)
