"""A ring under churn: nodes join and die at any moment, and Chord's invariant holds.

A node may die if the invariant holds without it: each member has a live successor, and the members
that no list skips outnumber the entries of a list. Meanwhile, lookups continue.
"""

from __future__ import annotations

from random import Random

from oncecast.dht.chord import Chord
from oncecast.dht.events import FindRoot, RangeChanged, RootFound
from oncecast.dht.identifiers import Key, Position, key_of
from oncecast.dht.messages import Near, Report
from oncecast.dht.status import MemberStatus, Status
from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.lab.scenarios.chord_invariant import View, broken, out_of_shape, view_to_come
from oncecast.lab.scenarios.chord_steady import Steady
from oncecast.lab.scenarios.scenario import Figures, Scenario
from oncecast.simulator.checkers import Checker, Violation
from oncecast.simulator.simulated import Build, Simulation
from oncecast.simulator.step import Step

SUCCESSORS = 2
STABILIZE = 0.3
CHURN_SECONDS = 2.0
CALM_SECONDS = 2.5
STRIKES = 14
LOOKUPS = 3


def status_of(sim: Simulation, node: NodeId) -> Status:
    """Return the Chord status of a live node."""
    return sim.protocol(node, Chord).status


def members_of(sim: Simulation) -> list[MemberStatus]:
    """Return all positions of live nodes that have joined."""
    return [
        member for node in sim.alive() for member in status_of(sim, node).members if member.joined
    ]


def views_of(sim: Simulation) -> list[View]:
    return [View(member.position, member.successors) for member in members_of(sim)]


def views_to_come(sim: Simulation) -> list[View]:
    """Return the successor lists that members will have once the messages in flight arrive."""
    found: list[View] = []
    for bucket in sim.to_come():
        for _, action, sender, message in bucket:
            if isinstance(message, Report | Near):
                to: NodeId = action.__self__.me  # type: ignore[attr-defined]
                if sim.nodes[to].stack is not None:
                    found += [
                        view_to_come(member, sender, message)
                        for member in status_of(sim, to).members
                        if member.joined == isinstance(message, Report)
                    ]
    return found


def may_die(sim: Simulation, node: NodeId) -> bool:
    """Return whether the invariant holds without `node`, now and once messages in flight arrive."""
    now = [view for view in views_of(sim) if view.member.node != node]
    to_come = [view for view in views_to_come(sim) if view.member.node != node]
    return not broken(now, SUCCESSORS, to_come)


class InvariantHolds(Checker):
    """Checks that the invariant holds after each step, and that all lists end up complete."""

    def __init__(self, successors_max: int) -> None:
        self.successors_max = successors_max
        self._seen: dict[NodeId, tuple[tuple[Position, ...], ...]] = {}

    def after(self, sim: Simulation, step: Step) -> None:
        lists = self._lists(sim, step.node)
        if lists != self._seen.get(step.node, ()):
            self._seen[step.node] = lists
            if wrong := broken(views_of(sim), self.successors_max):
                raise Violation(wrong)

    def _lists(self, sim: Simulation, node: NodeId) -> tuple[tuple[Position, ...], ...]:
        if node not in sim.nodes or sim.nodes[node].stack is None:
            return ()
        members = status_of(sim, node).members
        return tuple(member.successors for member in members if member.joined)

    def finish(self, sim: Simulation) -> None:
        if wrong := out_of_shape(views_of(sim), self.successors_max):
            raise Violation(wrong)


