"""Counts of what a gateway stores and delivers, for metrics. A restart begins at zero."""

from __future__ import annotations

from collections.abc import Sequence

from oncecast.kernel.histogram import Histogram
from oncecast.wire.frames import Chunk

READERS_MAX = 100_000  # maximum number of subscriptions to count


class Delivered:
    """Messages sent to the readers of a subscription."""

    __slots__ = ("bytes", "messages", "redelivered")

    def __init__(self) -> None:
        self.messages = self.bytes = 0
        self.redelivered = 0  # messages that an earlier reader may have got


class Usage:
    def __init__(self) -> None:
        self.stored = Histogram()  # from the arrival of a batch until it is stored
        self.delivered: dict[tuple[str, str], Delivered] = {}  # by topic and subscription

    def note_delivery(
        self,
        topic: str,
        subscription: str,
        chunks: Sequence[Chunk],
        sizes: Sequence[int],
        suspect_below: int,
    ) -> None:
        counts = self.delivered.get((topic, subscription))
        if counts is None:
            if len(self.delivered) >= READERS_MAX:
                del self.delivered[next(iter(self.delivered))]
            counts = self.delivered[topic, subscription] = Delivered()
        first, last = chunks[0].offset, chunks[-1].offset + chunks[-1].count
        counts.messages += last - first
        counts.bytes += sum(sizes)
        counts.redelivered += max(0, min(suspect_below, last) - first)
