"""WEB-3: a violation is explained by the events that led to it."""

from __future__ import annotations

from oncecast.playback.causes import chain, explain
from oncecast.playback.recording import Recording, Step, Violation, Vote


def recording(*steps: Step) -> Recording:
    return Recording(steps=list(steps), nodes=dict.fromkeys(each.node for each in steps))


STEPS = (
    Step(0.0, "n1", "start", ""),
    Step(0.1, "n2", "start", ""),
    Step(0.2, "n1", "request", "put"),
    Step(0.3, "n2", "receive", "", (), cause=2, message=0),
    Step(0.4, "n2", "wake", "", ("emits Decided(slot=7 value=a)",), cause=1),
    Step(0.5, "n1", "receive", "", (), cause=3, message=1),
)


def test_chain_leads_back_to_an_input_from_outside() -> None:
    """WEB-3"""
    run = recording(*STEPS)
    assert chain(run, 5) == [2, 3, 5]
    assert chain(run, 4) == [4]  # a timer has no cause outside its node


def test_chain_ends_where_the_recording_begins() -> None:
    """WEB-3"""
    run = recording(*STEPS[3:])
    run.first = 3
    assert chain(run, 5) == [3, 5]


def test_related_steps_are_about_the_named_slot_and_node() -> None:
    """WEB-3"""
    run = recording(*STEPS)
    run.votes = [Vote(3, "n2", 7, "1.n1", "a", 1), Vote(5, "n1", 8, "1.n1", "b", 2)]
    violation = Violation("n2 chose another value for slot 7", 0.5, step=5)
    explain(run, violation)
    assert violation.chain == [2, 3, 5]
    assert violation.related == [1, 4]
    assert violation.slots == [7]


def test_slots_whose_value_a_named_replica_changed_are_related() -> None:
    """WEB-3"""
    run = recording(*STEPS)
    run.votes = [
        Vote(2, "n1", 5, "1.n1", "a", 1),
        Vote(3, "n2", 5, "1.n1", "a", 1),
        Vote(4, "n2", 5, "learned", "b", 2),
        Vote(4, "n2", 9, "1.n1", "c", 3),
    ]
    violation = Violation("n2 applied other values up to slot 8", 0.5)
    explain(run, violation)
    assert violation.slots == [5, 8]
    assert violation.related == [1, 2, 3, 4]
