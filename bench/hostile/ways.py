"""Connect an attacker to a node, with or without a login, and send raw frames."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from oncecast.kernel.protocol import Value
from oncecast.network.framing import GREETING, HEADER, HEADER_BYTES, PREAMBLE, frame
from oncecast.network.handshake import (
    GREETINGS,
    PEER,
    VERSION,
    Challenge,
    Hello,
    Proof,
    meeting_of,
)
from oncecast.security.meeting import DIALLER, NONCE_BYTES
from oncecast.security.secret import ClusterSecret

PATIENCE = 20.0  # seconds without an answer after which a connection counts as stalled


@dataclass(frozen=True)
class Way:
    """The identity and credentials of an attacker. Empty fields mean that it lacks them."""

    address: str
    role: str
    sender: str = ""
    ca: str = ""  # the CA's PEM file, if the node uses TLS
    certificate: str = ""
    key: str = ""
    token: str = ""
    secret: str = ""
    source: str = "127.0.0.1"  # the local address of the connection

    @property
    def name(self) -> str:
        known = self.token or self.certificate or self.secret
        return f"{self.role}, {'with' if known else 'without'} credentials"

    def hello(self) -> Hello:
        nonce = os.urandom(NONCE_BYTES) if self.secret else b""
        return Hello(
            VERSION, "oncecast", self.role, self.sender, self.address, 1, self.token, "", nonce
        )

    def connect(self) -> socket.socket:
        """Open a TCP connection, with TLS if the node uses it."""
        host, _, port = self.address.rpartition(":")
        made = socket.create_connection((host, int(port)), PATIENCE, (self.source, 0))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self.ca:
            return made
        return context_of(self.ca, self.certificate, self.key).wrap_socket(
            made, server_hostname=host
        )


@lru_cache
def context_of(ca: str, certificate: str, key: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca)
    if certificate:
        context.load_cert_chain(certificate, key)
    return context


class Closed(Exception):
    """The node has closed the connection."""


class Intruder:
    """One connection from an attacker. It sends arbitrary bytes, and reads frames."""

    def __init__(self, way: Way) -> None:
        self.way, self._received = way, bytearray()
        try:
            self.socket = way.connect()
        except OSError as error:
            raise Closed(str(error)) from None

    def greet(self) -> Value:
        """Do the handshake, and return the node's last greeting."""
        hello = self.way.hello()
        self.send(PREAMBLE + frame(GREETING, GREETINGS.encode(hello)))
        self.exactly(len(PREAMBLE))
        answer = GREETINGS.decode(self.frame()[1])
        if isinstance(answer, Challenge) and self.way.secret:
            meeting = meeting_of(hello, answer.nonce)
            proof = Proof(mac=ClusterSecret(self.way.secret.encode()).proof(DIALLER, meeting))
            self.send(frame(GREETING, GREETINGS.encode(proof)))
            answer = GREETINGS.decode(self.frame()[1])
        return answer

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise Closed(str(error)) from None

    def frame(self) -> tuple[int, bytes]:
        length, kind = HEADER.unpack(self.exactly(HEADER_BYTES))
        return kind, self.exactly(length)

    def rest(self) -> Iterator[tuple[int, bytes]]:
        """Yield the frames until the node closes the connection."""
        with suppress(Closed):
            while True:
                yield self.frame()

    def no_more(self) -> None:
        """Tell the node that no more frames follow."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            try:
                more = self.socket.recv(1 << 16)
            except OSError as error:
                raise Closed(str(error)) from None
            if not more:
                raise Closed("closed by the node")
            self._received += more
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken

    def close(self) -> None:
        self.socket.close()


def is_peer(way: Way) -> bool:
    return way.role == PEER
