"""Staged puts: parts in the log that readers do not see until their source publishes them.

A source numbers its publishes in ascending order. The last published number is kept with its
result. A repeated publish of that number is answered with `already`. Parts with this or a lower
number arrive too late and are ignored.

A refused publish gives the source a new epoch, so a late copy of the command has an old epoch. A
drop does the same, because parts may be staged again under the same names. `floor` is the epoch of
sources without a record, and at least the epoch of any deleted record.

A new run of a program takes over a source with its first command. Commands from earlier runs are
refused.

A source that was opened for transactions has an epoch instead of runs. The parts of a transaction
have the number of the transaction. The results of transactions are kept until the client has them.

On a ring, a group holds its share of a transaction until the transaction is decided. Until then,
nothing drops the parts of the share. The coordinator keeps its decision until all participants have
published their shares (see `wire.ring_transactions`).
"""

from __future__ import annotations

from collections.abc import Iterator

from oncecast.broker.live_slots import LiveSlots
from oncecast.wire.commands import PublishStaged
from oncecast.wire.errors import MachineRefusal
from oncecast.wire.results import PublishedRange, TransactionEnded
from oncecast.wire.ring_transactions import Share
from oncecast.wire.transactions import Accepted, Consumed


def key_of_source(source: str, topic: str) -> str:
    return f"{len(topic)}:{topic}{source}"  # no separator, because names may contain any character


def topic_of_key(key: str) -> str:
    length, _, rest = key.partition(":")
    return rest[: int(length)] if length.isdigit() else ""


def source_of_key(key: str) -> str:
    length, _, rest = key.partition(":")
    return rest[int(length) :] if length.isdigit() else ""


RUNS_KEPT = 16  # maximum number of runs that a source remembers, including the current one


class Part:
    """Staged messages for one topic."""

    __slots__ = ("count", "size", "slot", "time", "topic")

    def __init__(self, slot: int, topic: str, count: int, size: int, time: int) -> None:
        self.slot = slot
        self.topic = topic
        self.count = count
        self.size = size
        self.time = time


class Opening:
    """The process that has opened a source for transactions, and the results of its transactions.

    The results of the process before it are kept until this process ends a transaction. So the
    earlier process can still learn the outcome of its last commits.
    """

    __slots__ = ("epoch", "finished", "incarnation", "results")

    def __init__(self, epoch: int, incarnation: str) -> None:
        self.epoch, self.incarnation = epoch, incarnation
        self.finished = 0  # the process has the results of all transactions before this number
        self.results: dict[
            tuple[int, int], TransactionEnded | MachineRefusal
        ] = {}  # by epoch and number

    def has_ended(self, number: int) -> bool:
        return number < self.finished or (self.epoch, number) in self.results

    def finish(self, before: int) -> None:
        """Forget the results of all numbers before `before`, and of earlier processes."""
        self.finished = max(self.finished, before)
        for epoch, number in list(self.results):
            if epoch != self.epoch or number < self.finished:
                del self.results[epoch, number]


class HeldShare:
    """A share of a transaction that waits for the decision of its coordinator."""

    __slots__ = ("accepted", "consumed", "coordinator", "epoch", "parts", "time")

    def __init__(
        self,
        epoch: int,
        coordinator: Share,
        parts: tuple[str, ...],
        consumed: tuple[Consumed, ...],
        accepted: tuple[Accepted, ...],
        time: int,
    ) -> None:
        self.epoch, self.coordinator, self.parts = epoch, coordinator, parts
        self.consumed, self.accepted = consumed, accepted
        self.time = time  # when the group began to hold the share

    def holds(self, topic: str, subscription: str, epoch: int) -> bool:
        """Return whether the share holds messages of the reader with this epoch."""
        for each in self.consumed:
            if (each.topic, each.subscription, each.epoch) == (topic, subscription, epoch):
                return True
        return False


