"""Validate commands for users, tokens and rules. Clients and nodes share these stateless checks."""

from __future__ import annotations

from oncecast.security.access import ADMIN, EVERYONE, EVERYTHING, NAMELESS, VERBS, Rule, in_order
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
from oncecast.wire.errors import InvalidArgument
from oncecast.wire.limits import is_name

HASH_BYTES = 32
SALT_BYTES_MAX = 64
ID_BYTES_MAX = 64
LIFETIME_US_MAX = 100 * 365 * 24 * 3600 * 1_000_000


def access_fault(command: AccessCommand) -> InvalidArgument | None:
    """Return a refusal if the command is invalid regardless of state, or None."""
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
            return "a topic rule needs a verb; use put, read, ack, manage or admin"
        case Allow(rule) | Disallow(rule):
            return fault_of_rule(rule)


def fault_of_principal(name: str) -> str:
    if is_name(name) and is_principal(name) and not is_wild(name) and name != NAMELESS:
        return ""
    return (
        f"{name[:40]!r} is not a valid user name; use 1 to {NAME_BYTES_MAX} bytes of printable "
        f"text without * or ?, other than {NAMELESS!r} and not starting with {RESERVED!r}"
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
    return "" if valid else "the credentials are not valid SCRAM-SHA-256 credentials"


def fault_of_token(command: CreateToken) -> str:
    if not is_name(command.id) or len(command.id.encode()) > ID_BYTES_MAX or "." in command.id:
        return f"the token id must be 1 to {ID_BYTES_MAX} bytes of text without a dot"
    if len(command.hash) != HASH_BYTES or not 0 < len(command.salt) <= SALT_BYTES_MAX:
        return "the token needs a SHA-256 hash and a salt"
    if not 0 <= command.lifetime_us <= LIFETIME_US_MAX:
        return "the token lifetime is negative or longer than 100 years"
    return ""


def fault_of_rule(rule: Rule) -> str:
    if rule.principal != EVERYONE and (fault := fault_of_principal(rule.principal)):
        return fault
    if bool(rule.topic) == bool(rule.name):
        return "a rule needs either a topic pattern or a name pattern; set exactly one"
    if not is_name(rule.topic or rule.name):
        return "the pattern is longer than 255 bytes or not valid Unicode"
    if rule.verbs != in_order(rule.verbs):
        return f"the verbs must be a subset of {', '.join(VERBS)}, without repeats, in this order"
    if rule.name and rule.verbs:
        return "a name rule cannot have verbs; omit them"
    if ADMIN in rule.verbs and rule.topic != EVERYTHING:
        return f"admin cannot be limited to certain topics; use {EVERYTHING!r}"
    if ADMIN in rule.verbs and rule.principal == EVERYONE:
        return "an admin rule cannot apply to everyone; name a user"
    return ""
