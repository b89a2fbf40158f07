"""A table of figures: what a paper claims, what we measure, and what must hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

Cell = str | int | float | None  # None: the paper does not say
Say = Callable[[str], None]  # what is being done, for whoever waits


class Must(msgspec.Struct, frozen=True):
    """Something that the figures of a table have to show, and whether they do."""

    text: str
    holds: bool


class Table(msgspec.Struct, frozen=True):
    """Simulated figures, and the paper's beside them."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    must: tuple[Must, ...] = ()
    notes: tuple[str, ...] = ()


class Experiment(msgspec.Struct, frozen=True):
    """How to repeat a paper: with how many nodes (None: as many as it had), from which dice."""

    nodes: int | None = None
    seed: int = 1
    say: Say = lambda text: None


Paper = Callable[[Experiment], Iterator[Table]]


def lines(table: Table) -> Iterator[str]:
    """The table as a person reads it, and as a page can hold it."""
    cells = [[told(cell) for cell in row] for row in table.rows]
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


def told(cell: Cell) -> str:
    match cell:
        case None:
            return ""
        case float():
            return f"{cell:,.5g}" if abs(cell) < 100_000 else f"{cell:,.0f}"
        case int():
            return f"{cell:,}"
        case _:
            return cell
