"""A move is interrupted at every single step, and is finished or undone all the same. REP-6"""

from __future__ import annotations

import pytest

from oncecast.kernel.protocol import NodeId, Value
from tests.ring.pair import GIVER, MESSAGES, MINE, TAKER, THEIRS, World, arcs_are_apart

pytestmark = pytest.mark.long

ALL = list(range(MESSAGES))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that there are several answers to a question."""
    monkeypatch.setattr("oncecast.ring.exporter.TOPICS_MAX", 1)


def begin() -> World:
    world = World()
    world.found(TAKER)
    return world


def go_on(world: World) -> None:
    """To the end, and nothing has two owners on the way."""

    def done() -> bool:
        world.let_go()
        arcs_are_apart(world)
        return world.settled

    world.run(done)


def check(world: World) -> None:
    assert world.owners(MINE) == [TAKER]
    assert world.owners(THEIRS) == [GIVER]
    assert world.kept(MINE) == ALL
    assert world.kept(THEIRS) == ALL
    importer = world.groups[TAKER].leader.service.machine.registry
    assert importer.topics[MINE].producers["p"].next == MESSAGES


def length() -> int:
    world = begin()
    before = world.steps
    go_on(world)
    check(world)
    return world.steps - before


@pytest.mark.parametrize("side", [GIVER, TAKER])
@pytest.mark.parametrize("times", [1, 3])
def test_a_new_leader_of_either_group_finishes_it_from_any_step(side: str, times: int) -> None:
    """REP-6: what is done so far is in what both groups have decided."""
    for step in range(length()):
        world = begin()
        for _ in range(step):
            world.step()
        for _ in range(times):
            world.groups[side].new_leader()
            world.step()
        go_on(world)
        check(world)


def test_new_leaders_of_both_groups_finish_it_from_any_step() -> None:
    """REP-6"""
    for step in range(length()):
        world = begin()
        for _ in range(step):
            world.step()
        for group in world.groups.values():
            group.new_leader()
        go_on(world)
        check(world)


def test_every_message_may_be_lost_once() -> None:
    """REP-6: who is not answered asks again."""
    for lost in range(length()):
        world, count = begin(), 0

        def spoil(sender: NodeId, to: NodeId, message: Value, lost: int = lost) -> int:
            nonlocal count
            count += 1
            return 0 if count == lost else 1

        world.spoil = spoil
        go_on(world)
        check(world)


def test_every_message_may_come_twice() -> None:
    """REP-6: a question may come as often as it likes."""
    world = begin()
    world.spoil = lambda sender, to, message: 2
    go_on(world)
    check(world)


@pytest.mark.parametrize(("side", "other"), [(GIVER, TAKER), (TAKER, GIVER)])
def test_either_group_retires_at_any_step(side: str, other: str) -> None:
    """REP-6: it is gone only when nothing can come to it any more; and when it is gone, what it
    could not say any more is not needed."""
    for step in range(length()):
        world = begin()
        for _ in range(step):
            world.step()
        world.retire(world.groups[side])
        go_on(world)
        assert list(world.groups) == [other]
        assert world.owners(MINE) == world.owners(THEIRS) == [other]
        assert world.kept(MINE) == world.kept(THEIRS) == ALL


@pytest.mark.parametrize("name", ["g-5", "g-0", "g-b"])  # before t, after it, after u
def test_one_group_comes_and_another_goes_at_any_step(name: str) -> None:
    """REP-6: the arcs of three groups change at once."""
    world = begin()
    go_on(world)
    settled = world.steps
    world.retire(world.groups[TAKER])
    go_on(world)
    steps = world.steps - settled
    for step in range(0, steps, 2):
        world = begin()
        go_on(world)
        world.retire(world.groups[TAKER])
        for _ in range(step):
            world.step()
        world.found(name)
        go_on(world)
        assert sorted(world.groups) == sorted([GIVER, name])
        assert world.kept(MINE) == world.kept(THEIRS) == ALL


def test_another_group_comes_into_the_arc_at_any_step() -> None:
    """REP-6: two that claim at once get what is next to them, one after the other."""
    for step in range(0, length(), 2):
        for name in ("g-0", "g-5", "g-b"):
            world = begin()
            for _ in range(step):
                world.step()
            world.found(name)
            go_on(world)
            for topic in (MINE, THEIRS):
                assert world.kept(topic) == ALL
            lows = [group.holdings.low for group in world.groups.values()]
            assert len(set(lows)) == 3


def test_what_is_put_during_the_move_moves_too() -> None:
    """REP-6: the copying goes on round after round, and what comes last is copied while frozen."""
    world = begin()
    exporter = world.groups[GIVER]

    def put_on() -> bool:
        arcs_are_apart(world)
        if MINE in exporter.leader.service.machine.registry.topics and world.steps % 3 == 0:
            world.put(exporter, MINE, 1)
        return world.settled

    world.run(put_on)
    producer = world.groups[TAKER].leader.service.machine.registry.topics[MINE].producers["p"]
    assert producer.next > MESSAGES
    assert world.kept(MINE) == list(range(producer.next))
