"""What a process has of one topic: the batches that came lately, by offset, perhaps with gaps."""

from __future__ import annotations

from bisect import bisect_right, insort

from oncecast.wire import batch
from oncecast.wire.frames import Chunk


class Channel:
    def __init__(self, topic: str, bytes_max: int, now: float) -> None:
        self.topic, self._bytes_max = topic, bytes_max
        self.topic_id = 0  # of the topic; 0: nothing is known
        self.first = self.next = 0  # what the owner is known to have
        self.fenced = 0  # the last epoch known to have ended the right of a reader
        self.heard = self.checked = now
        self.checking = False  # the owner is asked who of the readers may go on
        self.asking, self.asked = False, 0.0  # the owner, for what is missing
        self._offsets: list[int] = []
        self._chunks: dict[int, Chunk] = {}
        self._bytes = 0

    def reaches(self, topic_id: int, next_: int, fenced: int = 0) -> None:
        """The owner has so much; of another life of the topic nothing here is of use."""
        if topic_id > self.topic_id:
            self.topic_id, self.first, self.next, self.fenced = topic_id, 0, next_, fenced
            self._offsets.clear()
            self._chunks.clear()
            self._bytes = 0
        elif topic_id == self.topic_id:
            self.next = max(self.next, next_)
            self.fenced = max(self.fenced, fenced)

    def add(self, topic_id: int, chunks: tuple[Chunk, ...]) -> None:
        if topic_id != self.topic_id:
            return
        for chunk in chunks:
            known = self._chunks.get(chunk.offset)
            if known is None:
                insort(self._offsets, chunk.offset)
            elif known.count >= chunk.count:
                continue
            else:
                self._bytes -= len(known.batch)
            self._chunks[chunk.offset] = chunk
            self._bytes += len(chunk.batch)

    def trim(self) -> None:
        """The oldest go."""
        while self._bytes > self._bytes_max and len(self._offsets) > 1:
            self._bytes -= len(self._chunks.pop(self._offsets.pop(0)).batch)

    def lacks(self, offset: int) -> bool:
        """It exists, and is not here."""
        return self.first <= offset < self.next and self._at(offset) is None

    def gap_end(self, offset: int) -> int:
        """Where what is here begins again; -1: nowhere."""
        at = bisect_right(self._offsets, offset)
        return self._offsets[at] if at < len(self._offsets) else -1

    def chunks(self, offset: int, messages_max: int, bytes_max: int) -> tuple[Chunk, ...]:
        """What lies from `offset` on, without a gap; the first comes whatever its size. Sizes are
        those of batches when they are opened."""
        found: list[Chunk] = []
        while messages_max > 0 and (bytes_max > 0 or not found):
            chunk = self._at(offset)
            if chunk is None:
                break
            inside = offset - chunk.offset
            count = min(chunk.count - inside, messages_max)
            source = (chunk.producer, chunk.sequence + inside, chunk.batch)
            found.append(Chunk(offset, chunk.skip + inside, count, *source))
            offset += count
            messages_max -= count
            bytes_max -= batch.opened_bytes(chunk.batch)
        return tuple(found)

    def _at(self, offset: int) -> Chunk | None:
        at = bisect_right(self._offsets, offset) - 1
        if at < 0:
            return None
        chunk = self._chunks[self._offsets[at]]
        return chunk if offset < chunk.offset + chunk.count else None
