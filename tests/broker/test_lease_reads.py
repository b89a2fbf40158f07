"""A leader answers reads only while it holds its lease, so no read is stale."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from oncecast.broker.gateway import Gateway
from oncecast.broker.lease_queue import LEASE_CHECK_EVERY, QUEUED_MAX, QUEUED_OF_CLIENT_MAX, TURN
from oncecast.broker.scanning import Scanner
from oncecast.client.session import local
from oncecast.kernel.protocol import Later, NodeId, Protocol, Send, Value
from oncecast.replication.events import HandOver, LeaderChanged
from oncecast.wire import batch, errors
from oncecast.wire import commands as do
from oncecast.wire.commands import FromEarliest
from oncecast.wire.frames import Answer, Call, Elsewhere, Govern, Look, Scan, View
from tests.broker.desk import ANN, BOB, Desk, fetch, producing, put, reading
from tests.broker.test_governing import A, governor
from tests.broker.test_governing import B as OTHER
from tests.client.session.client_world import App, World
from tests.lab.scenarios.test_cluster_storms import paxos

READS: list[Any] = [
    Look(1),
    Look(1, "topic"),
    fetch(2, 0),
    Scan(1, "topic", FromEarliest(), bytes=1 << 20),
    Govern(1, HandOver(A)),
]


class Node:
    """A leader whose lease and timers the test controls."""

    def __init__(self, read: Value) -> None:
        self.leased, self.leader = False, ""
        if isinstance(read, Govern):
            made = governor(leased=False)
            self.protocol: Protocol = made
            self.paxos: Any = made.paxos
        else:
            desk = Desk()
            assert reading(desk) == 2
            desk.call(BOB, put(producing(desk), 0, b"value"))
            self.service, self.paxos = desk.service, desk.service.group
            self.protocol = (
                Scanner(desk.gateway.me, Random(0), service=desk.service)
                if isinstance(read, Scan)
                else desk.gateway
            )
        self.paxos.leader.leads = lambda now: self.leased
        self.protocol.drain()
        self._timers: list[Value] = []

    def ask(self, read: Value) -> list[Value]:
        self.protocol.receive(ANN, read)
        return self._sent()

    def wake(self) -> list[Value]:
        timers, self._timers = self._timers, []
        for timer in timers:
            self.protocol.timeout(timer)
        return self._sent()

    def depose(self) -> list[Value]:
        event = LeaderChanged(OTHER)
        self.paxos.state.following.leader = OTHER
        if not isinstance(self.protocol, Gateway | Scanner):
            self.protocol.observe(event)
        else:
            self.service.observe(event)
            if isinstance(self.protocol, Gateway):
                self.protocol.observe(event)
        return [*self._sent(), *self.wake()]

    def _sent(self) -> list[Value]:
        effects = self.protocol.drain()
        self._timers += [each.timer for each in effects if isinstance(each, Later)]
        return [each.message for each in effects if isinstance(each, Send) and each.to == ANN]


@pytest.mark.parametrize("read", READS, ids=lambda read: type(read).__name__)
def test_leader_answers_a_read_when_its_lease_is_renewed(read: Value) -> None:
    """REP-5"""
    node = Node(read)
    assert node.ask(read) == []
    assert node.wake() == []
    assert node.ask(read) == []  # a client that asks again is answered once
    node.leased = True
    (answer,) = node.wake()
    assert not isinstance(answer, Elsewhere)
    assert node.wake() == []


@pytest.mark.parametrize("read", READS, ids=lambda read: type(read).__name__)
def test_deposed_leader_redirects_waiting_reads_to_the_new_leader(read: Value) -> None:
    """REP-5"""
    node = Node(read)
    assert node.ask(read) == []
    (reported,) = node.depose()
    assert isinstance(reported, Elsewhere)
    assert reported.leader == OTHER
    assert node.wake() == []


def test_waiting_reads_are_bounded_and_dropped_with_their_client() -> None:
    assert (QUEUED_MAX, LEASE_CHECK_EVERY) == (1000, 0.02)
    node = Node(Look(0))
    for number in range(QUEUED_OF_CLIENT_MAX + 5):
        node.ask(Look(number))
    assert len(node._timers) == 1
    node.leased = True
    assert [len(node.wake()), len(node.wake())] == [TURN, QUEUED_OF_CLIENT_MAX - TURN]
    node.leased = False
    node.ask(Look(1))
    node.protocol.down(ANN)
    node.leased = True
    assert node.wake() == []


def test_finished_change_is_answered_only_with_a_lease() -> None:
    """REP-5: the membership of a deposed leader may be outdated."""
    node = Node(Govern(1, HandOver(A)))
    node.leased = True
    assert node.ask(Govern(7, HandOver(OTHER))) == []
    node.leased = False
    node.paxos.state.following.leader = A
    node.protocol.observe(LeaderChanged(A))
    assert node._sent() == []
    node.leased = True
    assert node.wake() == []  # the change has not happened
    assert isinstance(node.depose()[0], Elsewhere)


def test_node_with_a_full_disk_and_no_lease_does_not_confirm_a_put() -> None:
    node = Node(Look(0))
    gateway = node.protocol
    assert isinstance(gateway, Gateway)
    gateway.free_disk_bytes = lambda: 0
    data = batch.encode([b"value"], timestamps=0)
    again = do.Put("topic", "p", 3, 0, 1, len(data), 0, data)
    assert node.ask(Call(1, again)) == [Answer(1, errors.Overloaded(errors.DISK))]


class Looker(App):
    """Repeatedly requests the end of the topic, and records stale answers."""

    def __init__(self, world: World, me: str) -> None:
        self.asked: dict[int, int] = {}  # stored messages at the time of each request
        self.stale: list[tuple[int, int]] = []
        self.answers = 0
        self.stored: Callable[[], int] = lambda: 0
        super().__init__(world, me)

    def begin(self) -> None:
        self._look()

    def _look(self) -> None:
        ticket = len(self.asked) + 1
        self.asked[ticket] = self.stored()
        self.ask(local.Show(ticket, self.topic))
        self.soon(0.05, self._look)

    def hear(self, event: Value) -> None:
        if isinstance(event, local.Shown) and isinstance(event.view, View):
            self.answers += 1
            shown = event.view.topics[0].next if event.view.topics else 0
            if shown < self.asked[event.ticket]:
                self.stale.append((shown, self.asked[event.ticket]))


class Putter(App):
    """Puts a message every 20 ms."""

    stored = 0

    def begin(self) -> None:
        self.ask(local.Do(0, do.CreateTopic(self.topic, 0)))
        self._put()

    def _put(self) -> None:
        self.ask(local.Produce(1, self.topic, 1, batch.encode([b"x"], timestamps=1)))
        self.soon(0.02, self._put)

    def hear(self, event: Value) -> None:
        self.stored += isinstance(event, local.Stored)


def cut_off(seed: int) -> tuple[Looker, Putter]:
    """Partition the leader from the other replicas and the writer, but not from the reader."""
    world = World(seed, replicas=3)
    world.run_until(lambda: leaders(world) == [world.nodes[0]])
    looker, putter = Looker(world, "looker"), Putter(world, "putter")
    looker.stored = lambda: putter.stored
    world.run_until(lambda: putter.stored > 10 and looker.answers > 5)
    others = [node for node in world.nodes if node != world.nodes[0]]
    world.sim.partition([world.nodes[0]], [*others, putter.me])
    before, answers = putter.stored, looker.answers
    world.run_until(lambda: putter.stored > before + 50 and looker.answers > answers + 20)
    return looker, putter


def leaders(world: World) -> list[NodeId]:
    """Return the leaders among the replicas that know all three members."""
    groups = [paxos(world, node) for node in range(3)]
    full = [group for group in groups if len(group.state.membership.config.members) == 3]
    return [group.me for group in full if group.leads(world.sim.now)]


@pytest.mark.long
def test_partitioned_leader_does_not_serve_stale_reads() -> None:
    """REP-5 SVC-10"""
    for seed in range(2):
        looker, _ = cut_off(seed)
        assert looker.stale == []
