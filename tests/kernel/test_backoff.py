"""Test the backoff of links and requests."""

from __future__ import annotations

from oncecast.kernel.backoff import backoff


def test_backoff_doubles_up_to_the_longest_wait() -> None:
    waits = [backoff(attempt, 0.1, 5.0) for attempt in range(8)]
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert [backoff(attempt, 0.5, 8.0) for attempt in range(6)] == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0]


def test_backoff_never_exceeds_the_longest_wait() -> None:
    assert backoff(10_000, 0.1, 5.0) == 5.0
