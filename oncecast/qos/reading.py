"""A reader of a stream: it puts what comes in order, asks for what is missing, and caches it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecast.kernel.protocol import NodeId
from oncecast.qos.cache import Cache, Full, Sample
from oncecast.qos.events import (
    DATA_MAX,
    NUMBERS_MAX,
    Acks,
    Arrived,
    Beat,
    Data,
    DeadlineMissed,
    Endpoint,
    Gaps,
    Item,
    Known,
    Liveliness,
)
from oncecast.qos.policies import Reliability

if TYPE_CHECKING:
    from oncecast.qos.streams import Streams

AHEAD_MAX = 10_000  # numbers beyond the next one that are kept
ACK_EVERY = 32


class Source:
    """What a reader knows of one writer."""

    def __init__(self, endpoint: Endpoint, now: float) -> None:
        self.endpoint = endpoint
        self.next = 0  # all before it came, or never will; 0: not known where it begins
        self.ahead: dict[int, Item | None] = {}  # came out of turn; None: never will
        self.heard, self.alive = now, True
        self.acked = 0
        self.stable = 0  # all readers have what comes before
        self.kept: dict[int, Item] = {}  # not known to be stable, for agreed streams

    @property
    def life(self) -> int:
        return self.endpoint.life

    @property
    def lacking(self) -> tuple[int, ...]:
        last = max(self.ahead, default=0)
        missing = (each for each in range(self.next, last) if each not in self.ahead)
        return tuple(each for each, _ in zip(missing, range(NUMBERS_MAX), strict=False))


class Reader:
    def __init__(self, streams: Streams, endpoint: Endpoint) -> None:
        self._streams, self.endpoint, self.qos = streams, endpoint, endpoint.qos
        self.cache = Cache(endpoint.qos)
        self.sources: dict[NodeId, Source] = {}
        self._came: dict[bytes, float] = {}  # when, by key
        self._blocked = False  # the cache is full, and keeps all

    @property
    def reliable(self) -> bool:
        return self.qos.reliability > Reliability.BEST_EFFORT

    @property
    def agreed(self) -> bool:
        return self.qos.reliability == Reliability.AGREED

    def match(self, writer: NodeId, endpoint: Endpoint) -> None:
        known = self.sources.get(writer)
        if known is None or known.endpoint.life != endpoint.life:
            self.sources[writer] = Source(endpoint, self._streams.now)

    def unmatch(self, writer: NodeId) -> None:
        """Who is suspected may have written what others have: an agreed stream remembers it."""
        if not self.agreed:
            self.sources.pop(writer, None)

    # -- what comes --

    def data(self, sender: NodeId, data: Data) -> None:
        source = self._source(data.writer, data.life)
        if source is None:
            return
        if sender == data.writer:
            self._sign_of_life(data.writer, source)
        if not self.reliable:
            self._newest(data.writer, source, data.items)
            return
        if not source.next:
            source.next = source.acked = data.start
        for item in data.items:
            if source.next <= item.number < source.next + AHEAD_MAX:
                source.ahead.setdefault(item.number, item)
        self._proceed(data.writer, source)
        if source.lacking or source.next >= source.acked + ACK_EVERY:
            self._ack(data.writer, source)

    def _newest(self, writer: NodeId, source: Source, items: tuple[Item, ...]) -> None:
        """New values only, never back."""
        for item in items:
            if item.number >= source.next:
                source.next = item.number + 1
                self._keep(writer, source, item)

    def gaps(self, gaps: Gaps) -> None:
        source = self._source(gaps.writer, gaps.life)
        if source is not None and source.next:
            for number in gaps.numbers:
                if source.next <= number < source.next + AHEAD_MAX:
                    source.ahead.setdefault(number, None)
            self._proceed(gaps.writer, source)

    def beat(self, writer: NodeId, beat: Beat) -> None:
        source = self._source(writer, beat.life)
        if source is None:
            return
        self._sign_of_life(writer, source)
        if not self.reliable:
            return
        if not source.next:
            source.next = source.acked = beat.start
        source.stable = max(source.stable, beat.stable)
        for number in [each for each in source.kept if each < source.stable]:
            del source.kept[number]
        self._proceed(writer, source)
        lacking = source.lacking
        if beat.last >= source.next + len(source.ahead):
            known = max(source.ahead, default=source.next - 1)
            more = range(max(known + 1, source.next), beat.last + 1)
            lacking = (*lacking, *more)[:NUMBERS_MAX]
        self._ack(writer, source, lacking)

    def _source(self, writer: NodeId, life: int) -> Source | None:
        source = self.sources.get(writer)
        return source if source is not None and source.endpoint.life == life else None

    def _proceed(self, writer: NodeId, source: Source) -> None:
        """Cache what is next, in order."""
        while source.next in source.ahead:
            item = source.ahead[source.next]
            if item is not None and not self._keep(writer, source, item):
                return
            del source.ahead[source.next]
            if item is not None and self.agreed and source.next >= source.stable:
                source.kept[source.next] = item
            source.next += 1

    def _keep(self, writer: NodeId, source: Source, item: Item) -> bool:
        """False if there is no room for it now."""
        now = self._streams.now
        until = now + source.endpoint.qos.lifespan
        try:
            self.cache.add(Sample(writer, item.number, item.key, item.value, until))
        except Full:
            self._blocked = True
            return False
        self._came[item.key] = now
        self._streams.emit(Arrived(self.endpoint.stream))
        return True

    def made_room(self) -> None:
        """The application has taken something."""
        if self._blocked:
            self._blocked = False
            for writer, source in self.sources.items():
                self._proceed(writer, source)
                self._ack(writer, source)

    def _ack(self, writer: NodeId, source: Source, lacking: tuple[int, ...] = ()) -> None:
        source.acked = source.next
        lacking = lacking or source.lacking
        facts = (self.endpoint.stream, source.endpoint.life, source.next)
        self._streams.send(writer, Acks(*facts, lacking))

    # -- a writer that is suspected: what one of its readers has, all shall have --

    def tell_known(self, writer: NodeId, others: list[NodeId]) -> None:
        source = self.sources.get(writer)
        if self.agreed and source is not None and source.next:
            known = Known(self.endpoint.stream, writer, source.endpoint.life, source.next)
            for other in others:
                self._streams.send(other, known)

    def known(self, sender: NodeId, known: Known) -> None:
        """Give the other what it lacks; it does the same for us when it hears of us."""
        source = self._source(known.writer, known.life)
        if source is None or not self.agreed:
            return
        more = [item for number, item in sorted(source.kept.items()) if number >= known.next]
        facts = (self.endpoint.stream, known.writer, known.life)
        if known.next < source.next:
            have = {item.number for item in more}
            gone = tuple(each for each in range(known.next, source.next) if each not in have)
            for at in range(0, len(gone), NUMBERS_MAX):
                self._streams.send(sender, Gaps(*facts, gone[at : at + NUMBERS_MAX]))
            for at in range(0, len(more), DATA_MAX):
                items = tuple(more[at : at + DATA_MAX])
                self._streams.send(sender, Data(*facts, known.next, items))

    # -- time --

    def _sign_of_life(self, writer: NodeId, source: Source) -> None:
        source.heard = self._streams.now
        if not source.alive:
            source.alive = True
            self._streams.emit(Liveliness(self.endpoint.stream, writer, True))

    def tick(self) -> None:
        now = self._streams.now
        self.cache.expire(now)
        for writer, source in self.sources.items():
            if source.alive and now > source.heard + self.qos.liveliness:
                source.alive = False
                self._streams.emit(Liveliness(self.endpoint.stream, writer, False))
        for key, at in self._came.items():
            if now > at + self.qos.deadline:
                self._came[key] = now
                self._streams.emit(DeadlineMissed(self.endpoint.stream, "reader", key))
