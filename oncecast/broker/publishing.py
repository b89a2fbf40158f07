"""Handlers for source commands: stage messages in parts, and publish the parts atomically."""

from __future__ import annotations

from oncecast.broker.clock import Clock
from oncecast.broker.producer import Producer
from oncecast.broker.producing import batch_fault
from oncecast.broker.registry import Registry
from oncecast.broker.staging import Part, Source
from oncecast.broker.topic import Topic
from oncecast.wire.commands import ANY_EPOCH, CloseSource, DropStaged, PublishStaged, Stage
from oncecast.wire.errors import (
    Fenced,
    InvalidArgument,
    InvalidName,
    InvalidTopic,
    NameInUse,
    NoSuchTopic,
    NotKept,
    NotStaged,
    OldNumber,
    OtherContent,
    Partitioned,
    Refusal,
    TakenOver,
    TooLarge,
    TooMany,
)
from oncecast.wire.limits import DIGEST_BYTES_MAX, is_name
from oncecast.wire.results import (
    Published,
    PublishedRange,
    SourceClosed,
    Staged,
    StagedDropped,
)
from oncecast.wire.transactions import repeated

PublishRefusal = (
    InvalidArgument
    | InvalidTopic
    | NoSuchTopic
    | Partitioned
    | NotStaged
    | NotKept
    | NameInUse
    | TooMany
)


class Publishing:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def stage(
        self, slot: int, command: Stage
    ) -> (
        Staged
        | InvalidName
        | InvalidTopic
        | InvalidArgument
        | TooLarge
        | TooMany
        | TakenOver
        | OldNumber
        | Fenced
    ):
        registry, staging = self._registry, self._registry.staging
        clock = registry.pass_time(command.at)
        fault = self._stage_fault(command)
        if fault is not None:
            return fault
        key = registry.stage_key(command)
        registry.use_source(key)
        source = staging.sources.get(key)
        stale = epoch_fault(source, command) if command.epoch else run_fault(source, command)
        if stale is not None:
            return stale
        if source is not None and known_part(source, command):
            return Staged(already=True)
        full = self._full(key, command)
        if full is not None:
            return full
        part = Part(slot, command.topic, command.count, command.size, clock.now)
        staging.add(key, command.number, command.part, part, command.run)
        registry.use_source(key)
        registry.live_slots.add(slot)
        return Staged(already=False)

    def publish(
        self, slot: int, command: PublishStaged
    ) -> Published | PublishRefusal | InvalidName | Fenced | TakenOver | OldNumber | OtherContent:
        registry, staging = self._registry, self._registry.staging
        clock = registry.pass_time(command.at)
        fault = self._name_fault(command)
        if fault is not None:
            return fault
        key = registry.source_key(command.source, command.topic)
        registry.use_source(key)
        source = staging.sources.get(key)
        stale = run_fault(source, command)
        if stale is not None:
            return stale
        if source is not None and command.number <= source.published:
            return published_again(source, command)
        if command.expected not in (ANY_EPOCH, staging.epoch(key)):
            return Fenced(staging.epoch(key))
        parts = self._parts(key, command)
        if isinstance(parts, Refusal):
            if command.expected != ANY_EPOCH:
                staging.refuse(key, registry.new_epoch())
            return parts
        ranges = self.append(command.source, parts, clock)
        staging.publish(key, command, ranges)
        registry.use_source(key)
        return Published(ranges, already=False)

    def _parts(self, key: str, command: PublishStaged) -> list[Part] | PublishRefusal:
        """Return the parts to publish, or the refusal."""
        staging, limits = self._registry.staging, self._registry.limits
        if key not in staging.sources and len(staging.sources) >= limits.sources_max:
            return TooMany("sources", limits.sources_max)
        parts: list[Part] = []
        for name in command.parts:
            part = staging.find(key, command.number, name)
            if part is None:
                return NotStaged(command.source, command.number, name)
            parts.append(part)
        if (twice := repeated(command.parts)) is not None:
            return InvalidArgument(f"the part {twice!r} is listed twice; list each part once")
        return self.refusal_to_append(command.source, parts, keep=command.keep) or parts

    def drop(self, slot: int, command: DropStaged) -> StagedDropped:
        key = self._registry.source_key(command.source, command.topic)
        source = self._registry.staging.sources.get(key)
        if source is not None and (source.has_fenced(command.run) or source.opened):
            return StagedDropped(0)
        dropped = self._registry.staging.drop(key, command.number)
        if command.renew:
            self._registry.staging.refuse(key, self._registry.new_epoch())
        return StagedDropped(dropped)

    def close(self, slot: int, command: CloseSource) -> SourceClosed:
        registry = self._registry
        registry.pass_time(command.at)
        key = registry.source_key(command.source, command.topic)
        known = registry.delete_source(key)
        if command.renew:
            registry.staging.refuse(key, registry.new_epoch())
        return SourceClosed(already=not known)

    def _name_fault(self, command: Stage | PublishStaged) -> InvalidName | InvalidArgument | None:
        if not is_name(command.source):
            return InvalidName("source")
        if command.run and not is_name(command.run):
            return InvalidName("run")
        if isinstance(command, PublishStaged) and len(command.digest) > DIGEST_BYTES_MAX:
            size = len(command.digest)
            return InvalidArgument(
                f"the digest is {size} bytes long (limit {DIGEST_BYTES_MAX}); use a shorter hash"
            )
        if command.number < 0:
            return InvalidArgument(f"the number is {command.number} (minimum 0); count from 0")
        return None

    def _stage_fault(
        self, command: Stage
    ) -> InvalidName | InvalidTopic | InvalidArgument | TooLarge | None:
        if not is_name(command.part):
            return InvalidName("part")
        if not is_name(command.topic):
            return InvalidTopic()
        return self._name_fault(command) or batch_fault(
            command.count, command.size, self._registry.limits
        )

    def _full(self, key: str, command: Stage) -> TooMany | None:
        staging, limits = self._registry.staging, self._registry.limits
        if key not in staging.sources and len(staging.sources) >= limits.sources_max:
            return TooMany("sources", limits.sources_max)
        if staging.parts >= limits.staged_parts_max:
            return TooMany("staged parts", limits.staged_parts_max)
        if staging.bytes + command.size > limits.staged_bytes_max:
            return TooMany("staged bytes", limits.staged_bytes_max)
        return None

    def refusal_to_append(
        self, source: str, parts: list[Part], *, keep: bool = False
    ) -> InvalidTopic | NoSuchTopic | Partitioned | NotKept | TooMany | NameInUse | None:
        """Return the refusal, or None. After this check, `append` cannot fail.

        With `keep`, refuse topics that would drop the messages.
        """
        registry = self._registry
        names = dict.fromkeys(part.topic for part in parts)
        for name in names if registry.divided else ():
            divided = registry.refusal_to_use(name)
            if divided is not None:
                return divided
        for name in names if keep else ():
            if name not in registry.topics or not registry.topics[name].keeps:
                return NotKept(name)
        missing = [name for name in names if name not in registry.topics]
        if missing:
            refusal = registry.refusal_to_make(missing[0], len(missing))
            if refusal is not None:
                return refusal
        for topic in (registry.topics[name] for name in names if name in registry.topics):
            producer = topic.producers.get(source)
            if producer is not None and producer.incarnation:
                return NameInUse(topic.name, source)
            full = registry.refusal_to_produce(topic) if producer is None else None
            if full is not None:
                return full
        new = sum(
            name not in registry.topics or source not in registry.topics[name].producers
            for name in names
        )
        return registry.refusal_to_produce(None, new) if new else None

    def append(self, source: str, parts: list[Part], clock: Clock) -> tuple[PublishedRange, ...]:
        ranges: dict[str, PublishedRange] = {}
        for part in parts:
            topic = self._registry.topics.get(part.topic) or self._registry.make(part.topic)
            producer = self._producer(topic, source)
            note = (0, producer.next)
            offset, kept = topic.append(part.slot, producer, part.count, part.size, clock, note)
            before = ranges.get(part.topic)
            ranges[part.topic] = (
                PublishedRange(part.topic, offset, part.count, kept)
                if before is None
                else PublishedRange(part.topic, before.offset, before.count + part.count, kept)
            )
        return tuple(ranges.values())

    def _producer(self, topic: Topic, source: str) -> Producer:
        """Return the producer with the source's name, creating it if missing.

        Sources and producers share one namespace, so (producer, sequence) is unique in a topic.
        """
        producer = topic.producers.get(source)
        if producer is None:
            producer = topic.producers[source] = Producer(
                self._registry.new_epoch(), incarnation=""
            )
        return producer


