"""Run whole rings and trees in the simulator, and test their checkers."""

from __future__ import annotations

from random import Random

import pytest

from oncecast.dht.chord import Chord
from oncecast.dht.identifiers import between, distance, finger_start, key_of, position_ids, up_to
from oncecast.dht.scribe import Scribe
from oncecast.dht.tree_messages import Multicasted
from oncecast.kernel.protocol import NodeId
from oncecast.kernel.stack import Stack
from oncecast.lab.papers.chord_search import Search
from oncecast.lab.scenarios.chord import CHORD
from oncecast.lab.scenarios.chord_cut import CHORD_CUT
from oncecast.lab.scenarios.chord_invariant import View, blind, broken, out_of_shape, principals
from oncecast.lab.scenarios.chord_steady import Steady
from oncecast.lab.scenarios.chord_steps import CHORD_STEPS
from oncecast.lab.scenarios.scenario import run
from oncecast.lab.scenarios.scribe import SCRIBE
from oncecast.lab.scenarios.scribe_forest import Forest, scribe_of
from oncecast.simulator.checkers import Violation
from oncecast.simulator.simulated import Simulation
from tests.dht.rings import k, p


def test_identifiers_wrap_around_the_circle() -> None:
    assert between(k(0xF0), k(0x05), k(0x10))
    assert between(k(0x10), k(0x20), k(0x10))
    assert not between(k(0x10), k(0x10), k(0x10))
    assert up_to(k(0x10), k(0x20), k(0x20))
    assert not up_to(k(0x10), k(0x21), k(0x20))
    assert finger_start(k(0xF0), 255) == k(0x70)
    assert distance(k(0xF0), k(0x10)) == 0x20 << 248
    assert position_ids("a", 2) == (key_of("a"), key_of("a#1"))


def view(at: int, *successors: int) -> View:
    return View(p(at), tuple(map(p, successors)))


def test_invariant_finds_members_without_live_successors_and_skipped_members() -> None:
    ring = [view(0x10, 0x20, 0x30), view(0x20, 0x30, 0x40), view(0x30, 0x40, 0x10)]
    ring.append(view(0x40, 0x10, 0x30))  # this list skips 0x20
    members = [each.member.id for each in ring]
    assert principals(ring, members) == [k(0x10), k(0x30), k(0x40)]
    assert broken(ring, 2) == ""
    assert "only 3 members" in broken(ring, 3)
    assert blind(ring, [k(0x10), k(0x20)]) == [p(0x20)]
    assert "no live successor" in broken([view(0x10, 0x20)], 0)
    assert out_of_shape(ring, 2) == "n40 lists n10, n30, expected n10, n20"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(60))
def test_ring_invariant_holds_for_any_order_of_steps(seed: int) -> None:
    """NET-4"""
    outcome = run(CHORD_STEPS, seed)
    assert outcome.ok, f"{outcome.violation}; {outcome.replay}"


@pytest.mark.parametrize("seed", range(20))
def test_invariant_holds_and_every_lookup_is_answered_under_churn(seed: int) -> None:
    """NET-4"""
    outcome = run(CHORD, seed)
    assert outcome.ok, f"{outcome.violation}; {outcome.replay}"


@pytest.mark.parametrize("seed", range(20))
def test_no_two_members_are_sure_to_own_the_same_key_while_links_are_cut(seed: int) -> None:
    """NET-4"""
    outcome = run(CHORD_CUT, seed)
    assert outcome.ok, f"{outcome.violation}; {outcome.replay}"


@pytest.mark.long
@pytest.mark.parametrize(
    ("first", "joins", "deaths", "states"), [(3, 1, 0, 7_000), (4, 0, 1, 10_000)]
)
def test_invariant_holds_in_every_state_of_a_small_ring(
    first: int, joins: int, deaths: int, states: int
) -> None:
    """NET-4"""
    assert Search(first, joins, deaths).run(states_max=100_000) > states


