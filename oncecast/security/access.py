"""Users, tokens and rules, and the permission check.

A rule allows a principal certain verbs on all topics that match a pattern, or the use of all names
that match a pattern. The principal `*` stands for every client, even without a login.

    put       OpenProducer, Put, staged puts         manage    create, change and delete topics
    read      subscriptions, scans                   admin     everything, on every topic
    ack       acknowledge messages

Access is open, and everything is allowed, until the first user or token is created. From then on, a
request needs a rule that allows it. A principal may use its own name, and all names that start with
its name and a dot or a slash.

An Access is immutable. A change returns a new Access with the next version, or the same Access if
nothing changed.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from hashlib import sha256
from types import MappingProxyType
from typing import Self

from oncecast.security.patterns import LENGTH_MAX, Patterns, literal_prefix
from oncecast.security.principals import ANONYMOUS, NODE
from oncecast.security.values import Credentials, Rule, RuleKey, Token, User, token_id

PUT, READ, ACK, MANAGE, ADMIN = VERBS = ("put", "read", "ack", "manage", "admin")
# Some requests need one of these permissions instead of a verb.
SEE = "see"  # read or manage, so that the topic appears in lists
KNOWN = "known"  # be known to the cluster
PUTS = "puts"  # put on any topic, for requests that name no topic
EVERYONE = "*"  # the principal of a rule for all clients
EVERYTHING = "*"  # the pattern that matches all topics and all names
NAMELESS = "anonymous"  # name prefix of clients without a login
SEPARATORS = "./"
ASSIGNED_CHARACTERS = 16
HEXADECIMAL = frozenset("0123456789abcdef")
DECISIONS_MAX = 50_000  # maximum number of cached decisions


class Grants:
    """The compiled rules of one principal, including the rules for everyone."""

    __slots__ = ("admin", "names", "prefixes", "topics")

    def __init__(self, rules: Iterable[Rule]) -> None:
        rules = list(rules)
        self.admin = any(ADMIN in rule.verbs for rule in rules)
        self.topics = {
            verb: Patterns(rule.topic for rule in rules if verb in rule.verbs) for verb in VERBS
        }
        self.names = Patterns(rule.name for rule in rules if rule.name)
        seen = (rule.topic for rule in rules if READ in rule.verbs or MANAGE in rule.verbs)
        self.prefixes = {literal_prefix(topic) for topic in seen}  # prefixes of visible topics


class Access:
    def __init__(
        self,
        users: Mapping[str, User] = MappingProxyType({}),
        tokens: Mapping[str, Token] = MappingProxyType({}),
        rules: Mapping[RuleKey, Rule] = MappingProxyType({}),
        version: int = 0,
    ) -> None:
        self.users, self.tokens, self.rules, self.version = users, tokens, rules, version
        self.open = not users and not tokens
        self._grants: dict[str, Grants] = {}
        self._decisions: dict[tuple[str, str, str, str], bool] = {}

    # -- the check --

    def allows(self, principal: str, verb: str, topic: str) -> bool:
        """Return whether the principal may use the verb on the topic."""
        return self.permits(principal, verb, topic, "")

    def may_use(self, principal: str, name: str) -> bool:
        """Return whether the principal may use this name for a client, producer or subscription."""
        return self.permits(principal, "", "", name)

    def permits(self, principal: str, verb: str, topic: str, name: str) -> bool:
        """Return whether the verb, topic and name are allowed. Empty parts are not checked."""
        if self.open:
            return True
        key = (principal, verb, topic, name)
        known = self._decisions.get(key)
        if known is None:
            known = self._decide(principal, verb, topic, name)
            # Longer names are refused, and the decision is not cached.
            if len(topic) <= LENGTH_MAX >= len(name):
                if len(self._decisions) >= DECISIONS_MAX:
                    self._decisions.clear()
                self._decisions[key] = known
        return known

    def is_admin(self, principal: str) -> bool:
        return self.open or self._granted(principal).admin

    def knows(self, principal: str) -> bool:
        """Return whether the principal is a user or a node, or is named in a rule."""
        return (
            self.open or principal == NODE or not self._principals.isdisjoint((principal, EVERYONE))
        )

    def sees(self, principal: str, topic: str) -> bool:
        """Return whether a list of topics shows this topic to the principal.

        The decision is not cached.
        """
        return self.is_admin(principal) or self._has(principal, SEE, topic)

    def prefixes(self, principal: str, prefix: str) -> list[str]:
        """Return prefixes that cover all topics with `prefix` that the principal may see.

        They are sorted, and none is a prefix of another.
        """
        granted = self._granted(principal)
        seen = [""] if self.is_admin(principal) else sorted(granted.prefixes)
        narrow: list[str] = []
        for each in seen:
            if each.startswith(prefix) or prefix.startswith(each):
                longer = max(each, prefix, key=len)
                if not narrow or not longer.startswith(narrow[-1]):
                    narrow.append(longer)
        return narrow

    @property
    def serves_anonymous(self) -> bool:
        """Return whether a client without a login has any permission."""
        return self.knows(ANONYMOUS)

    def _decide(self, principal: str, verb: str, topic: str, name: str) -> bool:
        granted = self._granted(principal)
        if granted.admin:
            return True
        if len(topic) > LENGTH_MAX or len(name) > LENGTH_MAX:
            return False
        if verb and not self._has(principal, verb, topic):
            return False
        return not name or granted.names.match(name) or self._owns(principal, name)

    def _has(self, principal: str, verb: str, topic: str) -> bool:
        if verb == KNOWN:
            return self.knows(principal)
        topics = self._granted(principal).topics
        if verb == PUTS:
            return bool(topics[PUT])
        verbs = (READ, MANAGE) if verb == SEE else (verb,)
        return any(each in topics and topics[each].match(topic) for each in verbs)

    def _granted(self, principal: str) -> Grants:
        principal = principal if principal in self._by_principal else EVERYONE
        known = self._grants.get(principal)
        if known is None:
            rules = self._by_principal.get(EVERYONE, [])
            if principal != EVERYONE:
                rules = rules + self._by_principal[principal]
            known = self._grants[principal] = Grants(rules)
        return known

    def _owns(self, principal: str, name: str) -> bool:
        """Return whether the principal owns this name.

        If the name matches several principals, the one with the longest name owns it.
        """
        if principal == ANONYMOUS and is_assigned(name):
            return name not in self._principals
        own = principal or NAMELESS
        if name != own and not name.startswith(tuple(own + each for each in SEPARATORS)):
            return False
        longer = (name[:at] for at in range(len(own) + 1, len(name)) if name[at] in SEPARATORS)
        return name == own or self._principals.isdisjoint((name, *longer))

    @cached_property
    def _by_principal(self) -> dict[str, list[Rule]]:
        found: dict[str, list[Rule]] = {}
        for rule in self.rules.values():
            found.setdefault(rule.principal, []).append(rule)
        return found

    @property
    def rules_of_largest(self) -> int:
        """Return the largest number of rules that any principal has."""
        return max(map(len, self._by_principal.values()), default=0)

    @cached_property
    def _principals(self) -> frozenset[str]:
        named = (token.principal for token in self.tokens.values())
        return frozenset((*self.users, *named, *self._by_principal))

    # -- logins --

    def credentials_of(self, user: str) -> Credentials | None:
        known = self.users.get(user)
        return None if known is None else known.credentials

    def principal_of_token(self, text: str, now_us: int) -> str | None:
        """Return the principal of a token, or None if the token is not valid."""
        id, secret = token_id(text), text.partition(".")[2]
        token = self.tokens.get(id, UNKNOWN_TOKEN)
        if not hmac.compare_digest(hash_of(secret, token.salt), token.hash):
            return None
        return token.principal if self.holds(id, token.principal, now_us) else None

    def holds(self, id: str, principal: str, now_us: int) -> bool:
        """Return whether `id` is an unexpired token of this principal."""
        token = self.tokens.get(id)
        if token is None or token.principal != principal:
            return False
        return not token.expires_us or now_us < token.expires_us

    @property
    def locked(self) -> bool:
        """Return whether all administrators lack both a password and a permanent token."""
        if self.open:
            return False
        lasting = {each.principal for each in self.tokens.values() if not each.expires_us}
        admins = (rule.principal for rule in self.rules.values() if ADMIN in rule.verbs)
        return not any(each in self.users or each in lasting for each in admins)

    # -- changes --

    def with_user(self, user: User) -> Self:
        return self._changed(users={**self.users, user.name: user})

    def without_user(self, name: str) -> Self:
        """Remove a user with its tokens and rules, so that a later user of that name gets none."""
        if name not in self.users:
            return self
        return self._changed(
            users={key: each for key, each in self.users.items() if key != name},
            tokens={key: each for key, each in self.tokens.items() if each.principal != name},
            rules={key: each for key, each in self.rules.items() if each.principal != name},
        )

    def with_token(self, token: Token) -> Self:
        return self._changed(tokens={**self.tokens, token.id: token})

    def without_token(self, id: str) -> Self:
        return self._changed(tokens={key: each for key, each in self.tokens.items() if key != id})

    def with_rule(self, rule: Rule) -> Self:
        """Add the verbs to those that the principal already has on the same pattern."""
        known = self.rules.get(rule.key, rule)
        both = Rule(rule.principal, in_order({*known.verbs, *rule.verbs}), rule.topic, rule.name)
        return self._changed(rules={**self.rules, rule.key: both})

    def without_rule(self, rule: Rule) -> Self:
        """Remove these verbs from a rule, or the whole rule if `rule` has no verbs."""
        known = self.rules.get(rule.key)
        if known is None:
            return self
        left = in_order(set(known.verbs).difference(rule.verbs)) if rule.verbs else ()
        rules = {key: each for key, each in self.rules.items() if key != rule.key or left}
        if left:
            rules[rule.key] = Rule(rule.principal, left, rule.topic, rule.name)
        return self._changed(rules=rules)

    def _changed(
        self,
        users: Mapping[str, User] | None = None,
        tokens: Mapping[str, Token] | None = None,
        rules: Mapping[RuleKey, Rule] | None = None,
    ) -> Self:
        content = (
            self.users if users is None else users,
            self.tokens if tokens is None else tokens,
            self.rules if rules is None else rules,
        )
        if content == (self.users, self.tokens, self.rules):
            return self
        return type(self)(*content, self.version + 1)

    # -- copies of other groups --

    def newer(self, other: Access) -> Access:
        """Return the Access with the higher version. The digest decides between equal versions."""
        if self is other or (self.version, self._digest) >= (other.version, other._digest):
            return self
        return other

    @cached_property
    def _digest(self) -> bytes:
        return sha256(repr(list(self.entries())).encode()).digest()

    def entries(self) -> Iterator[User | Token | Rule]:
        yield from self.users.values()
        yield from self.tokens.values()
        yield from self.rules.values()


def access_of(entries: Iterable[User | Token | Rule], version: int) -> Access:
    """Return the Access with these entries."""
    users: dict[str, User] = {}
    tokens: dict[str, Token] = {}
    rules: dict[RuleKey, Rule] = {}
    for each in entries:
        if isinstance(each, User):
            users[each.name] = each
        elif isinstance(each, Token):
            tokens[each.id] = each
        else:
            rules[each.key] = each
    return Access(users, tokens, rules, version)


def is_assigned(name: str) -> bool:
    """Return whether `name` looks like the random names that nodes assign to anonymous clients."""
    return len(name) == ASSIGNED_CHARACTERS and HEXADECIMAL.issuperset(name)


def in_order(verbs: Iterable[str]) -> tuple[str, ...]:
    return tuple(verb for verb in VERBS if verb in verbs)


def hash_of(secret: str, salt: bytes) -> bytes:
    """Return the hash of a token's secret for storage. The secret is too long to be guessed."""
    return sha256(salt + secret.encode(errors="replace")).digest()


# Makes the check of an unknown id take the same time as that of a known one.
UNKNOWN_TOKEN = Token("", "", bytes(16), bytes(32))
OPEN = Access()
