"""Check that a storm or a unit test detects each missing HyParView rule."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from oncecast.lab.scenarios.hyparview import HYPARVIEW
from oncecast.lab.scenarios.scenario import run
from oncecast.overlay.hyparview import HyParView
from tests.mutants import Mutant, assert_detected, replaced
from tests.overlay import test_hyparview as effects

pytestmark = pytest.mark.mutants


def storm(seed: int) -> None:
    outcome = run(HYPARVIEW, seed)
    assert outcome.ok, outcome.violation


def effect(test: Callable[[], None]) -> Callable[[int], None]:
    def detector(seed: int) -> None:
        test()

    detector.__name__ = test.__name__
    return detector


def storming(rule: str, name: str, text: str, replacement: str = "pass") -> Mutant:
    return Mutant(rule, replaced(HyParView, name, text, replacement), storm, 60)


def telling(rule: str, name: str, text: str, replacement: str, test: Callable[[], None]) -> Mutant:
    return Mutant(rule, replaced(HyParView, name, text, replacement), effect(test), 1)


MUTANTS = [
    storming(
        "a walk from a stranger is answered with Disconnect",
        "_receive_walk",
        "self.send(sender, Disconnect())",
    ),
    storming("the active view is bounded", "_make_active", "not self._has_vacancy()", "False"),
    storming("the passive view is bounded", "_remember", ">= self.passive_max", "< 0"),
    storming(
        "the loss of a neighbour is announced", "_make_inactive", "self.emit(NeighborDown(peer))"
    ),
    storming("a lost peer is not watched", "_make_inactive", "self.unwatch(peer)"),
    storming("no peer is in both views", "_make_active", "self.passive.pop(peer, None)"),
    storming("a silent peer counts as lost", "timeout", "self._lose(peer)"),
    storming("a lost peer is asked again", "timeout", "self._ask_a_lost_one()"),
    telling(
        "a neighbour is sometimes traded for a passive peer",
        "timeout",
        "self._trade()",
        "pass",
        effects.test_full_view_sometimes_trades_a_neighbour_for_a_passive_peer,
    ),
    telling(
        "a node without neighbours joins again",
        "_fill",
        "not self.active and not self.asked",
        "False",
        effects.test_node_without_neighbours_joins_again_through_its_contacts,
    ),
    telling(
        "requests in flight are bounded",
        "_adopt",
        "< 2 * self.active_max",
        "< 10_000",
        effects.test_flood_of_newcomers_does_not_exceed_the_limits,
    ),
    telling(
        "a restarted neighbour is detected",
        "_make_active",
        "self.active[peer] == incarnation",
        "True",
        effects.test_restarted_neighbour_is_reported_down_and_up,
    ),
    telling(
        "a repeated request changes nothing",
        "_make_active",
        "self.active[peer] == incarnation",
        "False",
        effects.test_repeated_join_is_answered_again_and_changes_nothing,
    ),
    telling(
        "an evicted neighbour gets a Disconnect",
        "_make_active",
        "self.send(evicted, Disconnect())",
        "pass",
        effects.test_full_view_evicts_a_neighbour_for_a_newcomer,
    ),
    telling(
        "a full view refuses requests that are not urgent",
        "receive",
        "urgent or sender in self.active or self._has_vacancy()",
        "True",
        effects.test_full_view_refuses_nonurgent_requests,
    ),
    telling(
        "urgent requests go to peers that refused",
        "_fill",
        "() if urgent else self.tried",
        "self.tried",
        effects.test_peers_that_refused_are_asked_again_when_no_other_peer_is_left,
    ),
    telling(
        "a shuffle sample first replaces the peers sent in exchange",
        "_remember",
        "spare.pop() if spare else self._any(list(self.passive))",
        "list(self.passive)[-1]",
        effects.test_shuffle_sample_first_replaces_the_peers_sent_in_exchange,
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_missing_rule_is_detected(mutant: Mutant) -> None:
    """NET-2"""
    assert_detected(mutant)
