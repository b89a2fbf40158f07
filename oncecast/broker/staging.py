"""Staged puts: parts that lie in the log unseen until their source publishes them.

A source numbers what it publishes upwards. Of each source the last published number is remembered
with its result, and that is enough: whoever repeats it is told "already", and parts of this or a
lower number are late and of no use.

A refused publish is remembered, too: it gives the source a new epoch, and a copy of the command
names the old one. `floor` is the epoch of sources without a record. It is at least the epoch of any
record that was deleted.
"""

from __future__ import annotations

from collections.abc import Iterator

from oncecast.broker.live_slots import LiveSlots
from oncecast.wire.results import PublishedRange


def key_of_source(source: str, topic: str) -> str:
    return f"{len(topic)}:{topic}{source}"  # names hold anything


def topic_of_key(key: str) -> str:
    length, _, rest = key.partition(":")
    return rest[: int(length)] if length.isdigit() else ""


def source_of_key(key: str) -> str:
    length, _, rest = key.partition(":")
    return rest[int(length) :] if length.isdigit() else ""


class Part:
    """Messages for one topic, by one attempt to make them."""

    __slots__ = ("count", "size", "slot", "time", "topic")

    def __init__(self, slot: int, topic: str, count: int, size: int, time: int) -> None:
        self.slot = slot
        self.topic = topic
        self.count = count
        self.size = size
        self.time = time


class Source:
    __slots__ = ("epoch", "published", "ranges", "staged", "used")

    def __init__(self, epoch: int = 0) -> None:
        self.epoch = epoch  # the last refusal gave it this
        self.used = 0  # when it staged or published last; 0: the record is kept until it closes
        self.published = -1
        self.ranges: tuple[PublishedRange, ...] = ()
        self.staged: dict[int, dict[str, Part]] = {}  # by number and name of the part

    @property
    def idle(self) -> bool:
        return self.published < 0 and not self.staged

    def parts(self) -> Iterator[Part]:
        for parts in self.staged.values():
            yield from parts.values()


class Staging:
    __slots__ = ("_live_slots", "bytes", "floor", "parts", "sources")

    def __init__(self, live_slots: LiveSlots) -> None:
        self._live_slots = live_slots
        self.sources: dict[str, Source] = {}
        self.floor = 0
        self.parts = 0
        self.bytes = 0

    def epoch(self, source: str) -> int:
        known = self.sources.get(source)
        return self.floor if known is None else known.epoch

    def refuse(self, source: str, epoch: int) -> None:
        """Give the source a new epoch: what was sent under an earlier one has no effect."""
        known = self.sources.get(source)
        if known is None:
            self.floor = epoch
        else:
            known.epoch = epoch

    def find(self, source: str, number: int, part: str) -> Part | None:
        known = self.sources.get(source)
        return None if known is None else known.staged.get(number, {}).get(part)

    def use(self, source: str, time: int) -> None:
        """Note when the source was used, if there is a record of it."""
        known = self.sources.get(source)
        if known is not None:
            known.used = time

    def add(self, source: str, number: int, name: str, part: Part) -> None:
        self.add_to(self._known(source), number, name, part)

    def add_to(self, source: Source, number: int, name: str, part: Part) -> None:
        source.staged.setdefault(number, {})[name] = part
        self.parts += 1
        self.bytes += part.size

    def publish(
        self, source: str, number: int, names: tuple[str, ...], ranges: tuple[PublishedRange, ...]
    ) -> None:
        """The named parts belong to topics now; all others up to `number` are of no more use."""
        known = self._known(source)
        known.published, known.ranges = number, ranges
        for name in names:
            self._forget(known.staged[number].pop(name))
        self.drop_up_to(source, number)

    def drop(self, source: str, number: int) -> int:
        """Drops the parts of a number and says how many they were."""
        known = self.sources.get(source)
        parts = known.staged.pop(number, {}) if known is not None else {}
        for part in parts.values():
            self._live_slots.drop(part.slot)
            self._forget(part)
        if known is not None and known.idle:
            self._delete(source)
        return len(parts)

    def drop_up_to(self, source: str, number: int) -> None:
        known = self.sources[source]
        for old in [each for each in known.staged if each <= number]:
            self.drop(source, old)

    def hand_over(self, source: str) -> Source:
        """Hand it over as it is: its parts stay where they are in the log."""
        known = self.sources.pop(source)
        for part in known.parts():
            self._forget(part)
        return known

    def take_over(self, source: str, known: Source) -> None:
        self.sources[source] = known
        for part in known.parts():
            self.parts += 1
            self.bytes += part.size

    def close(self, source: str) -> bool:
        known = self.sources.get(source)
        if known is None:
            return False
        for number in list(known.staged):
            self.drop(source, number)
        self._delete(source)
        return True

    def expire(self, time: int) -> None:
        """Drops every number of which the newest part was staged before `time`."""
        for source, number in list(self.abandoned(time)):
            self.drop(source, number)

    def abandoned(self, time: int) -> Iterator[tuple[str, int]]:
        """The sources and numbers of which no part is newer than `time`."""
        for source, known in self.sources.items():
            for number, parts in known.staged.items():
                if next(reversed(parts.values())).time < time:
                    yield source, number

    def unused(self, time: int) -> Iterator[str]:
        """Return the sources without parts that neither staged nor published after `time`."""
        for source, known in self.sources.items():
            if not known.staged and 0 < known.used <= time:
                yield source

    def before(self, slot: int) -> Iterator[Part]:
        for source in self.sources.values():
            for parts in source.staged.values():
                yield from (part for part in parts.values() if part.slot < slot)

    def _known(self, source: str) -> Source:
        """Return the record of a source; make one if there is none."""
        if source not in self.sources:
            self.sources[source] = Source(self.floor)
        return self.sources[source]

    def _delete(self, source: str) -> None:
        known = self.sources.pop(source, None)
        if known is not None:
            self.floor = max(self.floor, known.epoch)

    def _forget(self, part: Part) -> None:
        self.parts -= 1
        self.bytes -= part.size
