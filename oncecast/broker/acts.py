"""Describe administrative requests for the audit log."""

from __future__ import annotations

from oncecast.kernel.protocol import Value
from oncecast.replication.events import Change, HandOver
from oncecast.security.values import Rule
from oncecast.wire import commands as do
from oncecast.wire.frames import Call, Govern, LeaveRing


def asked_of(message: Value) -> Value:
    """Return the command if the message is a call, or else the message itself."""
    return message.command if isinstance(message, Call) else message


def is_act(message: Value) -> bool:
    """Return whether an administrative request changes the cluster instead of only reading it."""
    return isinstance(message, Call | Govern | LeaveRing)


def object_of(message: Value) -> str:
    """Return the user, token, rule or node that a request changes, or "" for other requests."""
    match asked_of(message):
        case do.AddUser(name) | do.RemoveUser(name):
            return f"user {name}"
        case do.CreateToken(id, principal):
            return f"token {id} of {principal}"
        case do.RevokeToken(id):
            return f"token {id}"
        case do.Allow(rule) | do.Disallow(rule):
            return in_words(rule)
        case Govern(_, Change(add, remove, size)):
            facts = {"add": add, "remove": remove, "size": size}
            return ", ".join(f"{name} {fact}" for name, fact in facts.items() if fact)
        case Govern(_, HandOver(successor)):
            return f"leader {successor}"
        case _:
            return ""


def in_words(rule: Rule) -> str:
    pattern = f"topics {rule.topic}" if rule.topic else f"names {rule.name}"
    return f"rule {' '.join((rule.principal, *rule.verbs, pattern))}"
