"""Check that removing any rule about users, permissions and names makes a test fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oncecast.broker import state
from oncecast.broker.gateway import Gateway
from oncecast.broker.granting import Granting
from oncecast.broker.guard import Guard
from oncecast.broker.machine import Machine
from oncecast.broker.moving import Moving
from oncecast.broker.scanning import Scanner
from oncecast.broker.service import Service
from oncecast.kernel.stack import Stack
from oncecast.ring.pusher import Pusher
from oncecast.ring.relay import Relay
from oncecast.security.access import Access
from oncecast.security.patterns import Pattern
from tests.broker import test_guard as guard
from tests.broker import test_guard_joined as joined
from tests.broker import test_machine_access as machine
from tests.broker import test_needs as needs
from tests.lab.scenarios import test_access as world
from tests.mutants import Mutant, assert_detected, exact, replaced
from tests.ring import test_push_access as push
from tests.security import test_access as access
from tests.security.rules_oracle import compare

SEEDS = 5


def decisions(seed: int) -> None:
    compare(seed, 2000)


def on_desk(test: Callable[..., None]) -> Callable[[], None]:
    return lambda: test(guard.prepared())


def patched(test: Callable[..., None]) -> Callable[[], None]:
    def run() -> None:
        with pytest.MonkeyPatch.context() as patch:
            test(guard.prepared(), patch)

    return run


def moved() -> None:
    with pytest.MonkeyPatch.context() as patch:
        world.test_new_topic_owner_enforces_the_same_rules(0, patch)


RULES: dict[str, tuple[Any, str, str, str]] = {
    "rules limit an administrator": (Access, "_decide", "if granted.admin:", "if False:"),
    "verbs are ignored": (Access, "_decide", "if verb and not", "if False and not"),
    "names are ignored": (Access, "_decide", "return not name or", "return True or"),
    "a name that belongs to a longer principal is allowed": (
        Access, "_owns", "self._principals.isdisjoint((name, *longer))", "True",
    ),
    "a name prefix is accepted without a separator": (
        Access, "_owns", "own + each for each in SEPARATORS", "own for each in SEPARATORS",
    ),
    "rules for everyone are ignored": (
        Access, "_granted", "self._by_principal.get(EVERYONE, [])", "[]",
    ),
    "a cluster with tokens stays open": (
        Access, "__init__", "not users and not tokens", "not users",
    ),
    "the end of a pattern is ignored": (Pattern, "_walk", "bool(at & self._final)", "bool(at)"),
    "a star matches only one character": (Pattern, "_walk", "| (at & loops)", ""),
}  # fmt: skip

EXACT: dict[str, tuple[Callable[[], None], Any, str, str, str]] = {
    "the decision cache is unbounded": (
        access.test_decision_cache_is_bounded,
        Access, "permits", "len(self._decisions) >= DECISIONS_MAX", "False",
    ),
    "decisions about long names are cached": (
        access.test_decision_cache_is_bounded,
        Access, "permits", "len(topic) <= LENGTH_MAX >= len(name)", "True",
    ),
    "an expired token is valid": (
        access.test_token_is_valid_until_it_expires,
        Access, "holds", "now_us < token.expires_us", "True",
    ),
    "the secret of a token is ignored": (
        access.test_token_is_valid_until_it_expires,
        Access, "principal_of_token",
        "not hmac.compare_digest(hash_of(secret, token.salt), token.hash)", "False",
    ),
    "a removed user keeps its tokens": (
        access.test_removed_user_loses_tokens_and_rules,
        Access, "without_user", "self.tokens.items() if each.principal != name",
        "self.tokens.items()",
    ),
    "older rules win": (
        access.test_newer_access_wins_on_both_sides,
        Access, "newer", ">= (other", "<= (other",
    ),
    "the last administrator can be removed": (
        machine.test_last_administrator_cannot_be_removed,
        Granting, "_set", "if after.locked or", "if",
    ),
    "a late copy of a change is applied": (
        machine.test_late_duplicate_of_a_command_does_not_undo_later_changes,
        Machine, "_once", "known = registry.answered.get(token, topic)", "known = None",
    ),
    "a token never expires": (
        machine.test_token_expires_after_its_lifetime,
        Granting, "_after", "now + lifetime if lifetime else 0", "0",
    ),
    "a snapshot lacks the users": (
        machine.test_snapshot_restores_users_tokens_and_rules,
        state, "_rows", "yield from _access_rows(registry.access)", "pass",
    ),
    "rules do not move with topics": (
        moved, state, "moved_out", "rows += _access_rows(access)", "pass",
    ),
    "the importer ignores the rules": (
        moved, Moving, "adopt", "registry.access.newer(access)", "registry.access",
    ),
    "a new group accepts users": (
        machine.test_group_without_topics_refuses_users,
        Machine, "_elsewhere", "holdings.low is None", "False",
    ),
    "the stack ignores its guard": (
        on_desk(guard.test_allowed_requests_work_and_others_are_denied),
        Stack, "receive", "if self.guard is not None:", "if False:",
    ),
    "the guard admits denied requests": (
        needs.test_single_rule_allows_exactly_the_matching_requests,
        Guard, "judge", "if self._permits(", "if True or self._permits(",
    ),
    "a joined process accepts administrators too early": (
        lambda: joined.test_new_ring_process_accepts_admin_requests_once_it_knows_the_rules(
            joined.ADMINISTRATIVE[0], audits_open=True
        ),
        Guard, "judge", "if verb == ADMIN and self.unsettled():", "if False:",
    ),
    "an empty group accepts administrators": (
        joined.test_empty_ring_group_refuses_administrative_requests,
        Guard, "judge", "if verb == ADMIN and self.unsettled():", "if False:",
    ),
    "parts are published without the put right": (
        on_desk(guard.test_publish_through_another_topic_requires_rights_on_its_parts),
        Guard, "_may_publish", "return all(", "return True or all(",
    ),
    "a fetch acknowledges without the ack right": (
        on_desk(guard.test_ack_requires_the_ack_right),
        Gateway, "_fetch", "if not self._may(client, ACK, fetch.topic):", "if False:",
    ),
    "a list shows all topics": (
        on_desk(guard.test_list_contains_only_visible_topics),
        Gateway, "_names", "if access.open:", "if True:",
    ),
    "flows survive the removal of a rule": (
        on_desk(guard.test_removed_rule_ends_open_flows),
        Service, "_decided", "is not access:", "is None:",
    ),
    "queued scans survive the removal of a rule": (
        patched(guard.test_waiting_reads_are_dropped_when_rules_change),
        Scanner, "observe", "self._awaiting_lease.take()", "pass",
    ),
    "the owner does not check push readers": (
        push.test_owner_permits_only_readers_with_matching_rules,
        Pusher, "_permit", "not isinstance(found, NotHere) and", "False and",
    ),
    "push acks are not checked": (
        push.test_acks_are_forwarded_only_with_a_permit,
        Relay, "_tune", "if permit is not None and permit.may_ack:", "if True:",
    ),
}  # fmt: skip

MUTANTS = [Mutant(rule, replaced(*change), decisions, SEEDS) for rule, change in RULES.items()] + [
    Mutant(rule, replaced(*change), exact(test), 1) for rule, (test, *change) in EXACT.items()
]


@pytest.mark.mutants
@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_access_mutant_is_detected(mutant: Mutant) -> None:
    """SEC-2"""
    assert_detected(mutant)
