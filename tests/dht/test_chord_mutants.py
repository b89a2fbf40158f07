"""Check that tests detect each missing Chord rule, or its version from 2001."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from oncecast.dht import calls
from oncecast.dht.identifiers import Key, Position, between
from oncecast.dht.member import Member
from oncecast.dht.messages import Report
from oncecast.dht.ranges import Ranges
from oncecast.dht.responder import Responder
from oncecast.dht.routing import Routing
from oncecast.dht.stabilization import Stabilization, Stabilizing
from oncecast.lab.scenarios.chord_cut import CHORD_CUT
from oncecast.lab.scenarios.chord_steps import CHORD_STEPS
from oncecast.lab.scenarios.scenario import run
from tests.dht import test_chord
from tests.mutants import Detector, Mutant, Plant, assert_detected, replaced

pytestmark = pytest.mark.mutants

SEEDS = 300
MUTANTS: list[Mutant] = []


def steps(seed: int) -> None:
    outcome = run(CHORD_STEPS, seed)
    assert outcome.ok, outcome.violation


def mutant(plant: Plant) -> Plant:
    MUTANTS.append(Mutant(plant.__name__.replace("_", " "), plant, steps, SEEDS))
    return plant


def join_of_2001(self: Member, before: Position, successors: Iterable[Position]) -> None:
    self.joined = True
    self.predecessor = None
    self._set(list(successors)[:1] or [before])


def stabilized_of_2001(self: Stabilization, stabilizing: Stabilizing, report: Report) -> None:
    member, head = stabilizing.member, stabilizing.asked
    nearer = report.predecessor
    if nearer is not None and between(member.position.id, nearer.id, head.id):
        head = nearer  # without asking whether it is alive
    member.follow(head, report.successors if head is stabilizing.asked else member.successors)
    member.settled = True
    self._notify(member, head)


@mutant
def all_rules_of_2001(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Member, "join", join_of_2001)
    patch.setattr(Stabilization, "_stabilized", stabilized_of_2001)


@mutant
def a_member_joins_with_its_successor_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Member, "join", join_of_2001)


@mutant
def a_nearer_successor_is_followed_before_it_answers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Stabilization, "_stabilized", stabilized_of_2001)


@mutant
def successor_lists_are_merged(patch: pytest.MonkeyPatch) -> None:
    follow = Member.follow

    def merge(self: Member, head: Position, successors: Iterable[Position]) -> None:
        old = {position.id: position for position in (head, *self.successors, *successors)}
        me = self.position.id
        after = sorted(old, key=lambda id: (id < me, id))
        follow(self, old[after[0]], [old[id] for id in after[1:]])

    patch.setattr(Member, "follow", merge)


@mutant
def dead_nodes_are_not_dropped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Member, "drop", lambda self, node: False)


@mutant
def no_successor_is_notified(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Stabilization, "_notify", lambda self, member, head: self._finish(member))


@mutant
def a_dead_predecessor_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ranges, "set_predecessor", lambda self, member, new: None)


# -- ownership, lookups and payloads --


def cut(seed: int) -> None:
    outcome = run(CHORD_CUT, seed)
    assert outcome.ok, outcome.violation


def low_without_successor(self: Member) -> Key | None:
    if self.predecessor is None:
        return None if self.successors or not self.settled else self.position.id
    return self.predecessor.id if self.settled else None


def unit(test: Callable[[], None]) -> Detector:
    return lambda seed: test()


def hints(seed: int) -> None:
    test_chord.test_member_without_a_predecessor_answers_with_a_hint_after_a_while()


def missed(seed: int) -> None:
    test_chord.test_member_with_a_silent_predecessor_answers_with_a_hint()


MUTANTS += [
    Mutant(
        "a member owns keys only if its successor names it as predecessor",
        lambda patch: patch.setattr(Member, "low", property(low_without_successor)),
        cut,
        SEEDS,
    ),
    Mutant(
        "a member owns keys only if its predecessor has notified it lately",
        lambda patch: patch.setattr(Ranges, "check_predecessor", lambda self, member: None),
        missed,
        1,
    ),
    Mutant(
        "an uncertain answer is a hint",
        replaced(Responder, "answer_confirm", "Found(number, certain=False)", "Found(number)"),
        hints,
        1,
    ),
    Mutant(
        "a payload does not make an uncertain node the root",
        replaced(Routing, "hop", "root, hint))", "root or hint))"),
        hints,
        1,
    ),
    Mutant(
        "a payload is not passed back by its owner",
        replaced(Routing, "hop", "and not up_to(before.id, key, meant.position.id)", ""),
        unit(test_chord.test_payload_waits_at_a_new_owner_until_its_successor_knows_it),
        1,
    ),
    Mutant(
        "copies of a payload do not multiply",
        replaced(Routing, "_take", "known is not None", "False"),
        unit(test_chord.test_second_copy_of_a_payload_waits_for_the_answer_to_the_first),
        1,
    ),
    Mutant(
        "a second copy of a payload is sent later",
        replaced(Routing, "hopped", "if hopping.came_again:", "if False:"),
        unit(test_chord.test_second_copy_of_a_payload_waits_for_the_answer_to_the_first),
        1,
    ),
    Mutant(
        "a restarted node ignores answers to its earlier incarnation",
        lambda patch: patch.setattr(calls, "FIRST_NUMBER_BITS", 0),
        unit(test_chord.test_restarted_node_ignores_answers_to_its_earlier_incarnation),
        1,
    ),
    Mutant(
        "a member without a predecessor answers with a hint after a while",
        replaced(Member, "owns", "elif self.unheard:", "elif False:"),
        hints,
        1,
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_chord_mutant_is_detected(mutant: Mutant) -> None:
    """NET-4"""
    assert_detected(mutant)
