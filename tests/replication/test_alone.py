"""A single-node group decides nothing before it is on disk, and loses nothing in a restart."""

from __future__ import annotations

from random import Random

import pytest

from oncecast.kernel.protocol import Append, Emit, NodeId, Send, Snapshot, Trim, Value
from oncecast.kernel.stack import Output, Stack
from oncecast.replication.events import Compact, Decided, Propose
from oncecast.replication.messages import (
    CONFIG,
    Entry,
    Item,
    Learned,
    Promise,
    Promised,
    Silence,
    Stored,
)
from oncecast.replication.options import GroupOptions
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import Config, Member, encode_config
from oncecast.simulator.disk import SimulatedDisk
from oncecast.storage.journal import Journal
from tests.replication.replicas import (
    OPTIONS,
    A,
    B,
    Recorded,
    ballot,
    events,
    hear,
    promise,
    records,
    restored,
    sync,
    vouch,
)

ME = NodeId("me")


def alone(options: GroupOptions = OPTIONS) -> Paxos:
    group = Paxos(ME, Random(0), options=options)
    group.attach(Recorded())
    group.start()
    group.drain()
    return group


def test_proposal_is_decided_only_after_its_record_is_on_disk() -> None:
    """SVC-10, REP-3"""
    group = alone()
    group.request(Propose(7, b"value"))
    stored, sent = group.drain()
    assert isinstance(stored, Append)
    assert isinstance(stored.record, Entry)
    assert (stored.record.slot, stored.record.data) == (1, b"value")
    assert sent == Send(ME, Stored(stored.number), after=stored.number)
    assert hear(group, ME, Stored(stored.number)) == [Emit(Decided(1, b"value", 7), after=0)]


def test_proposals_in_flight_are_decided_in_order_and_once() -> None:
    group = alone()
    born = group._records.last
    for token in range(4):
        group.request(Propose(token, b"%d" % token))
    group.drain()
    for slot, decided in ((2, (1, 2)), (1, ()), (2, ()), (4, (3, 4))):
        assert hear(group, ME, Stored(born + slot)) == [
            Emit(Decided(at, b"%d" % (at - 1), at - 1), after=0) for at in decided
        ]


@pytest.mark.parametrize(
    "options", [GroupOptions(window_slots=2), GroupOptions(window_bytes=3)], ids=["slots", "bytes"]
)
def test_window_limits_proposals_by_a_lone_leader(options: GroupOptions) -> None:
    """SVC-10: a value beyond the slots that a replica accepts would never be stored."""
    group = alone(options)
    for token in range(3):
        group.request(Propose(token, b"%02d" % token))
    assert [each.slot for each in records(group.drain()) if isinstance(each, Entry)] == [1, 2]
    effects = sync(group)
    assert events(effects) == [Decided(1, b"00", 0), Decided(2, b"01", 1)]
    assert [each.slot for each in records(effects) if isinstance(each, Entry)] == [3]


def test_lone_leader_proposes_nothing_after_a_membership_in_flight() -> None:
    """REP-2: the new member votes on later slots, and must promise first."""
    group = alone()
    term = group.leader.term
    assert term is not None
    two = group.state.membership.config.added(Member(NodeId("other"), 1))
    term.queue.append((-1, Item(CONFIG, encode_config(two))))
    group.leader.proceed()
    group.drain()
    group.request(Propose(1, b"x"))
    assert group.drain() == []
    sync(group)
    assert group.state.membership.config == two
    group.request(Propose(2, b"y"))
    assert not records(group.drain())
    effects = hear(group, NodeId("other"), Promise(term.ballot, 1, 2, 1, (), ()))
    assert [each.data for each in records(effects) if isinstance(each, Entry)] == [b"x", b"y"]


def test_leader_proposes_nothing_until_a_new_member_has_promised() -> None:
    """REP-2: nothing waits before the value."""
    group = alone()
    term = group.leader.term
    assert term is not None
    two = group.state.membership.config.added(Member(NodeId("other"), 1))
    term.queue.append((-1, Item(CONFIG, encode_config(two))))
    group.leader.proceed()
    sync(group)
    group.request(Propose(1, b"x"))
    assert not records(group.drain())


def test_stored_message_from_another_node_decides_nothing() -> None:
    group = alone()
    group.request(Propose(1, b"value"))
    group.drain()
    assert hear(group, NodeId("stranger"), Stored(group._records.last)) == []


