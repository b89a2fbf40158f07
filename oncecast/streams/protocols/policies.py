"""The qualities of a stream: what a writer offers and a reader requests, and whether they fit.

A writer and a reader of a stream are matched if the writer offers at least what the reader
requests, in every quality. If not, both are told which ones; nothing is silently made worse
(DDS-1).

    reliability   best effort < reliable < agreed      a higher offer fits
    durability    volatile < transient local < persistent
    deadline      a writer that promises news more often than is requested fits
    liveliness    so does one that says more often that it is alive

History, lifespan and limits are each side's own.
"""

from __future__ import annotations

from enum import IntEnum
from math import inf, isnan
from typing import Self

from oncecast.errors import BadQoS
from oncecast.kernel.protocol import Value

KEEP_ALL = -1  # not 0: who wants nothing kept has made a mistake
DEPTH_MAX = 1 << 20


class Reliability(IntEnum):
    """What of that which is written is read.

    best effort   new values only, never back
    reliable      with keep-last, in the end the last value; with keep-all, all, in order
    agreed        and what one reader has read all read, though the writer has crashed meanwhile
    """

    BEST_EFFORT = 0
    RELIABLE = 1
    AGREED = 2


class Durability(IntEnum):
    """What a reader gets that comes late.

    volatile          nothing that was written before
    transient local   what the writers' caches hold, as long as they live
    persistent        what a durable topic holds
    """

    VOLATILE = 0
    TRANSIENT_LOCAL = 1
    PERSISTENT = 2


class QoS(Value, tag="QoS"):
    """Of a writer or a reader. Times are in seconds; `inf` promises, or requests, nothing."""

    reliability: Reliability = Reliability.BEST_EFFORT
    history: int = 1  # values of each key that are kept, or KEEP_ALL
    durability: Durability = Durability.VOLATILE
    deadline: float = inf  # between two values of a key
    lifespan: float = inf  # of a value
    liveliness: float = inf  # without a sign of a writer's life
    samples_max: int = 100_000  # in a cache
    keys_max: int = 10_000
    blocking_max: float = 1.0  # that a write waits for room

    @property
    def keeps_all(self) -> bool:
        return self.history == KEEP_ALL

    def checked(self) -> Self:
        """Raises BadQoS."""
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
                f"history is {self.history} values of a key (limit samples_max {self.samples_max})",
                "keep fewer, or raise samples_max",
            )
        return self


def mismatches(offered: QoS, requested: QoS) -> tuple[str, ...]:
    """In which qualities less is offered than requested; nothing: they match."""
    less = {
        "reliability": offered.reliability < requested.reliability,
        "durability": offered.durability < requested.durability,
        "deadline": offered.deadline > requested.deadline,
        "liveliness": offered.liveliness > requested.liveliness,
    }
    return tuple(name for name, is_less in less.items() if is_less)
