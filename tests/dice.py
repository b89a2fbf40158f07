"""Random generators with numbers chosen by a test."""

from __future__ import annotations

from random import Random


class MiddleDice(Random):
    """Draw the middle of a range."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


class LowDice(Random):
    def uniform(self, a: float, b: float) -> float:
        return a


class HighDice(Random):
    def uniform(self, a: float, b: float) -> float:
        return b

    def random(self) -> float:
        return 1.0
