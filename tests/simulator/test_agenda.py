"""NET-1: events are processed in exact chronological order."""

from __future__ import annotations

from random import Random

import pytest

from oncecast.simulator.agenda import Agenda


def test_events_are_ordered_by_time_and_then_by_insertion_order() -> None:
    agenda, seen = Agenda(), []
    rng = Random(7)
    times = [rng.choice([0.0, 0.0005, 0.001, 0.0010001, 0.5, 3.0]) for _ in range(500)]
    for age, time in enumerate(times):
        agenda.at(time, lambda time, age: seen.append((time, age)), time, age)
    agenda.run(until=10.0)
    assert seen == sorted((time, age) for age, time in enumerate(times))
    assert agenda.done == 500
    assert len(agenda) == 0


def test_new_events_are_sorted_among_pending_events() -> None:
    agenda, seen = Agenda(), []

    def note(name: str, after: float) -> None:
        seen.append((name, agenda.now))
        if after:
            agenda.at(agenda.now + after, note, f"{name}'", 0.0)

    agenda.at(0.0001, note, "a", 0.0002)
    agenda.at(0.0004, note, "c", 0.0)
    agenda.at(0.0002, note, "b", 0.0)
    agenda.run(until=1.0)
    assert [name for name, _ in seen] == ["a", "b", "a'", "c"]


def test_run_can_stop_and_continue_within_a_bucket() -> None:
    agenda, seen = Agenda(), []
    for time in (0.0011, 0.0019, 0.0015):
        agenda.at(time, lambda time, _: seen.append(time), time, None)
    agenda.run(until=0.0015)
    assert seen == [0.0011, 0.0015]
    assert agenda.now == 0.0015
    agenda.at(0.0017, lambda time, _: seen.append(time), 0.0017, None)
    agenda.run(until=0.002)
    assert seen == [0.0011, 0.0015, 0.0017, 0.0019]


class Improviser:
    """Schedules random events, some from within others, and records their order."""

    def __init__(self, rng: Random) -> None:
        self.rng, self.agenda = rng, Agenda()
        self.planned: list[tuple[float, int]] = []
        self.seen: list[tuple[float, int]] = []

    def plan(self, time: float) -> None:
        self.planned.append((time, len(self.planned)))
        self.agenda.at(time, self.act, *self.planned[-1])

    def act(self, time: float, age: int) -> None:
        assert self.agenda.now == time
        self.seen.append((time, age))
        if self.rng.random() < 0.5 and len(self.planned) < 300:
            self.plan(time + self.rng.choice([0.0, 1e-5, 1e-3, 0.1]))


def test_random_runs_agree_with_a_sorted_list() -> None:
    rng = Random(3)
    for _ in range(50):
        improviser = Improviser(rng)
        for _ in range(30):
            improviser.plan(rng.random() * 0.01)
        until = 0.0
        while len(improviser.agenda):
            until += rng.random() * 0.05
            improviser.agenda.run(until)
        assert improviser.seen == sorted(improviser.planned)


def test_event_in_the_past_is_rejected() -> None:
    agenda = Agenda()
    agenda.run(until=1.0)
    with pytest.raises(AssertionError, match="the past"):
        agenda.at(0.5, lambda _, __: None, None, None)
