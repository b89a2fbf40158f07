"""Tables that compare a paper's figures with ours, and checks on our figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

Cell = str | int | float | None  # None if the paper has no figure
Say = Callable[[str], None]  # reports progress to the user


class Must(msgspec.Struct, frozen=True):
    """A check on a table's figures, and its outcome."""

    text: str
    holds: bool


class Table(msgspec.Struct, frozen=True):
    """Simulated figures next to the paper's figures."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    must: tuple[Must, ...] = ()
    notes: tuple[str, ...] = ()


def within(ours: float, paper: float, share: float) -> bool:
    return abs(ours - paper) <= share * paper


class Experiment(msgspec.Struct, frozen=True):
    """Options for a reproduction. If `nodes` is None, use as many nodes as the paper."""

    nodes: int | None = None
    seed: int = 1
    say: Say = lambda text: None


Paper = Callable[[Experiment], Iterator[Table]]


def lines(table: Table) -> Iterator[str]:
    """Yield the table as lines of Markdown."""
    cells = [[text_of(cell) for cell in row] for row in table.rows]
    widths = [max(map(len, column)) for column in zip(table.columns, *cells, strict=True)]
    yield line(table.columns, widths)
    yield "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    for row in cells:
        yield line(row, widths)
    yield ""
    for must in table.must:
        yield f"- {'holds' if must.holds else '**does not hold**'}: {must.text}"
    for note in table.notes:
        yield f"- {note}"


def line(cells: Any, widths: list[int]) -> str:
    return (
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        + " |"
    )


def text_of(cell: Cell) -> str:
    match cell:
        case None:
            return ""
        case float():
            return f"{cell:,.5g}" if abs(cell) < 100_000 else f"{cell:,.0f}"
        case int():
            return f"{cell:,}"
        case _:
            return cell
