"""Convert the machine's state to snapshot rows and back.

A topic's rows follow its TopicRow. Rows describe the logical state, not the memory layout, so
machines with equal state produce equal bytes.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Literal, NamedTuple, assert_never, cast

import msgspec
from msgspec.structs import astuple, replace

from oncecast.broker.answered import Answer
from oncecast.broker.delays import Fields
from oncecast.broker.holdings import ActiveClaim, Frozen, Holdings
from oncecast.broker.live_slots import LiveSlots
from oncecast.broker.partitioning import Assignment, ConsumerGroup, Descriptor
from oncecast.broker.producer import Producer
from oncecast.broker.queue import Death, Held, Queue, Worker
from oncecast.broker.registry import Registry
from oncecast.broker.staging import HeldShare, Opening, Part, Source
from oncecast.broker.subscription import Subscription
from oncecast.broker.topic import Topic
from oncecast.dht.identifiers import Key
from oncecast.errors import WrongFormat
from oncecast.kernel.protocol import Value
from oncecast.security.access import OPEN, Access, access_of
from oncecast.security.values import Rule, Token, User
from oncecast.wire.errors import MachineRefusal
from oncecast.wire.limits import Limits
from oncecast.wire.results import Done, PublishedRange, TransactionEnded
from oncecast.wire.retention import DEFAULT, Policy
from oncecast.wire.ring_transactions import Share
from oncecast.wire.sharing import DEFAULT_SHARED, Run, Shared
from oncecast.wire.transactions import Accepted, Consumed

VERSION = 2
CHUNK_ROWS = 1000
COLUMN_ROWS = 16384

Answers = Iterable[tuple[str, Answer]]  # by token


class HeadRow(Value, tag="HeadRow"):
    version: int
    limits: Limits
    slot: int
    clock: int
    last_topic_id: int
    last_epoch: int
    clock_state: tuple[int, int, int, int, int] | None = None
    sources_floor: int = 0
    level: int = 1


class LiveSlotsRow(Value, tag="PlacesRow"):
    live_slots: bytes


class PolicyRow(Value, tag="Policy"):
    """The fields of a policy at feature level 1. `TimingRow` has later fields."""

    age_us: int = 0
    bytes_max: int = 0
    keep_all: bool = False
    drop_unread: bool = False
    gossip: bool = False


class TopicRow(Value, tag="TopicRow"):
    id: int
    name: str
    policy: PolicyRow
    declared: bool
    index: tuple[int, int, int, bool]
    notes: tuple[tuple[int, int, int], ...]
    # Whether the topic is moving into or out of this group; it is then not served.
    move: Literal["", "in", "out"] = ""


class TimingRow(Value, tag="TimingRow"):
    """The delays and lifetimes of the topic in the last TopicRow.

    Topics that use neither have no such row, so a group below feature level 4 writes the same
    snapshot with each version of the program.
    """

    drop_expired: bool
    last: int  # number of the last delayed batch
    lifetimes: tuple[tuple[int, int], ...] = ()
    delayed: tuple[Fields, ...] = ()


class PartitionsRow(Value, tag="PartitionsRow"):
    """The topic in the last TopicRow is a partition, or has partitions.

    Other topics have no such row, so a group below feature level 6 writes the same snapshot with
    each version of the program. The same is true of the next two rows.
    """

    partition_of: str
    count: int = 0
    closing: bool = False
    epoch: int = 0


class GroupRow(Value, tag="GroupRow"):
    """A consumer group of the topic in the last PartitionsRow."""

    name: str
    members: tuple[tuple[str, int], ...]  # name and deadline
    assignments: tuple[tuple[str, int, str], ...]  # holder, term and target


class TermRow(Value, tag="TermRow"):
    """The term of the subscription in the last SubscriptionRow."""

    term: int


class HoldingsRow(Value, tag="EstateRow"):
    group: str
    low: Key | None
    claim: ActiveClaim | None
    frozen: Frozen | None
    retired: bool


class IndexRow(Value, tag="IndexRow"):
    columns: tuple[bytes, ...]


class ProducerRow(Value, tag="ProducerRow"):
    name: str
    epoch: int
    incarnation: str
    next: int
    runs: bytes
    directory_id: str
    since: int
    earlier: dict[str, tuple[int, int]]
    record: int = 0
    used: int = 0


class SubscriptionRow(Value, tag="SubscriptionRow"):
    name: str
    epoch: int
    attached: int
    incarnation: str
    cursor: int
    suspect_below: int
    seek_token: str


class SharedRow(Value, tag="SharedRow"):
    """The queue of the shared subscription in the previous row."""

    settings: Shared
    next: int


class WorkerRow(Value, tag="WorkerRow"):
    name: str
    number: int
    stale: tuple[Run, ...]
    used: int


class OpenRun(Value, tag=False):
    """Open messages with consecutive offsets and otherwise equal records."""

    first: int
    count: int
    deliveries: int
    condition: int
    time: int = 0
    token: int = 0
    worker: str = ""
    key: int = 0
    reason: str = ""
    detail: str = ""


class OpenRow(Value, tag="OpenRow"):
    runs: tuple[OpenRun, ...]


class SourceRow(Value, tag="SourceRow"):
    name: str
    published: int
    ranges: tuple[PublishedRange, ...]
    out: bool = False  # whether its topic is moving to another group
    epoch: int = 0
    used: int = 0
    runs: tuple[str, ...] = ()
    digest: bytes = b""


class OpeningRow(Value, tag="OpeningRow"):
    """The process that has opened the source in the previous row for transactions."""

    epoch: int
    incarnation: str
    finished: int


class EndedRow(Value, tag="EndedRow"):
    """The result of a transaction of the source in the previous rows."""

    epoch: int
    number: int
    result: TransactionEnded | MachineRefusal


class HeldRow(Value, tag="HeldRow"):
    """A held share of the source in the previous rows. Its parts follow."""

    number: int
    epoch: int
    coordinator: Share
    parts: tuple[str, ...]
    consumed: tuple[Consumed, ...]
    accepted: tuple[Accepted, ...]
    time: int


class DecisionRow(Value, tag="DecisionRow"):
    """A decision of the source in the previous rows, with the unconfirmed participants."""

    epoch: int
    number: int
    participants: tuple[Share, ...]


class CopyRow(Value, tag="CopyRow"):
    """A staged part that is moving to this group."""

    source: str
    number: int
    name: str
    slot: int
    topic: str
    count: int
    size: int
    time: int


class AnsweredRow(Value, tag="AnsweredRow"):
    """The result of a call with a token."""

    token: str
    topic: str
    result: Done | MachineRefusal


class PartRow(Value, tag="PartRow"):
    number: int
    name: str
    slot: int
    topic: str
    count: int
    size: int
    time: int


class AccessRow(Value, tag="AccessRow"):
    """A chunk of the users, tokens and rules, with their version."""

    version: int
    users: tuple[User, ...]
    tokens: tuple[Token, ...]
    rules: tuple[Rule, ...]


Row = (
    HeadRow
    | HoldingsRow
    | LiveSlotsRow
    | TopicRow
    | TimingRow
    | PartitionsRow
    | GroupRow
    | TermRow
    | IndexRow
    | ProducerRow
    | SubscriptionRow
    | SharedRow
    | WorkerRow
    | OpenRow
    | SourceRow
    | OpeningRow
    | EndedRow
    | HeldRow
    | DecisionRow
    | CopyRow
    | PartRow
    | AnsweredRow
    | AccessRow
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Row])


def chunks(registry: Registry) -> Iterator[bytes]:
    some: list[Row] = []
    for row in _rows(registry):
        some.append(row)
        if len(some) == CHUNK_ROWS or isinstance(row, IndexRow | LiveSlotsRow):
            yield _encoder.encode(some)
            some.clear()
    yield _encoder.encode(some)


def restored(chunks: Iterable[bytes]) -> Registry:
    rows = (row for chunk in chunks for row in _decoder.decode(chunk))
    head = next(rows, None)
    if not isinstance(head, HeadRow):
        raise ValueError("the snapshot has no version")
    if head.version != VERSION:
        raise WrongFormat(
            f"the snapshot has version {head.version}, but this program reads {VERSION}",
            "use the version of oncecast that wrote it",
        )
    registry = Registry(head.limits)
    registry.last_slot = head.slot
    registry.clock.restore(head.clock, head.clock_state)
    registry.last_topic_id, registry.last_epoch = head.last_topic_id, head.last_epoch
    registry.staging.floor, registry.level = head.sources_floor, head.level
    _read(registry, rows, registry.live_slots)
    registry.follow_level()
    registry.staging.follow_all()
    for topic in registry.topics.values():
        topic.rebuild()
        registry.follow_age(topic)
        registry.follow_sharing(topic)
        registry.follow_delays(topic)
        registry.follow_partitions(topic)
    for topic in registry.holdings.outgoing.values() if registry.holdings is not None else ():
        topic.rebuild()
    return registry


class Moved(NamedTuple):
    """The metadata that a group imports. The topics have no messages yet."""

    topics: list[Topic]
    sources: dict[str, Source]
    answers: Answers
    access: Access


def moved_out(holdings: Holdings, answers: Answers = (), access: Access = OPEN) -> bytes:
    """Return the metadata of the frozen part for the group that imports it.

    `answers` concern topics of the frozen part, including deleted ones.
    """
    rows: list[Row] = []
    for topic in holdings.outgoing.values():
        facts = (topic.id, topic.name, _policy_row(topic.policy), topic.declared)
        rows.append(TopicRow(*facts, topic.index.summary(), ()))
        rows += (*_timing_rows(topic), *_partition_rows(topic), *_client_rows(topic))
    rows += _source_rows(holdings.sources)
    rows += _answered_rows(answers)
    rows += _access_rows(access)
    return _encoder.encode(rows)


def moved_in(rows: bytes, live_slots: LiveSlots) -> Moved:
    """Return the metadata that `moved_out` encoded."""
    registry = Registry(Limits())
    _read(registry, _decoder.decode(rows), live_slots)
    topics, sources = list(registry.topics.values()), registry.staging.sources
    return Moved(topics, sources, registry.answered.items(), registry.access)


def access_out(access: Access) -> bytes:
    """Return the users, tokens and rules as bytes for another group."""
    return _encoder.encode(list(_access_rows(access)))


def access_in(rows: bytes) -> Access:
    """Return the users, tokens and rules that `access_out` encoded."""
    registry = Registry(Limits())
    _read(registry, _decoder.decode(rows), registry.live_slots)
    return registry.access


def _rows(registry: Registry) -> Iterator[Row]:
    yield HeadRow(
        VERSION,
        registry.limits,
        registry.last_slot,
        registry.clock.now,
        registry.last_topic_id,
        registry.last_epoch,
        registry.clock.state(),
        registry.staging.floor,
        registry.level,
    )
    live_slots = registry.live_slots.column()
    for at in range(0, len(live_slots), COLUMN_ROWS):
        yield LiveSlotsRow(_packed(live_slots[at : at + COLUMN_ROWS]))
    for topic in registry.topics.values():
        yield from _topic_rows(topic)
    holdings = registry.holdings
    if holdings is not None:
        moving = (holdings.claim, holdings.frozen, holdings.retired)
        yield HoldingsRow(holdings.group, holdings.low, *moving)
        for topic in holdings.incoming.values():
            yield from _topic_rows(topic, "in")
        for topic in holdings.outgoing.values():
            yield from _topic_rows(topic, "out")
        for (source, number, name), part in holdings.parts.items():
            facts = (part.slot, part.topic, part.count, part.size, part.time)
            yield CopyRow(source, number, name, *facts)
        yield from _source_rows(holdings.sources, out=True)
    yield from _source_rows(registry.staging.sources)
    yield from _answered_rows(registry.answered.items())
    yield from _access_rows(registry.access)


def _topic_rows(topic: Topic, move: Literal["", "in", "out"] = "") -> Iterator[Row]:
    index = topic.index
    facts = (topic.id, topic.name, _policy_row(topic.policy), topic.declared)
    yield TopicRow(*facts, index.summary(), index.notes(), move)
    yield from _timing_rows(topic)
    yield from _partition_rows(topic)
    for columns in index.rows(COLUMN_ROWS):
        yield IndexRow(tuple(_packed(column) for column in columns))
    yield from _client_rows(topic)


def _policy_row(policy: Policy) -> PolicyRow:
    return PolicyRow(
        policy.age_us, policy.bytes_max, policy.keep_all, policy.drop_unread, policy.gossip
    )


def _timing_rows(topic: Topic) -> Iterator[Row]:
    facts = (topic.policy.drop_expired, topic.delays.last)
    lifetimes, delayed = topic.index.living_lifetimes(), topic.delays.rows()
    if any(facts):
        yield TimingRow(*facts)
    while pairs := tuple(islice(lifetimes, CHUNK_ROWS)):
        yield TimingRow(*facts, lifetimes=pairs)
    while batches := tuple(islice(delayed, CHUNK_ROWS)):
        yield TimingRow(*facts, delayed=batches)


def _partition_rows(topic: Topic) -> Iterator[Row]:
    descriptor = topic.descriptor
    if descriptor is None:
        if topic.partition_of:
            yield PartitionsRow(topic.partition_of)
        return
    facts = (descriptor.count, descriptor.closing, descriptor.epoch)
    yield PartitionsRow(topic.partition_of, *facts)
    for name, group in descriptor.groups.items():
        assignments = [(each.holder, each.term, each.target) for each in group.assignments]
        yield GroupRow(name, tuple(group.members.items()), tuple(assignments))


def _client_rows(topic: Topic) -> Iterator[Row]:
    for name, producer in topic.producers.items():
        yield ProducerRow(
            name,
            producer.epoch,
            producer.incarnation,
            producer.next,
            _packed(producer.runs),
            producer.directory_id,
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
            each.incarnation,
            each.cursor,
            each.suspect_below,
            each.seek_token,
        )
        if each.term:
            yield TermRow(each.term)
        if each.queue is not None:
            yield from _queue_rows(each.queue)


def _queue_rows(queue: Queue) -> Iterator[Row]:
    yield SharedRow(queue.settings, queue.next)
    for name, worker in queue.workers.items():
        yield WorkerRow(name, worker.number, worker.stale, worker.used)
    runs = _open_runs(queue)
    while some := tuple(islice(runs, CHUNK_ROWS)):
        yield OpenRow(some)


def _open_runs(queue: Queue) -> Iterator[OpenRun]:
    first, count, rest = 0, 0, None
    for each in queue.messages():
        if count and each.offset == first + count and each[1:] == rest:
            count += 1
            continue
        if rest is not None:
            yield _open_run(first, count, rest)
        first, count, rest = each.offset, 1, each[1:]
    if rest is not None:
        yield _open_run(first, count, rest)


def _open_run(first: int, count: int, rest: tuple[Any, ...]) -> OpenRun:
    *facts, death = rest
    return OpenRun(first, count, *facts, *(death or ()))


def _held(runs: tuple[OpenRun, ...]) -> Iterator[Held]:
    for run in runs:
        death = Death(run.reason, run.detail) if run.reason else None
        rest = (run.deliveries, run.condition, run.time, run.token, run.worker, run.key, death)
        for offset in range(run.first, run.first + run.count):
            yield Held(offset, *rest)


def _source_rows(sources: dict[str, Source], *, out: bool = False) -> Iterator[Row]:
    for name, source in sources.items():
        facts = (source.published, source.ranges, out, source.epoch, source.used)
        yield SourceRow(name, *facts, source.runs, source.digest)
        if source.opening is not None:
            yield from _opening_rows(source.opening)
        yield from _unsettled_rows(source)
        for number, parts in source.staged.items():
            for label, part in parts.items():
                yield PartRow(
                    number, label, part.slot, part.topic, part.count, part.size, part.time
                )


def _unsettled_rows(source: Source) -> Iterator[Row]:
    for number, share in source.held.items():
        inputs = (share.consumed, share.accepted)
        yield HeldRow(number, share.epoch, share.coordinator, share.parts, *inputs, share.time)
    for (epoch, number), participants in source.decisions.items():
        yield DecisionRow(epoch, number, tuple(participants.values()))


def _opening_rows(opening: Opening) -> Iterator[Row]:
    yield OpeningRow(opening.epoch, opening.incarnation, opening.finished)
    for (epoch, number), result in opening.results.items():
        yield EndedRow(epoch, number, result)


def _answered_rows(answers: Answers) -> Iterator[Row]:
    for token, (topic, result) in answers:
        yield AnsweredRow(token, topic, cast("Done | MachineRefusal", result))


def _access_rows(access: Access) -> Iterator[Row]:
    """Yield the access rows. Without users, tokens or rules, yield none, as in older snapshots."""
    if access.version:
        entries = list(access.entries())
        for at in range(0, max(1, len(entries)), CHUNK_ROWS):
            some = entries[at : at + CHUNK_ROWS]
            users = tuple(each for each in some if isinstance(each, User))
            tokens = tuple(each for each in some if isinstance(each, Token))
            rules = tuple(each for each in some if isinstance(each, Rule))
            yield AccessRow(access.version, users, tokens, rules)


# Long because it handles every row type, and the cases share local variables.
def _read(registry: Registry, rows: Iterable[Row], live_slots: LiveSlots) -> None:
    """Add rows to the registry. A row belongs to the last TopicRow or SourceRow before it."""
    topic = Topic(0, "", DEFAULT, False, live_slots)
    source, out = Source(), False
    subscription, queue = Subscription(0, 0), Queue(DEFAULT_SHARED, 0)
    opening = Opening(0, "")
    for row in rows:
        match row:
            case HeadRow():
                raise ValueError("the snapshot has two head rows; restore one snapshot at a time")
            case LiveSlotsRow():
                registry.live_slots.extend(_unpacked(row.live_slots))
            case TopicRow():
                policy = Policy(*astuple(row.policy))
                topic = Topic(row.id, row.name, policy, row.declared, live_slots)
                topic.index.restore(row.index, row.notes)
                _topics_of(registry, row.move)[row.name] = topic
            case TimingRow():
                _read_timing(topic, row)
            case PartitionsRow():
                topic.partition_of = row.partition_of
                if row.count:
                    topic.descriptor = Descriptor(row.count)
                    topic.descriptor.closing, topic.descriptor.epoch = row.closing, row.epoch
            case GroupRow():
                assert topic.descriptor is not None
                topic.descriptor.groups[row.name] = _consumer_group(row)
            case TermRow():
                subscription.term = row.term
            case HoldingsRow():
                holdings = registry.holdings = Holdings(row.group, row.low)
                holdings.claim, holdings.frozen, holdings.retired = (
                    row.claim,
                    row.frozen,
                    row.retired,
                )
            case IndexRow():
                topic.index.restore_rows(tuple(_unpacked(each) for each in row.columns))
            case ProducerRow():
                topic.producers[row.name] = _producer(row)
            case SubscriptionRow():
                subscription = topic.subscriptions[row.name] = _subscription(row)
            case SharedRow():
                queue = subscription.queue = Queue(row.settings, row.next)
            case WorkerRow():
                worker = queue.workers[row.name] = Worker(row.name, row.used)
                worker.number, worker.stale = row.number, row.stale
            case OpenRow():
                queue.restore(_held(row.runs))
            case SourceRow():
                source, out = Source(row.epoch), row.out
                source.published, source.ranges = row.published, row.ranges
                source.used = row.used
                source.runs, source.digest = row.runs, row.digest
                _sources(registry, out)[row.name] = source
            case OpeningRow():
                opening = source.opening = Opening(row.epoch, row.incarnation)
                opening.finished = row.finished
            case EndedRow():
                opening.results[row.epoch, row.number] = row.result
            case HeldRow():
                inputs = (row.consumed, row.accepted)
                share = HeldShare(row.epoch, row.coordinator, row.parts, *inputs, row.time)
                source.held[row.number] = share
            case DecisionRow():
                participants = {each.topic: each for each in row.participants}
                source.decisions[row.epoch, row.number] = participants
            case PartRow():
                part = Part(row.slot, row.topic, row.count, row.size, row.time)
                if out:
                    source.staged.setdefault(row.number, {})[row.name] = part
                else:
                    registry.staging.add_to(source, row.number, row.name, part)
            case CopyRow():
                part = Part(row.slot, row.topic, row.count, row.size, row.time)
                _holdings(registry).parts[row.source, row.number, row.name] = part
            case AnsweredRow():
                registry.answered.add(row.token, row.topic, row.result)
            case AccessRow():
                known = registry.access.entries()
                entries = (*known, *row.users, *row.tokens, *row.rules)
                registry.access = access_of(entries, row.version)
            case _:
                assert_never(row)


def _read_timing(topic: Topic, row: TimingRow) -> None:
    topic.policy = replace(topic.policy, drop_expired=row.drop_expired)
    topic.index.lifetimes.restore(row.lifetimes)
    topic.delays.last = row.last
    topic.delays.restore(row.delayed)


def _topics_of(registry: Registry, move: str) -> dict[str, Topic]:
    if not move:
        return registry.topics
    holdings = _holdings(registry)
    return holdings.incoming if move == "in" else holdings.outgoing


def _sources(registry: Registry, out: bool) -> dict[str, Source]:
    return _holdings(registry).sources if out else registry.staging.sources


def _holdings(registry: Registry) -> Holdings:
    if registry.holdings is None:
        raise ValueError(
            "the snapshot has a moving topic but no group; restore an undamaged snapshot"
        )
    return registry.holdings


def _producer(row: ProducerRow) -> Producer:
    producer = Producer(row.epoch, row.incarnation)
    producer.next, producer.runs = row.next, _unpacked(row.runs)
    producer.directory_id, producer.since, producer.earlier = (
        row.directory_id,
        row.since,
        row.earlier,
    )
    producer.record, producer.used = row.record, row.used
    return producer


def _subscription(row: SubscriptionRow) -> Subscription:
    subscription = Subscription(row.epoch, row.cursor)
    subscription.attached, subscription.incarnation = row.attached, row.incarnation
    subscription.suspect_below, subscription.seek_token = row.suspect_below, row.seek_token
    return subscription


def _consumer_group(row: GroupRow) -> ConsumerGroup:
    group = ConsumerGroup(0)
    group.members.update(row.members)
    group.assignments = [Assignment(*each) for each in row.assignments]
    return group


def _packed(column: array[int]) -> bytes:
    """Return little-endian bytes, so that all replicas produce the same snapshot."""
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column.tobytes()


def _unpacked(data: bytes) -> array[int]:
    column = array("Q", data)
    if sys.byteorder == "big":
        column.byteswap()
    return column
