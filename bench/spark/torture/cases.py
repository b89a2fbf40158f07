"""Run the faults that a query must survive, or that must end it with a clear error."""

from __future__ import annotations

import itertools
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench.peers.peer import Failed
from bench.spark.torture.pipeline import CLEAR, Driver, Findings, Pipeline
from bench.spark.torture.processes import wait

MOMENTS = ("published", "planned", "committed", "any")
Say = Callable[[str], None]


class Kills(NamedTuple):
    """How many processes of each kind to kill."""

    drivers: int
    executors: int
    nodes: int

    def half(self, second: bool) -> Kills:
        return Kills(*((each + (not second)) // 2 for each in self))

    def due(self, life: int) -> Kills:
        """Return the kills during one run of the driver, spread evenly over all runs."""
        lives = max(self)
        return Kills(*(each * (life + 1) // lives - each * life // lives for each in self))


def killed(pipeline: Pipeline, kills: Kills, until: float, say: Say) -> Kills:
    """Kill up to `kills` processes at various moments, until the time is over. Return counts."""
    done, moments = Kills(0, 0, 0), itertools.cycle(MOMENTS)
    for life in range(max(kills)):
        if time.monotonic() > until:
            break
        due, moment = kills.due(life), next(moments)
        pipeline.feed()
        if pipeline.driver is None:
            pipeline.start()
        if due.executors:
            pipeline.wait_for_results()
            pipeline.kill_executor()
            pipeline.feed()
        if due.nodes:
            pipeline.wait_for_results()
            pipeline.nodes.kill(leader=done.nodes % 2 == 0)
            pipeline.feed()
        if due.drivers:
            pipeline.wait_for(moment)
            pipeline.kill()
        done = Kills(*(before + new for before, new in zip(done, due, strict=True)))
        say(
            f"{pipeline.name}: killed {done.drivers} drivers (last one: {moment}), "
            f"{done.executors} executors, {done.nodes} nodes; {pipeline.put} messages put"
        )
    return done


def zombie(pipeline: Pipeline) -> list[Driver]:
    """Pause a driver, start another one on the same checkpoint, and resume the first one."""
    pipeline.feed()
    first = pipeline.launch(pipeline.checkpoint)
    pipeline.wait_for_results()
    first.signal(signal.SIGSTOP)
    pipeline.feed()
    second = pipeline.launch(pipeline.checkpoint)
    pipeline.wait_for_results()
    first.signal(signal.SIGCONT)
    return [first, second]


def restored(pipeline: Pipeline) -> list[Driver]:
    """Continue from a copy of the checkpoint that is some batches old."""
    older = aged(pipeline)
    pipeline.feed()
    pipeline.finish()
    return [pipeline.launch(older)]


def cloned(pipeline: Pipeline) -> list[Driver]:
    """Continue from a copy of the checkpoint while the query runs."""
    clone = aged(pipeline)
    original = pipeline.launch(pipeline.checkpoint)
    return [original, pipeline.launch(clone)]


def aged(pipeline: Pipeline) -> Path:
    """Run the query for a while, and return a copy of its checkpoint."""
    pipeline.feed()
    pipeline.finish()
    copy = pipeline.directory / "copy"
    shutil.copytree(pipeline.checkpoint, copy)
    return copy


CASES: dict[str, Callable[[Pipeline], list[Driver]]] = {
    "zombie": zombie,
    "restored": restored,
    "cloned": cloned,
}


def played(pipeline: Pipeline, case: str) -> Findings:
    """Run a case until a query ends with a clear error. Then stop the other drivers, and finish."""
    drivers = CASES[case](pipeline)

    def ended() -> bool:
        pipeline.feed(10)  # a query notices the change only when messages arrive
        return any(each.ended is not None for each in drivers)

    wait(f"the end of a query of case {case} (see {pipeline.directory})", ended, 1.0)
    for each in drivers:
        if each.ended is not None:
            pipeline.ended[each.ended or "complete"] += 1
        each.end()
    unclear = pipeline.ended.keys() - CLEAR
    if unclear:
        raise Failed(f"{case}: a query ended with {', '.join(unclear)}; see {pipeline.directory}")
    return pipeline.finish()
