"""Run a small version of the attack on the HTTP interface (WEB-1)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.hostile.web import CLOSED, Generator, Outcome, Request, figures_of, run


def test_generator_makes_every_kind_and_repeats_with_its_seed() -> None:
    """WEB-1"""
    made = [Generator(seed).make() for seed in (1, 1)]
    assert made[0] == made[1]
    generator = Generator(2)
    assert {generator.make()[0] for _ in range(500)} == set(generator.kinds)


def test_unexpected_status_is_a_fault() -> None:
    """WEB-1"""
    outcome = Outcome()
    outcome.count("kind", Request(b"x", frozenset({400, CLOSED})), 400)
    assert outcome.faults == []
    outcome.count("kind", Request(b"x", frozenset({400, CLOSED})), 500)
    assert len(outcome.faults) == 1
    figures = json.loads(json.dumps(figures_of(outcome)))
    assert figures["answers"] == {"kind": {"400": 1, "500": 1}}


@pytest.mark.long
@pytest.mark.parametrize(
    ("requests", "slow"), [(1500, 0), pytest.param(300_000, 80, marks=pytest.mark.soak)]
)
def test_hostile_requests_get_the_right_status_and_change_nothing(
    tmp_path: Path, requests: int, slow: int
) -> None:
    """WEB-1: slow heads, large bodies, smuggling, traversal, wrong hosts, cross-site requests."""
    outcome = run(requests, slow, 1, tmp_path)
    assert outcome.faults == []
    assert outcome.requests >= requests
    assert outcome.slow_closed == slow
