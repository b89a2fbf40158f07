"""The credentials with which a client logs in."""

from __future__ import annotations

import secrets

import msgspec

from oncecast.errors import InvalidArgument, NotAuthenticated
from oncecast.network.addresses import is_loopback, split
from oncecast.security.scram import ClientExchange, prepared

NONCE_BYTES = 18  # a multiple of 3, so that its base64 has no padding


class Login(msgspec.Struct, frozen=True):
    """A user with a password, or a token. An anonymous client has neither.

    `node` is set if the client is a node that asks other nodes before it joins them. It is the
    address of that node.
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
        """Return a text without secrets, because a traceback or a log may show it."""
        return f"Login(user={self.user!r}, node={self.node!r})"

    def exchange(self) -> ClientExchange | None:
        """Return the client side of a SCRAM login, or None without a password."""
        if self.user is None or self.password is None:
            return None
        return ClientExchange(self.user, self.password, secrets.token_urlsafe(NONCE_BYTES))

    def check_exposure(self, address: str, *, tls: bool) -> None:
        """Raise NotAuthenticated if a token would cross a network in clear text.

        A password is never sent, so it does not need this check.
        """
        host, _ = split(address)
        if self.token is not None and not tls and not is_loopback(host):
            raise NotAuthenticated(
                f"the token would be sent to {address} without encryption",
                "use TLS, or a user and password",
            )
