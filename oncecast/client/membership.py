"""The next steps of a member of a consumer group. Pure: the caller sends requests and reads.

Rules
- A member enlists again after a third of its lifetime, and at once after it has released a
  partition. While it waits for partitions, it enlists more often.
- A member starts to read the partitions that it is told to hold. It stops to read those that it is
  told to release, and says so once it has stored all acknowledgements. It drops all others at once.
- A partition with a new term was assigned to another member in between, so the member reads it
  again from its cursor.
- When its time is over by its own clock, another member may have its partitions. So it hands out
  no more messages until it has enlisted again.
"""

from __future__ import annotations

from typing import NamedTuple

from oncecast.wire.partitions import Term
from oncecast.wire.results import Enlisted

WAITING_MIN = 0.1  # minimum seconds between requests while the member waits for partitions


class Changes(NamedTuple):
    take: tuple[Term, ...]  # start to read
    release: tuple[Term, ...]  # stop to read, and call `released`
    drop: tuple[int, ...]  # stop to read at once


class Membership:
    def __init__(self, lifetime: float) -> None:
        self.lifetime = lifetime  # seconds
        self.partitions = 0  # number of partitions of the topic
        self.terms: dict[int, int] = {}  # the term of each partition that is read
        self.releasing: dict[int, int] = {}  # those that the member stops to read
        self.released: dict[Term, None] = {}  # what the next request reports
        self.due = 0.0  # when to enlist again
        self.until = 0.0  # when its time is over, by its own clock
        self._pause = WAITING_MIN

    def enlisted(self, sent: float, found: Enlisted) -> Changes:
        """Return what has changed. `sent` is when the request was sent first."""
        self.partitions = found.partitions
        self.until = sent + self.lifetime
        self._plan(sent, waiting=found.waiting)
        held, release = dict(found.held), dict(found.release)
        known = {**held, **release}
        self.released = {each: None for each in self.released if known.get(each[0]) == each[1]}
        drop = [each for each, term in self.terms.items() if known.get(each) != term]
        for partition in drop:
            del self.terms[partition]
            self.releasing.pop(partition, None)
        take = [(each, term) for each, term in held.items() if self._takes(each, term)]
        stop = [
            (each, term)
            for each, term in release.items()
            if each in self.terms and each not in self.releasing
        ]
        # A partition that this member does not read, such as one of an earlier answer, is free.
        for each, term in release.items():
            if each not in self.terms:
                self._report((each, term), sent)
        self.terms.update(take)
        self.releasing.update(stop)
        return Changes(tuple(take), tuple(stop), tuple(drop))

    def _takes(self, partition: int, term: int) -> bool:
        return partition not in self.terms and (partition, term) not in self.released

    def _plan(self, sent: float, *, waiting: bool) -> None:
        regular = self.lifetime / 3
        self._pause = min(2 * self._pause, regular) if waiting else WAITING_MIN
        self.due = sent + (self._pause if waiting else regular)

    def stopped(self, partition: int, term: int, now: float) -> None:
        """Note that the member has stopped to read a partition, and report it at once."""
        if self.terms.get(partition) == term:
            del self.terms[partition]
            self.releasing.pop(partition, None)
            self._report((partition, term), now)

    def _report(self, term: Term, now: float) -> None:
        self.released[term] = None
        self.due = now

    def over(self, now: float) -> bool:
        """Return whether the member's time is over, by its own clock."""
        return now >= self.until
