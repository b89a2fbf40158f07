"""Scripted Kafka clients in storms: see `scenarios.kafka`."""

from __future__ import annotations

import pytest

from oncecast.lab.scenarios.kafka import KAFKA, is_once
from oncecast.lab.scenarios.scenario import run
from tests.seeds import seeds

PER_TEST = 2


def storm(seed: int) -> None:
    outcome = run(KAFKA, seed)
    assert outcome.ok, f"{outcome.violation}\nreplay: {outcome.replay}"


@pytest.mark.long
@pytest.mark.parametrize("first", seeds(2, 400, PER_TEST))
def test_kafka_clients_in_a_storm_lose_and_double_nothing(first: int) -> None:
    """KAF-2 KAF-3"""
    for seed in range(first, first + PER_TEST):
        storm(seed)


def test_is_once_accepts_only_a_complete_contiguous_and_unrepeated_transaction() -> None:
    values = [b"1", b"2"]
    assert is_once(values, [b"0", b"1", b"2", b"3"])
    assert is_once([], [b"0"])
    for topic in ([b"1"], [b"2", b"1"], [b"1", b"0", b"2"], [b"1", b"2", b"2"], [b"1", b"2"] * 2):
        assert not is_once(values, topic)
