"""A slow and simple check of rules, for comparison with the fast check."""

from __future__ import annotations

from random import Random

from oncecast.security.access import VERBS, Access, in_order
from oncecast.security.values import Rule, Token, User

LETTERS = "ab./é"
PRINCIPALS = ("", "a", "b", "a.b", "a/b", "é", "nobody")


def matches(pattern: str, text: str) -> bool:
    """Return whether the text matches, by comparing characters with backtracking."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return matches(pattern[1:], text) or (bool(text) and matches(pattern, text[1:]))
    return bool(text) and pattern[0] in ("?", text[0]) and matches(pattern[1:], text[1:])


def admin(access: Access, principal: str) -> bool:
    return any(
        rule.principal in (principal, "*") and "admin" in rule.verbs
        for rule in access.rules.values()
    )


def allows(access: Access, principal: str, verb: str, topic: str) -> bool:
    if not access.users and not access.tokens:
        return True
    return admin(access, principal) or any(
        rule.principal in (principal, "*") and verb in rule.verbs and matches(rule.topic, topic)
        for rule in access.rules.values()
    )


def may_use(access: Access, principal: str, name: str) -> bool:
    if (not access.users and not access.tokens) or admin(access, principal):
        return True
    for rule in access.rules.values():
        if rule.principal in (principal, "*") and rule.name and matches(rule.name, name):
            return True
    if principal == "" and len(name) == 16 and all(each in "0123456789abcdef" for each in name):
        return True
    known = {*access.users, *(each.principal for each in access.tokens.values())}
    known |= {rule.principal for rule in access.rules.values()} | {principal or "anonymous"}
    owners = [each for each in known if name == each or name.startswith((each + ".", each + "/"))]
    return max(owners, key=len, default=None) == (principal or "anonymous")


def drawn(rng: Random, letters: str, longest: int = 6) -> str:
    return "".join(rng.choices(letters, k=rng.randint(1, longest)))


def pattern(rng: Random) -> str:
    return drawn(rng, LETTERS + "**??")


def random_access(rng: Random) -> Access:
    access = Access()
    for principal in rng.sample(PRINCIPALS[1:], rng.randint(0, 4)):
        if rng.random() < 0.5:
            access = access.with_user(User(principal))
        else:
            access = access.with_token(Token(drawn(rng, "xyz"), principal, b"", b""))
    for _ in range(rng.randint(0, 8)):
        principal = rng.choice((*PRINCIPALS[1:], "*"))
        if rng.random() < 0.3:
            access = access.with_rule(Rule(principal, (), name=pattern(rng)))
        elif rng.random() < 0.05:
            access = access.with_rule(Rule(principal, ("admin",), "*"))
        else:
            verbs = in_order(rng.sample(VERBS[:-1], rng.randint(1, 4)))
            access = access.with_rule(Rule(principal, verbs, pattern(rng)))
    return access


def compare(seed: int, decisions: int) -> None:
    """Compare this many random decisions, with a new Access after every 100."""
    rng = Random(seed)
    access = Access()
    for count in range(decisions):
        if count % 100 == 0:
            access = random_access(rng)
        principal, verb = rng.choice(PRINCIPALS), rng.choice(VERBS)
        topic, name = drawn(rng, LETTERS), rng.choice(PRINCIPALS) + drawn(rng, LETTERS, 3)
        name = rng.choice((name, f"anonymous{name}"))
        allowed, usable = allows(access, principal, verb, topic), may_use(access, principal, name)
        case = (list(access.entries()), principal, verb, topic, name)
        assert access.allows(principal, verb, topic) == allowed, case
        assert access.may_use(principal, name) == usable, case
        assert access.permits(principal, verb, topic, name) == (allowed and usable), case
