"""Commands that change users, tokens and rules.

A command is refused if no administrator could log in after it. So a cluster never locks itself out,
and never becomes open again by mistake.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from oncecast.broker.registry import Registry
from oncecast.security.access import (
    ADMIN,
    EVERYONE,
    EVERYTHING,
    NAMELESS,
    VERBS,
    Access,
    Rule,
    Token,
    User,
    in_order,
)
from oncecast.security.patterns import is_wild
from oncecast.security.principals import NAME_BYTES_MAX, RESERVED, is_principal
from oncecast.security.scram import ITERATIONS_MAX, ITERATIONS_MIN, Credentials
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
from oncecast.wire.limits import (
    RULES_MAX,
    RULES_OF_PRINCIPAL_MAX,
    TOKENS_MAX,
    USERS_MAX,
    is_name,
)
from oncecast.wire.results import AccessSet

HASH_BYTES = 32
SALT_BYTES_MAX = 64
ID_BYTES_MAX = 64
LIFETIME_US_MAX = 100 * 365 * 24 * 3600 * 1_000_000

Granted = AccessSet | InvalidArgument | TooMany

LOCKED = InvalidArgument(
    "no administrator could log in any more; add another one first, or make the first user one"
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
        """Return what the command makes of users, tokens and rules."""
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


def access_fault(command: AccessCommand) -> InvalidArgument | None:
    """Return the refusal of a command that is wrong in any state, or None."""
    fault = _fault(command)
    return InvalidArgument(fault) if fault else None


def _fault(command: AccessCommand) -> str:
    match command:
        case AddUser(name, credentials):
            return fault_of_principal(name) or fault_of_credentials(credentials)
        case CreateToken():
            return fault_of_principal(command.principal) or fault_of_token(command)
        case RemoveUser(name) | RevokeToken(name):
            return "" if is_name(name) else "the name is empty or longer than 255 bytes"
        case Allow(rule) if rule.topic and not rule.verbs:
            return "a rule for topics has no verb; name put, read, ack, manage or admin"
        case Allow(rule) | Disallow(rule):
            return fault_of_rule(rule)


def fault_of_principal(name: str) -> str:
    if is_name(name) and is_principal(name) and not is_wild(name) and name != NAMELESS:
        return ""
    return (
        f"{name[:40]!r} cannot be the name of a user; use 1 to {NAME_BYTES_MAX} bytes of printable "
        f"text without * and ?, which is not {NAMELESS!r} and does not start with {RESERVED!r}"
    )


def fault_of_credentials(credentials: Credentials | None) -> str:
    if credentials is None:
        return ""
    keys = (credentials.stored_key, credentials.server_key)
    valid = (
        0 < len(credentials.salt) <= SALT_BYTES_MAX
        and ITERATIONS_MIN <= credentials.iterations <= ITERATIONS_MAX
        and all(len(key) == HASH_BYTES for key in keys)
    )
    return "" if valid else "the credentials are not of SCRAM-SHA-256"


def fault_of_token(command: CreateToken) -> str:
    if not is_name(command.id) or len(command.id.encode()) > ID_BYTES_MAX or "." in command.id:
        return f"the id of the token is not 1 to {ID_BYTES_MAX} bytes of text without a dot"
    if len(command.hash) != HASH_BYTES or not 0 < len(command.salt) <= SALT_BYTES_MAX:
        return "the hash of the token is not of SHA-256 with a salt"
    if not 0 <= command.lifetime_us <= LIFETIME_US_MAX:
        return "the lifetime of the token is negative or above 100 years"
    return ""


def fault_of_rule(rule: Rule) -> str:
    if rule.principal != EVERYONE and (fault := fault_of_principal(rule.principal)):
        return fault
    if bool(rule.topic) == bool(rule.name):
        return "a rule is about topics or about names; set one of both"
    if not is_name(rule.topic or rule.name):
        return "the pattern is longer than 255 bytes or not valid Unicode"
    if rule.verbs != in_order(rule.verbs):
        return f"the verbs are not some of {', '.join(VERBS)}, each once and in this order"
    if rule.name and rule.verbs:
        return "a rule for names has no verbs; leave them out"
    if ADMIN in rule.verbs and rule.topic != EVERYTHING:
        return f"admin is not limited to some topics; use {EVERYTHING!r}"
    if ADMIN in rule.verbs and rule.principal == EVERYONE:
        return "not everyone can be an administrator; name a user"
    return ""
