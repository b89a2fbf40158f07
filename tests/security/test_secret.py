"""Test proofs of the cluster secret."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from oncecast.security.meeting import ACCEPTOR, DIALLER, Meeting
from oncecast.security.secret import ClusterSecret

SECRET = ClusterSecret(b"0123456789abcdef")
MEETING = Meeting("peer", "oncecast", "a:1", "b:2", b"a" * 32, b"b" * 32)


def test_both_sides_prove_the_same_secret() -> None:
    """SEC-1"""
    for side in (DIALLER, ACCEPTOR):
        assert SECRET.proves(SECRET.proof(side, MEETING), side, MEETING)


def test_proof_from_one_side_is_not_valid_for_the_other() -> None:
    """SEC-1: an attacker cannot send a proof back to the node that made it."""
    assert not SECRET.proves(SECRET.proof(DIALLER, MEETING), ACCEPTOR, MEETING)
    assert not SECRET.proves(SECRET.proof(ACCEPTOR, MEETING), DIALLER, MEETING)


@pytest.mark.parametrize(
    "other",
    [
        replace(MEETING, role="client"),
        replace(MEETING, cluster="other"),
        replace(MEETING, dialler="c:3"),
        replace(MEETING, acceptor="c:3"),
        replace(MEETING, dialler="a:1b", acceptor=":2"),
        replace(MEETING, dialler_nonce=b"c" * 32),
        replace(MEETING, acceptor_nonce=b"c" * 32),
    ],
)
def test_proof_is_valid_for_only_one_handshake(other: Meeting) -> None:
    """SEC-1"""
    assert not SECRET.proves(SECRET.proof(DIALLER, other), DIALLER, MEETING)


def test_proof_with_another_secret_is_invalid() -> None:
    """SEC-1"""
    guess = ClusterSecret(b"0123456789abcdeg")
    assert not SECRET.proves(guess.proof(DIALLER, MEETING), DIALLER, MEETING)
    assert not SECRET.proves(b"", DIALLER, MEETING)


@pytest.mark.parametrize("nonce", [b"", b"b" * 31, MEETING.dialler_nonce])
def test_nonces_must_be_long_and_differ(nonce: bytes) -> None:
    meeting = replace(MEETING, acceptor_nonce=nonce)
    assert not SECRET.proves(SECRET.proof(DIALLER, meeting), DIALLER, meeting)


def test_secret_does_not_show_in_error_reports() -> None:
    """SEC-4"""
    assert "0123" not in repr(SECRET)
