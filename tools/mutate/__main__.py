"""Generate mutants of the pure packages and report those that no test detects.

Run: `make mutate N=1000 SEED=7 FILES="replication broker/topic.py"`. See CONTRIBUTING.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import Phase, settings

from tools.mutate import equivalents, operators, sources
from tools.mutate.campaign import (
    EQUIVALENT,
    KILLED,
    SURVIVED,
    TIMED_OUT,
    Campaign,
    Plan,
    Verdict,
)
from tools.mutate.operators import Mutant
from tools.mutate.sources import Source, digest

FILES = ["replication", "wire", "broker", "client/session", "ring", "coordination/protocols"]
LAYERS = ["kernel", "storage", "overlay", "dht", "replication", "wire", "broker", "ring"]
LAYERS += ["client/session", "streams/protocols", "coordination/protocols"]  # from the lowest up
ROW = "{:<30} {:>9} {:>7} {:>9} {:>10} {:>8}"


class Project(NamedTuple):
    """The location of the program and its tests."""

    root: Path
    package: Path
    layers: list[str]  # folders of the package that can be mutated, from the lowest up
    more_tests: list[str]  # in addition to the layers' own tests

    @property
    def equivalents(self) -> Path:
        return self.root / "tools" / "equivalent_mutants.toml"

    def sources(self) -> list[Source]:
        paths = [path for each in self.layers for path in (self.package / each).glob("*.py")]
        return [sources.read(path, self.package) for path in sorted(paths)]

    def tests(self, mutants: list[Mutant]) -> list[str]:
        """Return the test folders for the mutated layers and all layers above them."""
        used = {mutant.unit.file.rpartition("/")[0] for mutant in mutants}
        lowest = min(self.layers.index(each) for each in used)
        folders = [f"tests/{each.removesuffix('/protocols')}" for each in self.layers[lowest:]]
        return [*folders, *self.more_tests]


ROOT = Path(__file__).resolve().parent.parent.parent
ONCECAST = Project(ROOT, ROOT / "oncecast", LAYERS, ["tests/lab"])


def main(words: list[str], project: Project = ONCECAST) -> int:
    arguments = parser().parse_args(words)
    everything = project.sources()
    mutants = [mutant for source in everything for mutant in operators.mutants(source)]
    reasons = equivalents.read(project.equivalents)
    stale = equivalents.stale(reasons, mutants)
    for each in stale:
        print(
            f"{project.equivalents.name}: no mutant has the id {each}; remove the entry",
            file=sys.stderr,
        )
    if arguments.show:
        found = [each for each in mutants if each.id == arguments.show]
        if not found:
            print(f"no mutant has the id {arguments.show}; --list prints all ids", file=sys.stderr)
            return 2
        return show(found, reasons)
    chosen = choose(mutants, arguments)
    if not chosen:
        print("no mutant matches these arguments", file=sys.stderr)
        return 2
    if arguments.list:
        for mutant in chosen:
            print(title(mutant))
        return 0
    began = time.monotonic()
    verdicts = campaign(project, chosen, everything, reasons, arguments)
    if verdicts is None:
        return 2
    seconds = time.monotonic() - began
    return conclude(verdicts, seconds, arguments.at_least, bool(stale))


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m tools.mutate", description=__doc__)
    found.add_argument(
        "files",
        nargs="*",
        default=FILES,
        help=f"packages or files to mutate (default: {' '.join(FILES)})",
    )
    found.add_argument(
        "-n", type=int, default=0, help="number of mutants to try, or 0 for all (default: 0)"
    )
    found.add_argument("--seed", default="0", help="seed that selects the mutants (default: 0)")
    found.add_argument(
        "--jobs", type=int, default=1, help="mutants to try in parallel (default: 1)"
    )
    found.add_argument(
        "--budget",
        type=float,
        default=40.0,
        metavar="SECONDS",
        help="maximum processor time for each mutant (default: 40)",
    )
    found.add_argument(
        "--at-least",
        type=float,
        default=95.0,
        metavar="PERCENT",
        help="minimum percentage of mutants that are killed or equivalent (default: 95)",
    )
    found.add_argument(
        "--json", metavar="FILE", help="write a JSON line for each mutant to this file"
    )
    found.add_argument(
        "--only",
        metavar="ID",
        action="append",
        default=[],
        help="try only this mutant; may be repeated",
    )
    found.add_argument(
        "--again",
        metavar="FILE",
        type=Path,
        help="try only the survivors in this file, which an earlier run wrote with --json",
    )
    found.add_argument("--show", metavar="ID", help="print this mutant as a diff without trying it")
    found.add_argument(
        "--list", action="store_true", help="print the chosen mutants without trying them"
    )
    found.add_argument(
        "--fresh",
        action="store_true",
        help="ignore earlier measurements of which lines each test reaches",
    )
    found.add_argument(
        "--tests",
        nargs="+",
        metavar="PATH",
        help="test folders (default: those of the mutated layers and of all layers above)",
    )
    return found


def choose(mutants: list[Mutant], arguments: argparse.Namespace) -> list[Mutant]:
    """Pick mutants in an order that does not change with unrelated edits."""
    wanted = [*arguments.only, *(_survivors(arguments.again) if arguments.again else [])]
    if wanted:
        return [each for each in mutants if each.id in wanted]
    names = [name.removeprefix("oncecast/").rstrip("/") for name in arguments.files]
    fitting = [each for each in mutants if _named(each.unit.file, names)]
    if not arguments.n:
        return fitting
    fitting.sort(key=lambda mutant: digest(f"{arguments.seed}:{mutant.id}"))
    return fitting[: arguments.n]


def _survivors(report: Path) -> list[str]:
    verdicts = [json.loads(line) for line in report.read_text().splitlines()]
    return [each["id"] for each in verdicts if each["status"] == SURVIVED]


def _named(file: str, names: list[str]) -> bool:
    return any(file == name or file.startswith(f"{name}/") for name in names)


def campaign(
    project: Project,
    chosen: list[Mutant],
    everything: list[Source],
    reasons: dict[str, str],
    arguments: argparse.Namespace,
) -> list[Verdict] | None:
    os.chdir(project.root)
    plan = Plan(
        chosen,
        everything,
        reasons,
        project.root / "build" / "mutate",
        jobs=arguments.jobs,
        budget=arguments.budget,
        fresh=arguments.fresh,
        report=Path(arguments.json).absolute() if arguments.json else None,
    )
    # Skip shrinking. Ten examples detect almost as many mutants as a hundred.
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile(
        "mutate", derandomize=True, deadline=None, max_examples=10, database=None, phases=phases
    )
    words = ["-qq", "-s", "--assert=plain", "--tb=native", "--hypothesis-profile=mutate"]
    words += ["-m", "not mutants", "--no-header", "--no-summary", "-o", "faulthandler_timeout=0"]
    words += [f"-pno:{each}" for each in ("xdist", "cacheprovider")]
    status = pytest.main(
        [*words, *(arguments.tests or project.tests(chosen))], plugins=[Campaign(plan)]
    )
    if len(plan.verdicts) < len(chosen):
        print(f"the campaign ended early: {status!r}", file=sys.stderr)
        return None
    return plan.verdicts


def show(found: list[Mutant], reasons: dict[str, str]) -> int:
    for mutant in found:
        print(title(mutant))
        print(mutant.diff())
        if mutant.id in reasons:
            print(f"equivalent: {reasons[mutant.id]}")
    return 0


def title(mutant: Mutant) -> str:
    return f"{mutant.id}  line {mutant.line}, {mutant.operator}"


def conclude(verdicts: list[Verdict], seconds: float, at_least: float, stale: bool) -> int:
    """Print the table and the survivors; return the exit status."""
    for verdict in sorted(verdicts, key=lambda each: each.mutant.id):
        if verdict.status == SURVIVED:
            print(f"\n{title(verdict.mutant)}: {verdict.tests} tests; {verdict.why}".rstrip("; "))
            print(verdict.mutant.diff())
    print("\n" + ROW.format("file", "generated", KILLED, TIMED_OUT, EQUIVALENT, SURVIVED))
    for file in sorted({verdict.mutant.unit.file for verdict in verdicts}):
        print(_row(file, [each for each in verdicts if each.mutant.unit.file == file]))
    print(_row("all", verdicts))
    left = sum(verdict.status == SURVIVED for verdict in verdicts)
    rate = 100 * (len(verdicts) - left) / len(verdicts)
    print(f"\n{rate:.1f} % killed or equivalent (at least {at_least:g} %), in {seconds:.0f} s")
    return 1 if rate < at_least or stale else 0


def _row(name: str, verdicts: list[Verdict]) -> str:
    count = Counter(verdict.status for verdict in verdicts)
    columns = [count[each] for each in (KILLED, TIMED_OUT, EQUIVALENT, SURVIVED)]
    return ROW.format(name, len(verdicts), *columns)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
