"""A simple model of the state machine that keeps every message in a list."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire import results as done
from oncecast.wire.limits import Limits
from oncecast.wire.retention import DEFAULT, Policy


@dataclass
class Batch:
    slot: int
    origin: int  # the first slot of its command
    size: int
    time: int


@dataclass
class Message:
    batch: Batch
    position: int  # position in the batch
    producer: str
    sequence: int
    gone: bool = False


@dataclass
class ModelProducer:
    epoch: int
    incarnation: str
    next: int = 0
    directory_id: str = ""
    record: int = 0
    used: int = 0
    writers: list[str] = field(default_factory=list)  # the state directory that wrote each sequence

    def takes(self, directory_id: str, others_max: int) -> bool:
        others = {*self.writers} - {self.directory_id}
        known = not directory_id or directory_id in (self.directory_id, *others)
        return known or not others_max or len(others) < others_max

    def mine(self) -> tuple[int, int]:
        """Return the last range of the current state directory."""
        if self.directory_id not in self.writers:
            return self.next, self.next
        end = begin = self.next - self.writers[::-1].index(self.directory_id)
        while begin and self.writers[begin - 1] == self.directory_id:
            begin -= 1
        return begin, end


@dataclass
class ModelSubscription:
    cursor: int
    epochs: list[int]  # epochs of the current reader, newest last
    incarnation: str = ""
    suspect_below: int = 0
    token: str = ""


@dataclass
class ModelTopic:
    id: int
    policy: Policy
    declared: bool
    messages: list[Message] = field(default_factory=list)
    producers: dict[str, ModelProducer] = field(default_factory=dict)
    subscriptions: dict[str, ModelSubscription] = field(default_factory=dict)

    @property
    def first(self) -> int:
        return sum(message.gone for message in self.messages)

    @property
    def next(self) -> int:
        return len(self.messages)

    def batches(self) -> list[Batch]:
        """Return the batches that are at least partly kept."""
        found: list[Batch] = []
        for message in self.messages:
            if not message.gone and message.batch not in found:
                found.append(message.batch)
        return found

    def collect(self, clock: int) -> None:
        kept = self._kept_by_policy(clock)
        for offset, message in enumerate(self.messages):
            unread = any(each.cursor <= offset for each in self.subscriptions.values())
            needed = message.batch in kept or (unread and not self.policy.drop_unread)
            message.gone = message.gone or not needed

    def _kept_by_policy(self, clock: int) -> list[Batch]:
        policy, batches = self.policy, self.batches()
        if policy.keep_all:
            return batches
        if not policy.age_us and not policy.bytes_max:
            return []
        kept: list[Batch] = []
        size = 0
        for batch in reversed(batches):
            size += batch.size
            if policy.bytes_max and size > policy.bytes_max:
                break
            if policy.age_us and clock - batch.time >= policy.age_us:
                break
            kept.append(batch)
        return kept

    def land(self, start: do.Start) -> int:
        match start:
            case do.FromNew():
                return self.next
            case do.FromEarliest():
                return self.first
            case do.FromOffset(offset):
                return sorted((self.first, offset, self.next))[1]
            case do.FromTime(at):
                later = [o for o, m in enumerate(self.messages) if m.batch.time >= at]
                return max(min(later, default=self.next), self.first)


@dataclass
class ModelPart:
    batch: Batch
    topic: str
    count: int


@dataclass
class ModelSource:
    published: dict[int, tuple[done.PublishedRange, ...]] = field(default_factory=dict)
    staged: dict[tuple[int, str], ModelPart] = field(default_factory=dict)
    used: int = 0
    runs: list[str] = field(default_factory=list)  # the current one is the last one

    @property
    def last(self) -> int:
        return max(self.published, default=-1)

    def enter(self, run: str) -> None:
        if run and run not in self.runs:
            self.runs.append(run)


class Model:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.level = 1
        self.clock = self.lives = self.epochs = 0
        self.topics: dict[str, ModelTopic] = {}
        self.sources: dict[str, ModelSource] = {}
        self.sought: dict[tuple[str, str], done.Result] = {}  # results of seeks without a reader
        self.refused = 0  # epoch of the only source after it was last refused or closed

    def apply(self, slot: int, command: do.Command) -> done.Result:
        self.clock = max(self.clock, getattr(command, "at", 0))
        result = self._apply(slot, command)
        for name, topic in list(self.topics.items()):
            used = topic.declared or topic.subscriptions or topic.producers
            if not used and not topic.policy.retains:
                del self.topics[name]
        for name, source in list(self.sources.items()):
            if not source.published and not source.staged and not source.runs:
                del self.sources[name]
        return result

    def live_slots(self) -> list[tuple[int, int]]:
        """Return the slot and first offset of each needed entry; -1 for staged parts."""
        found = []
        for topic in self.topics.values():
            for batch in topic.batches():
                offsets = [o for o, m in enumerate(topic.messages) if m.batch is batch]
                found.append((batch.slot, offsets[0]))
        for source in self.sources.values():
            found.extend((part.batch.slot, -1) for part in source.staged.values())
        return sorted(found)

    def _apply(self, slot: int, command: do.Command) -> done.Result:
        match command:
            case do.CreateTopic() | do.SetPolicy() | do.DeleteTopic() | do.Tick() | do.Carry():
                return self._administer(slot, command)
            case do.OpenProducer() | do.Put() | do.CloseProducer():
                return self._produce(slot, command)
            case do.Stage() | do.PublishStaged() | do.DropStaged() | do.CloseSource():
                return self._publish(slot, command)
            case do.SetLimits(limits, level):
                self.limits, self.level = limits, max(self.level, level)
                return done.LimitsSet()
            case do.Acks():
                results = tuple(self._apply(slot, ack) for ack in command.acks)
                return done.AcksDone(results)  # type: ignore[arg-type]
            case do.Seek():
                return self._seek_once(command)
            case do.Subscribe() | do.Unsubscribe() | do.Attach() | do.Detach() | do.Ack():
                return self._subscribe(command)
            case _:
                raise AssertionError(f"{command} is not part of the model")

    def _seek_once(self, command: do.Seek) -> done.Result:
        call = (command.topic, command.token)
        once = command.epoch == 0 or self.level >= do.SEEK_LEVEL
        if once and call in self.sought:
            return self.sought[call]
        result = self._subscribe(command)
        if isinstance(result, done.Sought) and once:
            self.sought[call] = replace(result, already=True)
        elif once and not isinstance(result, errors.Fenced | errors.Repositioned):
            self.sought[call] = result
        return result

    def _topic(
        self, name: str, policy: Policy = DEFAULT, declared: bool = False
    ) -> ModelTopic | errors.Refusal:
        if name in self.topics:
            return self.topics[name]
        if not 1 <= len(name.encode()) <= 255:
            return errors.InvalidTopic()
        if len(self.topics) >= self.limits.topics_max:
            return errors.TooMany("topics", self.limits.topics_max)
        self.lives += 1
        self.topics[name] = ModelTopic(self.lives, policy, declared)
        return self.topics[name]

    def _epoch(self) -> int:
        self.epochs += 1
        return self.epochs

    def _administer(
        self,
        slot: int,
        command: do.CreateTopic | do.SetPolicy | do.DeleteTopic | do.Tick | do.Carry,
    ) -> done.Result:
        match command:
            case do.CreateTopic(name, _, policy):
                already = name in self.topics
                topic = self._topic(name, policy, True)
                if isinstance(topic, errors.Refusal):
                    return topic
                if topic.policy != policy:
                    return errors.TopicExists(name)
                topic.declared = True
                return done.TopicCreated(topic.id, already)
            case do.SetPolicy(name, _, policy):
                if name not in self.topics:
                    return errors.NoSuchTopic(name)
                already = self.topics[name].policy == policy
                self.topics[name].policy = policy
                self.topics[name].collect(self.clock)
                return done.PolicySet(already)
            case do.DeleteTopic(name):
                return done.TopicDeleted(self.topics.pop(name, None) is None)
            case do.Tick():
                for topic in self.topics.values():
                    topic.collect(self.clock)
                    if command.producers:
                        self._forget_idle(topic)
                if command.producers:
                    self._forget_idle_sources()
                return done.Ticked()
            case do.Carry(old, offset, _):
                for batch in self._all_batches(staged=offset < 0):
                    if batch.slot == old:
                        batch.slot = slot
                        return done.Carried(True)
                return done.Carried(False)

    def _forget_idle(self, topic: ModelTopic) -> None:
        for label, each in list(topic.producers.items()):
            if each.record and self.clock - each.used >= self.limits.producer_idle_us:
                del topic.producers[label]

    def _forget_idle_sources(self) -> None:
        idle = self.limits.source_idle_us
        for name, source in list(self.sources.items()):
            if idle and not source.staged and self.clock - source.used >= idle:
                self._close(name)

    def _close(self, name: str) -> bool:
        known = self.sources.pop(name, None) is not None
        if known:
            self.refused = self.epochs
        for each in self.topics.values():
            producer = each.producers.get(name)
            if known and producer is not None and not producer.incarnation:
                del each.producers[name]
        return known

    def _all_batches(self, *, staged: bool) -> list[Batch]:
        if staged:
            return [part.batch for s in self.sources.values() for part in s.staged.values()]
        return [batch for topic in self.topics.values() for batch in topic.batches()]

    def _produce(
        self, slot: int, command: do.OpenProducer | do.Put | do.CloseProducer
    ) -> done.Result:
        # This function is long because it keeps all producer rules in one place.
        known = self.topics.get(command.topic)
        producer = known.producers.get(command.producer) if known else None
        match command:
            case do.OpenProducer(name, label, incarnation):
                current = producer.epoch if producer is not None else 0
                same = producer is not None and producer.incarnation in ("", incarnation)
                if command.expected not in (-1, current) and not same:
                    return errors.Fenced(current)
                if known is None and not command.create:
                    return errors.NoSuchTopic(name)
                topic = self._topic(name)
                if isinstance(topic, errors.Refusal):
                    return topic
                if producer is None:
                    producer = topic.producers[label] = ModelProducer(self._epoch(), incarnation)
                    producer.record = producer.epoch if self.limits.producer_idle_us else 0
                if not producer.incarnation:
                    return errors.NameInUse(name, label)
                if not producer.takes(command.directory_id, self.limits.directories_max):
                    what = "state directories under one producer name"
                    return errors.TooMany(what, self.limits.directories_max)
                if producer.incarnation != incarnation:
                    producer.epoch, producer.incarnation = self._epoch(), incarnation
                producer.directory_id, producer.used = command.directory_id, self.clock
                mine, record = producer.mine(), producer.record
                return done.Opened(producer.epoch, producer.next, topic.id, mine, record)
            case do.Put(name, label, epoch, sequence, count, size):
                if known is None or producer is None:
                    return errors.Unopened(name, label)
                if epoch != producer.epoch:
                    return errors.Fenced(producer.epoch)
                producer.used = self.clock
                if sequence > producer.next:
                    return errors.Gap(producer.next)
                new = [n for n in range(sequence, sequence + count) if n >= producer.next]
                if not new:
                    return done.Already(self._offset_of(known, label, sequence, count), count)
                offset = known.next
                batch = Batch(slot, slot, size, self.clock)
                for number in new:
                    known.messages.append(Message(batch, number - sequence, label, number))
                producer.next = sequence + count
                producer.writers += [producer.directory_id] * len(new)
                known.collect(self.clock)
                return done.Appended(offset, len(new), not known.messages[offset].gone)
            case do.CloseProducer(name, label, epoch):
                if known is None or producer is None:
                    return done.ProducerClosed(True)
                if epoch != producer.epoch:
                    return errors.Fenced(producer.epoch)
                del known.producers[label]
                return done.ProducerClosed(False)

    def _offset_of(self, topic: ModelTopic, producer: str, sequence: int, count: int) -> int:
        """Return the correct offset. The machine may answer -1 instead."""
        wanted = range(sequence, sequence + count)
        # A producer that was closed and reopened restarts at 0; its newest messages are used.
        where = {m.sequence: o for o, m in enumerate(topic.messages) if m.producer == producer}
        offsets = [where[number] for number in wanted]
        together = offsets == list(range(offsets[0], offsets[0] + count))
        return offsets[0] if together else -1

    def _subscribe(
        self,
        command: do.Subscribe | do.Unsubscribe | do.Attach | do.Detach | do.Ack | do.Seek,
    ) -> done.Result:
        name, label = command.topic, command.subscription
        if isinstance(command, do.Subscribe):
            return self._new_subscription(command)
        topic = self.topics.get(name)
        subscription = topic.subscriptions.get(label) if topic else None
        if isinstance(command, do.Unsubscribe):
            if topic is None or subscription is None:
                return done.Unsubscribed(True)
            del topic.subscriptions[label]
            topic.collect(self.clock)
            return done.Unsubscribed(False)
        if topic is None:
            return errors.NoSuchTopic(name)
        if subscription is None:
            return errors.NotSubscribed(name, label)
        return self._with(topic, subscription, command)

    def _expects_another(self, seek: do.Seek, epoch: int) -> bool:
        if seek.epoch or self.level < do.SEEK_LEVEL:
            return False
        return seek.expected not in (do.ANY_EPOCH, epoch)

    def _new_subscription(self, command: do.Subscribe) -> done.Result:
        topic = self._topic(command.topic)
        if isinstance(topic, errors.Refusal):
            return topic
        known = topic.subscriptions.get(command.subscription)
        if known is not None:
            return done.Subscribed(known.cursor, topic.id, True)
        cursor = topic.land(command.start)
        topic.subscriptions[command.subscription] = ModelSubscription(cursor, [self._epoch()])
        return done.Subscribed(cursor, topic.id, False)

    def _with(
        self,
        topic: ModelTopic,
        each: ModelSubscription,
        command: do.Attach | do.Detach | do.Ack | do.Seek,
    ) -> done.Result:
        if isinstance(command, do.Attach):
            if each.incarnation != command.incarnation:
                current = each.epochs[-1] if each.incarnation else 0
                if command.expected not in (-1, current):
                    return errors.Fenced(current)
                if each.incarnation:
                    each.suspect_below = topic.next
                each.incarnation, each.epochs = command.incarnation, [self._epoch()]
            return done.Attached(
                each.epochs[-1], each.cursor, topic.first, topic.next, each.suspect_below, topic.id
            )
        fenced = 0 < command.epoch < each.epochs[0]
        if isinstance(command, do.Seek) and command.token == each.token and not fenced:
            return done.Sought(each.epochs[-1], each.cursor, True)
        anybody = isinstance(command, do.Seek) and command.epoch == 0
        if isinstance(command, do.Seek) and self._expects_another(command, each.epochs[-1]):
            return errors.Fenced(each.epochs[-1])
        if command.epoch != each.epochs[-1] and not anybody:
            if each.epochs[0] <= command.epoch < each.epochs[-1] and each.incarnation:
                return errors.Repositioned(each.epochs[-1], each.cursor)
            return errors.Fenced(each.epochs[-1])
        match command:
            case do.Detach():
                each.suspect_below = max(each.suspect_below, min(command.delivered, topic.next))
                each.incarnation = ""
                return done.Detached(each.suspect_below)
            case do.Ack():
                if command.upto > topic.next:
                    return errors.OutOfRange(topic.next)
                each.cursor = max(each.cursor, command.upto)
                topic.collect(self.clock)
                return done.Acked(each.cursor)
            case do.Seek():
                each.cursor, each.token = topic.land(command.start), command.token
                each.epochs.append(self._epoch())
                topic.collect(self.clock)
                return done.Sought(each.epochs[-1], each.cursor, False)

    def _publish(
        self, slot: int, command: do.Stage | do.PublishStaged | do.DropStaged | do.CloseSource
    ) -> done.Result:
        name = command.source
        source = self.sources.get(name)
        if source is not None and isinstance(command, do.Stage | do.PublishStaged):
            source.used = self.clock
        fault = self._run_fault(command, source)
        if fault is not None:
            return fault
        match command:
            case do.Stage(_, number, part, topic, count, size):
                source = self.sources.setdefault(name, ModelSource(used=self.clock))
                if number <= source.last or (number, part) in source.staged:
                    return done.Staged(True)
                batch = Batch(slot, slot, size, self.clock)
                source.staged[number, part] = ModelPart(batch, topic, count)
                source.enter(command.run)
                return done.Staged(False)
            case do.PublishStaged():
                return self._publish_number(command, source or ModelSource(used=self.clock))
            case do.DropStaged(_, number):
                gone = [key for key in source.staged if key[0] == number] if source else []
                for key in gone:
                    del self.sources[name].staged[key]
                self.refused = self._epoch() if command.renew else self.refused
                return done.StagedDropped(len(gone))
            case do.CloseSource():
                closed = done.SourceClosed(not self._close(name))
                self.refused = self._epoch() if command.renew else self.refused
                return closed

    def _run_fault(
        self,
        command: do.Stage | do.PublishStaged | do.DropStaged | do.CloseSource,
        source: ModelSource | None,
    ) -> done.Result | None:
        if source is None or isinstance(command, do.CloseSource) or not command.run:
            return None
        fenced, drops = command.run in source.runs[:-1], isinstance(command, do.DropStaged)
        if fenced:
            return done.StagedDropped(0) if drops else errors.TakenOver(command.source)
        if not drops and command.number < source.last:
            return errors.OldNumber(command.source, command.number, source.last)
        return None

    def _publish_number(self, command: do.PublishStaged, source: ModelSource) -> done.Result:
        name, number = command.source, command.number
        if number == source.last:
            source.enter(command.run)
        if number <= source.last:
            ranges = source.published[number] if number == source.last else ()
            return done.Published(ranges, True)
        if command.expected not in (do.ANY_EPOCH, self.refused):
            return errors.Fenced(self.refused)
        refusal = self._publish_refusal(command, source)
        if refusal is not None:
            if command.expected != do.ANY_EPOCH:
                self.refused = self._epoch()
            return refusal
        parts = [source.staged[number, part] for part in command.parts]
        ranges = self._append_parts(name, parts)
        self.sources[name] = source
        source.enter(command.run)
        source.published[number] = ranges
        source.staged = {key: part for key, part in source.staged.items() if key[0] > number}
        return done.Published(ranges, False)

    def _publish_refusal(
        self, command: do.PublishStaged, source: ModelSource
    ) -> errors.Refusal | None:
        name, number = command.source, command.number
        for part in command.parts:
            if (number, part) not in source.staged:
                return errors.NotStaged(name, number, part)
        parts = [source.staged[number, part] for part in command.parts]
        for each in dict.fromkeys(part.topic for part in parts):
            topic = self.topics.get(each)
            producer = topic.producers.get(name) if topic else None
            if producer is not None and producer.incarnation:
                return errors.NameInUse(each, name)
        return None

    def _append_parts(self, name: str, parts: list[ModelPart]) -> tuple[done.PublishedRange, ...]:
        starts: dict[str, int] = {}
        for part in parts:
            topic = self._topic(part.topic)
            assert isinstance(topic, ModelTopic)
            if name not in topic.producers:
                topic.producers[name] = ModelProducer(self._epoch(), "")
            producer = topic.producers[name]
            starts.setdefault(part.topic, topic.next)
            part.batch.time = self.clock
            for position in range(part.count):
                topic.messages.append(Message(part.batch, position, name, producer.next))
                producer.next += 1
            topic.collect(self.clock)
        return tuple(
            done.PublishedRange(
                each, start, self.topics[each].next - start, not self.topics[each].messages[-1].gone
            )
            for each, start in starts.items()
        )
