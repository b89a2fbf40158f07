"""Define the measures: the number of messages, and the ratio that oncecast must reach."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

from bench.peers import apart
from bench.peers.peer import PAUSE, Peer

SUBSCRIBERS = 10
PUBLISHERS = 256


@dataclass(frozen=True)
class Measure:
    key: str
    title: str
    unit: str
    # method of a System; if it returns a list, the median is the result
    of: Callable[[Any, list[bytes]], Coroutine[Any, Any, float | list[float]]]
    share: float  # fraction of the requested number of messages
    size: int = 100
    less_is_better: bool = False
    alike: bool = False  # whether each system gets the same number of messages
    slices: int = 1  # number of measurements per round, which alternate with the other systems
    pause: float | None = None  # seconds between messages, if they are measured one by one
    # Peer -> target for the ratio of oncecast's figure to the peer's.
    targets: dict[str, float] = field(default_factory=dict)

    def count(self, messages: int, peer_share: float) -> int:
        """Return how many messages one slice has for a system with this share."""
        if self.alike:
            return max(10, int(messages * self.share / self.slices))
        return max(4 * PUBLISHERS, int(messages * self.share * peer_share / self.slices))

    def reached(self, name: str, ratio: float) -> bool | None:
        """Return whether the ratio to this system meets its target, or None if it has no target."""
        target = self.targets.get(name)
        if target is None:
            return None
        return ratio <= target if self.less_is_better else ratio >= target


async def put(peer: Peer, values: list[bytes]) -> float:
    return len(values) / await peer.put(values)


async def get(peer: Peer, values: list[bytes]) -> float:
    return len(values) / await peer.get(values)


async def fan_out(peer: Peer, values: list[bytes]) -> float:
    return SUBSCRIBERS * len(values) / await peer.fan_out(values, SUBSCRIBERS)


async def trips(peer: Peer, values: list[bytes]) -> list[float]:
    return [seconds * 1e6 for seconds in await peer.trips(values)]


async def trips_apart(peer: Peer, values: list[bytes]) -> list[float]:
    return [seconds * 1e6 for seconds in await apart.trips(peer, values)]


async def publish(peer: Peer, values: list[bytes]) -> float:
    return len(values) / await peer.publish(values, PUBLISHERS)


LATENCY = Measure(
    "latency",
    "put to get, one process, p50, 100 B",
    "us",
    trips,
    0.001,
    less_is_better=True,
    alike=True,
    slices=10,  # the duration of a sync changes every few seconds
    pause=PAUSE,
    targets={"Redis": 0.8},
)
MEASURES = (
    Measure("put", "put, 100 B", "msg/s", put, 1.0, targets={"Redis": 10, "NATS": 100}),
    Measure("get", "get + ack, 100 B", "msg/s", get, 1.0, targets={"Redis": 8}),
    Measure(
        "fan-out", "10 subscribers, 100 B", "deliveries/s", fan_out, 0.2, targets={"Redis": 10}
    ),
    LATENCY,
    replace(
        LATENCY,
        key="latency-apart",
        title="put to get, two processes, p50, 100 B",
        of=trips_apart,
        slices=5,  # each measurement starts two processes
    ),
    Measure("put-1k", "put, 1 KiB", "msg/s", put, 0.1, size=1024, targets={"Redis": 5}),
    Measure("publishers", "256 publishers, 100 B", "msg/s", publish, 0.2, targets={"Redis": 3}),
)
