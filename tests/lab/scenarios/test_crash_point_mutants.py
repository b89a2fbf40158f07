"""Check that each crash point detects the removal of the rules it is meant to test.

Other rules need longer runs or slower readers: see the suites of machine, node and client.
"""

from __future__ import annotations

import pytest

from tests.broker import test_machine_mutants as machine
from tests.client.session import test_client_mutants as client
from tests.crashpoints import POINTS
from tests.lab.scenarios import test_service_mutants as node
from tests.lab.scenarios.crash_world import REPLIES, run_crash_points
from tests.mutants import Mutant, assert_detected

pytestmark = pytest.mark.mutants

SEEDS = 4 * len(POINTS)

RULES = [
    # publishers
    "the outbox is not restored",
    "the sequence number is not restored",
    "a newer incarnation is ignored",
    # the node
    "no dedup",
    "the epoch of a put is ignored",
    "a newer incarnation is not recognised",
    "ack before fsync",
    "dedup is not in the snapshot",
    "the fastest subscription sets the low-water mark",
    "collection above the low water mark",
    # subscribers
    "cursor moves at send",
    "arrived messages move the cursor",
    "possible redeliveries are not marked after a crash",
    "possible redeliveries are not marked",
]


def single(seed: int) -> None:
    turn, at = divmod(seed, len(POINTS))
    run_crash_points([POINTS[at]], turn, REPLIES[turn % len(REPLIES)])


KNOWN = {each.rule: each for each in [*machine.MUTANTS, *node.MUTANTS, *client.MUTANTS]}
MUTANTS = [Mutant(rule, KNOWN[rule].plant, single, SEEDS) for rule in RULES]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_crash_points_detect_a_missing_rule(mutant: Mutant) -> None:
    """SVC-2 SVC-3 SVC-8 SVC-9 SVC-10 SVC-13"""
    assert_detected(mutant)
