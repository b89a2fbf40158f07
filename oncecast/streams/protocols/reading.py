"""The reader of a stream. It caches values, puts them in order, and requests missing ones."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from oncecast.kernel.protocol import NodeId
from oncecast.streams.protocols.cache import Cache, Sample
from oncecast.streams.protocols.events import (
    NOT_READING,
    Acks,
    Arrived,
    Beat,
    Data,
    DeadlineMissed,
    Endpoint,
    Known,
    LimitReached,
    Liveliness,
    SamplesLost,
    SamplesRejected,
)
from oncecast.streams.protocols.policies import Durability, Reliability
from oncecast.streams.protocols.writing import DATA_MAX, WINDOW, WINDOW_BYTES, columns

if TYPE_CHECKING:
    from oncecast.streams.protocols.streams import Streams

AHEAD_MAX = 2 * WINDOW  # maximum number of out-of-order messages that a reader keeps
ACK_EVERY = WINDOW // 32
ACK_EVERY_BYTES = WINDOW_BYTES // 32
PAST_MAX = 1000  # maximum number of unmatched writers to remember, because they may return


class Source:
    """A reader's state for one writer."""

    def __init__(self, endpoint: Endpoint, now: float) -> None:
        self.endpoint = endpoint
        self.next = 0  # the next expected number, or 0 if unknown
        self.heard, self.alive = now, True
        self.acked, self.unacked_bytes = 0, 0
        self.asked = (0, 0)  # the last range that the reader has requested again
        self._ahead: dict[int, Data] = {}  # out-of-order messages, by their first number
        self._order: list[int] = []  # the keys of `_ahead`, as a heap
        self.stable = 0  # all reliable readers have received all values before this number
        self.kept: dict[int, Sample] = {}  # values of agreed streams that may not be stable
        self.others: dict[NodeId, int] = {}  # progress of the other readers of a suspected writer

    @property
    def incarnation(self) -> int:
        return self.endpoint.incarnation

    @property
    def gap_end(self) -> int:
        """Return the last number of the first gap, or 0 without a gap."""
        return self._order[0] - 1 if self._order and self._order[0] > self.next else 0

    def set_aside(self, data: Data) -> None:
        other = self._ahead.get(data.since)
        if other is None and len(self._ahead) < AHEAD_MAX:
            heappush(self._order, data.since)
            self._ahead[data.since] = data
        elif other is not None and other.last < data.last:
            self._ahead[data.since] = data

    @property
    def in_order(self) -> bool:
        """Return whether all messages have arrived in order so far, or gaps were filled."""
        return not self._order

    def pop_next(self) -> Data | None:
        while self._order and self._order[0] <= self.next:
            data = self._ahead.pop(heappop(self._order))
            if data.last >= self.next:
                return data
        return None


