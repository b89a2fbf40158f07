"""Every leader and every owner of a topic enforces the same rules (SEC-2)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from oncecast.broker.service import Service
from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.kernel.stack import Stack
from oncecast.node.assemble import assemble
from oncecast.security.values import Credentials, Rule
from oncecast.simulator.simulated import Simulation
from oncecast.wire import commands as do
from oncecast.wire import results as done
from oncecast.wire.errors import Denied, InvalidArgument, NotHere
from oncecast.wire.frames import Answer, Call, Elsewhere
from tests.client.session.client_world import FAST, NODE, TOPIC
from tests.client.session.ring_world import NEW, OLD, RingWorld

KEYS = Credentials(b"salt", 4096, bytes(32), bytes(32))
PATIENCE = 0.4
ROOT, ANN, BOB, STRANGER = (NodeId(f"client/{name}") for name in ("root", "ann", "bob", "stranger"))
USERS = {ROOT: "root", ANN: "ann", BOB: "bob"}
RULES = (Rule("ann", ("put", "manage"), f"{TOPIC}*"), Rule("bob", ("read",), TOPIC))


def principal_of(client: NodeId) -> str:
    return USERS.get(client, "")


class Do(Value):
    """Request: ask these nodes, in turn, to execute a command."""

    id: int
    command: Any
    nodes: tuple[NodeId, ...]


class Again(Value):
    """Timer: repeat the open call."""


class Caller(Protocol):
    """Repeats one call at a time until a node answers it, and follows the leader."""

    name = "caller"
    Request = Do
    Message = Answer | Elsewhere
    Timer = Again

    def __init__(self, me: NodeId, rng: Random, answers: dict[int, Any]) -> None:
        super().__init__(me, rng)
        self._answers, self._turn, self._leader = answers, 0, NodeId("")
        self._open: Do | None = None

    def request(self, request: Do) -> None:
        self._open = request
        self.timeout(Again())

    def timeout(self, timer: Again) -> None:
        if self._open is not None:
            nodes = self._open.nodes
            self._turn += 1
            node = self._leader if self._leader in nodes else nodes[self._turn % len(nodes)]
            self._leader = NodeId("")
            self.send(node, Call(self._open.id, self._open.command))
            self.later(PATIENCE, timer)

    def receive(self, sender: NodeId, message: Answer | Elsewhere) -> None:
        if isinstance(message, Elsewhere):
            self._leader = NodeId(message.leader)
        elif self._open is not None and message.id == self._open.id:
            self._answers[message.id] = message.result
            self._open = None


class Clients:
    """The four clients of a simulation, and their calls."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.answers: dict[int, Any] = {}
        for client in (ROOT, ANN, BOB, STRANGER):
            sim.add(client, lambda me, rng: Stack([Caller(me, rng, self.answers)]))
        self._ids = 0

    def call(self, client: NodeId, command: Any, nodes: list[NodeId]) -> Any:
        self._ids += 1
        self.sim.ask(client, Do(self._ids, command, tuple(nodes)))
        self.until(lambda: self._ids in self.answers)
        return self.answers[self._ids]

    def until(self, done: Callable[[], bool], within: float = 60.0) -> None:
        end = self.sim.now + within
        while not done():
            assert self.sim.now < end, "the condition is not met in time"
            self.sim.run(self.sim.now + 0.1)

    def secure(self, nodes: list[NodeId]) -> None:
        users = [do.AddUser(name, KEYS, admin=name == "root") for name in USERS.values()]
        for command in (*users, *map(do.Allow, RULES)):
            assert isinstance(self.call(ROOT, command, nodes), done.AccessSet)

    def check_rules(self, nodes: list[NodeId]) -> None:
        """Check that these nodes allow and deny requests according to the rules."""
        wanted: list[tuple[NodeId, Any, type]] = [
            (ANN, do.OpenProducer(TOPIC, "ann", f"inc{self._ids}", 0), done.Opened),
            (ANN, do.OpenProducer(TOPIC, "bob", "inc", 0), Denied),
            (ANN, do.Subscribe(TOPIC, "ann", do.FromNew(), 0), Denied),
            (ANN, do.AddUser("eve", KEYS, admin=True), Denied),
            (BOB, do.Subscribe(TOPIC, "bob", do.FromNew(), 0), done.Subscribed),
            (BOB, do.DeleteTopic(TOPIC, 0), Denied),
            (STRANGER, do.Subscribe(TOPIC, "anonymous", do.FromNew(), 0), Denied),
            (STRANGER, do.CreateTopic(TOPIC, 0), Denied),
        ]
        for client, command, kind in wanted:
            found = self.call(client, command, nodes)
            assert isinstance(found, kind), (client, command, found)


