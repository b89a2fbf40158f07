"""What a reader or a writer of a stream keeps: values by key, as many as its history says.

A reader reads (the value stays) or takes (it goes). A value has its writer's number; of one writer
and key a cache never goes back. With keep-all a full cache takes nothing more: who writes has to
wait, or is told. With keep-last the oldest of the key goes.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from math import inf

from oncecast.kernel.protocol import NodeId, Value
from oncecast.qos.policies import QoS


class Sample(Value, tag=False):
    """A value that was written: the `number`th of its writer's life."""

    writer: NodeId
    number: int
    key: bytes
    value: bytes
    until: float = inf  # when it has outlived its lifespan, by the clock of who keeps it


class Full(Exception):
    """A cache that keeps all has reached its limit."""


class Cache:
    """Keys in the order in which they first came; of each, its newest values, oldest first."""

    def __init__(self, qos: QoS) -> None:
        self.qos = qos
        self._keys: OrderedDict[bytes, deque[Sample]] = OrderedDict()
        self._count = 0
        self._read: dict[tuple[NodeId, int], None] = {}  # samples that were read and stay

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Sample]:
        for samples in self._keys.values():
            yield from samples

    def keys(self) -> list[bytes]:
        return list(self._keys)

    def of(self, key: bytes) -> tuple[Sample, ...]:
        return tuple(self._keys.get(key, ()))

    # -- in --

    def has_room(self, key: bytes) -> bool:
        """Whether a value of this key can be added without losing another one against the rules."""
        if key not in self._keys and len(self._keys) >= self.qos.keys_max:
            return False
        if self._count < self.qos.samples_max:
            return True
        return not self.qos.keeps_all and len(self._keys.get(key, ())) >= self.qos.history

    def add(self, sample: Sample) -> tuple[Sample, ...]:
        """Keep it; which ones had to go for it. Raises Full."""
        if not self.has_room(sample.key):
            raise Full(
                f"{self._count} values of {len(self._keys)} keys: read or take some, or raise "
                "samples_max or keys_max"
            )
        samples = self._keys.get(sample.key)
        if samples is None:
            samples = self._keys[sample.key] = deque()
        samples.append(sample)
        self._count += 1
        gone: list[Sample] = []
        while not self.qos.keeps_all and len(samples) > self.qos.history:
            gone.append(samples.popleft())
            self._forget(gone[-1])
        return tuple(gone)

    # -- out --

    def read(self, key: bytes | None = None, *, unread: bool = False) -> tuple[Sample, ...]:
        """All of the key, or of every key; they stay, and count as read from now on."""
        found = self._chosen(key, unread)
        self._read.update(((sample.writer, sample.number), None) for sample in found)
        return found

    def take(self, key: bytes | None = None, *, unread: bool = False) -> tuple[Sample, ...]:
        """The same, and they go."""
        found = self._chosen(key, unread)
        for sample in found:
            self.drop(sample)
        return found

    def _chosen(self, key: bytes | None, unread: bool) -> tuple[Sample, ...]:
        samples = tuple(self) if key is None else self.of(key)
        if not unread:
            return samples
        return tuple(each for each in samples if (each.writer, each.number) not in self._read)

    def drop(self, sample: Sample) -> None:
        samples = self._keys[sample.key]
        samples.remove(sample)
        self._forget(sample)
        if not samples:
            del self._keys[sample.key]

    def _forget(self, sample: Sample) -> None:
        self._count -= 1
        self._read.pop((sample.writer, sample.number), None)

    # -- time --

    def expire(self, now: float) -> tuple[Sample, ...]:
        """What has outlived its lifespan goes."""
        old = tuple(sample for sample in self if sample.until < now)
        for sample in old:
            self.drop(sample)
        return old
