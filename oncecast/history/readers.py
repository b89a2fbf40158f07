"""Checks the guarantees of a single reader: each offset once, in order, correctly marked (E4).

These rules need no search, because the events of one reader are ordered.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from oncecast.history.finding import Finding
from oncecast.history.operation import History, Operation
from oncecast.history.partition import due_of
from oncecast.history.subscription_model import fits
from oncecast.history.subscription_part import drops_from

OF_READER = ("attach", "moved", "get", "skip", "again", "leave", "end")
RESETS = ("unsubscribe", "delete")


def reader_findings(topic: str, operations: History) -> Iterator[Finding]:
    """Yield the violations by any of a topic's readers."""
    policies = [each for each in operations if each.policy is not None]
    subscriptions: dict[str, Readers] = {}
    resets = [each for each in operations if each.kind in RESETS]
    for each in operations:
        if each.reader and each.subscription:
            found = subscriptions.get(each.subscription)
            if found is None:
                found = Readers(topic, each.subscription, resets, policies)
                subscriptions[each.subscription] = found
            found.add(each)
    for found in subscriptions.values():
        yield from found.findings()
    yield from (
        Finding(
            f"topic {topic!r}",
            f"the lag of {view.name!r} is not the number of unread messages",
            [look],
        )
        for look in operations
        for view in look.views or ()
        if view.lag != look.next - max(view.cursor, look.first)
    )


class Readers:
    """All readers of one subscription."""

    def __init__(self, topic: str, name: str, resets: History, policies: History) -> None:
        self._name = f"subscription {name!r} of topic {topic!r}"
        self._resets = [each for each in resets if each.subscription in ("", name)]
        self._policies = policies
        self._readers: dict[str, History] = {}
        self._acks: History = []

    def add(self, operation: Operation) -> None:
        if operation.kind in OF_READER:
            self._readers.setdefault(operation.reader, []).append(operation)
        if operation.kind in ("ack", "leave", "seek", "attach"):
            self._acks.append(operation)

    def findings(self) -> Iterator[Finding]:
        readers = [
            ReaderEvents(self, each) for each in self._readers.values() if each[0].kind == "attach"
        ]
        epochs: dict[int, Operation] = {}
        for reader in readers:
            attach = reader.attach
            other = epochs.setdefault(attach.epoch, attach)
            if attach.epoch and other is not attach:
                why = f"two readers have epoch {attach.epoch}"
                yield Finding(self._name, why, [other, attach])
        for reader in readers:
            for why, operations in reader.broken(readers):
                yield Finding(self._name, why, operations)

    def may_skip(self, skip: Operation) -> bool:
        """Return whether the policy or earlier acks explain why the skipped messages are gone."""
        if drops_from(of_topic(self._policies, skip)) <= due_of(skip):
            return True
        acks = of_topic(self._acks, skip)
        gone = [max(each.upto, each.offset) for each in acks if each.call <= due_of(skip)]
        return max(gone, default=-1) >= skip.next

    def reset_between(self, one: Operation, other: Operation) -> bool:
        """Return whether the subscription may have been replaced between the two operations."""
        return any(each.call <= due_of(other) and due_of(each) >= one.call for each in self._resets)


def of_topic(operations: History, skip: Operation) -> History:
    """Return the operations that may belong to this topic, and not to another of the same name."""
    return [each for each in operations if fits(each.topic_id, skip.topic_id)]


Broken = Iterator[tuple[str, History]]


class ReaderEvents:
    """The events of one reader, in order."""

    def __init__(self, readers: Readers, events: History) -> None:
        self._readers, self._events = readers, events
        self.attach = events[0]
        gets = [each for each in events if each.kind == "get"]
        self._last = max(gets, key=lambda get: get.offset + get.messages, default=None)
        left = [each for each in events if each.kind == "leave"]
        # A reader that leaves reports how far it has read.
        self._delivered = left[0].next if left else inf

    def delivered(self, before: float) -> tuple[int, Operation | None]:
        """Return the offset up to which the reader had read by then, and its last delivery."""
        last = self._last
        if last is None:
            return 0, None
        if due_of(last) >= before:
            gets = (each for each in self._events if each.kind == "get" and due_of(each) < before)
            last = max(gets, key=lambda get: get.offset + get.messages, default=None)
        if last is None:
            return 0, None
        return int(min(last.offset + last.messages, self._delivered)), last

    def broken(self, readers: list[ReaderEvents]) -> Broken:
        attach = self.attach
        if not attach.done:
            return
        suspect, by = self._suspect(readers)
        expected, before, back, most = attach.offset, attach, 0, attach.next
        for event in self._events[1:]:
            match event.kind:
                case "moved":
                    expected, back = event.offset, 0
                case "again":
                    expected, back = event.offset, event.upto
                    most = max(most, event.upto)
                case "skip":
                    if not self._readers.may_skip(event) and attach.start is None:
                        yield "unread messages were skipped", [before, event]
                    expected = event.next
                case "get":
                    if event.offset != expected:
                        why = f"offset {expected} is due, but {event.offset} was delivered"
                        yield why, [before, event]
                    yield from self._marks(event, suspect, by, back, most)
                    expected = event.offset + event.messages
                case _:
                    pass
            before = event

    def _suspect(self, readers: list[ReaderEvents]) -> tuple[int, Operation | None]:
        """Return how far earlier readers have read. Messages before that must be marked."""
        most: tuple[int, Operation | None] = 0, None
        for each in readers:
            if each is self or each.attach.topic_id != self.attach.topic_id:
                continue
            delivered, by = each.delivered(self.attach.call)
            if delivered > most[0] and not self._readers.reset_between(each.attach, self.attach):
                most = delivered, by
        return most

    def _marks(
        self, get: Operation, suspect: int, by: Operation | None, back: int, most: int
    ) -> Broken:
        end = get.offset + get.messages
        marked = get.offset + get.marked
        if marked < min(end, suspect) and by is not None:
            why = f"offset {marked} was delivered before, but is redelivered without a mark"
            yield why, [by, self.attach, get]
        if marked < min(end, back):
            yield f"offset {marked} was rejected, but is redelivered without a mark", [get]
        if get.marked and marked > most >= 0:
            yield (
                f"offset {marked - 1} is marked as redelivered, but was never delivered before",
                [get],
            )
