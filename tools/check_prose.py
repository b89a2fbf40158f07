"""Find sentences that break the rules of our writing guide. `make check` runs it.

It reads docstrings, comments, messages, test names and Markdown pages. Each hit names the rule that
the text breaks. CONTRIBUTING.md lists the rules.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("oncecast", "pipelines", "tests", "tools", "bench", "examples", "docs")
WORDS_MAX = 25  # maximum words in one sentence
EXEMPT = {"tools/check_prose.py"}  # its patterns quote the words

TEXT, DOCSTRING, COMMENT, MESSAGE, NAME = "text", "docstring", "comment", "message", "name"


class Passage(NamedTuple):
    """A piece of prose, and its location."""

    file: str
    line: int
    kind: str
    text: str


class Rule(NamedTuple):
    """A pattern that plain English avoids, and what to write instead."""

    pattern: re.Pattern[str]
    remedy: str


class Hit(NamedTuple):
    passage: Passage
    found: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.passage.file}:{self.passage.line}: {self.found!r}: {self.remedy}"


def rule(pattern: str, remedy: str) -> Rule:
    return Rule(re.compile(pattern, re.IGNORECASE), remedy)


NAME_IT = "name the subject: client, process, leader, reader, caller, node"
RULES = [
    rule(r"\b(who|whom|whoever|whomever)\b|^whose\b", NAME_IT),
    rule(r"\b(nobody|somebody|anybody|everybody|one's own|of one's)\b", NAME_IT),
    rule(r"\bthe others\b", NAME_IT),
    rule(r"^(?:what|whatever)\b[^?]*[.;,:]$", "start with the subject"),
    rule(
        r", (?:whether|what|who) [^?]*$",
        "say what the function returns in a sentence",
    ),
    rule(
        r"\b(?:is|are|was|were) no (?!longer|more than|less than|other|such)\w+",
        "write 'is not a ...'",
    ),
    rule(r"\bunder way\b|\bfly(?:ing)?\b|\bflies\b|\bflown\b", "write 'in flight'"),
    rule(r"\banew\b", "write 'again'"),
    rule(r"\blest\b", "write 'so that ... not'"),
    rule(r"\bfor ever\b", "write 'forever', or give the limit"),
    rule(r"\b(?:landlords?|tenants?|estates?)\b", "write process, topic or owned topics"),
    rule(r"\b(?:reigns?|heirs?|in office)\b", "write term, or next leader"),
    rule(
        r"\b(?:earlier|later|other|new|old|dead|living|own|this|one|its|another) (?:life|lives)\b",
        "write epoch or incarnation",
    ),
    rule(r"\brelieved?s?\b", "write move or rebalance"),
    rule(r"\b(?:room (?:for|left|to)|no room|enough room)\b", "write disk space or buffer space"),
    rule(
        r"\b(?:what|which) (?:it|they) (?:is|are) worth\b|\bso to speak\b|\bas it were\b",
        "cut the aside",
    ),
    rule(r"\bthere is too much\b|\btoo much of\b", "write 'too many ...' with the limit"),
    rule(
        r"\b(?:thereby|therein|thereof|wherein|whereby|hereby|henceforth|hence|thus)\b",
        "use a plain word",
    ),
]
NOT_VERBS = frozenset(
    "a all also an and any as at but by each every for from how if in it its no not nothing of on "  # noqa: SIM905
    "one only or so some still such that the there these this those to two what when where whether "
    "which who why with".split()
)
SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+|\n\s*\n|\n(?=\s*[-*|#\d])")
WORD = re.compile(r"[A-Za-z][\w'-]*")
CODE = re.compile(r"``[^`]*``|`[^`\n]*`")
LITERAL = re.compile(r"^(?: {4,}.*|.*\S {2,}\S.*)$", re.MULTILINE)  # a listing, or columns
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
LINKS_ONLY = re.compile(r"(?:\[[^\]]*\](?:, )?)+")
HTML = re.compile(r"<!doctype|</\w+>|<\w+ \w+=", re.IGNORECASE)
COLUMN = r"\w+ (?:string|binary|boolean|int|bigint|long|float|double|date|timestamp)"
COLUMNS = re.compile(rf"{COLUMN}(?:, {COLUMN})+", re.IGNORECASE)  # columns of an SQL table
LINK = re.compile(r"\]\([^)]*\)|<[^>\s]+>|https?://\S+")


# -- finding prose --


def passages(path: Path, root: Path = ROOT) -> Iterator[Passage]:
    name, source = str(path.relative_to(root)), path.read_text()
    if path.suffix == ".md":
        yield from _of_page(name, source)
    else:
        yield from _comments(name, source)
        yield from _of_tree(name, ast.parse(source))


def _of_page(name: str, page: str) -> Iterator[Passage]:
    page = FENCE.sub(lambda match: "\n" * match[0].count("\n"), page)
    page = re.sub(r"(?<=\n\n) {4,}\S(?:.*\n)+?(?=\n|\Z)", _blank, page)
    page = LINK.sub("]", CODE.sub("X", page)).replace("**", "")
    page = re.sub(r"^(#.*)$", r"\1\n", page, flags=re.MULTILINE)
    line = 1
    for paragraph in re.split(r"(\n\s*\n|\n(?=\s*[-*] )|\n(?=\s*\d+\. )|\n(?=\|)|\n(?=#))", page):
        if paragraph.strip():
            for cell in paragraph.split("|") if paragraph.lstrip().startswith("|") else [paragraph]:
                if not LINKS_ONLY.fullmatch(cell.strip()):
                    yield Passage(name, line + _leading_lines(cell), TEXT, cell.strip(" #-*\n"))
        line += paragraph.count("\n")


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def _leading_lines(text: str) -> int:
    return len(text) - len(text.lstrip("\n"))


def _comments(name: str, source: str) -> Iterator[Passage]:
    """Yield each comment; consecutive lines form one comment."""
    lines: list[tuple[int, int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not _is_directive(token.string):
            row, column = token.start
            text = token.string.lstrip("#").strip()
            if (
                lines
                and lines[-1][0] + lines[-1][2].count("\n") + 1 == row
                and lines[-1][1] == column
            ):
                lines[-1] = (lines[-1][0], column, f"{lines[-1][2]}\n{text}")
            else:
                lines.append((row, column, text))
    for row, _, text in lines:
        yield Passage(name, row, COMMENT, CODE.sub("X", text))


def _is_directive(comment: str) -> bool:
    return bool(re.match(r"#\s*(noqa|type:|ruff:|mypy:|pragma|!)|#\s*--", comment))


def _of_tree(name: str, tree: ast.Module) -> Iterator[Passage]:
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                first = node.body[0]
                assert isinstance(first, ast.Expr)
                docstrings.add(id(first.value))
                text = LITERAL.sub("", CODE.sub("X", text))
                kind = (
                    DOCSTRING if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else TEXT
                )
                if kind == DOCSTRING and _is_test(node):
                    kind = TEXT
                yield Passage(name, first.lineno, kind, text)
            if _is_test(node):
                yield Passage(name, node.lineno, NAME, node.name.replace("_", " "))  # type: ignore[union-attr]
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [each.value if isinstance(each, ast.Constant) else "X" for each in node.values]
            docstrings.update(id(each) for each in node.values)
            yield from _message(name, node.lineno, "".join(map(str, parts)))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
        ):
            yield from _message(name, node.lineno, node.value)


def _is_test(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
        "test_"
    )


def _message(name: str, line: int, text: str) -> Iterator[Passage]:
    """Yield a string if it reads like a sentence."""
    is_code = "://" in text or HTML.search(text) or COLUMNS.fullmatch(text)
    if len(WORD.findall(text)) >= 3 and not is_code:
        yield Passage(name, line, MESSAGE, LITERAL.sub("", CODE.sub("X", text)))


# -- judging it --


def hits(passage: Passage) -> Iterator[Hit]:
    for number, part in enumerate(SENTENCE_END.split(passage.text)):
        sentence = " ".join(part.split())
        if number and sentence.startswith("whether "):
            yield Hit(passage, sentence[:60], "say what the function returns in a sentence")
        for pattern, remedy in RULES:
            match = pattern.search(sentence)
            if match:
                yield Hit(passage, match[0][:60], remedy)
        words = len(WORD.findall(sentence))
        if words > WORDS_MAX and passage.kind != NAME:
            yield Hit(
                passage,
                sentence[:60],
                f"the sentence has {words} words (limit {WORDS_MAX}); split it",
            )
    if passage.kind == DOCSTRING:
        first = WORD.match(passage.text)
        if first and first[0].lower() in NOT_VERBS:
            yield Hit(passage, passage.text.splitlines()[0][:60], "start the docstring with a verb")


def files(words: Sequence[str], root: Path = ROOT) -> list[Path]:
    chosen = [root / word for word in words] or [root / each for each in FOLDERS]
    found: list[Path] = [] if words else sorted(root.glob("*.md")) + sorted(root.glob("*.py"))
    for path in chosen:
        found += (
            sorted(each for each in path.rglob("*") if each.suffix in (".py", ".md"))
            if path.is_dir()
            else [path]
        )
    return [path for path in found if path.is_file() and str(path.relative_to(root)) not in EXEMPT]


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools/check_prose.py", description=__doc__)
    parser.add_argument("paths", nargs="*", help="files or folders (default: the whole project)")
    parser.add_argument(
        "--count", action="store_true", help="print only the number of hits in each file"
    )
    arguments = parser.parse_args(words)
    found = [
        hit
        for path in files(arguments.paths)
        for passage in passages(path)
        for hit in hits(passage)
    ]
    if arguments.count:
        for file, count in Counter(hit.passage.file for hit in found).most_common():
            print(f"{count:5} {file}")
    else:
        for hit in found:
            print(hit)
    print(f"{len(found)} hits", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
