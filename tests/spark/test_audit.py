"""PIPE-4 PIPE-6: the audit of traces names each fault, and raises no alarm for a legal history."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import pytest

from bench.spark.planted import FAULTS, write_planted
from oncecast.spark.audit.faults import MEANING, Fault
from oncecast.spark.audit.trace import AnyLine
from tests.spark.audit_cases import FAULTY, LEGAL, Case, Found, message, one, put, stored, text
from tests.spark.audit_here import audited

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def found(faults: list[Fault]) -> list[Found]:
    """Return the faults, each message on its own."""
    every: list[Found] = []
    for each in faults:
        offset, messages = each.about.get("offset"), each.about.get("messages", 1)
        offsets = [None] if offset is None else range(offset, offset + max(1, messages))
        every += [(each.fault, at) for at in offsets]
    return sorted(every, key=str)


def here(name: str, case: Case) -> list[Fault]:
    return audited({f"{name}/{file}": text(name, lines) for file, lines in case.files.items()})


@pytest.mark.parametrize("name", FAULTY)
def test_injected_fault_is_reported_with_a_line_that_proves_it(name: str) -> None:
    faults = here(name, FAULTY[name])
    assert found(faults) == sorted(FAULTY[name].faults, key=str)
    for each in faults:
        assert len(set(each.lines)) == len(each.lines) > 0
        assert {Path(line.file).parent.name for line in each.lines} == {name}


@pytest.mark.parametrize("name", LEGAL)
def test_legal_history_raises_no_alarm(name: str) -> None:
    assert here(name, LEGAL[name]) == []


def test_audit_cases_cover_every_fault() -> None:
    planted = {fault for case in FAULTY.values() for fault, _ in case.faults}
    assert planted == set(MEANING)
    assert min(len(FAULTY), len(LEGAL)) >= 40


def test_lost_message_is_proved_by_its_answer_and_the_next_delivery() -> None:
    (fault,) = here("lost", FAULTY["a message is lost"])
    assert [each.line for each in fault.lines] == [14, 9]
    assert fault.about == {
        "topic": "t", "subscription": "s", "producer": "p", "sequence": 2, "offset": 2,
    }  # fmt: skip
    proof = "lost/one.jsonl:14, lost/one.jsonl:9"
    assert str(fault) == f"topic t, subscription s, producer p, sequence 2, offset 2 ({proof})"


def test_gap_in_a_sequence_reports_the_number_of_missing_messages() -> None:
    case = Case(one(message(0), put(4), stored(4, 1)), ())
    (fault,) = here("gap", case)
    assert (fault.fault, fault.about["sequence"], fault.about["messages"]) == (
        "gap in a sequence", 1, 3,
    )  # fmt: skip


def test_message_stored_twice_is_proved_by_both_answers() -> None:
    (fault,) = here("twice", FAULTY["a message is stored twice"])
    assert [each.line for each in fault.lines] == [6, 5]


def test_invalid_line_is_quoted_with_the_reason() -> None:
    (fault,) = here("cut", FAULTY["a field has another type"])
    assert fault.about["why"] == "Expected `int`, got `str` - at `$.offset`"
    assert '"kind": "stored"' in fault.about["text"]


def test_file_without_an_end_can_be_declared_killed() -> None:
    name = "the tail is cut between two lines"
    files = {"one.jsonl": text(name, FAULTY[name].files["one.jsonl"])}
    assert found(audited(files)) == [("cut tail", None)]
    assert audited(files, killed=True) == []


def test_benchmark_trace_has_exactly_the_injected_faults() -> None:
    """`python -m bench.spark --only audit` does the same with ten million lines."""
    file = io.StringIO()
    write_planted(file, 320)
    faults = audited({"planted": file.getvalue().encode()})
    names = ("topic", "subscription", "offset")
    assert {(each.fault, *(each.about[name] for name in names)) for each in faults} == FAULTS
    assert len(faults) == len(FAULTS)


def test_audit_page_lists_every_fault_and_every_kind_of_line() -> None:
    page = Path("docs/audit.md").read_text()
    rows = re.findall(r"^\| ([a-z ]+) \| ([^|]*) \|$", page, re.MULTILINE)
    assert set(rows) - {("fault", "meaning")} == set(MEANING.items())
    kinds = {str(each.__struct_config__.tag) for each in get_args(AnyLine)}
    assert set(re.findall(r"^\| `([a-z]+)` \|", page, re.MULTILINE)) == kinds


@pytest.mark.long
def test_spark_finds_the_same_faults(spark: SparkSession, tmp_path: Path) -> None:
    """One job audits all cases, each as a separate run."""
    from oncecast.spark.audit.job import audit_traces

    cases, paths = FAULTY | LEGAL, []
    for name, case in cases.items():
        (tmp_path / name).mkdir()
        for file, lines in case.files.items():
            path = tmp_path / name / file
            path.write_bytes(text(name, lines))
            paths.append(str(path))
    report = audit_traces(spark, paths, examples=1000)
    by_case: dict[str, list[Fault]] = {}
    for each in report.faults:
        by_case.setdefault(Path(each.lines[0].file).parent.name, []).append(each)
    assert {name: found(faults) for name, faults in by_case.items()} == {
        name: sorted(case.faults, key=str) for name, case in FAULTY.items()
    }
    messages = sum(each.about.get("messages", 1) for each in report.faults)
    assert sum(report.counts.values()) == messages
    assert report.files == len(paths)
