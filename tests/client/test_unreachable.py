"""Test the errors of a client that cannot reach any node."""

from __future__ import annotations

import ssl

from oncecast.client.unreachable import Problem, not_connected, problem_of
from oncecast.errors import NetworkError, NotOncecast
from oncecast.kernel.protocol import NodeId

a, b, c = map(NodeId, ("a:1", "b:2", "c:3"))


def test_problem_shared_by_several_nodes_is_reported_once() -> None:
    """CLI-3"""
    refused = Problem("Connection refused")
    error = not_connected({a: refused, b: Problem(), c: refused}, refused=False)
    assert error.message == "cannot connect to a:1, c:3: Connection refused, b:2: no answer"


def test_command_remedy_names_command_line_options() -> None:
    """CLI-3"""
    closed = problem_of(NetworkError("closed by the other side"), tls=False)
    error = not_connected({a: closed}, refused=False)
    assert str(error).endswith("; if the node uses TLS, provide its CA in `tls`")
    assert error.in_cli().endswith("; if the node uses TLS, provide its CA with --tls or --tls-ca")


def test_error_for_a_foreign_peer_does_not_suggest_tls() -> None:
    """CLI-3"""
    problem = problem_of(NetworkError(str(NotOncecast("starts with HTTP"))), tls=False)
    assert not problem.remedy


def test_certificate_rejection_reason_has_no_trailing_full_stop() -> None:
    """SEC-2"""
    mismatch = ssl.SSLCertVerificationError()
    mismatch.verify_message = "Hostname mismatch."
    problem = problem_of(mismatch, tls=True)
    assert problem.fact == "the node's certificate was rejected: Hostname mismatch"
