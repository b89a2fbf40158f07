"""Test how the listener cuts bytes into requests, and what it holds for hostile clients (KAF-1)."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from oncecast.kafka import listener
from oncecast.kafka.events import Received
from oncecast.kafka.listener import BUFFER_BYTES, UNANSWERED_MAX, Connection, Listener


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


class Desk:
    """A listener that answers no request by itself."""

    def __init__(self, *, answers: bool = False) -> None:
        self.requests: list[bytes] = []
        self.now = 0.0
        self.held = self.others_unsent = 0
        self.transport = Transport()
        self.connection = Connection(cast("Listener", self), 1, 0.0)
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
        if size > 0 and self.held + size > listener.HELD_BYTES_MAX:
            return False
        self.held += size
        return True

    def ask(self, received: Received) -> None:
        self.requests.append(received.request)
        if self.answers:
            self.connection.reply(b"answer")

    def send(self, data: bytes) -> int:
        """Pass bytes to the connection while it reads. Return how many it took."""
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
def test_requests_are_cut_at_any_boundary(piece: int) -> None:
    desk = Desk(answers=True)
    bodies = [b"\x00\x00" + bytes([at % 256]) * (at * 37 % 9000) for at in range(100)]
    stream = b"".join(map(request, bodies))
    for at in range(0, len(stream), piece):
        desk.send(stream[at : at + piece])
    assert desk.requests == bodies


def test_one_read_with_many_requests_passes_on_no_more_than_the_limit() -> None:
    desk = Desk()
    bodies = [b"\x00\x12" + at.to_bytes(4, "big") for at in range(1000)]
    desk.send(b"".join(map(request, bodies)))
    assert desk.requests == bodies[:UNANSWERED_MAX]
    assert not desk.transport.reading
    desk.connection.reply(b"")
    assert desk.requests == bodies[: UNANSWERED_MAX + 1]
    for _ in range(999):
        desk.connection.reply(b"")
    assert desk.requests == bodies
    assert desk.transport.reading


def test_requests_without_a_response_do_not_stop_the_connection() -> None:
    """A client with acks=0 gets no responses, and sends more than 32 requests."""
    desk = Desk()
    for _ in range(3 * UNANSWERED_MAX):
        assert desk.send(request(b"\x00\x00"))
        desk.connection.answered()
    assert len(desk.requests) == 3 * UNANSWERED_MAX
    assert not desk.transport.written[1:]


def test_announced_bytes_are_not_allocated_before_they_arrive() -> None:
    desk = Desk()
    desk.send((64 << 20).to_bytes(4, "big") + bytes(100))
    assert len(desk.connection._buffer) == BUFFER_BYTES
    desk.send(bytes(BUFFER_BYTES))
    assert len(desk.connection._buffer) == 2 * BUFFER_BYTES


def test_large_buffer_is_given_up_after_its_request() -> None:
    desk = Desk(answers=True)
    desk.send(request(bytes(5 << 20)))
    assert [len(each) for each in desk.requests] == [5 << 20]
    desk.send(request(bytes(2)))
    assert len(desk.connection._buffer) == BUFFER_BYTES
    assert (desk.held, desk.connection.held) == (0, 0)


@pytest.mark.parametrize(
    ("head", "closed"),
    [
        (request(b"\x00\x01" + bytes((1 << 20) - 2))[:100], False),
        (((1 << 20) + 1).to_bytes(4, "big") + b"\x00\x01", True),  # not a Produce request
        ((64 << 20).to_bytes(4, "big") + b"\x00\x00", False),
        (((64 << 20) + 1).to_bytes(4, "big") + b"\x00\x00", True),
        (b"\xff\xff\xff\xff", True),  # a negative length
    ],
)
def test_oversized_request_ends_the_connection(head: bytes, closed: bool) -> None:
    desk = Desk()
    desk.send(head)
    assert desk.transport.closed == closed
    assert not desk.requests


def test_all_connections_together_hold_a_bounded_number_of_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener, "HELD_BYTES_MAX", 4 * BUFFER_BYTES)
    desk = Desk()
    desk.send((64 << 20).to_bytes(4, "big") + bytes(20 * BUFFER_BYTES))
    assert desk.transport.closed
    assert desk.held <= 4 * BUFFER_BYTES
    desk.connection.connection_lost(None)
    assert desk.held == 0


def test_unanswered_bytes_stop_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "UNANSWERED_BYTES_MAX", 1000)
    desk = Desk()
    desk.send(request(bytes(1000)) + request(bytes(5)))
    assert [len(each) for each in desk.requests] == [1000]
    assert not desk.transport.reading
    desk.connection.reply(b"")
    assert [len(each) for each in desk.requests] == [1000, 5]
    assert desk.transport.reading


def test_client_that_does_not_read_its_responses_gets_no_more_of_them() -> None:
    desk = Desk()
    desk.connection.pause_writing()
    desk.send(request(bytes(2)))
    assert not desk.requests
    desk.connection.resume_writing()
    assert len(desk.requests) == 1
    desk.transport.unsent = listener.UNSENT_BYTES_MAX + 1
    desk.connection.reply(b"")
    assert desk.transport.closed


def test_closed_connection_passes_on_no_further_requests() -> None:
    desk = Desk()
    ask = desk.ask

    def refuse(received: Any) -> None:
        ask(received)
        desk.connection.close()

    desk.ask = refuse  # type: ignore[method-assign]
    desk.send(request(bytes(2)) * 3)
    assert len(desk.requests) == 1


def test_idle_connection_expires() -> None:
    desk = Desk()
    assert not desk.connection.expired(listener.IDLE_MAX - 1)
    assert desk.connection.expired(listener.IDLE_MAX)
    desk.send(request(bytes(2)))
    assert not desk.connection.expired(listener.IDLE_MAX)  # it waits for its response
    silent = Connection(cast("Listener", desk), 2, 0.0)
    assert not silent.expired(listener.FIRST_REQUEST_SECONDS - 1)
    assert silent.expired(listener.FIRST_REQUEST_SECONDS)


def test_slow_reader_is_disconnected_when_all_responses_are_too_many() -> None:
    desk = Desk()
    desk.others_unsent = listener.ALL_UNSENT_BYTES_MAX
    desk.send(request(bytes(2)) * 2)
    desk.connection.reply(b"")
    assert not desk.transport.closed
    desk.transport.unsent = listener.UNSENT_BYTES_HIGH + 1
    desk.connection.reply(b"")
    assert desk.transport.closed


def test_unanswered_first_request_does_not_keep_a_connection_open() -> None:
    desk = Desk()
    silent = Connection(cast("Listener", desk), 2, 0.0)
    silent.connection_made(cast("asyncio.Transport", Transport()))
    data = request(b"\x00\x12")
    silent.get_buffer(-1)[: len(data)] = data
    silent.buffer_updated(len(data))
    assert silent.expired(listener.FIRST_REQUEST_SECONDS)
