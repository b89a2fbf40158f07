"""The writer of a stream. It numbers values, sends them, and keeps those it may have to resend."""

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

BEATS = 3  # number of heartbeats within the liveliness time
WINDOW = 8192  # maximum unacknowledged values in flight to one reader
WINDOW_BYTES = 4 << 20
DATA_MAX = 512  # maximum number of values in a message that is built from the cache
DATA_BYTES_MAX = 1 << 18  # maximum bytes of these values, unless there is only one
RESEND_MAX = 16  # maximum number of messages that are resent at a time
SUSPECTED_MAX = 30.0  # seconds to keep values for a suspected reader, while the cache has space
FROM_TOPIC = 1 << 62  # `sent` of a persistent reader, which receives values from its topic


class MatchedReader:
    """A matched reader, with the numbers that were sent and those that the reader acknowledged."""

    __slots__ = ("_bytes", "_in_flight", "incarnation", "next", "reliable", "sent", "start")

    def __init__(self, endpoint: Endpoint, start: int) -> None:
        self.incarnation, self.start = endpoint.incarnation, start
        # The first number that is not acknowledged, and the first that is not sent.
        self.next = self.sent = start
        self.reliable = endpoint.qos.reliability > Reliability.BEST_EFFORT
        # Last number and size of each message in flight.
        self._in_flight: deque[tuple[int, int]] = deque()
        self._bytes = 0
        if endpoint.qos.durability == Durability.PERSISTENT:
            self.next = self.sent = FROM_TOPIC
            self.reliable = False

    @property
    def has_window(self) -> bool:
        """Return whether the window of this reader has space for more values."""
        return self.sent - self.next < WINDOW and self._bytes < WINDOW_BYTES

    def note_sent(self, last: int, size: int) -> None:
        self.sent = last + 1
        self._bytes += size
        self._in_flight.append((last, size))

    def resume(self) -> None:
        """Go back to the last acknowledgement, because messages in flight may be lost."""
        self.sent, self._bytes = self.next, 0
        self._in_flight.clear()

    def acked(self, number: int) -> None:
        self.next = max(self.next, number)
        while self._in_flight and self._in_flight[0][0] < self.next:
            self._bytes -= self._in_flight.popleft()[1]


