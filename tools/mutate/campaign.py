"""Try each mutant in a fork of this process: run the tests that reach it until one fails.

pytest collects the tests once, in the parent. Every mutant runs in its own child process.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tools.mutate import selection
from tools.mutate.children import Child, Outcome, Tell, limit_processor_time, run, run_one
from tools.mutate.operators import Mutant
from tools.mutate.planting import functions, plant
from tools.mutate.selection import Selection, file_digest
from tools.mutate.sources import Source

KILLED, TIMED_OUT, EQUIVALENT, SURVIVED = "killed", "timed out", "equivalent", "survived"
SLACK = 20.0  # a test may take this many times as long as usual
SEEDS = 3  # maximum number of seeds for a long test
SHORTEST = 1.0  # seconds of processor time that each test may take
WALL = 6.0  # ratio of elapsed time to processor time on a busy machine


@dataclass
class Verdict:
    """The result of one mutant."""

    mutant: Mutant
    status: str
    test: str = ""  # the test that detected the mutant, or did not end
    why: str = ""
    tests: int = 0  # number of tests that reach the mutant

    def as_dict(self) -> dict[str, Any]:
        mutant = self.mutant
        return {
            "id": mutant.id,
            "line": mutant.line,
            "operator": mutant.operator,
            "before": mutant.before,
            "after": mutant.after,
            "status": self.status,
            "test": self.test,
            "why": self.why,
            "tests": self.tests,
        }


@dataclass
class Plan:
    """The input of a campaign."""

    mutants: list[Mutant]
    sources: list[Source]
    reasons: dict[str, str]  # mutant id -> reason why the mutant is equivalent
    folder: Path  # folder with measurements of earlier campaigns
    jobs: int = 1
    budget: float = 40.0  # seconds of processor time for one mutant
    fresh: bool = False  # whether to measure all tests again
    report: Path | None = None  # file for the verdicts, one JSON line each
    verdicts: list[Verdict] = field(default_factory=list)


class Campaign:
    """A pytest plugin that runs a plan instead of the tests."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.sources = {source.file: source for source in plan.sources}
        self.items: dict[str, pytest.Item] = {}
        self.trusted: dict[str, bool] = {}  # test -> whether it passes alone, without a mutant
        self._killers_file = plan.folder / "killers.json"
        self.killers: dict[str, str] = {}  # the last test that detected each mutant

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Failed("the tests cannot be collected")
        self.config = session.config
        if self.plan.report is not None:
            self.plan.report.unlink(missing_ok=True)
        self.items = {item.nodeid: item for item in _few_seeds(session.items)}
        self.temporary = self.plan.folder / "tmp"
        shutil.rmtree(self.temporary, ignore_errors=True)
        self.temporary.mkdir(parents=True)
        if self._killers_file.exists():
            self.killers = json.loads(self._killers_file.read_text())
        self.functions = functions()
        gc.collect()
        gc.freeze()  # child processes share all objects that exist now
        self.selection = Selection(self.plan.sources, self._measured())
        try:
            self._try_all()
        finally:
            self._killers_file.write_text(json.dumps(self.killers, indent=0))
            shutil.rmtree(self.temporary, ignore_errors=True)
        return True

    # -- measuring --

    def _measured(self) -> dict[str, selection.Measured]:
        """Return the lines that each test reaches, one test file at a time."""
        measured: dict[str, selection.Measured] = {}
        names: dict[Path, list[str]] = {}
        for name, item in self.items.items():
            names.setdefault(item.path, []).append(name)
        for file, tests in names.items():
            kept = self.plan.folder / "reach" / ("-".join(file.parts[-2:]) + ".json")
            digest = file_digest(file)
            known = {} if self.plan.fresh else selection.load(kept)
            due = selection.outdated(known, tests, digest)
            if due:
                print(f"measuring what {file.name} reaches", file=sys.stderr, flush=True)
                work = partial(self._measure, due, digest, kept)
                outcome = run_one(work, wall=WALL * selection.SLOWEST * len(due))
                if not outcome.said.get("measured"):
                    error = outcome.said.get("error", outcome)
                    raise RuntimeError(f"measuring {file} ended early: {error}")
                known = selection.load(kept)
            measured.update((name, known[name]) for name in tests)
        return measured

    def _measure(self, due: list[str], digest: str, kept: Path, tell: Tell) -> None:
        self._use_folder("measuring")

        def passes(name: str) -> bool:
            return failure(self.items[name]) is None

        selection.save(kept, selection.measure(due, passes, self.plan.sources, digest))
        tell(measured=True)

    # -- trying --

    def _try_all(self) -> None:
        open_ones: list[Mutant] = []
        for mutant in self.plan.mutants:
            if mutant.id in self.plan.reasons:
                reason = self.plan.reasons[mutant.id]
                self._note(Verdict(mutant, EQUIVALENT, why=reason))
            elif not self.selection.reaching(mutant):
                self._note(Verdict(mutant, SURVIVED, why="no test reaches it"))
            else:
                open_ones.append(mutant)
        while open_ones:
            open_ones = list(self._try(open_ones))

    def _try(self, mutants: list[Mutant]) -> Iterator[Mutant]:
        """Try each mutant once. Yield the mutants whose test also fails without them."""
        trials: dict[int, tuple[Mutant, list[str]]] = {}

        def children() -> Iterator[Child]:
            for mutant in mutants:
                tests = self._order(mutant)
                work = partial(self._try_in_child, mutant, tests)
                child = Child(work, wall=WALL * (self.plan.budget + SLACK))
                trials[child.pid] = mutant, tests
                yield child

        for child in run(children(), self.plan.jobs):
            mutant, tests = trials.pop(child.pid)
            shutil.rmtree(self.temporary / str(child.pid), ignore_errors=True)
            verdict = _verdict(mutant, child.outcome, len(tests))
            if verdict.test and not self._passes_alone(verdict.test):
                yield mutant
                continue
            if verdict.test:
                self.killers[mutant.id] = verdict.test
            self._note(verdict)

    def _order(self, mutant: Mutant) -> list[str]:
        """Put tests first that once detected this mutant, or another mutant of its function."""
        tests = [each for each in self.selection.reaching(mutant) if self.trusted.get(each, True)]
        likely = {
            verdict.test: None
            for verdict in reversed(self.plan.verdicts)
            if verdict.mutant.unit is mutant.unit and verdict.test
        }
        first = [self.killers.get(mutant.id, ""), *list(likely)[:3]]
        chosen = [each for each in dict.fromkeys(first) if each in tests]
        return [*chosen, *(each for each in tests if each not in chosen)]

    def _try_in_child(self, mutant: Mutant, tests: list[str], tell: Tell) -> None:
        self._use_folder()
        plant(mutant, self.sources[mutant.unit.file], self.functions)
        began = time.process_time()
        for name in tests:
            usual = self.selection.tests[name].seconds
            if time.process_time() - began + usual > self.plan.budget:
                tell(why=f"not tried within {self.plan.budget:.0f} s: {name} and slower tests")
                break
            tell(test=name)
            limit_processor_time(max(SHORTEST, SLACK * usual))
            failed = failure(self.items[name])
            if failed is not None:
                tell(failure=failed)
                return
        tell(survived=True)

    def _passes_alone(self, name: str) -> bool:
        if name not in self.trusted:

            def work(tell: Tell) -> None:
                self._use_folder("alone")
                tell(passed=failure(self.items[name]) is None)

            outcome = run_one(work, wall=600.0)
            self.trusted[name] = outcome.said.get("passed", False)
        return self.trusted[name]

    def _use_folder(self, name: str = "") -> None:
        folder = self.temporary / (name or str(os.getpid()))
        folder.mkdir(exist_ok=True)
        self.config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]

    def _note(self, verdict: Verdict) -> None:
        self.plan.verdicts.append(verdict)
        if self.plan.report is not None:
            with self.plan.report.open("a") as report:
                report.write(json.dumps(verdict.as_dict()) + "\n")
        done, total = len(self.plan.verdicts), len(self.plan.mutants)
        left = sum(each.status == SURVIVED for each in self.plan.verdicts)
        what = f"{done}/{total}, {left} survived"
        if sys.stderr.isatty():
            print(f"\r\033[K{what}  {verdict.mutant.id}", end="", file=sys.stderr, flush=True)
        elif done % 50 == 0 or done == total:
            print(what, file=sys.stderr, flush=True)


