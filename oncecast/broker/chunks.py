"""Build the chunks that a node sends to readers: a batch and the range of messages to use."""

from __future__ import annotations

from oncecast.broker.extent import Extent
from oncecast.broker.service import Service
from oncecast.errors import Corrupt
from oncecast.replication.events import Missing
from oncecast.wire import batch
from oncecast.wire.errors import BadBatch
from oncecast.wire.frames import Chunk


def chunks_of(
    service: Service, topic: str, extents: tuple[Extent, ...], budget: int
) -> tuple[tuple[Chunk, ...], list[int]]:
    """Return the chunks for these extents and their uncompressed sizes, up to `budget` bytes.

    The first chunk may be larger than `budget`. Raise Missing while the first batch is being
    fetched from another replica, or Corrupt if no replica can read that batch.
    """
    chunks: list[Chunk] = []
    sizes: list[int] = []
    for extent in extents:
        if budget <= 0:
            break
        try:
            chunks.append(chunk_of(service, topic, extent))
        except (Missing, Corrupt):
            if chunks:
                break  # send the chunks before the unreadable one
            raise
        sizes.append(batch.opened_bytes(chunks[-1].batch))
        budget -= sizes[-1]
    return tuple(chunks), sizes


def chunk_of(service: Service, topic: str, extent: Extent) -> Chunk:
    source = service.stored_batch(extent.slot, topic)
    sequence = source.sequence + extent.skip if extent.sequence < 0 else extent.sequence
    return Chunk(extent.offset, extent.skip, extent.count, source.producer, sequence, source.batch)


def lost(topic: str, offset: int, damage: Corrupt) -> BadBatch:
    return BadBatch(f"offset {offset} of topic {topic!r} is lost: {damage.where}")
