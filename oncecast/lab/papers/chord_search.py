"""Search every state of a small ring, with the rules of Chord as steps.

The steps run the real protocol. The receiver answers a question immediately, but the answer can
stay in flight for any length of time, as can a Notify. Fingers and lookups are omitted, because
they change no list. A joining node has already found the member before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from oncecast.dht.chord import Chord
from oncecast.dht.identifiers import Position, between, key_of
from oncecast.dht.member import Member
from oncecast.dht.messages import Call, Notify, Report, Silent
from oncecast.dht.stabilization import Rectifying, Stabilizing
from oncecast.kernel.protocol import NodeId, Send
from oncecast.lab.scenarios.chord_invariant import View, broken
from oncecast.lab.scenarios.chord_steady import Steady

DICE = Random(0)  # never used, because the search tries every step


class Asked(NamedTuple):
    """A question in flight with its answer. The answer is None if the receiver is dead."""

    position: Position
    head: Position | None  # while stabilizing, the current head
    new: Position | None  # if rectifying, the predecessor to adopt in case the old one is dead
    report: Report | None


class Joining(NamedTuple):
    before: Position
    successors: tuple[Position, ...]


class State(NamedTuple):
    """One node: its lists, and the operation that it runs."""

    successors: tuple[Position, ...]
    predecessor: Position | None
    notified: Position | None
    asked: Asked | Joining | None


class World(NamedTuple):
    nodes: tuple[State | None, ...]  # ordered by id; None if the node has not joined or is dead
    notes: tuple[tuple[int, Position], ...]  # Notify messages in flight: receiver and position
    unborn: tuple[int, ...]
    deaths_left: int


class Search:
    """A search from a steady ring of `first` nodes, with some joins and deaths."""

    def __init__(self, first: int, joins: int, deaths: int, successors_max: int = 2) -> None:
        self.successors_max = successors_max
        names = [NodeId(f"n{index}") for index in range(first + joins)]
        steady = Steady.of(names[:first])
        self.positions = sorted(
            (Position(key_of(name), name) for name in names), key=lambda p: p.id
        )
        self.index = {position: at for at, position in enumerate(self.positions)}
        nodes: list[State | None] = []
        for position in self.positions:
            if position in steady.positions:
                member = steady.member(position, successors_max)
                nodes.append(State(member.successors, member.predecessor, None, None))
            else:
                nodes.append(None)
        unborn = tuple(at for at, node in enumerate(nodes) if node is None)
        self.start = World(tuple(nodes), (), unborn, deaths)

    def run(self, states_max: int) -> int:
        """Return the number of states. Raise AssertionError if a state breaks the invariant."""
        seen = {self.start}
        left = [self.start]
        while left:
            world = left.pop()
            if wrong := broken(self._views(world), self.successors_max):
                raise AssertionError(wrong)
            for after in self._steps(world):
                if after not in seen:
                    seen.add(after)
                    left.append(after)
            assert len(seen) <= states_max, f"more than {states_max} states"
        return len(seen)

    # -- steps --

    def _steps(self, world: World) -> Iterator[World]:
        for at, state in enumerate(world.nodes):
            if state is None:
                continue
            if state.asked is not None:
                yield self._answer(world, at, state, state.asked)
            else:
                yield self._stabilize(world, at, state)
            if world.deaths_left and self._may_die(world, at):
                yield self._die(world, at)
        for note in world.notes:
            yield self._notify(world, note)
        for at in world.unborn:
            yield from self._join(world, at)

    def _join(self, world: World, at: int) -> Iterator[World]:
        me = self.positions[at]
        unborn = tuple(other for other in world.unborn if other != at)
        for before, state in self._members(world):
            if between(before.id, me.id, state.successors[0].id):
                joining = Joining(before, state.successors)
                newborn = State((), None, None, joining)
                yield self._with(world, at, newborn)._replace(unborn=unborn)

    def _die(self, world: World, at: int) -> World:
        notes = tuple(note for note in world.notes if note[0] != at)
        world = self._with(world, at, None)
        return world._replace(notes=notes, deaths_left=world.deaths_left - 1)

    def _stabilize(self, world: World, at: int, state: State) -> World:
        chord, member = self._load(at, state)
        chord.stabilization.stabilize(member)
        return self._save(world, at, chord, member)

    def _answer(self, world: World, at: int, state: State, asked: Asked | Joining) -> World:
        chord, member = self._load(at, state)
        if isinstance(asked, Joining):
            chord.joining.joined(member, asked.before, asked.successors)
        elif asked.report is None:
            chord.timeout(Silent(0))
        else:
            chord.receive(asked.position.node, asked.report)
        return self._save(world, at, chord, member)

    def _notify(self, world: World, note: tuple[int, Position]) -> World:
        at, position = note
        world = world._replace(notes=tuple(each for each in world.notes if each != note))
        state = world.nodes[at]
        if state is None or isinstance(state.asked, Joining):
            return world
        chord, member = self._load(at, state)
        chord.receive(position.node, Notify(self.positions[at].id, position))
        return self._save(world, at, chord, member)

    # -- conversion between states and protocol objects --

    def _load(self, at: int, state: State) -> tuple[Chord, Member]:
        position = self.positions[at]
        member = Member(position, self.successors_max)
        chord = Chord(position.node, DICE, members=(member,), links=False)
        member.joined = not isinstance(state.asked, Joining)
        member.settled = True  # this only affects when the member stabilizes next
        member.successors, member.predecessor = state.successors, state.predecessor
        member.notified = state.notified
        if isinstance(state.asked, Asked):
            asked, head, new, _ = state.asked
            stabilizing = Stabilizing(member, asked, head)
            purpose = stabilizing if new is None else Rectifying(member, new)
            chord.calls.waiting[0] = Call(asked.node, purpose)
            member.busy = True
        return chord, member

    def _save(self, world: World, at: int, chord: Chord, member: Member) -> World:
        notes = dict.fromkeys(world.notes)
        for effect in chord.drain():
            if isinstance(effect, Send) and isinstance(effect.message, Notify):
                to = self.index[Position(effect.message.at, effect.to)]
                if world.nodes[to] is not None:
                    notes[to, effect.message.position] = None
        asked = None
        for call in chord.status.calls.values():
            assert isinstance(call.purpose, Stabilizing | Rectifying)
            asked = self._ask(world, call.purpose)
        state = State(member.successors, member.predecessor, member.notified, asked)
        ordered = tuple(sorted(notes, key=lambda note: (note[0], note[1].id)))
        return self._with(world, at, state)._replace(notes=ordered)

    def _ask(self, world: World, purpose: Stabilizing | Rectifying) -> Asked:
        if isinstance(purpose, Stabilizing):
            return Asked(purpose.asked, purpose.head, None, self._report(world, purpose.asked))
        before = purpose.member.predecessor
        assert before is not None
        return Asked(before, None, purpose.new, self._report(world, before))

    def _report(self, world: World, position: Position) -> Report | None:
        state = world.nodes[self.index[position]]
        if state is None or isinstance(state.asked, Joining):
            return None
        return Report(0, state.predecessor, state.successors)

    def _with(self, world: World, at: int, state: State | None) -> World:
        nodes = list(world.nodes)
        nodes[at] = state
        return world._replace(nodes=tuple(nodes))

    # -- the invariant --

    def _members(self, world: World) -> list[tuple[Position, State]]:
        return [
            (position, state)
            for position, state in zip(self.positions, world.nodes, strict=True)
            if state is not None and not isinstance(state.asked, Joining)
        ]

    def _views(self, world: World) -> list[View]:
        return [View(position, state.successors) for position, state in self._members(world)]

    def _may_die(self, world: World, at: int) -> bool:
        dead = self.positions[at]
        views = [view for view in self._views(world) if view.member != dead]
        to_come = []
        for position, state in zip(self.positions, world.nodes, strict=True):
            if state is None or position == dead:
                continue
            after = Member(position, self.successors_max)
            match state.asked:
                case Joining(before, successors):
                    after.join(before, successors)
                case Asked(asked, _, None, Report(successors=successors)):
                    after.follow(asked, successors)
                case _:
                    continue
            to_come.append(View(position, after.successors))
        return not broken(views, self.successors_max, to_come)
