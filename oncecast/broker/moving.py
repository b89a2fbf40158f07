"""Handlers for commands that move arcs. A repeated command has the same result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from oncecast.broker import moves as do
from oncecast.broker import state
from oncecast.broker.delays import Delays
from oncecast.broker.holdings import ActiveClaim, Frozen, Holdings, PartName
from oncecast.broker.partitioning import Descriptor
from oncecast.broker.queue import Queue
from oncecast.broker.registry import Registry
from oncecast.broker.staging import Part, Source, topic_of_key
from oncecast.broker.subscription import Subscription
from oncecast.broker.topic import Topic
from oncecast.wire.commands import Stage
from oncecast.wire.results import MoveStep
from oncecast.wire.retention import DEFAULT
from oncecast.wire.timing import TIMING_LEVEL

NO, YES = MoveStep(False), MoveStep(True)


class Moving:
    """Apply the move commands.

    A handler returns `MoveStep(True)` if this command or an earlier copy of it took effect.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def found(self, slot: int, command: do.Found) -> MoveStep:
        registry = self._registry
        if registry.holdings is None:
            holdings = registry.holdings = Holdings(command.group, None)
            holdings.low = holdings.position if command.first else None
            registry.follow_level()
        return MoveStep(registry.holdings.group == command.group)

    def retire(self, slot: int, command: do.Retire) -> MoveStep:
        holdings = self._registry.holdings
        if holdings is None:
            return NO
        holdings.retired = True
        return YES

    # -- importer --

    def claim(self, slot: int, command: do.Claim) -> MoveStep:
        holdings = self._registry.holdings
        if holdings is None or (holdings.retired and holdings.claim is None):
            return NO
        if holdings.claim is None:
            holdings.claim = ActiveClaim(command.move, command.exporter)
        return MoveStep(holdings.claim.move == command.move)

    def import_(self, slot: int, command: do.Import) -> MoveStep:
        registry, holdings = self._registry, self._claiming(command.move)
        if holdings is None or not command.possible:
            return NO
        if command.offset < 0:
            return self._import_part(slot, holdings, command)
        topic = holdings.incoming.get(command.topic)
        if topic is None or topic.id != command.topic_id:
            self._forget(holdings, command.topic)
            topic = Topic(command.topic_id, command.topic, DEFAULT, False, registry.live_slots)
            holdings.incoming[command.topic] = topic
        index = topic.index
        if command.offset < index.next:
            return YES
        if command.offset > index.next:  # the messages in between were dropped
            index.begin_at(command.offset)
        note = (command.skip, command.sequence)
        registry.live_slots.add(slot)
        index.append(slot, command.count, command.size, command.time, note)
        return YES

    def _import_part(self, slot: int, holdings: Holdings, command: do.Import) -> MoveStep:
        staged, registry = command.command, self._registry
        if isinstance(staged, Stage):
            name = (registry.stage_key(staged), staged.number, staged.part)
        elif registry.level >= TIMING_LEVEL:
            name = name_of_delayed(command.topic, command.sequence)
        else:
            return NO
        if name not in holdings.parts:
            part = Part(slot, staged.topic, staged.count, staged.size, command.time)
            holdings.parts[name] = part
            registry.live_slots.add(slot)
        return YES

    def adopt(self, slot: int, command: do.Adopt) -> MoveStep:
        registry, holdings = self._registry, self._registry.holdings
        if holdings is None or holdings.claim is None or holdings.claim.move != command.move:
            return NO
        if holdings.claim.adopted:
            return YES
        if command.level > registry.level:
            return NO  # some member may not be able to read the rows
        topics, sources, answers, access = state.moved_in(command.rows, registry.live_slots)
        whole = all(self._has_all(holdings, topic) for topic in topics)
        staged = all(name in holdings.parts for name in names_of_parts(sources, topics))
        if holdings.frozen is not None or not holdings.may_import(command.until):
            return NO  # the frozen part begins where the adopted part would end
        if not whole or not staged:
            return NO
        aside = Aside(topics)
        for topic in topics:
            self._adopt_topic(holdings, topic)
        aside.take_slots(holdings)
        self._adopt_sources(holdings, sources)
        for token, answer in answers:
            registry.answered.add(token, *answer)
        self._forget_copies(holdings)  # copies of topics that have since been deleted or fully read
        if command.clock > registry.clock.trusted:
            registry.pass_time(command.clock)
        if command.newest > registry.clock.now:
            # The stamp may be disputed. In that case a later stamp moves the adopted times back.
            registry.pass_time(command.newest)
        aside.put_back(registry.clock.trusted - command.clock)
        for topic in topics:
            self._follow(topic)
        registry.access = registry.access.newer(access)
        registry.last_topic_id = max(registry.last_topic_id, command.last_topic_id)
        registry.last_epoch = max(registry.last_epoch, command.last_epoch)
        # The exporter may have refused a source's publish and then deleted its record.
        registry.staging.floor = registry.last_epoch
        holdings.low = command.low
        holdings.claim = ActiveClaim(command.move, holdings.claim.exporter, adopted=True)
        return YES

    def _follow(self, topic: Topic) -> None:
        self._registry.follow_sharing(topic)
        self._registry.follow_delays(topic)
        self._registry.follow_partitions(topic)

    def _adopt_topic(self, holdings: Holdings, topic: Topic) -> None:
        if topic.index.first < topic.index.next:
            copied = holdings.incoming.pop(topic.name)
            copied.index.drop_below(topic.index.first)
            copied.index.lifetimes = topic.index.lifetimes
            topic.index = copied.index
        self._registry.topics[topic.name] = topic
        topic.rebuild()
        self._registry.follow_age(topic)

    def _adopt_sources(self, holdings: Holdings, sources: dict[str, Source]) -> None:
        for key, source in sources.items():
            for number, parts in source.staged.items():
                for name in parts:
                    parts[name] = holdings.parts.pop((key, number, name))
            self._registry.staging.take_over(key, source)

    def abandon(self, slot: int, command: do.Abandon) -> MoveStep:
        holdings = self._claiming(command.move)
        if holdings is not None:
            self._forget_copies(holdings)
            holdings.claim = None
        return YES

    def finish(self, slot: int, command: do.Finish) -> MoveStep:
        holdings = self._registry.holdings
        claim = holdings.claim if holdings is not None else None
        if holdings is not None and claim is not None and claim.move == command.move:
            if not claim.adopted:
                return NO
            holdings.claim = None
        return YES

    # -- exporter --

    def freeze(self, slot: int, command: do.Freeze) -> MoveStep:
        registry, holdings = self._registry, self._registry.holdings
        if holdings is None or not holdings.may_export(command.until):
            return NO
        if holdings.frozen is not None:
            return MoveStep(holdings.frozen.move == command.move)
        for name in [each for each in registry.topics if holdings.in_part(each, command.until)]:
            holdings.outgoing[name] = registry.topics.pop(name)
            registry.aging.pop(name, None)
            registry.sharing.pop(name, None)
            registry.delaying.pop(name, None)
            registry.divided.pop(name, None)
        for key in list(registry.staging.sources):
            if holdings.in_part(topic_of_key(key), command.until):
                holdings.sources[key] = registry.staging.hand_over(key)
        holdings.frozen = Frozen(command.move, command.until, command.importer)
        return YES

    def thaw(self, slot: int, command: do.Thaw) -> MoveStep:
        holdings = self._freezing(command.move)
        if holdings is not None:
            for name, topic in holdings.outgoing.items():
                self._registry.topics[name] = topic
                self._registry.follow_age(topic)
                self._follow(topic)
            for key, source in holdings.sources.items():
                self._registry.staging.take_over(key, source)
            holdings.outgoing.clear()
            holdings.sources.clear()
            holdings.frozen = None
        return YES

    def release(self, slot: int, command: do.Release) -> MoveStep:
        holdings = self._freezing(command.move)
        if holdings is not None and holdings.frozen is not None:
            for topic in holdings.outgoing.values():
                topic.clear()
            for source in holdings.sources.values():
                for part in source.parts():
                    self._registry.live_slots.drop(part.slot)
            holdings.outgoing.clear()
            holdings.sources.clear()
            until, holdings.frozen = holdings.frozen.until, None
            holdings.low = None if until == holdings.position else until
        return YES

    # -- users, tokens and rules: each group of a ring has a copy --

    def share_access(self, slot: int, command: do.ShareAccess) -> MoveStep:
        registry = self._registry
        if registry.holdings is None:
            return NO
        registry.access = registry.access.newer(state.access_in(command.rows))
        return YES

    # -- helpers --

    def _claiming(self, move: str) -> Holdings | None:
        """Return the holdings if `move` is the active claim and not yet adopted, otherwise None."""
        holdings = self._registry.holdings
        claim = holdings.claim if holdings is not None else None
        return holdings if claim is not None and claim.move == move and not claim.adopted else None

    def _freezing(self, move: str) -> Holdings | None:
        holdings = self._registry.holdings
        frozen = holdings.frozen if holdings is not None else None
        return holdings if frozen is not None and frozen.move == move else None

    def _forget_copies(self, holdings: Holdings) -> None:
        for name in list(holdings.incoming):
            self._forget(holdings, name)
        for part in holdings.parts.values():
            self._registry.live_slots.drop(part.slot)
        holdings.parts.clear()

    def _forget(self, holdings: Holdings, name: str) -> None:
        topic = holdings.incoming.pop(name, None)
        if topic is not None:
            topic.index.clear()

    def _has_all(self, holdings: Holdings, topic: Topic) -> bool:
        """Return whether the imported copies include all of the topic's messages."""
        index, copied = topic.index, holdings.incoming.get(topic.name)
        if index.first == index.next:
            return True
        if copied is None or copied.id != topic.id:
            return False
        return copied.index.next == index.next and copied.index.first <= index.first


