"""Simulate a consumer group: members join, crash and stall, requests are lost, and topics grow.

The state machine of one group has the descriptor, and that of another one the partitions. Members
run `Membership`, the pure part of the client. Everything else is a model: a member handles one
message of each partition at a time, and then acknowledges it.

Checks, after every step
- Assignments are balanced, and change only when the members or the partitions change.
- A partition changes hands only after its member has released it, has left or is late.
- A message is handed out again only if its earlier member has crashed or was late (PART-2).
- Each message is acknowledged once, in the order of its partition.

In the end, all messages are acknowledged, and the members share the partitions.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import pairwise
from random import Random
from typing import Any

from oncecast.broker.machine import Machine
from oncecast.client.membership import Membership
from oncecast.wire import commands as do
from oncecast.wire.errors import Fenced, NotAssigned, Refusal
from oncecast.wire.partitions import (
    AddGroup,
    Enlist,
    LeaveGroup,
    SetPartitions,
    partition_topic,
)
from oncecast.wire.results import Acked, Appended, Attached, Enlisted, Opened
from oncecast.wire.retention import Policy

LIFETIME = 3.0
RETRY = 0.5  # seconds until a member repeats a request
STORM, CALM = 60.0, 60.0  # seconds with faults, and then without
PARTITIONS_MAX = 9
LOST, TWICE = 0.05, 0.05
US = 1_000_000


class Part:
    def __init__(self, term: int) -> None:
        self.term = term
        self.epoch = 0  # 0 until it is attached
        self.next = 0
        self.busy = self.leaving = self.closing = False


class Storm:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self.owner, self.store = Machine(), Machine()
        self._slots = {id(self.owner): 0, id(self.store): 0}
        self.members: dict[str, Member] = {}
        self.late: dict[str, None] = {}  # members that the group has dropped because of their time
        self.handed: dict[tuple[int, int], str] = {}  # the last member that got each message
        self.again = 0  # number of messages that were handed out again
        self.acked: dict[int, int] = {}  # the cursor of each partition
        self.producers: dict[int, tuple[int, int]] = {}  # epoch and sequence by partition
        self.calm = False
        self.grow_to(3)

    # -- events --

    def later(self, delay: float, work: Callable[[], None]) -> None:
        self._number += 1
        heappush(self._events, (self.now + delay, self._number, work))

    def run(self) -> None:
        self._every(0.05, self._put)
        self._every(1.0, self._disturb)
        for _ in range(2):
            self.join()
        self._until(STORM)
        self.calm = True
        if not self.working():
            self.join()
        self._until(STORM + CALM)
        self._check_end()

    def _every(self, interval: float, work: Callable[[], None]) -> None:
        def step() -> None:
            if not self.calm:
                work()
                self.later(interval * self.rng.uniform(0.5, 1.5), step)

        self.later(interval, step)

    def _until(self, end: float) -> None:
        while self._events and self._events[0][0] <= end:
            self.now, _, work = heappop(self._events)
            work()
        self.now = end

    # -- machines --

    def apply(self, machine: Machine, command: Any) -> Any:
        self._slots[id(machine)] += 1
        before = self._assigned()
        result = machine.apply(self._slots[id(machine)], command)
        if machine is self.owner:
            self._check_assignments(before, command)
        elif isinstance(command, do.Ack) and isinstance(result, Acked):
            self._check_ack(command, result)
        return result

    @property
    def at(self) -> int:
        return 1000 * US + int(self.now * US)

    def request(
        self, member: Member, machine: Machine, command: Any, then: Callable[[Any], None]
    ) -> None:
        """Send a request until it is answered. Copies may be lost, late and executed twice."""
        done = [False]

        def answered(result: Any) -> None:
            if not done[0] and member.alive:
                done[0] = True
                member.when_awake(lambda: then(result))

        def execute(reply: Callable[[Any], None]) -> None:
            result = self.apply(machine, stamped(command, self.at))
            if not self._lost():
                self.later(self._delay(), lambda: reply(result))

        def send() -> None:
            if done[0] or not member.alive:
                return
            if not self._lost():
                self.later(self._delay(), lambda: execute(answered))
            if not self.calm and self.rng.random() < TWICE:
                self.later(self.rng.uniform(0, 2 * LIFETIME), lambda: execute(lambda _: None))
            self.later(RETRY, lambda: member.when_awake(send))

        send()

    def _lost(self) -> bool:
        return not self.calm and self.rng.random() < LOST

    def _delay(self) -> float:
        return self.rng.choice((0.001, 0.01, 0.1))

    # -- faults and messages --

    def join(self) -> None:
        name = f"m{len(self.members)}"
        self.members[name] = Member(self, name)

    def working(self) -> list[Member]:
        return [each for each in self.members.values() if each.alive and not each.left]

    def _disturb(self) -> None:
        working = self.working()
        if len(working) < 4 and self.rng.random() < 0.3:
            self.join()
        if working:
            member = self.rng.choice(working)
            fault = self.rng.random()
            if fault < 0.05:
                member.alive = False
            elif fault < 0.15:
                member.stall(self.rng.uniform(0, 3 * LIFETIME))
            elif fault < 0.2:
                member.leave()
        if self.count < PARTITIONS_MAX and self.rng.random() < 0.05:
            self.grow_to(self.count + self.rng.randrange(1, 3))

    @property
    def count(self) -> int:
        topic = self.owner.registry.topics.get("t")
        return 0 if topic is None or topic.descriptor is None else topic.descriptor.count

    @property
    def group(self) -> Any:
        descriptor = self.owner.registry.topics["t"].descriptor
        assert descriptor is not None
        return descriptor.groups["g"]

    def grow_to(self, count: int) -> None:
        before = self.count
        for partition in range(before, count):
            name = partition_topic("t", partition)
            policy = Policy(keep_all=True)
            self.apply(self.store, do.CreateTopic(name, self.at, policy, partition_of="t"))
            self.apply(self.store, do.Subscribe(name, "g", do.FromEarliest(), self.at))
            opened = self.apply(self.store, do.OpenProducer(name, "p", "i", self.at))
            assert isinstance(opened, Opened)
            self.producers[partition] = (opened.epoch, 0)
            self.acked[partition] = 0
        if not before:
            self.apply(self.owner, do.CreateTopic("t", self.at, partitions=count))
            self.apply(self.owner, AddGroup("t", "g", self.at))
            return
        descriptor = self.owner.registry.topics["t"].descriptor
        assert descriptor is not None
        self.apply(self.owner, SetPartitions("t", self.at, count, descriptor.epoch))

    def _put(self) -> None:
        partition = self.rng.randrange(self.count)
        epoch, sequence = self.producers[partition]
        name = partition_topic("t", partition)
        put = do.Put(name, "p", epoch, sequence, 1, 10, self.at, b"x")
        assert isinstance(self.apply(self.store, put), Appended)
        self.producers[partition] = (epoch, sequence + 1)

    # -- checks --

    def _assigned(self) -> tuple[Any, ...] | None:
        if "t" not in self.owner.registry.topics:
            return None
        descriptor = self.owner.registry.topics["t"].descriptor
        if descriptor is None or "g" not in descriptor.groups:
            return None
        group = descriptor.groups["g"]
        every = [(each.holder, each.term, each.target) for each in group.assignments]
        return dict(group.members), every

    def _check_assignments(self, before: tuple[Any, ...] | None, command: Any) -> None:
        after = self._assigned()
        if before is None or after is None:
            return
        members, assignments = list(after[0]), after[1]
        targets = [target for _, _, target in assignments]
        counts = [targets.count(member) for member in members]
        assert not members or max(counts) - min(counts) <= 1, f"not balanced: {targets}"
        gone = [member for member in before[0] if member not in members]
        if isinstance(command, Enlist) and before[0].get(command.member, self.at + 1) <= self.at:
            gone.append(command.member)  # the group has dropped the member and added it again
        for member in gone:
            if not (isinstance(command, LeaveGroup) and command.member == member):
                self.late[member] = None
        if not gone and (members, len(assignments)) == (list(before[0]), len(before[1])):
            assert targets == [target for _, _, target in before[1]], "moved without a reason"
        released = dict(command.released) if isinstance(command, Enlist) else {}
        for partition, ((old, term, _), (new, new_term, _)) in enumerate(
            zip(before[1], assignments, strict=False)
        ):
            assert new_term >= term
            if old and (old, term) != (new, new_term):
                mine = isinstance(command, Enlist) and command.member == old
                freed = mine and released.get(partition) == term
                assert freed or old in gone, f"{partition} was taken"

    def hand_out(self, member: str, partition: int, offset: int) -> None:
        before = self.handed.get((partition, offset))
        if before is not None:
            self.again += 1
            crashed = not self.members[before].alive
            assert crashed or before in self.late, f"{before} still had {partition}:{offset}"
        self.handed[partition, offset] = member

    def _check_ack(self, ack: do.Ack, result: Acked) -> None:
        partition = int(ack.topic.rpartition("#")[2])
        if result.cursor > self.acked[partition]:
            assert result.cursor == self.acked[partition] + 1, "a message was skipped"
            self.acked[partition] = result.cursor

    def _check_end(self) -> None:
        ends = {each: sequence for each, (_, sequence) in self.producers.items()}
        assert self.acked == ends, f"acknowledged {self.acked} of {ends}"
        working = self.working()
        counts = [len(each.parts) for each in working]
        assert sum(counts) == self.count, f"{counts} of {self.count}"
        assert max(counts) - min(counts) <= 1, f"not balanced: {counts}"
        terms = [each.term for each in self.group.assignments]
        assert all(one != other for one, other in pairwise(sorted(terms)))


class Member:
    def __init__(self, storm: Storm, name: str) -> None:
        self._storm, self.name = storm, name
        self.alive, self.left, self.enlisting = True, False, False
        self._asleep_until = 0.0
        self._membership = Membership(LIFETIME)
        self.parts: dict[int, Part] = {}
        storm.later(0.0, self._tick)

    def when_awake(self, work: Callable[[], None]) -> None:
        if not self.alive:
            return
        if self._storm.now < self._asleep_until:
            left = self._asleep_until - self._storm.now
            self._storm.later(left, lambda: self.when_awake(work))
        else:
            work()

    def stall(self, seconds: float) -> None:
        self._asleep_until = max(self._asleep_until, self._storm.now + seconds)

    def leave(self) -> None:
        """Handle the messages in progress, then leave."""
        self.left = True
        self._leave_when_idle()

    def _leave_when_idle(self) -> None:
        if any(each.busy for each in self.parts.values()) or self.enlisting:
            self._storm.later(0.1, lambda: self.when_awake(self._leave_when_idle))
            return
        self.parts.clear()
        leave = LeaveGroup("t", "g", self.name, 0)
        self._storm.request(self, self._storm.owner, leave, lambda _: None)

    def _tick(self) -> None:
        self.when_awake(self._step)
        if self.alive:
            self._storm.later(0.05, self._tick)

    def _step(self) -> None:
        now = self._storm.now
        if not self.left and not self.enlisting and now >= self._membership.due:
            self._enlist()
        if self.left or self._membership.over(now):
            return
        for partition, part in list(self.parts.items()):
            if part.leaving:
                self._release(partition, part)
            elif part.epoch and not part.busy:
                self._hand_out(partition, part)

    def _enlist(self) -> None:
        self.enlisting = True
        sent = self._storm.now
        released = tuple(self._membership.released)

        def answered(found: Any) -> None:
            self.enlisting = False
            if isinstance(found, Enlisted) and not self.left:
                self._enlisted(sent, found)

        enlist = Enlist("t", "g", self.name, int(LIFETIME * US), 0, released)
        self._storm.request(self, self._storm.owner, enlist, answered)

    def _enlisted(self, sent: float, found: Enlisted) -> None:
        changes = self._membership.enlisted(sent, found)
        for partition in changes.drop:
            self.parts.pop(partition, None)
        for partition, _ in changes.release:
            if partition in self.parts:
                self.parts[partition].leaving = True
        for partition, term in changes.take:
            self.parts[partition] = Part(term)
            self._attach(partition, self.parts[partition], 0)

    def _attach(self, partition: int, part: Part, expected: int) -> None:
        name = partition_topic("t", partition)

        def attached(result: Any) -> None:
            if self.parts.get(partition) is not part:
                return
            if isinstance(result, Attached):
                part.epoch, part.next = result.epoch, result.cursor
            elif isinstance(result, Fenced):
                self._attach(partition, part, result.epoch)
            else:
                assert isinstance(result, NotAssigned)
                del self.parts[partition]
                self._membership.due = 0.0

        attach = do.Attach(name, "g", f"{self.name}.{part.term}", expected, part.term)
        self._storm.request(self, self._storm.store, attach, attached)

    def _hand_out(self, partition: int, part: Part) -> None:
        name = partition_topic("t", partition)
        _, end = self._storm.store.bounds(name)
        if part.next >= end:
            return
        part.busy = True
        self._storm.hand_out(self.name, partition, part.next)
        part.next += 1
        ack = do.Ack(name, "g", part.epoch, part.next)

        def acked(result: Any) -> None:
            part.busy = False
            if isinstance(result, Refusal) and self.parts.get(partition) is part:
                del self.parts[partition]
                self._membership.due = 0.0

        def handled() -> None:
            self._storm.request(self, self._storm.store, ack, acked)

        longest = 0.01 if self._storm.calm else 0.3
        self._storm.later(self._storm.rng.uniform(0, longest), lambda: self.when_awake(handled))

    def _release(self, partition: int, part: Part) -> None:
        if part.busy or part.closing:
            return
        part.closing = True

        def closed(_: Any) -> None:
            if self.parts.get(partition) is part:
                del self.parts[partition]
                self._membership.stopped(partition, part.term, self._storm.now)

        if not part.epoch:
            closed(None)
            return
        detach = do.Detach(partition_topic("t", partition), "g", part.epoch, part.next)
        self._storm.request(self, self._storm.store, detach, closed)


def stamped(command: Any, at: int) -> Any:
    if "at" not in command.__struct_fields__:
        return command
    fields = {name: getattr(command, name) for name in command.__struct_fields__}
    return type(command)(**{**fields, "at": at})
