"""CLI-3: `oncecast sim papers` prints result tables and failed checks."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from oncecast.cli.main import main
from oncecast.errors import ExitStatus
from oncecast.lab.papers.catalogue import PAPERS
from oncecast.lab.papers.tables import Experiment, Must, Table


def tables(experiment: Experiment) -> Iterator[Table]:
    experiment.say("measuring")
    yield Table("nodes", ("figure", "paper", "ours"), (("nodes", None, experiment.nodes),))
    must = Must("it is small", (experiment.nodes or 0) < 100)
    yield Table("size", ("figure", "ours"), (("path", 6.38512),), (must,), ("as found",))


@pytest.fixture(autouse=True)
def paper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PAPERS, "example", tables)


def test_tables_are_printed_as_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("sim", "papers", "--only", "example", "--nodes", "50")) == ExitStatus.OK
    out, err = capsys.readouterr()
    assert "| figure | paper | ours |\n|--------|-------|------|\n| nodes  |       | 50   |" in out
    assert "| path   | 6.3851 |" in out
    assert "- holds: it is small\n- as found" in out
    assert err == "oncecast: measuring\n"


def test_failed_check_sets_the_exit_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("sim", "papers", "--only", "example", "--nodes", "1000", "--seed", "3", "--json")
    assert main(words) == ExitStatus.FAILURE
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["paper"], first["seed"], first["rows"]) == ("example", 3, [["nodes", None, 1000]])
    assert second["must"] == [{"text": "it is small", "holds": False}]


def test_unknown_paper_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(("sim", "papers", "--only", "nonsense"))
    assert end.value.code == ExitStatus.USAGE
    assert ", ".join(PAPERS) in capsys.readouterr().err
