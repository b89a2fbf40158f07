"""A group of one: nothing is decided before it is on disk."""

from __future__ import annotations

from random import Random

import pytest

from oncecast.kernel.protocol import Append, Emit, NodeId, Send, Snapshot, Trim, Value
from oncecast.kernel.stack import Stack
from oncecast.replication.events import Compact, Decided, Propose
from oncecast.replication.solo import Checkpoint, Entry, Solo, Stored
from oncecast.runtime.disk import SimulatedDisk
from oncecast.runtime.journal import Journal

ME = NodeId("me")


class Lessons:
    def __init__(self) -> None:
        self.heard: list[tuple[str, int, object]] = []

    def install(self, place: int, state: tuple[bytes, ...]) -> None:
        self.heard.append(("install", place, state))

    def learn(self, place: int, value: bytes) -> None:
        self.heard.append(("learn", place, value))


def solo() -> Solo:
    made = Solo(ME, Random(0))
    made.learner = Lessons()
    return made


def test_a_proposal_is_appended_and_decided_only_by_a_message_that_waits_for_the_disk() -> None:
    """SVC-10, REP-3"""
    group = solo()
    group.request(Propose(7, b"value"))
    assert group.drain() == [
        Append(Entry(1, b"value"), 1),
        Send(ME, Stored(1), after=1),
    ]
    group.receive(ME, Stored(1))
    assert group.drain() == [Emit(Decided(1, b"value", 7), after=0)]


def test_many_in_flight_are_decided_in_order_and_once() -> None:
    group = solo()
    for token in range(4):
        group.request(Propose(token, b"%d" % token))
    group.drain()
    for place, decided in ((2, (1, 2)), (1, ()), (2, ()), (4, (3, 4))):
        group.receive(ME, Stored(place))
        assert group.drain() == [
            Emit(Decided(at, b"%d" % (at - 1), at - 1), after=0) for at in decided
        ]


def test_only_the_own_disk_can_say_that_something_is_stored() -> None:
    group = solo()
    group.request(Propose(1, b"value"))
    group.drain()
    group.receive(NodeId("stranger"), Stored(1))
    assert group.drain() == []


def test_a_snapshot_stands_for_what_was_applied_and_not_for_what_is_in_flight() -> None:
    group = solo()
    for token in range(5):
        group.request(Propose(token, b""))
    group.drain()
    group.request(Compact(place=3, needed=9, state=(b"state",)))
    assert group.drain() == [
        Snapshot(Checkpoint((b"state",), 3), 3),
        Trim("solo", 4),
    ]
    group.request(Compact(place=3, needed=2, state=(b"state",)))
    assert group.drain()[1] == Trim("solo", 2)


class World:
    """One group on a disk that loses what was not synced."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk(Random(0))
        self.begin()

    def begin(self) -> None:
        self.lessons = Lessons()
        self.group = Solo(ME, Random(0))
        self.group.learner = self.lessons
        self.stack = Stack([self.group])
        self.journal = Journal.open(self.disk, self.stack, segment_bytes=4096)

    def ask(self, request: Value) -> None:
        for output in self.stack.request(0.0, request):
            if isinstance(output, Append | Snapshot | Trim):
                self.journal.take(output)

    def crash(self) -> None:
        self.disk.crash()
        self.begin()


def test_a_restart_learns_the_state_and_what_came_after_it_in_flight_or_not() -> None:
    world = World()
    for token in range(4):
        world.ask(Propose(token, b"%d" % token))
    world.ask(Compact(place=2, needed=1, state=(b"a", b"b")))
    world.journal.sync()
    world.ask(Propose(9, b"never synced"))
    world.crash()
    assert world.lessons.heard == [
        ("install", 2, (b"a", b"b")),
        ("learn", 3, b"2"),
        ("learn", 4, b"3"),
    ]
    world.ask(Propose(1, b"next"))
    world.journal.sync()
    assert world.group.entry(5) == b"next"


def test_space_is_given_back_up_to_what_is_needed_and_no_further() -> None:
    """SVC-9"""
    world = World()
    for token in range(40):
        world.ask(Propose(token, bytes(1000)))
        world.journal.sync()
    before = len(world.disk.names())
    world.ask(Compact(place=40, needed=20, state=()))
    world.journal.sync()
    assert len(world.disk.names()) < before
    assert world.group.entry(20) == bytes(1000)
    world.crash()
    assert world.group.entry(20) == bytes(1000)
    assert world.lessons.heard == [("install", 40, ())]


@pytest.mark.parametrize("synced", [False, True])
def test_a_trim_of_a_later_snapshot_does_not_reach_behind_an_earlier_one(synced: bool) -> None:
    """A later snapshot may be lost in a crash: what it covers must be there until it is saved."""
    world = World()
    for token in range(20):
        world.ask(Propose(token, bytes(1000)))
    world.ask(Compact(place=10, needed=5, state=(b"first",)))
    flush = world.journal.begin()
    for token in range(20):
        world.ask(Propose(token, bytes(1000)))
    world.ask(Compact(place=20, needed=21, state=(b"second",)))
    flush.run()
    world.journal.finish(flush)
    if synced:
        world.journal.sync()
    world.crash()
    kind, place, _ = world.lessons.heard[0]
    assert (kind, place) == ("install", 20 if synced else 10)
    learnt = [each for _, each, _ in world.lessons.heard[1:]]
    assert learnt[:10] == list(range(place + 1, place + 11))
