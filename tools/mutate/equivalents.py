"""Mutants that are argued to behave like the program itself: tools/equivalent_mutants.toml.

Each entry has the id of a mutant, the change for the reader, and a reason.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path

from tools.mutate.operators import Mutant


class Malformed(Exception):
    """The list of equivalent mutants cannot be used."""


def read(path: Path) -> dict[str, str]:
    """Return the reason of each listed mutant by its id."""
    if not path.exists():
        return {}
    reasons: dict[str, str] = {}
    for entry in tomllib.loads(path.read_text()).get("mutant", []):
        missing = [key for key in ("id", "change", "reason") if not entry.get(key)]
        if missing:
            raise Malformed(f"{path.name}: entry {entry} lacks {', '.join(missing)}")
        if entry["id"] in reasons:
            raise Malformed(f"{path.name}: {entry['id']} is listed twice")
        reasons[entry["id"]] = entry["reason"]
    return reasons


def stale(reasons: Iterable[str], everything: Iterable[Mutant]) -> list[str]:
    """Return the listed ids that no mutant of the present sources has."""
    existing = {mutant.id for mutant in everything}
    return [each for each in reasons if each not in existing]
