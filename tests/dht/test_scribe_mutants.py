"""Check that a scenario or a test detects each missing Scribe rule."""

from __future__ import annotations

import pytest

from oncecast.dht import scribe
from oncecast.dht.scribe import Scribe
from oncecast.lab.scenarios.scenario import run
from oncecast.lab.scenarios.scribe import SCRIBE
from tests.dht import test_scribe
from tests.mutants import Mutant, Plant, assert_detected, replaced

pytestmark = pytest.mark.mutants

SEEDS = 60


def forest(seed: int) -> None:
    outcome = run(SCRIBE, seed)
    assert outcome.ok, outcome.violation


def mutant(rule: str, plant: Plant) -> Mutant:
    return Mutant(rule, plant, forest, SEEDS)


MUTANTS = [
    mutant(
        "only members deliver payloads",
        replaced(Scribe, "_spread", "if tree.joined:", "if True:"),
    ),
    mutant(
        "a payload is delivered once",
        replaced(
            Scribe, "_spread", "self.emit(", "self.emit(Multicasted(copy.topic, b''));self.emit("
        ),
    ),
    mutant(
        "a dead parent is replaced",
        replaced(Scribe, "_lose", "elif tree.parent == peer:", "elif False:"),
    ),
    mutant(
        "a forwarder enlists itself",
        replaced(Scribe, "_enlist", "self._find_parent(tree)", "pass"),
    ),
    mutant(
        "copies go to the children",
        replaced(Scribe, "_spread", "for child in tree.children:", "for child in ():"),
    ),
    mutant(
        "a restarted node does not reuse publication numbers",
        lambda patch: patch.setattr(scribe, "FIRST_NUMBER_BITS", 0),
    ),
    mutant(
        "a copy that arrives twice is delivered once",
        replaced(Scribe, "_spread", "if id in self.seen:", "if False:"),
    ),
    mutant(
        "a node that is not a child gets an Orphaned",
        replaced(Scribe, "_receive_pulse", "self.send(sender, Orphaned(topic))", "pass"),
    ),
    Mutant(
        "no node becomes the root of a tree on a hint",
        replaced(Scribe, "observe", "_enlist_on_hint(enlist, key)", "_enlist(enlist, key, True)"),
        lambda seed: test_scribe.test_message_routed_by_a_hint_does_not_make_a_node_the_root(),
        1,
    ),
    mutant(
        "a node that loses the key stops being the root",
        replaced(Scribe, "_update_root", "elif tree.root and not owned:", "elif False:"),
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_missing_rule_is_detected(mutant: Mutant) -> None:
    """NET-5"""
    assert_detected(mutant)
