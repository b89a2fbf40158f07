"""Quality of service (QoS) of a stream: a writer offers qualities, and a reader requests them.

A writer and a reader are matched if the writer offers at least the requested level of every
quality. If not, both sides get an event that lists the qualities. No quality is downgraded silently
(DDS-1).

    reliability   best effort < reliable < agreed; the offer must be at least the request
    durability    volatile < transient local < persistent, in the same way
    deadline      the offered time must be at most the requested time
    liveliness    the offered time must be at most the requested time

History, lifespan and limits apply to each side separately.
"""

from __future__ import annotations

from enum import IntEnum
from math import inf, isnan
from typing import Self

from oncecast.errors import BadQoS
from oncecast.kernel.protocol import Value

# Not 0, because an application that passes a history of 0 has most likely made a mistake.
KEEP_ALL = -1
DEPTH_MAX = 1 << 20


class Reliability(IntEnum):
    """The values that a reader receives.

    best effort   only values newer than the last one; some can be lost
    reliable      with keep-last, eventually the last value; with keep-all, all values in order
    agreed        reliable; if one reader has a value, all get it, even if the writer crashes
    """

    BEST_EFFORT = 0
    RELIABLE = 1
    AGREED = 2


class Durability(IntEnum):
    """The earlier values that a late reader receives.

    volatile          none
    transient local   values in the caches of running writers
    persistent        values in a durable topic
    """

    VOLATILE = 0
    TRANSIENT_LOCAL = 1
    PERSISTENT = 2


class QoS(Value, tag="QoS"):
    """The qualities of a writer or a reader. Times are in seconds; `inf` means no limit."""

    reliability: Reliability = Reliability.BEST_EFFORT
    history: int = 1  # maximum values to keep for each key, or KEEP_ALL
    durability: Durability = Durability.VOLATILE
    deadline: float = inf  # maximum seconds between values of the same key
    lifespan: float = inf  # maximum seconds that a value stays in a cache
    liveliness: float = inf  # maximum seconds of silence of a writer
    samples_max: int = 100_000  # maximum values in a cache
    keys_max: int = 10_000
    blocking_max: float = 1.0  # maximum seconds that a write waits for cache space

    @property
    def keeps_all(self) -> bool:
        return self.history == KEEP_ALL

    def checked(self) -> Self:
        """Return this QoS. Raise BadQoS if it is invalid."""
        for name in ("deadline", "lifespan", "liveliness"):
            value = getattr(self, name)
            if isnan(value) or value <= 0:
                raise BadQoS(f"{name} is {value:g} s", "use more than 0, or inf for no limit")
        if isnan(self.blocking_max) or not 0 <= self.blocking_max < inf:
            raise BadQoS(f"blocking_max is {self.blocking_max:g} s", "use 0 or more, but not inf")
        if self.history != KEEP_ALL and not 1 <= self.history <= DEPTH_MAX:
            raise BadQoS(f"history is {self.history}", f"keep 1 to {DEPTH_MAX} values, or all")
        for name in ("samples_max", "keys_max"):
            if getattr(self, name) < 1:
                raise BadQoS(f"{name} is {getattr(self, name)}", "use at least 1")
        if self.history > self.samples_max:
            raise BadQoS(
                f"history is {self.history} values per key (limit samples_max {self.samples_max})",
                "keep fewer values per key, or raise samples_max",
            )
        return self


def mismatches(offered: QoS, requested: QoS) -> tuple[str, ...]:
    """Return the qualities in which the offer is below the request."""
    less = {
        "reliability": offered.reliability < requested.reliability,
        "durability": offered.durability < requested.durability,
        "deadline": offered.deadline > requested.deadline,
        "liveliness": offered.liveliness > requested.liveliness,
    }
    return tuple(name for name, is_less in less.items() if is_less)
