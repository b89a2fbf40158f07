"""Every state that a small ring can get into, each looked at once: Chord's rules, step by step.

The steps are those of the protocol itself. A member that asks is answered as things are at that
moment, and the answer is under way for as long as one likes; so is a notification. Fingers and
lookups are left out: they change no list. Who joins has found any member that it comes after.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from oncecast.dht.calls import Call, Silent
from oncecast.dht.chord import Chord
from oncecast.dht.events import Notify, Report
from oncecast.dht.identifiers import Place, between, key_of
from oncecast.dht.keeping import Rectifying, Stabilizing
from oncecast.dht.member import Member
from oncecast.kernel.protocol import NodeId, Send
from oncecast.lab.scenarios.chord_invariant import View, broken
from oncecast.lab.scenarios.chord_steady import Steady

DICE = Random(0)  # never thrown here: the search takes every turn


class Asked(NamedTuple):
    """A question under way: to whom, of which operation, and the answer; None if it is dead."""

    place: Place
    head: Place | None  # of stabilizing: whom we follow already
    new: Place | None  # of rectifying: who takes the place of a dead predecessor
    report: Report | None


class Joining(NamedTuple):
    before: Place
    successors: tuple[Place, ...]


class State(NamedTuple):
    """Of one node."""

    successors: tuple[Place, ...]
    predecessor: Place | None
    notified: Place | None
    asked: Asked | Joining | None


class World(NamedTuple):
    nodes: tuple[State | None, ...]  # in order of their ids; None: not there yet, or dead
    notes: tuple[tuple[int, Place], ...]  # notifications under way, to whom
    unborn: tuple[int, ...]
    deaths_left: int


class Search:
    """Of a steady ring of `first` nodes, while `joins` more come and `deaths` of all die."""

    def __init__(self, first: int, joins: int, deaths: int, successors_max: int = 2) -> None:
        self.successors_max = successors_max
        names = [NodeId(f"n{index}") for index in range(first + joins)]
        steady = Steady(names[:first])
        self.places = sorted((Place(key_of(name), name) for name in names), key=lambda p: p.id)
        self.index = {place: at for at, place in enumerate(self.places)}
        nodes: list[State | None] = []
        for place in self.places:
            if place in steady.places:
                (member,) = steady.fill(self._make(place)).members.values()
                nodes.append(State(member.successors, member.predecessor, None, None))
            else:
                nodes.append(None)
        unborn = tuple(at for at, node in enumerate(nodes) if node is None)
        self.start = World(tuple(nodes), (), unborn, deaths)

    def _make(self, place: Place) -> Chord:
        return Chord(place.node, DICE, successors_max=self.successors_max, links=False)

    def run(self, states_max: int) -> int:
        """The number of states; raises what is wrong with the first that is broken."""
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

    # -- what can happen next --

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
        me = self.places[at]
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
        chord.stabilize(member)
        return self._save(world, at, chord, member)

    def _answer(self, world: World, at: int, state: State, asked: Asked | Joining) -> World:
        chord, member = self._load(at, state)
        if isinstance(asked, Joining):
            chord.joined(member, asked.before, asked.successors)
        elif asked.report is None:
            chord.timeout(Silent(0))
        else:
            chord.receive(asked.place.node, asked.report)
        return self._save(world, at, chord, member)

    def _notify(self, world: World, note: tuple[int, Place]) -> World:
        at, place = note
        world = world._replace(notes=tuple(each for each in world.notes if each != note))
        state = world.nodes[at]
        if state is None or isinstance(state.asked, Joining):
            return world
        chord, member = self._load(at, state)
        chord.receive(place.node, Notify(self.places[at].id, place))
        return self._save(world, at, chord, member)

    # -- a node of the protocol, made from its state and back --

    def _load(self, at: int, state: State) -> tuple[Chord, Member]:
        chord = self._make(self.places[at])
        (member,) = chord.members.values()
        member.joined = not isinstance(state.asked, Joining)
        member.settled = True  # it only hurries
        member.successors, member.predecessor = state.successors, state.predecessor
        member.notified = state.notified
        if isinstance(state.asked, Asked):
            place, head, new, _ = state.asked
            stabilizing = Stabilizing(member, place, head)
            what = stabilizing if new is None else Rectifying(member, new)
            chord.calls[0] = Call(place.node, what)
            member.busy = True
        return chord, member

    def _save(self, world: World, at: int, chord: Chord, member: Member) -> World:
        notes = dict.fromkeys(world.notes)
        for effect in chord.drain():
            if isinstance(effect, Send) and isinstance(effect.message, Notify):
                to = self.index[Place(effect.message.at, effect.to)]
                if world.nodes[to] is not None:
                    notes[to, effect.message.place] = None
        asked = None
        for call in chord.calls.values():
            asked = self._ask(world, call.what)
        state = State(member.successors, member.predecessor, member.notified, asked)
        ordered = tuple(sorted(notes, key=lambda note: (note[0], note[1].id)))
        return self._with(world, at, state)._replace(notes=ordered)

    def _ask(self, world: World, what: Stabilizing | Rectifying) -> Asked:
        if isinstance(what, Stabilizing):
            return Asked(what.asked, what.head, None, self._report(world, what.asked))
        before = what.member.predecessor
        assert before is not None
        return Asked(before, None, what.new, self._report(world, before))

    def _report(self, world: World, place: Place) -> Report | None:
        state = world.nodes[self.index[place]]
        if state is None or isinstance(state.asked, Joining):
            return None
        return Report(0, state.predecessor, state.successors)

    def _with(self, world: World, at: int, state: State | None) -> World:
        nodes = list(world.nodes)
        nodes[at] = state
        return world._replace(nodes=tuple(nodes))

    # -- what it looks like --

    def _members(self, world: World) -> list[tuple[Place, State]]:
        return [
            (place, state)
            for place, state in zip(self.places, world.nodes, strict=True)
            if state is not None and not isinstance(state.asked, Joining)
        ]

    def _views(self, world: World) -> list[View]:
        return [View(place, state.successors) for place, state in self._members(world)]

    def _may_die(self, world: World, at: int) -> bool:
        dead = self.places[at]
        views = [view for view in self._views(world) if view.member != dead]
        to_come = []
        for place, state in zip(self.places, world.nodes, strict=True):
            if state is None or place == dead:
                continue
            after = Member(place, self.successors_max)
            match state.asked:
                case Joining(before, successors):
                    after.join(before, successors)
                case Asked(asked, _, None, Report(successors=successors)):
                    after.follow(asked, successors)
                case _:
                    continue
            to_come.append(View(place, after.successors))
        return not broken(views, self.successors_max, to_come)
