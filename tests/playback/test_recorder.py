"""WEB-3: a simulation is recorded completely, and without changing it."""

from __future__ import annotations

import pytest

from oncecast.lab.scenarios.catalogue import SCENARIOS
from oncecast.lab.scenarios.scenario import run
from oncecast.playback import recorder as recorders
from oncecast.playback.recorder import Recorder
from oncecast.playback.recording import NONE, Change, Fault, Message, Step
from oncecast.simulator.checkers import Violation
from tests.playback.pinging import ANN, BOB, Call, recorded


def test_message_leads_from_its_send_to_its_receipt() -> None:
    """WEB-3"""
    recorder, sim = recorded()
    sim.ask(ANN, Call(BOB, "hello"))
    sim.run(until=0.3)
    recording = recorder.finished()
    timer = "sets timer Again(peer=bob) in 0.5 s"
    assert recording.steps == [
        Step(0.0, "ann", "start", "number 1 of this node"),
        Step(0.0, "bob", "start", "number 1 of this node"),
        Step(0.0, "ann", "request", "peer=bob word=hello", (timer,), name="Call"),
        Step(0.1, "bob", "receive", "", (), 2, 0, "Ping"),
        Step(0.2, "ann", "receive", "", (), 3, 1, "Pong"),
    ]
    assert list(recording.messages.values()) == [
        Message(0, "Ping", "ann", "bob", "word=hello", 2, 0.0, 0.1, 3, "got"),
        Message(1, "Pong", "bob", "ann", "word=hello", 3, 0.1, 0.2, 4, "got"),
    ]
    assert recording.changes == [
        Change(0, "ann", "up", 1),
        Change(0, "ann", "paused", 0),
        Change(1, "bob", "up", 1),
        Change(1, "bob", "paused", 0),
    ]


def test_timer_is_caused_by_the_step_that_set_it() -> None:
    """WEB-3"""
    recorder, sim = recorded()
    sim.ask(ANN, Call(BOB, "hello"))
    sim.run(until=0.55)
    last = recorder.finished().steps[-1]
    assert (last.kind, last.name, last.cause, last.time) == ("wake", "Again", 2, 0.5)


def test_partition_is_recorded_with_the_message_that_it_cuts() -> None:
    """WEB-3"""
    recorder, sim = recorded()
    fronts = sim.partition([ANN], [BOB])
    sim.ask(ANN, Call(BOB, "hello"))
    sim.run(until=0.2)
    sim.repair(fronts)
    recording = recorder.finished()
    assert recording.faults == [
        Fault("partition", 0.0, ("ann",), ("bob",), both=True, amount=0.0, end=0.2)
    ]
    (message,) = recording.messages.values()
    assert (message.fate, message.left, message.due, message.got) == ("cut", 0.0, -1.0, NONE)


def test_held_message_leaves_when_its_link_is_repaired() -> None:
    """WEB-3"""
    recorder, sim = recorded()
    fronts = sim.hold([ANN], one_way=True)
    sim.ask(ANN, Call(BOB, "hello"))
    sim.run(until=0.2)
    assert [each.fate for each in recorder.recording.messages.values()] == ["held"]
    sim.repair(fronts)
    sim.run(until=0.35)
    message = recorder.finished().messages[0]
    assert message.fate == "got"
    assert message.left == 0.2
    assert message.due == pytest.approx(0.3)


def test_message_to_a_crashed_node_and_the_crash_are_recorded() -> None:
    """WEB-3"""
    recorder, sim = recorded()
    sim.ask(ANN, Call(BOB, "hello"))
    sim.run(until=0.05)
    sim.crash(BOB)
    sim.run(until=0.2)
    sim.restart(BOB)
    sim.pause(BOB)
    sim.resume(BOB)
    recording = recorder.finished()
    assert recording.messages[0].fate == "down"
    assert [(step.kind, step.cause) for step in recording.steps[3:]] == [
        ("crash", NONE),
        ("start", 3),
        ("pause", NONE),
        ("resume", NONE),
    ]
    assert [(each.key, each.value) for each in recording.changes[4:]] == [
        ("up", 0),
        ("paused", ""),
        ("up", 1),
        ("paused", 0),
        ("paused", 1),
        ("paused", 0),
    ]


def test_both_copies_of_a_duplicated_message_are_recorded() -> None:
    """WEB-3"""
    recorder, sim = recorded()
    sim.weather.set(duplication=1.0)
    sim.ask(ANN, Call(BOB, "hello"))
    sim.run(until=0.15)
    recording = recorder.finished()
    assert [each.fate for each in recording.messages.values()][:2] == ["got", "got"]
    assert [(each.kind, each.end) for each in recording.faults] == [("duplication", -1.0)]


def test_violation_is_explained_by_the_message_before_it() -> None:
    """WEB-3"""
    recorder, sim = recorded()
    sim.ask(ANN, Call(BOB, "hello"))
    sim.run(until=0.1)
    recorder.caught(Violation("bob must not answer"))
    violation = recorder.finished().violation
    assert violation is not None
    assert (violation.text, violation.step, violation.chain) == ("bob must not answer", 3, [2, 3])
    assert violation.related == [1]


def test_long_run_keeps_its_last_steps_and_the_state_before_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """WEB-3"""
    monkeypatch.setattr(recorders, "DROPPED_AT_ONCE", 10)
    recorder, sim = recorded(steps_max=20)
    for number in range(20):
        sim.call(0.01 * number, lambda: sim.ask(ANN, Call(BOB, "hello")))
    sim.run(until=0.4)
    recording = recorder.finished()
    assert (recording.first, len(recording.steps)) == (40, 22)
    assert recording.begin < recording.steps[0].time
    assert Change(40, "bob", "up", 1) in recording.changes
    assert all(each.got >= 40 or each.got == NONE for each in recording.messages.values())
    assert recording.notes == [
        f"The run is long: the first 40 steps, up to {recording.begin:.3f} s, were dropped. "
        "The state after them is kept."
    ]


@pytest.mark.long
@pytest.mark.parametrize("name", ["paxos", "chord", "broadcast"])
def test_recorded_run_has_the_same_trace(name: str) -> None:
    """WEB-3"""
    recorder = Recorder()
    plain = run(SCENARIOS[name], 3)
    seen = run(SCENARIOS[name], 3, make=recorder.simulation, caught=recorder.caught)
    recording = recorder.finished()
    assert (seen.trace, seen.events) == (plain.trace, plain.events)
    assert recording.next == len(recording.steps) > 100
    received = [step for step in recording.steps if step.kind == "receive"]
    assert all(step.cause >= 0 and step.message >= 0 for step in received)


@pytest.mark.long
def test_replicas_have_votes_roles_and_applied_slots() -> None:
    """WEB-3"""
    recorder = Recorder()
    run(SCENARIOS["paxos"], 3, make=recorder.simulation)
    recording = recorder.finished()
    keys = {each.key for each in recording.changes}
    assert {"role", "ballot", "leader", "applied", "chosen", "group"} <= keys
    assert "leader" in {each.value for each in recording.changes if each.key == "role"}
    applied = max(int(each.value or 0) for each in recording.changes if each.key == "applied")
    assert {vote.slot for vote in recording.votes} >= set(range(1, applied + 1))


def test_ring_has_positions_and_trees_have_parents() -> None:
    """WEB-3"""
    recorder = Recorder()
    run(SCENARIOS["scribe"], 1, 8, make=recorder.simulation)
    keys = {each.key for each in recorder.finished().changes}
    assert {"position", "successor", "predecessor", "tree topic 1"} <= keys
