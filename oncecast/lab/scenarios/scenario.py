"""A scenario of the simulator, and the outcome of running one seed."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any
from typing import Protocol as Interface

import msgspec

from oncecast.simulator.simulated import Simulation
from oncecast.simulator.step import Step
from oncecast.simulator.trace import Trace

Figures = dict[str, Any]


class Make(Interface):
    """Makes the simulation of a run."""

    def __call__(self, seed: int, *, trace: Trace | None = None) -> Simulation: ...


class Scenario(msgspec.Struct, frozen=True):
    """A named simulation. `play` builds the nodes, injects faults, checks, and returns figures.

    `draw` returns the settings that `play` draws from the seed, for the report of a violation.
    """

    name: str
    about: str
    nodes: int
    play: Callable[[Simulation, int], Figures]
    nodes_min: int = 2
    # Makes the settings from a seed and a number of nodes.
    draw: Callable[[int, int], msgspec.Struct] | None = None


class Outcome(msgspec.Struct, frozen=True):
    scenario: str
    seed: int
    nodes: int
    ok: bool
    violation: str
    trace: str  # the hash of the trace; equal runs have equal hashes
    events: int
    virtual_seconds: float
    seconds: float
    figures: Figures
    drawn: dict[str, Any] = {}  # a mutable default is safe, because a struct copies it

    @property
    def replay(self) -> str:
        """Return the command that replays this run step by step."""
        return f"oncecast sim replay {self.scenario} --nodes {self.nodes} --seed {self.seed}"


def run(
    scenario: Scenario,
    seed: int,
    nodes: int | None = None,
    *,
    show: Callable[[Step], None] | None = None,
    make: Make = Simulation,
    caught: Callable[[Exception], None] | None = None,
) -> Outcome:
    """Run one seed and return the outcome, which includes any violation or exception.

    A recorder passes its own simulation as `make`, and gets the exception through `caught`.
    """
    count = scenario.nodes if nodes is None else nodes
    assert count >= scenario.nodes_min, f"{scenario.name} needs at least {scenario.nodes_min} nodes"
    trace = Trace(show)
    sim = make(seed, trace=trace)
    figures: Figures = {}
    violation = ""
    began = perf_counter()
    try:
        figures = scenario.play(sim, count)
        sim.finish()
    except Exception as error:  # noqa: BLE001  # any exception of a protocol is a finding
        violation = f"{type(error).__name__}: {error}"
        if caught is not None:
            caught(error)
    return Outcome(
        scenario=scenario.name,
        seed=seed,
        nodes=count,
        ok=not violation,
        violation=violation,
        trace=trace.hash,
        events=sim.done,
        virtual_seconds=round(sim.now, 6),
        seconds=round(perf_counter() - began, 3),
        figures=figures,
        drawn=msgspec.to_builtins(scenario.draw(seed, count)) if scenario.draw else {},
    )
