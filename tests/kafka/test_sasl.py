"""Test the login of a Kafka client, one request at a time (SEC-2)."""

from __future__ import annotations

from typing import Any

import pytest

from oncecast.errors import Malformed
from oncecast.kafka import messages as m
from oncecast.kafka.errors import Code
from oncecast.kafka.layout import Body, codec
from oncecast.kafka.sasl import (
    LOGIN_BYTES_MAX,
    PLAIN,
    SCRAM,
    Begin,
    Check,
    Entrance,
    Prove,
    Respond,
)
from tests.kafka.bodies import request_bytes
from tests.kafka.front_desk import OF_REQUEST, desk


class Client:
    def __init__(self, *mechanisms: str) -> None:
        self.entrance = Entrance(mechanisms or (SCRAM, PLAIN))

    def send(self, request: Body) -> Any:
        api = OF_REQUEST[type(request)]
        self.api = api
        return self.entrance.received(request_bytes(api, api.last, request))

    def choose(self, mechanism: str) -> Any:
        return self.read(self.send(m.SaslHandshakeRequest(mechanism=mechanism)))

    def log_in(self, message: bytes) -> Any:
        return self.send(m.SaslAuthenticateRequest(auth_bytes=message))

    def read(self, step: Any, *, ends: bool = False) -> Any:
        """Return the response of a step."""
        assert isinstance(step, Respond)
        assert step.ends == ends
        return codec(self.api.response, self.api.last, False).read(step.data, 8)[0]


def test_plain_login_names_the_user_and_the_password() -> None:
    """SEC-2"""
    client = Client()
    assert client.choose(PLAIN) == m.SaslHandshakeResponse(mechanisms=(SCRAM, PLAIN))
    assert client.log_in(b"\0ann\0tulip") == Check("ann", "tulip")
    assert client.read(client.entrance.finished()) == m.SaslAuthenticateResponse()
    assert client.log_in(b"ann\0ann\0tulip") == Check("ann", "tulip")


def test_scram_messages_are_passed_on() -> None:
    """SEC-2"""
    client = Client()
    client.choose(SCRAM)
    assert client.log_in(b"n,,n=ann,r=x") == Begin("n,,n=ann,r=x")
    answer = client.read(client.entrance.challenged("r=xy,s=,i=1"))
    assert answer.auth_bytes == b"r=xy,s=,i=1"
    assert client.log_in(b"c=biws,r=xy,p=z") == Prove("c=biws,r=xy,p=z")
    answer = client.read(client.entrance.finished("v=1"))
    assert (answer.error_code, answer.auth_bytes) == (Code.NONE, b"v=1")


def test_failed_login_ends_the_connection() -> None:
    """SEC-2"""
    client = Client()
    client.choose(PLAIN)
    client.log_in(b"\0ann\0wrong")
    answer = client.read(client.entrance.refused("no"), ends=True)
    assert (answer.error_code, answer.error_message) == (Code.SASL_AUTHENTICATION_FAILED, "no")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"ann",
        b"\0ann",
        b"\0\0tulip",
        b"\0ann\0",
        b"\0a\0b\0c",
        b"bob\0ann\0tulip",
        b"\xff",
        b"\0ann\0" + bytes(LOGIN_BYTES_MAX),
    ],
)
def test_invalid_plain_message_is_refused(message: bytes) -> None:
    """SEC-2: a user cannot log in for another one."""
    client = Client()
    client.choose(PLAIN)
    answer = client.read(client.log_in(message), ends=True)
    assert answer.error_code == Code.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize("mechanism", [PLAIN, "GSSAPI", ""])
def test_mechanism_that_is_not_offered_is_refused(mechanism: str) -> None:
    """SEC-2: without TLS, the front end does not offer PLAIN on a reachable address."""
    client = Client(SCRAM)
    answer = client.read(client.send(m.SaslHandshakeRequest(mechanism=mechanism)), ends=True)
    assert answer == m.SaslHandshakeResponse(
        error_code=Code.UNSUPPORTED_SASL_MECHANISM, mechanisms=(SCRAM,)
    )


def test_mechanism_cannot_change() -> None:
    """SEC-2"""
    client = Client()
    client.choose(SCRAM)
    client.read(client.send(m.SaslHandshakeRequest(mechanism=PLAIN)), ends=True)


@pytest.mark.parametrize(
    "request_",
    [
        m.MetadataRequest(topics=None),
        m.SaslAuthenticateRequest(auth_bytes=b"\0ann\0tulip"),
        m.ListGroupsRequest(),
    ],
)
def test_nothing_else_is_allowed_before_the_login(request_: Body) -> None:
    """SEC-2"""
    with pytest.raises(Malformed, match="before it has logged in"):
        Client().send(request_)


def test_versions_are_answered_before_the_login() -> None:
    """KAF-1"""
    client = Client()
    answer = client.read(client.send(m.ApiVersionsRequest()))
    assert {each.api_key for each in answer.api_keys} == set(m.BY_KEY)


def test_login_on_a_connection_without_logins_is_refused() -> None:
    """SEC-2"""
    front = desk()
    front.send(m.SaslHandshakeRequest(mechanism=PLAIN))
    assert front.reply().error_code == Code.ILLEGAL_SASL_STATE
    front.send(m.SaslAuthenticateRequest(auth_bytes=b"\0ann\0tulip"))
    assert front.reply().error_code == Code.ILLEGAL_SASL_STATE
