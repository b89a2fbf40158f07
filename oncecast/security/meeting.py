"""The handshake values that both sides authenticate with the cluster secret (see `secret.py`)."""

from __future__ import annotations

from oncecast.kernel.protocol import Value

NONCE_BYTES = 32

DIALLER, ACCEPTOR = "dialler", "acceptor"


class Meeting(Value):
    """The values that both sides of a handshake agree on."""

    role: str
    cluster: str
    dialler: str
    acceptor: str
    dialler_nonce: bytes
    acceptor_nonce: bytes