class Source:
    __slots__ = (
        "decisions",
        "digest",
        "epoch",
        "held",
        "opening",
        "published",
        "ranges",
        "runs",
        "staged",
        "used",
    )

    def __init__(self, epoch: int = 0) -> None:
        self.epoch = epoch  # assigned by the last refusal
        self.used = 0  # time of the last stage or publish; 0 if the record never expires
        self.published = -1
        self.ranges: tuple[PublishedRange, ...] = ()
        self.digest = b""  # digest of the last published content; empty if unknown
        self.runs: tuple[str, ...] = ()  # runs in order; the last one is current
        self.opening: Opening | None = None  # None if it was never opened for transactions
        self.staged: dict[int, dict[str, Part]] = {}  # by number, then by part name
        self.held: dict[int, HeldShare] = {}  # by number; its parts are in `staged`
        # Participants that may not have published yet, by epoch and number.
        self.decisions: dict[tuple[int, int], dict[str, Share]] = {}

    @property
    def idle(self) -> bool:
        """Return whether the record can be deleted: it is empty and fences no run."""
        fences = self.runs or self.opening is not None
        return self.published < 0 and not self.staged and not fences and not self.unsettled

    @property
    def unsettled(self) -> bool:
        """Return whether a transaction across groups still needs the record."""
        return bool(self.held or self.decisions)

    @property
    def opened(self) -> int:
        """Return the epoch of the process that has opened the source, or 0."""
        return 0 if self.opening is None else self.opening.epoch

    def parts(self) -> Iterator[Part]:
        for parts in self.staged.values():
            yield from parts.values()

    def will_put_to(self, topic: str) -> bool:
        """Return whether a held share has messages for the topic."""
        parts = (self.staged.get(number, {}).values() for number in self.held)
        return any(part.topic == topic for each in parts for part in each)

    def has_fenced(self, run: str) -> bool:
        return run in self.runs[:-1]

    def enter(self, run: str) -> None:
        """Make `run` the current run, unless it is empty."""
        if run and run not in self.runs:
            self.runs = (*self.runs, run)[-RUNS_KEPT:]


