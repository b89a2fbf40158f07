"""The messages that a node has from each origin, in a form that it can send to other nodes."""

from __future__ import annotations

from collections.abc import Iterable

from oncecast.kernel.protocol import NodeId, Value
from oncecast.overlay.events import ORIGIN_LENGTH_MAX, MessageId
from oncecast.overlay.memory import Numbers, Range

ANY = NodeId("")  # as a bound of a range of origins: unbounded


class Holding(Value, tag=False):
    """A node has 1 to `top` of an origin, except `gaps`. Payloads below `floor` may be gone."""

    origin: NodeId
    floor: int
    top: int
    gaps: tuple[Range, ...]


class Ledger(Value, tag=False):
    """All messages that a node has of the origins from `low` to before `high`.

    It may leave out the highest gaps: they are reported once lower ones are filled.
    """

    low: NodeId
    high: NodeId
    holdings: tuple[Holding, ...]

    def covers(self, origin: NodeId) -> bool:
        return self.low <= origin and (self.high == ANY or origin < self.high)


class Stock(Numbers):
    """The numbers of one origin, and the floor below which not every payload is kept."""

    __slots__ = ("floor",)

    def __init__(self, top: int = 0, gaps: Iterable[Range] = (), floor: int = 1) -> None:
        super().__init__(top, gaps)
        self.floor = floor

    @property
    def well_formed(self) -> bool:
        return super().well_formed and 1 <= self.floor <= self.top + 1

    def raise_floor(self, floor: int) -> None:
        self.floor = max(self.floor, floor)


NOTHING = Stock()  # the stock of an unknown origin; never modified


class Inventory:
    """The stocks of a node, bounded in origins and in gaps per origin."""

    def __init__(self, me: NodeId, *, origins_max: int, gaps_max: int) -> None:
        self.origins_max, self.gaps_max = origins_max, gaps_max
        self._stocks = {me: Stock()}  # so its own messages always fit

    def __contains__(self, key: MessageId) -> bool:
        return key.number in self.of(key.origin)

    def of(self, origin: NodeId) -> Stock:
        return self._stocks.get(origin, NOTHING)

    def open(self, origin: NodeId) -> Stock:
        """Return the stock of an origin for changes, and create it if needed."""
        return self._stocks.setdefault(origin, Stock())

    def can_add_origin(self, origin: NodeId) -> bool:
        return origin in self._stocks or len(self._stocks) < self.origins_max

    def can_add(self, key: MessageId) -> bool:
        """Return whether a message fits. The lowest missing one always does."""
        stock = self.of(key.origin)
        makes_no_gap = key.number in (stock.lowest_missing, stock.top + 1)
        return self.can_add_origin(key.origin) and (makes_no_gap or len(stock.gaps) < self.gaps_max)

    def holdings(self) -> tuple[Holding, ...]:
        return tuple(self._holding(origin, self.gaps_max) for origin in self._stocks)

    def restore(self, holdings: Iterable[Holding]) -> None:
        for each in holdings:
            self._stocks[each.origin] = Stock(each.top, each.gaps, each.floor)

    def ledger(self, low: NodeId, high: NodeId, *, origins_max: int, gaps_max: int) -> Ledger:
        """Return the holdings from `low` to before `high`, or fewer if these are too many."""
        origins = list(filter(Ledger(low, high, ()).covers, sorted(self._stocks)))
        if len(origins) > origins_max:
            high = origins[origins_max]
        kept = origins[:origins_max]
        return Ledger(low, high, tuple(self._holding(origin, gaps_max) for origin in kept))

    def read(self, ledger: Ledger) -> dict[NodeId, Stock] | None:
        """Return the stocks of a peer, also for origins only we know, or None if invalid."""
        stocks = {origin: NOTHING for origin in self._stocks if ledger.covers(origin)}
        for each in ledger.holdings:
            stock = Stock(each.top, each.gaps, each.floor)
            if not (stock.well_formed and 0 < len(each.origin) <= ORIGIN_LENGTH_MAX):
                return None
            stocks[each.origin] = stock
        return stocks

    def _holding(self, origin: NodeId, gaps_max: int) -> Holding:
        stock = self._stocks[origin]
        return Holding(origin, stock.floor, stock.top, tuple(stock.gaps[:gaps_max]))
