"""Check that the documentation matches the code. `make check` runs it; `--write` updates tables.

links         relative links and their anchors exist
paths         no file contains a path on a developer's machine or the address of a package index
requirements  every requirement id exists, and docs/requirements.md lists the tests that name it
commands      docs/cli.md describes each command and option, and no others
console       the commands in `console` blocks can be parsed
site          each page in docs/ is in the navigation of mkdocs.yml
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from oncecast.cli.main import build_parser
from tools.error_page import with_errors

ROOT = Path(__file__).resolve().parent.parent

REQUIREMENT = re.compile(r"\b(?:SVC|NET|REP|CLI|DDS|EXP|PIPE|WRK|TXN|PART|KAF|SEC|OPS|WEB)-\d+\b")
ROW = re.compile(r"^\| (?P<id>[A-Z]+-\d+) \| (?P<text>.*?) \| (?P<tests>.*?) \|$", re.MULTILINE)
NOT_YET = "not yet"

FENCE = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (?P<title>.+)$", re.MULTILINE)
LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
PLACE = re.compile(
    r"(?<![\w.)}>-])/(?:root|home|work|Users)\b|[a-z]:\\users"
    r"|pypi\.org|pythonhosted\.org|--(?:extra-)?index-url|file:/{3}",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int  # number of its first line, counted from 1


def prose(page: str) -> str:
    """Return the page without its code."""
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", page))


def blocks(page: str) -> list[Block]:
    return [
        Block(match["language"], match["text"], page.count("\n", 0, match.start("text")) + 1)
        for match in FENCE.finditer(page)
    ]


def anchor(title: str) -> str:
    """Return the anchor of a heading: lower case, no punctuation, hyphens for spaces."""
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")


def broken_links(pages: Sequence[Path]) -> Iterator[str]:
    for page in pages:
        for match in LINK.finditer(prose(page.read_text())):
            path, _, fragment = match["target"].partition("#")
            if "://" in path or path.startswith("mailto:"):
                continue
            target = page.parent / path if path else page
            if not target.exists():
                yield f"{page}: link to {path}, which does not exist; correct it"
            elif fragment and fragment not in anchors(target):
                yield f"{page}: link to {match['target']}, which has no such heading; correct it"


def anchors(page: Path) -> list[str]:
    headings = HEADING.finditer(FENCE.sub("", page.read_text()))
    return [anchor(match["title"]) for match in headings]


def machine_places(files: Sequence[Path]) -> Iterator[str]:
    for file in files:
        try:
            text = file.read_text()
        except UnicodeDecodeError:  # a binary file
            continue
        for match in PLACE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{file}:{line}: contains {match[0]}; remove the path or address"


def unknown_requirements(known: set[str], files: Sequence[Path]) -> Iterator[str]:
    for file in files:
        for name in sorted(set(REQUIREMENT.findall(file.read_text())) - known):
            yield f"{file}: unknown requirement {name}; add it to docs/requirements.md"


def naming_tests(tests: Path) -> dict[str, list[Path]]:
    """Return the test files that name each requirement in a docstring."""
    found: dict[str, list[Path]] = {}
    for file in sorted(tests.rglob("test_*.py")):
        for name in sorted(set(REQUIREMENT.findall(docstrings(file)))):
            found.setdefault(name, []).append(file)
    return found


def docstrings(file: Path) -> str:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = ast.walk(ast.parse(file.read_text()))
    return "\n".join(
        ast.get_docstring(node) or "" for node in nodes if isinstance(node, documented)
    )


def with_tests(page: str, tests: Path) -> str:
    """Return the requirements page with its last column updated."""
    named = naming_tests(tests)

    def renew(row: re.Match[str]) -> str:
        files = [file.relative_to(tests.parent).as_posix() for file in named.get(row["id"], [])]
        cell = ", ".join(f"[{file.removeprefix('tests/')}](../{file})" for file in files)
        return f"| {row['id']} | {row['text']} | {cell or NOT_YET} |"

    return ROW.sub(renew, page)


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield the parser of each command, but not those of command groups."""
    groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for group in groups:
        for child in group.choices.values():
            yield from leaves(child)
    if not groups:
        yield parser


