"""Plant a fault of each kind into a copy of the traces, to check that the audit names it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

Line = dict[str, Any]
Files = dict[str, list[Line]]
Found = tuple[str, int]  # the fault and its offset


class Planter:
    """Changes the lines of a run. Each fault gets a job of its own."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._used: set[int] = set()
        self.faults: set[Found] = set()
        self._deliveries_max = self._find("share")[2]["deliveries_max"]

    def _find(self, kind: str, **fields: Any) -> tuple[str, int, Line]:
        """Return the first line of this kind about an unused job, and its position."""
        for name, number, line in self._lines():
            same = all(line.get(key) == value for key, value in fields.items())
            if line["kind"] == kind and same and line.get("offset") not in self._used:
                return name, number, line
        raise ValueError(f"the traces have no line of kind {kind!r}; run more jobs")

    def _lines(self) -> Iterator[tuple[str, int, Line]]:
        for name, lines in self.files.items():
            for number, line in enumerate(lines):
                yield name, number, line

    def _plant(self, fault: str, offset: int) -> None:
        self._used.add(offset)
        self.faults.add((fault, offset))

    def lose_a_job(self) -> None:
        name, number, line = self._find("effect")
        del self.files[name][number]
        self._plant("lost job", line["offset"])

    def do_a_job_again(self) -> None:
        name, number, line = self._find("effect")
        self.files[name].insert(number + 1, {**line, "token": line["token"] - 1})
        self._plant("done with an old token", line["offset"])

    def lease_to_two_workers(self) -> None:
        name, _, line = self._find("lease", deliveries=1)
        other = next(each for each in self.files if self._is_another_worker(each, name))
        self.files[other].insert(1, line)
        self._plant("two holders", line["offset"])

    def _is_another_worker(self, name: str, than: str) -> bool:
        return name != than and any(line["kind"] == "lease" for line in self.files[name])

    def deliver_too_often(self) -> None:
        name, number, line = self._find("lease", deliveries=1)
        self.files[name][number] = {**line, "deliveries": self._deliveries_max + 1}
        self._plant("delivered too often", line["offset"])

    def acknowledge_with_an_old_token(self) -> None:
        name, number, line = self._find("accepted")
        self.files[name][number] = {**line, "token": line["token"] - 1}
        self._plant("leased after its ack", line["offset"])

    def bury_twice(self) -> None:
        name, number, line = self._find("letter")
        self.files[name].insert(number, line)
        self._plant("two dead letters", line["offset"])


PLANTS: tuple[Callable[[Planter], None], ...] = (
    Planter.lose_a_job,
    Planter.do_a_job_again,
    Planter.lease_to_two_workers,
    Planter.deliver_too_often,
    Planter.acknowledge_with_an_old_token,
    Planter.bury_twice,
)


def plant_faults(traces: list[Path], directory: Path) -> tuple[list[Path], set[Found]]:
    """Write the traces with one fault of each kind. Return the new files and the faults."""
    planter = Planter({path.name: lines_of(path) for path in traces})
    for plant in PLANTS:
        plant(planter)
    directory.mkdir()
    found = []
    for name, lines in planter.files.items():
        path = directory / name
        numbered = [{**line, "line": number} for number, line in enumerate(lines, 1)]
        path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in numbered))
        found.append(path)
    return found, planter.faults


def lines_of(path: Path) -> list[Line]:
    """Return the lines of a trace, without a last line that a kill has cut off."""
    rows = path.read_bytes().splitlines(keepends=True)
    return [msgspec.json.decode(row) for row in rows if row.endswith(b"\n")]
