"""The credentials of a client."""

from __future__ import annotations

import secrets

import msgspec

from oncecast.errors import InvalidArgument, NotAuthenticated
from oncecast.network.addresses import is_loopback, split
from oncecast.security.scram import ClientExchange, prepared

NONCE_BYTES = 18  # a multiple of 3, so that its base64 has no padding


class Login(msgspec.Struct, frozen=True):
    """User and password, or a token, or none of them for an anonymous client.

    `node` is the address of a node that asks other nodes before it joins them.
    """

    user: str | None = None
    password: str | None = None
    token: str | None = None
    node: str = ""

    def __post_init__(self) -> None:
        if (self.user is None) != (self.password is None):
            raise InvalidArgument("user and password belong together", "give both, or none")
        if self.user is not None and self.token is not None:
            raise InvalidArgument("a login has both a password and a token", "give one of them")
        for text in (self.user, self.password, self.token):
            if text is not None and not prepared(text):
                raise InvalidArgument("a user name, password or token is empty", "give a text")

    def __repr__(self) -> str:
        """Return no secret: a traceback or a log may show it."""
        return f"Login(user={self.user!r}, node={self.node!r})"

    def exchange(self) -> ClientExchange | None:
        """Return a login with SCRAM if there is a password."""
        if self.user is None or self.password is None:
            return None
        return ClientExchange(self.user, self.password, secrets.token_urlsafe(NONCE_BYTES))

    def check_exposure(self, address: str, *, tls: bool) -> None:
        """Refuse to send a token over a network in clear text; a password is never sent."""
        host, _ = split(address)
        if self.token is not None and not tls and not is_loopback(host):
            raise NotAuthenticated(
                f"the token would be sent to {address} without encryption",
                "use TLS, or a user and password",
            )