class Aside:
    """The times of adopted topics, apart from those of their batches, which are retimed.

    Their times follow the clock of the exporter, until `put_back` moves them to this group's clock.
    """

    def __init__(self, topics: list[Topic]) -> None:
        self._queues: list[tuple[Subscription, Queue]] = []
        self._delays: list[tuple[Topic, Delays]] = []
        self._descriptors: list[tuple[Topic, Descriptor]] = []
        for topic in topics:
            if topic.descriptor is not None:
                self._descriptors.append((topic, topic.descriptor))
                topic.descriptor = None
            self._delays.append((topic, topic.delays))
            topic.delays = Delays()
            for subscription in topic.subscriptions.values():
                if subscription.queue is not None:
                    self._queues.append((subscription, subscription.queue))
                    subscription.queue = None

    def take_slots(self, holdings: Holdings) -> None:
        """Set the slot of each delayed batch to that of its copy in this group's log."""
        for topic, delays in self._delays:
            for number, batch in delays.batches.items():
                batch.slot = holdings.parts.pop(name_of_delayed(topic.name, number)).slot

    def put_back(self, shift: int) -> None:
        for subscription, queue in self._queues:
            queue.shift(shift)
            subscription.queue = queue
        for topic, delays in self._delays:
            delays.shift(shift)
            topic.delays = delays
        for topic, descriptor in self._descriptors:
            descriptor.shift(shift)
            topic.descriptor = descriptor


def name_of_delayed(topic: str, number: int) -> PartName:
    """Return the name under which a delayed batch moves. No source has an empty key."""
    return "", number, topic


def names_of_parts(sources: dict[str, Source], topics: Iterable[Topic]) -> Iterator[PartName]:
    """Yield the names of all staged parts and delayed batches."""
    for topic in topics:
        for number in topic.delays.batches:
            yield name_of_delayed(topic.name, number)
    for key, source in sources.items():
        for number, parts in source.staged.items():
            for name in parts:
                yield key, number, name
