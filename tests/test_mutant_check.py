"""`make check` finds mutants whose code no longer exists."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from oncecast.client.session.acks import Acks
from tests.mutants import Mutant, exact, replaced
from tools import check_mutants
from tools.check_docs import ROOT
from tools.check_mutants import main, problems


def rule() -> None: ...


def suite(monkeypatch: pytest.MonkeyPatch, *mutants: Mutant) -> str:
    module = ModuleType("broken_suite")
    module.MUTANTS = list(mutants)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module.__name__


def test_mutant_that_fits_is_planted_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Acks.call
    mutant = Mutant("fits", replaced(Acks, "call", "self.due = NEVER", "pass"), exact(rule), 1)
    assert list(problems([suite(monkeypatch, mutant)])) == []
    assert Acks.call is before


@pytest.mark.parametrize(("name", "text"), [("renamed", "x"), ("call", "text that has changed")])
def test_mutant_whose_code_no_longer_exists_is_a_problem(
    name: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant = Mutant("gone", replaced(Acks, name, text, "pass"), exact(rule), 1)
    (problem,) = problems([suite(monkeypatch, mutant)])
    assert problem.startswith("broken_suite: 'gone' does not fit the program: ")


def test_suite_that_cannot_be_loaded_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check_mutants, "suites", lambda words: ["no_such_suite"])
    assert main() == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("no_such_suite: cannot be loaded: ")
    assert lines[1] == "Mutants: 1 problem."


def test_suite_without_mutants_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(problems([suite(monkeypatch)])) == ["broken_suite: has no mutants"]


def test_make_check_runs_the_check() -> None:
    assert "-m tools.check_mutants" in (ROOT / "Makefile").read_text()
