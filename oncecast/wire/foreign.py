"""Batches in the format of another system, which nodes store without opening them."""

from __future__ import annotations

from oncecast.wire import kafka_records
from oncecast.wire.batch_layout import HEADER_BYTES, KAFKA, BadBatch, Header


def foreign_fault(header: Header, batch: bytes) -> str:
    """Return why a node refuses a batch that is not in our own format, or "" if it is valid."""
    if header.format != KAFKA:
        return (
            f"the batch format {header.format} is unknown, so no reader could open it; use "
            f"{KAFKA} for a Kafka record batch"
        )
    try:
        found = kafka_records.check(batch[HEADER_BYTES:-4])
    except BadBatch as bad:
        return str(bad)
    if found.count != header.count:
        return (
            f"the batch declares {header.count} messages but contains {found.count} records; send "
            "a batch whose counts agree"
        )
    return ""
