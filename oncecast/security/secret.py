"""The cluster secret: nodes prove to each other that they know it, without sending it.

Each side chooses a nonce. A side's proof is an HMAC-SHA-256 over the side, the role, the cluster,
both node ids and both nonces. Because the proof includes the side, an attacker cannot reflect it to
its sender.
"""

from __future__ import annotations

import hmac

from msgspec.structs import astuple

from oncecast.security.meeting import NONCE_BYTES, Meeting

SECRET_BYTES_MIN = 16
LABEL = b"oncecast cluster secret 1"


class ClusterSecret:
    def __init__(self, secret: bytes) -> None:
        assert len(secret) >= SECRET_BYTES_MIN, f"the secret has only {len(secret)} bytes"
        self._key = hmac.digest(secret, LABEL, "sha256")

    def proof(self, side: str, meeting: Meeting) -> bytes:
        """Return the dialler's or the acceptor's proof."""
        values = (side, *astuple(meeting))
        parts = [each if isinstance(each, bytes) else each.encode() for each in values]
        # Each part is preceded by its length, so that different parts never give the same message.
        message = b"".join(len(part).to_bytes(4) + part for part in parts)
        return hmac.digest(self._key, message, "sha256")

    def proves(self, proof: bytes, side: str, meeting: Meeting) -> bool:
        """Return whether this is the side's proof. The comparison takes constant time."""
        nonces = (meeting.dialler_nonce, meeting.acceptor_nonce)
        fresh = all(len(nonce) == NONCE_BYTES for nonce in nonces) and nonces[0] != nonces[1]
        return hmac.compare_digest(proof, self.proof(side, meeting)) and fresh

    def __repr__(self) -> str:
        return "ClusterSecret(...)"
