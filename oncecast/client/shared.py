"""The settings of a shared subscription, in seconds."""

from __future__ import annotations

import msgspec

from oncecast.client.arguments import check_name
from oncecast.errors import InvalidArgument
from oncecast.wire import sharing


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a shared subscription. Times are in seconds.

    A message whose handler fails is delivered again after `backoff_min`. The delay doubles with
    each delivery, up to `backoff_max`. After `deliveries_max` deliveries, the message becomes a
    dead letter.
    """

    lease: float = 30.0  # how long a silent worker keeps a message
    deliveries_max: int = 10  # 0 for no limit
    backoff_min: float = 1.0
    backoff_max: float = 60.0
    in_flight_max: int = 100_000  # maximum messages that all workers hold together
    dead_letters: str | None = None  # topic for dead letters (default: {TOPIC}.dead.SUBSCRIPTION)
    by_key: bool = False  # deliver messages with the same key one at a time and in order

    def __post_init__(self) -> None:
        if self.dead_letters is not None:
            check_name("dead-letter topic", self.dead_letters)
        if not isinstance(self.by_key, bool):
            raise InvalidArgument(f"by_key is {self.by_key!r:.80}", "use True or False")
        for name in ("deliveries_max", "in_flight_max"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise InvalidArgument(f"{name} is {value!r:.80}", "use an integer")
        if self.wire.fault:
            raise InvalidArgument(self.wire.fault)

    @property
    def wire(self) -> sharing.Shared:
        """Return the settings as the nodes store them."""
        return sharing.Shared(
            microseconds("lease", self.lease),
            self.deliveries_max,
            microseconds("backoff_min", self.backoff_min),
            microseconds("backoff_max", self.backoff_max),
            self.in_flight_max,
            self.dead_letters or "",
            self.by_key,
        )


def microseconds(name: str, seconds: object) -> int:
    if not isinstance(seconds, int | float) or not 0 <= seconds * 1e6 <= sharing.DURATION_MAX_US:
        raise InvalidArgument(f"{name} is {seconds!r:.80}", "use a time from 0 seconds to one year")
    return round(seconds * 1e6)
