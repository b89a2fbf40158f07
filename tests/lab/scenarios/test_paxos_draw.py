"""Storms of a replica group draw their options, and an undecided history fails a run."""

from __future__ import annotations

import pytest

from oncecast.lab.scenarios.draw import AHEAD, Draw, Shape, draw
from oncecast.lab.scenarios.histories import Histories
from oncecast.simulator.checkers import Violation
from oncecast.simulator.simulated import Simulation
from tests.history.making import put

DRAWN = [draw(seed, 3) for seed in range(300)]


def windows(drawn: list[Draw]) -> set[int]:
    return {options.window_slots for each in drawn for options in each.options}


def test_storms_with_sessions_draw_reordering_links_and_narrow_windows() -> None:
    """REP-1 SVC-2 SVC-3"""
    sessions = [each for each in DRAWN if each.sessions]
    assert {each.fifo for each in sessions} == {True, False}
    assert {1, 2, 3, 1024} <= windows(sessions)
    assert min(each.window_bytes for some in sessions for each in some.options) < 10


def test_floods_are_drawn_with_narrow_windows() -> None:
    """REP-1 REP-5"""
    floods = [each for each in DRAWN if each.load.shape is Shape.FLOOD]
    assert len(floods) > 30
    assert {1, 2, 1024} <= windows(floods)


def test_storms_draw_how_far_ahead_a_replica_accepts_slots() -> None:
    """REP-1"""
    assert {options.ahead_min for each in DRAWN for options in each.options} >= set(AHEAD)


def test_undecided_history_fails_the_run() -> None:
    """SVC-2"""
    histories = Histories(steps_max=1)
    histories.recorder.history += [
        put(number, 10.0, number, f"{number}", client=f"c{number}") for number in range(5)
    ]
    with pytest.raises(Violation, match="UNDECIDED: the search gave up after"):
        histories.finish(Simulation(0))


def test_some_storms_set_every_limit_to_its_minimum() -> None:
    """REP-1 REP-3"""
    least = [each for each in DRAWN for options in each.options if options.resend == 0.001]
    assert least
    for options in least[0].options:
        limits = (options.window_slots, options.window_bytes, options.accept_bytes)
        assert (*limits, options.piece_bytes) == (1, 1, 1, 1)
