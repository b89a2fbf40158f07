"""Test the texts with which clients and nodes refuse invalid access commands (SEC-2)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from oncecast.security.values import Credentials, Rule
from oncecast.wire import commands as do
from oncecast.wire.access_faults import LIFETIME_US_MAX, access_fault

KEYS = Credentials(b"salt", 4096, bytes(32), bytes(32))
TOKEN = do.CreateToken("id", "ann", b"salt", bytes(32), 0)
CHOOSE = "choose another name"

FAULTS: list[tuple[Any, str]] = [
    (do.AddUser("", KEYS), "the user name is empty; use 1 to 128 bytes of UTF-8"),
    (
        do.AddUser("a" * 129, KEYS),
        "the user name is 129 bytes long (limit 128); use a shorter one",
    ),
    (
        do.AddUser("\ud800", KEYS),
        r"the user name '\ud800' is not valid Unicode; remove the unpaired surrogate",
    ),
    (do.AddUser("a\n", KEYS), r"the user name 'a\n' has unprintable characters; remove them"),
    (do.AddUser("a*", KEYS), "the user name 'a*' has a wildcard; remove * and ?"),
    (do.AddUser("anonymous", KEYS), f"the user name 'anonymous' is reserved; {CHOOSE}"),
    (
        do.AddUser("oncecast:x", KEYS),
        f"the user name 'oncecast:x' starts with the reserved 'oncecast:'; {CHOOSE}",
    ),
    (
        do.AddUser("a", replace(KEYS, iterations=1)),
        "the SCRAM iteration count is 1 (limits 4,096 and 4,000,000); derive the keys again",
    ),
    (
        do.AddUser("a", replace(KEYS, salt=bytes(65))),
        "the salt is 65 bytes long (limits 1 and 64); use a random salt of 16 bytes",
    ),
    (
        do.AddUser("a", replace(KEYS, server_key=b"short")),
        "a SCRAM-SHA-256 key is 5 bytes long instead of 32; derive the keys again",
    ),
    (do.RemoveUser(""), "the user name is empty; use 1 to 255 bytes of UTF-8"),
    (
        do.RevokeToken("x" * 256),
        "the token id is 256 bytes long (limit 255); use a shorter one",
    ),
    (replace(TOKEN, id=""), "the token id is empty; use 1 to 64 bytes of UTF-8"),
    (replace(TOKEN, id="a" * 65), "the token id is 65 bytes long (limit 64); use a shorter one"),
    (replace(TOKEN, id="a.b"), "the token id 'a.b' has a dot; remove it"),
    (
        replace(TOKEN, hash=b"short"),
        "the token hash is 5 bytes long instead of 32; hash the token with SHA-256",
    ),
    (
        replace(TOKEN, salt=b""),
        "the salt is 0 bytes long (limits 1 and 64); use a random salt of 16 bytes",
    ),
    (
        replace(TOKEN, lifetime_us=-5),
        "the token lifetime is -5e-06 s (minimum 0); use 0 for a token that never expires",
    ),
    (
        replace(TOKEN, lifetime_us=LIFETIME_US_MAX + 10**14),
        "the token lifetime is 37,657 days (limit 36,500); use a shorter time",
    ),
    (
        do.Allow(Rule("a", ("put",), "t" * 256)),
        "the pattern is 256 bytes long (limit 255); use a shorter one",
    ),
    (
        do.Allow(Rule("a", ("put",), "\ud800")),
        r"the pattern '\ud800' is not valid Unicode; remove the unpaired surrogate",
    ),
    (
        do.Allow(Rule("a", ("put",))),
        "the rule has neither a topic pattern nor a name pattern; set one of them",
    ),
    (
        do.Allow(Rule("a", ("put",), "t", "n")),
        "the rule has both the topic pattern 't' and the name pattern 'n'; make two rules",
    ),
    (
        do.Allow(Rule("a", (), "t")),
        "the rule for the topics 't' has no verb; use put, read, ack, manage or admin",
    ),
    (
        do.Allow(Rule("a", ("write",), "t")),
        "'write' is not a verb; use put, read, ack, manage or admin",
    ),
    (
        do.Allow(Rule("a", ("read", "put", "put"), "t")),
        "the verbs are read, put, put; send each verb once, in the order put, read",
    ),
    (
        do.Allow(Rule("a", ("put",), name="n")),
        "the rule for the name pattern 'n' has the verbs put; omit them",
    ),
    (
        do.Allow(Rule("a", ("admin",), "t*")),
        "admin cannot be limited to the topics 't*'; use the pattern '*'",
    ),
    (
        do.Allow(Rule("*", ("admin",), "*")),
        "an admin rule cannot apply to everyone ('*'); name a user",
    ),
]


@pytest.mark.parametrize(("command", "text"), FAULTS, ids=[text[:50] for _, text in FAULTS])
def test_refusal_names_the_value_the_limit_and_the_remedy(command: Any, text: str) -> None:
    """SEC-2"""
    fault = access_fault(command)
    assert fault is not None
    assert fault.fact == text
