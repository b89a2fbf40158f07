"""A move that is interrupted at any step finishes or is undone. REP-6"""

from __future__ import annotations

import pytest

from oncecast.kernel.protocol import NodeId, Value
from tests.ring.pair import GIVER, MESSAGES, MINE, TAKER, THEIRS, World, arcs_are_apart

pytestmark = pytest.mark.long

ALL = list(range(MESSAGES))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit answers to one topic, so that a survey has several pages."""
    monkeypatch.setattr("oncecast.ring.exporter.TOPICS_MAX", 1)


def begin() -> World:
    world = World()
    world.found(TAKER)
    return world


def finish_move(world: World) -> None:
    """Run until the move ends, and check that no key ever has two owners."""

    def done() -> bool:
        world.remove_gone_groups()
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
    finish_move(world)
    check(world)
    return world.steps - before


@pytest.mark.parametrize("side", [GIVER, TAKER])
@pytest.mark.parametrize("times", [1, 3])
def test_new_leader_in_either_group_finishes_a_move_from_any_step(side: str, times: int) -> None:
    """REP-6: both groups include the progress in their decided state."""
    for step in range(length()):
        world = begin()
        for _ in range(step):
            world.step()
        for _ in range(times):
            world.groups[side].new_leader()
            world.step()
        finish_move(world)
        check(world)


def test_new_leaders_in_both_groups_finish_a_move_from_any_step() -> None:
    """REP-6"""
    for step in range(length()):
        world = begin()
        for _ in range(step):
            world.step()
        for group in world.groups.values():
            group.new_leader()
        finish_move(world)
        check(world)


def test_move_survives_the_loss_of_any_message() -> None:
    """REP-6: unanswered requests are repeated."""
    for lost in range(length()):
        world, count = begin(), 0

        def spoil(sender: NodeId, to: NodeId, message: Value, lost: int = lost) -> int:
            nonlocal count
            count += 1
            return 0 if count == lost else 1

        world.spoil = spoil
        finish_move(world)
        check(world)


def test_move_survives_duplicates_of_all_messages() -> None:
    """REP-6: requests are idempotent."""
    world = begin()
    world.spoil = lambda sender, to, message: 2
    finish_move(world)
    check(world)


@pytest.mark.parametrize(("side", "other"), [(GIVER, TAKER), (TAKER, GIVER)])
def test_move_ends_if_either_group_retires_at_any_step(side: str, other: str) -> None:
    """REP-6: a group retires only once it can never own an arc again, so its unsent messages are
    not needed."""
    for step in range(length()):
        world = begin()
        for _ in range(step):
            world.step()
        world.retire(world.groups[side])
        finish_move(world)
        assert list(world.groups) == [other]
        assert world.owners(MINE) == world.owners(THEIRS) == [other]
        assert world.kept(MINE) == world.kept(THEIRS) == ALL


@pytest.mark.parametrize("name", ["g-5", "g-0", "g-b"])  # before t, after t, after u
def test_no_messages_are_lost_if_a_group_joins_while_another_leaves(name: str) -> None:
    """REP-6: the arcs of three groups change at once."""
    world = begin()
    finish_move(world)
    settled = world.steps
    world.retire(world.groups[TAKER])
    finish_move(world)
    steps = world.steps - settled
    for step in range(0, steps, 2):
        world = begin()
        finish_move(world)
        world.retire(world.groups[TAKER])
        for _ in range(step):
            world.step()
        world.found(name)
        finish_move(world)
        assert sorted(world.groups) == sorted([GIVER, name])
        assert world.kept(MINE) == world.kept(THEIRS) == ALL


def test_no_messages_are_lost_if_a_third_group_joins_during_a_move() -> None:
    """REP-6: two concurrent claims succeed one after the other."""
    for step in range(0, length(), 2):
        for name in ("g-0", "g-5", "g-b"):
            world = begin()
            for _ in range(step):
                world.step()
            world.found(name)
            finish_move(world)
            for topic in (MINE, THEIRS):
                assert world.kept(topic) == ALL
            lows = [group.holdings.low for group in world.groups.values()]
            assert len(set(lows)) == 3


def test_messages_put_during_a_move_are_moved() -> None:
    """REP-6: messages are copied in rounds; the last round runs while the part is frozen."""
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
