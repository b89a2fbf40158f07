"""Exponential backoff: how long to wait before the next attempt."""

from __future__ import annotations

DOUBLINGS_MAX = 30  # keeps the power finite; `longest` is reached long before


def backoff(attempt: int, first: float, longest: float) -> float:
    """Return the upper bound of the wait before attempt number `attempt`, counted from 0.

    It starts at `first`, doubles with each attempt, and ends at `longest`. Draw the wait at random
    below the bound, so that clients that failed together do not come back together.
    """
    return min(longest, first * 2.0 ** min(attempt, DOUBLINGS_MAX))
