"""Latency distributions for the simulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from random import Random
from struct import unpack

from oncecast.kernel.protocol import Value

Draw = Callable[[], float]

DRAWN_AHEAD = 256  # number of delays to draw at a time, because every message needs one


class Fixed(Value):
    seconds: float

    def bind(self, rng: Random) -> Draw:
        seconds = self.seconds
        return lambda: seconds


class Uniform(Value):
    low: float
    high: float

    def bind(self, rng: Random) -> Draw:
        low, unit = self.low, (self.high - self.low) / 2**32

        def chunks() -> Iterator[list[float]]:
            while True:
                dice = unpack(f"{DRAWN_AHEAD}I", rng.randbytes(4 * DRAWN_AHEAD))
                yield [low + unit * number for number in dice]

        return chain.from_iterable(chunks()).__next__  # faster than a Python function


class Exponential(Value):
    """Delays as in the Chord paper's churn experiments."""

    mean: float
    floor: float = 0.0

    def bind(self, rng: Random) -> Draw:
        draw, rate, floor = rng.expovariate, 1.0 / self.mean, self.floor
        return lambda: floor + draw(rate)


class LogNormal(Value):
    """Delays as in a data centre: a sharp peak and a long tail."""

    median: float
    sigma: float = 0.5

    def bind(self, rng: Random) -> Draw:
        draw, median, sigma = rng.lognormvariate, self.median, self.sigma
        return lambda: median * draw(0.0, sigma)


Latency = Fixed | Uniform | Exponential | LogNormal
