"""Convert stored batches to Kafka record batches for fetches.

A batch from a Kafka client is returned unchanged, except that its offset is filled in. A batch from
a native client is converted.
"""

from __future__ import annotations

from oncecast.wire import batch, kafka_records
from oncecast.wire.batch_layout import KAFKA
from oncecast.wire.frames import Chunk
from oncecast.wire.kafka_records import encode, records_of, restamp

TIME_MAX = (1 << 63) - 1  # microseconds


def kafka_batch(chunk: Chunk, topic: str) -> bytes:
    """Return the record batch of a chunk. It may start before the chunk; clients skip the rest."""
    if batch.peek(chunk.batch).format == KAFKA:
        return restamp(batch.unwrap(chunk.batch), chunk.offset - chunk.skip)
    found = batch.messages(
        chunk.batch,
        topic=topic,
        offset=chunk.offset,
        producer=chunk.producer,
        sequence=chunk.sequence,
        skip=chunk.skip,
        count=chunk.count,
    )
    records = records_of(
        (each.value for each in found),
        (each.key for each in found),
        (each.headers for each in found),
        (each.timestamp for each in found),
    )
    return encode(records, base_offset=chunk.offset)


def native_batch(data: bytes, header: kafka_records.RecordBatch) -> bytes:
    """Return the batch in which a node stores this record batch."""
    time = min(max(header.base_timestamp, 0) * kafka_records.MILLISECOND, TIME_MAX)
    return batch.wrap(data, format=KAFKA, count=header.count, timestamp=time)
