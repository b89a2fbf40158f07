"""Measure which lines each test reaches and how long it takes, and keep the result on disk.

A measurement is valid while the text of the function and the file of the test are unchanged. Only
tests whose file has changed are measured again. A wrong measurement can let a mutant survive; it
cannot kill one.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import blake2s
from pathlib import Path
from time import process_time
from typing import Any

import coverage

from tools.mutate.operators import Mutant
from tools.mutate.sources import Function, Source

QUICK = 0.3  # seconds of processor time, under coverage
SLOWEST = 20.0  # seconds of processor time, under coverage
Reach = dict[str, int]  # unit and digest -> lines as bits, counted from the unit's first line


@dataclass
class Measured:
    """The recorded run of one test."""

    file: str  # digest of the test file
    seconds: float  # of processor time, under coverage
    passed: bool
    reach: Reach = field(default_factory=dict)


class TooSlow(BaseException):
    """The test is too slow to be used."""


class Selection:
    def __init__(self, sources: Iterable[Source], tests: dict[str, Measured]) -> None:
        self.tests = tests
        self._units = {unit.key: unit for source in sources for unit in source.functions}
        # Unit -> test -> lines as bits; -1 means any line.
        self._reaching: dict[str, dict[str, int]] = {}
        for name, test in tests.items():
            for key, lines in test.reach.items():
                unit_key, digest = key.rsplit("@", 1)
                unit = self._units.get(unit_key)
                if test.passed and unit is not None:
                    known = lines if digest == unit.digest else -1
                    self._reaching.setdefault(unit_key, {})[name] = known

    def reaching(self, mutant: Mutant) -> list[str]:
        """Return the tests that could detect a mutant, quick tests of its own package first.

        Other quick tests follow, then the rest, each from the fastest to the slowest.
        """
        unit = mutant.unit
        home = f"/{unit.file.partition('/')[0]}/"
        if not isinstance(unit.node, Function):
            users = [each.key for each in self._units.values() if each.mentions(unit.qualname)]
            found = {name for key in users for name in self._reaching.get(key, {})}
        elif unit.key in self._reaching:
            mask = sum(1 << (line - unit.first) for line in mutant.lines) or -1
            found = {name for name, lines in self._reaching[unit.key].items() if lines & mask}
        else:
            found = set()

        def rank(name: str) -> tuple[bool, bool, float, str]:
            seconds = self.tests[name].seconds
            quick = seconds < QUICK
            return not quick, home not in name if quick else False, seconds, name

        return sorted(found, key=rank)


def outdated(known: dict[str, Measured], tests: list[str], digest: str) -> list[str]:
    """Return all tests of a file if the file has changed, and otherwise none."""
    if all(name in known and known[name].file == digest for name in tests):
        return []
    return tests


def measure(
    names: list[str],
    run: Callable[[str], bool],
    sources: list[Source],
    digest: str,
) -> dict[str, Measured]:
    """Run tests under coverage, each in its own context; fail tests that take too long."""
    signal.signal(signal.SIGPROF, _interrupt)
    watch = coverage.Coverage(
        data_file=None, config_file=False, include=[str(source.path) for source in sources]
    )
    watch.set_option("run:disable_warnings", ["no-data-collected"])
    watch.start()
    tests: dict[str, Measured] = {}
    for name in names:
        watch.switch_context(name)
        began = process_time()
        signal.setitimer(signal.ITIMER_PROF, SLOWEST)
        passed = run(name)
        signal.setitimer(signal.ITIMER_PROF, 0)
        tests[name] = Measured(digest, round(process_time() - began, 4), passed)
    watch.stop()
    data = watch.get_data()
    for source in sources:
        for line, contexts in data.contexts_by_lineno(str(source.path)).items():
            unit = source.unit_at(line)
            for name in contexts:
                if unit is not None and name in tests:
                    key = f"{unit.key}@{unit.digest}"
                    reach = tests[name].reach
                    reach[key] = reach.get(key, 0) | 1 << (line - unit.first)
    return tests


def _interrupt(number: int, frame: object) -> None:
    raise TooSlow


def load(path: Path) -> dict[str, Measured]:
    if not path.exists():
        return {}
    stored = json.loads(path.read_text())
    keys: list[str] = stored["keys"]
    return {
        name: Measured(file, seconds, passed, {keys[int(at)]: int(m, 16) for at, m in reach})
        for name, (file, seconds, passed, reach) in stored["tests"].items()
    }


def save(path: Path, tests: dict[str, Measured]) -> None:
    numbers: dict[str, int] = {}
    stored: dict[str, Any] = {}
    for name, test in tests.items():
        reach = [
            (numbers.setdefault(key, len(numbers)), f"{lines:x}")
            for key, lines in test.reach.items()
        ]
        stored[name] = test.file, test.seconds, test.passed, reach
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"keys": list(numbers), "tests": stored}))


def file_digest(path: Path) -> str:
    return blake2s(path.read_bytes(), digest_size=8).hexdigest()
