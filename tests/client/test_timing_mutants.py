"""Check that removing a rule about the times of a put makes a test fail (WRK-5)."""

from __future__ import annotations

from typing import Any

import pytest

from oncecast.client import timing as times
from oncecast.client.putting import Putting
from oncecast.client.session.producing import Flow
from tests.client import test_timing as client
from tests.client.session import test_timed_puts as session
from tests.mutants import Mutant, assert_detected, exact, replaced

RULES: dict[str, tuple[Any, Any, str, str, str]] = {
    "puts lose their times": (
        session.test_put_with_a_delay_is_a_timed_put,
        Flow, "_send", "if outgoing.timing is not None:", "if False:",
    ),
    "the outbox forgets the times": (
        session.test_restored_put_keeps_its_delay,
        Flow, "restore", "batch, timing=timing)", "batch)",
    ),
    "puts with other times join a batch": (
        client.test_puts_with_the_same_delay_share_a_batch,
        Putting, "put", "topic if timing is None else (topic, timing)", "topic",
    ),
    "messages with a time to live are overtaken": (
        client.test_messages_with_a_time_to_live_keep_their_order,
        Putting, "_fresh", "if timing is not None or self._lasting:", "if False:",
    ),
    "plain messages are overtaken": (
        client.test_messages_with_a_time_to_live_keep_their_order,
        Putting, "_keep_order", "(self.open.get(topic), self._lasting.get(topic))",
        "(self._lasting.get(topic),)",
    ),
    "a delayed message closes other batches": (
        client.test_puts_with_the_same_delay_share_a_batch,
        Putting, "_keep_order", "if timing is not None and timing.delays:", "if False:",
    ),
    "the rest of a full batch loses its times": (
        client.test_full_batch_continues_with_the_same_timing,
        Putting, "_another", "parcel.topic, parcel.timing", "parcel.topic",
    ),
    "put_many ignores the times": (
        client.test_many_values_share_their_times,
        Putting, "put_many", "(topic, some, size, timing)", "(topic, some, size, None)",
    ),
    "a negative delay is accepted": (
        lambda: client.test_invalid_times_are_refused({"delay": -1}, "delay is -1", ""),
        times, "timing_of", "not 0 <= delay <= SECONDS_MAX", "False",
    ),
    "a ttl within the delay is accepted": (
        lambda: client.test_invalid_times_are_refused({"delay": 5, "ttl": 5}, "ttl is 5 s", ""),
        times, "timing_of", "if ttl <= wait:", "if False:",
    ),
    "both a delay and a due time are accepted": (
        lambda: client.test_invalid_times_are_refused({"delay": 1, "at": 9e8}, "the put has", ""),
        times, "timing_of", "delay is not None and at is not None", "False",
    ),
}  # fmt: skip

MUTANTS = [
    Mutant(rule, replaced(*change), exact(test), 1) for rule, (test, *change) in RULES.items()
]


@pytest.mark.mutants
@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_timing_mutant_is_detected(mutant: Mutant) -> None:
    """WRK-5"""
    assert_detected(mutant)
