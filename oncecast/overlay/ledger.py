"""The summaries that nodes exchange: the messages that a node has from each origin."""

from __future__ import annotations

from collections.abc import Iterable

from oncecast.kernel.protocol import NodeId
from oncecast.overlay.events import ORIGIN_LENGTH_MAX, MessageId
from oncecast.overlay.memory import Numbers, Range
from oncecast.overlay.messages import Holding, Ledger


class Stock(Numbers):
    """The message numbers of one origin. Below `floor`, some payloads may be deleted."""

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
    """A node's stocks, with limits on the number of origins and on the gaps per origin."""

    def __init__(self, me: NodeId, *, origins_max: int, gaps_max: int) -> None:
        self.origins_max, self.gaps_max = origins_max, gaps_max
        self._stocks = {me: Stock()}  # created first, so that our own messages always fit

    def __contains__(self, key: MessageId) -> bool:
        return key.number in self.of(key.origin)

    def of(self, origin: NodeId) -> Stock:
        return self._stocks.get(origin, NOTHING)

    def open(self, origin: NodeId) -> Stock:
        """Return an origin's stock, which the caller may change, creating it if needed."""
        return self._stocks.setdefault(origin, Stock())

    def can_add_origin(self, origin: NodeId) -> bool:
        return origin in self._stocks or len(self._stocks) < self.origins_max

    def can_add(self, key: MessageId) -> bool:
        """Return whether a message fits the limits. The lowest missing message always fits."""
        stock = self.of(key.origin)
        makes_no_gap = key.number in (stock.lowest_missing, stock.top + 1)
        return self.can_add_origin(key.origin) and (makes_no_gap or len(stock.gaps) < self.gaps_max)

    def holdings(self) -> tuple[Holding, ...]:
        return tuple(self._holding(origin, self.gaps_max) for origin in self._stocks)

    def restore(self, holdings: Iterable[Holding]) -> None:
        for each in holdings:
            self._stocks[each.origin] = Stock(each.top, each.gaps, each.floor)

    def ledger(self, low: NodeId, high: NodeId, *, origins_max: int, gaps_max: int) -> Ledger:
        """Return a ledger from `low` up to but excluding `high`, or a shorter one at the limit."""
        origins = list(filter(Ledger(low, high, ()).covers, sorted(self._stocks)))
        if len(origins) > origins_max:
            high = origins[origins_max]
        kept = origins[:origins_max]
        return Ledger(low, high, tuple(self._holding(origin, gaps_max) for origin in kept))

    def read(self, ledger: Ledger) -> dict[NodeId, Stock] | None:
        """Return the peer's stock for each origin that either node knows, or None if invalid."""
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
