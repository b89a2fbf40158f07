"""Run the Python examples on each page in order, in a fresh directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_docs import ROOT, blocks

PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
for name in ("spark.md", "tables.md"):  # tests/spark provides a node and a session for these pages
    PAGES.remove(ROOT / "docs" / name)


def examples(page: Path) -> str:
    """Return the Python code on a page. Line numbers match the page, and so do tracebacks."""
    lines = [""] * (page.read_text().count("\n") + 1)
    for block in blocks(page.read_text()):
        if block.language == "python":
            text = block.text.splitlines()
            lines[block.line - 1 : block.line - 1 + len(text)] = text
    return "\n".join(lines)


@pytest.mark.parametrize(
    "page", [pytest.param(p, id=str(p.relative_to(ROOT))) for p in PAGES if examples(p).strip()]
)
def test_examples_in_docs_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(examples(page), page, "exec", dont_inherit=True), {"__name__": page.stem})