class Staging:
    __slots__ = ("_live_slots", "bytes", "decisions", "floor", "parts", "sources", "unsettled")

    def __init__(self, live_slots: LiveSlots) -> None:
        self._live_slots = live_slots
        self.sources: dict[str, Source] = {}
        self.floor = 0
        self.parts = 0
        self.bytes = 0
        self.decisions = 0  # number of decisions in all sources
        self.unsettled: dict[str, Source] = {}  # sources with held shares or decisions

    def epoch(self, source: str) -> int:
        known = self.sources.get(source)
        return self.floor if known is None else known.epoch

    def refuse(self, source: str, epoch: int) -> None:
        """Give the source a new epoch. Commands with an earlier epoch have no effect."""
        known = self.sources.get(source)
        if known is None:
            self.floor = epoch
        else:
            known.epoch = epoch

    def find(self, source: str, number: int, part: str) -> Part | None:
        known = self.sources.get(source)
        return None if known is None else known.staged.get(number, {}).get(part)

    def topics(self, source: str, number: int) -> Iterator[str]:
        """Return the topics of the parts staged under a number, without duplicates."""
        known = self.sources.get(source)
        parts = known.staged.get(number, {}).values() if known is not None else ()
        return iter(dict.fromkeys(part.topic for part in parts))

    def use(self, source: str, time: int) -> None:
        """Record the time of last use if the source exists."""
        known = self.sources.get(source)
        if known is not None:
            known.used = time

    def add(self, source: str, number: int, name: str, part: Part, run: str) -> None:
        known = self._known(source)
        known.enter(run)
        self.add_to(known, number, name, part)

    def add_to(self, source: Source, number: int, name: str, part: Part) -> None:
        source.staged.setdefault(number, {})[name] = part
        self.parts += 1
        self.bytes += part.size

    def publish(self, key: str, command: PublishStaged, ranges: tuple[PublishedRange, ...]) -> None:
        """Mark a number as published, and drop all other parts up to it."""
        known, number = self._known(key), command.number
        known.enter(command.run)
        known.published, known.ranges, known.digest = number, ranges, command.digest
        for name in command.parts:
            self._forget(known.staged[number].pop(name))
        self.drop_up_to(key, number)

    def open(self, key: str, epoch: int, incarnation: str) -> None:
        """Give the source to a process, and drop the parts of earlier processes."""
        known = self._known(key)
        before, known.opening = known.opening, Opening(epoch, incarnation)
        for number in [each for each in known.staged if each not in known.held]:
            self.drop(key, number)
        # The parts of held shares keep their numbers, so the process starts above them.
        known.opening.finished = max(known.held, default=-1) + 1
        if before is not None:
            ended = before.results.items()
            known.opening.results = {key: each for key, each in ended if key[0] == before.epoch}

    def take(self, key: str, number: int, parts: tuple[str, ...]) -> None:
        """Forget these parts, whose slots stay live, and drop the other parts of the number."""
        for name in parts:
            self._forget(self.sources[key].staged[number].pop(name))
        self.drop(key, number)

    def drop(self, source: str, number: int) -> int:
        """Drop the parts staged under a number, and return their count."""
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
        """Remove and return a source's record. The slots of its parts stay live."""
        known = self.sources.pop(source)
        for part in known.parts():
            self._forget(part)
        self.decisions -= len(known.decisions)
        self.unsettled.pop(source, None)
        return known

    def take_over(self, source: str, known: Source) -> None:
        self.sources[source] = known
        self.decisions += len(known.decisions)
        self.follow(source)
        for part in known.parts():
            self.parts += 1
            self.bytes += part.size

    def close(self, source: str) -> bool:
        """Delete a source's record. An unsettled one only loses the parts of no held share."""
        known = self.sources.get(source)
        if known is None:
            return False
        for number in [each for each in known.staged if each not in known.held]:
            self.drop(source, number)
        if not known.unsettled:
            self._delete(source)
        return True

    # -- transactions across groups --

    def follow(self, source: str) -> None:
        """Note whether a source is unsettled."""
        known = self.sources.get(source)
        if known is not None and known.unsettled:
            self.unsettled[source] = known
        else:
            self.unsettled.pop(source, None)

    def follow_all(self) -> None:
        for key, source in self.sources.items():
            self.decisions += len(source.decisions)
            self.follow(key)

    def hold(self, source: str, number: int, share: HeldShare) -> None:
        """Hold a share with these parts, and drop the other parts of its number."""
        known = self.sources[source]
        staged = known.staged.get(number, {})
        for name in [each for each in staged if each not in share.parts]:
            part = staged.pop(name)
            self._live_slots.drop(part.slot)
            self._forget(part)
        if not staged:
            known.staged.pop(number, None)
        known.held[number] = share
        self.follow(source)

    def decide(self, source: str, number: tuple[int, int], participants: dict[str, Share]) -> None:
        self.sources[source].decisions[number] = participants
        self.decisions += 1
        self.follow(source)

    def confirm(self, source: str, number: tuple[int, int], tags: tuple[str, ...]) -> bool:
        """Forget these participants of a decision. Return False if the decision is unknown."""
        known = self.sources.get(source)
        participants = None if known is None else known.decisions.get(number)
        if known is None or participants is None:
            return False
        for tag in tags:
            participants.pop(tag, None)
        if not participants:
            del known.decisions[number]
            self.decisions -= 1
            self.follow(source)
        return True

    def expire(self, time: int) -> None:
        """Drop every number with no part staged since `time`."""
        for source, number in list(self.abandoned(time)):
            self.drop(source, number)

    def abandoned(self, time: int) -> Iterator[tuple[str, int]]:
        """Yield the sources and numbers with no part staged since `time`."""
        for source, known in self.sources.items():
            for number, parts in known.staged.items():
                held = number in known.held
                if not held and next(reversed(parts.values())).time < time:
                    yield source, number

    def unused(self, time: int) -> Iterator[str]:
        """Yield the sources without parts that have been idle since `time`."""
        for source, known in self.sources.items():
            if not known.staged and not known.unsettled and 0 < known.used <= time:
                yield source

    def before(self, slot: int) -> Iterator[Part]:
        for source in self.sources.values():
            for parts in source.staged.values():
                yield from (part for part in parts.values() if part.slot < slot)

    def _known(self, source: str) -> Source:
        """Return a source's record, creating it if missing."""
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
