"""A ring without a clock or a network: any message may arrive next, and any node may die.

Every order of steps can therefore occur, however unlikely. A call fails only if its receiver is
dead, as Chord assumes.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from oncecast.dht.chord import Chord
from oncecast.dht.identifiers import Position
from oncecast.dht.messages import Answer, ChordMessage, Near, Report, Silent
from oncecast.kernel.protocol import NodeId, Send
from oncecast.lab.scenarios.chord_invariant import View, broken, out_of_shape, view_to_come
from oncecast.lab.scenarios.chord_steady import Steady
from oncecast.lab.scenarios.scenario import Figures, Scenario
from oncecast.simulator.checkers import Violation
from oncecast.simulator.simulated import Simulation

SUCCESSORS = 2
STEPS = 250
SETTLE_MAX = 5000  # maximum number of steps in one round
ROUNDS_MAX = 40  # maximum rounds of stabilization until all successor lists are complete


class Ring:
    """The members, and the messages in flight between them."""

    def __init__(self, nodes: Iterable[NodeId], rng: Random, successors_max: int) -> None:
        self.rng, self.successors_max = rng, successors_max
        self.chords: dict[NodeId, Chord] = {}
        self.in_flight: list[tuple[NodeId, NodeId, ChordMessage]] = []
        nodes = list(nodes)
        steady = Steady.of(nodes)
        for node in nodes:
            members = steady.members(node, successors_max)
            self._add(Chord(node, rng, members=members, links=False))

    def _add(self, chord: Chord) -> None:
        self.chords[chord.me] = chord
        chord.start()
        self._collect(chord)

    def _collect(self, chord: Chord) -> None:
        for effect in chord.drain():
            if isinstance(effect, Send):
                self.in_flight.append((chord.me, effect.to, effect.message))  # type: ignore[arg-type]

    # -- steps --

    def join(self, node: NodeId, contacts: Iterable[NodeId]) -> None:
        chord = Chord(
            node, self.rng, contacts=contacts, successors_max=self.successors_max, links=False
        )
        self._add(chord)

    def crash(self, node: NodeId) -> None:
        del self.chords[node]
        self.in_flight = [each for each in self.in_flight if each[1] != node]

    def stabilize(self, node: NodeId) -> None:
        chord = self.chords[node]
        for member in chord.members:
            if member.joined:
                chord.stabilization.stabilize(member)
        self._collect(chord)

    def deliver(self, at: int) -> None:
        self.in_flight[at], self.in_flight[-1] = self.in_flight[-1], self.in_flight[at]
        sender, to, message = self.in_flight.pop()
        if to in self.chords:
            self.chords[to].receive(sender, message)
            self._collect(self.chords[to])

    def give_up(self, node: NodeId, number: int) -> None:
        self.chords[node].timeout(Silent(number))
        self._collect(self.chords[node])

    def dead_calls(self) -> list[tuple[NodeId, int]]:
        """Return the calls to dead nodes that have no answer in flight."""
        answered = {
            (to, message.number) for _, to, message in self.in_flight if isinstance(message, Answer)
        }
        return [
            (node, number)
            for node, chord in self.chords.items()
            for number, call in chord.status.calls.items()
            if call.peer not in self.chords and (node, number) not in answered
        ]

    # -- views --

    def views(self) -> list[View]:
        return [
            View(member.position, member.successors)
            for chord in self.chords.values()
            for member in chord.status.members
            if member.joined
        ]

    def lists(self, node: NodeId) -> tuple[Position, ...]:
        """Return a member and its successors, or an empty tuple if the node has not joined."""
        if node not in self.chords:
            return ()
        (member,) = self.chords[node].status.members
        return (member.position, *member.successors) if member.joined else ()

    def views_to_come(self) -> list[View]:
        return [
            view_to_come(member, sender, message)
            for sender, to, message in self.in_flight
            if isinstance(message, Report | Near) and to in self.chords
            for member in self.chords[to].status.members
            if member.joined == isinstance(message, Report)
        ]

    def may_die(self, node: NodeId) -> bool:
        """Return whether the invariant survives the death of `node`."""
        now = [view for view in self.views() if view.member.node != node]
        to_come = [view for view in self.views_to_come() if view.member.node != node]
        return not broken(now, self.successors_max, to_come)


def play(sim: Simulation, nodes: int) -> Figures:
    first = [NodeId(f"n{index}") for index in range(max(nodes // 2, SUCCESSORS + 1))]
    schedule = Schedule(sim, Ring(first, sim.dice, SUCCESSORS), nodes)
    for _ in range(STEPS):
        schedule.step()
    schedule.calm_down()
    return {"joins": schedule.joins, "deaths": schedule.deaths}


class Schedule:
    """Runs random steps, records each in the trace, and checks the invariant after each."""

    def __init__(self, sim: Simulation, ring: Ring, nodes_max: int) -> None:
        self.sim, self.ring, self.nodes_max = sim, ring, nodes_max
        self.joins = self.deaths = 0
        self._lists: dict[NodeId, tuple[Position, ...]] = {}

    def step(self) -> None:
        ring, dice = self.ring, self.sim.rng.random()
        if dice < 0.7 and ring.in_flight:
            self._deliver(self.sim.rng.randrange(len(ring.in_flight)))
        elif dice < 0.8 and (calls := ring.dead_calls()):
            self._give_up(*self.sim.rng.choice(calls))
        elif dice < 0.85 and len(ring.chords) < self.nodes_max:
            self._join()
        elif dice < 0.9:
            self._crash(self.sim.rng.choice(list(ring.chords)))
        else:
            self._stabilize(self.sim.rng.choice(list(ring.chords)))

    def _deliver(self, at: int) -> None:
        sender, to, message = self.ring.in_flight[at]
        self.sim.note(to, "receive", (sender, message))
        self.ring.deliver(at)
        self._check(to)

    def _give_up(self, node: NodeId, number: int) -> None:
        self.sim.note(node, "wake", Silent(number))
        self.ring.give_up(node, number)
        self._check(node)

    def _stabilize(self, node: NodeId) -> None:
        self.sim.note(node, "stabilize")
        self.ring.stabilize(node)
        self._check(node)

    def _join(self) -> None:
        self.joins += 1
        node = NodeId(f"j{self.joins}")
        members = [view.member.node for view in self.ring.views()]
        contacts = self.sim.rng.sample(members, min(3, len(members)))
        self.sim.note(node, "join", contacts)
        self.ring.join(node, contacts)

    def _crash(self, node: NodeId) -> None:
        if self.ring.may_die(node):
            self.deaths += 1
            self.sim.note(node, "crash")
            self.ring.crash(node)
            self._check(node)

    def _check(self, node: NodeId) -> None:
        """Check the invariant if the list of `node` has changed."""
        lists = self.ring.lists(node)
        if lists != self._lists.get(node, ()):
            self._lists[node] = lists
            if wrong := broken(self.ring.views(), self.ring.successors_max):
                raise Violation(wrong)

    def calm_down(self) -> None:
        """Stop joins and deaths, and check that all lists become complete."""
        ring = self.ring
        wrong = ""
        for _ in range(ROUNDS_MAX):
            for node in list(ring.chords):
                self._stabilize(node)
            self._settle()
            wrong = out_of_shape(ring.views(), ring.successors_max)
            if not wrong:
                return
        raise Violation(f"after {ROUNDS_MAX} rounds of stabilization, {wrong}")

    def _settle(self) -> None:
        for _ in range(SETTLE_MAX):
            if self.ring.in_flight:
                self._deliver(0)
            elif calls := self.ring.dead_calls():
                self._give_up(*calls[0])
            else:
                return
        raise Violation(f"messages are still in flight after {SETTLE_MAX} steps")


CHORD_STEPS = Scenario(
    "chord-steps", "a Chord ring whose protocol steps happen in any order", 8, play, nodes_min=4
)
