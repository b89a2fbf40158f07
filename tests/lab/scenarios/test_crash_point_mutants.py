"""Check that each crash point detects the removal of the rules it is meant to test.

Other rules need longer runs or slower readers: see the suites of machine, node and client.
"""

from __future__ import annotations

import pytest

from tests.broker import test_machine_mutants as machine
from tests.client.session import test_client_mutants as client
from tests.crashpoints import POINTS
from tests.lab.scenarios import test_service_mutants as node
from tests.lab.scenarios.crash_world import REPLIES, ordeal
from tests.mutants import Mutant, must_be_noticed

pytestmark = pytest.mark.mutants

SEEDS = 4 * len(POINTS)

RULES = [
    # publishers
    "outbox not restored",
    "number not restored",
    "newer incarnation ignored",
    # the node
    "no dedup",
    "epoch of puts ignored",
    "newer incarnation not recognised",
    "ack before fsync",
    "dedup is not in the snapshot",
    "low-water mark of the fastest subscription",
    "collection above the low water mark",
    # subscribers
    "cursor moves at send",
    "cursor moved by arrived messages",
    "possible redeliveries not marked after a crash",
    "possible redeliveries not marked",
]


def single(seed: int) -> None:
    turn, at = divmod(seed, len(POINTS))
    ordeal([POINTS[at]], turn, REPLIES[turn % len(REPLIES)])


KNOWN = {each.rule: each for each in [*machine.MUTANTS, *node.MUTANTS, *client.MUTANTS]}
MUTANTS = [Mutant(rule, KNOWN[rule].plant, single, SEEDS) for rule in RULES]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_crash_points_detect_a_missing_rule(mutant: Mutant) -> None:
    """SVC-2 SVC-3 SVC-8 SVC-9 SVC-10 SVC-13"""
    must_be_noticed(mutant)
