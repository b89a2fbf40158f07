"""Check that each message is stored once, in its producer's order, and at one offset."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from oncecast.spark.audit.rows import (
    FILE_BITS,
    Check,
    Columns,
    Row,
    What,
    chosen,
    fault,
    same_as_before,
)

KEPT = 1000  # maximum messages without a put that are listed for one producer

# -- offsets --


def once(columns: Columns) -> Columns:
    """Drop repeated answers to and deliveries of the same message."""
    return chosen(
        columns, ~same_as_before(columns, "topic", "offset", "producer", "sequence", "what")
    )


def offset_rule(rows: Iterator[tuple[int, ...]]) -> Iterator[Row]:
    """Yield the messages, the stretches of known offsets, and the offsets with two messages."""
    topic = first = until = start = -1
    for offset, group in groupby(rows, itemgetter(0)):
        placed: dict[tuple[int, int], list[int]] = {}
        lines = list(group)
        topic = lines[0][1]
        for _, _, producer, sequence, what, at in lines:
            seen = placed.setdefault((producer, sequence), [-1, -1])
            which = 0 if what == What.STORED else 1
            seen[which] = at if seen[which] < 0 else min(at, seen[which])
        for (producer, sequence), (stored, delivered) in placed.items():
            yield Row(
                What.PLACED, at=stored, other=delivered, topic=topic, producer=producer,
                sequence=sequence, offset=offset,
            )  # fmt: skip
        if len(placed) > 1:
            yield conflict(topic, offset, list(placed.values()))
        if offset != until:
            if first >= 0:
                yield Row(What.STRETCH, at=start, topic=topic, offset=first, until=until)
            first, start = offset, max(next(iter(placed.values())))
        until = offset + 1
    yield Row(What.STRETCH, at=start, topic=topic, offset=first, until=until)


def conflict(topic: int, offset: int, seen: list[list[int]]) -> Row:
    """Return the fault for an offset at which clients saw different messages."""
    answers = sorted(stored for stored, _ in seen if stored >= 0)
    strays = sorted(delivered for stored, delivered in seen if stored < 0)
    if len(answers) > 1:
        name, at, other = "two messages at one offset", answers[-1], answers[0]
    elif answers:
        name, at, other = "wrong message", strays[0], answers[0]
    else:
        name, at, other = "readers disagree", strays[-1], strays[0]
    return fault(name, at=at, other=other, topic=topic, offset=offset)


OFFSETS = Check(
    kinds=(What.STORED, What.DELIVERY, What.LEASE, What.LETTER),
    key=("topic", "stretch"),  # a hot topic is spread over many tasks
    order=("topic", "stretch", "offset", "producer", "sequence", "what", "at"),
    columns=("offset", "topic", "producer", "sequence", "what", "at"),
    rule=offset_rule,
    squeeze=once,
)


# -- producers --


class Message:
    """The lines about one message."""

    def __init__(self) -> None:
        self.puts: list[int] = []
        self.certain = True
        self.refused = self.failed = self.stored = self.delivered = -1
        self.places: list[tuple[int, int]] = []  # offsets, each with a line that proves it

    def add(self, what: int, at: int, other: int, offset: int, flag: int, certain: int) -> None:
        if what == What.PUT:
            self.puts.append(at)
            self.certain &= bool(certain)
        elif what == What.FAILED:
            if flag:
                self.failed = at
            else:
                self.refused = at
        else:
            self.places.append((offset, at if at >= 0 else other))
            self.stored = at if self.stored < 0 else self.stored
            self.delivered = other if self.delivered < 0 else self.delivered

    @property
    def seen(self) -> int:
        known = [each for each in (self.stored, self.delivered) if each >= 0]
        return min(known, default=-1)

    @property
    def unknown(self) -> bool:
        """Return whether the message may be stored even though no line proves it."""
        open_ = self.failed >= 0 or not self.certain
        return bool(self.puts) and not self.places and self.refused < 0 and open_

    def verdict(self) -> tuple[str, int, int] | None:
        """Return the message's fault and two lines that prove it, or None if it has no fault."""
        put = self.puts[-1] if self.puts else -1
        same_file = put >> FILE_BITS == self.seen >> FILE_BITS
        if len(self.places) > 1:
            return "stored twice", max(self.places)[1], min(self.places)[1]
        if self.refused >= 0 and self.places:
            return "refused put is stored", self.seen, self.refused
        if not self.puts:
            return "message without a put", self.seen, -1
        if self.places and same_file and self.seen < self.puts[0]:
            return "before put", self.seen, self.puts[0]
        if not self.certain:
            return None
        if len(self.puts) > 1:
            return "sequence used twice", put, self.puts[0]
        if self.refused < 0 and self.failed < 0 and self.stored < 0:
            return ("never stored", put, -1) if self.delivered < 0 else (
                "never answered", self.delivered, put
            )  # fmt: skip
        return None


def producer_rule(rows: Iterator[tuple[int, ...]]) -> Iterator[Row]:
    """Yield the faults of a producer's messages in a topic, in the order of their sequences."""
    highest, unknown, topic, certain, any_put = -1, 0, -1, True, False
    last, before = -1, Message()
    strays: list[Row] = []  # messages without a put; faults, unless another program put them
    for sequence, group in groupby(rows, itemgetter(0)):
        message = Message()
        lines = list(group)
        _, topic, producer, *_ = lines[0]
        for line in lines:
            message.add(*line[3:])
        where = {"topic": topic, "producer": producer, "sequence": sequence}
        found = message.verdict()
        if found is not None:
            name, at, other = found
            offset = max(message.places, default=(-1, -1))[0]
            row = fault(name, at=at, other=other, offset=offset, **where)
            if name != "message without a put":
                yield row
            else:
                add_up(strays, row)
        offset = min(message.places, default=(-1, -1))[0]
        if 0 <= offset < highest:
            yield fault("stored out of order", at=message.seen, offset=offset, **where)
        if sequence > last + 1 and message.puts and before.puts and before.certain:
            where |= {"sequence": last + 1, "messages": sequence - last - 1}
            yield fault("gap in a sequence", at=message.puts[0], other=before.puts[-1], **where)
        highest, unknown = max(highest, offset), unknown + message.unknown
        any_put, certain = any_put or bool(message.puts), certain and message.certain
        last, before = sequence, message
    # A producer without puts belongs to another program. A killed producer may have lost lines.
    if any_put and certain:
        yield from strays
    if unknown:
        yield Row(What.UNKNOWN, topic=topic, messages=unknown)


def add_up(rows: list[Row], row: Row) -> None:
    """Add a row to the list. If the list is full, add its count to the last row instead."""
    if len(rows) < KEPT:
        rows.append(row)
    else:
        rows[-1] = rows[-1]._replace(messages=rows[-1].messages + 1)


PRODUCERS = Check(
    kinds=(What.PUT, What.FAILED, What.PLACED),
    key=("topic", "producer"),
    order=("topic", "producer", "sequence", "what", "at"),
    columns=("sequence", "topic", "producer", "what", "at", "other", "offset", "flag", "certain"),
    rule=producer_rule,
)
