"""Exponential backoff between attempts."""

from __future__ import annotations

DOUBLINGS_MAX = 30  # avoids overflow; the wait reaches `longest` long before this limit


def backoff(attempt: int, first: float, longest: float) -> float:
    """Return the longest wait before retry `attempt`, counted from 0.

    The bound starts at `first`, doubles with each attempt and never exceeds `longest`. The caller
    draws its wait at random below the bound, so that clients do not all retry at the same time.
    """
    return min(longest, first * 2.0 ** min(attempt, DOUBLINGS_MAX))
