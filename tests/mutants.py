"""Mutants: the program with one rule removed, which a test must detect.

A suite is a file `test_*mutants.py` with a list MUTANTS. `make mutants` runs all suites and prints
which test detected each mutant.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest

Plant = Callable[[pytest.MonkeyPatch], None]
Detector = Callable[[int], object]  # runs a seed and raises an error if it detects the mutant

ANNOTATIONS = annotations.compiler_flag  # the same as in the file that a mutant comes from
# Raised by a mutant that no longer fits the program: it breaks more than one rule.
UNFIT = (AttributeError, ImportError, NameError, TypeError)


class Mutant(NamedTuple):
    rule: str  # the removed rule
    plant: Plant
    detector: Detector
    seeds: int  # seeds are tried starting at 0
    known: tuple[int, ...] = ()  # seeds that detect it, tried first

    def __str__(self) -> str:
        return self.rule


class Detection(NamedTuple):
    """The first seed that detected a mutant, the number of runs it took, and the error."""

    seed: int
    runs: int
    error: BaseException


def detect(mutant: Mutant) -> Detection | None:
    """Run the seeds until one detects the mutant; return None if none does."""
    with pytest.MonkeyPatch.context() as patch:
        mutant.plant(patch)
        for runs, seed in enumerate((*mutant.known, *range(mutant.seeds)), 1):
            try:
                mutant.detector(seed)
            except UNFIT:
                raise
            except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  # any failure counts
                return Detection(seed, runs, error)
    return None


def assert_detected(mutant: Mutant) -> None:
    assert detect(mutant) is not None, f"{mutant.rule}: not detected in {mutant.seeds} runs"


def exact(test: Callable[..., None]) -> Detector:
    """Return a detector that runs one test. The test gets a directory if it needs one."""

    def detector(seed: int) -> None:
        if "tmp_path" in inspect.signature(test).parameters:
            with TemporaryDirectory() as path:
                test(Path(path))
        else:
            test()

    detector.__name__ = test.__name__
    return detector


def replaced(owner: Any, name: str, rule: str, replacement: str) -> Plant:
    """Return a mutant that replaces a piece of text in one function."""
    return lambda patch: patch.setattr(owner, name, _changed(owner, name, rule, replacement))


def both(*plants: Plant) -> Plant:
    """Return a mutant without several rules, each of which hides that another one is missing."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        for each in plants:
            each(patch)

    return plant


def _changed(owner: Any, name: str, rule: str, replacement: str) -> Any:
    function = getattr(owner, name)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(rule) == 1, f"{rule!r} must occur once in {name}; update the mutant"
    changed: dict[str, Any] = {}
    names = vars(sys.modules[function.__module__])
    code = compile(source.replace(rule, replacement), "mutant", "exec", ANNOTATIONS)
    exec(code, names, changed)
    return changed[name]
