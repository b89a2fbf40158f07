"""Test which foreign batches a node accepts (KAF-4)."""

from __future__ import annotations

from oncecast.wire import batch
from oncecast.wire.foreign import foreign_fault
from oncecast.wire.kafka_records import KAFKA, Record, encode

PAYLOAD = encode([Record(0, None, b"one", ()), Record(0, None, b"two", ())])


def fault(payload: bytes, format: int = KAFKA, count: int = 2) -> str:
    data = batch.wrap(payload, format=format, count=count, timestamp=0)
    return foreign_fault(batch.peek(data), data)


def test_node_accepts_a_valid_kafka_batch_only() -> None:
    """KAF-4: a reader can open each batch that a node stores."""
    assert fault(PAYLOAD) == ""
    assert "format 257 is unknown" in fault(PAYLOAD, format=257)
    assert "checksum" in fault(PAYLOAD[:-1] + b"x")
    assert "declares 3 messages, but its records are 2" in fault(PAYLOAD, count=3)