class Writer:
    def __init__(self, streams: Streams, endpoint: Endpoint) -> None:
        self._streams, self.endpoint, self.qos = streams, endpoint, endpoint.qos
        self.readers: dict[NodeId, MatchedReader] = {}
        # Suspected readers, each with the time until which its values are kept.
        self._suspected_readers: dict[NodeId, tuple[float, MatchedReader]] = {}
        self.next = 1
        self.stable = 1  # all reliable readers have received all values before this number
        # All reliable and suspected readers have received all values before this number.
        self.safe = 1
        self.cache = Runs(self.qos) if self.qos.keeps_all else Cache(self.qos)
        # Writes that wait for cache space, each with its deadline.
        self._waiting: deque[tuple[float, Write]] = deque()
        self._written: dict[bytes, float] = {}  # time of the last write of each key
        self._keeps_history = self.qos.durability > Durability.VOLATILE
        # Only a writer that keeps values can run out of cache space.
        self.may_wait = self._keeps_history or self.qos.reliability > Reliability.BEST_EFFORT
        # Whether there are reliable readers, matched or suspected.
        self._has_reliable_readers = False
        self._beat_at = streams.now  # time of the last heartbeat to all readers

    # -- writing --

    def write(self, write: Write) -> None:
        if self._suspected_readers and not self._fits(write):
            self._suspected_readers.clear()
            self._update_stable()
        if self._waiting or not self._fits(write):
            if not self._waiting:
                self._streams.emit(LimitReached(self.endpoint.stream, "writer"))
                self._ask_readers()
            self._waiting.append((self._streams.now + self.qos.blocking_max, write))
            self.tick()
        else:
            self._write(write)

    @property
    def is_waiting(self) -> bool:
        """Return whether a write waits for space. Later writes then wait too."""
        return bool(self._waiting)

    def _fits(self, write: Write) -> bool:
        return not self.may_wait or self.cache.fits(write.keys, len(write.values))

    def _write(self, write: Write) -> None:
        streams, first, count = self._streams, self.next, len(write.values)
        self.next = end = first + count
        header = (self.endpoint.stream, streams.me, self.endpoint.incarnation)
        # All readers share one message, so it is encoded once.
        data = Data(*header, first, end - 1, (first,), write.keys, write.values)
        self._keep(data)
        if self.qos.deadline < inf:
            self._written.update(dict.fromkeys(write.keys, streams.now))
        size = sum(map(len, write.values))
        for reader, matched in self.readers.items():
            if matched.sent == first and matched.has_window:
                matched.note_sent(end - 1, size)
                streams.send(reader, data)
            elif not matched.reliable and matched.sent < end:
                matched.sent = end  # a slow best-effort reader misses values
        if not self._has_reliable_readers:
            self._update_stable()
        if write.ticket:
            streams.emit(Written(write.stream, write.ticket, end - 1))

    def _keep(self, data: Data) -> None:
        needed = self._keeps_history or self._has_reliable_readers
        until = self._streams.now + self.qos.lifespan
        if isinstance(self.cache, Runs):
            self.cache.add(data, until) if needed else self.cache.skip(data)
        elif needed:
            self.cache.add(data.samples(), until, one_key=len(data.keys) == 1)
        else:
            self.cache.skip(len(data.values))

    # -- readers --

    def match(self, reader: NodeId, endpoint: Endpoint) -> None:
        """Match a reader. A late reader gets the kept values if it requests durability."""
        _, suspected = self._suspected_readers.pop(reader, (0.0, None))
        if suspected is not None and suspected.incarnation == endpoint.incarnation:
            matched = suspected
            matched.resume()
        else:
            late = endpoint.qos.durability > Durability.VOLATILE
            matched = MatchedReader(endpoint, self.cache.first if late else self.next)
        self.readers[reader] = matched
        self._beat(reader, matched)
        self._catch_up(reader, matched)
        self._update_stable()

    def unmatch(self, reader: NodeId, *, suspected: bool) -> None:
        matched = self.readers.pop(reader, None)
        if matched is not None and matched.reliable and suspected:
            self._suspected_readers[reader] = (self._streams.now + SUSPECTED_MAX, matched)
        self._update_stable()
        self.tick()

    def acked(self, reader: NodeId, acks: Acks) -> None:
        matched = self.readers.get(reader)
        if matched is None or acks.next > self.next:
            return
        matched.acked(acks.next)
        again = self._messages(acks.next, min(acks.until, matched.sent - 1))
        for data in islice(again, RESEND_MAX):
            self._streams.send(reader, data)
        self._catch_up(reader, matched)
        self._update_stable()
        self.tick()

    def _catch_up(self, reader: NodeId, matched: MatchedReader) -> None:
        """Send values that did not fit into the window before."""
        for data in self._messages(matched.sent, self.next - 1):
            if not matched.has_window:
                return
            matched.note_sent(data.last, sum(map(len, data.values)))
            self._streams.send(reader, data)

    def _messages(self, since: int, last: int) -> Iterator[Data]:
        """Yield messages that cover these numbers. Dropped values leave numbers without a value."""
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
        """Yield the values of a keep-last cache, in messages of limited size."""
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
        header = (self.endpoint.stream, self._streams.me, self.endpoint.incarnation)
        return Data(*header, since, last, *columns(samples))

    def _update_stable(self) -> None:
        """Update `stable` and `safe`, and drop values that no reader still needs."""
        acked = [each.next for each in self.readers.values() if each.reliable]
        self._has_reliable_readers = bool(acked or self._suspected_readers)
        before, self.stable = self.stable, min(acked, default=self.next)
        self.safe = min((self.stable, *(each.next for _, each in self._suspected_readers.values())))
        if isinstance(self.cache, Runs):
            self._drop_received(self.cache)
        if self.stable != before:
            self._streams.emit(Stable(self.endpoint.stream, self.stable))

    def _drop_received(self, runs: Runs) -> None:
        if self.qos.durability == Durability.VOLATILE:
            runs.drop_before(self.safe)
        elif self.qos.durability == Durability.PERSISTENT:
            # The topic has all values. Keep some for late readers that are not persistent.
            runs.drop_before(min(self.safe, self.next - self.qos.samples_max // 2))

    # -- time --

    def beat(self) -> None:
        """Send heartbeats to readers that may lack values, and periodically to all readers."""
        due = self._streams.now >= self._beat_at + self.qos.liveliness / BEATS
        if due:
            self._beat_at = self._streams.now
        for reader, matched in self.readers.items():
            if due or matched.next < min(matched.sent, self.next):
                self._beat(reader, matched)

    def _ask_readers(self) -> None:
        """Ask reliable readers for an acknowledgement at once, because the cache is full."""
        for reader, matched in self.readers.items():
            if matched.reliable:
                self._beat(reader, matched)

    def _beat(self, reader: NodeId, matched: MatchedReader) -> None:
        header = (self.endpoint.stream, self.endpoint.incarnation, matched.start, matched.sent - 1)
        self._streams.send(reader, Beat(*header, self.safe))

    def tick(self) -> None:
        """Expire values, and continue or reject waiting writes."""
        now = self._streams.now
        self.cache.expire(now)
        for reader in [each for each, (until, _) in self._suspected_readers.items() if until < now]:
            del self._suspected_readers[reader]
            self._update_stable()
        while self._waiting:
            give_up, write = self._waiting[0]
            if self._fits(write):
                self._waiting.popleft()
                self._write(write)
                if self._waiting and not self._fits(self._waiting[0][1]):
                    self._ask_readers()
            elif now >= give_up:
                self._waiting.popleft()
                self._streams.emit(NotWritten(write.stream, write.ticket, self._reason(write)))
            else:
                return

    def _reason(self, write: Write) -> str:
        lagging = [peer for peer, each in self.readers.items() if each.next == self.stable]
        cause = f"slow readers: {', '.join(lagging)}" if lagging else "every value is kept"
        counts = f"values: {len(self.cache)}, keys: {self.cache.key_count}"
        return (
            f"the cache is still full after {self.qos.blocking_max:g} s ({counts}; {cause}); "
            "write later, or raise samples_max, keys_max or blocking_max"
        )

    def check_deadlines(self) -> None:
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
    """Return the numbers, keys and values of samples as columns.

    Consecutive numbers become one entry, the first number. Equal keys become one entry.
    """
    numbers = tuple(sample.number for sample in samples)
    keys = tuple(sample.key for sample in samples)
    if samples and numbers[-1] - numbers[0] == len(numbers) - 1:
        numbers = numbers[:1]
    if len(set(keys)) == 1:
        keys = keys[:1]
    return numbers, keys, tuple(sample.value for sample in samples)
