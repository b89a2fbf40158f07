"""Define the measures: their messages, and the ratio that oncecast must reach."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from bench.peers.peer import Peer

SUBSCRIBERS = 10
PUBLISHERS = 256


@dataclass(frozen=True)
class Measure:
    key: str
    title: str
    unit: str
    of: Callable[[Any, list[bytes]], Coroutine[Any, Any, float]]  # of a System
    share: float  # fraction of the requested messages
    size: int = 100
    less_is_better: bool = False
    alike: bool = False  # the same number of messages for each system
    slices: int = 1  # per round, in turns with the other systems
    targets: dict[str, float] = field(default_factory=dict)  # oncecast's figure over the peer's

    def count(self, messages: int, peer_share: float) -> int:
        """Return the messages of one slice for a system with this share."""
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


async def trip(peer: Peer, values: list[bytes]) -> float:
    return median(await peer.trips(values)) * 1e6


async def publish(peer: Peer, values: list[bytes]) -> float:
    return len(values) / await peer.publish(values, PUBLISHERS)


MEASURES = (
    Measure("put", "put, 100 B", "msg/s", put, 1.0, targets={"Redis": 10, "NATS": 100}),
    Measure("get", "get + ack, 100 B", "msg/s", get, 1.0, targets={"Redis": 8}),
    Measure(
        "fan-out", "10 subscribers, 100 B", "deliveries/s", fan_out, 0.2, targets={"Redis": 10}
    ),
    Measure(
        "latency",
        "put to get, p50, 100 B",
        "us",
        trip,
        0.001,
        less_is_better=True,
        alike=True,
        slices=10,  # the time of a sync changes every few seconds
        targets={"Redis": 0.8},
    ),
    Measure("put-1k", "put, 1 KiB", "msg/s", put, 0.1, size=1024, targets={"Redis": 5}),
    Measure("publishers", "256 publishers, 100 B", "msg/s", publish, 0.2, targets={"Redis": 3}),
)
