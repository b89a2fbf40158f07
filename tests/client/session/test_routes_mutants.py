"""Without any one of its rules the search for a topic's group is found out by its exact test."""

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
        routes.test_what_another_group_owns_is_asked_for_there,
        Routes, "owned", "self._ask_again(topic, 0.0)", "pass",
    ),
    "group not watched": (
        routes.test_what_another_group_owns_is_asked_for_there,
        Routes, "_route_to", "self._host.watch(route.node)", "pass",
    ),
    "all asked again where one topic is": (
        routes.test_all_that_waits_about_the_topic_goes_there_and_nothing_else,
        Routes, "timeout", "topic in fresh and topic not in self._fresh", "True",
    ),
    "calls of a lost link sent to all groups": (
        routes.test_a_group_that_changes_its_leader_disturbs_no_other,
        ClientSession, "redial", "self.routes.bound_to(topic) is route", "True",
    ),
    "bound anew at every word": (
        routes.test_said_again_it_changes_nothing,
        Routes, "owned", "if bound is None:", "if True:",
    ),
    "anybody believed about owners": (
        routes.test_only_home_is_asked_whose_a_topic_is,
        ClientSession, "receive", "elif route is self.entry:", "else:",
    ),
    "all groups thought to owe an answer": (
        routes.test_a_silent_group_is_asked_around_in_and_no_other,
        ClientSession, "owing", "return {", "return set(self.routes) | {",
    ),
    "unreachable group never given up": (
        routes.test_a_group_that_cannot_be_reached_is_asked_home_for,
        Route, "gone", "self._failures > ROUNDS * len(self.nodes)", "False",
    ),
    "wait at a node without a leader begun anew by every answer": (
        route.test_a_busy_client_leaves_a_node_that_knows_no_leader,
        Route, "_wait_here", "if not self._waiting:", "if True:",
    ),
    "shared link dropped": (
        routes.test_home_and_a_group_may_be_at_the_same_node,
        Routes, "left", "if node not in self.at:", "if True:",
    ),
    "silent process kept": (
        routes.test_a_silent_process_is_left_for_the_next,
        Route, "_leave_silent", "self._move_to(self._next_node())", "pass",
    ),
    "other processes not learned": (
        routes.test_any_process_of_the_ring_is_home_when_the_others_are_gone,
        Routes, "owned", "self._meet(nodes)", "pass",
    ),
    "nothing ever forgotten": (
        routes.test_what_nobody_uses_is_forgotten_and_its_group_left,
        Routes, "_sweep", "bound.used = False", "pass",
    ),
    "what is in use forgotten": (
        routes.test_what_is_read_asked_for_or_put_is_not_forgotten,
        Routes, "_sweep", "{*used, *self._pending.topics_in_use()}", "set()",
    ),
    "group without topics not left": (
        routes.test_what_nobody_uses_is_forgotten_and_its_group_left,
        Routes, "_keep", "self._drop(route)", "pass",
    ),
    "not here and still bound": (
        moving.test_all_that_waits_about_the_topic_goes_along_and_nothing_else,
        Routes, "not_here", "self._bound.pop(topic, None)", "pass",
    ),
    "late word of the old group believed": (
        moving.test_what_the_old_group_says_late_has_no_effect,
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
    "each put that is not here begins anew": (
        moving.test_each_batch_that_is_turned_away_does_not_begin_anew,
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
