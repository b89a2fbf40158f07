"""The interface to a node's users.

A client logs in with a certificate, a token, or a user and password. Otherwise it is anonymous. The
node passes its users down as `Logins`. A runtime without users accepts only anonymous clients and
clients with a certificate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from typing import Protocol as Interface

import msgspec

if TYPE_CHECKING:
    from oncecast.security.values import Credentials

# How a client logs in.
CERTIFICATE, TOKEN, PASSWORD, SECRET, NONE = "certificate", "token", "password", "secret", "none"


class Attempt(msgspec.Struct, frozen=True):
    """One successful or failed login, for the audit log."""

    address: str  # host:port of the client
    how: str  # how the client logged in: one of the constants above
    principal: str  # the principal, or the claimed principal if the login failed
    client: str  # the client name that was requested
    refusal: str = ""  # why the login failed, or empty if it succeeded


class Logins(Interface):
    """A node's users. No method blocks, and the answers may change at any time."""

    @property
    def required(self) -> bool:
        """Return whether clients without a login are refused."""

    def credentials(self, user: str) -> Credentials | None:
        """Return the user's credentials, or None if the user does not exist."""

    def principal_of_token(self, text: str) -> str | None:
        """Return the principal of a token, or None if the token is invalid."""

    def may_use(self, principal: str, name: str) -> bool:
        """Return whether the principal may use this client name."""

    def may_act(self, agent: str, user: str) -> bool:
        """Return whether a client that logged in as `agent` may act for the user."""

    def valid(self, principal: str, token: str) -> bool:
        """Return whether a client may stay connected. `token` is the id of its token, or empty."""

    def report(self, attempt: Attempt) -> None:
        """Record a login attempt. Successful anonymous logins are not recorded."""


class OpenLogins:
    """The logins of a node without users: any client may use any name."""

    required = False

    def credentials(self, user: str) -> Credentials | None:
        return None

    def principal_of_token(self, text: str) -> str | None:
        return None

    def may_use(self, principal: str, name: str) -> bool:
        return True

    def may_act(self, agent: str, user: str) -> bool:
        return True

    def valid(self, principal: str, token: str) -> bool:
        return True

    def report(self, attempt: Attempt) -> None:
        pass
