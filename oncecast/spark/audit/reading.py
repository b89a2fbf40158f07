"""Check the deliveries to readers: each message once and in order, and acks that move forward.

A session starts with an attach or a seek. Within a session, each delivery must continue where the
previous line ended. A subscription is a series of turns: subscribe, sessions, seek, unsubscribe.
Each turn must continue where the previous turn ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np

from oncecast.spark.audit.rows import (
    Check,
    Columns,
    Row,
    Spans,
    What,
    chosen,
    fault,
    same_as_before,
)

HOLES_MAX = 10_000  # maximum gaps that a session remembers
# Messages that were skipped in a session, or are missing between sessions.
SKIPPED, NEW, AGAIN = range(3)
GONE = {SKIPPED: "dropped", NEW: "lost", AGAIN: "not redelivered"}

# -- sessions --


class Range(NamedTuple):
    """A range of offsets, and the position of the line that reports it."""

    first: int
    until: int
    at: int


class Summary(msgspec.Struct, array_like=True):
    """The result of a session."""

    sought: bool  # whether the session started with a seek
    next: int
    reached: int  # the offset after the highest delivered message
    acked: int  # the offset after the last acknowledged message
    flushed: int  # the offset after the last stored ack, or -1
    left: int  # the cursor when the reader left, or -1
    ended: bool
    unmarked: tuple[int, int]  # the first offset without the mark `redelivered`, and its line
    holes: list[Range]  # offsets that the session skipped
    early: list[Range]  # deliveries of messages from before the start of the session
    got: list[tuple[int, int]]


class Session:
    """The state of one session. `faults` lists the faults within this session."""

    def __init__(self) -> None:
        self.faults: list[Row] = []
        self.where: dict[str, Any] = {}
        self.start_at = self.time = self.start = -1
        self.certain, self.sought, self.ended = 1, False, False
        self.next = self.reached = self.acked = self.flushed = self.left = -1
        self.unmarked = (-1, -1)
        self.holes: list[Range] = []
        self.early: list[Range] = []
        self.got = Spans()

    def found(self, name: str, at: int, first: int, until: int = -1, other: int = -1) -> None:
        messages = 1 if until < 0 else until - first
        self.faults.append(
            fault(name, at=at, other=other, offset=first, messages=messages, **self.where)
        )

    def step(self, what: int, at: int, offset: int, until: int, flag: int) -> None:
        if what in (What.ATTACH, What.SEEK):
            self._begin(what, at, offset)
        elif self.start < 0:
            self.found("session without a start", at, offset)
        elif self.ended:
            self.found("after session end", at, offset)
        elif what == What.DELIVERY:
            self._deliver(offset, until, at, marked=bool(flag))
        elif what == What.ACK:
            self._ack(offset, at)
        elif what == What.NACK:
            self._nack(offset, at)
        elif what == What.SKIP:
            self._skip(offset, until, at)
        elif what == What.FLUSHED:
            if offset >= self.acked:
                self.found("flushed before ack", at, offset)
            self.flushed = max(self.flushed, offset + 1)
        else:
            self._end(what, offset, at)

    def _begin(self, what: int, at: int, offset: int) -> None:
        if self.start >= 0:
            self.found("session started twice", at, offset, other=self.start_at)
            return
        self.sought, self.start_at = what == What.SEEK, at
        self.start = self.next = self.reached = self.acked = offset

    def _end(self, what: int, offset: int, at: int) -> None:
        self.ended = True
        if what == What.LEAVE:
            self.left = offset
            if offset < self.acked:
                self.found("ack went back", at, offset)

    # -- deliveries --

    def _deliver(self, first: int, until: int, at: int, *, marked: bool) -> None:
        if first > self.next:
            self._jump(first, at)
        elif first < self.next:
            self._again(first, min(until, self.next), at)
            first = self.next
            if first >= until:
                return
        late = bool(self.holes) and self._fill(first, until, at)
        if not marked:
            if first < self.reached and not late:
                self.found("unmarked redelivery", at, first, min(until, self.reached))
            if self.unmarked[0] < 0 or first < self.unmarked[0]:
                self.unmarked = (first, at)
        self.next, self.reached = until, max(self.reached, until)
        self.got.add(first, until)

    def _jump(self, offset: int, at: int) -> None:
        """Record the offsets before `offset` as skipped."""
        hole = Range(self.next, offset, at)
        if len(self.holes) < HOLES_MAX:
            self.holes.append(hole)
        else:
            self.found("lost", at, hole.first, hole.until)

    def _fill(self, first: int, until: int, at: int) -> bool:
        """Remove a late delivery from the holes. Return False if no hole contained it."""
        holes, self.holes = self.holes, []
        late = False
        for hole in holes:
            low, high = max(first, hole.first), min(until, hole.until)
            if low >= high:
                self.holes.append(hole)
                continue
            late = True
            self.found("out of order", at, low, high, other=hole.at)
            rest = (Range(hole.first, low, hole.at), Range(high, hole.until, hole.at))
            self.holes += [each for each in rest if each.first < each.until]
        return late

    def _again(self, first: int, until: int, at: int) -> None:
        """Classify deliveries below the next offset: late, repeated, or from before the start."""
        missed = Spans(sorted((hole.first, hole.until) for hole in self.holes))
        for low, high, hole in list(missed.split(first, until)):
            if hole:
                self._fill(low, high, at)
                self.got.add(low, high)
                continue
            for part, end, known in list(self.got.split(low, high)):
                if known:
                    self.found("duplicated", at, part, end)
                else:
                    self.early.append(Range(part, end, at))

    def _skip(self, offset: int, until: int, at: int) -> None:
        if offset > self.next:
            self._jump(offset, at)
        self.faults.append(Row(What.DROPPED, at=at, offset=offset, until=until, **self.where))
        self.next = until
        self.reached = max(self.reached, until)

    # -- acknowledgements --

    def _ack(self, offset: int, at: int) -> None:
        if offset >= self.next:
            self.found("ack before delivery", at, offset)
        elif offset + 1 < self.acked:
            self.found("ack went back", at, offset)
        self.acked = max(self.acked, offset + 1)

    def _nack(self, offset: int, at: int) -> None:
        if offset < self.acked:
            self.found("nack after ack", at, offset)
        elif offset >= self.next:
            self.found("nack before delivery", at, offset)
        self.next = min(self.next, offset)

    def summary(self) -> Row:
        data = Summary(
            self.sought, self.next, self.reached, self.acked, self.flushed, self.left, self.ended,
            self.unmarked, self.holes, self.early, self.got.ranges,
        )  # fmt: skip
        return Row(
            What.SESSION, at=self.start_at, time=self.time, offset=self.start,
            certain=self.certain, data=msgspec.msgpack.encode(data), **self.where,
        )  # fmt: skip


def runs(columns: Columns) -> Columns:
    """Merge consecutive deliveries of a session into one row."""
    more = same_as_before(columns, "session", "what", "flag")
    more &= columns["what"] == What.DELIVERY
    more[1:] &= columns["offset"][1:] == columns["until"][:-1]
    starts = np.flatnonzero(~more)
    if not len(starts):
        return columns
    ends = np.append(starts[1:] - 1, len(more) - 1)
    merged = chosen(columns, starts)
    merged["until"] = columns["until"][ends]
    return merged


def session_rule(rows: Iterator[tuple[int, ...]]) -> Iterator[Row]:
    """Yield the faults and the summary of a session.

    Lines that belong to a subscription but not to a session are passed on unchanged.
    """
    session = Session()
    for number, topic, reader, time, certain, what, at, offset, until, flag in rows:
        if number < 0:
            yield Row(
                what, at=at, time=time, topic=topic, reader=reader, offset=offset, certain=certain
            )
            continue
        if not session.where:
            session.where = {"topic": topic, "reader": reader, "session": number}
        if session.start < 0:
            session.time, session.certain = time, certain
        session.step(what, at, offset, until, flag)
        yield from session.faults
        session.faults.clear()
    if session.start >= 0:
        yield session.summary()


SESSIONS = Check(
    kinds=tuple(range(What.SUBSCRIBE, What.FENCED + 1)),
    key=("reader", "session"),
    order=("reader", "session", "at"),
    columns=(
        "session", "topic", "reader", "time", "certain", "what", "at", "offset", "until", "flag",
    ),
    rule=session_rule,
    squeeze=runs,
)  # fmt: skip


# -- subscriptions --


class Subscription:
    """One subscription's state over its turns, ordered by the writers' clocks.

    After a turn, the cursor is at least `low`, the last stored ack, and at most `high`, the last
    ack sent. Both are -1 if the position is unknown.
    """

    def __init__(self, topic: int, reader: int) -> None:
        self.where: dict[str, Any] = {"topic": topic, "reader": reader}
        self.low = self.high = -1
        self.seen = 0  # messages before this offset must be marked if they are delivered again
        self.ever = Spans()  # offsets that the subscription received

    def move(self, offset: int) -> None:
        """Continue at an offset that the client chose, or at -1 if it is unknown."""
        self.low = self.high = offset
        self.seen = 0

    def subscribe(self, offset: int, at: int) -> Iterator[Row]:
        """Start at a new cursor, or check a reported one.

        Acks from a killed reader may still arrive later, so the cursor may be higher.
        """
        yield from self.resume(offset, at)
        self.low, self.high = max(self.low, offset), max(self.high, offset)

    def resume(self, offset: int, at: int) -> Iterator[Row]:
        """Check the offset at which the node continues, and yield the faults."""
        if self.low < 0:
            return
        if offset < self.low:
            back = self.low - offset
            yield fault("cursor went back", at=at, offset=offset, messages=back, **self.where)
        if offset > self.high:
            for first, until, known in self.ever.split(self.high, offset):
                flag = AGAIN if known else NEW
                yield Row(What.DROPPED, at=at, offset=first, until=until, flag=flag, **self.where)

    def read(self, row: Row, session: Summary) -> Iterator[Row]:
        if session.sought:
            self.move(row.offset)
        else:
            yield from self.resume(row.offset, row.at)
            offset, at = session.unmarked
            if 0 <= offset < self.seen:
                yield fault("unmarked redelivery", at=at, offset=offset, **self.where)
        for first, until, at in session.early:
            yield from self._named(first, until, at, "duplicated", "not owed")
        for low, high in session.got:
            self.ever.add(low, high)
        for first, until, at in session.holes:
            yield from self._named(first, until, at, "not redelivered", "lost")
        settled = session.left if session.left >= 0 else session.flushed
        self.low = settled if settled >= 0 else row.offset
        self.high = session.left if session.left >= 0 else max(session.acked, self.low)
        self.seen = max(self.seen, session.reached)

    def _named(self, first: int, until: int, at: int, known: str, new: str) -> Iterator[Row]:
        for low, high, inside in self.ever.split(first, until):
            name = known if inside else new
            yield fault(name, at=at, offset=low, messages=high - low, **self.where)

    def waits(self, row: Row, offset: int) -> Row:
        """Return a row for a reader that waits for `offset`.

        The reader has already received the messages from `offset` to before `until`, if any.
        """
        _, end, inside = next(self.ever.split(offset, 1 << 62))
        until = end if inside else offset
        return Row(What.OPEN, at=row.at, offset=offset, until=until, **self.where)


def subscription_rule(rows: Iterator[tuple[Any, ...]]) -> Iterator[Row]:
    """Yield the faults of a subscription, and a row for a last reader that is still waiting."""
    subscription: Subscription | None = None
    last: tuple[Row, int] | None = None
    for what, at, topic, reader, offset, certain, data in rows:
        subscription = subscription or Subscription(topic, reader)
        last = None
        if what == What.SUBSCRIBE:
            yield from subscription.subscribe(offset, at)
        elif what == What.UNSUBSCRIBE:
            subscription.move(-1)
        elif what == What.SEEK:
            subscription.move(offset)
        else:
            row = Row(what, at=at, offset=offset, certain=certain)
            session = msgspec.msgpack.decode(data, type=Summary)
            yield from subscription.read(row, session)
            if certain and not session.ended:
                last = row, session.next
    if subscription is not None and last is not None:
        yield subscription.waits(*last)


SUBSCRIPTIONS = Check(
    kinds=(What.SUBSCRIBE, What.UNSUBSCRIBE, What.SEEK, What.SESSION),
    key=("reader",),
    order=("reader", "time", "at"),
    columns=("what", "at", "topic", "reader", "offset", "certain", "data"),
    rule=subscription_rule,
)


# -- topics --


def topic_rule(rows: Iterator[tuple[int, ...]]) -> Iterator[Row]:
    """Yield missing offsets, and the faults that depend on the topic's end and policy."""
    dropping, unknown, end, absent = False, 0, -1, 0
    gaps: list[Row] = []  # not faults while puts with an unknown outcome may explain them
    for what, offset, until, at, topic, reader, flag, messages in rows:
        where: dict[str, Any] = {"topic": topic, "reader": reader, "at": at}
        if what == What.CREATE:
            dropping = dropping or bool(flag)
        elif what == What.UNKNOWN:
            unknown += messages
        elif what == What.STRETCH:
            if 0 <= end < offset:
                absent += offset - end
                where["messages"] = offset - end
                gaps.append(fault("missing offset", offset=end, **where))
            end = max(end, until)
            if absent > unknown:
                yield from gaps
                gaps.clear()
        elif what == What.UNDONE:
            if offset < end:
                yield fault("lost job", offset=offset, messages=min(until, end) - offset, **where)
        elif what == What.DROPPED:
            if not dropping:
                yield fault(GONE[flag], offset=offset, messages=until - offset, **where)
        else:
            again = min(until, end)
            if offset < again:
                yield fault("not redelivered", offset=offset, messages=again - offset, **where)
            if until < end:
                yield fault("lost", offset=until, messages=end - until, **where)


TOPICS = Check(
    kinds=(What.CREATE, What.UNKNOWN, What.STRETCH, What.OPEN, What.DROPPED, What.UNDONE),
    key=("topic",),
    order=("topic", "what", "offset"),
    columns=("what", "offset", "until", "at", "topic", "reader", "flag", "messages"),
    rule=topic_rule,
)
