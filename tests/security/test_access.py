"""Test rules, names, users and tokens, and how they are checked."""

from __future__ import annotations

from random import Random

import pytest

from oncecast.security.access import DECISIONS_MAX, VERBS, Access, access_of, hash_of
from oncecast.security.patterns import Pattern, Patterns
from oncecast.security.principals import NODE
from oncecast.security.values import Credentials, Rule, Token, User
from tests.security.rules_oracle import compare, drawn, matches, pattern, random_access

KEYS = Credentials(b"salt", 4096, b"stored", b"server")
ROOT = Access().with_user(User("root", KEYS)).with_rule(Rule("root", ("admin",), "*"))


@pytest.mark.parametrize("seed", range(4))
def test_decisions_agree_with_the_oracle(seed: int) -> None:
    """SEC-2: the test makes 20,000 decisions, or a million with `-m soak`."""
    compare(seed, 5000)


@pytest.mark.soak
def test_million_decisions_agree_with_the_oracle() -> None:
    """SEC-2"""
    for seed in range(100):
        compare(seed, 10_000)


# Patterns.


def test_patterns_agree_with_a_slow_matcher() -> None:
    rng = Random(1)
    for _ in range(5000):
        each, text = pattern(rng), drawn(rng, "ab./é", 8)
        assert Patterns([each]).match(text) == matches(each, text), (each, text)


def test_pattern_with_many_wildcards_is_matched_without_backtracking() -> None:
    assert not Pattern("*a" * 127 + "b").matches("a" * 255)
    assert Pattern("*?" * 127).matches("a" * 255)
    assert not Pattern("?" * 255 + "*").matches("a" * 254)


def test_pattern_without_a_wildcard_matches_only_itself() -> None:
    assert Patterns(["a.b"]).match("a.b")
    assert not Patterns(["a.b"]).match("a_b")
    assert not Patterns([]).match("a")


# Open and closed.


def test_everything_is_allowed_until_a_user_or_a_token_exists() -> None:
    """SEC-2: access is denied by default as soon as one user exists."""
    rules = Access().with_rule(Rule("a", ("put",), "t"))
    for access in (Access(), rules):
        assert access.open
        assert access.allows("", "admin", "t")
        assert access.may_use("", "anything")
        assert access.is_admin("")
    for access in (rules.with_user(User("a")), rules.with_token(Token("i", "a", b"", b""))):
        assert not access.open
        assert not access.allows("", "put", "t")
        assert access.allows("a", "put", "t")
        assert not access.allows("a", "read", "t")


def test_administrator_may_do_everything() -> None:
    assert all(ROOT.allows("root", verb, "any") for verb in VERBS)
    assert ROOT.may_use("root", "name of another")
    assert ROOT.allows("root", "put", "x" * 1000)  # the state machine refuses the name
    assert not ROOT.is_admin("other")


def test_rule_for_everyone_applies_to_anonymous_clients() -> None:
    assert not ROOT.serves_anonymous
    access = ROOT.with_rule(Rule("*", ("read",), "public.*"))
    assert access.serves_anonymous
    for principal in ("", "a", "root"):
        assert access.allows(principal, "read", "public.news")
    assert not access.allows("", "put", "public.news")


def test_known_principals_are_users_nodes_and_principals_with_rules() -> None:
    access = ROOT.with_rule(Rule("by-certificate", ("read",), "t"))
    access = access.with_token(Token("id", "by-token", b"", b""))
    known = ("root", "by-certificate", "by-token", NODE)
    assert all(access.knows(each) for each in known)
    assert not access.knows("")
    assert not access.knows("other")


def test_readers_and_managers_see_a_topic_in_lists() -> None:
    access = ROOT
    for verb in VERBS[:-1]:
        access = access.with_rule(Rule(verb, (verb,), "t"))
    assert [verb for verb in VERBS if access.sees(verb, "t")] == ["read", "manage"]


def test_prefixes_cover_each_visible_topic_once() -> None:
    access = ROOT
    for pattern_ in ("a.*", "a.b?", "ab", "c*", "x*.y", "é"):
        access = access.with_rule(Rule("ann", ("read",), pattern_))
    access = access.with_rule(Rule("ann", ("put",), "*"))
    assert access.prefixes("ann", "") == ["a.", "ab", "c", "x", "é"]
    assert access.prefixes("ann", "a") == ["a.", "ab"]
    assert access.prefixes("ann", "a.b") == ["a.b"]
    assert access.prefixes("ann", "z") == []
    assert access.prefixes("root", "z") == ["z"]
    assert access.prefixes("bob", "") == []


# Names.


def test_principal_may_use_its_own_name_and_names_below_it() -> None:
    access = ROOT.with_user(User("ann"))
    for name in ("ann", "ann.1", "ann/1", "ann.x/y"):
        assert access.may_use("ann", name)
    for name in ("ann1", "an", "bob", "bob.ann", "root"):
        assert not access.may_use("ann", name)
    assert access.with_rule(Rule("ann", (), name="job-*")).may_use("ann", "job-7")


