"""Test which foreign batches a node accepts (KAF-4)."""

from __future__ import annotations

from oncecast.wire import batch
from oncecast.wire.batch_layout import KAFKA
from oncecast.wire.foreign import foreign_fault
from oncecast.wire.kafka_records import Record, encode

PAYLOAD = encode([Record(0, None, b"one", ()), Record(0, None, b"two", ())])


def fault(payload: bytes, format: int = KAFKA, count: int = 2) -> str:
    data = batch.wrap(payload, format=format, count=count, timestamp=0)
    return foreign_fault(batch.peek(data), data)


def test_node_accepts_only_valid_kafka_batches() -> None:
    """KAF-4: a reader can open each batch that a node stores."""
    assert fault(PAYLOAD) == ""
    assert fault(PAYLOAD, format=257) == (
        "the batch format 257 is unknown, so no reader could open it; use 256 for a Kafka record "
        "batch"
    )
    assert "checksum" in fault(PAYLOAD[:-1] + b"x")
    assert fault(PAYLOAD, count=3) == (
        "the batch declares 3 messages but contains 2 records; send a batch whose counts agree"
    )
