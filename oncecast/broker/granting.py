"""Handlers for commands that change users, tokens and rules.

A command is refused if it would leave no administrator able to log in. Administrators therefore
cannot lock themselves out, and a cluster cannot become open again by mistake.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from oncecast.broker.registry import Registry
from oncecast.security.access import ADMIN, EVERYTHING, Access
from oncecast.security.values import Rule, Token, User
from oncecast.wire.access_faults import access_fault
from oncecast.wire.commands import (
    AccessCommand,
    AddUser,
    Allow,
    CreateToken,
    Disallow,
    RemoveUser,
    RevokeToken,
)
from oncecast.wire.errors import InvalidArgument, TooMany
from oncecast.wire.limits import RULES_MAX, RULES_OF_PRINCIPAL_MAX, TOKENS_MAX, USERS_MAX
from oncecast.wire.results import AccessSet

Granted = AccessSet | InvalidArgument | TooMany

LOCKED = InvalidArgument(
    "no administrator could log in; make the first user an administrator, and keep at least one"
)


class Granting:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def handlers(self) -> dict[type, Callable[[int, Any], Granted]]:
        return dict.fromkeys(get_args(AccessCommand), self.apply)

    def apply(self, slot: int, command: AccessCommand) -> Granted:
        if isinstance(command, CreateToken):
            self._registry.pass_time(command.at)
        return access_fault(command) or self._set(self._after(command))

    def _after(self, command: AccessCommand) -> Access:
        """Return the users, tokens and rules after the command."""
        access = self._registry.access
        match command:
            case AddUser(name, credentials, admin):
                access = access.with_user(User(name, credentials))
                return access.with_rule(Rule(name, (ADMIN,), EVERYTHING)) if admin else access
            case RemoveUser(name):
                return access.without_user(name)
            case CreateToken(id, principal, salt, hash):
                lifetime, now = command.lifetime_us, self._registry.clock.now
                return access.with_token(
                    Token(id, principal, salt, hash, now + lifetime if lifetime else 0)
                )
            case RevokeToken(id):
                return access.without_token(id)
            case Allow(rule):
                return access.with_rule(rule)
            case Disallow(rule):
                return access.without_rule(rule)

    def _set(self, after: Access) -> Granted:
        before = self._registry.access
        if after is before:
            return AccessSet(before.version, already=True)
        refusal = grown_too_large(before, after)
        if refusal is not None:
            return refusal
        if after.locked or (after.open and not before.open):
            return LOCKED
        self._registry.access = after
        return AccessSet(after.version, already=False)


def grown_too_large(before: Access, after: Access) -> TooMany | None:
    if len(before.users) < len(after.users) > USERS_MAX:
        return TooMany("users", USERS_MAX)
    if len(before.tokens) < len(after.tokens) > TOKENS_MAX:
        return TooMany("tokens", TOKENS_MAX)
    if len(before.rules) < len(after.rules):
        if len(after.rules) > RULES_MAX:
            return TooMany("rules", RULES_MAX)
        if after.rules_of_largest > RULES_OF_PRINCIPAL_MAX:
            return TooMany("rules of one principal", RULES_OF_PRINCIPAL_MAX)
    return None
