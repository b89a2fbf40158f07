"""The second queue goes on whoever of a minority crashes, and in whichever step."""

from __future__ import annotations

from itertools import combinations, count

import pytest

from oncecast.kernel.protocol import NodeId
from oncecast.simulator.checkers import Checker
from oncecast.simulator.simulated import Simulation
from oncecast.simulator.trace import Step
from tests.coordination.queues import Room

pytestmark = pytest.mark.long

INPUTS = ("request", "receive", "wake")
SECONDS = 0.6  # in which all that matters happens if nobody crashes


class Doom(Checker):
    """These nodes crash for good in a step of the first of them: nothing of it is done."""

    def __init__(self, doomed: tuple[NodeId, ...], step: int) -> None:
        self.doomed, self.left = doomed, step

    def after(self, sim: Simulation, step: Step) -> None:
        if step.kind in INPUTS and step.node == self.doomed[0]:
            self.left -= 1
            if self.left == 0:
                for node in self.doomed:
                    sim.crash(node)


def story(nodes: int, doomed: tuple[int, ...], step: int) -> bool:
    """One element for each node, and each takes until all is gone; false if the step never came."""
    room = Room("paxos", nodes)
    for node in range(nodes):
        room.put(node, b"job %d" % node)
    room.run(1.0)
    doom = Doom(tuple(room.names[node] for node in doomed), step)
    room.sim.check(doom)
    for node in range(nodes):
        room.take(node, wait=True)
    room.run(SECONDS)
    came = doom.left <= 0
    for _ in range(3):
        room.run(3.0)
        for node in range(nodes):
            if node not in doomed:
                room.take(node, wait=True)
    room.run(3.0)
    taken = room.taken()
    assert len(taken) == len(set(taken)), f"{taken}: taken twice"
    # Each that crashed had one ticket, and so takes one element with it at most.
    assert len(taken) >= nodes - len(doomed), f"crash of {doomed} in step {step}: only {taken}"
    assert not any(room.lengths()), f"{room.sim.alive()} still count {room.lengths()}"
    return came


@pytest.mark.parametrize("doomed", range(3))
def test_queue_goes_on_whoever_of_three_crashes_in_whichever_step(doomed: int) -> None:
    """DDS-5: the leader, the acceptors and those with a petition under way."""
    for step in count(1):
        if not story(3, (doomed,), step):
            break
    assert step > 20


@pytest.mark.parametrize("doomed", list(combinations(range(5), 2)), ids=str)
def test_queue_goes_on_when_two_of_five_crash_together(doomed: tuple[int, int]) -> None:
    """DDS-5"""
    for step in range(1, 60, 7):
        story(5, doomed, step)
