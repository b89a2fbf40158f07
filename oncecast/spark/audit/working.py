"""Check the jobs of shared subscriptions: each is done once, or becomes a dead letter once.

A message is leased to a worker under a token, and later leases of the message have larger tokens.
The rules compare tokens, not clocks, so the order of lines in different files does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, NamedTuple

from oncecast.spark.audit.rows import Check, Row, What, fault


class Line(NamedTuple):
    """A line about a job or its subscription. `number` is a token, or an offset."""

    what: int
    at: int
    session: int
    number: int
    flag: int
    messages: int


class Job:
    """The lines about one message, in the order of their kinds and positions."""

    def __init__(self, lines: list[Line]) -> None:
        self._of = {what: list(rows) for what, rows in groupby(lines, lambda each: each.what)}

    def of(self, what: What) -> list[Line]:
        return self._of.get(what, [])

    def done(self, *, by_effect: bool) -> bool:
        """Return whether the message was done or became a dead letter."""
        return bool(self.of(What.EFFECT if by_effect else What.ACCEPT) or self.of(What.LETTER))

    def faults(self, deliveries_max: int) -> Iterator[tuple[str, int, int]]:
        """Yield each fault with the positions of two lines that prove it."""
        leases, settled = self.of(What.LEASE), self.of(What.ACCEPTED)
        by_token = sorted(leases, key=lambda each: (each.number, each.at))
        for one, two in pairwise(by_token):
            if one.number == two.number and one.session != two.session:
                yield "two holders", two.at, one.at
        if deliveries_max:
            for each in leases:
                if each.flag > deliveries_max:
                    yield "delivered too often", each.at, -1
        for each in settled[1:]:
            yield "acknowledged twice", each.at, settled[0].at
        yield from self._after_ack(settled, by_token)
        yield from self._effects()
        letters = self.of(What.LETTER)
        for each in letters[1:]:
            yield "two dead letters", each.at, letters[0].at

    def _after_ack(
        self, settled: list[Line], by_token: list[Line]
    ) -> Iterator[tuple[str, int, int]]:
        if settled and by_token and by_token[-1].number > settled[0].number:
            yield "leased after its ack", by_token[-1].at, settled[0].at
        if settled and self.of(What.LETTER):
            yield "dead after its ack", self.of(What.LETTER)[0].at, settled[0].at

    def _effects(self) -> Iterator[tuple[str, int, int]]:
        for one, two in pairwise(self.of(What.EFFECT)):
            name = "done with an old token" if two.number < one.number else "done twice"
            yield name, two.at, one.at


class Shared:
    """The settings of a shared subscription, and how far its messages are settled."""

    def __init__(self) -> None:
        self.deliveries_max = 0
        self.effects = False
        self.next = -1  # the first offset whose message may still be lost
        self.settled, self.settled_at = -1, -1  # the end of the settled messages, and its line

    def add(self, line: Line) -> None:
        """Add a line about the subscription. Its number is an offset."""
        if line.what == What.SETTLED:
            if line.number > self.settled:
                self.settled, self.settled_at = line.number, line.at
        elif self.next < 0:
            self.next, self.deliveries_max = line.number, line.messages
            self.effects = bool(line.flag)

    def undone(self, until: int, where: dict[str, Any]) -> Iterator[Row]:
        """Yield the settled messages from `next` to before `until`, which were never done."""
        until = min(until, self.settled)
        if self.next < until:
            yield Row(What.UNDONE, at=self.settled_at, offset=self.next, until=until, **where)


def job_rule(rows: Iterator[tuple[int, ...]]) -> Iterator[Row]:
    """Yield the faults of the jobs of a subscription, and the ranges that were never done."""
    shared = Shared()
    where: dict[str, Any] = {}
    for offset, group in groupby(rows, itemgetter(0)):
        lines = list(group)
        _, topic, reader, *_ = lines[0]
        where = {"topic": topic, "reader": reader}
        found = [Line(*line[3:]) for line in lines]
        if offset < 0:
            for each in found:
                shared.add(each)
            continue
        job = Job(found)
        for name, at, other in job.faults(shared.deliveries_max):
            yield fault(name, at=at, other=other, offset=offset, **where)
        if shared.next >= 0 and job.done(by_effect=shared.effects):
            yield from shared.undone(offset, where)
            shared.next = max(shared.next, offset + 1)
    if shared.next >= 0:
        yield from shared.undone(shared.settled, where)


JOBS = Check(
    kinds=tuple(range(What.SHARE, What.LETTER + 1)),
    key=("reader",),
    order=("reader", "offset", "what", "at"),
    columns=("offset", "topic", "reader", "what", "at", "session", "until", "flag", "messages"),
    rule=job_rule,
)