def test_principal_cannot_use_names_that_belong_to_a_longer_principal() -> None:
    access = ROOT.with_user(User("ann")).with_user(User("ann.bot"))
    assert not access.may_use("ann", "ann.bot")
    assert not access.may_use("ann", "ann.bot/1")
    assert access.may_use("ann.bot", "ann.bot/1")
    assert access.may_use("ann", "ann.other")


def test_anonymous_client_uses_names_below_anonymous() -> None:
    assert ROOT.may_use("", "anonymous/1f")
    assert not ROOT.may_use("", "1f")


def test_anonymous_client_may_use_a_name_assigned_by_a_node() -> None:
    assigned = "0123456789abcdef"
    assert ROOT.may_use("", assigned)
    assert not ROOT.may_use("ann", assigned)
    assert not ROOT.with_user(User(assigned)).may_use("", assigned)


# Decisions are remembered.


def test_decision_cache_is_bounded() -> None:
    access = ROOT.with_user(User("ann"))
    for number in range(DECISIONS_MAX + 10):
        access.allows("ann", "put", str(number))
    assert 0 < len(access._decisions) <= DECISIONS_MAX
    before = len(access._decisions)
    assert not access.allows("ann", "put", "x" * 256)
    assert not access.may_use("ann", "ann." + "x" * 256)
    assert len(access._decisions) == before


def test_rule_changes_take_effect_immediately() -> None:
    before = ROOT.with_user(User("ann"))
    assert not before.allows("ann", "put", "t")
    after = before.with_rule(Rule("ann", ("put",), "t"))
    assert after.allows("ann", "put", "t")
    assert not before.allows("ann", "put", "t")
    assert not after.without_rule(Rule("ann", ("put",), "t")).allows("ann", "put", "t")


# Changes.


def test_version_increases_only_with_changes() -> None:
    ann = ROOT.with_user(User("ann", KEYS))
    assert ann.version == ROOT.version + 1
    assert ann.with_user(User("ann", KEYS)) is ann
    assert ann.without_user("bob") is ann
    assert ann.without_token("id") is ann
    assert ann.without_rule(Rule("ann", ("put",), "t")) is ann
    assert ann.with_user(User("ann", None)).version == ann.version + 1


def test_verbs_for_the_same_pattern_accumulate() -> None:
    access = ROOT.with_rule(Rule("a", ("read",), "t")).with_rule(Rule("a", ("put",), "t"))
    assert access.rules["a", "t", ""] == Rule("a", ("put", "read"), "t")
    access = access.without_rule(Rule("a", ("put",), "t"))
    assert access.rules["a", "t", ""] == Rule("a", ("read",), "t")
    assert ("a", "t", "") not in access.without_rule(Rule("a", (), "t")).rules


def test_removed_user_loses_tokens_and_rules() -> None:
    access = ROOT.with_user(User("ann")).with_token(Token("id", "ann", b"", b""))
    access = access.with_rule(Rule("ann", ("put",), "t")).without_user("ann")
    assert list(access.entries()) == list(ROOT.entries())


def test_cluster_is_locked_if_no_administrator_can_log_in() -> None:
    assert not Access().locked
    assert not ROOT.locked
    assert ROOT.without_rule(Rule("root", ("admin",), "*")).locked
    only_rule = Access().with_rule(Rule("ops", ("admin",), "*"))
    assert only_rule.with_user(User("ann")).locked
    assert not only_rule.with_token(Token("id", "ops", b"", b"")).locked
    assert only_rule.with_token(Token("id", "ops", b"", b"", expires_us=5)).locked


# Logins.


def test_token_is_valid_until_it_expires() -> None:
    token = Token("id", "ann", b"salt", hash_of("secret", b"salt"), expires_us=1000)
    access = ROOT.with_token(token)
    assert access.principal_of_token("id.secret", 999) == "ann"
    assert access.principal_of_token("id.secret", 1000) is None
    for wrong in ("id.Secret", "id.", "id", "", ".", "other.secret", "id.secret.", "\ud800"):
        assert access.principal_of_token(wrong, 0) is None


def test_credentials_are_found_by_user_name() -> None:
    assert ROOT.credentials_of("root") == KEYS
    assert ROOT.credentials_of("ann") is None


# Copies.


def test_entries_restore_the_same_access() -> None:
    for seed in range(50):
        access = random_access(Random(seed))
        copy = access_of(access.entries(), access.version)
        assert list(copy.entries()) == list(access.entries())
        assert copy.open == access.open


def test_newer_access_wins_on_both_sides() -> None:
    ann, bob = ROOT.with_user(User("ann")), ROOT.with_user(User("bob"))
    assert ROOT.newer(ann) is ann
    assert ann.newer(ROOT) is ann
    assert ann.newer(bob).users == bob.newer(ann).users
