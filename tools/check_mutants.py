"""Check that each hand-written mutant still fits the program. `make check` runs it.

A mutant replaces a piece of text in one function. If that text has changed, or the function has
another name, the mutant removes no rule any more, and its suite may fail to load. This program
loads every suite and plants each mutant once, without running a test.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import pytest

from tools.mutants import mutants, suites


def problems(names: Sequence[str]) -> Iterator[str]:
    """Yield a line for each suite that cannot be loaded, and for each mutant that does not fit."""
    for name in names:
        try:
            found = mutants(name)
        except Exception as error:  # noqa: BLE001  # a suite can fail in any way
            yield f"{name}: cannot be loaded: {error!r}"
            continue
        for mutant in found:
            with pytest.MonkeyPatch.context() as patch:
                try:
                    mutant.plant(patch)
                except Exception as error:  # noqa: BLE001  # so can a mutant
                    yield f"{name}: {mutant.rule!r} does not fit the program: {error!r}"
        if not found:
            yield f"{name}: has no mutants"


def main(words: Sequence[str] = ()) -> int:
    """Print all problems. Return 1 if there are any."""
    found = list(problems(suites(list(words))))
    for line in found:
        print(line)
    print(f"Mutants: {len(found) or 'no'} problem{'s' * (len(found) != 1)}.")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
