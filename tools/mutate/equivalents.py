"""Read tools/equivalent_mutants.toml, the list of mutants that behave like the program.

Each entry has the id of a mutant, a description of the change, and the reason.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path

from tools.mutate.operators import Mutant


class Malformed(Exception):
    """The list of equivalent mutants is not valid."""


def read(path: Path) -> dict[str, str]:
    """Return the reason for each listed mutant, by id."""
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
    """Return the listed ids that no mutant of the current sources has."""
    existing = {mutant.id for mutant in everything}
    return [each for each in reasons if each not in existing]
