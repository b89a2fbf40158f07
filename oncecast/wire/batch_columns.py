"""The columns of any batch, including those that Kafka clients have put."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecast.wire import batch_layout
from oncecast.wire.batch_builder import Builder
from oncecast.wire.batch_layout import KAFKA, BadBatch, Columns, Oversized, check_frame

if TYPE_CHECKING:
    from oncecast.storage.disk import Buffer


def open_columns(buffer: Buffer) -> Columns:
    """Validate and decompress a batch, and return its columns. Raise BadBatch if it is invalid.

    A batch from a Kafka client is converted first, which takes some microseconds per message.
    """
    data = buffer if type(buffer) is bytes else bytes(buffer)
    if check_frame(data).format == KAFKA:
        data = converted(data)
    return batch_layout.open_columns(data)


def converted(data: bytes) -> bytes:
    """Convert a Kafka client's batch to our own format."""
    from oncecast.wire.kafka_records import MILLISECOND, decode  # few topics have such batches

    builder = Builder()
    try:
        for each in decode(data[batch_layout.HEADER_BYTES : -4]):
            headers = {name: value or b"" for name, value in each.headers}
            time = each.timestamp * MILLISECOND
            builder.add(each.value or b"", each.key, headers or None, time)
    except Oversized as error:
        raise BadBatch(f"a Kafka client has put a message that exceeds a limit: {error}") from None
    return builder.build()
