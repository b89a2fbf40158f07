"""Test that the prose check finds banned patterns, and only in prose."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_docs import ROOT
from tools.check_prose import files, hits, main, passages

BANNED = Path(__file__).with_name("banned_prose.txt").read_text().splitlines()


def found(folder: Path, name: str, text: str) -> list[str]:
    file = folder / name
    file.write_text(text)
    return [hit.found for passage in passages(file, folder) for hit in hits(passage)]


@pytest.mark.parametrize("text", BANNED)
def test_banned_sentence_is_found_in_each_kind_of_text(text: str, tmp_path: Path) -> None:
    assert found(tmp_path, "page.md", f"# Title\n\n{text}\n")
    assert found(tmp_path, "module.py", f'"""{text}"""\n')
    assert found(tmp_path, "comment.py", f"x = 1  # {text}\n")
    if text.count(" ") > 1:
        assert found(tmp_path, "message.py", f'error = "{text}"\n')


def test_docstring_that_does_not_start_with_a_verb_is_found(tmp_path: Path) -> None:
    assert found(tmp_path, "noun.py", 'def f():\n    """The next message."""\n')
    assert not found(tmp_path, "verb.py", 'def f():\n    """Return the next message."""\n')


def test_sentence_with_more_than_25_words_is_found(tmp_path: Path) -> None:
    assert not found(tmp_path, "short.md", "word " * 24 + "word.\n")
    assert found(tmp_path, "long.md", "word " * 25 + "word.\n")


def test_banned_word_in_a_test_name_is_found(tmp_path: Path) -> None:
    name = BANNED[0].replace(" ", "_")
    assert found(tmp_path, "test_name.py", f"def test_{name}(): ...\n") == [BANNED[0].split()[0]]


def test_code_and_listings_are_not_prose(tmp_path: Path) -> None:
    banned = BANNED[0]
    text = f"Run `{banned}`:\n\n```console\n$ {banned}\n```\n\n    {banned}\n\nDone.\n"
    assert not found(tmp_path, "page.md", text)


def test_html_and_table_columns_are_not_prose(tmp_path: Path) -> None:
    columns = ", ".join(f"column{number} string" for number in range(20))
    page = f"<p class='text'>{'word ' * 30}</p>"
    assert not found(tmp_path, "code.py", f'page = "{page}"\ncolumns = "{columns}"\n')
    assert found(tmp_path, "prose.py", f'help = "{"word " * 25}<name>"\n')


def test_check_reports_file_line_and_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["README.md"]) == 0
    assert ROOT / "README.md" in files([])
    file = tmp_path / "module.py"
    file.write_text(f'"""First line.\n\n{BANNED[2]}\n"""\n')
    (hit,) = (hit for passage in passages(file, tmp_path) for hit in hits(passage))
    assert str(hit).startswith("module.py:1: ")
    assert str(hit).endswith("name the subject: client, process, leader, reader, caller, node")