@pytest.mark.parametrize("seed", range(4))
def test_trees_reach_exactly_their_members_even_after_crashes(seed: int) -> None:
    """NET-5"""
    outcome = run(SCRIBE, seed)
    assert outcome.ok, f"{outcome.violation}; {outcome.replay}"


def grow(seed: int, nodes: int, *, positions_count: int = 1) -> Simulation:
    """Return a ring whose nodes joined one by one."""
    sim = Simulation(seed)
    first = NodeId("n0")
    for index in range(nodes):
        contacts = [first] if index else []

        def build(me: NodeId, rng: Random, contacts: list[NodeId] = contacts) -> Stack:
            return Stack(
                [
                    Chord(me, rng, contacts=contacts, positions_count=positions_count),
                    Scribe(me, rng),
                ]
            )

        sim.add(NodeId(f"n{index}"), build)
        sim.run(until=sim.now + 1.0)
    return sim


def views(sim: Simulation) -> list[View]:
    found = []
    for node in sim.alive():
        chord = sim.nodes[node].stack.protocols[0]  # type: ignore[union-attr]
        assert isinstance(chord, Chord)
        found += [View(each.position, each.successors) for each in chord.status.members]
    return found


@pytest.mark.parametrize("positions_count", [1, 3])
def test_ring_grown_by_joins_matches_the_ring_built_for_scenarios(
    positions_count: int,
) -> None:
    """NET-4"""
    sim = grow(1, 9, positions_count=positions_count)
    sim.run(until=sim.now + 60.0)
    assert out_of_shape(views(sim), 8) == ""
    steady = Steady.of(sim.alive(), positions_count=positions_count)
    chord = sim.nodes[NodeId("n3")].stack.protocols[0]  # type: ignore[union-attr]
    assert isinstance(chord, Chord)
    like = steady.members(NodeId("n3"), positions_count=positions_count)
    for mine, built in zip(chord.status.members, like, strict=True):
        assert mine.successors == built.successors
        assert mine.predecessor == built.predecessor
        assert mine.fingers == built.fingers


def test_rings_merge_after_a_partition_heals() -> None:
    """NET-4"""
    sim = grow(2, 10)
    sim.run(until=sim.now + 10.0)
    half = [NodeId(f"n{index}") for index in range(5)]
    sim.partition(half)
    sim.run(until=sim.now + 30.0)
    parted = [each for each in views(sim) if each.member.node in half]
    assert out_of_shape(parted, 8) == ""
    sim.repair()
    sim.run(until=sim.now + 120.0)
    assert out_of_shape(views(sim), 8) == ""


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_ring_heals_even_if_many_members_lose_all_their_successors(seed: int) -> None:
    """NET-4. Half of the nodes die at once. One in eight survivors loses all three successors."""
    names = [NodeId(f"n{seed}-{index}") for index in range(200)]
    steady, sim = Steady.of(names), Simulation(seed)
    for name in names:
        sim.add(name, lambda me, rng: Stack([Chord(me, rng, members=steady.members(me, 3))]))
    sim.run(until=3.0)
    for node in sim.rng.sample(names, 100):
        sim.crash(node)
    sim.run(until=60.0)
    assert out_of_shape(views(sim), 3) == ""


def test_restarted_node_gets_its_position_back() -> None:
    """NET-4"""
    sim = grow(3, 6)
    sim.run(until=sim.now + 5.0)
    sim.bounce(NodeId("n4"), away=0.05)
    sim.run(until=sim.now + 30.0)
    assert out_of_shape(views(sim), 8) == ""


def test_checker_detects_a_torn_tree() -> None:
    sim = Simulation(1)
    forest = Forest(sim, 12, 2)
    forest.join()
    assert forest.torn() == ""
    someone = next(iter(forest.audience.joined["topic 1"]))
    parent = forest.trees(someone)["topic 1"].parent or someone
    scribe_of(sim, parent)._trees["topic 1"].children.clear()
    torn = forest.torn()
    assert "does not forward" in torn or "not connected to the root" in torn
    with pytest.raises(Violation, match="not joined"):
        forest.audience.heard(sim, NodeId("stranger"), Multicasted("topic 1", b""))