class Reader:
    def __init__(self, streams: Streams, endpoint: Endpoint) -> None:
        self._streams, self.endpoint, self.qos = streams, endpoint, endpoint.qos
        self.reliable = self.qos.reliability > Reliability.BEST_EFFORT
        self.agreed = self.qos.reliability == Reliability.AGREED
        # A persistent reader receives its values from a topic, not from writers.
        self.from_topic = self.qos.durability == Durability.PERSISTENT
        self.cache = Cache(endpoint.qos)
        self.sources: dict[NodeId, Source] = {}
        self._past: dict[NodeId, Source] = {}  # unmatched writers: closed, gone or suspected
        self._arrived_at: dict[bytes, float] = {}  # by key
        self._fed: list[Sample] = []  # samples from the topic that are not cached yet
        self.blocked = False  # whether the cache is full

    def match(self, writer: NodeId, endpoint: Endpoint) -> None:
        """Match a writer. A wrongly suspected writer continues where it stopped."""
        past = self._past.pop(writer, None)
        if past is None or past.incarnation != endpoint.incarnation:
            past = Source(endpoint, self._streams.now)
        self.sources[writer] = past

    def unmatch(self, writer: NodeId, *, suspected: bool) -> None:
        """Unmatch a writer, and keep its state in case it returns."""
        source = self.sources.pop(writer, None)
        if source is not None and self.reliable:
            self._past[writer] = source
            while len(self._past) > PAST_MAX:
                del self._past[next(iter(self._past))]

    def _source(self, writer: NodeId, incarnation: int) -> Source | None:
        source = self.sources.get(writer) or self._past.get(writer)
        return source if source is not None and source.endpoint.incarnation == incarnation else None

    # -- messages from writers --

    def data(self, sender: NodeId, data: Data) -> None:
        source = self._source(data.writer, data.incarnation)
        if source is None or self.from_topic or not data.possible:
            return
        if sender == data.writer:
            self._mark_alive(data.writer, source)
        elif not source.next:
            source.next = data.since  # the writer is gone, so earlier values cannot arrive
        if self.reliable:
            if source.next:
                source.unacked_bytes += sum(map(len, data.values))
            if source.in_order and data.since <= source.next <= data.last and not self.blocked:
                self._accept(data.writer, source, data)
            elif data.last >= source.next:
                source.set_aside(data)
                self._proceed(data.writer, source)
        else:
            self._newest(data.writer, source, data)
        self._ack_if_due(data.writer, source)

    def _newest(self, writer: NodeId, source: Source, data: Data) -> None:
        """Accept values that are newer than the last one, and report values that were missed."""
        if data.last < source.next:
            return
        self._report_lost(writer, data.since - source.next if source.next else 0)
        _, left = self._keep(source, data)
        source.next = data.last + 1
        source.unacked_bytes += sum(map(len, data.values))
        if left:
            self._streams.emit(SamplesRejected(self.endpoint.stream, writer, left))

    def _proceed(self, writer: NodeId, source: Source) -> None:
        """Cache the next values in order, while there is space."""
        while source.next and not self.blocked and (data := source.pop_next()):
            self._accept(writer, source, data)

    def _accept(self, writer: NodeId, source: Source, data: Data) -> None:
        """Cache the values of the next message. Block the reader if the cache is full."""
        before = source.next
        kept, left = self._keep(source, data)
        if left:
            source.next = data.every_number[-left]
            source.set_aside(data)
            self._block()
        else:
            source.next = data.last + 1
        offered = source.endpoint.qos
        if source.next - before > kept and offered.keeps_all and offered.lifespan == inf:
            self._report_lost(writer, source.next - before - kept)

    def _keep(self, source: Source, data: Data) -> tuple[int, int]:
        """Cache the new values. Return how many were cached, and how many did not fit."""
        old = bisect_left(data.every_number, source.next) if data.since < source.next else 0
        samples = data.samples(old)
        if not samples:
            return 0, 0
        kept = self._cache(samples, source.endpoint.qos.lifespan, one_key=len(data.keys) == 1)
        if self.agreed:
            source.kept.update(
                (each.number, each) for each in samples[:kept] if each.number >= source.stable
            )
        return kept, len(samples) - kept

    def _cache(self, samples: Sequence[Sample], lifespan: float, *, one_key: bool = False) -> int:
        now = self._streams.now
        kept = self.cache.add(samples, now + lifespan, one_key=one_key)
        if self.qos.deadline < inf:
            self._arrived_at.update((each.key, now) for each in samples[:kept])
        if kept:
            self._streams.emit(Arrived(self.endpoint.stream))
        return kept

    def _block(self) -> None:
        self.blocked = True
        self._streams.emit(LimitReached(self.endpoint.stream, "reader"))

    def _report_lost(self, writer: NodeId, count: int) -> None:
        if count > 0:
            self._streams.emit(SamplesLost(self.endpoint.stream, writer, count))

    def beat(self, writer: NodeId, beat: Beat) -> None:
        source = self._source(writer, beat.incarnation)
        if source is None or not beat.possible:
            return
        self._mark_alive(writer, source)
        if self.from_topic:
            return
        if not source.next:
            source.next = source.acked = beat.start
        if not self.reliable:
            self._report_lost(writer, beat.last + 1 - source.next)
            source.next = max(source.next, beat.last + 1)
            self._ack(writer, source)
            return
        source.stable = max(source.stable, beat.stable)
        for number in [each for each in source.kept if each < source.stable]:
            del source.kept[number]
        self._proceed(writer, source)
        self._ack(writer, source, source.gap_end or (0 if self.blocked else beat.last))

    def feed(self, samples: Sequence[Sample]) -> None:
        """Accept values from the topic. The caller waits while the reader is blocked."""
        self._fed.extend(samples)
        self._cache_fed()

    def _cache_fed(self) -> None:
        if self._fed:
            del self._fed[: self._cache(self._fed, inf)]
            if self._fed:
                self._block()

    def took(self) -> None:
        """Continue after the application has taken values."""
        if self.blocked:
            self.blocked = False
            self._cache_fed()
            for writer, source in self._past.items():
                self._proceed(writer, source)
            for writer, source in self.sources.items():
                self._proceed(writer, source)
                self._ack(writer, source)

    def _ack_if_due(self, writer: NodeId, source: Source) -> None:
        until = source.gap_end
        if until and source.next and source.asked != (source.next, until):
            self._ack(writer, source, until)
        elif source.next >= source.acked + ACK_EVERY or source.unacked_bytes >= ACK_EVERY_BYTES:
            self._ack(writer, source)

    def _ack(self, writer: NodeId, source: Source, until: int = 0) -> None:
        source.acked, source.unacked_bytes = source.next, 0
        source.asked = (source.next, until)
        self._streams.send(
            writer, Acks(self.endpoint.stream, source.incarnation, source.next, until)
        )

    # -- agreement after a writer is suspected --

    def remembers(self, writer: NodeId) -> bool:
        return self.agreed and writer in self._past

    def send_known_to(self, writer: NodeId, others: list[NodeId]) -> None:
        """Send our progress to readers that may have different values from a suspected writer."""
        source = self._past.get(writer)
        if source is None or not self.agreed or not source.next:
            return
        for other in others:
            if source.others.get(other) not in (source.next, NOT_READING):
                self._send_known(other, writer, source.incarnation, source.next, answer=True)

    def _send_known(
        self, other: NodeId, writer: NodeId, incarnation: int, number: int, *, answer: bool
    ) -> None:
        self._streams.send(other, Known(self.endpoint.stream, writer, incarnation, number, answer))

    def known(self, sender: NodeId, known: Known) -> None:
        """Send the values that another reader lacks. That reader does the same for us."""
        source = self._source(known.writer, known.incarnation) if self.agreed else None
        if source is not None and 0 <= known.next < source.next:
            self._relay(sender, known, source)
        if source is not None:
            source.others[sender] = known.next
        if known.answer:
            known_here = source.next if source is not None else NOT_READING
            self._send_known(sender, known.writer, known.incarnation, known_here, answer=False)

    def _relay(self, to: NodeId, known: Known, source: Source) -> None:
        more = [each for number, each in sorted(source.kept.items()) if number >= known.next]
        since = known.next or (more[0].number if more else source.next - 1)
        last = source.next - 1
        header = (self.endpoint.stream, known.writer, known.incarnation)
        for at in range(0, max(len(more), 1), DATA_MAX):
            part = more[at : at + DATA_MAX]
            end = part[-1].number if at + DATA_MAX < len(more) else last
            self._streams.send(to, Data(*header, since, end, *columns(part)))
            since = end + 1

    # -- time --

    def _mark_alive(self, writer: NodeId, source: Source) -> None:
        source.heard = self._streams.now
        if not source.alive:
            source.alive = True
            self._streams.emit(Liveliness(self.endpoint.stream, writer, True))

    def tick(self) -> None:
        now, before = self._streams.now, len(self.cache)
        self.cache.expire(now)
        if len(self.cache) < before:
            self.took()
        for writer, source in self.sources.items():
            if source.alive and now > source.heard + self.qos.liveliness:
                source.alive = False
                self._streams.emit(Liveliness(self.endpoint.stream, writer, False))
        while len(self._arrived_at) > self.qos.keys_max:
            del self._arrived_at[next(iter(self._arrived_at))]
        for key, at in self._arrived_at.items():
            if now > at + self.qos.deadline:
                self._arrived_at[key] = now
                self._streams.emit(DeadlineMissed(self.endpoint.stream, "reader", key))
