"""Read a growing `oncecast load` trace and draw it on a terminal."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

LEVELS = " ▁▂▃▄▅▆▇█"
COLUMNS = 60
RATES = {"stored": "stored", "delivery": "delivered"}  # line kinds shown in the chart


class Growing:
    """A trace that is still being written. An incomplete last line is read later."""

    def __init__(self, path: Path) -> None:
        self.path, self._at = path, 0
        self.counts: Counter[str] = Counter()
        self.times: dict[str, list[float]] = {kind: [] for kind in RATES}

    def read(self) -> int:
        """Read the new lines. Return how many messages they report as stored."""
        before = self.counts["stored"]
        with self.path.open("rb") as file:
            file.seek(self._at)
            whole = file.read().rpartition(b"\n")[0]
        for line in whole.splitlines():
            fields = json.loads(line)
            self.counts[fields["kind"]] += 1
            if fields["kind"] in RATES:
                self.times[fields["kind"]].append(fields["time"])
        self._at += len(whole) + bool(whole)
        return self.counts["stored"] - before


def chart(times: dict[str, list[float]], marks: list[tuple[float, str]]) -> list[str]:
    """Return the lines of a chart that shows messages over time, with the marks below."""
    every = [time for each in times.values() for time in each]
    if not every:
        return []
    first, last = min(every), max(every)
    width = max(last - first, 1e-9) / COLUMNS
    lines = []
    for kind, name in RATES.items():
        steps = Counter(column(time, first, width) for time in times[kind])
        most = max(steps.values(), default=1)
        bars = "".join(LEVELS[-(-8 * steps[at] // most)] for at in range(COLUMNS))
        lines.append(f"{name:<10}{bars}  at most {most / width:,.0f}/s")
    ruler = ["─"] * COLUMNS
    for time, sign in marks:
        ruler[column(time, first, width)] = sign
    return [*lines, f"{'':<10}{''.join(ruler)}  {last - first:.0f} s"]


def column(time: float, first: float, width: float) -> int:
    return min(COLUMNS - 1, max(0, int((time - first) / width)))
