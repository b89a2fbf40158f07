"""Explain why a client cannot connect to a node, and what to do about it."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import NamedTuple

from oncecast.errors import NetworkError, NotConnected
from oncecast.kernel.protocol import NodeId
from oncecast.network.connection import CLOSED, LOST
from oncecast.network.incidents import tls_reason


class Problem(NamedTuple):
    fact: str = "no answer"
    remedy: str = ""
    cli_remedy: str = ""  # shown by the command line in place of `remedy`


def problem_of(error: Exception, *, tls: bool) -> Problem:
    """Explain why a connection attempt failed, and suggest a remedy."""
    if isinstance(error, ssl.SSLCertVerificationError):
        cause = error.verify_message.removesuffix(".")
        return Problem(
            f"the node's certificate was rejected: {cause}",
            "use the CA that signed the certificate, and an address that the certificate lists",
        )
    if isinstance(error, ssl.SSLError):
        return Problem(
            f"TLS failed: {tls_reason(error)}",
            "check that the node uses TLS and accepts this client's certificate",
        )
    fact = getattr(error, "strerror", None) or str(error) or Problem().fact
    if not isinstance(error, ConnectionResetError) and not _is_cut(error):
        return Problem(fact)
    if tls:
        remedy = "provide a certificate that the node accepts"
        return Problem(fact, f"{remedy} in `tls`", f"{remedy} with --tls")
    remedy = "if the node uses TLS, provide its CA"
    return Problem(fact, f"{remedy} in `tls`", f"{remedy} with --tls or --tls-ca")


def _is_cut(error: Exception) -> bool:
    """Return whether the peer closed the connection without giving a reason."""
    return isinstance(error, NetworkError) and error.message.startswith((CLOSED, LOST))


def not_connected(problems: Mapping[NodeId, Problem], *, refused: bool) -> NotConnected:
    """Return one error for all nodes, which lists each problem once with its nodes."""
    peers: dict[str, list[str]] = {}
    for peer, problem in problems.items():
        peers.setdefault(problem.fact, []).append(peer)
    facts = ", ".join(f"{', '.join(each)}: {fact}" for fact, each in peers.items())
    known = next((each for each in problems.values() if each.remedy), Problem())
    return NotConnected(
        f"cannot connect to {facts}", known.remedy, known.cli_remedy, refused=refused
    )
