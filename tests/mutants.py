"""Mutants: the program without one of its rules, which some test must notice.

A suite is a file `test_*mutants.py` with a list MUTANTS; `make mutants` runs them all and prints
who noticed what.
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
Story = Callable[[int], object]  # of a seed; it raises what it notices

ANNOTATIONS = annotations.compiler_flag  # as in the file that a mutant comes from
# What a mutant raises that no longer fits the program: it has broken more than a rule.
UNFIT = (AttributeError, ImportError, NameError, TypeError)


class Mutant(NamedTuple):
    rule: str  # that is taken away
    plant: Plant
    story: Story
    seeds: int  # tried from 0 on
    known: tuple[int, ...] = ()  # seeds that notice it, tried first

    def __str__(self) -> str:
        return self.rule


class Notice(NamedTuple):
    """The first seed that noticed, how many were tried by then, and how it noticed."""

    seed: int
    runs: int
    error: BaseException


def notice(mutant: Mutant) -> Notice | None:
    """None if it went unnoticed."""
    with pytest.MonkeyPatch.context() as patch:
        mutant.plant(patch)
        for runs, seed in enumerate((*mutant.known, *range(mutant.seeds)), 1):
            try:
                mutant.story(seed)
            except UNFIT:
                raise
            except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  # any failure counts
                return Notice(seed, runs, error)
    return None


def must_be_noticed(mutant: Mutant) -> None:
    assert notice(mutant) is not None, f"{mutant.rule}: unnoticed in {mutant.seeds} runs"


def exact(test: Callable[..., None]) -> Story:
    """Return a story that is one test, which may want a directory of its own."""

    def story(seed: int) -> None:
        if "tmp_path" in inspect.signature(test).parameters:
            with TemporaryDirectory() as path:
                test(Path(path))
        else:
            test()

    story.__name__ = test.__name__
    return story


def replaced(owner: Any, name: str, rule: str, replacement: str) -> Plant:
    """A mutant by a change of text within one function."""
    return lambda patch: patch.setattr(owner, name, _changed(owner, name, rule, replacement))


def _changed(owner: Any, name: str, rule: str, replacement: str) -> Any:
    function = getattr(owner, name)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(rule) == 1, f"{rule!r} is not once in {name}; renew the mutant"
    changed: dict[str, Any] = {}
    names = vars(sys.modules[function.__module__])
    code = compile(source.replace(rule, replacement), "mutant", "exec", ANNOTATIONS)
    exec(code, names, changed)
    return changed[name]
