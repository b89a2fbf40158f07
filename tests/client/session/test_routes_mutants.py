"""Check that removing any routing rule makes a test fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oncecast.client.session.calls import Calls
from oncecast.client.session.client import ClientSession
from oncecast.client.session.producing import Flow
from oncecast.client.session.reading import Reader
from oncecast.client.session.route import Route
from oncecast.client.session.routes import Routes
from tests.client.session import test_route as route
from tests.client.session import test_routes as routes
from tests.client.session import test_routes_moving as moving
from tests.mutants import Mutant, assert_detected, replaced

pytestmark = pytest.mark.mutants

RULES: dict[str, tuple[Callable[[], None], Any, str, str, str]] = {
    "an owner is found but not asked": (
        routes.test_request_goes_to_the_group_that_owns_its_topic,
        Routes, "owned", "self._ask_again(topic, 0.0)", "pass",
    ),
    "a group is not watched": (
        routes.test_request_goes_to_the_group_that_owns_its_topic,
        Routes, "_route_to", "self._host.watch(route.node)", "pass",
    ),
    "one group gets the requests about all topics": (
        routes.test_only_requests_about_the_topic_go_to_its_group,
        Routes, "timeout", "topic in fresh and topic not in self._fresh", "True",
    ),
    "calls from a lost link are sent to all groups": (
        routes.test_leader_change_does_not_affect_other_groups,
        ClientSession, "redial", "self.routes.bound_to(topic) is route", "True",
    ),
    "every answer binds the topic again": (
        routes.test_repeated_owner_answer_changes_nothing,
        Routes, "owned", "if bound is None:", "if True:",
    ),
    "owners are accepted from any node": (
        routes.test_owners_are_accepted_only_from_the_entry,
        ClientSession, "receive", "elif route is self.entry:", "else:",
    ),
    "answers are expected from all groups": (
        routes.test_only_nodes_in_a_silent_group_are_asked,
        ClientSession, "owing", "return {", "return set(self.routes) | {",
    ),
    "an unreachable group is never abandoned": (
        routes.test_entry_is_asked_again_if_a_group_is_unreachable,
        Route, "gone", "self._failures > ROUNDS * len(self.nodes)", "False",
    ),
    "every answer restarts the wait for a leader": (
        route.test_busy_client_leaves_a_node_without_a_known_leader,
        Route, "_wait_here", "if not self._waiting:", "if True:",
    ),
    "a shared link is dropped": (
        routes.test_entry_and_a_group_may_use_the_same_node,
        Routes, "left", "if node not in self.at:", "if True:",
    ),
    "the client stays with a silent process": (
        routes.test_client_moves_from_a_silent_process_to_the_next_process,
        Route, "_leave_silent", "self._move_to(self._next_node())", "pass",
    ),
    "other processes are not learned": (
        routes.test_any_ring_process_can_be_the_entry,
        Routes, "owned", "self._meet(nodes)", "pass",
    ),
    "unused bindings are never deleted": (
        routes.test_unused_bindings_are_deleted_with_the_link_to_their_group,
        Routes, "_sweep", "bound.used = False", "pass",
    ),
    "bindings in use are deleted": (
        routes.test_bindings_in_use_are_kept,
        Routes, "_sweep", "{*used, *self._pending.topics_in_use()}", "set()",
    ),
    "a group without topics is not dropped": (
        routes.test_unused_bindings_are_deleted_with_the_link_to_their_group,
        Routes, "_keep", "self._drop(route)", "pass",
    ),
    "a moved topic stays bound": (
        moving.test_only_requests_about_the_topic_move_with_it,
        Routes, "not_here", "self._bound.pop(topic, None)", "pass",
    ),
    "a late answer from the old group is accepted": (
        moving.test_late_answer_from_the_old_group_has_no_effect,
        Routes, "not_here", "self.bound_to(topic) is route and", "True and",
    ),
    "an inconsistent ring is asked without backoff": (
        moving.test_lookups_in_an_inconsistent_ring_back_off,
        Routes, "_miss", "if before else 0.0", "if False else 0.0",
    ),
    "old inconsistencies are never forgotten": (
        moving.test_old_inconsistency_does_not_slow_down_lookups,
        Routes, "_miss", "host.now < last + FORGIVEN_AFTER", "last",
    ),
    "NotHere counts as an answer": (
        moving.test_lookups_in_an_inconsistent_ring_back_off,
        Calls, "answered", "if type(answer.result) is NotHere:", "if False:",
    ),
    "a put to a moved topic counts as refused": (
        moving.test_puts_continue_at_the_new_group_with_the_same_numbers,
        Flow, "answered", "case NotHere():", "case NotHere() if False:",
    ),
    "each put to a moved topic causes a resend": (
        moving.test_several_batches_refused_by_the_old_group_are_resent_once,
        Flow, "answered",
        "case Gap() | NotHere() if id_ < self._mark:", "case Gap() if id_ < self._mark:",
    ),
    "a reader of a moved topic is ended": (
        moving.test_reader_continues_at_the_new_group_from_its_position,
        Reader, "flow_ended", "case errors.NotHere():", "case errors.NotHere() if False:",
    ),
}  # fmt: skip


def mutant(rule: str) -> Mutant:
    test, *change = RULES[rule]
    return Mutant(rule, replaced(*change), lambda seed: test(), 1)


MUTANTS = [mutant(rule) for rule in RULES]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_routing_mutant_is_detected(mutant: Mutant) -> None:
    """SVC-2 SVC-3 SVC-13"""
    assert_detected(mutant)
