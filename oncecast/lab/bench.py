"""Measure the simulator's speed with the shuffle scenario."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

from oncecast.lab.scenarios.shuffle import populate
from oncecast.simulator.simulated import Simulation
from oncecast.simulator.trace import Trace

WARM_UP = 3.0  # virtual seconds until the views are full
EVENTS = 120_000  # number of events to measure in each run


def measure(nodes: int, repeat: int, progress: Callable[[], None]) -> dict[str, Any]:
    plain: list[float] = []
    traced: list[float] = []
    events = 0.0
    for _ in range(repeat):
        for rates, trace in ((plain, None), (traced, Trace())):
            rate, events = one_run(nodes, trace)
            rates.append(rate)
            progress()
    return {
        "nodes": nodes,
        "events_per_node_second": round(events, 2),
        "events_per_second": round(median(plain) * nodes * events),
        "times_real_time": round(median(plain), 2),
        "times_real_time_best": round(max(plain), 2),
        "times_real_time_worst": round(min(plain), 2),
        "times_real_time_traced": round(median(traced), 2),
        "runs": repeat,
    }


def one_run(nodes: int, trace: Trace | None) -> tuple[float, float]:
    """Return the virtual seconds per real second, and the events per node per virtual second."""
    sim = Simulation(1, trace=trace)
    populate(sim, nodes)
    sim.run(until=WARM_UP)
    seconds = max(1.0, EVENTS / 6 / nodes)
    before = sim.done
    began = perf_counter()
    sim.run(until=WARM_UP + seconds)
    took = perf_counter() - began
    return seconds / took, (sim.done - before) / nodes / seconds
