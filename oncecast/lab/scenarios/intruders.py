"""Hostile clients in a storm of the whole service (SEC-2, SEC-3).

This is the storm of `service`, with users and rules, and with intruders: a user with topics of its
own, another user that may only read them, and strangers without a login. From the start they send
arbitrary frames to arbitrary nodes (see `intruder`). A node accepts no other types from clients.
Nodes do not lie: a node that has proved its membership in the cluster is trusted.

In some storms an administrator withdraws permissions of honest clients, and adds them again.

All guarantees for honest clients hold, as they do without intruders. A request about another
client's object changes nothing, and its answer is the same whether or not the object exists. A node
keeps a bounded state for an intruder. Honest puts are stored and read while intruders continue.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from oncecast.broker.access_viewer import AccessViewer
from oncecast.broker.accounts import Budget
from oncecast.broker.guard import PrincipalOf, guard_of_replica
from oncecast.broker.service import Service
from oncecast.client.session import local
from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.kernel.stack import Stack
from oncecast.lab.scenarios import draw as drawing
from oncecast.lab.scenarios import service, service_draw
from oncecast.lab.scenarios.draw import Habits
from oncecast.lab.scenarios.intruder import Habit, Intruder
from oncecast.lab.scenarios.intruder_checks import Watchman, check_state
from oncecast.lab.scenarios.intruder_rules import (
    COMMANDS,
    MALLORY,
    OSCAR,
    ROAMING,
    ROOT,
    STRANGER,
    principal_of,
)
from oncecast.lab.scenarios.paxos import SLOT_SECONDS, Campaign
from oncecast.lab.scenarios.paxos_clients import Client
from oncecast.lab.scenarios.paxos_history import CLIENT
from oncecast.lab.scenarios.paxos_storm import GroupStorm
from oncecast.lab.scenarios.scenario import Figures, Scenario
from oncecast.lab.scenarios.service_draw import ServiceDraw
from oncecast.lab.scenarios.sessions import Sessions
from oncecast.replication.paxos import Paxos
from oncecast.security.values import Rule
from oncecast.simulator.checkers import Checker, Violation
from oncecast.simulator.simulated import Simulation
from oncecast.wire import commands as do
from oncecast.wire.results import AccessSet

FRAMES_MAX = 400  # mean number of frames per intruder in a storm
LOOK_EVERY = 0.1
# Maximum calls in flight per principal, and so the calls that an honest call waits for.
CALLS_MAX = 30


class IntrudersDraw(ServiceDraw, frozen=True):
    """The settings of a service storm, with its intruders."""

    intruders: tuple[Habit, ...] = ()
    # Mean seconds between changes to the rules of honest clients, or 0 for none.
    withdraws: float = 0.0


def draw(seed: int, nodes: int) -> IntrudersDraw:
    """Return the storm that `service` draws for the same seed, and add intruders."""
    drawn = service_draw.draw(seed, nodes)
    rng = Random(f"{seed}/{nodes}/intruders")
    kinds = [MALLORY, *rng.choices((MALLORY, OSCAR, STRANGER), k=rng.randint(1, 4))]
    fastest = FRAMES_MAX / drawn.seconds
    intruders = tuple(
        Habit(
            f"{kind}-{number}",
            rate=drawing.rounded(min(fastest, drawing.log_uniform(rng, 5.0, 200.0))),
            burst=rng.choice((1, 10, 300)),
        )
        for number, kind in enumerate(kinds)
    )
    often = Random(f"{seed}/{nodes}/withdrawals").choice((0.0, 4.0, 15.0, 40.0))
    withdraws = drawing.rounded(drawn.seconds / often) if often else 0.0
    return IntrudersDraw(**msgspec.structs.asdict(drawn), intruders=intruders, withdraws=withdraws)


class Administrator(Client):
    """Adds the users and rules, one after another. Later it withdraws rules and adds them again."""

    def __init__(
        self,
        sim: Simulation,
        nodes: list[NodeId],
        habits: Habits,
        *,
        commands: tuple[do.AccessCommand, ...] = COMMANDS,
        rule: Rule = ROAMING,  # the rule to withdraw
    ) -> None:
        self._left, self._rule = list(commands), rule
        self._ticket = 1
        self._asked = False
        self._rng = Random(f"{sim.seed}/withdrawals")
        self._pause = 0.0  # mean seconds between changes to a rule, or 0 for none
        self.version = self.withdrawals = 0
        super().__init__(sim, ROOT, nodes, crashes=False, habits=habits)

    @property
    def done(self) -> bool:
        return not self._left

    def begin(self) -> None:
        if self._left and not self._asked:
            self._asked = True
            self.ask(local.Do(self._ticket, self._left[0]))

    def hear(self, event: Value) -> None:
        if isinstance(event, local.Finished) and event.ticket == self._ticket:
            self._asked = False
            if not isinstance(event.outcome, AccessSet):
                raise Violation(f"{self.me}: {event}")
            self.version = event.outcome.version
            self._ticket += 1
            del self._left[0]
            if self._left and self._pause:
                self.soon(self._some_time(), self.begin)
            elif self._left:
                self.begin()
            elif self._pause:
                self.soon(self._some_time(), self._withdraw)

    def withdraw_rules(self, pause: float) -> None:
        """Withdraw parts of the rule from time to time, and add them again."""
        self._pause = pause
        self.soon(self._some_time(), self._withdraw)

    def end_withdrawals(self) -> None:
        """Withdraw no more rules. Add a rule that is withdrawn at once."""
        self._pause = 0.0
        self.begin()

    def secure(self, storm: GroupStorm, patience: float, seconds: float) -> None:
        """Add users and rules during the storm.

        A storm can delay the commands indefinitely, so the storm pauses if they take too long.
        """
        if not self.wait(patience + seconds):
            storm.calm()
            if not self.wait(patience):
                raise Violation(f"{self.me} could not add users and rules in {patience:.0f} s")
            storm.resume()

    def wait(self, seconds: float) -> bool:
        """Run until all commands are done. Return False if that takes too long."""
        limit = self.sim.now + seconds
        while not self.done and self.sim.now <= limit:
            self.sim.run(until=self.sim.now + LOOK_EVERY)
        return self.done

    def _some_time(self) -> float:
        return self._rng.expovariate(1 / self._pause)

    def _withdraw(self) -> None:
        if self._pause:
            verbs = tuple(verb for verb in self._rule.verbs if self._rng.random() < 0.6)
            rule = msgspec.structs.replace(self._rule, verbs=verbs or self._rule.verbs[:1])
            self._left = [do.Disallow(rule), do.Allow(rule)]
            self.withdrawals += 1
            self.begin()


class GuardedSessions(Sessions):
    """The service with users and rules, honest clients and hostile clients."""

    principal_of: PrincipalOf = staticmethod(principal_of)
    budget = Budget(calls=CALLS_MAX, bytes=1 << 20)

    def __init__(self, sim: Simulation, drawn: IntrudersDraw) -> None:
        super().__init__(sim, drawn.habits)
        self.watchman = Watchman(self.budget.calls, self.budget.bytes)
        self._drawn = drawn
        self.root: Administrator | None = None
        self._hostile: list[NodeId] = []

    def layers(self, me: NodeId, rng: Random, group: Paxos) -> list[Protocol]:
        made = super().layers(me, rng, group)
        assert isinstance(made[0], Service)
        return [*made, AccessViewer(me, rng, service=made[0])]

    def checkers(self) -> list[Checker]:
        return [self.watchman, *super().checkers()]

    def secure(self, storm: GroupStorm, patience: float) -> None:
        """Add users and rules during the storm, then the intruders."""
        sim, nodes = self.sim, storm.nodes
        root = self.root = Administrator(sim, nodes, self.habits)
        self._clients[root.me] = root
        root.secure(storm, patience, self._drawn.seconds)
        for number, habit in enumerate(self._drawn.intruders):
            self._add_intruder(nodes, habit, f"{sim.seed}/intruder/{number}")

    def begin(self, sim: Simulation, leaders: Callable[[], list[NodeId]], until: float) -> None:
        super().begin(sim, leaders, until)
        if self._drawn.withdraws and self.root is not None:
            self.root.withdraw_rules(self._drawn.withdraws)

    def restore_rules(self, patience: float) -> None:
        """Wait until the honest clients have all permissions again."""
        root = self.root
        assert root is not None
        root.end_withdrawals()
        if not root.wait(patience):
            raise Violation(f"{root.me} could not restore the rules in {patience:.0f} s")

    def _add_intruder(self, nodes: list[NodeId], habit: Habit, seed: str) -> None:
        def build(me: NodeId, rng: Random) -> Stack:
            return Stack([Intruder(me, rng, habit, nodes, self.watchman.overheard, seed)])

        me = NodeId(CLIENT + habit.name)
        self._hostile.append(me)
        self.sim.add(me, build)

    def serve_under_attack(self, patience: float) -> None:
        """Run until a publisher and a subscriber have finished, despite the intruders.

        The slowest groups decide a few slots per second, and their queues are full. Roaming clients
        stop, because the history check has to search through their operations.
        """
        for roamer in self.roamers:
            roamer.stop()
        sim, writer, reader = self.sim, self.publishers[0], self.subscribers[0]
        patience += SLOT_SECONDS * CALLS_MAX * (writer.puts + 1)
        limit = sim.now + patience
        while len(writer.promised) < writer.puts or not set(reader.seen) >= {
            writer.value(number) for number in range(writer.puts)
        }:
            if sim.now > limit:
                done = f"{len(writer.promised)} of {writer.puts} puts of {writer.me}"
                raise Violation(f"under attack, only {done} were stored in {patience:.0f} s")
            sim.run(until=sim.now + LOOK_EVERY)

    def stop(self) -> None:
        for node in self._hostile:
            self.sim.protocol(node, Intruder).stopped = True
        super().stop()

    def end(self, stacks: dict[NodeId, list[Protocol]]) -> None:
        super().end(stacks)
        for layers in stacks.values():
            assert isinstance(layers[0], Service)
            assert self.root is not None
            check_state(layers[0], self.watchman.overheard, self.root.version)


class GuardedCampaign(Campaign):
    def build(self, me: NodeId, rng: Random) -> Stack:
        stack = super().build(me, rng)
        service = next(each for each in stack.protocols if isinstance(each, Service))
        stack.guard = guard_of_replica(service, principal_of)
        return stack


def play(sim: Simulation, nodes: int) -> Figures:
    drawn = draw(sim.seed, nodes)
    service.set_up(sim, drawn)
    sessions = GuardedSessions(sim, drawn)
    campaign = GuardedCampaign(sim, drawn.nodes, sessions, drawn, spares=drawn.spares, rules=False)
    storm = service.begin(sim, drawn, campaign)
    sessions.secure(storm, drawn.patience)
    service.run_storm(sim, drawn, sessions, storm)
    sessions.restore_rules(drawn.patience)
    sessions.serve_under_attack(drawn.patience)
    campaign.settle(storm)
    return {
        **service.figures(drawn, campaign, sessions, storm),
        "intruders": len(drawn.intruders),
        "refused": sessions.watchman.refused,
        "served": sessions.watchman.served,
        "withdrawals": sessions.root.withdrawals if sessions.root is not None else 0,
    }


INTRUDERS = Scenario(
    "intruders",
    "the whole service with hostile clients, in a storm of faults",
    5,
    play,
    nodes_min=1,
    draw=draw,
)