def run_fault(
    source: Source | None, command: Stage | PublishStaged
) -> TakenOver | OldNumber | None:
    """Return a refusal if the command's run may not act for the source, otherwise None."""
    if source is not None and source.opened:
        return TakenOver(command.source)
    if source is None or not command.run:
        return None
    if source.has_fenced(command.run):
        return TakenOver(command.source)
    if command.number < source.published:
        return OldNumber(command.source, command.number, source.published)
    return None


def epoch_fault(source: Source | None, command: Stage) -> Fenced | None:
    """Return a refusal if another process has opened the source, otherwise None."""
    opened = 0 if source is None else source.opened
    return Fenced(opened) if command.epoch != opened else None


def known_part(source: Source, command: Stage) -> bool:
    """Return whether the part is already staged, or its number is published or ended."""
    if source.opening is not None:
        late = source.opening.has_ended(command.number) or command.number in source.held
    else:
        late = command.number <= source.published
    return late or command.part in source.staged.get(command.number, {})


def published_again(source: Source, command: PublishStaged) -> Published | OtherContent:
    """Return the answer to a publish whose number is already published.

    The source keeps the ranges and digest of only the last number.
    """
    if command.number < source.published:
        return Published((), already=True)
    if command.digest and source.digest and command.digest != source.digest:
        return OtherContent(command.source, command.number)
    source.enter(command.run)
    return Published(source.ranges, already=True)
