"""The pub/sub state machine: `apply(slot, command) -> result`. Nothing else changes its state.

All replicas apply the same commands in the same slots, so they all have the same state. Time comes
from the commands. The machine uses no random numbers and does not iterate over sets. `slot` is the
position of a command in the replicated log. Messages stay in the log: a topic is an index of slots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast, get_args

import google_crc32c

from oncecast.broker import moves, state
from oncecast.broker.administering import Administering
from oncecast.broker.contents import Contents
from oncecast.broker.delays import position
from oncecast.broker.dividing import Dividing
from oncecast.broker.extent import Extent
from oncecast.broker.granting import Granting
from oncecast.broker.holding import Holding
from oncecast.broker.moves import AnyCommand
from oncecast.broker.moving import Moving
from oncecast.broker.producing import Producing
from oncecast.broker.publishing import Publishing
from oncecast.broker.registry import Registry
from oncecast.broker.sharing import Sharing
from oncecast.broker.subscribing import Subscribing
from oncecast.broker.transacting import Transacting
from oncecast.wire import commands as do
from oncecast.wire.errors import InvalidName, NoSuchTopic, NotHere, Partitioned
from oncecast.wire.limits import Limits, is_name
from oncecast.wire.partitions import AddGroup, Enlist, LeaveGroup, RemoveGroup, SetPartitions
from oncecast.wire.results import Result
from oncecast.wire.ring_transactions import (
    ConfirmTransactions,
    DecideTransaction,
    ExpireTransaction,
    PrepareTransaction,
    ResolveTransaction,
)
from oncecast.wire.transactions import EndTransaction

OF_ACCESS = get_args(do.AccessCommand)
OF_TOPIC = tuple(kind for kind in get_args(do.Command) if "topic" in kind.__struct_fields__)
# Commands on the messages of a topic. A topic with partitions has none.
OF_MESSAGES = (
    *(do.OpenProducer, do.Put, do.TimedPut, do.Stage),
    *(do.Subscribe, do.SubscribeShared, do.Unsubscribe, do.Attach, do.Detach, do.Seek),
)


class Machine:
    def __init__(self, limits: Limits = Limits()) -> None:  # noqa: B008  # frozen
        self._manage(Registry(limits))

    @classmethod
    def restore(cls, chunks: Iterable[bytes]) -> Machine:
        """Return a machine with the state that `state` wrote to these chunks.

        Raise WrongFormat if another version wrote them, or ValueError if they are not a valid
        state.
        """
        machine = cls.__new__(cls)
        machine._manage(state.restored(chunks))
        return machine

    def apply(self, slot: int, command: AnyCommand) -> Result:
        """Execute a command, and return its result or refusal. Slots must increase."""
        assert slot > self.registry.last_slot, f"slot {slot} is not after {self.registry.last_slot}"
        self.registry.last_slot = slot
        if self.registry.holdings is not None:
            elsewhere = self._elsewhere(command)
            if elsewhere is not None:
                return elsewhere
        if self.registry.divided and isinstance(command, OF_MESSAGES):
            refusal = self.registry.refusal_to_use(command.topic)
            if refusal is not None:
                return self._refuse(command, refusal)
        if type(command) in do.ONCE:
            return self._once(slot, cast("do.Once", command))
        return self._handlers[type(command)](slot, command)

    def _refuse(
        self, command: AnyCommand, refusal: Partitioned | NoSuchTopic
    ) -> Partitioned | NoSuchTopic:
        at = getattr(command, "at", None)  # some commands have no stamp
        if at is not None:
            self.registry.pass_time(at)
        return refusal

    def _once(self, slot: int, command: do.Once) -> Result:
        """Apply a command once. If a copy was applied before, return its result."""
        registry, token = self.registry, command.token
        topic = getattr(command, "topic", "")  # some commands have none
        known = registry.answered.get(token, topic)
        if known is None and token and not is_name(token):
            known = InvalidName("token")
        if known is not None:
            at = getattr(command, "at", None)  # some commands have no stamp
            if at is not None:
                registry.pass_time(at)
            return known
        result = self._handlers[type(command)](slot, command)
        if token:
            registry.answered.add(token, topic, result)
        return result

    def _elsewhere(self, command: AnyCommand) -> NotHere | None:
        """Return the refusal if the group does not own the command's topic, otherwise None."""
        if isinstance(command, OF_TOPIC):
            return self.registry.elsewhere(command.topic)
        holdings = self.registry.holdings
        if isinstance(command, OF_ACCESS) and holdings is not None and holdings.low is None:
            # A group without topics may not know the ring's users yet.
            return NotHere("")
        return None

    def state(self) -> Iterator[bytes]:
        """Yield the whole state in chunks. Consume all of them before the next command."""
        return state.chunks(self.registry)

    def checksum(self) -> int:
        """Return the CRC-32C of the state. Replicas with the same state have the same checksum."""
        value = 0
        for chunk in self.state():
            value = google_crc32c.extend(value, chunk)
        return value

    # Queries for readers and for log maintenance

    def bounds(self, topic: str) -> tuple[int, int]:
        """Return the first kept offset and the next one, or (0, 0) if the topic does not exist.

        If a cursor is before the first offset, the messages in between were dropped unread.
        """
        known = self.registry.topics.get(topic)
        return (known.index.first, known.index.next) if known is not None else (0, 0)

    def fetch(
        self, topic: str, offset: int, messages_max: int, bytes_max: int
    ) -> tuple[Extent, ...]:
        """Return the extents starting at `offset`. The first may exceed `bytes_max`."""
        known = self.registry.topics.get(topic)
        return () if known is None else tuple(known.index.extents(offset, messages_max, bytes_max))

    def uncut(self, topic: str, extents: tuple[Extent, ...]) -> tuple[Extent, ...]:
        """Return the extents, without the last one if it ends inside a batch.

        This avoids sending the same batch twice.
        """
        return extents if self.registry.topics[topic].index.ends(extents[-1]) else extents[:-1]

    def needed(self) -> int:
        """Return the lowest slot that is still needed. The log can be truncated before it."""
        lowest = self.registry.live_slots.lowest()
        return self.registry.last_slot + 1 if lowest is None else lowest

    def extents_before(self, slot: int) -> Iterator[tuple[str, Extent]]:
        """Yield the extents to copy with `Carry` so that nothing before `slot` is needed.

        Each has the name of its topic. An extent with offset -1 is a staged part, and one with a
        lower offset a delayed batch.
        """
        left = self.registry.live_slots.below(slot)
        for topic in self.registry.topics.values():
            if not left:
                return
            for extent in topic.index.before(slot):
                yield topic.name, extent
                left -= 1
            for number, batch in topic.delays.batches.items():
                if batch.slot < slot:
                    where = position(number)
                    yield topic.name, Extent(batch.slot, batch.skip, batch.count, where)
                    left -= 1
        for part in self.registry.staging.before(slot):
            yield part.topic, Extent(part.slot, 0, part.count, -1)

    # Long, because it lists the handler of every command.
    def _manage(self, registry: Registry) -> None:
        self.registry = registry
        administering, producing = Administering(registry), Producing(registry)
        subscribing, publishing = Subscribing(registry), Publishing(registry)
        moving, granting, sharing = Moving(registry), Granting(registry), Sharing(registry)
        dividing = Dividing(registry)
        contents = Contents(registry, publishing, sharing)
        holding = Holding(registry, contents)
        transacting = Transacting(registry, contents, holding)
        self._handlers: dict[type, Callable[[int, Any], Result]] = {
            do.CreateTopic: administering.create,
            do.SetPolicy: administering.set_policy,
            do.DeleteTopic: administering.delete,
            do.SetLimits: administering.set_limits,
            do.Tick: administering.tick,
            do.Carry: administering.carry,
            do.OpenProducer: producing.open,
            do.Put: producing.put,
            do.TimedPut: producing.put,
            do.CloseProducer: producing.close,
            do.Subscribe: subscribing.subscribe,
            do.Unsubscribe: subscribing.unsubscribe,
            do.Attach: subscribing.attach,
            do.Detach: subscribing.detach,
            do.Ack: subscribing.ack,
            do.Acks: subscribing.acks,
            do.Seek: subscribing.seek,
            do.SubscribeShared: sharing.subscribe,
            do.Lease: sharing.lease,
            do.Settles: sharing.settles,
            do.Bury: sharing.bury,
            do.Stage: publishing.stage,
            do.PublishStaged: publishing.publish,
            do.DropStaged: publishing.drop,
            do.CloseSource: publishing.close,
            do.OpenSource: transacting.open,
            EndTransaction: transacting.end,
            SetPartitions: dividing.set_partitions,
            AddGroup: dividing.add_group,
            RemoveGroup: dividing.remove_group,
            Enlist: dividing.enlist,
            LeaveGroup: dividing.leave,
            PrepareTransaction: transacting.end,
            DecideTransaction: transacting.end,
            ResolveTransaction: holding.resolve,
            ExpireTransaction: holding.expire,
            ConfirmTransactions: holding.confirm,
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
            moves.ShareAccess: moving.share_access,
            **granting.handlers(),
        }
