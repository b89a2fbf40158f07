"""The cache of a stream's reader or writer, with values in order of arrival.

The application reads values, which stay in the cache, or takes them. With keep-all, a full cache
accepts no more values, so the writer waits or gets an error. With keep-last, a new value replaces
the oldest value of its key.

Each value has a slot. Slot numbers grow by one with every value. In the cache of a keep-last
writer, the slot is the number of the value. Values that share a key are processed together.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from math import inf

from oncecast.kernel.protocol import NodeId, Value
from oncecast.streams.protocols.policies import QoS


class Sample(Value, tag=False):
    """A value that was written. `number` counts its writer's values, from 1."""

    writer: NodeId
    number: int
    key: bytes
    value: bytes


class Cache:
    def __init__(self, qos: QoS) -> None:
        self.qos = qos
        self.samples: dict[int, Sample] = {}  # samples by slot, in order
        self._slots: dict[bytes, deque[int]] = {}  # the slots of each key, in order
        self._next = self._first = 1  # used slots are between _first and _next
        self._until: dict[int, float] = {}  # when each value with a lifespan expires, by slot
        self._seen: dict[int, None] = {}  # slots whose sample was read
        self._all_seen = 1  # the samples in all slots before this one were read

    def __len__(self) -> int:
        return len(self.samples)

    def keys(self) -> list[bytes]:
        """Return the keys, in order of arrival."""
        return list(self._slots)

    @property
    def key_count(self) -> int:
        return len(self._slots)

    def of(self, key: bytes) -> tuple[Sample, ...]:
        """Return the values of a key, oldest first."""
        return tuple(self.samples[slot] for slot in self._slots.get(key, ()))

    @property
    def first(self) -> int:
        """Return the lowest used slot, or the next slot if the cache is empty."""
        while self._first < self._next and self._first not in self.samples:
            self._first += 1
        return self._first

    # -- adding samples --

    def fits(self, keys: Sequence[bytes], count: int = 1) -> bool:
        """Return whether `count` values fit. `keys` has one key for all values, or one for each."""
        slots, qos = self._slots, self.qos
        if len(slots) + len(keys) > qos.keys_max:
            new = [key for key in dict.fromkeys(keys) if key not in slots]
            if new and len(slots) + len(new) > qos.keys_max:
                return False
        if len(self.samples) + count <= qos.samples_max:
            return True
        return not qos.keeps_all and len(self.samples) + self._growth(keys, count) <= (
            qos.samples_max
        )

    def _growth(self, keys: Sequence[bytes], count: int) -> int:
        """Return how many more values the cache would have if each key keeps only its history."""
        coming = {keys[0]: count} if len(keys) == 1 else Counter(keys)
        have = {key: len(self._slots.get(key, ())) for key in coming}
        return sum(
            min(self.qos.history, have[key] + new) - have[key] for key, new in coming.items()
        )

    def add(self, samples: Sequence[Sample], until: float = inf, *, one_key: bool = False) -> int:
        """Add samples while they fit. Return how many were added."""
        if one_key and self.fits((samples[0].key,), len(samples)):
            self._add(samples, until)
            return len(samples)
        for count, sample in enumerate(samples):
            if not self.fits((sample.key,)):
                return count
            self._add((sample,), until)
        return len(samples)

    def _add(self, samples: Sequence[Sample], until: float) -> None:
        """Add samples of one key."""
        slots = self._slots.setdefault(samples[0].key, deque())
        new = range(self._next, self._next + len(samples))
        self._next = new.stop
        if not self.qos.keeps_all:
            history = self.qos.history
            new, samples = new[-history:], samples[-history:]
            for _ in range(len(slots) + len(new) - history):
                self._remove(slots.popleft())
        slots.extend(new)
        self.samples.update(zip(new, samples, strict=True))
        if until < inf:
            self._until.update(dict.fromkeys(new, until))

    def between(self, first: int, last: int) -> Iterator[Sample]:
        """Return the samples in the slots from `first` to `last`."""
        samples = self.samples
        if last - first < len(samples):
            return (samples[slot] for slot in range(first, last + 1) if slot in samples)
        return (sample for slot, sample in samples.items() if first <= slot <= last)

    def skip(self, count: int) -> None:
        """Use up `count` slots for values that are not kept."""
        self._next += count

    # -- reading samples --

    @property
    def has_unread(self) -> bool:
        if self._all_seen <= self._first and not self._seen:
            return bool(self.samples)
        return any(self._unread(slot) for slot in reversed(self.samples))

    def _unread(self, slot: int) -> bool:
        return slot >= self._all_seen and slot not in self._seen

    def read(self, key: bytes | None = None, *, unread: bool = False) -> tuple[Sample, ...]:
        """Return the samples of a key, or of all keys, and mark them as read."""
        chosen = self._chosen(key, unread)
        if key is None:
            self._all_seen = self._next
            self._seen.clear()
        else:
            self._seen.update(dict.fromkeys(chosen))
        return tuple(self.samples[slot] for slot in chosen)

    def take(self, key: bytes | None = None, *, unread: bool = False) -> tuple[Sample, ...]:
        """Remove and return the samples of a key, or of all keys."""
        if key is None and not unread:
            found = tuple(self.samples.values())
            for each in (self.samples, self._slots, self._until, self._seen):
                each.clear()
            self._first = self._next
            return found
        chosen = self._chosen(key, unread)
        return tuple(self.drop(slot) for slot in chosen)

    def take_first(self) -> Sample:
        """Remove and return the oldest sample of a cache that is not empty."""
        slot = self._first
        if slot not in self.samples:
            slot = self.first
        sample = self.samples.pop(slot)
        self._first = slot + 1
        slots = self._slots[sample.key]
        slots.popleft()  # the oldest sample is also the oldest of its key
        if not slots:
            del self._slots[sample.key]
        if self._until or self._seen:
            self._forget(slot)
        return sample

    def _chosen(self, key: bytes | None, unread: bool) -> list[int]:
        slots = list(self.samples if key is None else self._slots.get(key, ()))
        return [slot for slot in slots if self._unread(slot)] if unread else slots

    def drop(self, slot: int) -> Sample:
        sample = self._remove(slot)
        slots = self._slots[sample.key]
        slots.remove(slot)
        if not slots:
            del self._slots[sample.key]
        return sample

    def _remove(self, slot: int) -> Sample:
        if self._until or self._seen:
            self._forget(slot)
        return self.samples.pop(slot)

    def _forget(self, slot: int) -> None:
        self._until.pop(slot, None)
        self._seen.pop(slot, None)

    # -- time --

    def expire(self, now: float) -> None:
        """Remove the samples whose lifespan has expired."""
        for slot in [slot for slot, until in self._until.items() if until < now]:
            self.drop(slot)