def is_founded(service: Service) -> bool:
    holdings = service.machine.registry.holdings
    return holdings is not None and holdings.low is not None


def services(sim: Simulation, nodes: list[NodeId]) -> list[Service]:
    stacks = [sim.nodes[node].stack for node in nodes]
    return [
        protocol
        for stack in stacks
        if stack is not None
        for protocol in stack.protocols
        if isinstance(protocol, Service)
    ]


def leader(sim: Simulation, nodes: list[NodeId]) -> NodeId:
    return next((each.me for each in services(sim, nodes) if each.leading), NodeId(""))


@pytest.mark.parametrize("seed", range(3))
def test_next_leader_enforces_the_same_rules(seed: int) -> None:
    """SEC-2 REP-1"""
    nodes = [NODE, NodeId("node2"), NodeId("node3")]
    sim = Simulation(seed)

    def build(me: NodeId, rng: Random) -> Stack:
        contacts = () if me == NODE else (NODE,)
        options: Any = {"options": FAST, "contacts": contacts, "principal_of": principal_of}
        return assemble(me, rng, snapshot_bytes=4096, **options).stack

    for node in nodes:
        sim.add(node, build, durable=True)
    clients = Clients(sim)
    clients.secure(nodes)
    clients.check_rules(nodes)
    clients.until(lambda: len({each.machine.checksum() for each in services(sim, nodes)}) == 1)
    for _ in range(2):
        crashed = leader(sim, nodes)
        sim.crash(crashed)
        clients.until(lambda gone=crashed: leader(sim, nodes) not in ("", gone))  # type: ignore[misc]
        clients.check_rules(nodes)
        sim.restart(crashed)
        clients.check_rules(nodes)
    clients.call(ROOT, do.Disallow(Rule("bob", ("read",), TOPIC)), nodes)
    assert clients.call(BOB, do.Unsubscribe(TOPIC, "bob", 0), nodes) == Denied()


@pytest.mark.parametrize("seed", range(3))
def test_new_topic_owner_enforces_the_same_rules(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEC-2 REP-6: the rules move with the topic."""
    monkeypatch.setattr(RingWorld, "principal_of", staticmethod(principal_of))
    world = RingWorld(seed)
    clients = Clients(world.sim)
    old = world.replicas[OLD]
    # The first leader founds the group once it has read the clocks of a majority.
    clients.until(lambda: all(is_founded(each) for each in services(world.sim, old)))
    clients.secure(old)
    clients.check_rules(old)
    world.found(NEW)
    new = world.replicas[NEW]
    # Until it owns topics, the new group does not accept a first administrator.
    first = clients.call(STRANGER, do.AddUser("eve", KEYS, admin=True), new)
    assert first in (NotHere(""), Denied())
    clients.until(lambda: world.owns(NEW, TOPIC))
    clients.check_rules(new)
    access = services(world.sim, new)[0].machine.registry.access
    assert "eve" not in access.users
    assert access.is_admin("root")
    last = clients.call(ROOT, do.RemoveUser("root"), new)
    assert isinstance(last, InvalidArgument)
