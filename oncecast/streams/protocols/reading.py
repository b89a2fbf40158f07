"""A reader of a stream: it puts what comes in order, asks for what is missing, and caches it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from oncecast.kernel.protocol import NodeId
from oncecast.streams.protocols.cache import Cache, Sample
from oncecast.streams.protocols.events import (
    NOT_MINE,
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

AHEAD_MAX = 2 * WINDOW  # messages that came out of turn
ACK_EVERY = WINDOW // 32
ACK_EVERY_BYTES = WINDOW_BYTES // 32
PAST_MAX = 1000  # writers that have gone, and may come back


class Source:
    """What a reader knows of one writer."""

    def __init__(self, endpoint: Endpoint, now: float) -> None:
        self.endpoint = endpoint
        self.next = 0  # all before it came, or never will; 0: not known where it begins
        self.heard, self.alive = now, True
        self.acked, self.unacked_bytes = 0, 0
        self.asked = (0, 0)  # what was last asked for again
        self._ahead: dict[int, Data] = {}  # came out of turn, by its first number
        self._order: list[int] = []  # these numbers, as a heap
        self.stable = 0  # all readers have what comes before
        self.kept: dict[int, Sample] = {}  # not known to be stable, for agreed streams
        self.others: dict[NodeId, int] = {}  # how far other readers are, if it is suspected

    @property
    def life(self) -> int:
        return self.endpoint.life

    @property
    def lacks_until(self) -> int:
        """The end of the first gap before what came out of turn; 0 if there is none."""
        return self._order[0] - 1 if self._order and self._order[0] > self.next else 0

    def put_aside(self, data: Data) -> None:
        other = self._ahead.get(data.since)
        if other is None and len(self._ahead) < AHEAD_MAX:
            heappush(self._order, data.since)
            self._ahead[data.since] = data
        elif other is not None and other.last < data.last:
            self._ahead[data.since] = data

    @property
    def in_order(self) -> bool:
        """Nothing came out of turn."""
        return not self._order

    def next_in_turn(self) -> Data | None:
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
        # What it reads comes from a durable topic, and not from writers.
        self.of_the_topic = self.qos.durability == Durability.PERSISTENT
        self.cache = Cache(endpoint.qos)
        self.sources: dict[NodeId, Source] = {}
        self._past: dict[NodeId, Source] = {}  # no longer matched: closed, gone, or suspected
        self._came: dict[bytes, float] = {}  # when, by key
        self._fed: list[Sample] = []  # from a topic, and not cached yet
        self.blocked = False  # for want of room

    def match(self, writer: NodeId, endpoint: Endpoint) -> None:
        """A writer that was suspected wrongly goes on where it was."""
        past = self._past.pop(writer, None)
        if past is None or past.life != endpoint.life:
            past = Source(endpoint, self._streams.now)
        self.sources[writer] = past

    def unmatch(self, writer: NodeId, *, suspected: bool) -> None:
        """It may come back, whether it is suspected or closed."""
        source = self.sources.pop(writer, None)
        if source is not None and self.reliable:
            self._past[writer] = source
            while len(self._past) > PAST_MAX:
                del self._past[next(iter(self._past))]

    def _source(self, writer: NodeId, life: int) -> Source | None:
        source = self.sources.get(writer) or self._past.get(writer)
        return source if source is not None and source.endpoint.life == life else None

    # -- what comes --

    def data(self, sender: NodeId, data: Data) -> None:
        source = self._source(data.writer, data.life)
        if source is None or self.of_the_topic or not data.possible:
            return
        if sender == data.writer:
            self._sign_of_life(data.writer, source)
        elif not source.next:
            source.next = data.since  # its writer is gone and cannot say more
        if self.reliable:
            if source.next:
                source.unacked_bytes += sum(map(len, data.values))
            if source.in_order and data.since <= source.next <= data.last and not self.blocked:
                self._accept(data.writer, source, data)
            elif data.last >= source.next:
                source.put_aside(data)
                self._proceed(data.writer, source)
        else:
            self._newest(data.writer, source, data)
        self._ack_if_due(data.writer, source)

    def _newest(self, writer: NodeId, source: Source, data: Data) -> None:
        """New values only, never back."""
        if data.last < source.next:
            return
        self._lost(writer, data.since - source.next if source.next else 0)
        _, left = self._keep(source, data)
        source.next = data.last + 1
        source.unacked_bytes += sum(map(len, data.values))
        if left:
            self._streams.emit(SamplesRejected(self.endpoint.stream, writer, left))

    def _proceed(self, writer: NodeId, source: Source) -> None:
        """Cache what is next, in order."""
        while source.next and not self.blocked and (data := source.next_in_turn()):
            self._accept(writer, source, data)

    def _accept(self, writer: NodeId, source: Source, data: Data) -> None:
        """It is the next one."""
        before = source.next
        kept, left = self._keep(source, data)
        if left:
            source.next = data.every_number[-left]
            source.put_aside(data)
            self._block()
        else:
            source.next = data.last + 1
        theirs = source.endpoint.qos
        if source.next - before > kept and theirs.keeps_all and theirs.lifespan == inf:
            self._lost(writer, source.next - before - kept)

    def _keep(self, source: Source, data: Data) -> tuple[int, int]:
        """How many of its values were cached, and how many there was no room for."""
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
            self._came.update((each.key, now) for each in samples[:kept])
        if kept:
            self._streams.emit(Arrived(self.endpoint.stream))
        return kept

    def _block(self) -> None:
        self.blocked = True
        self._streams.emit(LimitReached(self.endpoint.stream, "reader"))

    def _lost(self, writer: NodeId, count: int) -> None:
        if count > 0:
            self._streams.emit(SamplesLost(self.endpoint.stream, writer, count))

    def beat(self, writer: NodeId, beat: Beat) -> None:
        source = self._source(writer, beat.life)
        if source is None or not beat.possible:
            return
        self._sign_of_life(writer, source)
        if self.of_the_topic:
            return
        if not source.next:
            source.next = source.acked = beat.start
        if not self.reliable:
            self._lost(writer, beat.last + 1 - source.next)
            source.next = max(source.next, beat.last + 1)
            self._ack(writer, source)
            return
        source.stable = max(source.stable, beat.stable)
        for number in [each for each in source.kept if each < source.stable]:
            del source.kept[number]
        self._proceed(writer, source)
        self._ack(writer, source, source.lacks_until or (0 if self.blocked else beat.last))

    def feed(self, samples: Sequence[Sample]) -> None:
        """From the topic. Who feeds waits while it is blocked."""
        self._fed.extend(samples)
        self._eat()

    def _eat(self) -> None:
        if self._fed:
            del self._fed[: self._cache(self._fed, inf)]
            if self._fed:
                self._block()

    def took(self) -> None:
        """The application has taken something."""
        if self.blocked:
            self.blocked = False
            self._eat()
            for writer, source in self._past.items():
                self._proceed(writer, source)
            for writer, source in self.sources.items():
                self._proceed(writer, source)
                self._ack(writer, source)

    def _ack_if_due(self, writer: NodeId, source: Source) -> None:
        until = source.lacks_until
        if until and source.next and source.asked != (source.next, until):
            self._ack(writer, source, until)
        elif source.next >= source.acked + ACK_EVERY or source.unacked_bytes >= ACK_EVERY_BYTES:
            self._ack(writer, source)

    def _ack(self, writer: NodeId, source: Source, until: int = 0) -> None:
        source.acked, source.unacked_bytes = source.next, 0
        source.asked = (source.next, until)
        self._streams.send(writer, Acks(self.endpoint.stream, source.life, source.next, until))

    # -- a writer that is suspected: what one of its readers has, all shall have --

    def remembers(self, writer: NodeId) -> bool:
        return self.agreed and writer in self._past

    def tell_known(self, writer: NodeId, others: list[NodeId]) -> None:
        """To those of whom it is not known that they have just the same."""
        source = self._past.get(writer)
        if source is None or not self.agreed or not source.next:
            return
        for other in others:
            if source.others.get(other) not in (source.next, NOT_MINE):
                self._tell(other, writer, source.life, source.next, answer=True)

    def _tell(self, other: NodeId, writer: NodeId, life: int, number: int, *, answer: bool) -> None:
        self._streams.send(other, Known(self.endpoint.stream, writer, life, number, answer))

    def known(self, sender: NodeId, known: Known) -> None:
        """Give the other what it lacks; it does the same for us when it hears of us."""
        source = self._source(known.writer, known.life) if self.agreed else None
        if source is not None and 0 <= known.next < source.next:
            self._relay(sender, known, source)
        if source is not None:
            source.others[sender] = known.next
        if known.answer:
            mine = source.next if source is not None else NOT_MINE
            self._tell(sender, known.writer, known.life, mine, answer=False)

    def _relay(self, to: NodeId, known: Known, source: Source) -> None:
        more = [each for number, each in sorted(source.kept.items()) if number >= known.next]
        since = known.next or (more[0].number if more else source.next - 1)
        last = source.next - 1
        facts = (self.endpoint.stream, known.writer, known.life)
        for at in range(0, max(len(more), 1), DATA_MAX):
            part = more[at : at + DATA_MAX]
            end = part[-1].number if at + DATA_MAX < len(more) else last
            self._streams.send(to, Data(*facts, since, end, *columns(part)))
            since = end + 1

    # -- time --

    def _sign_of_life(self, writer: NodeId, source: Source) -> None:
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
        while len(self._came) > self.qos.keys_max:
            del self._came[next(iter(self._came))]
        for key, at in self._came.items():
            if now > at + self.qos.deadline:
                self._came[key] = now
                self._streams.emit(DeadlineMissed(self.endpoint.stream, "reader", key))
