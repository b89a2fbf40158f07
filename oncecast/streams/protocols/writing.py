"""A writer of a stream: it numbers what is written, sends it, and keeps what may be asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

from oncecast.kernel.protocol import NodeId
from oncecast.streams.protocols.cache import Cache, Sample
from oncecast.streams.protocols.events import (
    Acks,
    Beat,
    Data,
    DeadlineMissed,
    Endpoint,
    LimitReached,
    NotWritten,
    Stable,
    Write,
    Written,
)
from oncecast.streams.protocols.policies import Durability, Reliability
from oncecast.streams.protocols.runs import Runs

if TYPE_CHECKING:
    from oncecast.streams.protocols.streams import Streams

SIGNS = 3  # of life in the time without one that is allowed
WINDOW = 8192  # values that a reader has not acknowledged: beyond, nothing more is sent to it
WINDOW_BYTES = 4 << 20
DATA_MAX = 512  # values that are sent again in one message
DATA_BYTES_MAX = 1 << 18  # and their bytes, unless it is one value
AGAIN_MAX = 16  # such messages at a time
AWAY_MAX = (
    30.0  # seconds for which values are kept for a reader that is suspected, if there is room
)
OF_THE_TOPIC = 1 << 62  # what a persistent reader gets from its topic, it is never sent


class Audience:
    """A reader that is matched: its first number, and up to where it has all."""

    __slots__ = ("_bytes", "_under_way", "life", "next", "reliable", "sent", "start")

    def __init__(self, endpoint: Endpoint, start: int) -> None:
        self.life, self.start = endpoint.life, start
        self.next = self.sent = start  # it has, and it was sent, all before
        self.reliable = endpoint.qos.reliability > Reliability.BEST_EFFORT
        self._under_way: deque[tuple[int, int]] = deque()  # up to which number, how many bytes
        self._bytes = 0
        if endpoint.qos.durability == Durability.PERSISTENT:
            self.next = self.sent = OF_THE_TOPIC
            self.reliable = False

    @property
    def listens(self) -> bool:
        """Whether there is not too much under way to it."""
        return self.sent - self.next < WINDOW and self._bytes < WINDOW_BYTES

    def note(self, last: int, size: int) -> None:
        self.sent = last + 1
        self._bytes += size
        self._under_way.append((last, size))

    def come_back(self) -> None:
        """What was under way to it may be lost."""
        self.sent, self._bytes = self.next, 0
        self._under_way.clear()

    def acked(self, number: int) -> None:
        self.next = max(self.next, number)
        while self._under_way and self._under_way[0][0] < self.next:
            self._bytes -= self._under_way.popleft()[1]


class Writer:
    def __init__(self, streams: Streams, endpoint: Endpoint) -> None:
        self._streams, self.endpoint, self.qos = streams, endpoint, endpoint.qos
        self.readers: dict[NodeId, Audience] = {}
        self._away: dict[NodeId, tuple[float, Audience]] = {}  # suspected; until when
        self.next = 1
        self.stable = 1  # all reliable readers have what comes before
        self.safe = 1  # and so have those that are away
        self.cache = Runs(self.qos) if self.qos.keeps_all else Cache(self.qos)
        self._waiting: deque[tuple[float, Write]] = deque()  # for room, until then
        self._written: dict[bytes, float] = {}  # when, by key
        self._for_late_ones = self.qos.durability > Durability.VOLATILE
        # Whether anything is kept, so that room may lack for it.
        self.may_wait = self._for_late_ones or self.qos.reliability > Reliability.BEST_EFFORT
        self._awaited = False  # by reliable readers, here or away
        self._lived = streams.now  # when it last said that it is alive

    # -- writing --

    def write(self, write: Write) -> None:
        if self._away and not self._has_room(write):
            self._away.clear()
            self._settle()
        if self._waiting or not self._has_room(write):
            if not self._waiting:
                self._streams.emit(LimitReached(self.endpoint.stream, "writer"))
                self._ask_readers()
            self._waiting.append((self._streams.now + self.qos.blocking_max, write))
            self.tick()
        else:
            self._write(write)

    @property
    def waits(self) -> bool:
        """Whether something waits for room: what is written next waits behind it."""
        return bool(self._waiting)

    def _has_room(self, write: Write) -> bool:
        return not self.may_wait or self.cache.has_room(write.keys, len(write.values))

    def _write(self, write: Write) -> None:
        streams, first, count = self._streams, self.next, len(write.values)
        self.next = end = first + count
        stream, life = self.endpoint.stream, self.endpoint.life
        # The same for all: it is encoded once.
        numbers = (first,)
        data = Data(stream, streams.me, life, first, end - 1, numbers, write.keys, write.values)
        self._keep(data)
        if self.qos.deadline < inf:
            self._written.update(dict.fromkeys(write.keys, streams.now))
        size = sum(map(len, write.values))
        for reader, audience in self.readers.items():
            if audience.sent == first and audience.listens:
                audience.note(end - 1, size)
                streams.send(reader, data)
            elif not audience.reliable and audience.sent < end:
                audience.sent = end  # with best effort, who does not keep up misses something
        if not self._awaited:
            self._settle()
        if write.ticket:
            streams.emit(Written(write.stream, write.ticket, end - 1))

    def _keep(self, data: Data) -> None:
        needed = self._for_late_ones or self._awaited
        until = self._streams.now + self.qos.lifespan
        if isinstance(self.cache, Runs):
            self.cache.add(data, until) if needed else self.cache.skip(data)
        elif needed:
            self.cache.add(data.samples(), until, one_key=len(data.keys) == 1)
        else:
            self.cache.skip(len(data.values))

    # -- readers --

    def match(self, reader: NodeId, endpoint: Endpoint) -> None:
        """Who comes late gets what is kept, if that is requested."""
        _, away = self._away.pop(reader, (0.0, None))
        if away is not None and away.life == endpoint.life:
            audience = away
            audience.come_back()
        else:
            late = endpoint.qos.durability > Durability.VOLATILE
            audience = Audience(endpoint, self.cache.first if late else self.next)
        self.readers[reader] = audience
        self._beat(reader, audience)
        self._catch_up(reader, audience)
        self._settle()

    def unmatch(self, reader: NodeId, *, suspected: bool) -> None:
        audience = self.readers.pop(reader, None)
        if audience is not None and audience.reliable and suspected:
            self._away[reader] = (self._streams.now + AWAY_MAX, audience)
        self._settle()
        self.tick()

    def acked(self, reader: NodeId, acks: Acks) -> None:
        audience = self.readers.get(reader)
        if audience is None or acks.next > self.next:
            return
        audience.acked(acks.next)
        again = self._messages(acks.next, min(acks.until, audience.sent - 1))
        for data in islice(again, AGAIN_MAX):
            self._streams.send(reader, data)
        self._catch_up(reader, audience)
        self._settle()
        self.tick()

    def _catch_up(self, reader: NodeId, audience: Audience) -> None:
        """Send on where it could not go on before."""
        for data in self._messages(audience.sent, self.next - 1):
            if not audience.listens:
                return
            audience.note(data.last, sum(map(len, data.values)))
            self._streams.send(reader, data)

    def _messages(self, since: int, last: int) -> Iterator[Data]:
        """What is kept of these numbers. If nothing is, that is said, too."""
        if since > last:
            return
        kept = self.cache.messages if isinstance(self.cache, Runs) else self._newest
        for data in kept(since, last):
            if since < data.since:
                yield self._data([], since, data.since - 1)
            yield data
            since = data.last + 1
        if since <= last:
            yield self._data([], since, last)

    def _newest(self, since: int, last: int) -> Iterator[Data]:
        """Of a cache that keeps the last: in messages that are not too large."""
        assert isinstance(self.cache, Cache)
        samples: list[Sample] = []
        size = 0
        for sample in self.cache.between(since, last):
            if samples and (len(samples) >= DATA_MAX or size + len(sample.value) > DATA_BYTES_MAX):
                yield self._data(samples, since, samples[-1].number)
                since, samples, size = samples[-1].number + 1, [], 0
            samples.append(sample)
            size += len(sample.value)
        if samples:
            yield self._data(samples, since, samples[-1].number)

    def _data(self, samples: list[Sample], since: int, last: int) -> Data:
        facts = (self.endpoint.stream, self._streams.me, self.endpoint.life)
        return Data(*facts, since, last, *columns(samples))

    def _settle(self) -> None:
        """With keep-all, what all readers have is needed no more; unless others may come late."""
        here = [each.next for each in self.readers.values() if each.reliable]
        self._awaited = bool(here or self._away)
        before, self.stable = self.stable, min(here, default=self.next)
        self.safe = min((self.stable, *(each.next for _, each in self._away.values())))
        if isinstance(self.cache, Runs):
            self._let_go(self.cache)
        if self.stable != before:
            self._streams.emit(Stable(self.endpoint.stream, self.stable))

    def _let_go(self, runs: Runs) -> None:
        if self.qos.durability == Durability.VOLATILE:
            runs.drop_before(self.safe)
        elif self.qos.durability == Durability.PERSISTENT:
            # The topic has all of them; some stay for those who come late and read no topic.
            runs.drop_before(min(self.safe, self.next - self.qos.samples_max // 2))

    # -- time --

    def beat(self) -> None:
        """Who may lack something is told how far things are; so are all, as a sign of life."""
        due = self._streams.now >= self._lived + self.qos.liveliness / SIGNS
        if due:
            self._lived = self._streams.now
        for reader, audience in self.readers.items():
            if due or audience.next < min(audience.sent, self.next):
                self._beat(reader, audience)

    def _ask_readers(self) -> None:
        """Without room: they say how far they are, and need not wait for the next turn."""
        for reader, audience in self.readers.items():
            if audience.reliable:
                self._beat(reader, audience)

    def _beat(self, reader: NodeId, audience: Audience) -> None:
        facts = (self.endpoint.stream, self.endpoint.life, audience.start, audience.sent - 1)
        self._streams.send(reader, Beat(*facts, self.safe))

    def tick(self) -> None:
        """Room may have come, or the time to wait for it be over; values grow old."""
        now = self._streams.now
        self.cache.expire(now)
        for reader in [each for each, (until, _) in self._away.items() if until < now]:
            del self._away[reader]
            self._settle()
        while self._waiting:
            give_up, write = self._waiting[0]
            if self._has_room(write):
                self._waiting.popleft()
                self._write(write)
                if self._waiting and not self._has_room(self._waiting[0][1]):
                    self._ask_readers()
            elif now >= give_up:
                self._waiting.popleft()
                self._streams.emit(NotWritten(write.stream, write.ticket, self._why_not(write)))
            else:
                return

    def _why_not(self, write: Write) -> str:
        lagging = [peer for peer, each in self.readers.items() if each.next == self.stable]
        whose = f"{', '.join(lagging)} lags behind" if lagging else "all of it is kept"
        return (
            f"{len(self.cache)} values of {self.cache.key_count} keys are the limit, and in "
            f"{self.qos.blocking_max:g} s there was no room: {whose}; write later, or raise "
            "samples_max, keys_max or blocking_max"
        )

    def look_at_deadlines(self) -> None:
        now = self._streams.now
        while len(self._written) > self.qos.keys_max:
            del self._written[next(iter(self._written))]
        for key, at in self._written.items():
            if now > at + self.qos.deadline:
                self._written[key] = now
                self._streams.emit(DeadlineMissed(self.endpoint.stream, "writer", key))


def columns(
    samples: list[Sample],
) -> tuple[tuple[int, ...], tuple[bytes, ...], tuple[bytes, ...]]:
    """Numbers, keys and values; what says the same of all of them once."""
    numbers = tuple(sample.number for sample in samples)
    keys = tuple(sample.key for sample in samples)
    if samples and numbers[-1] - numbers[0] == len(numbers) - 1:
        numbers = numbers[:1]
    if len(set(keys)) == 1:
        keys = keys[:1]
    return numbers, keys, tuple(sample.value for sample in samples)
