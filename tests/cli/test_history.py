"""Test the output and exit status of `oncecast history check`."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from oncecast.cli.main import main
from oncecast.errors import ExitStatus
from oncecast.history import History
from oncecast.history.file import write
from tests.history.making import look, put, subscribed

FINE = [subscribed(0, 1), put(2, 3, 0, "a")]
STALE = look(4, 5, 0, client="bob")


def file_of(directory: Path, name: str, history: History) -> str:
    path = directory / name
    with path.open("wb") as file:
        write(history, file)
    return str(path)


def test_history_files_from_all_clients_are_checked_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """CLI-3"""
    ann, bob = file_of(tmp_path, "ann", FINE), file_of(tmp_path, "bob", [STALE])
    assert main(["history", "check", ann]) == ExitStatus.OK
    assert "linearizable" in capsys.readouterr().out
    assert main(["history", "check", ann, bob]) == ExitStatus.FAILURE
    assert "look of bob: the topic ends at 1, not at 0" in capsys.readouterr().out


def test_verdict_is_printed_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CLI-3"""
    both = file_of(tmp_path, "both", [*FINE, STALE])
    assert main(["history", "check", both, "--json"]) == ExitStatus.FAILURE
    verdict = msgspec.json.decode(capsys.readouterr().out)
    assert (verdict["ok"], verdict["operations"], verdict["objects"]) == (False, 3, 2)
    (broken,) = verdict["broken"]
    assert [each["kind"] for each in broken["operations"]] == ["put", "look"]


def test_undecided_check_fails_and_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fine = file_of(tmp_path, "fine", FINE)
    assert main(["history", "check", fine, "--steps", "1"]) == ExitStatus.FAILURE
    captured = capsys.readouterr()
    assert "UNDECIDED" in captured.out
    assert "raise --steps (now 1)" in captured.err


def test_unreadable_file_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other"
    other.write_text("hello\n")
    assert main(["history", "check", str(other)]) == ExitStatus.FAILURE
    assert f"{other}, line 1: not a JSON object" in capsys.readouterr().err
    assert main(["history", "check", str(tmp_path / "none")]) == ExitStatus.NOT_FOUND
    assert "No such file" in capsys.readouterr().err


def test_empty_history_does_not_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CLI-3: a run that recorded nothing must not pass as checked."""
    empty = tmp_path / "empty"
    empty.touch()
    assert main(["history", "check", str(empty)]) == ExitStatus.EMPTY
    captured = capsys.readouterr()
    assert (captured.out, "the files contain no operations" in captured.err) == ("", True)
    assert main(["history", "check", str(empty), "--json"]) == ExitStatus.EMPTY
    verdict = msgspec.json.decode(capsys.readouterr().out)
    assert (verdict["ok"], verdict["operations"]) == (False, 0)
    assert main(["history", "check", str(empty), file_of(tmp_path, "fine", FINE)]) == ExitStatus.OK


def test_duplicate_file_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CLI-3: the operations would contradict each other."""
    fine = file_of(tmp_path, "fine", FINE)
    again = f"{tmp_path}/./fine"
    assert main(["history", "check", fine, again]) == ExitStatus.USAGE
    assert "fine: listed twice; list each file once" in capsys.readouterr().err


def test_directory_instead_of_a_history_file_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", "check", str(tmp_path)]) == ExitStatus.FAILURE
    assert "Is a directory" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["check"], ["check", "file", "--steps", "0"]])
def test_usage_error_has_exit_status_2(words: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["history", *words])
    assert end.value.code == ExitStatus.USAGE
