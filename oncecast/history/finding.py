"""A finding of the check: a contradiction, and the operations that show it."""

from __future__ import annotations

from typing import NamedTuple

from oncecast.history.operation import History
from oncecast.history.timeline import timeline


class Finding(NamedTuple):
    what: str  # the topic or subscription
    why: str
    operations: History
    left_out: int = 0  # operations that make no difference, whenever they happened

    def __str__(self) -> str:
        lines = [f"{self.what}: {self.why}"]
        if self.operations:
            lines += [f"  {line}" for line in timeline(self.operations)]
        if self.left_out:
            more = f"{self.left_out} operation{'s' if self.left_out > 1 else ''}"
            lines.append(f"  left out, because it makes no difference: {more}")
        return "\n".join(lines)
