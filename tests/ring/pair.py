"""Simulate groups that move arcs between each other, one message or decision at a time.

Each group has one log and one leader, which may change between any two steps. Every replica's ring
stack always knows the current groups.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

import msgspec

from oncecast.broker.events import ClockRead, Execute, Executed
from oncecast.broker.holdings import Holdings
from oncecast.broker.moves import AnyCommand
from oncecast.broker.service import Service
from oncecast.dht.identifiers import key_of, up_to
from oncecast.kernel.protocol import NodeId, Protocol, Send, Value
from oncecast.kernel.stack import Output, Stack
from oncecast.kernel.values import Wake
from oncecast.replication.events import Compact, Decided, Digest, LeaderChanged, Missing, Propose
from oncecast.ring.events import GroupFacts, KeyOwner, RetireGroup, WhereIs, WhoseKey
from oncecast.ring.mover import Mover
from oncecast.wire import commands as do

LOOKUP = NodeId("lookup")
GIVER, TAKER = "g-2", "g-a"  # order on the ring: g-2, topic t, g-a, topic u
MINE, THEIRS = "t", "u"
MESSAGES = 10
CLIENT = 7  # the token of commands whose results are recorded

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(AnyCommand).decode


class Agreed(Protocol):
    """A stand-in for Paxos: the test decides each proposal."""

    name = "agreed"
    Request = Propose | Compact | Digest
    Message = Decided | LeaderChanged

    def __init__(self, me: NodeId, rng: Random, group: Group) -> None:
        super().__init__(me, rng)
        self._group = group

    def request(self, request: Propose | Compact | Digest) -> None:
        if isinstance(request, Propose):
            self._group.proposed.append((self, request))

    def receive(self, sender: NodeId, message: Decided | LeaderChanged) -> None:
        self.emit(message)

    # the service calls these

    level = 1

    @property
    def applied(self) -> int:
        return len(self._group.log) - 1

    def leads(self, now: float) -> bool:
        return self._group.leader.me == self.me and not self._group.unsure

    def follows(self, now: float) -> bool:
        return False

    def nodes(self) -> tuple[NodeId, ...]:
        return self._group.nodes

    def entry(self, slot: int) -> bytes:
        if slot in self._group.missing:
            raise Missing(slot)
        return self._group.log[slot]


class Front(Protocol):
    """Records the results of executed commands."""

    name = "front"
    Observed = Executed

    def __init__(self, me: NodeId, rng: Random, results: list[Value]) -> None:
        super().__init__(me, rng)
        self._results = results

    def observe(self, event: Executed) -> None:
        if event.token == CLIENT:
            self._results.append(event.result)


class Replica:
    def __init__(self, group: Group, number: int) -> None:
        self.me = NodeId(f"p{number}/{group.name}")
        rng = Random(number)
        self.agreed = Agreed(self.me, rng, group)
        self.service = Service(self.me, rng, group=self.agreed)
        self.mover = Mover(
            self.me,
            rng,
            service=self.service,
            process=LOOKUP,
            group=group.name,
            first=group.first,
            replicas=1,
            pull_bytes=400,
            little_bytes=500,
        )
        front = Front(self.me, rng, group.world.results)
        self.stack = Stack([self.agreed, self.service, self.mover, front])
        for slot, value in enumerate(group.log):
            self.service.learn(slot, value)


class Group:
    """A log and its leader. Former leaders stay, and know the current leader."""

    def __init__(self, world: World, name: str, *, first: bool) -> None:
        self.world, self.name, self.first = world, name, first
        self.log: list[bytes] = []
        self.proposed: list[tuple[Agreed, Propose]] = []
        self.replicas: list[Replica] = []
        self.nodes: tuple[NodeId, ...] = ()
        self.missing: set[int] = set()  # slots that are currently unreadable
        self.unsure = False  # the leader has no lease
        self.new_leader()

    @property
    def leader(self) -> Replica:
        return self.replicas[-1]

    @property
    def holdings(self) -> Holdings:
        found = self.leader.mover.holdings
        assert found is not None
        return found

    @property
    def decided(self) -> list[AnyCommand]:
        return [_decode(value) for value in self.log]

    def new_leader(self) -> None:
        """Change the leader. Open proposals are lost."""
        self.proposed.clear()
        new = Replica(self, len(self.replicas) + 1)
        self.replicas.append(new)
        self.nodes = tuple(each.me for each in self.replicas)
        self.world.did(new, new.stack.start(self.world.now))
        for each in self.replicas:
            self.world.hear(each, each.me, LeaderChanged(new.me))
        for each in self.replicas[:-1]:  # a new leader waits for the clocks of a majority
            self.world.hear(new, each.me, ClockRead(int(self.world.now * 1e6)))

    def decide(self) -> None:
        agreed, proposal = self.proposed.pop(0)
        self.log.append(proposal.value)
        decided = Decided(len(self.log) - 1, proposal.value, proposal.token)
        for each in self.replicas:
            mine = each.agreed is agreed
            reported = decided if mine else Decided(decided.slot, decided.value)
            self.world.hear(each, each.me, reported)

    def apply(self, command: AnyCommand) -> None:
        """Decide a command that another node proposes."""
        self.proposed.append((Agreed(NodeId(""), Random(0), self), Propose(-1, _encode(command))))
        self.proposed.insert(0, self.proposed.pop())
        self.decide()

    def result(self, command: AnyCommand) -> Value:
        """Execute a command and return its result."""
        world, leader = self.world, self.leader
        world.did(leader, leader.stack.request(world.now, Execute(CLIENT, command)))
        self.proposed.insert(0, self.proposed.pop())
        self.decide()
        return world.results.pop()


class World:
    def __init__(self, rng: Random | None = None) -> None:
        self.now = 0.0
        self.rng: Random | None = None
        self.groups: dict[str, Group] = {}
        self.in_flight: deque[tuple[NodeId, NodeId, Value]] = deque()
        self.sent: list[tuple[NodeId, NodeId, Value]] = []  # every message that was ever sent
        self.wakes: list[tuple[Replica, Wake]] = []
        self.steps = 0
        self.results: list[Value] = []
        # Returns the number of copies to deliver.
        self.spoil: Callable[[NodeId, NodeId, Value], int] = lambda *_: 1
        self.known_facts: dict[str, GroupFacts] = {}
        self.found(GIVER, first=True)
        self.run(lambda: GIVER in self.known_facts)
        self.fill()
        self.rng = rng

    def found(self, name: str, *, first: bool = False) -> Group:
        self.groups[name] = Group(self, name, first=first)
        return self.groups[name]

    def fill(self) -> None:
        exporter = self.groups[GIVER]
        for topic in (MINE, THEIRS):
            exporter.apply(do.Subscribe(topic, "s", do.FromEarliest(), 0))
            exporter.apply(do.OpenProducer(topic, "p", "inc-1", 0))
            self.put(exporter, topic, MESSAGES)

    def put(self, group: Group, topic: str, count: int) -> None:
        producer = group.leader.service.machine.registry.topics[topic].producers["p"]
        for _ in range(count):
            facts = (topic, "p", producer.epoch, producer.next, 1, 100, 0, b"bytes")
            group.apply(do.Put(*facts))

    # -- one step at a time --

    def step(self) -> None:
        """Deliver a message, decide a proposal or let time pass. With an rng, choose at random."""
        self.steps += 1
        proposing = [group for group in self.groups.values() if group.proposed]
        if self.rng is not None:
            self.in_flight.rotate(-self.rng.choice((0, 0, 0, 1, 2)))
            self.rng.shuffle(proposing)
        if self.in_flight and self._now(0.7):
            self._arrive(*self.in_flight.popleft())
            return
        if proposing and self._now(0.7):
            proposing[0].decide()
            return
        at = min(range(len(self.wakes)), key=lambda each: self.wakes[each][1].at)
        replica, wake = self.wakes.pop(at)
        self.now = max(self.now, wake.at)
        self.did(replica, replica.stack.wake(self.now, wake))

    def _now(self, odds: float) -> bool:
        return self.rng is None or self.rng.random() < odds

    def run(self, until: Callable[[], bool], steps_max: int = 3000) -> None:
        for _ in range(steps_max):
            if until():
                return
            self.step()
        raise AssertionError(f"not done after {steps_max} steps")

    def hear(self, replica: Replica, sender: NodeId, message: Value) -> None:
        self.did(replica, replica.stack.receive(self.now, sender, message))

    def did(self, replica: Replica, outputs: list[Output]) -> None:
        for each in outputs:
            if isinstance(each, Wake):
                self.wakes.append((replica, each))
            elif isinstance(each, Send):
                self.sent.append((replica.me, each.to, each.message))
                for _ in range(self.spoil(replica.me, each.to, each.message)):
                    self.in_flight.append((replica.me, each.to, each.message))

    def _arrive(self, sender: NodeId, to: NodeId, message: Value) -> None:
        if to == LOOKUP:
            self._ask_home(sender, message)
            return
        for group in self.groups.values():
            for replica in group.replicas:
                if replica.me == to:
                    self.hear(replica, sender, message)

    def _ask_home(self, sender: NodeId, message: Value) -> None:
        match message:
            case GroupFacts(group):
                self.known_facts[group] = message
            case WhoseKey(key):
                for facts in self.known_facts.values():
                    if facts.low is not None and up_to(facts.low, key, key_of(facts.group)):
                        self.in_flight.append((LOOKUP, sender, KeyOwner(key, facts, 3)))
            case WhereIs(group) if group in self.known_facts:
                self.in_flight.append((LOOKUP, sender, self.known_facts[group]))
            case _:
                pass

    # -- group changes --

    def retire(self, group: Group) -> None:
        self.run(lambda: group.leader.mover.holdings is not None)
        process = NodeId(group.leader.me.partition("/")[0])
        self.in_flight.appendleft((process, group.leader.me, RetireGroup()))
        self.run(lambda: group.holdings.retired)

    def report(self) -> None:
        """Send facts about all groups to the ring stack at once."""
        for group in self.groups.values():
            mover = group.leader.mover
            mover.drain()
            mover.report()
            for effect in mover.drain():
                assert isinstance(effect, Send)
                self._ask_home(group.leader.me, effect.message)

    def remove_gone_groups(self) -> None:
        """Remove the groups that are gone, and their messages in flight."""
        self.report()
        for name, group in list(self.groups.items()):
            if self.known_facts[name].gone if name in self.known_facts else False:
                self.wakes = [each for each in self.wakes if each[0] not in group.replicas]
                nodes = [each.me for each in group.replicas]
                self.in_flight = deque(each for each in self.in_flight if each[0] not in nodes)
                del self.groups[name]

    # -- state --

    def owners(self, topic: str) -> list[str]:
        return [name for name, group in self.groups.items() if self._owns(group, topic)]

    def _owns(self, group: Group, topic: str) -> bool:
        registry = group.leader.service.machine.registry
        return registry.holdings is not None and registry.elsewhere(topic) is None

    def kept(self, topic: str) -> list[int]:
        """Return the messages that the owner keeps for a topic."""
        (owner,) = self.owners(topic)
        service = self.groups[owner].leader.service
        entries = service.machine.registry.topics[topic].index.entries(0)
        return [sequence(service, each.slot, topic) for each in entries]

    @property
    def settled(self) -> bool:
        """Return whether no move is in progress and every group that stays owns an arc."""
        estates = [each.leader.mover.holdings for each in self.groups.values()]
        return all(
            each is not None
            and each.claim is None
            and each.frozen is None
            and (each.low is None) == each.retired
            for each in estates
        )


def sequence(service: Service, slot: int, topic: str) -> int:
    command = service.batch_at(slot, topic)
    assert isinstance(command, do.Put)
    return command.sequence


def arcs_are_apart(world: World) -> None:
    """Assert that no key has two owners (REP-6)."""
    for topic in (MINE, THEIRS, "elsewhere", "x", "y"):
        assert len(world.owners(topic)) <= 1, f"{topic} is owned by {world.owners(topic)}"
