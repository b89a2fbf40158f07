"""The credentials that a client logs in with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from oncecast.errors import InvalidArgument, NotAuthenticated
from oncecast.network.addresses import is_loopback, split

if TYPE_CHECKING:
    from oncecast.security.scram import ClientExchange

NONCE_BYTES = 18  # a multiple of 3, so its base64 needs no padding


class Login(msgspec.Struct, frozen=True):
    """A user with a password, or a token. Anonymous clients have neither.

    `node` is the address of a node that queries other nodes before it joins them. Other clients
    leave it empty. `acts_for` is the user that an administrator or a node acts for.
    """

    user: str | None = None
    password: str | None = None
    token: str | None = None
    node: str = ""
    acts_for: str = ""

    def __post_init__(self) -> None:
        if (self.user is None) != (self.password is None):
            raise InvalidArgument("user and password must be set together", "set both or neither")
        if self.user is not None and self.token is not None:
            raise InvalidArgument("both a password and a token are set", "set only one of them")
        given = [text for text in (self.user, self.password, self.token) if text is not None]
        if not given:
            return
        from oncecast.security.scram import prepared

        for text in given:
            if not prepared(text):
                raise InvalidArgument(
                    "the user, password or token is empty", "set a non-empty value"
                )

    def __repr__(self) -> str:
        """Leave out the secrets, because tracebacks and logs may show the result."""
        return f"Login(user={self.user!r}, node={self.node!r})"

    def exchange(self) -> ClientExchange | None:
        """Return the client side of a SCRAM login, or None without a password."""
        if self.user is None or self.password is None:
            return None
        import secrets  # these load OpenSSL, which most clients do not need

        from oncecast.security.scram import ClientExchange

        return ClientExchange(self.user, self.password, secrets.token_urlsafe(NONCE_BYTES))

    def check_exposure(self, address: str, *, tls: bool) -> None:
        """Raise NotAuthenticated if a token would cross a network in clear text.

        Passwords are never sent, so they do not need this check.
        """
        host, _ = split(address)
        if self.token is not None and not tls and not is_loopback(host):
            raise NotAuthenticated(
                f"the token would be sent to {address} without encryption",
                "use TLS, or log in with a user and password",
            )