def undocumented(parser: argparse.ArgumentParser, page: str) -> Iterator[str]:
    """Yield the differences between the commands and the sections of the page."""
    sections = by_heading(page)
    for command in leaves(parser):
        section = sections.get(f"`{command.prog}`")
        if section is None:
            yield f"docs/cli.md: no heading `{command.prog}`"
            continue
        known = {name for action in command._actions for name in action.option_strings}
        described = set(OPTION.findall(section)) | {"-h", "--help"}
        for name in sorted(known - described):
            yield f"docs/cli.md: `{command.prog}` has an option {name} that is not described"
        for name in sorted(described - known):
            yield f"docs/cli.md: `{command.prog}` has no option {name}"


def by_heading(page: str) -> dict[str, str]:
    _, *parts = re.split(r"^#+ (.+)$", page, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def untypable(parser: argparse.ArgumentParser, targets: set[str], page: Path) -> Iterator[str]:
    """Yield the lines of console blocks that oncecast or make would reject."""
    for block in blocks(page.read_text()):
        if block.language != "console":
            continue
        for line in re.findall(r"^\$ (.+)$", block.text, re.MULTILINE):
            words = shlex.split(line, comments=True)
            named = {word for word in words[1:] if "=" not in word}  # not a variable
            if words[0] == "make" and not named <= targets:
                yield f"{page}: unknown target: {line}"
            elif words[0] == "oncecast" and not parses(parser, words[1:]):
                yield f"{page}: unknown command: {line}"


def parses(parser: argparse.ArgumentParser, words: Sequence[str]) -> bool:
    words = words[: words.index("|")] if "|" in words else words
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        try:
            parser.parse_args(words)
        except SystemExit as end:
            return end.code == 0
    return True


def project_files() -> list[Path]:
    """Return the files that are committed, or that `git add` would add."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    output = subprocess.run(listed, capture_output=True, text=True, check=True).stdout
    return [path for path in map(Path, output.splitlines()) if path.is_file()]


def missing_from_site(navigation: str, pages: Sequence[Path]) -> Iterator[str]:
    """Yield a problem for each page in docs/ that is missing from the navigation."""
    for page in pages:
        if page.parts[0] == "docs" and page.relative_to("docs").as_posix() not in navigation:
            yield f"{page}: not in the navigation of mkdocs.yml; add it"


def problems() -> Iterator[str]:
    files = project_files()
    pages = [file for file in files if file.suffix == ".md"]
    sources = [file for file in files if file.suffix in (".md", ".py")]
    requirements = Path("docs/requirements.md").read_text()
    known = {row["id"] for row in ROW.finditer(requirements)}
    targets = set(re.findall(r"^([a-z]+):", Path("Makefile").read_text(), re.MULTILINE))
    parser = build_parser()

    yield from broken_links(pages)
    yield from machine_places(files)
    yield from unknown_requirements(known, sources)
    if with_tests(requirements, Path("tests")) != requirements:
        yield "docs/requirements.md: the tests column is out of date; run `make format`"
    yield from undocumented(parser, Path("docs/cli.md").read_text())
    yield from missing_from_site(Path("mkdocs.yml").read_text(), pages)
    for page in pages:
        yield from untypable(parser, targets, page)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--write", action="store_true", help="update the generated tables")
    with contextlib.chdir(ROOT):
        if arguments.parse_args().write:
            page = Path("docs/requirements.md")
            page.write_text(with_tests(page.read_text(), Path("tests")))
            page = Path("docs/errors.md")
            page.write_text(with_errors(page.read_text()))
        found = list(problems())
    for problem in found:
        print(problem, file=sys.stderr)
    print("Documents: " + (f"{len(found)} problems." if found else "no problems."))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
