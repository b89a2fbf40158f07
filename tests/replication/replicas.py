"""Drive replicas by hand: feed them inputs and collect their effects."""

from __future__ import annotations

from random import Random

from oncecast.kernel.protocol import Append, Effect, Emit, NodeId, Send, Value
from oncecast.replication.ballot import Ballot
from oncecast.replication.gate import ANSWERS
from oncecast.replication.messages import (
    COMMAND,
    Accept,
    Born,
    Guide,
    Item,
    Promise,
    Stored,
    Vouch,
)
from oncecast.replication.options import GroupOptions
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import Config, Member

A, B, C, D, E, F, G = (NodeId(name) for name in "abcdefg")
THREE = Config(1, (Member(A, 1), Member(B, 1), Member(C, 1)), 3)
OPTIONS = GroupOptions(compare_every=0.0)


class Recorded:
    """A state machine that records learned values."""

    def __init__(self) -> None:
        self.learned: list[tuple[int, bytes]] = []
        self.state: tuple[int, tuple[bytes, ...]] | None = None

    def install(self, slot: int, state: tuple[bytes, ...]) -> None:
        self.state = slot, state

    def learn(self, slot: int, value: bytes) -> None:
        self.learned.append((slot, value))


class Disk:
    """The records that a replica can read."""

    def __init__(self) -> None:
        self.records: dict[int, Value] = {}

    def read(self, number: int) -> Value:
        return self.records[number]


def unstarted(me: NodeId = B, config: Config = THREE, options: GroupOptions = OPTIONS) -> Paxos:
    """Return a replica that is not started, so that records can be restored."""
    level = config.level
    group = Paxos(me, Random(0), founders=config, incarnation=1, options=options, level=level)
    group.attach(Recorded())
    group._records.read = Disk().read
    return group


def restored(
    *records: Value, me: NodeId = B, config: Config = THREE, options: GroupOptions = OPTIONS
) -> Paxos:
    """Return a replica that has restored its Born record and these records."""
    group = unstarted(me, config, options)
    disk = Disk()
    group._records.read = disk.read
    for number, record in enumerate((Born(1, config), *records), 1):
        disk.records[number] = record
        group._records.last = number
        group.restore(record)  # type: ignore[arg-type]
    return group


def started(me: NodeId = B, config: Config = THREE, options: GroupOptions = OPTIONS) -> Paxos:
    """Return a started replica; leases that it may have granted have ended."""
    group = unstarted(me, config, options)
    group.start()
    group.drain()
    group.now = 100.0
    return group


def hear(group: Paxos, sender: NodeId, message: Value) -> list[Effect]:
    """Deliver a message and return the effects. An answer counts as requested."""
    if isinstance(message, (Guide, *ANSWERS)):
        group.state.fetching.ask(sender)
    group.receive(sender, message)  # type: ignore[arg-type]
    return group.drain()


def sync(group: Paxos) -> list[Effect]:
    """Report that all appended records are on disk."""
    return hear(group, group.me, Stored(group._records.last))


def promise(group: Paxos, sender: NodeId, *, known: int = 0) -> list[Effect]:
    """Deliver a Promise from `sender` without votes."""
    assert group.leader.term is not None
    return hear(group, sender, Promise(group.leader.term.ballot, 1, 1, known, (), ()))


def leading(me: NodeId = A, config: Config = THREE, options: GroupOptions = OPTIONS) -> Paxos:
    """Return a leader that has promises from a bare majority."""
    group = started(me, config, options)
    group.leader.stand()
    group.drain()
    promise(group, me)
    for node in group.state.membership.others()[: config.majority - 1]:
        promise(group, node)
    assert group.leader.term is not None
    assert group.leader.term.acting
    return group


def sends(effects: list[Effect]) -> list[tuple[NodeId, Value]]:
    return [(each.to, each.message) for each in effects if isinstance(each, Send)]


def records(effects: list[Effect]) -> list[Value]:
    return [each.record for each in effects if isinstance(each, Append)]


def events(effects: list[Effect]) -> list[Value]:
    return [each.event for each in effects if isinstance(each, Emit)]


def command(text: bytes) -> Item:
    return Item(COMMAND, text)


def ballot(round: int, node: NodeId = A) -> Ballot:
    return Ballot(round, node)


def vouch(top: int, renewals: int = 0, replaced: int = 0) -> Vouch:
    return Vouch(top, renewals, replaced)


class FixedRandom(Random):
    """A random generator that always returns 0.5."""

    def random(self) -> float:
        return 0.5


def steady(group: Paxos) -> Paxos:
    """Remove the randomness from the timers of a replica."""
    group.rng = FixedRandom()
    return group


def expire(group: Paxos, timer: Value) -> list[Effect]:
    group.timeout(timer)  # type: ignore[arg-type]
    return group.drain()


def accepted_slots(effects: list[Effect], to: NodeId = B) -> list[int]:
    return [
        slot
        for node, each in sends(effects)
        if node == to and isinstance(each, Accept)
        for slot in range(each.slot, each.slot + len(each.items))
    ]