def failure(item: pytest.Item) -> str | None:
    """Run a test and return how it failed, or None if it passed."""
    if isinstance(item, pytest.Function) and _plain(item):
        return _failure_of_call(item)
    for report in runtestprotocol(item, log=False, nextitem=None):
        if report.failed:
            lines = report.longreprtext.splitlines() or [""]
            return lines[-1][:200]
    return None


def _plain(item: pytest.Function) -> bool:
    """Return whether a test is a function that needs only its parameters from pytest.

    Calling such a test takes microseconds; the hooks around a test take milliseconds.
    """
    marks = {mark.name for mark in item.iter_markers()}
    return (
        item.cls is None
        and marks <= {"parametrize", "long", "hypothesis"}
        and set(item.fixturenames) <= set(_parameters(item))
    )


def _parameters(item: pytest.Function) -> dict[str, Any]:
    spec = getattr(item, "callspec", None)
    return {} if spec is None else spec.params


def _failure_of_call(item: pytest.Function) -> str | None:
    try:
        item.obj(**_parameters(item))
    except pytest.skip.Exception:
        return None
    except BaseException as error:  # noqa: BLE001  # whatever a mutant brings about
        return f"{type(error).__name__}: {error}"[:200]
    return None


def _few_seeds(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Keep only the first few seeds of a long test, because such tests are slow."""
    seen: dict[str, int] = {}
    for item in items:
        spec = getattr(item, "callspec", None)
        storm = spec is not None and all(isinstance(each, int) for each in spec.params.values())
        if item.get_closest_marker("long") and storm:
            test = item.nodeid.partition("[")[0]
            seen[test] = seen.get(test, 0) + 1
            if seen[test] > SEEDS:
                continue
        yield item


def _verdict(mutant: Mutant, outcome: Outcome, tests: int) -> Verdict:
    said = outcome.said
    if outcome.timed_out:
        return Verdict(mutant, TIMED_OUT, said.get("test", ""), "", tests)
    if said.get("survived"):
        return Verdict(mutant, SURVIVED, "", said.get("why", ""), tests)
    if "error" in said:  # the mutant could not be planted, or the tool itself is at fault
        raise RuntimeError(f"{mutant.id}: {said['error']}")
    why = said.get("failure") or f"the process was killed by signal {outcome.signal}"
    return Verdict(mutant, KILLED, said.get("test", ""), why, tests)
