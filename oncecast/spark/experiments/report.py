"""Write findings as one HTML page with figures, tables, seeds and the command."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import msgspec

from oncecast.lab.papers.tables import Cell, Must, Table, text_of
from oncecast.spark.experiments.finding import Figure, Finding

PAGE, FIGURES, TABLES = "report.html", "figures", "tables.json"

STYLE = """
:root { --ink: #1f2933; --quiet: #5b6773; --line: #dfe4ea; --wash: #f5f7f9; --blue: #1f6fb2;
  --paper: #fff; --good: #23875a; --bad: #b3261e; color-scheme: light dark; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #dfe4ea; --quiet: #9aa5b1; --line: #333b44; --wash: #22282f; --blue: #6db3ec;
    --paper: #191e24; --good: #5cc793; --bad: #ff8a80; }
  figure img { filter: invert(.9) hue-rotate(180deg); }
}
* { box-sizing: border-box; }
body { margin: 0; color: var(--ink); background: var(--paper);
  font: 16px/1.55 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1060px; margin: 0 auto; padding: 2.5rem 1.5rem 5rem; }
h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 .4rem; }
h2 { font-size: 1.4rem; margin: 3.5rem 0 .6rem; padding-top: 1.2rem;
  border-top: 3px solid var(--ink); }
h3 { font-size: 1rem; margin: 1.8rem 0 .5rem; }
p { max-width: 76ch; margin: .5rem 0; }
.quiet { color: var(--quiet); }
.label { font-weight: 600; }
pre { background: var(--wash); border-left: 3px solid var(--blue); padding: .7rem 1rem;
  overflow-x: auto; font-size: .88rem; }
figure { margin: 1.4rem 0; }
figure img { width: 100%; height: auto; display: block; }
figcaption { color: var(--quiet); font-size: .9rem; max-width: 90ch; margin-top: .3rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
th { text-align: right; vertical-align: bottom; font-weight: 600; max-width: 9.5em;
  border-bottom: 2px solid var(--ink); }
th, td { padding: .3rem .7rem; }
td { text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
td.text, th.text { text-align: left; }
tbody tr:hover { background: var(--wash); }
th.source, td.source { color: var(--quiet); font-style: italic; }
ul { padding-left: 0; list-style: none; font-size: .92rem; max-width: 90ch; }
li { margin: .2rem 0; padding-left: 1.6rem; position: relative; }
li::before { position: absolute; left: .2rem; content: "–"; color: var(--quiet); }
li.holds::before { content: "✓"; color: var(--good); font-weight: 700; }
li.broken { color: var(--bad); font-weight: 600; }
li.broken::before { content: "✗"; color: var(--bad); }
nav a { color: var(--blue); text-decoration: none; }
nav a:hover { text-decoration: underline; }
@media print { h2 { break-before: page; } }
"""


class Made(msgspec.Struct, frozen=True):
    """The origin of the findings."""

    title: str
    about: str
    command: str
    facts: tuple[tuple[str, str], ...]  # versions, seeds, times


def write(directory: Path, made: Made, findings: Sequence[Finding]) -> Path:
    """Write the page, its figures, and the tables as JSON. Return the path of the page."""
    pictures = directory / FIGURES
    pictures.mkdir(parents=True, exist_ok=True)
    for finding in findings:
        for figure in finding.figures:
            (pictures / f"{figure.name}.png").write_bytes(figure.png)
    tables = [fields(finding) for finding in findings]
    (directory / TABLES).write_bytes(msgspec.json.format(msgspec.json.encode(tables)))
    (directory / PAGE).write_text(page(made, findings), encoding="utf-8")
    return directory / PAGE


def fields(finding: Finding) -> dict[str, Any]:
    """Return a finding as fields for JSON, with the paths of its figures."""
    return {
        "name": finding.name,
        "title": finding.title,
        "source": finding.source,
        "setting": finding.setting,
        "answer": finding.answer,
        "runs": finding.runs,
        "holds": not finding.broken,
        "tables": [msgspec.to_builtins(table) for table in finding.tables],
        "figures": [f"{FIGURES}/{figure.name}.png" for figure in finding.figures],
    }


def page(made: Made, findings: Sequence[Finding]) -> str:
    contents = "".join(
        f'<li class="{"broken" if each.broken else "holds"}">'
        f'<a href="#{escape(each.name)}">{escape(each.title)}</a></li>'
        for each in findings
    )
    facts = "".join(
        f"<tr><td class='text'>{escape(name)}</td><td class='text'>{escape(value)}</td></tr>"
        for name, value in made.facts
    )
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(made.title)}</title><style>{STYLE}</style></head><body><main>"
        f"<h1>{escape(made.title)}</h1><p>{escape(made.about)}</p>"
        f"<pre>$ {escape(made.command)}</pre>"
        f"<nav><ul>{contents}</ul></nav>"
        f"<div class='scroll'><table><tbody>{facts}</tbody></table></div>"
        f"{''.join(map(section, findings))}"
        "</main></body></html>\n"
    )


def section(finding: Finding) -> str:
    return (
        f"<section id='{escape(finding.name)}'><h2>{escape(finding.title)}</h2>"
        f"{paragraph('Source', finding.source)}{paragraph('Here', finding.setting)}"
        f"{paragraph('Answer', finding.answer)}"
        f"{paragraph('Runs', finding.runs)}"
        f"{''.join(map(picture, finding.figures))}{''.join(map(table, finding.tables))}</section>"
    )


def paragraph(label: str, text: str) -> str:
    return f"<p><span class='label'>{label}.</span> {escape(text)}</p>" if text else ""


def picture(figure: Figure) -> str:
    data = b64encode(figure.png).decode()
    caption = escape(figure.caption)
    return (
        f"<figure><img alt='{caption}' src='data:image/png;base64,{data}'>"
        f"<figcaption>{caption}</figcaption></figure>"
    )


def table(shown: Table) -> str:
    kinds = [
        kind_of(name, [row[at] for row in shown.rows]) for at, name in enumerate(shown.columns)
    ]
    head = "".join(
        f"<th class='{kind}'>{escape(name)}</th>"
        for kind, name in zip(kinds, shown.columns, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td class='{kind}'>{escape(shown_as(cell))}</td>"
            for kind, cell in zip(kinds, row, strict=True)
        )
        + "</tr>"
        for row in shown.rows
    )
    remarks = "".join(map(verdict, shown.must))
    remarks += "".join(f"<li>{escape(note)}</li>" for note in shown.notes)
    title = escape(shown.title[:1].upper() + shown.title[1:])
    return (
        f"<h3>{title}</h3><div class='scroll'><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div><ul>{remarks}</ul>"
    )


def shown_as(cell: Cell) -> str:
    """Return the text of a cell. Measured values have four significant digits."""
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:.4g}"
    return text_of(cell)


def kind_of(name: str, cells: list[Any]) -> str:
    """Return the CSS classes of a column: `text` for words, `source` for values from the source."""
    words = any(isinstance(cell, str) and not cell[:1].isdigit() for cell in cells)
    source = name.startswith("source")
    return " ".join(["source"] * source + ["text"] * (words and not source))


def verdict(must: Must) -> str:
    kind = "holds" if must.holds else "broken"
    return f"<li class='{kind}'>{escape(must.text)}</li>"
