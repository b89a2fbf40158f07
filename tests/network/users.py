"""Users for login tests."""

from __future__ import annotations

from oncecast.network.login import Attempt
from oncecast.security.scram import derive
from oncecast.security.values import Credentials

ANN = derive("tulip", b"0123456789abcdef", 4096)
TOKEN = "ann's token"


class Users:
    """The user ann has the password tulip and a token. She may use names that begin with ann."""

    def __init__(self, *, required: bool = True) -> None:
        self.required = required
        self.attempts: list[Attempt] = []
        self.removed: list[str] = []

    def credentials(self, user: str) -> Credentials | None:
        return ANN if user == "ann" else None

    def principal_of_token(self, text: str) -> str | None:
        return "ann" if text == TOKEN else None

    def may_use(self, principal: str, name: str) -> bool:
        return not self.required or (principal == "ann" and name.startswith("ann"))

    def may_act(self, agent: str, user: str) -> bool:
        return agent == "ann" and user == "bob"

    def valid(self, principal: str, token: str) -> bool:
        return principal not in self.removed

    def report(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)
