"""Test offered, requested and invalid qualities."""

from __future__ import annotations

from itertools import product
from math import inf, nan

import msgspec
import pytest

from oncecast.errors import BadQoS
from oncecast.streams.protocols.policies import KEEP_ALL, Durability, QoS, Reliability, mismatches

TIMES = (0.5, 2.0, inf)
ALL = [
    QoS(reliability=reliability, durability=durability, deadline=deadline, liveliness=liveliness)
    for reliability, durability, deadline, liveliness in product(
        Reliability, Durability, TIMES, TIMES
    )
]


def test_mismatch_names_exactly_the_qualities_that_are_too_low() -> None:
    """DDS-1: the test compares 81 offers with 81 requests."""
    for offered, requested in product(ALL, ALL):
        found = mismatches(offered, requested)
        assert ("reliability" in found) == (offered.reliability < requested.reliability)
        assert ("durability" in found) == (offered.durability < requested.durability)
        assert ("deadline" in found) == (offered.deadline > requested.deadline)
        assert ("liveliness" in found) == (offered.liveliness > requested.liveliness)


@pytest.mark.parametrize(
    "own",
    [
        {"history": KEEP_ALL},
        {"history": 5},
        {"lifespan": 1.0},
        {"samples_max": 7},
        {"keys_max": 7},
        {"blocking_max": 0.0},
    ],
)
def test_local_qualities_do_not_affect_matching(own: dict[str, float]) -> None:
    """DDS-1"""
    plain, other = QoS(), msgspec.structs.replace(QoS(), **own)
    assert mismatches(plain, other) == mismatches(other, plain) == ()


@pytest.mark.parametrize(
    ("wrong", "fact"),
    [
        ({"history": 0}, "history is 0; keep 1 to 1048576 values, or all"),
        ({"history": -2}, "history is -2; keep 1 to"),
        ({"deadline": 0.0}, "deadline is 0 s; use more than 0"),
        ({"deadline": nan}, "deadline is nan s; use more than 0"),
        ({"lifespan": -1.0}, "lifespan is -1 s; use more than 0"),
        ({"liveliness": 0.0}, "liveliness is 0 s; use more than 0"),
        ({"samples_max": 0}, "samples_max is 0; use at least 1"),
        ({"keys_max": 0}, "keys_max is 0; use at least 1"),
        (
            {"history": 10, "samples_max": 5},
            "history is 10 values per key",
        ),
        ({"blocking_max": inf}, "blocking_max is inf s; use 0 or more, but not inf"),
        ({"blocking_max": -0.1}, "blocking_max is -0.1 s"),
    ],
)
def test_invalid_qos_is_rejected_with_a_remedy(wrong: dict[str, float], fact: str) -> None:
    """DDS-1"""
    with pytest.raises(BadQoS, match=fact):
        msgspec.structs.replace(QoS(), **wrong).checked()


def test_valid_qos_is_accepted() -> None:
    """DDS-1"""
    for qos in ALL:
        assert qos.checked() is qos