class World:
    """A single-node group on a disk that loses unsynced data."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk(Random(0))
        self.begin()

    def begin(self) -> None:
        self.recorded = Recorded()
        self.group = Paxos(ME, Random(0), options=OPTIONS)
        self.group.attach(self.recorded)
        self.stack = Stack([self.group])
        self.journal = Journal.open(self.disk, self.stack, segment_bytes=4096)
        self._take(self.stack.start(0.0))
        self.sync()

    def ask(self, request: Value) -> None:
        self._take(self.stack.request(0.0, request))

    def _take(self, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, Append | Snapshot | Trim):
                self.journal.take(output)
            elif isinstance(output, Emit) and isinstance(output.event, Decided):
                self.recorded.learn(output.event.slot, output.event.value)

    def sync(self) -> None:
        self.journal.sync()
        self._take(self.stack.receive(0.0, ME, Stored(self.journal.synced)))

    def propose(self, *values: bytes) -> None:
        for value in values:
            self.ask(Propose(1, value))

    def crash(self) -> None:
        self.disk.crash()
        self.begin()


def test_restart_restores_the_snapshot_and_all_later_records() -> None:
    world = World()
    world.propose(b"0", b"1", b"2", b"3")
    world.sync()
    world.ask(Compact(slot=2, needed=1, state=(b"a", b"b")))
    world.propose(b"4")
    world.journal.sync()
    world.propose(b"never synced")
    world.crash()
    assert world.recorded.state == (2, (b"a", b"b"))
    assert world.recorded.learned == [(3, b"2"), (4, b"3"), (5, b"4")]
    world.propose(b"next")
    world.sync()
    assert world.group.entry(6) == b"next"


def test_compaction_frees_disk_space_only_before_the_needed_slot() -> None:
    """SVC-9"""
    world = World()
    for _ in range(40):
        world.propose(bytes(1000))
        world.sync()
    before = len(world.disk.names())
    world.ask(Compact(slot=40, needed=20, state=()))
    world.journal.sync()
    assert len(world.disk.names()) < before
    assert world.group.entry(20) == bytes(1000)
    world.crash()
    assert world.group.entry(20) == bytes(1000)
    assert (world.recorded.state, world.recorded.learned) == ((40, ()), [])


@pytest.mark.parametrize("synced", [False, True])
def test_trim_keeps_records_for_the_saved_snapshot_until_the_next_one_is_saved(
    synced: bool,
) -> None:
    """A crash may lose the later snapshot, and then the earlier one needs its records."""
    world = World()
    world.propose(*[bytes(1000)] * 20)
    world.sync()
    world.ask(Compact(slot=10, needed=5, state=(b"first",)))
    flush = world.journal.begin()
    world.propose(*[bytes(1000)] * 20)
    world.ask(Compact(slot=20, needed=21, state=(b"second",)))
    flush.run()
    world.journal.finish(flush)
    if synced:
        world.journal.sync()
    world.crash()
    slot = 20 if synced else 10
    assert world.recorded.state == (slot, (b"second",) if synced else (b"first",))
    assert [each for each, _ in world.recorded.learned[:10]] == list(range(slot + 1, slot + 11))


def last_of_two() -> Paxos:
    """Return a replica that restarts after the leader of its two-member group removed itself."""
    two = Config(1, (Member(A, 1), Member(B, 1)), 2)
    left = two.removed(A)
    data = encode_config(left)
    records = (
        Promised(ballot(1), vouch(0)),
        Entry(1, ballot(1), CONFIG, data, 0, vouch(1)),
        Learned(1, CONFIG, data),
    )
    group = restored(*records, me=B, config=two)
    group.now = 100.0
    group.start()
    group.drain()
    assert group.state.membership.config == left
    return group


def test_last_replica_waits_for_the_lease_of_its_former_leader() -> None:
    """REP-2: the leader may not know yet that it was removed, and may still answer reads."""
    group = last_of_two()
    assert group.leader.term is None
    assert not group.leads(group.now)
    group.now += group.options.suspicion
    group.timeout(Silence())
    group.drain()
    promise(group, B)
    assert group.leads(group.now)


def test_last_replica_does_not_wait_for_a_lease_after_a_restart_if_it_has_led() -> None:
    """REP-2: once it has led, no other node can hold a lease from it."""
    group = last_of_two()
    group.now += group.options.suspicion
    group.timeout(Silence())
    promised = records(group.drain())
    data = encode_config(group.state.membership.config)
    again = restored(
        Learned(1, CONFIG, data), *promised, me=B, config=group.state.membership.config
    )
    again.start()
    assert again.leads(again.now)
