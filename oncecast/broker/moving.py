"""The commands of a move. Each may come again, and is then answered as it was before."""

from __future__ import annotations

from collections.abc import Iterator

from oncecast.broker import moves as do
from oncecast.broker import state
from oncecast.broker.estate import Claim, Estate, Frozen, PartName
from oncecast.broker.registry import Registry
from oncecast.broker.staging import Part, Source, topic_of_key
from oncecast.broker.topic import Topic
from oncecast.wire.commands import Stage
from oncecast.wire.results import MoveStep
from oncecast.wire.retention import DEFAULT

NO, YES = MoveStep(False), MoveStep(True)


class Moving:
    """`MoveStep(True)`: it is so now, by this command or an earlier one like it."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def found(self, place: int, command: do.Found) -> MoveStep:
        registry = self._registry
        if registry.estate is None:
            estate = registry.estate = Estate(command.group, None)
            estate.low = estate.position if command.first else None
        return MoveStep(registry.estate.group == command.group)

    def retire(self, place: int, command: do.Retire) -> MoveStep:
        estate = self._registry.estate
        if estate is None:
            return NO
        estate.retired = True
        return YES

    # -- the taker --

    def claim(self, place: int, command: do.Claim) -> MoveStep:
        estate = self._registry.estate
        if estate is None or (estate.retired and estate.claim is None):
            return NO
        if estate.claim is None:
            estate.claim = Claim(command.move, command.giver)
        return MoveStep(estate.claim.move == command.move)

    def import_(self, place: int, command: do.Import) -> MoveStep:
        registry, estate = self._registry, self._claiming(command.move)
        if estate is None:
            return NO
        if command.offset < 0:
            return self._import_part(place, estate, command)
        topic = estate.incoming.get(command.topic)
        if topic is None or topic.id != command.life:
            self._forget(estate, command.topic)
            topic = Topic(command.life, command.topic, DEFAULT, False, registry.places)
            estate.incoming[command.topic] = topic
        index = topic.index
        if command.offset < index.next:
            return YES
        if command.offset > index.next:  # what lies between is gone since
            index.begin_at(command.offset)
        note = (command.skip, command.sequence)
        registry.places.add(place)
        index.append(place, command.count, command.size, command.time, note)
        return YES

    def _import_part(self, place: int, estate: Estate, command: do.Import) -> MoveStep:
        staged, registry = command.command, self._registry
        if not isinstance(staged, Stage):
            return NO
        key = registry.source_key(staged.source, staged.topic)
        name = (key, staged.number, staged.part)
        if name not in estate.parts:
            part = Part(place, staged.topic, staged.count, staged.size, command.time)
            estate.parts[name] = part
            registry.places.add(place)
        return YES

    def adopt(self, place: int, command: do.Adopt) -> MoveStep:
        registry, estate = self._registry, self._registry.estate
        if estate is None or estate.claim is None or estate.claim.move != command.move:
            return NO
        if estate.claim.adopted:
            return YES
        topics, sources, answers = state.moved_in(command.rows, registry.places)
        whole = all(self._has_all(estate, topic) for topic in topics)
        staged = all(name in estate.parts for name in names_of_parts(sources))
        if estate.frozen is not None or not estate.may_take(command.until):
            return NO  # what ends where a part begins that is going would end nowhere
        if not whole or not staged:
            return NO
        for topic in topics:
            if topic.index.first < topic.index.next:
                copied = estate.incoming.pop(topic.name)
                copied.index.drop_below(topic.index.first)
                topic.index = copied.index
            registry.topics[topic.name] = topic
            topic.rebuild()
            registry.follow_age(topic)
        self._adopt_sources(estate, sources)
        for token, answer in answers:
            registry.answered.add(token, *answer)
        self._forget_copies(estate)  # of what was deleted since, or read to its end
        if command.clock > registry.clock.trusted:
            registry.pass_time(command.clock)
        if command.newest > registry.clock.now:
            # In dispute, if it was: then the next stamp moves back what came with it.
            registry.pass_time(command.newest)
        registry.lives = max(registry.lives, command.lives)
        registry.epochs = max(registry.epochs, command.epochs)
        # The giver may have refused what a source sent whose record it has deleted since.
        registry.staging.floor = registry.epochs
        estate.low = command.low
        estate.claim = Claim(command.move, estate.claim.giver, adopted=True)
        return YES

    def _adopt_sources(self, estate: Estate, sources: dict[str, Source]) -> None:
        for key, source in sources.items():
            for number, parts in source.staged.items():
                for name in parts:
                    parts[name] = estate.parts.pop((key, number, name))
            self._registry.staging.take_over(key, source)

    def abandon(self, place: int, command: do.Abandon) -> MoveStep:
        estate = self._claiming(command.move)
        if estate is not None:
            self._forget_copies(estate)
            estate.claim = None
        return YES

    def finish(self, place: int, command: do.Finish) -> MoveStep:
        estate = self._registry.estate
        claim = estate.claim if estate is not None else None
        if estate is not None and claim is not None and claim.move == command.move:
            if not claim.adopted:
                return NO
            estate.claim = None
        return YES

    # -- the giver --

    def freeze(self, place: int, command: do.Freeze) -> MoveStep:
        registry, estate = self._registry, self._registry.estate
        if estate is None or not estate.may_give(command.until):
            return NO
        if estate.frozen is not None:
            return MoveStep(estate.frozen.move == command.move)
        for name in [each for each in registry.topics if estate.in_part(each, command.until)]:
            estate.outgoing[name] = registry.topics.pop(name)
            registry.aging.pop(name, None)
        for key in list(registry.staging.sources):
            if estate.in_part(topic_of_key(key), command.until):
                estate.sources[key] = registry.staging.part_with(key)
        estate.frozen = Frozen(command.move, command.until, command.taker)
        return YES

    def thaw(self, place: int, command: do.Thaw) -> MoveStep:
        estate = self._freezing(command.move)
        if estate is not None:
            for name, topic in estate.outgoing.items():
                self._registry.topics[name] = topic
                self._registry.follow_age(topic)
            for key, source in estate.sources.items():
                self._registry.staging.take_over(key, source)
            estate.outgoing.clear()
            estate.sources.clear()
            estate.frozen = None
        return YES

    def release(self, place: int, command: do.Release) -> MoveStep:
        estate = self._freezing(command.move)
        if estate is not None and estate.frozen is not None:
            for topic in estate.outgoing.values():
                topic.index.clear()
            for source in estate.sources.values():
                for part in source.parts():
                    self._registry.places.drop(part.place)
            estate.outgoing.clear()
            estate.sources.clear()
            until, estate.frozen = estate.frozen.until, None
            estate.low = None if until == estate.position else until
        return YES

    # -- --

    def _claiming(self, move: str) -> Estate | None:
        """The estate, if this is its claim and it is not adopted yet."""
        estate = self._registry.estate
        claim = estate.claim if estate is not None else None
        return estate if claim is not None and claim.move == move and not claim.adopted else None

    def _freezing(self, move: str) -> Estate | None:
        estate = self._registry.estate
        frozen = estate.frozen if estate is not None else None
        return estate if frozen is not None and frozen.move == move else None

    def _forget_copies(self, estate: Estate) -> None:
        for name in list(estate.incoming):
            self._forget(estate, name)
        for part in estate.parts.values():
            self._registry.places.drop(part.place)
        estate.parts.clear()

    def _forget(self, estate: Estate, name: str) -> None:
        topic = estate.incoming.pop(name, None)
        if topic is not None:
            topic.index.clear()

    def _has_all(self, estate: Estate, topic: Topic) -> bool:
        """Whether the copies reach from its first message to its last."""
        index, copied = topic.index, estate.incoming.get(topic.name)
        if index.first == index.next:
            return True
        if copied is None or copied.id != topic.id:
            return False
        return copied.index.next == index.next and copied.index.first <= index.first


def names_of_parts(sources: dict[str, Source]) -> Iterator[PartName]:
    for key, source in sources.items():
        for number, parts in source.staged.items():
            for name in parts:
                yield key, number, name
