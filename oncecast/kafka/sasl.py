"""The login of a Kafka client: SASL with PLAIN or SCRAM-SHA-256 (RFC 4616, RFC 5802).

A client that has not logged in may send only ApiVersions, SaslHandshake and SaslAuthenticate. The
node checks the password. With SCRAM, the front end only passes the messages on.

    client     ApiVersions · SaslHandshake(mechanism) · SaslAuthenticate, once or twice
    PLAIN      SaslAuthenticate(user and password) → Check
    SCRAM      SaslAuthenticate(client-first) → Begin · SaslAuthenticate(client-final) → Prove
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from oncecast.errors import Malformed
from oncecast.kafka import messages as m
from oncecast.kafka.errors import Code, clipped
from oncecast.kafka.requests import Incoming, offered_versions, parse

PLAIN, SCRAM = "PLAIN", "SCRAM-SHA-256"
LOGIN_BYTES_MAX = 4096  # of one SaslAuthenticate request


class Respond(NamedTuple):
    """Send a response. With `ends`, close the connection afterwards."""

    data: bytes
    ends: bool = False


class Check(NamedTuple):
    """Check a user and a password, then call `finished` or `refused`."""

    user: str
    password: str


class Begin(NamedTuple):
    """Pass the client's first SCRAM message on, then call `challenged` or `refused`."""

    message: str


class Prove(NamedTuple):
    """Pass the client's last SCRAM message on, then call `finished` or `refused`."""

    message: str


Step = Respond | Check | Begin | Prove


class Entrance:
    """The login of one connection."""

    def __init__(self, mechanisms: tuple[str, ...]) -> None:
        self._mechanisms = mechanisms
        self._mechanism = ""  # as chosen by the client
        self._challenged = False
        self._asked: Incoming | None = None  # the SaslAuthenticate request that waits

    def received(self, data: bytes) -> Step:
        """Return what to do about a request. Raise Malformed if it is not allowed here."""
        incoming = parse(data)
        match incoming.request:
            case m.ApiVersionsRequest():
                return Respond(incoming.answer(offered_versions(incoming.code)))
            case m.SaslHandshakeRequest(mechanism=mechanism):
                return self._choose(incoming, mechanism)
            case m.SaslAuthenticateRequest(auth_bytes=message) if self._mechanism:
                self._asked = incoming
                return self._authenticate(message)
            case _:
                raise Malformed("the client has sent a request before it has logged in")

    def _choose(self, incoming: Incoming, mechanism: str) -> Respond:
        known = mechanism in self._mechanisms and not self._mechanism
        code = Code.NONE if known else Code.UNSUPPORTED_SASL_MECHANISM
        if known:
            self._mechanism = mechanism
        response = m.SaslHandshakeResponse(error_code=code, mechanisms=self._mechanisms)
        return Respond(incoming.answer(response), ends=not known)

    def _authenticate(self, message: bytes) -> Step:
        if len(message) > LOGIN_BYTES_MAX:
            size = f"{len(message)} bytes long (limit {LOGIN_BYTES_MAX})"
            return self.refused(f"the login message is {size}")
        try:
            text = message.decode()
        except UnicodeDecodeError:
            return self.refused("the login message is not valid UTF-8")
        if self._mechanism == SCRAM:
            return Prove(text) if self._challenged else Begin(text)
        acts_for, *fields = text.split("\0")
        if len(fields) != 2 or not all(fields) or acts_for not in ("", fields[0]):
            return self.refused("the login message is not a user and a password")
        return Check(*fields)

    def challenged(self, challenge: str) -> Respond:
        """Return the response with the node's SCRAM challenge."""
        self._challenged = True
        return self._answer(m.SaslAuthenticateResponse(auth_bytes=challenge.encode()))

    def finished(self, message: str = "") -> Respond:
        """Return the response to a successful login."""
        return self._answer(m.SaslAuthenticateResponse(auth_bytes=message.encode()))

    def refused(self, why: str) -> Respond:
        """Return the response to a failed login."""
        code = Code.SASL_AUTHENTICATION_FAILED
        response = m.SaslAuthenticateResponse(error_code=code, error_message=clipped(why))
        return self._answer(response)._replace(ends=True)

    def _answer(self, response: m.SaslAuthenticateResponse) -> Respond:
        incoming, self._asked = self._asked, None
        assert incoming is not None, "no login request waits for an answer"
        return Respond(incoming.answer(response))


def unexpected_handshake(_: m.SaslHandshakeRequest, reply: Callable[[Any], None]) -> None:
    """Refuse a login on a connection that needs none."""
    reply(m.SaslHandshakeResponse(error_code=Code.ILLEGAL_SASL_STATE))


def unexpected_login(_: m.SaslAuthenticateRequest, reply: Callable[[Any], None]) -> None:
    message = "the connection is logged in, or needs no login"
    code = Code.ILLEGAL_SASL_STATE
    reply(m.SaslAuthenticateResponse(error_code=code, error_message=message))
