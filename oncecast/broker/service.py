"""The pub/sub machine on a replica group: commands go into the log, results come out of it.

    Execute, Ack ↓    Executed, Changed, SharedChanged, Dispatched, AccessChanged, ClockDisputed ↑
    and `machine`, `stored_batch(slot)`, `expected_time()`

The service stamps commands with the time, and batches acks into one log slot. It also batches
workers' settlements: those that arrive while one slot is in flight share the next. It keeps the log
short with snapshots, and carries live entries forward when most of the log around them is garbage.
It reports only decided commands, and proposes only while its replica leads. When the replica stops
leading, the service drops open proposals, and clients must ask the next leader.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from random import Random
from typing import ClassVar, NamedTuple, cast, get_args

import msgspec

from oncecast.broker.events import (
    AccessChanged,
    Changed,
    ClockDisputed,
    ClockRead,
    DelayedDue,
    Dispatched,
    Execute,
    Executed,
    FlushAcks,
    Outcome,
    ReadClock,
    SharedChanged,
    Upkept,
)
from oncecast.broker.holding import output_part
from oncecast.broker.log_usage import LogUsage
from oncecast.broker.machine import Machine
from oncecast.broker.moves import AnyCommand, Freeze, Import
from oncecast.broker.releasing import Releaser
from oncecast.broker.timekeeping import Timekeeper
from oncecast.broker.transacting import ABORTED
from oncecast.errors import Corrupt, Outdated
from oncecast.kernel.compiling import mypyc_attr
from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.kernel.topic_tag import tag_of
from oncecast.replication.events import (
    Compact,
    Compare,
    Decided,
    Digest,
    Group,
    Installed,
    LeaderChanged,
    LevelRaised,
    Missing,
    Propose,
    StateWanted,
)
from oncecast.wire import commands as do
from oncecast.wire import errors, levels
from oncecast.wire.limits import LIMITS, Limits
from oncecast.wire.results import (
    Published,
    Result,
    SettlesDone,
    Ticked,
    TransactionEnded,
    TransactionPrepared,
)
from oncecast.wire.ring_transactions import PrepareTransaction, ResolveTransaction
from oncecast.wire.sharing import Settle
from oncecast.wire.transactions import EndTransaction

COMMAND_BYTES_MAX = 1 << 20  # maximum bytes of a command without its batch
CARRY_BYTES = 2 << 20  # maximum bytes that are carried forward at a time
MAINTENANCE_EVERY_BYTES = 1 << 20
PRODUCERS_EVERY = 3600.0  # maximum seconds between checks for idle producers
DISPUTE_TICK_US = 60 * 1_000_000  # maximum time between stamps during a dispute
# Tokens of proposals that do not come from the layer above.
NO_ASKER, CARRYING, ACKING, SETTLING = -1, -2, -3, -4
SETTLES_RUNS_MAX = 20_000  # maximum total runs of the settlements in one slot
ACKS_IN_FLIGHT_MAX = 16  # maximum ack proposals; while acks wait, only each reader's newest is kept


class Pace(NamedTuple):
    ack_delay: float
    acks_max: int
    maintenance_every: float


class StoredBatch(NamedTuple):
    """A batch with its producer. `sequence` is -1 if only the index contains it."""

    producer: str
    sequence: int
    batch: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(AnyCommand).decode
KINDS: tuple[type, ...] = get_args(AnyCommand)
Ending = do.Seek | do.Unsubscribe | do.DeleteTopic  # commands that may end leases
ENDING = frozenset(get_args(Ending))
STAMPED = {kind for kind in get_args(do.Command) if "at" in kind.__struct_fields__}


@mypyc_attr(allow_interpreted_subclasses=True)
class Service(Protocol):
    name = "pubsub"
    Request: ClassVar = Execute | do.Ack
    Message: ClassVar = ReadClock | ClockRead
    Observed: ClassVar = Decided | LeaderChanged | StateWanted | Installed | Compare | LevelRaised
    Timer: ClassVar = FlushAcks | Upkept | DelayedDue

    def __init__(
        self,
        me: NodeId,
        rng: Random,
        *,
        group: Group,
        epoch_us: int = 0,  # microseconds to add to the node's clock to get the wall clock
        wall: Callable[[], int] | None = None,  # the system's wall clock, instead of `epoch_us`
        limits: Limits = LIMITS,
        level: int = levels.KNOWN,  # the highest feature level that this node supports
        ack_delay: float = 0.005,
        acks_max: int = 1000,
        maintenance_every: float = 1.0,
        snapshot_bytes: int = 64 << 20,
        recent_bytes: int = 32 << 20,  # size of the batch cache
    ) -> None:
        super().__init__(me, rng)
        self.machine = Machine()
        self._limits, self._known_level = limits, level
        self._too_new = levels.above(1, KINDS)  # command types above the group's level
        self.group = group
        self.wall = wall or (lambda: epoch_us + int(self.now * 1e6))
        self.time = Timekeeper(self, group, self._wall)
        self.leader = NodeId("")
        # One tuple, because attribute access is slower on objects with 30 or more attributes.
        self._pace = Pace(ack_delay, acks_max, maintenance_every)
        self._log_usage = LogUsage(snapshot_bytes)
        self._recent = RecentBatches(recent_bytes)
        self._tokens = 0
        # Open proposals by token, each with the token of its asker.
        self._proposed: dict[int, tuple[int, AnyCommand]] = {}
        self._held: list[tuple[AnyCommand, int]] = []  # proposals that wait for the group's time
        self._acks: dict[tuple[str, str, int], do.Ack] = {}
        self._settling = Settling()
        self._carrying = self._acking = 0  # proposals in flight
        self._grown = 0  # number of bytes appended since the last maintenance
        self._producers_due = 0.0
        self._releaser = Releaser(self, lambda: self._propose(do.Tick(0)))

    # -- replay --

    def install(self, slot: int, state: tuple[bytes, ...]) -> None:
        machine = Machine.restore(state[1:])
        if machine.registry.level > self._known_level:
            raise Outdated(machine.registry.level, self._known_level)
        self.machine = machine
        self._log_usage.restore(state[0], sum(map(len, state)))

    def learn(self, slot: int, value: bytes) -> None:
        self._log_usage.add(slot, len(value))
        self.machine.apply(slot, _decode(value))

    def start(self) -> None:
        self.later(self._pace.maintenance_every, Upkept())

    @property
    def maintenance_every(self) -> float:
        return self._pace.maintenance_every

    @property
    def leading(self) -> bool:
        return self.leader == self.me

    # -- commands in, results out --

    def request(self, request: Execute | do.Ack) -> None:
        if isinstance(request, Execute):
            command = request.command
            if isinstance(command, Settle):
                self._gather_settle(request.token, command)
            else:
                self._propose(command, request.token)
        else:
            self._gather(request)

    def _propose(self, command: AnyCommand, asker: int = NO_ASKER) -> None:
        if not self.leading:
            return
        if self._too_new and self._is_too_new(command):
            self._refuse_new(asker, command)
            return
        # The limits carry no time, and must be decided before all other commands from this leader.
        if (self._held or not self.time.ready(self._step)) and type(command) is not do.SetLimits:
            self._held.append((command, asker))
            return
        self._submit(command, asker)

    def _release_held(self) -> None:
        """Propose what was held, in order, as soon as this leader knows the group's time."""
        if self._held and self.time.ready(self._step):
            held, self._held = self._held, []
            for command, asker in held:
                self._submit(command, asker)

    def _submit(self, command: AnyCommand, asker: int) -> None:
        if type(command) in STAMPED:
            command = self._stamped(command)
        value = _encode(command)
        # A carried batch was accepted before, perhaps under a higher limit.
        limit = self._limits.batch_bytes_max + COMMAND_BYTES_MAX
        if len(value) > limit and asker != CARRYING:
            self._refuse(asker, limit)
            return
        self._tokens += 1
        self._proposed[self._tokens] = (asker, command)
        self.ask(Propose(self._tokens, value))

    def _refuse(self, asker: int, limit: int) -> None:
        """Refuse a command that is too large for a frame, because it would block the log."""
        for each in self._askers(asker):
            self.emit(Executed(each, errors.TooLarge("bytes", limit)))

    def _is_too_new(self, command: AnyCommand) -> bool:
        needed = levels.needed_by(command)
        return type(command) in self._too_new or needed > self.machine.registry.level

    def _refuse_new(self, asker: int, command: AnyCommand) -> None:
        """Refuse a command that some member of the group may not be able to decode."""
        needed, level = levels.needed_by(command), self.machine.registry.level
        for each in self._askers(asker):
            self.emit(Executed(each, errors.LevelTooLow(needed, level)))

    def _askers(self, asker: int) -> tuple[int, ...]:
        """Return the tokens of all calls that a proposal answers."""
        if asker == SETTLING:
            return self._settling.done()
        return (asker,) if asker >= 0 else ()

    def _stamped(self, command: AnyCommand) -> AnyCommand:
        registry = self.machine.registry
        step = registry.limits.clock_step_us
        at = self.time.stamp(registry.clock, self._step)
        self.time.go_on_from(at)
        if isinstance(command, do.Tick):
            elapsed = self.time.elapsed() if step else 0
            self.time.saw_stamp()
            return do.Tick(at, elapsed, command.producers)
        if step and self.time.idle_us > step // 2:
            self._propose(do.Tick(0))  # the Tick reports how long the group was idle
        return cast("AnyCommand", msgspec.structs.replace(command, at=at))

    @property
    def _step(self) -> int:
        """Return the step that applies to this leader's stamps, because it proposes its limits."""
        return self._limits.clock_step_us

    def _wall(self) -> int:
        return self.wall()

    def receive(self, sender: NodeId, message: ReadClock | ClockRead) -> None:
        if isinstance(message, ReadClock):
            self.time.answer(sender)
        else:
            self.time.hear(sender, message)
            if self.leading and self.time.ready(self._step):
                self.time.go_on_from(self.time.stamp(self.machine.registry.clock, self._step))
                self._release_held()

    def observe(
        self, event: Decided | LeaderChanged | StateWanted | Installed | Compare | LevelRaised
    ) -> None:
        if isinstance(event, Decided):
            self._decided(event)
        elif isinstance(event, LeaderChanged):
            self._follow(event.leader)
        elif isinstance(event, LevelRaised):
            self._propose_settings()
        elif isinstance(event, StateWanted):
            self._compact(self.machine.needed())
        elif isinstance(event, Installed):
            self._recent.clear()
            self.time.saw_nothing()
            self.install(event.slot, event.state)
            self.emit(AccessChanged())
        else:
            self.ask(Digest(event.slot, self.machine.checksum().to_bytes(8, "big")))

    def _follow(self, leader: NodeId) -> None:
        self.leader = leader
        self._proposed.clear()
        self._held.clear()
        self._acks.clear()
        self._settling = Settling()
        self._carrying = self._acking = 0
        self._note_level()
        self.time.begin_term()
        if self.leading:
            self.time.look(self.machine.registry.clock, self._step)
        self._propose_settings()

    def _propose_settings(self) -> None:
        """Propose this leader's limits and its members' level, if they have changed."""
        registry, level = self.machine.registry, self.group.level
        if registry.limits != self._limits or registry.level < level:
            self._propose(do.SetLimits(self._limits, level))

    def _note_level(self) -> None:
        self._too_new = levels.above(self.machine.registry.level, KINDS)

    def _decided(self, event: Decided) -> None:
        slot, value, token = event.slot, event.value, event.token
        asker, command = self._proposed.pop(token, None) or (NO_ASKER, _decode(value))
        disputed, access = self.machine.registry.clock.dispute, self.machine.registry.access
        ended = cast("Ending", command).topic if type(command) in ENDING else ""
        was_shared = ended in self.machine.registry.sharing
        result = self.machine.apply(slot, command)
        if was_shared:
            self.emit(SharedChanged(ended))
        if type(command) in STAMPED:
            self.time.saw_stamp()
        if self.machine.registry.clock.dispute != disputed:
            self.emit(ClockDisputed(self.machine.registry.clock.disputed_us))
        self._log_usage.add(slot, len(value))
        if isinstance(command, do.Put):
            found = StoredBatch(command.producer, command.sequence, command.batch)
            self._recent.add(slot, command.topic, found)
            self.emit(Changed(command.topic))
            if command.topic in self.machine.registry.sharing:
                self.emit(SharedChanged(command.topic))
            if type(command) is do.TimedPut:
                self._releaser.follow(command.topic)
        elif isinstance(command, EndTransaction):
            self._tell_ended(slot, command, result)
        else:
            self._tell_changes(command, result)
            if self.machine.registry.access is not access:
                self.emit(AccessChanged())
        if asker >= 0:
            self.emit(Executed(asker, cast("Outcome", result)))
        elif asker != NO_ASKER:
            self._continue(asker, result)
        self._grown += len(value)
        if self._grown >= MAINTENANCE_EVERY_BYTES:
            self._look_after_log()

    def _continue(self, asker: int, result: Result) -> None:
        """Go on after a command that this service has proposed for itself."""
        if asker == SETTLING:
            assert isinstance(result, SettlesDone)
            for each, settled in zip(self._settling.done(), result.results, strict=True):
                self.emit(Executed(each, settled))
            self._flush_settles()
        elif asker == CARRYING:
            self._carrying -= 1
        elif asker == ACKING:
            self._acking -= 1
            if self._acking == ACKS_IN_FLIGHT_MAX - 1:
                self._flush_acks()

    def _tell_changes(self, command: AnyCommand, result: Result) -> None:
        if isinstance(command, do.PublishStaged):
            for each in result.ranges if isinstance(result, Published) else ():
                self._tell_changed(each.topic)
        elif isinstance(command, do.Lease | do.Settles | do.Bury):
            if isinstance(command, do.Bury):
                self._tell_changed(command.put.topic)
            self.emit(Dispatched(command, result))
        elif isinstance(command, do.SubscribeShared):
            self.emit(SharedChanged(command.topic))
        elif isinstance(command, ResolveTransaction):
            for change in changes_of_share(command.topic, result, self.machine.registry.sharing):
                self.emit(change)
        elif isinstance(command, do.SetLimits):
            self._note_level()
        elif isinstance(result, Ticked):
            for name in result.topics:
                self._tell_changed(name)
                self._releaser.follow(name)
        elif isinstance(command, Freeze) and self.machine.registry.holdings is not None:
            for name in self.machine.registry.holdings.outgoing:
                self.emit(Changed(name))
                if self.machine.registry.holdings.outgoing[name].shared:
                    self.emit(SharedChanged(name))
        elif isinstance(command, do.Attach | do.Detach | do.Seek | do.Unsubscribe | do.DeleteTopic):
            self.emit(Changed(command.topic))

    def _tell_ended(self, slot: int, command: EndTransaction, result: Result) -> None:
        if isinstance(result, TransactionEnded) and result.committed and not result.already:
            for each in command.outputs:
                self._recent.add(slot, each.topic, StoredBatch(command.source, -1, each.batch))
            for found in result.ranges:
                self._tell_changed(found.topic)
            for accepted in command.accepted:
                self.emit(SharedChanged(accepted.topic))

        elif isinstance(result, TransactionPrepared) or result == ABORTED:
            for change in changes_of_share(command.topic, result, self.machine.registry.sharing):
                self.emit(change)

    def _tell_changed(self, topic: str) -> None:
        self.emit(Changed(topic))
        if topic in self.machine.registry.sharing:
            self.emit(SharedChanged(topic))

    # -- acks: only the newest ack of a subscription matters, and no client waits for it --

    def _gather(self, ack: do.Ack) -> None:
        key = ack.topic, ack.subscription, ack.epoch
        known = self._acks.get(key)
        if known is None or ack.upto > known.upto:
            self._acks[key] = ack
        if len(self._acks) >= self._pace.acks_max:
            self._flush_acks()
        elif known is None and len(self._acks) == 1:
            self.later(self._pace.ack_delay, FlushAcks())

    def _flush_acks(self) -> None:
        if not self._acks or self._acking >= ACKS_IN_FLIGHT_MAX:
            return
        some = list(islice(self._acks, self._pace.acks_max))
        self._acking += self.leading
        self._propose(do.Acks(tuple([self._acks.pop(key) for key in some]), 0), ACKING)
        if self._acks:
            self.later(self._pace.ack_delay, FlushAcks())

    # -- settlements: each has an answer, and those that arrive together share a slot --

    def _gather_settle(self, asker: int, settle: Settle) -> None:
        if self.leading:
            self._settling.add(asker, settle)
            self._flush_settles()

    def _flush_settles(self) -> None:
        settles = self._settling.next()
        if settles:
            self._propose(do.Settles(settles, 0), SETTLING)

    def timeout(self, timer: FlushAcks | Upkept | DelayedDue) -> None:
        if isinstance(timer, FlushAcks):
            self._flush_acks()
        elif isinstance(timer, DelayedDue):
            self._releaser.fire()
        else:
            self._pass_time()
            self._look_after_log()
            self.later(self._pace.maintenance_every, Upkept())

    # -- reading --

    def batch_at(self, slot: int, topic: str) -> do.Put | do.Stage:
        """Return the command that stored the topic's batch in `slot`.

        Raise Missing while the batch is being fetched from another replica, or Corrupt if no
        replica has it.
        """
        return carried(_decode(self.group.entry(slot)), topic)

    def stored_batch(self, slot: int, topic: str) -> StoredBatch:
        """Return the topic's batch in a live slot. Raise the same errors as `batch_at`."""
        found = self._recent.get(slot, topic)
        if found is None:
            found = stored_batch_of(_decode(self.group.entry(slot)), topic)
            self._recent.add(slot, topic, found)
        return found

    # -- maintenance: expiry, snapshots and carried entries --

    def _pass_time(self) -> None:
        """Propose a Tick if it would expire something or help end a clock dispute.

        An idle node proposes nothing, so it does not write to its disk.
        """
        if not self.leading:
            return
        registry = self.machine.registry
        step, staged_age = registry.limits.clock_step_us, registry.limits.staged_age_us
        self.time.look(registry.clock, self._step)
        self._release_held()
        if not self.time.ready(self._step):
            return
        if (outvoted := self.time.note_outvoted(registry.clock, step)) is not None:
            self.emit(outvoted)
        at = self.time.stamp(registry.clock, step)
        trusted = registry.clock.trusted_after(at, step, self.time.elapsed())
        self._releaser.look()
        aged = (topic.floor(trusted) > topic.index.first for topic in registry.aging.values())
        abandoned = registry.staging.abandoned(trusted - staged_age)
        if any(aged) or any(abandoned) or self._dispute_due(step, at - trusted):
            self._propose(do.Tick(0))
        if self.now >= self._producers_due:  # rarely, because there may be many producers
            idle = registry.limits.producer_idle_us / 1e6
            self._producers_due = self.now + min(PRODUCERS_EVERY, idle / 10)
            if any(registry.idle_producers(trusted)) or any(registry.idle_sources(trusted)):
                self._propose(do.Tick(0, producers=True))

    def expected_time(self) -> int:
        """Return the trusted time that a command proposed now would set."""
        clock, step = self.machine.registry.clock, self.machine.registry.limits.clock_step_us
        return clock.trusted_after(self.time.stamp(clock, step), step, self.time.elapsed())

    def _dispute_due(self, step: int, ahead_us: int) -> bool:
        """Return whether a clock dispute needs another stamp to begin, continue or end.

        Messages stamped during a dispute do not age until it ends. Leases and delays end only
        while the stamps advance. A clock that is behind moves no time before a dispute begins.
        """
        registry, dispute = self.machine.registry, self.machine.registry.clock.dispute
        if not step or not (dispute or abs(ahead_us) > step):
            return False
        ages = registry.staging.parts or registry.delaying
        ages = ages or any(each.index.batches for each in registry.aging.values())
        ages = ages or any(each.has_deadlines for each in registry.sharing.values())
        return bool(ages) and (not dispute or self.time.idle_us >= DISPUTE_TICK_US)

    def _look_after_log(self) -> None:
        self._grown = 0
        needed = self.machine.needed()
        if self._log_usage.snapshot_due(needed):
            self._compact(needed)
        # Summing over all topics is slow, so first check whether the sum can make a difference.
        if self.leading and not self._carrying and self._log_usage.carry_due(needed, 0):
            registry = self.machine.registry
            live = sum(each.index.size + each.delays.size for each in registry.topics.values())
            if self._log_usage.carry_due(needed, live + registry.staging.bytes):
                self._carry(needed)

    def _compact(self, needed: int) -> None:
        state = (self._log_usage.state(needed), *self.machine.state())
        self._log_usage.snapshot_taken(needed, sum(map(len, state)))
        self.ask(Compact(self.machine.registry.last_slot, needed, state))

    def _carry(self, needed: int) -> None:
        stop = self._log_usage.slot_behind(needed, self._log_usage.snapshot_bytes // 2)
        left = CARRY_BYTES
        for topic, extent in self.machine.extents_before(stop):
            if left <= 0:
                break
            try:
                command = self.batch_at(extent.slot, topic)
            except Missing:
                break  # the batch is being fetched
            except Corrupt:
                continue  # no replica has the batch; it stays, and readers get an error
            self._carrying += 1
            left -= command.size
            self._propose(do.Carry(extent.slot, extent.offset, command), CARRYING)


class Settling:
    """Settlements that wait for a slot of the log, and the askers of those in flight."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Settle]] = deque()
        self._in_flight: tuple[int, ...] = ()

    def add(self, asker: int, settle: Settle) -> None:
        self._waiting.append((asker, settle))

    def next(self) -> tuple[Settle, ...]:
        """Return the settlements for the next slot, or () if a slot is in flight."""
        if self._in_flight:
            return ()
        left, askers, settles = SETTLES_RUNS_MAX, [], []
        while self._waiting and left > 0:
            asker, settle = self._waiting.popleft()
            askers.append(asker)
            settles.append(settle)
            left -= 1 + settle.runs
        self._in_flight = tuple(askers)
        return tuple(settles)

    def done(self) -> tuple[int, ...]:
        """Return the askers of the slot in flight, which is decided or refused."""
        askers, self._in_flight = self._in_flight, ()
        return askers


class RecentBatches:
    """A least-recently-used cache of batches by slot and topic."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes, self._bytes_max = 0, bytes_max
        self._sources: OrderedDict[tuple[int, str], StoredBatch] = OrderedDict()

    def get(self, slot: int, topic: str) -> StoredBatch | None:
        found = self._sources.get((slot, topic))
        if found is not None:
            self._sources.move_to_end((slot, topic))
        return found

    def clear(self) -> None:
        self._sources.clear()
        self._bytes = 0

    def add(self, slot: int, topic: str, source: StoredBatch) -> None:
        self._sources[slot, topic] = source
        self._bytes += len(source.batch) + 256
        while self._bytes > self._bytes_max:
            _, oldest = self._sources.popitem(last=False)
            self._bytes -= len(oldest.batch) + 256


def changes_of_share(
    tag: str, result: Result, sharing: Iterable[str]
) -> Iterator[Changed | SharedChanged]:
    """Yield the topics that a share has put to, and those whose workers may get other messages."""
    for each in result.ranges if isinstance(result, TransactionEnded) else ():
        yield Changed(each.topic)
    for name in sharing:
        if tag_of(name) == tag_of(tag):
            yield SharedChanged(name)


def carried(command: AnyCommand, topic: str) -> do.Put | do.Stage:
    """Return the command that first stored the topic's batch. A transaction stores several."""
    while isinstance(command, do.Carry | Import | do.Bury):
        command = command.put if isinstance(command, do.Bury) else command.command
    if isinstance(command, EndTransaction):
        (found,) = (each for each in command.outputs if each.topic == topic)
        facts = (topic, found.count, found.size, command.at, found.batch)
        part = output_part(topic) if isinstance(command, PrepareTransaction) else ""
        return do.Stage(command.source, command.number, part, *facts, epoch=command.epoch)
    assert isinstance(command, do.Put | do.Stage), f"a {type(command).__name__} has no batch"
    if isinstance(command, do.TimedPut):  # the state machine already has the times
        put = command
        names = (put.topic, put.producer, put.epoch, put.sequence)
        return do.Put(*names, put.count, put.size, put.at, put.batch)
    return command


def stored_batch_of(command: AnyCommand, topic: str) -> StoredBatch:
    command = carried(command, topic)
    if isinstance(command, do.Put):
        return StoredBatch(command.producer, command.sequence, command.batch)
    return StoredBatch(command.source, -1, command.batch)
