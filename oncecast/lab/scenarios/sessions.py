"""The service on top of a replica group, with all kinds of clients.

The layers are the same as in a node. Publishers and subscribers check one topic. Roamers perform
random operations on other topics. All operations together must be linearizable.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from msgspec.structs import replace

from oncecast.broker.accounts import Budget
from oncecast.broker.gateway import Gateway
from oncecast.broker.governing import Governor
from oncecast.broker.guard import PrincipalOf, anonymous
from oncecast.broker.scanning import Scanner
from oncecast.broker.service import Service
from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.lab.scenarios.aging import Ager
from oncecast.lab.scenarios.draw import Habits
from oncecast.lab.scenarios.histories import Histories
from oncecast.lab.scenarios.paxos_clients import (
    TOPIC,
    Client,
    Outboxes,
    Publisher,
    Subscriber,
    check_topic,
)
from oncecast.lab.scenarios.paxos_history import CLIENT
from oncecast.lab.scenarios.relay import SOON, Relay
from oncecast.lab.scenarios.roaming import Roamer, Watcher
from oncecast.replication.paxos import Paxos
from oncecast.simulator.checkers import Checker, Violation
from oncecast.simulator.simulated import Simulation
from oncecast.wire.limits import LIMITS, Limits

WATCHER = "watcher"


class Sessions(Checker):
    """The Top of a campaign that runs the service and its clients."""

    principal_of: PrincipalOf = staticmethod(anonymous)
    budget = Budget()

    def __init__(self, sim: Simulation, habits: Habits) -> None:
        self.sim, self.habits = sim, habits
        self.histories, self.outboxes = Histories(), Outboxes()
        self.publishers: list[Publisher] = []
        self.subscribers: list[Subscriber] = []
        self.roamers: list[Roamer] = []
        self.ager: Ager | None = None
        self.relay: Relay | None = None
        self._clients: dict[NodeId, Client] = {}
        self._restarts = 0  # number of restarts with low limits so far

    def layers(self, me: NodeId, rng: Random, group: Paxos) -> list[Protocol]:
        habits = self.habits
        limits = self._next_limits()
        service = Service(
            me,
            rng,
            group=group,
            wall=lambda: self.sim.wall_us(me),
            limits=replace(limits, clock_step_us=int(habits.clock_step * 1e6)),
            snapshot_bytes=habits.snapshot_bytes,
        )
        group.attach(service)
        gateway = Gateway(
            me,
            rng,
            service=service,
            delivery_bytes=habits.delivery_bytes,
            window_bytes=habits.window_bytes,
            budget=self.budget,
            principal_of=self.principal_of,
        )
        scanner = Scanner(me, rng, service=service)
        return [service, gateway, scanner, Governor(me, rng, group=group.status)]

    def _next_limits(self) -> Limits:
        """Return the limits for a node that starts.

        The limits are low only after the clients that check a topic have everything they need.
        """
        low = self.habits.limits
        if not low or not self._established:
            return LIMITS
        self._restarts += 1
        return low[self._restarts % len(low)]

    @property
    def _established(self) -> bool:
        relayed = self.relay.publishers if self.relay is not None else []
        alone = [each for each in self.publishers if each not in relayed]
        return (
            bool(alone)
            and all(each.subscribed for each in self.subscribers)
            and all(each.promised for each in alone)
            and (not relayed or any(each.promised for each in relayed))
            and (self.ager is None or self.ager.stores)
        )

    def checkers(self) -> list[Checker]:
        return [self, self.outboxes, self.histories]

    def begin(self, sim: Simulation, leaders: Callable[[], list[NodeId]], until: float) -> None:
        nodes = [node for node in sim.nodes if not node.startswith(CLIENT)]
        habits = self.habits
        self._add_clients(sim, nodes, pause=0.8 * until / habits.puts)
        for client in (*self.publishers, *self.subscribers, *self.roamers):
            self._clients[client.me] = client
            for _ in range(habits.crashes if client.crashes else 0):
                sim.call(sim.rng.uniform(0.0, until), partial(self._strike, client))

        if habits.age:
            self.ager = Ager(sim, "ager", nodes, habits)
            self._clients[self.ager.me] = self.ager
        if habits.directories:
            self.relay = Relay(sim, nodes, self.subscribers, habits, until)
            self.relay.begin(self._clients)
            self.publishers += self.relay.publishers

    def _add_clients(self, sim: Simulation, nodes: list[NodeId], pause: float) -> None:
        habits = self.habits
        for crashes in (False, True):
            kind = "mortal" if crashes else "plain"
            reader = Subscriber(sim, f"{kind}-reader", nodes, crashes=crashes, habits=habits)
            writer = Publisher(
                sim,
                f"{kind}-writer",
                nodes,
                crashes=crashes,
                readers=self.subscribers,
                pause=pause,
                habits=habits,
            )
            self.subscribers.append(reader)
            self.publishers.append(writer)
        if habits.stores_offset:
            reader = Subscriber(
                sim, "bookkeeper", nodes, crashes=True, habits=habits, stores_offset=True
            )
            self.subscribers.append(reader)
        for number in range(habits.roamers):
            crashes = sim.rng.random() < 0.5
            sim.rng.shuffle(nodes)
            name = f"roamer-{number}"
            self.roamers.append(Roamer(sim, name, nodes[:], crashes=crashes, habits=habits))
        for number in range(habits.watchers):
            sim.rng.shuffle(nodes)
            name = f"{WATCHER}-{number}"
            self.roamers.append(Watcher(sim, name, nodes[:], crashes=False, habits=habits))

    def _strike(self, client: Client) -> None:
        """Crash a client. Some clients return before the last messages of their process arrive."""
        late, rng = self.habits.late, self.sim.rng
        if not late or not self.habits.renamed or self.sim.nodes[client.me].stack is None:
            self._bounce(client)
            return
        fronts = self.sim.hold([client.me], one_way=True)
        client.make_last_request()
        self.sim.call(rng.uniform(0.0, late), partial(self._bounce, client))
        self.sim.call(rng.uniform(late, 4 * late), partial(self.sim.repair, fronts))

    def _bounce(self, client: Client) -> None:
        if client.sim.nodes[client.me].stack is not None:
            away = client.sim.rng.uniform(0.0, self.habits.away)
            if self.habits.hasty and self.sim.rng.random() < self.habits.hasty:
                again = away + self.sim.rng.uniform(0.0, SOON)
                self.sim.call(again, partial(self._bounce, client))
            if self.habits.renamed:
                client.return_as_another(away)
            else:
                client.sim.bounce(client.me, away)

    def stop(self) -> None:
        """Let clients finish their pending operations. Publishers stop on their own."""
        if self.relay is not None:
            self.relay.finish()
        for roamer in self.roamers:
            roamer.stop()
        if self.ager is not None:
            self.ager.stopped = True

    def heard(self, sim: Simulation, node: NodeId, event: Value) -> None:
        client = self._clients.get(NodeId(node.partition("#")[0]))
        if client is not None:  # deferred, because the step that emits the event has not ended
            client.soon(0.0, lambda: client.hear(event))

    def end(self, stacks: dict[NodeId, list[Protocol]]) -> None:
        if self.ager is not None:
            self.ager.check()
        if self.relay is not None and not self.relay.done:
            raise Violation(f"{self.relay}: not all messages in the outboxes have been stored")
        check_topic(self.publishers, self.subscribers, self.outboxes.safe.get(TOPIC, ()))
        for roamer in self.roamers:
            roamer.check()
        sums: dict[int, NodeId] = {}
        for node, (service, *_) in stacks.items():
            assert isinstance(service, Service)
            sums.setdefault(service.machine.checksum(), node)
        if len(sums) != 1:
            raise Violation(f"{', '.join(sums.values())} have different states")
