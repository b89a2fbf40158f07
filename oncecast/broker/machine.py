"""The pub/sub state machine: `apply(place, command) -> result`, and nothing else changes it.

Every replica applies the same commands at the same places in the same order and then has the same
state: there is no clock here but the commands' own, no dice, and no set to iterate. `place` says
where in the replicated log a command lies, and grows. Messages stay there: a topic is an index of
places, and no batch is kept, copied or decoded here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast, get_args

import google_crc32c

from oncecast.broker import moves, state
from oncecast.broker.administering import Administering
from oncecast.broker.index import Extent
from oncecast.broker.moves import AnyCommand
from oncecast.broker.moving import Moving
from oncecast.broker.producing import Producing
from oncecast.broker.publishing import Publishing
from oncecast.broker.registry import Registry
from oncecast.broker.subscribing import Subscribing
from oncecast.wire import commands as do
from oncecast.wire.errors import InvalidName, NotHere
from oncecast.wire.limits import Limits, is_name
from oncecast.wire.results import Result

OF_TOPIC = tuple(kind for kind in get_args(do.Command) if "topic" in kind.__struct_fields__)


class Machine:
    def __init__(self, limits: Limits = Limits()) -> None:  # noqa: B008  # frozen
        self._manage(Registry(limits))

    @classmethod
    def restore(cls, chunks: Iterable[bytes]) -> Machine:
        """The machine whose `state` these chunks are; ValueError if they are nobody's."""
        machine = cls.__new__(cls)
        machine._manage(state.restored(chunks))
        return machine

    def apply(self, slot: int, command: AnyCommand) -> Result:
        """Whatever the command says, the answer is a result. `place` must be a new, higher one."""
        assert slot > self.registry.last_slot, f"place {slot} comes after {self.registry.last_slot}"
        self.registry.last_slot = slot
        if self.registry.holdings is not None:
            elsewhere = self._elsewhere(command)
            if elsewhere is not None:
                return elsewhere
        if type(command) in do.ONCE:
            return self._once(slot, cast("do.Once", command))
        return self._handlers[type(command)](slot, command)

    def _once(self, slot: int, command: do.Once) -> Result:
        """Apply a command, unless a copy of it was applied before: then return its result."""
        registry, token = self.registry, command.token
        known = registry.answered.get(token)
        if known is None and token and not is_name(token):
            known = InvalidName("token")
        if known is not None:
            if not isinstance(command, do.DropStaged):  # which has no stamp
                registry.pass_time(command.at)
            return known
        result = self._handlers[type(command)](slot, command)
        if token:
            registry.answered.add(token, command.topic, result)
        return result

    def _elsewhere(self, command: AnyCommand) -> NotHere | None:
        """A group of a ring does nothing to a topic that is not its own."""
        if isinstance(command, OF_TOPIC):
            return self.registry.elsewhere(command.topic)
        return None

    def state(self) -> Iterator[bytes]:
        """All that there is, in chunks. Take them all before the next command."""
        return state.chunks(self.registry)

    def checksum(self) -> int:
        """Equal at replicas that are equal."""
        value = 0
        for chunk in self.state():
            value = google_crc32c.extend(value, chunk)
        return value

    # For readers and for the log.

    def bounds(self, topic: str) -> tuple[int, int]:
        """The first offset that is kept and the next to be given; (0, 0) if there is no topic.

        A cursor before the first has lost just what lies between: only `drop_unread` does that.
        """
        known = self.registry.topics.get(topic)
        return (known.index.first, known.index.next) if known is not None else (0, 0)

    def fetch(
        self, topic: str, offset: int, messages_max: int, bytes_max: int
    ) -> tuple[Extent, ...]:
        """Where the messages from `offset` on lie. The first batch comes whatever its size."""
        known = self.registry.topics.get(topic)
        return () if known is None else tuple(known.index.extents(offset, messages_max, bytes_max))

    def uncut(self, topic: str, extents: tuple[Extent, ...]) -> tuple[Extent, ...]:
        """Without the last, if there is more of its batch: that would have to be sent twice."""
        return extents if self.registry.topics[topic].index.ends(extents[-1]) else extents[:-1]

    def needed(self) -> int:
        """The smallest place that is still needed: the log can be cut off before it."""
        lowest = self.registry.live_slots.lowest()
        return self.registry.last_slot + 1 if lowest is None else lowest

    def extents_before(self, slot: int) -> Iterator[Extent]:
        """What a `Carry` each would have to copy so that nothing before `place` is needed.

        An extent with offset -1 is a staged part.
        """
        left = self.registry.live_slots.below(slot)
        for topic in self.registry.topics.values():
            if not left:
                return
            for extent in topic.index.before(slot):
                yield extent
                left -= 1
        for part in self.registry.staging.before(slot):
            yield Extent(part.slot, 0, part.count, -1)

    def _manage(self, registry: Registry) -> None:
        self.registry = registry
        administering, producing = Administering(registry), Producing(registry)
        subscribing, publishing = Subscribing(registry), Publishing(registry)
        moving = Moving(registry)
        self._handlers: dict[type, Callable[[int, Any], Result]] = {
            do.CreateTopic: administering.create,
            do.SetPolicy: administering.set_policy,
            do.DeleteTopic: administering.delete,
            do.SetLimits: administering.set_limits,
            do.Tick: administering.tick,
            do.Carry: administering.carry,
            do.OpenProducer: producing.open,
            do.Put: producing.put,
            do.CloseProducer: producing.close,
            do.Subscribe: subscribing.subscribe,
            do.Unsubscribe: subscribing.unsubscribe,
            do.Attach: subscribing.attach,
            do.Detach: subscribing.detach,
            do.Ack: subscribing.ack,
            do.Acks: subscribing.acks,
            do.Seek: subscribing.seek,
            do.Stage: publishing.stage,
            do.PublishStaged: publishing.publish,
            do.DropStaged: publishing.drop,
            do.CloseSource: publishing.close,
            moves.Found: moving.found,
            moves.Retire: moving.retire,
            moves.Claim: moving.claim,
            moves.Import: moving.import_,
            moves.Adopt: moving.adopt,
            moves.Abandon: moving.abandon,
            moves.Finish: moving.finish,
            moves.Freeze: moving.freeze,
            moves.Thaw: moving.thaw,
            moves.Release: moving.release,
        }
