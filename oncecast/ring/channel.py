"""A topic's recent batches, which a process keeps for its readers, possibly with gaps."""

from __future__ import annotations

from bisect import bisect_right, insort

from oncecast.wire import batch
from oncecast.wire.frames import Chunk


class Channel:
    def __init__(self, topic: str, bytes_max: int, now: float) -> None:
        self.topic, self._bytes_max = topic, bytes_max
        self.topic_id = 0  # id of the topic, or 0 if unknown
        self.first = self.next = 0  # first and next offset at the owner, as far as they are known
        self.fenced = 0  # the last epoch known to have fenced a reader
        self.heard = self.checked = now
        self.checking = False  # whether a permission check is in flight
        self.asking, self.asked = False, 0.0  # whether messages in a gap were requested, and when
        self._offsets: list[int] = []
        self._chunks: dict[int, Chunk] = {}
        self._bytes = 0

    def reaches(self, topic_id: int, next_: int, fenced: int = 0) -> None:
        """Store the end of the owner's topic. A newer topic id clears the channel."""
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
        """Drop the oldest batches that exceed the byte limit."""
        while self._bytes > self._bytes_max and len(self._offsets) > 1:
            self._bytes -= len(self._chunks.pop(self._offsets.pop(0)).batch)

    def lacks(self, offset: int) -> bool:
        """Return whether the owner has this message and the channel does not."""
        return self.first <= offset < self.next and self._at(offset) is None

    def gap_end(self, offset: int) -> int:
        """Return the first offset after the gap at `offset`, or -1 if nothing follows the gap."""
        at = bisect_right(self._offsets, offset)
        return self._offsets[at] if at < len(self._offsets) else -1

    def chunks(self, offset: int, messages_max: int, bytes_max: int) -> tuple[Chunk, ...]:
        """Return the chunks from `offset` up to the next gap.

        `bytes_max` limits their uncompressed size. The first chunk may exceed it.
        """
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
