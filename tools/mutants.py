"""Remove one rule of the program at a time, and report the test that detects the removal.

`make mutants` runs it. A suite is a file test_*mutants.py. Arguments select suites by name.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the tests are not installed as a package

from tests.mutants import Mutant, detect  # noqa: E402

ROW = "{:<12} {:<56} {:<40} {:>4}  {}"


class Row(NamedTuple):
    suite: str
    rule: str
    detector: str
    runs: int  # number of runs until detection, or 0 if undetected
    how: str

    def __str__(self) -> str:
        return ROW.format(self.suite, self.rule, self.detector[:40], self.runs or "none", self.how)


def suites(words: list[str]) -> list[str]:
    """Return the names of the modules that match one of the words."""
    found = sorted((ROOT / "tests").rglob("test_*mutants.py"))
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in found]
    return [name for name in names if not words or any(word in name for word in words)]


def mutants(module: str) -> list[Mutant]:
    found: list[Mutant] = import_module(module).MUTANTS
    return found


def try_one(module: str, at: int) -> Row:
    mutant = mutants(module)[at]
    suite = module.rsplit(".", 1)[-1].removeprefix("test_").removesuffix("_mutants")
    detector = getattr(mutant.detector, "__name__", "").removeprefix("test_").replace("_", " ")
    try:
        found = detect(mutant)
    except Exception as error:  # noqa: BLE001  # an error of the mutant itself
        return Row(suite, mutant.rule, detector, 0, f"does not apply, update it: {error!r}")
    if found is None:
        return Row(suite, mutant.rule, detector, 0, "SURVIVED")
    how = (str(found.error) or type(found.error).__name__).splitlines()[0]
    return Row(suite, mutant.rule, detector, found.runs, how[:70])


def rows(modules: list[str]) -> Iterator[Row]:
    """Yield the results in order, while several mutants run at a time."""
    with ProcessPoolExecutor() as pool:
        running = [
            pool.submit(try_one, module, at)
            for module in modules
            for at in range(len(mutants(module)))
        ]
        for each in running:
            yield each.result()


def main(words: list[str]) -> int:
    modules = suites(words)
    if not modules:
        print(f"no suite matches {' or '.join(words)}", file=sys.stderr)
        return 2
    began, count, left = time.monotonic(), 0, 0
    print(ROW.format("suite", "removed rule", "detected by", "runs", "how"))
    for row in rows(modules):
        print(row, flush=True)
        count += 1
        left += not row.runs
    seconds = time.monotonic() - began
    print(f"{count} mutants, {count - left} detected, {left} undetected, in {seconds:.0f} s")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
