"""Decide which seeds of a campaign run in `make test` and which in `make soak`."""

from __future__ import annotations

import pytest
from _pytest.mark import ParameterSet


def seeds(here: int, all_: int, step: int = 1) -> list[ParameterSet]:
    """Return the seeds 0, `step`, ... below `all_`; those from `here` on are for `make soak`."""
    return [
        pytest.param(seed, marks=[pytest.mark.soak] if seed >= here else [])
        for seed in range(0, all_, step)
    ]
