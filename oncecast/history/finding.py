"""A finding of the check: a contradiction and the operations that prove it."""

from __future__ import annotations

from typing import NamedTuple

from oncecast.history.operation import History
from oncecast.history.timeline import timeline


class Finding(NamedTuple):
    what: str  # the topic or subscription
    why: str
    operations: History
    left_out: int = 0  # number of operations that play no part in the contradiction

    def __str__(self) -> str:
        lines = [f"{self.what}: {self.why}"]
        if self.operations:
            lines += [f"  {line}" for line in timeline(self.operations)]
        if self.left_out:
            more = f"{self.left_out} operation{'s' if self.left_out > 1 else ''}"
            lines.append(f"  omitted, because the contradiction does not involve them: {more}")
        return "\n".join(lines)
