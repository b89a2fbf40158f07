"""Keep exact totals across all topics while each topic adds and removes its own items."""

from __future__ import annotations

from typing import Any, TypeVar

Part = TypeVar("Part")


class Total:
    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Counted(dict[str, Part]):
    """A dict whose items count towards a total."""

    __slots__ = ("_total",)

    def __init__(self) -> None:
        super().__init__()
        self._total = Total()

    def count_in(self, total: Total) -> None:
        """Count the items in `total` from now on, instead of in the previous total."""
        self._total.count -= len(self)
        self._total = total
        total.count += len(self)

    def count_out(self, total: Total) -> None:
        """Stop counting the items in `total`, unless they already count in another total."""
        if self._total is total:
            self.count_in(Total())

    def __setitem__(self, name: str, part: Part) -> None:
        self._total.count += name not in self
        super().__setitem__(name, part)

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self._total.count -= 1

    def pop(self, name: str, *default: Any) -> Any:
        self._total.count -= name in self
        return super().pop(name, *default)

    def clear(self) -> None:
        self._total.count -= len(self)
        super().clear()
