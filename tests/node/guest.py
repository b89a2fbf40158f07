"""A minimal client for tests, which makes one call at a time."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from oncecast.kernel.codec import Codec
from oncecast.kernel.protocol import Value
from oncecast.network.framing import (
    BYE,
    GREETING,
    HEADER,
    HEADER_BYTES,
    MESSAGE,
    PREAMBLE,
    frame,
)
from oncecast.network.handshake import CLIENT, GREETINGS, VERSION, Hello
from oncecast.wire import batch
from oncecast.wire import commands as do
from oncecast.wire.frames import Answer, Call, Delivery, Fetch, FlowEnded, View

PATIENCE = 20.0
TO_CLIENTS = Codec((Answer, Delivery, FlowEnded, View))


class Guest:
    def __init__(self, port: int, name: str = "", *, version: int = VERSION) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        hello = Hello(version, "oncecast", CLIENT, name, f"127.0.0.1:{port}", 1)
        self.socket.sendall(PREAMBLE + frame(GREETING, GREETINGS.encode(hello)))
        assert self._exactly(len(PREAMBLE)) == PREAMBLE
        kind, body = self.frame()
        assert kind == GREETING
        self.greeting = GREETINGS.decode(body)
        self._ids = 0

    def frame(self) -> tuple[int, bytes]:
        length, kind = HEADER.unpack(self._exactly(HEADER_BYTES))
        return kind, self._exactly(length)

    def send(self, message: Value) -> None:
        self.send_bytes(TO_CLIENTS.encode(message))

    def send_bytes(self, body: bytes) -> None:
        self.socket.sendall(frame(MESSAGE, body))

    def receive(self) -> Value:
        kind, body = self.frame()
        if kind == BYE:
            raise ConnectionError("the node has said goodbye")
        assert kind == MESSAGE
        return TO_CLIENTS.decode(body)

    def call(self, command: Any) -> Any:
        """Return the result of a command, and ignore other messages."""
        self._ids += 1
        self.send(Call(self._ids, command))
        while True:
            message = self.receive()
            if isinstance(message, Answer) and message.id == self._ids:
                return message.result

    def fetch(self, epoch: int, offset: int, ack: int = 0, messages: int = 100) -> None:
        self.send(Fetch("topic", "sub", epoch, offset, ack, messages, 1 << 20))

    def delivery(self) -> Delivery:
        while True:
            message = self.receive()
            if isinstance(message, Delivery):
                return message

    def close(self) -> None:
        self.socket.close()

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the node has closed")
            data += more
        return data


@contextmanager
def guest(port: int, name: str = "") -> Iterator[Guest]:
    made = Guest(port, name)
    try:
        yield made
    finally:
        made.close()


def put(epoch: int, sequence: int, values: list[bytes]) -> do.Put:
    data = batch.encode(values, timestamps=0)
    return do.Put("topic", "me", epoch, sequence, len(values), len(data), 0, data)
