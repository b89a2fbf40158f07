"""Read messages of shared subscriptions: for workers, for keys, and for dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

from oncecast.broker.chunks import chunk_of
from oncecast.broker.queue import Queue
from oncecast.broker.service import Service
from oncecast.broker.topic import Topic
from oncecast.errors import Corrupt
from oncecast.replication.events import Missing
from oncecast.wire import batch
from oncecast.wire.batch import BadBatch, Message, Oversized
from oncecast.wire.batch_layout import HEADERS_MAX
from oncecast.wire.commands import Bury, Put
from oncecast.wire.frames import Chunk
from oncecast.wire.sharing import (
    DEAD_DELIVERIES,
    DEAD_DETAIL,
    DEAD_HEADERS,
    DEAD_OFFSET,
    DEAD_REASON,
    DEAD_SUBSCRIPTION,
    DEAD_TOPIC,
    REASON_BYTES_MAX,
)

WHOLE_BYTES = 4096  # smaller batches are sent whole, even if a worker gets few of their messages
LETTERS_MAX = 100  # maximum number of dead letters in one command
# Maximum bytes of dead letters in one command, unless a single letter is larger.
LETTERS_BYTES = 1 << 20
UNREADABLE = "no replica can read the message: "


def chunks_from(
    service: Service, topic: Topic, queue: Queue, offsets: list[int]
) -> Iterator[tuple[Chunk, int]]:
    """Yield the chunks of these messages, with the number of deliveries of each chunk.

    Leave out messages that were dropped or that no replica can read. Raise Missing while a replica
    is asked for a batch.
    """
    for first, count, deliveries in runs_by_deliveries(queue, offsets):
        for extent in topic.index.extents(first, count, 1 << 62):
            if extent.offset >= first + count:
                break  # the policy has dropped the messages of this run
            try:
                yield narrowed(chunk_of(service, topic.name, extent)), deliveries
            except Corrupt:
                continue  # the lease ends, and the message becomes a dead letter


def runs_by_deliveries(queue: Queue, offsets: list[int]) -> Iterator[tuple[int, int, int]]:
    first, count, deliveries = 0, 0, 0
    for offset in sorted(offsets):
        found = queue.deliveries(offset)
        if count and offset == first + count and found == deliveries:
            count += 1
            continue
        if count:
            yield first, count, deliveries
        first, count, deliveries = offset, 1, found
    if count:
        yield first, count, deliveries


def narrowed(chunk: Chunk) -> Chunk:
    """Return the chunk with a smaller batch, if it needs only a few messages of a large one."""
    if len(chunk.batch) <= WHOLE_BYTES or 2 * chunk.count > batch.peek(chunk.batch).count:
        return chunk
    try:
        found = opened(chunk, "")
    except BadBatch:
        return chunk  # the worker gets the same error
    data = batch.encode(
        [each.value for each in found],
        timestamps=[each.timestamp for each in found],
        keys=[each.key for each in found],
        headers=[each.headers for each in found],
    )
    return Chunk(chunk.offset, 0, chunk.count, chunk.producer, chunk.sequence, data)


def opened(chunk: Chunk, topic: str) -> list[Message]:
    return batch.messages(
        chunk.batch,
        topic=topic,
        offset=chunk.offset,
        producer=chunk.producer,
        sequence=chunk.sequence,
        skip=chunk.skip,
        count=chunk.count,
    )


def keys_from(service: Service, topic: Topic, offset: int, count: int) -> list[int]:
    """Return hashes of the keys of up to `count` messages from `offset` on; 0 without a key.

    Stop before a batch that is being fetched. Messages that no replica can read have no key.
    """
    found: list[int] = []
    if offset < topic.index.first:
        return found
    for extent in topic.index.extents(offset, count, 1 << 62):
        try:
            found += [
                hashed(each.key) for each in opened(chunk_of(service, topic.name, extent), "")
            ]
        except Missing:
            break
        except (Corrupt, BadBatch):
            found += [0] * extent.count
    return found


def hashed(key: bytes | None) -> int:
    """Return a nonzero hash of 63 bits, or 0 without a key."""
    if key is None:
        return 0
    return int.from_bytes(blake2b(key, digest_size=8).digest()) >> 1 or 1


def bury(service: Service, topic: Topic, subscription: str, queue: Queue, name: str) -> Bury | None:
    """Return the command that buries the first dead letters, or None if no letter fits a batch.

    Raise Missing while another replica is asked for a letter.
    """
    builder = batch.Builder()
    offsets: list[int] = []
    for offset in sorted(queue.dead):
        if len(offsets) >= LETTERS_MAX or builder.bytes > LETTERS_BYTES:
            break
        try:
            add_letter(builder, service, topic, subscription, queue, offset)
        except Oversized:
            # With its headers, the letter is too large for a batch, so the message stays unsettled.
            continue
        offsets.append(offset)
    if not offsets:
        return None
    data = builder.build()
    put = Put(name, subscription, 0, offsets[0], len(offsets), len(data), 0, data)
    return Bury(topic.name, subscription, tuple(offsets), 0, put)


def add_letter(
    builder: batch.Builder,
    service: Service,
    topic: Topic,
    subscription: str,
    queue: Queue,
    offset: int,
) -> None:
    """Add a message to the batch, with headers that say why it is dead."""
    found = letter(service, topic, offset)
    fault = found if isinstance(found, str) else ""
    why = headers_of(topic.name, subscription, queue, offset, fault)
    if isinstance(found, str):
        builder.add(b"", None, why, service.expected_time())
        return
    own = [(name, value) for name, value in found.headers.items() if name not in DEAD_HEADERS]
    headers = dict(own[: HEADERS_MAX - len(why)]) | why
    builder.add(found.value, found.key, headers, found.timestamp)


def letter(service: Service, topic: Topic, offset: int) -> Message | str:
    """Return a message, or why it cannot be read."""
    for extent in topic.index.extents(offset, 1, 1):
        if extent.offset != offset:
            break
        try:
            return opened(chunk_of(service, topic.name, extent), topic.name)[0]
        except Corrupt as damage:
            return UNREADABLE + damage.where
        except BadBatch as bad:
            return UNREADABLE + str(bad)
    return "the topic has dropped the message"


def headers_of(
    topic: str, subscription: str, queue: Queue, offset: int, fault: str = ""
) -> dict[str, bytes]:
    death = queue.dead[offset]
    found = {
        DEAD_REASON: death.reason,
        DEAD_TOPIC: topic,
        DEAD_SUBSCRIPTION: subscription,
        DEAD_OFFSET: str(offset),
        DEAD_DELIVERIES: str(queue.deliveries(offset)),
    }
    if fault or death.detail:
        found[DEAD_DETAIL] = fault or death.detail
    return {name: text.encode(errors="replace")[:REASON_BYTES_MAX] for name, text in found.items()}
