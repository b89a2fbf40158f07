"""Test that each docs check detects its kind of fault."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from tools.check_docs import (
    REQUIREMENT,
    ROW,
    anchor,
    broken_links,
    machine_places,
    missing_from_site,
    undocumented,
    unknown_requirements,
    untypable,
    with_tests,
)


def page(folder: Path, text: str, name: str = "page.md") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(prog="oncecast")
    sim = root.add_subparsers().add_parser("sim").add_subparsers()
    run = sim.add_parser("run")
    run.add_argument("scenario")
    run.add_argument("--nodes", "-n", type=int)
    return root


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Exit codes", "exit-codes"),
        ("`sim run`", "sim-run"),
        ("SVC · the service", "svc--the-service"),
    ],
)
def test_heading_gets_the_expected_anchor(title: str, expected: str) -> None:
    assert anchor(title) == expected


@pytest.mark.parametrize("target", ["page.md", "#known", "page.md#known", "https://example.org/x"])
def test_valid_link_passes(tmp_path: Path, target: str) -> None:
    assert not list(broken_links([page(tmp_path, f"# Known\n[a]({target})\n")]))


@pytest.mark.parametrize("target", ["gone.md", "#gone", "page.md#gone"])
def test_broken_link_is_found(tmp_path: Path, target: str) -> None:
    assert len(list(broken_links([page(tmp_path, f"# Known\n[a]({target})\n")]))) == 1


def test_heading_inside_code_has_no_anchor(tmp_path: Path) -> None:
    text = "```sh\n# gone\n```\n[a](#gone)\n"
    assert len(list(broken_links([page(tmp_path, text)]))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "see /" + "home/ann/x",
        "(/" + "root)",
        'path = "/' + 'work/main"',
        "C:" + "\\Users\\ann",
        "https://pypi" + ".org/simple",
        "--index" + "-url x",
    ],
)
def test_machine_specific_path_is_found(tmp_path: Path, text: str) -> None:
    assert len(list(machine_places([page(tmp_path, f"\n{text}\n")]))) == 1


@pytest.mark.parametrize("text", ["docs/home.md", "https://example.org/home", "a/work/b", "and/or"])
def test_other_paths_are_allowed(tmp_path: Path, text: str) -> None:
    assert not list(machine_places([page(tmp_path, text)]))


def test_unknown_requirement_is_found(tmp_path: Path) -> None:
    known, unknown = "SVC-" + "1", "SVC-" + "99"
    found = list(unknown_requirements({known}, [page(tmp_path, f"{known} {unknown}")]))
    assert len(found) == 1
    assert unknown in found[0]


def test_requirements_list_the_tests_whose_docstrings_name_them(tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    tests.mkdir()
    ids = ["NET-" + digit for digit in "123"]
    page(
        tests,
        f'def test_a() -> None:\n    """{ids[0]} holds."""\n    x = "{ids[1]}"\n',
        "test_a.py",
    )
    page(tests, f'"""{ids[0]}"""\n', "test_b.py")
    rows = [f"| {name} | what | not yet |" for name in ids]
    assert with_tests("\n".join(rows), tests).splitlines() == [
        f"| {ids[0]} | what | [test_a.py](../tests/test_a.py), [test_b.py](../tests/test_b.py) |",
        *rows[1:],
    ]


def test_check_knows_every_requirement_on_the_page() -> None:
    page = Path("docs/requirements.md").read_text()
    ids = re.findall(r"^\| ([A-Z]+-\d+) ", page, re.MULTILINE)
    assert [row["id"] for row in ROW.finditer(page)] == ids
    assert REQUIREMENT.findall(" ".join(ids)) == ids


def test_command_without_a_section_is_found() -> None:
    assert list(undocumented(parser(), "# Commands\n")) == [
        "docs/cli.md: no heading `oncecast sim run`"
    ]


def test_option_must_be_documented_in_its_command_section() -> None:
    heading = "## `oncecast sim run`\n"
    assert not list(undocumented(parser(), heading + "`--nodes N`, `-n N`: how many\n"))
    assert len(list(undocumented(parser(), heading + "`-n N`\n## Others\n`--nodes`\n"))) == 1


def test_option_that_no_longer_exists_is_found() -> None:
    text = "## `oncecast sim run`\n`--nodes N`, `-n N`, `--gone`\n"
    assert list(undocumented(parser(), text)) == [
        "docs/cli.md: `oncecast sim run` has no option --gone"
    ]


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("oncecast sim run split --nodes 5", 0),
        ("oncecast sim run split | head", 0),
        ("oncecast sim --help", 0),
        ("oncecast sim run split --gone", 1),
        ("oncecast gone", 1),
        ("make test  # all of them", 0),
        ("make gone", 1),
        ("ls -l", 0),
    ],
)
def test_invalid_console_command_is_found(tmp_path: Path, line: str, count: int) -> None:
    console = page(tmp_path, f"```console\n$ {line}\noutput\n```\n")
    assert len(list(untypable(parser(), {"test"}, console))) == count


def test_page_missing_from_the_navigation_is_reported() -> None:
    pages = [Path("docs/api.md"), Path("docs/protocols/chord.md"), Path("README.md")]
    found = list(missing_from_site("nav:\n  - API: api.md\n", pages))
    assert found == ["docs/protocols/chord.md: not in the navigation of mkdocs.yml; add it"]
