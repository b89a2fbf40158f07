"""Check the crash points, tests and numbers in docs/evidence.md."""

from __future__ import annotations

import re
from math import prod
from types import ModuleType

from tests.client.session import test_client_storms as client_storms
from tests.crashpoints import POINTS, Point
from tests.lab.scenarios import test_crash_points as simulated
from tests.lab.scenarios import test_service_storms as node_storms
from tests.lab.scenarios import test_svc13 as svc13
from tests.live import test_crash_points as live
from tools.check_docs import ROOT
from tools.mutants import mutants, suites

PAGE = (ROOT / "docs" / "evidence.md").read_text()
ROW = re.compile(
    r"^\| (?P<point>(?:publisher|node|subscriber): .*?) \| (?P<outcome>.*?) \| `(?P<test>\w+)` \|$",
    re.MULTILINE,
)
OWN_TESTS = {
    "publisher: restart with the old epoch": "late_put_with_an_old_epoch_is_fenced",
    "publisher: two processes at once": "newer_publisher_fences_the_older_publisher",
    "subscriber: fenced in the handler": "fenced_subscriber_does_not_duplicate_effects",
}
DEATHS = {
    "publisher": "next_publisher_continues_where_a_crashed_publisher_stopped",
    "node": "clients_continue_when_a_crashed_node_restarts",
    "subscriber": "each_message_takes_effect_once_if_its_subscriber_crashes",
}


def live_test(point: Point) -> str:
    name = f"test_{OWN_TESTS.get(str(point)) or DEATHS[point.process]}"
    assert callable(getattr(live, name))
    return name


def test_table_lists_every_crash_point_with_its_outcome_and_live_test() -> None:
    """SVC-13"""
    expected = [f"| {point} | {point.outcome} | `{live_test(point)}` |" for point in POINTS]
    assert [row[0] for row in ROW.finditer(PAGE)] == expected


def test_points_where_no_process_dies_have_their_own_test() -> None:
    assert set(OWN_TESTS) == {str(point) for point in POINTS if point.action != "crash"}


def seeds(module: ModuleType, parameter: str = "seed") -> tuple[int, int]:
    """Return how many seeds `make test` runs, and how many `make soak` adds."""
    here = there = 0
    for name, test in vars(module).items():
        marks = getattr(test, "pytestmark", []) if name.startswith("test_") else []
        values = {mark.args[0]: list(mark.args[1]) for mark in marks if mark.name == "parametrize"}
        if parameter in values:
            count = prod(map(len, values.values()))
            soaked = sum(map(is_soak, values[parameter])) * count // len(values[parameter])
            here, there = here + count - soaked, there + soaked
    return here, there


def is_soak(value: object) -> bool:
    return any(mark.name == "soak" for mark in getattr(value, "marks", ()))


def test_page_states_the_actual_run_counts() -> None:
    """SVC-13: `make test` runs at least 1,000 seeds."""
    here, there = seeds(node_storms, "first")
    runs = {
        "single crash points": (simulated.SINGLE_SEEDS * len(simulated.SINGLES), 0),
        "pairs of crash points": (len(simulated.PAIRS[::2]), len(simulated.PAIRS[1::2])),
        "scenarios of SVC-13": seeds(svc13),
        "storms at the node": (node_storms.PER_TEST * here, node_storms.PER_TEST * there),
        "storms at clients and node": seeds(client_storms),
    }
    reported = re.findall(r"^\| ([^|`]+?) \| (\d+) \| (\d*) ?\|$", PAGE, re.MULTILINE)
    assert {name: (int(now), int(then or 0)) for name, now, then in reported} == runs
    assert sum(now for now, _ in runs.values()) >= 1000
    assert f"{sum(map(sum, runs.values())):,} runs" in PAGE


def test_counts_of_crash_points_and_mutants_match_the_page() -> None:
    """SVC-13"""
    assert f"{len(POINTS)} points" in PAGE
    of_the_service = [name for name in suites([]) if not re.search("broadcast|paxos", name)]
    assert "more than 100 of them" in PAGE
    assert sum(len(mutants(each)) for each in of_the_service) > 100
