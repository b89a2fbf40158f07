"""What a check finds: something that cannot be, and the operations that show it."""

from __future__ import annotations

from typing import NamedTuple

from oncecast.history.operation import History
from oncecast.history.timeline import timeline


class Finding(NamedTuple):
    what: str  # which topic or subscription
    why: str
    operations: History
    left_out: int = 0  # operations that make no difference, whenever they happened

    def __str__(self) -> str:
        lines = [f"{self.what}: {self.why}"]
        if self.operations:
            lines += [f"  {line}" for line in timeline(self.operations)]
        if self.left_out:
            lines.append(f"  left out: {self.left_out} operations that make no difference")
        return "\n".join(lines)
