"""Users, tokens and rules in the state machine."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from oncecast.broker import granting, moves, state
from oncecast.broker.granting import LOCKED
from oncecast.broker.machine import Machine
from oncecast.security.access import hash_of
from oncecast.security.values import Credentials, Rule
from oncecast.wire import commands as do
from oncecast.wire.errors import InvalidArgument, InvalidName, NotHere, TooMany
from oncecast.wire.limits import RULES_OF_PRINCIPAL_MAX
from oncecast.wire.results import AccessSet, MoveStep
from tests.broker.machine_steps import Steps

KEYS = Credentials(b"salt", 4096, bytes(32), bytes(32))
OTHER_KEYS = Credentials(b"pepper", 4096, bytes(32), bytes(32))
ROOT = do.AddUser("root", KEYS, admin=True)
ANN = do.AddUser("ann", KEYS)
TOKEN = do.CreateToken("id", "ann", b"salt", hash_of("secret", b"salt"), 0)
PUT = do.Allow(Rule("ann", ("put",), "t*"))
NAME = do.Allow(Rule("ann", (), name="job-*"))
EACH: list[Any] = [ANN, TOKEN, PUT, NAME]


def secured(*commands: Any) -> Steps:
    steps = Steps()
    for command in (ROOT, *commands):
        assert isinstance(steps.apply(command), AccessSet), command
    return steps


def entries(machine: Machine) -> Any:
    return list(machine.registry.access.entries())


def test_first_user_must_be_an_administrator() -> None:
    """SEC-2: otherwise no user could administer the cluster."""
    steps = Steps()
    assert steps.apply(ANN) == LOCKED
    assert steps.machine.registry.access.open
    assert steps.apply(ROOT) == AccessSet(2, already=False)
    access = steps.machine.registry.access
    assert not access.open
    assert access.is_admin("root")


def test_last_administrator_cannot_be_removed() -> None:
    steps = secured(ANN)
    admin = Rule("root", ("admin",), "*")
    assert steps.apply(do.RemoveUser("root")) == LOCKED
    assert steps.apply(do.Disallow(admin)) == LOCKED
    assert steps.apply(do.Disallow(replace(admin, verbs=()))) == LOCKED
    steps.apply(do.Allow(replace(admin, principal="ann")))
    assert steps.apply(do.RemoveUser("root")) == AccessSet(5, already=False)
    assert steps.apply(do.RemoveUser("ann")) == LOCKED


def test_only_user_cannot_be_removed() -> None:
    """SEC-2: otherwise the cluster would be open to everyone."""
    assert secured().apply(do.RemoveUser("root")) == LOCKED


def test_first_token_must_belong_to_an_administrator_and_never_expire() -> None:
    steps = Steps()
    assert steps.apply(TOKEN) == LOCKED
    steps.apply(do.Allow(Rule("ann", ("admin",), "*")))
    assert steps.apply(replace(TOKEN, lifetime_us=5)) == LOCKED
    assert isinstance(steps.apply(TOKEN), AccessSet)
    assert steps.apply(do.RevokeToken("id")) == LOCKED


def test_repeated_commands_change_nothing() -> None:
    steps = secured(*EACH)
    version = steps.machine.registry.access.version
    for command in EACH:
        assert steps.apply(command) == AccessSet(version, already=True)
    gone = (do.RemoveUser("missing"), do.RevokeToken("none"), do.Disallow(Rule("b", (), "t")))
    for command in gone:
        assert steps.apply(command) == AccessSet(version, already=True)


def test_late_duplicate_of_a_command_does_not_undo_later_changes() -> None:
    """SVC-2: a late copy of AddUser does not bring back a removed user, or an old password."""
    steps = secured(replace(ANN, token="x"))
    steps.apply(do.AddUser("ann", OTHER_KEYS))
    assert steps.apply(replace(ANN, token="x")) == AccessSet(3, already=True)
    assert steps.machine.registry.access.credentials_of("ann") == OTHER_KEYS
    steps.apply(do.RemoveUser("ann"))
    steps.apply(replace(ANN, token="x"))
    assert "ann" not in steps.machine.registry.access.users


def test_late_duplicate_of_a_command_still_advances_the_clock() -> None:
    steps = secured(replace(TOKEN, token="x", at=5000))
    steps.apply(replace(TOKEN, token="x", at=6000))
    assert steps.machine.registry.clock.now == 6000


def test_token_expires_after_its_lifetime() -> None:
    steps = secured()
    steps.apply(replace(TOKEN, at=5000, lifetime_us=100))
    access = steps.machine.registry.access
    assert access.principal_of_token("id.secret", 5099) == "ann"
    assert access.principal_of_token("id.secret", 5100) is None


def test_removed_rules_no_longer_apply() -> None:
    steps = secured(*EACH)
    access = steps.machine.registry.access
    assert access.allows("ann", "put", "t1")
    assert access.may_use("ann", "job-1")
    steps.apply(do.Disallow(PUT.rule))
    steps.apply(do.Disallow(NAME.rule))
    access = steps.machine.registry.access
    assert not access.allows("ann", "put", "t1")
    assert not access.may_use("ann", "job-1")


BAD: dict[str, Any] = {
    "empty user": do.AddUser("", KEYS),
    "user with a wildcard": do.AddUser("a*", KEYS),
    "user called anonymous": do.AddUser("anonymous", KEYS),
    "user that looks like a node": do.AddUser("oncecast:node", KEYS),
    "half of a surrogate pair": do.AddUser("\ud800", KEYS),
    "few iterations": do.AddUser("a", replace(KEYS, iterations=1)),
    "no salt": do.AddUser("a", replace(KEYS, salt=b"")),
    "long salt": do.AddUser("a", replace(KEYS, salt=bytes(65))),
    "short key": do.AddUser("a", replace(KEYS, stored_key=b"short")),
    "no user to remove": do.RemoveUser(""),
    "no token to revoke": do.RevokeToken("x" * 256),
    "token with a dot": replace(TOKEN, id="a.b"),
    "token without a principal": replace(TOKEN, principal=""),
    "token of everyone": replace(TOKEN, principal="*"),
    "token without a hash": replace(TOKEN, hash=b""),
    "negative lifetime": replace(TOKEN, lifetime_us=-1),
    "lifetime out of range": replace(TOKEN, lifetime_us=1 << 63),
    "rule without a pattern": do.Allow(Rule("a", ("put",))),
    "rule with two patterns": do.Allow(Rule("a", ("put",), "t", "n")),
    "rule without a verb": do.Allow(Rule("a", (), "t")),
    "rule with an unknown verb": do.Allow(Rule("a", ("fly",), "t")),
    "duplicate verb": do.Allow(Rule("a", ("put", "put"), "t")),
    "verbs on names": do.Allow(Rule("a", ("put",), name="n")),
    "long pattern": do.Allow(Rule("a", ("put",), "t" * 256)),
    "pattern of principals": do.Allow(Rule("a*", ("put",), "t")),
    "administrator of some topics": do.Allow(Rule("a", ("admin",), "t*")),
    "everyone as administrator": do.Allow(Rule("*", ("admin",), "*")),
    "bad rule to remove": do.Disallow(Rule("a", ())),
}


@pytest.mark.parametrize("command", BAD.values(), ids=BAD)
def test_invalid_command_is_refused_and_changes_nothing(command: Any) -> None:
    steps = secured()
    before = steps.machine.registry.access
    assert isinstance(steps.apply(command), InvalidArgument)
    assert steps.machine.registry.access is before


def test_call_token_must_be_a_valid_name() -> None:
    assert secured().apply(replace(ANN, token="x" * 256)) == InvalidName("token")


def test_rules_per_principal_are_limited() -> None:
    steps = secured()
    for number in range(RULES_OF_PRINCIPAL_MAX):
        steps.apply(do.Allow(Rule("ann", ("put",), str(number))))
    many = TooMany("rules of one principal", RULES_OF_PRINCIPAL_MAX)
    assert steps.apply(do.Allow(Rule("ann", ("put",), "more"))) == many
    assert isinstance(steps.apply(do.Allow(Rule("ann", ("read",), "1"))), AccessSet)
    assert isinstance(steps.apply(do.Allow(Rule("bob", ("put",), "more"))), AccessSet)


@pytest.mark.parametrize(("what", "limit"), [("users", 2), ("tokens", 1), ("rules", 2)])
def test_users_tokens_and_rules_are_limited(
    what: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"oncecast.broker.granting.{what.upper()}_MAX", limit)
    more: dict[str, list[Any]] = {
        "users": [ANN, do.AddUser("bob", KEYS)],
        "tokens": [TOKEN, replace(TOKEN, id="2")],
        "rules": [PUT, NAME],
    }
    steps = secured(more[what][0])
    assert steps.apply(more[what][1]) == TooMany(what, limit)
    assert isinstance(steps.apply(more[what][0]), AccessSet)


# Snapshots and moves.


def test_snapshot_restores_users_tokens_and_rules() -> None:
    """REP-2"""
    machine = secured(*EACH).machine
    chunks = list(machine.state())
    copy = Machine.restore(chunks)
    assert entries(copy) == entries(machine)
    assert copy.registry.access.version == machine.registry.access.version
    assert list(copy.state()) == chunks


def test_snapshot_splits_many_rules_into_several_rows() -> None:
    steps = secured()
    for number in range(1500):
        steps.apply(do.Allow(Rule(f"user-{number}", ("put",), "t")))
    copy = Machine.restore(list(steps.machine.state()))
    assert entries(copy) == entries(steps.machine)


def test_snapshot_without_users_has_no_access_rows() -> None:
    steps = Steps()
    steps.create()
    assert b"AccessRow" not in b"".join(steps.machine.state())


def test_checksum_covers_users_tokens_and_rules() -> None:
    sums = {secured(*EACH[:count]).machine.checksum() for count in range(len(EACH) + 1)}
    assert len(sums) == len(EACH) + 1


def test_ring_group_adopts_newer_rules() -> None:
    exporter = secured(*EACH)
    rows = state.access_out(exporter.machine.registry.access)
    assert list(state.access_in(rows).entries()) == entries(exporter.machine)
    importer = Steps()
    assert importer.apply(moves.ShareAccess(rows)) == MoveStep(False)  # this group is not on a ring
    importer.apply(moves.Found("g", first=True))
    importer.apply(moves.ShareAccess(rows))
    assert entries(importer.machine) == entries(exporter.machine)
    importer.apply(do.RemoveUser("ann"))
    importer.apply(moves.ShareAccess(rows))
    assert "ann" not in importer.machine.registry.access.users


def test_group_without_topics_refuses_users() -> None:
    """SEC-2: a new group does not know the users of its ring, so anyone could add the first one."""
    steps = Steps()
    steps.apply(moves.Found("g", first=False))
    assert steps.apply(ROOT) == NotHere("")
    assert steps.machine.registry.access.open


def test_token_without_a_lifetime_never_expires() -> None:
    """SEC-2"""
    access = secured(replace(TOKEN, at=5000)).machine.registry.access
    assert access.principal_of_token("id.secret", 1 << 60) == "ann"


def test_principal_may_have_as_many_rules_as_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(granting, "RULES_OF_PRINCIPAL_MAX", 2)
    steps = secured(ANN, PUT, NAME)
    more = do.Allow(Rule("ann", ("read",), "u"))
    assert steps.apply(more) == TooMany("rules of one principal", 2)


def test_group_above_a_limit_may_still_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """OPS-2: another version may have allowed more."""
    other = do.AddUser("bob", KEYS)
    steps = secured(ANN, other, TOKEN, replace(TOKEN, id="two"), PUT, NAME)
    for limit in ("USERS_MAX", "TOKENS_MAX", "RULES_MAX", "RULES_OF_PRINCIPAL_MAX"):
        monkeypatch.setattr(granting, limit, 1)
    for command in (
        do.AddUser("ann", OTHER_KEYS),
        do.RevokeToken("two"),
        do.RemoveUser("bob"),
        do.Disallow(PUT.rule),
    ):
        changed = steps.apply(command)
        assert isinstance(changed, AccessSet), command
        assert not changed.already
