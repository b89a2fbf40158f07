"""Check logins against the newest users and rules that the node knows."""

from __future__ import annotations

import time
from collections.abc import Callable

from oncecast.network.login import Attempt
from oncecast.security.access import Access
from oncecast.security.principals import ANONYMOUS, NODE
from oncecast.security.values import Credentials


class AccessLogins:
    def __init__(self, access: Callable[[], Access], report: Callable[[Attempt], None]) -> None:
        self._access, self._report = access, report

    @property
    def required(self) -> bool:
        access = self._access()
        return not access.open and not access.serves_anonymous

    def credentials(self, user: str) -> Credentials | None:
        return self._access().credentials_of(user)

    def principal_of_token(self, text: str) -> str | None:
        return self._access().principal_of_token(text, time.time_ns() // 1000)

    def may_use(self, principal: str, name: str) -> bool:
        return self._access().may_use(principal, name)

    def may_act(self, agent: str, user: str) -> bool:
        """Return whether `agent` is a node or an administrator, and the user is known."""
        access = self._access()
        return access.knows(user) and (agent == NODE or access.is_admin(agent))

    def valid(self, principal: str, token: str) -> bool:
        """Return whether a client may stay connected. `token` is the id of its token, or ""."""
        access = self._access()
        if token:
            return access.holds(token, principal, time.time_ns() // 1000)
        if principal == ANONYMOUS:
            return not self.required
        return access.knows(principal)

    def report(self, attempt: Attempt) -> None:
        self._report(attempt)
