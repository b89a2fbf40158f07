"""Routing without any one of its rules fails its exact test."""

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
from tests.mutants import Mutant, must_be_noticed, replaced

pytestmark = pytest.mark.mutants

RULES: dict[str, tuple[Callable[[], None], Any, str, str, str]] = {
    "found and not asked again": (
        routes.test_topic_of_another_group_is_asked_for_there,
        Routes, "owned", "self._ask_again(topic, 0.0)", "pass",
    ),
    "group not watched": (
        routes.test_topic_of_another_group_is_asked_for_there,
        Routes, "_route_to", "self._host.watch(route.node)", "pass",
    ),
    "all asked again where one topic is": (
        routes.test_all_requests_about_the_topic_go_there_and_no_others,
        Routes, "timeout", "topic in fresh and topic not in self._fresh", "True",
    ),
    "calls of a lost link sent to all groups": (
        routes.test_a_group_that_changes_its_leader_disturbs_no_other,
        ClientSession, "redial", "self.routes.bound_to(topic) is route", "True",
    ),
    "bound again by every answer": (
        routes.test_repeated_owner_changes_nothing,
        Routes, "owned", "if bound is None:", "if True:",
    ),
    "any node believed about owners": (
        routes.test_only_the_entry_is_believed_about_owners,
        ClientSession, "receive", "elif route is self.entry:", "else:",
    ),
    "all groups thought to owe an answer": (
        routes.test_a_silent_group_is_asked_around_in_and_no_other,
        ClientSession, "owing", "return {", "return set(self.routes) | {",
    ),
    "unreachable group never given up": (
        routes.test_entry_is_asked_again_if_a_group_is_unreachable,
        Route, "gone", "self._failures > ROUNDS * len(self.nodes)", "False",
    ),
    "wait at a node without a leader begun again by every answer": (
        route.test_a_busy_client_leaves_a_node_that_knows_no_leader,
        Route, "_wait_here", "if not self._waiting:", "if True:",
    ),
    "shared link dropped": (
        routes.test_entry_and_a_group_may_use_the_same_node,
        Routes, "left", "if node not in self.at:", "if True:",
    ),
    "silent process kept": (
        routes.test_a_silent_process_is_left_for_the_next,
        Route, "_leave_silent", "self._move_to(self._next_node())", "pass",
    ),
    "other processes not learned": (
        routes.test_any_process_of_the_ring_can_be_the_entry,
        Routes, "owned", "self._meet(nodes)", "pass",
    ),
    "nothing ever forgotten": (
        routes.test_unused_bindings_are_deleted_and_their_group_is_left,
        Routes, "_sweep", "bound.used = False", "pass",
    ),
    "what is in use forgotten": (
        routes.test_bindings_in_use_are_kept,
        Routes, "_sweep", "{*used, *self._pending.topics_in_use()}", "set()",
    ),
    "group without topics not left": (
        routes.test_unused_bindings_are_deleted_and_their_group_is_left,
        Routes, "_keep", "self._drop(route)", "pass",
    ),
    "not here and still bound": (
        moving.test_all_requests_about_the_topic_move_with_it_and_no_others,
        Routes, "not_here", "self._bound.pop(topic, None)", "pass",
    ),
    "late word of the old group believed": (
        moving.test_late_answer_of_the_old_group_has_no_effect,
        Routes, "not_here", "self.bound_to(topic) is route and", "True and",
    ),
    "contradictions not paced": (
        moving.test_a_ring_that_contradicts_itself_is_asked_less_and_less,
        Routes, "_miss", "if before else 0.0", "if False else 0.0",
    ),
    "contradictions never forgiven": (
        moving.test_a_contradiction_of_long_ago_is_forgiven,
        Routes, "_miss", "host.now < last + FORGIVEN_AFTER", "last",
    ),
    "not here taken for an answer": (
        moving.test_a_ring_that_contradicts_itself_is_asked_less_and_less,
        Calls, "answered", "if type(answer.result) is NotHere:", "if False:",
    ),
    "put that is not here taken for refused": (
        moving.test_puts_go_on_at_the_new_group_with_their_numbers,
        Flow, "answered", "case NotHere():", "case NotHere() if False:",
    ),
    "each put that is not here starts again": (
        moving.test_several_refused_batches_cause_one_restart,
        Flow, "answered",
        "case Gap() | NotHere() if id_ < self._mark:", "case Gap() if id_ < self._mark:",
    ),
    "reading that is not here ended": (
        moving.test_a_reading_goes_on_at_the_new_group_where_it_was,
        Reader, "flow_ended", "case errors.NotHere():", "case errors.NotHere() if False:",
    ),
}  # fmt: skip


def mutant(rule: str) -> Mutant:
    test, *change = RULES[rule]
    return Mutant(rule, replaced(*change), lambda seed: test(), 1)


MUTANTS = [mutant(rule) for rule in RULES]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_session_without_this_rule_is_found_out(mutant: Mutant) -> None:
    """SVC-2 SVC-3 SVC-13"""
    must_be_noticed(mutant)
