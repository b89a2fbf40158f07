"""PaxosQueue survives the crash of any minority in any step."""

from __future__ import annotations

from itertools import combinations, count

import pytest

from oncecast.kernel.protocol import NodeId
from oncecast.simulator.checkers import Checker
from oncecast.simulator.simulated import Simulation
from oncecast.simulator.step import Step
from tests.coordination.queues import QueueGroup

pytestmark = pytest.mark.long

INPUTS = ("request", "receive", "wake")
SECONDS = 0.6  # enough for all steps of a run without crashes


class Doom(Checker):
    """Crashes nodes permanently when the first node reaches this step."""

    def __init__(self, doomed: tuple[NodeId, ...], step: int) -> None:
        self.doomed, self.left = doomed, step

    def after(self, sim: Simulation, step: Step) -> None:
        if step.kind in INPUTS and step.node == self.doomed[0]:
            self.left -= 1
            if self.left == 0:
                for node in self.doomed:
                    sim.crash(node)


def scenario(nodes: int, doomed: tuple[int, ...], step: int) -> bool:
    """Let each node add an element and take one; return False if the run has fewer steps."""
    group = QueueGroup("paxos", nodes)
    for node in range(nodes):
        group.put(node, b"job %d" % node)
    group.run(1.0)
    doom = Doom(tuple(group.names[node] for node in doomed), step)
    group.sim.check(doom)
    for node in range(nodes):
        group.take(node, wait=True)
    group.run(SECONDS)
    reached = doom.left <= 0
    for _ in range(3):
        group.run(3.0)
        for node in range(nodes):
            if node not in doomed:
                group.take(node, wait=True)
    group.run(3.0)
    taken = group.taken()
    assert len(taken) == len(set(taken)), f"{taken}: an element was taken twice"
    # Each crashed node had one ticket, so it loses at most one element.
    assert len(taken) >= nodes - len(doomed), f"crash of {doomed} in step {step}: only {taken}"
    assert not any(group.lengths()), f"{group.sim.alive()} still have {group.lengths()}"
    return reached


@pytest.mark.parametrize("doomed", range(3))
def test_queue_of_three_nodes_survives_any_single_crash_in_any_step(doomed: int) -> None:
    """DDS-5: the leader, acceptors, and requesters with a petition in flight may crash."""
    for step in count(1):
        if not scenario(3, (doomed,), step):
            break
    assert step > 20


@pytest.mark.parametrize("doomed", list(combinations(range(5), 2)), ids=str)
def test_queue_of_five_nodes_survives_any_two_crashes(doomed: tuple[int, int]) -> None:
    """DDS-5"""
    for step in range(1, 60, 7):
        scenario(5, doomed, step)
