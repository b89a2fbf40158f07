"""Logins of clients: the interface to the users of a node, and the node's side of a login.

A client logs in with a token or with user and password. Without either it is anonymous. The node
passes its users down as `Logins`; a runtime without users accepts every anonymous client and no
login.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import NamedTuple
from typing import Protocol as Interface

from oncecast.errors import NotAuthenticated, OutOfPlace, Refused
from oncecast.kernel.protocol import Value
from oncecast.network.handshake import Challenge, Hello, Proof
from oncecast.security.principals import ANONYMOUS
from oncecast.security.scram import Credentials, ServerExchange

NONCE_BYTES = 18  # a multiple of 3, so that its base64 has no padding

TOKEN, PASSWORD, NONE = "token", "password", "none"  # how a client logs in

# Sends a Challenge and returns the answer of the dialler.
Ask = Callable[[Value], Awaitable[Value]]


class Attempt(NamedTuple):
    """One login that succeeded or failed, for the audit."""

    address: str  # host:port of the client
    how: str  # TOKEN, PASSWORD or NONE
    principal: str  # as claimed, if the login failed
    client: str  # the name that the client asks for
    refusal: str = ""  # why it failed


class Logins(Interface):
    """The users of a node. Every method returns at once and may change its answer at any time."""

    @property
    def required(self) -> bool:
        """Return whether clients without a login are refused."""

    def credentials(self, user: str) -> Credentials | None:
        """Return the credentials of a user, or None if there is no such user."""

    def principal_of_token(self, text: str) -> str | None:
        """Return the principal of a valid token."""

    def may_use(self, principal: str, name: str) -> bool:
        """Return whether the principal may use this client name."""

    def valid(self, principal: str, token: str) -> bool:
        """Return whether a connected client may stay. `token` is the id of its token, or empty."""

    def report(self, attempt: Attempt) -> None:
        """Record a login, but not the anonymous ones that succeed."""


class OpenLogins:
    """A node without users: every client is anonymous and may use every name."""

    required = False

    def credentials(self, user: str) -> Credentials | None:
        return None

    def principal_of_token(self, text: str) -> str | None:
        return None

    def may_use(self, principal: str, name: str) -> bool:
        return True

    def valid(self, principal: str, token: str) -> bool:
        return True

    def report(self, attempt: Attempt) -> None:
        pass


class Login(NamedTuple):
    """A login that succeeded."""

    principal: str = ANONYMOUS
    answer: str = ""  # for the Welcome


class Gate:
    """Logs clients in."""

    def __init__(self, logins: Logins) -> None:
        self._logins = logins
        self._decoy_key = secrets.token_bytes(32)

    async def admit(self, hello: Hello, address: str, ask: Ask) -> Login:
        """Return the login of a client, or raise NotAuthenticated or Refused."""
        how = PASSWORD if hello.login else TOKEN if hello.token else NONE
        claimed = ServerExchange(
            secrets.token_urlsafe(NONCE_BYTES), self._logins.credentials, decoy_key=self._decoy_key
        )
        try:
            if how == PASSWORD:
                login = await log_in(claimed, hello.login, ask)
            elif how == TOKEN:
                login = self._by_token(hello.token)
            else:
                login = self._anonymous()
            self._check_name(login.principal, hello.sender)
        except Refused as refused:
            attempt = Attempt(address, how, claimed.user, hello.sender, refused.message)
            self._logins.report(attempt)
            raise
        if how != NONE:
            self._logins.report(Attempt(address, how, login.principal, hello.sender))
        return login

    def _by_token(self, text: str) -> Login:
        principal = self._logins.principal_of_token(text)
        if principal is None:
            raise NotAuthenticated()
        return Login(principal)

    def _anonymous(self) -> Login:
        if self._logins.required:
            raise NotAuthenticated(
                "this node requires a login", "give user and password, or a token"
            )
        return Login()

    def _check_name(self, principal: str, name: str) -> None:
        """Refuse a name of other principals; a client without a name gets one of its own."""
        if name and not self._logins.may_use(principal, name):
            raise Refused(
                f"{principal or 'an anonymous client'} may not use the client name {name[:40]!r}",
                f"use a name that starts with {principal}." if principal else "log in",
            )


async def log_in(exchange: ServerExchange, first: str, ask: Ask) -> Login:
    """Return the login of a client that proves that it knows its password."""
    proof = await ask(Challenge(exchange.first(first)))
    if not isinstance(proof, Proof):
        raise OutOfPlace("the answer to a Challenge is not a Proof")
    return Login(*exchange.final(proof.login))
