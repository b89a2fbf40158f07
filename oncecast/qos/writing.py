"""A writer of a stream: it numbers what is written, sends it, and keeps what may be asked for."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from oncecast.kernel.protocol import NodeId
from oncecast.qos.cache import Cache, Sample
from oncecast.qos.events import (
    DATA_MAX,
    Acks,
    Beat,
    Data,
    DeadlineMissed,
    Endpoint,
    Gaps,
    Item,
    NotWritten,
    Write,
    Written,
)
from oncecast.qos.policies import Durability, Reliability

if TYPE_CHECKING:
    from oncecast.qos.streams import Streams


SIGNS = 3  # of life in the time without one that is allowed


class Audience:
    """A reader that is matched: its first number, and up to where it has all."""

    __slots__ = ("life", "next", "reliable", "start")

    def __init__(self, life: int, start: int, reliable: bool) -> None:
        self.life, self.start, self.reliable = life, start, reliable
        self.next = start


class Writer:
    def __init__(self, streams: Streams, endpoint: Endpoint) -> None:
        self._streams, self.endpoint, self.qos = streams, endpoint, endpoint.qos
        self.readers: dict[NodeId, Audience] = {}
        self.next = 1
        self._cache = Cache(self.qos)
        self._by_number: dict[int, Sample] = {}
        self._waiting: deque[tuple[float, Write]] = deque()  # for room, until then
        self._written: dict[bytes, float] = {}  # when, by key
        self._lived = streams.now  # when it last said that it is alive

    # -- writing --

    def write(self, write: Write) -> None:
        if self._waiting or not self._has_room(write.key):
            self._waiting.append((self._streams.now + self.qos.blocking_max, write))
            self.tick()
        else:
            self._write(write)

    def _has_room(self, key: bytes) -> bool:
        return not self._keeps or self._cache.has_room(key)

    @property
    def _keeps(self) -> bool:
        """Whether anything may be asked for again."""
        late = self.qos.durability > Durability.VOLATILE
        return late or self.qos.reliability > Reliability.BEST_EFFORT

    def _write(self, write: Write) -> None:
        streams, number = self._streams, self.next
        self.next += 1
        until = streams.now + self.qos.lifespan
        sample = Sample(streams.me, number, write.key, write.value, until)
        self._written[write.key] = streams.now
        if self._keeps:
            self._by_number[number] = sample
            for old in self._cache.add(sample):
                del self._by_number[old.number]
        for reader, audience in self.readers.items():
            self._send(reader, audience, (sample,))
        self._let_go()
        streams.emit(Written(write.stream, write.ticket, number))

    def _send(self, reader: NodeId, audience: Audience, samples: tuple[Sample, ...]) -> None:
        stream, life = self.endpoint.stream, self.endpoint.life
        for at in range(0, len(samples), DATA_MAX):
            items = tuple(
                Item(each.number, each.key, each.value) for each in samples[at : at + DATA_MAX]
            )
            self._streams.send(reader, Data(stream, self._streams.me, life, audience.start, items))

    # -- readers --

    def match(self, reader: NodeId, endpoint: Endpoint) -> None:
        """Who comes late gets what is kept, if that is requested."""
        late = endpoint.qos.durability > Durability.VOLATILE
        start = min(self._by_number, default=self.next) if late else self.next
        reliable = endpoint.qos.reliability > Reliability.BEST_EFFORT
        audience = self.readers[reader] = Audience(endpoint.life, start, reliable)
        if late:
            self._send(reader, audience, tuple(self._by_number.values()))
        self._beat(reader, audience)

    def unmatch(self, reader: NodeId) -> None:
        self.readers.pop(reader, None)
        self._let_go()
        self.tick()

    def acked(self, reader: NodeId, acks: Acks) -> None:
        audience = self.readers.get(reader)
        if audience is None:
            return
        audience.next = max(audience.next, min(acks.next, self.next))
        here = tuple(self._by_number[each] for each in acks.lacking if each in self._by_number)
        gone = tuple(
            each for each in acks.lacking if each not in self._by_number and each < self.next
        )
        if here:
            self._send(reader, audience, here)
        if gone:
            facts = (self.endpoint.stream, self._streams.me, self.endpoint.life)
            self._streams.send(reader, Gaps(*facts, gone))
        self._let_go()
        self.tick()

    @property
    def stable(self) -> int:
        """All reliable readers have what comes before."""
        nexts = [each.next for each in self.readers.values() if each.reliable]
        return min(nexts, default=self.next)

    def _let_go(self) -> None:
        """With keep-all, what all readers have is needed no more; unless others may come late."""
        if self.qos.keeps_all and self.qos.durability == Durability.VOLATILE:
            for number in [each for each in self._by_number if each < self.stable]:
                self._cache.drop(self._by_number.pop(number))

    # -- time --

    def beat(self) -> None:
        """Who may lack something is told how far things are; so are all, as a sign of life."""
        due = self._streams.now >= self._lived + self.qos.liveliness / SIGNS
        if due:
            self._lived = self._streams.now
        for reader, audience in self.readers.items():
            if due or (audience.reliable and audience.next < self.next):
                self._beat(reader, audience)

    def _beat(self, reader: NodeId, audience: Audience) -> None:
        facts = (self.endpoint.stream, self.endpoint.life, audience.start, self.next - 1)
        self._streams.send(reader, Beat(*facts, self.stable))

    def tick(self) -> None:
        """Room may have come, or the time to wait for it be over; values grow old."""
        now = self._streams.now
        for old in self._cache.expire(now):
            del self._by_number[old.number]
        while self._waiting:
            give_up, write = self._waiting[0]
            if self._has_room(write.key):
                self._waiting.popleft()
                self._write(write)
            elif now >= give_up:
                self._waiting.popleft()
                why = f"no room in {self.qos.blocking_max:g} s: a reader lags behind; write later"
                self._streams.emit(NotWritten(write.stream, write.ticket, why))
            else:
                return

    def look_at_deadlines(self) -> None:
        now = self._streams.now
        for key, at in self._written.items():
            if now > at + self.qos.deadline:
                self._written[key] = now
                self._streams.emit(DeadlineMissed(self.endpoint.stream, "writer", key))