class Owners(Checker):
    """Checks that each lookup is answered. `astray` lists the answers that name a wrong owner.

    An answer is correct if the node owned the key at any time since the question. A new member owns
    its keys once its successor knows it. If neighbours die right after they meet, a wrong answer is
    unavoidable. Without churn, all answers must be correct.
    """

    def __init__(self) -> None:
        # All owners that the key has had since the lookup began.
        self.asked: dict[tuple[NodeId, Key], dict[NodeId, None]] = {}
        self.answered: list[RootFound] = []
        self.astray: list[str] = []

    def ask(self, sim: Simulation, node: NodeId, key: Key) -> None:
        owners = self.asked[node, key] = {}
        self._note_owners(sim, key, owners)
        sim.ask(node, FindRoot(key))

    def heard(self, sim: Simulation, node: NodeId, event: Value) -> None:
        if isinstance(event, RangeChanged):
            self.changed(sim)
        elif isinstance(event, RootFound):
            owners = self.asked.pop((node, event.key))
            self._note_owners(sim, event.key, owners)
            self.answered.append(event)
            if event.root not in owners:
                self.astray.append(
                    f"{node} found the owner {event.root}, but the owner was {' or '.join(owners)}"
                )

    def after(self, sim: Simulation, step: Step) -> None:
        if step.kind == "crash":
            self.left(sim, step.node)

    def left(self, sim: Simulation, node: NodeId) -> None:
        for asker, key in [each for each in self.asked if each[0] == node]:
            del self.asked[asker, key]
        self.changed(sim)

    def changed(self, sim: Simulation) -> None:
        for (_, key), owners in self.asked.items():
            self._note_owners(sim, key, owners)

    def _note_owners(self, sim: Simulation, key: Key, owners: dict[NodeId, None]) -> None:
        members = members_of(sim)
        for ring in (members, [member for member in members if member.settled]):
            if ring:
                first = min(ring, key=lambda each: (each.position.id < key, each.position.id))
                owners[first.position.node] = None

    def finish(self, sim: Simulation) -> None:
        if self.asked:
            raise Violation(f"{len(self.asked)} lookups were never answered")


def ring_builder(steady: Steady, contacts: list[NodeId]) -> Build:
    """Return a builder. Nodes in `steady` start on the ring; others join through `contacts`."""
    there = {position.node: None for position in steady.positions}

    def build(me: NodeId, rng: Random) -> Stack:
        members = steady.members(me, SUCCESSORS) if me in there else ()
        chord = Chord(
            me,
            rng,
            contacts=contacts,
            members=members,
            successors_max=SUCCESSORS,
            stabilize_every=STABILIZE,
        )
        return Stack([chord])

    return build


def play(sim: Simulation, nodes: int) -> Figures:
    first = [NodeId(f"n{index}") for index in range(max(nodes // 2, SUCCESSORS + 1))]
    churn = Churn(sim, first, nodes)
    for _ in range(STRIKES):
        sim.call(sim.rng.uniform(0.0, CHURN_SECONDS), churn.strike)
    for _ in range(LOOKUPS):
        sim.call(sim.rng.uniform(0.0, CHURN_SECONDS), churn.look_up)
    sim.run(until=CHURN_SECONDS + CALM_SECONDS)
    astray = churn.owners.astray[:]
    churn.look_up()
    sim.run(until=CHURN_SECONDS + CALM_SECONDS + 1.0)
    if churn.owners.astray != astray:
        raise Violation(churn.owners.astray[-1])
    return {"joins": churn.joins, "deaths": churn.deaths, "astray": len(astray)}


class Churn:
    """Random joins and deaths that Chord's invariant permits."""

    def __init__(self, sim: Simulation, first: list[NodeId], nodes_max: int) -> None:
        self.sim, self.nodes_max = sim, nodes_max
        self.joins = self.deaths = 0
        self.owners = Owners()
        steady = Steady.of(first)
        for node in first:
            sim.add(node, ring_builder(steady, []))
        # The checks begin after all nodes were added.
        sim.check(InvariantHolds(SUCCESSORS), self.owners)

    def strike(self) -> None:
        alive = self.sim.alive()
        if len(alive) < self.nodes_max and self.sim.rng.random() < 0.5:
            self._join()
            return
        victim = self.sim.rng.choice(alive)
        if may_die(self.sim, victim):
            self.deaths += 1
            self.sim.crash(victim)

    def _join(self) -> None:
        members = [member.position.node for member in members_of(self.sim)]
        self.joins += 1
        contacts = self.sim.rng.sample(members, min(3, len(members)))
        self.sim.add(NodeId(f"j{self.joins}"), ring_builder(Steady.of([]), contacts))

    def look_up(self) -> None:
        members = members_of(self.sim)
        node = self.sim.rng.choice(members).position.node
        self.owners.ask(self.sim, node, key_of(f"key {self.sim.rng.random()}"))


CHORD = Scenario(
    "chord", "a Chord ring whose nodes join and die at any moment", 8, play, nodes_min=4
)
