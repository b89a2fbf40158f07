"""Validate commands for users, tokens and rules. Clients and nodes share these stateless checks."""

from __future__ import annotations

from oncecast.security.access import ADMIN, EVERYONE, EVERYTHING, NAMELESS, VERBS, in_order
from oncecast.security.patterns import is_wild
from oncecast.security.principals import NAME_BYTES_MAX as USER_BYTES_MAX
from oncecast.security.principals import RESERVED, is_principal
from oncecast.security.scram import ITERATIONS_MAX, ITERATIONS_MIN
from oncecast.security.values import Credentials, Rule
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
from oncecast.wire.limits import NAME_BYTES_MAX

HASH_BYTES = 32
SALT_BYTES_MAX = 64
ID_BYTES_MAX = 64
DAY_US = 24 * 3600 * 1_000_000
LIFETIME_US_MAX = 100 * 365 * DAY_US
VERB_LIST = f"{', '.join(VERBS[:-1])} or {VERBS[-1]}"


def access_fault(command: AccessCommand) -> InvalidArgument | None:
    """Return a refusal if the command is invalid regardless of state, otherwise None."""
    fault = _fault(command)
    return InvalidArgument(fault) if fault else None


def _fault(command: AccessCommand) -> str:
    match command:
        case AddUser(name, credentials):
            return fault_of_principal(name) or fault_of_credentials(credentials)
        case CreateToken():
            return fault_of_principal(command.principal) or fault_of_token(command)
        case RemoveUser(name):
            return fault_of_text("user name", name)
        case RevokeToken(id):
            return fault_of_text("token id", id)
        case Allow(rule) if rule.topic and not rule.verbs:
            return f"the rule for the topics {rule.topic!r:.40} has no verb; use {VERB_LIST}"
        case Allow(rule) | Disallow(rule):
            return fault_of_rule(rule)


def fault_of_text(what: str, text: str, limit: int = NAME_BYTES_MAX) -> str:
    """Return why `text` is empty, too long or not Unicode, or "" if it is valid."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return f"the {what} {text!r:.40} is not valid Unicode; remove the unpaired surrogate"
    if not size:
        return f"the {what} is empty; use 1 to {limit} bytes of UTF-8"
    if size > limit:
        return f"the {what} is {size} bytes long (limit {limit}); use a shorter one"
    return ""


def fault_of_principal(name: str) -> str:
    fault = fault_of_text("user name", name, USER_BYTES_MAX)
    if fault:
        return fault
    shown = f"the user name {name!r:.40}"
    if not name.isprintable():
        return f"{shown} has unprintable characters; remove them"
    if is_wild(name):
        return f"{shown} has a wildcard; remove * and ?"
    if name == NAMELESS:
        return f"{shown} is reserved; choose another name"
    if not is_principal(name):
        return f"{shown} starts with the reserved {RESERVED!r}; choose another name"
    return ""


def fault_of_credentials(credentials: Credentials | None) -> str:
    if credentials is None:
        return ""
    if not ITERATIONS_MIN <= credentials.iterations <= ITERATIONS_MAX:
        return (
            f"the SCRAM iteration count is {credentials.iterations:,} (limits {ITERATIONS_MIN:,} "
            f"and {ITERATIONS_MAX:,}); derive the keys again"
        )
    for key in (credentials.stored_key, credentials.server_key):
        if len(key) != HASH_BYTES:
            return (
                f"a SCRAM-SHA-256 key is {len(key)} bytes long instead of {HASH_BYTES}; "
                "derive the keys again"
            )
    return fault_of_salt(credentials.salt)


def fault_of_salt(salt: bytes) -> str:
    if 0 < len(salt) <= SALT_BYTES_MAX:
        return ""
    limits = f"limits 1 and {SALT_BYTES_MAX}"
    return f"the salt is {len(salt)} bytes long ({limits}); use a random salt of 16 bytes"


def fault_of_token(command: CreateToken) -> str:
    fault = fault_of_text("token id", command.id, ID_BYTES_MAX)
    if fault:
        return fault
    if "." in command.id:
        return f"the token id {command.id!r} has a dot; remove it"
    if len(command.hash) != HASH_BYTES:
        size = len(command.hash)
        return (
            f"the token hash is {size} bytes long instead of {HASH_BYTES}; "
            "hash the token with SHA-256"
        )
    return fault_of_salt(command.salt) or fault_of_lifetime(command.lifetime_us)


def fault_of_lifetime(lifetime_us: int) -> str:
    if lifetime_us < 0:
        return (
            f"the token lifetime is {lifetime_us / 1e6:g} s (minimum 0); "
            "use 0 for a token that never expires"
        )
    if lifetime_us > LIFETIME_US_MAX:
        days, limit = lifetime_us // DAY_US, LIFETIME_US_MAX // DAY_US
        return f"the token lifetime is {days:,} days (limit {limit:,}); use a shorter time"
    return ""


def fault_of_rule(rule: Rule) -> str:
    if rule.principal != EVERYONE and (fault := fault_of_principal(rule.principal)):
        return fault
    if not rule.topic and not rule.name:
        return "the rule has neither a topic pattern nor a name pattern; set one of them"
    if rule.topic and rule.name:
        return (
            f"the rule has both the topic pattern {rule.topic!r:.40} and the name pattern "
            f"{rule.name!r:.40}; make two rules"
        )
    return fault_of_text("pattern", rule.topic or rule.name) or fault_of_verbs(rule)


def fault_of_verbs(rule: Rule) -> str:
    unknown = [verb for verb in rule.verbs if verb not in VERBS]
    if unknown:
        return f"{unknown[0]!r:.40} is not a verb; use {VERB_LIST}"
    if rule.verbs != in_order(rule.verbs):
        given, right = (", ".join(verbs[:8]) for verbs in (rule.verbs, in_order(rule.verbs)))
        return f"the verbs are {given}; send each verb once, in the order {right}"
    if rule.name and rule.verbs:
        verbs = ", ".join(rule.verbs)
        return f"the rule for the name pattern {rule.name!r:.40} has the verbs {verbs}; omit them"
    if ADMIN in rule.verbs and rule.topic != EVERYTHING:
        return (
            f"admin cannot be limited to the topics {rule.topic!r:.40}; "
            f"use the pattern {EVERYTHING!r}"
        )
    if ADMIN in rule.verbs and rule.principal == EVERYONE:
        return f"an admin rule cannot apply to everyone ({EVERYONE!r}); name a user"
    return ""
