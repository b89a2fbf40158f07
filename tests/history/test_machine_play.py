"""All answers of the real state machine are linearizable."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncecast.history import check
from tests.history.machine_play import Play


@pytest.mark.long
@given(st.integers(0, 1 << 32))
def test_machine_answers_are_linearizable(seed: int) -> None:
    """E1, E2, E4: calls overlap and are repeated, lost and abandoned."""
    verdict = check(Play(seed).run(300))
    assert verdict.ok, verdict


def test_random_clients_use_all_operations() -> None:
    kinds = {each.kind for seed in range(40) for each in Play(seed).run(300)}
    assert kinds >= {
        *("put", "stage", "publish", "create", "policy", "delete", "subscribe", "unsubscribe"),
        *("attach", "get", "moved", "again", "ack", "leave", "seek", "look", "scan"),
    }
