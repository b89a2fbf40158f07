"""Processes that sign in and out at the same time agree on the acceptors of their group."""

from __future__ import annotations

import pytest

from tests.coordination.register_storm import storm
from tests.seeds import seeds


@pytest.mark.parametrize("seed", seeds(here=20, all_=200))
def test_present_processes_agree_on_their_founders(seed: int) -> None:
    """DDS-4"""
    assert storm(seed).lives > 4
