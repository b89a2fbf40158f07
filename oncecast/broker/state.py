"""The machine's state as rows and back. A row of a topic follows the row of its topic.

Only what the commands have led to is written, not how it happens to lie in memory: equal machines
have equal bytes.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator
from typing import Literal, assert_never, cast

import msgspec

from oncecast.broker.answered import Answer
from oncecast.broker.estate import Claim, Estate, Frozen
from oncecast.broker.places import Places
from oncecast.broker.producer import Producer
from oncecast.broker.registry import Registry
from oncecast.broker.staging import Part, Source
from oncecast.broker.subscription import Subscription
from oncecast.broker.topic import Topic
from oncecast.dht.identifiers import Key
from oncecast.kernel.protocol import Value
from oncecast.wire.errors import MachineRefusal
from oncecast.wire.limits import Limits
from oncecast.wire.results import Done, PublishedRange
from oncecast.wire.retention import DEFAULT, Policy

VERSION = 2
CHUNK_ROWS = 1000
COLUMN_ROWS = 16384

Answers = Iterable[tuple[str, Answer]]  # by token


class HeadRow(Value, tag="HeadRow"):
    version: int
    limits: Limits
    place: int
    clock: int
    lives: int
    epochs: int
    clock_state: tuple[int, int, int, int, int] | None = None
    sources_floor: int = 0


class PlacesRow(Value, tag="PlacesRow"):
    places: bytes


class TopicRow(Value, tag="TopicRow"):
    id: int
    name: str
    policy: Policy
    declared: bool
    index: tuple[int, int, int, bool]
    notes: tuple[tuple[int, int, int], ...]
    move: Literal["", "in", "out"] = ""  # it is on its way, and not served


class EstateRow(Value, tag="EstateRow"):
    group: str
    low: Key | None
    claim: Claim | None
    frozen: Frozen | None
    retired: bool


class IndexRow(Value, tag="IndexRow"):
    columns: tuple[bytes, ...]


class ProducerRow(Value, tag="ProducerRow"):
    name: str
    epoch: int
    life: str
    next: int
    runs: bytes
    books: str
    since: int
    earlier: dict[str, tuple[int, int]]
    record: int = 0
    used: int = 0


class SubscriptionRow(Value, tag="SubscriptionRow"):
    name: str
    epoch: int
    attached: int
    life: str
    cursor: int
    suspect_below: int
    sought: str


class SourceRow(Value, tag="SourceRow"):
    name: str
    published: int
    ranges: tuple[PublishedRange, ...]
    out: bool = False  # its topic is on its way to another group
    epoch: int = 0
    used: int = 0


class CopyRow(Value, tag="CopyRow"):
    """A staged part that is on its way here."""

    source: str
    number: int
    name: str
    place: int
    topic: str
    count: int
    size: int
    time: int


class AnsweredRow(Value, tag="AnsweredRow"):
    """The result of a call that has a token."""

    token: str
    topic: str
    result: Done | MachineRefusal


class PartRow(Value, tag="PartRow"):
    number: int
    name: str
    place: int
    topic: str
    count: int
    size: int
    time: int


Row = (
    HeadRow
    | EstateRow
    | PlacesRow
    | TopicRow
    | IndexRow
    | ProducerRow
    | SubscriptionRow
    | SourceRow
    | CopyRow
    | PartRow
    | AnsweredRow
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Row])


def chunks(registry: Registry) -> Iterator[bytes]:
    some: list[Row] = []
    for row in _rows(registry):
        some.append(row)
        if len(some) == CHUNK_ROWS or isinstance(row, IndexRow | PlacesRow):
            yield _encoder.encode(some)
            some.clear()
    yield _encoder.encode(some)


def restored(chunks: Iterable[bytes]) -> Registry:
    rows = (row for chunk in chunks for row in _decoder.decode(chunk))
    head = next(rows, None)
    if not isinstance(head, HeadRow) or head.version != VERSION:
        raise ValueError(
            f"no state of version {VERSION}; restore it with the version that wrote it"
        )
    registry = Registry(head.limits)
    registry.place = head.place
    registry.clock.restore(head.clock, head.clock_state)
    registry.lives, registry.epochs = head.lives, head.epochs
    registry.staging.floor = head.sources_floor
    _read(registry, rows, registry.places)
    for topic in registry.topics.values():
        topic.rebuild()
        registry.follow_age(topic)
    for topic in registry.estate.outgoing.values() if registry.estate is not None else ():
        topic.rebuild()
    return registry


def moved_out(estate: Estate, answers: Answers = ()) -> bytes:
    """Return what another group must know of what is frozen, beside the messages.

    `answers` are those about topics that lie in the frozen part, or did before they were deleted.
    """
    rows: list[Row] = []
    for topic in estate.outgoing.values():
        facts = (topic.id, topic.name, topic.policy, topic.declared)
        rows += (TopicRow(*facts, topic.index.summary(), ()), *_people_rows(topic))
    rows += _source_rows(estate.sources)
    rows += _answered_rows(answers)
    return _encoder.encode(rows)


def moved_in(rows: bytes, places: Places) -> tuple[list[Topic], dict[str, Source], Answers]:
    """Return what `moved_out` has told; the messages have to be found."""
    registry = Registry(Limits())
    _read(registry, _decoder.decode(rows), places)
    return list(registry.topics.values()), registry.staging.sources, registry.answered.items()


def _rows(registry: Registry) -> Iterator[Row]:
    yield HeadRow(
        VERSION,
        registry.limits,
        registry.place,
        registry.clock.now,
        registry.lives,
        registry.epochs,
        registry.clock.state(),
        registry.staging.floor,
    )
    places = registry.places.column()
    for at in range(0, len(places), COLUMN_ROWS):
        yield PlacesRow(_packed(places[at : at + COLUMN_ROWS]))
    for topic in registry.topics.values():
        yield from _topic_rows(topic)
    estate = registry.estate
    if estate is not None:
        moving = (estate.claim, estate.frozen, estate.retired)
        yield EstateRow(estate.group, estate.low, *moving)
        for topic in estate.incoming.values():
            yield from _topic_rows(topic, "in")
        for topic in estate.outgoing.values():
            yield from _topic_rows(topic, "out")
        for (source, number, name), part in estate.parts.items():
            facts = (part.place, part.topic, part.count, part.size, part.time)
            yield CopyRow(source, number, name, *facts)
        yield from _source_rows(estate.sources, out=True)
    yield from _source_rows(registry.staging.sources)
    yield from _answered_rows(registry.answered.items())


def _topic_rows(topic: Topic, move: Literal["", "in", "out"] = "") -> Iterator[Row]:
    index = topic.index
    facts = (topic.id, topic.name, topic.policy, topic.declared)
    yield TopicRow(*facts, index.summary(), index.notes(), move)
    for columns in index.rows(COLUMN_ROWS):
        yield IndexRow(tuple(_packed(column) for column in columns))
    yield from _people_rows(topic)


def _people_rows(topic: Topic) -> Iterator[Row]:
    for name, producer in topic.producers.items():
        yield ProducerRow(
            name,
            producer.epoch,
            producer.life,
            producer.next,
            _packed(producer.runs),
            producer.books,
            producer.since,
            producer.earlier,
            producer.record,
            producer.used,
        )
    for name, each in topic.subscriptions.items():
        yield SubscriptionRow(
            name,
            each.epoch,
            each.attached,
            each.life,
            each.cursor,
            each.suspect_below,
            each.sought,
        )


def _source_rows(sources: dict[str, Source], *, out: bool = False) -> Iterator[Row]:
    for name, source in sources.items():
        facts = (source.published, source.ranges, out, source.epoch, source.used)
        yield SourceRow(name, *facts)
        for number, parts in source.staged.items():
            for label, part in parts.items():
                yield PartRow(
                    number, label, part.place, part.topic, part.count, part.size, part.time
                )


def _answered_rows(answers: Answers) -> Iterator[Row]:
    for token, (topic, result) in answers:
        yield AnsweredRow(token, topic, cast("Done | MachineRefusal", result))


def _read(registry: Registry, rows: Iterable[Row], places: Places) -> None:
    """Rows say more of the topic or the source that was named last."""
    topic = Topic(0, "", DEFAULT, False, places)
    source, out = Source(), False
    for row in rows:
        match row:
            case HeadRow():
                raise ValueError("two states in one; restore them one by one")
            case PlacesRow():
                registry.places.extend(_unpacked(row.places))
            case TopicRow():
                topic = Topic(row.id, row.name, row.policy, row.declared, places)
                topic.index.restore(row.index, row.notes)
                _house(registry, row.move)[row.name] = topic
            case EstateRow():
                estate = registry.estate = Estate(row.group, row.low)
                estate.claim, estate.frozen, estate.retired = row.claim, row.frozen, row.retired
            case IndexRow():
                topic.index.restore_rows(tuple(_unpacked(each) for each in row.columns))
            case ProducerRow():
                topic.producers[row.name] = _producer(row)
            case SubscriptionRow():
                topic.subscriptions[row.name] = _subscription(row)
            case SourceRow():
                source, out = Source(row.epoch), row.out
                source.published, source.ranges = row.published, row.ranges
                source.used = row.used
                _sources(registry, out)[row.name] = source
            case PartRow():
                part = Part(row.place, row.topic, row.count, row.size, row.time)
                if out:
                    source.staged.setdefault(row.number, {})[row.name] = part
                else:
                    registry.staging.add_to(source, row.number, row.name, part)
            case CopyRow():
                part = Part(row.place, row.topic, row.count, row.size, row.time)
                _estate(registry).parts[row.source, row.number, row.name] = part
            case AnsweredRow():
                registry.answered.add(row.token, row.topic, row.result)
            case _:
                assert_never(row)


def _house(registry: Registry, move: str) -> dict[str, Topic]:
    if not move:
        return registry.topics
    estate = _estate(registry)
    return estate.incoming if move == "in" else estate.outgoing


def _sources(registry: Registry, out: bool) -> dict[str, Source]:
    return _estate(registry).sources if out else registry.staging.sources


def _estate(registry: Registry) -> Estate:
    if registry.estate is None:
        raise ValueError("something is on its way, and no group that it could leave or come to")
    return registry.estate


def _producer(row: ProducerRow) -> Producer:
    producer = Producer(row.epoch, row.life)
    producer.next, producer.runs = row.next, _unpacked(row.runs)
    producer.books, producer.since, producer.earlier = row.books, row.since, row.earlier
    producer.record, producer.used = row.record, row.used
    return producer


def _subscription(row: SubscriptionRow) -> Subscription:
    subscription = Subscription(row.epoch, row.cursor)
    subscription.attached, subscription.life = row.attached, row.life
    subscription.suspect_below, subscription.sought = row.suspect_below, row.sought
    return subscription


def _packed(column: array[int]) -> bytes:
    """Little-endian, as a replica on another machine may read it."""
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column.tobytes()


def _unpacked(data: bytes) -> array[int]:
    column = array("Q", data)
    if sys.byteorder == "big":
        column.byteswap()
    return column
