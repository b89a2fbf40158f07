"""Test Kafka record batches against the C code of aiokafka (KAF-1, KAF-4)."""

from __future__ import annotations

import contextlib
import gzip
import struct
from random import Random

import pytest
import zstandard
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from google_crc32c import value as crc32c

from oncecast.wire import batch
from oncecast.wire.batch_columns import open_columns
from oncecast.wire.batch_layout import BYTES_MAX, KAFKA, BadBatch
from oncecast.wire.kafka_records import (
    HEADER_BYTES,
    NAMES,
    Record,
    check,
    decode,
    encode,
    restamp,
)

RECORDS = [
    Record(1_700_000_000_000, None, b"first", ()),
    Record(1_700_000_000_001, b"key", b"", (("a", b"1"), ("b", None))),
    Record(1_699_999_999_000, b"", None, ()),
    Record(1_700_000_000_500, b"k" * 70, b"v" * 20_000, (("ü", b"\x00\xff"),)),
]


def by_aiokafka(compression: int = 0) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=compression,
        is_transactional=0,
        producer_id=77,
        producer_epoch=3,
        base_sequence=12,
        batch_size=1 << 20,
    )
    for number, each in enumerate(RECORDS):
        builder.append(number, each.timestamp, each.key, each.value, list(each.headers))
    return bytes(builder.build())


@pytest.mark.parametrize("compression", range(5), ids=NAMES)
def test_batch_from_a_kafka_client_is_decoded(compression: int) -> None:
    """KAF-3: all compressions; KAF-4: native readers read what Kafka clients put."""
    data = by_aiokafka(compression)
    header = check(data)
    assert (header.count, header.compression) == (4, compression)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 12)
    assert decode(data) == RECORDS


def test_encoded_batch_is_read_by_a_kafka_client() -> None:
    """KAF-4: Kafka clients read what native clients put."""
    theirs = DefaultRecordBatch(bytearray(encode(RECORDS, base_offset=40)))
    assert theirs.validate_crc()
    found = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert found == [(40 + n, *each) for n, each in enumerate(RECORDS)]


def test_restamped_batch_keeps_its_checksum() -> None:
    data = restamp(by_aiokafka(), 1 << 40)
    assert check(data).base_offset == 1 << 40
    assert decode(data) == RECORDS


def test_native_reader_gets_messages_of_a_kafka_batch() -> None:
    """KAF-4: null values are empty, and times are in microseconds."""
    stored = batch.wrap(by_aiokafka(), format=KAFKA, count=4, timestamp=0)
    found = batch.messages(stored, topic="t", offset=10, producer="p", sequence=5, skip=1, count=2)
    assert [(each.offset, each.sequence, each.key, each.value) for each in found] == [
        (10, 5, b"key", b""),
        (11, 6, b"", b""),
    ]
    assert found[0].headers == {"a": b"1", "b": b""}
    assert found[1].timestamp == RECORDS[2].timestamp * 1000
    assert batch.values(stored) == [each.value or b"" for each in RECORDS]
    assert open_columns(stored).header.count == 4


@pytest.mark.parametrize("compression", range(5), ids=NAMES)
def test_damaged_batch_is_refused(compression: int) -> None:
    """KAF-1: flipped bits and cuts are bad batches, never another error."""
    data, rng = by_aiokafka(compression), Random(compression)
    for end in range(0, len(data), 97):
        with pytest.raises(BadBatch):
            check(data[:end])
    for _ in range(200):
        changed = bytearray(data)
        changed[rng.randrange(16, len(data))] ^= 1 << rng.randrange(8)
        with pytest.raises(BadBatch):
            check(bytes(changed))
    for _ in range(200):
        changed = bytearray(data)
        changed[rng.randrange(HEADER_BYTES, len(data))] ^= 1 << rng.randrange(8)
        # A hostile client recomputes the checksum.
        changed[17:21] = struct.pack(">I", crc32c(bytes(changed[21:])))
        with contextlib.suppress(BadBatch):
            decode(bytes(changed))


def hostile(records: bytes, attributes: int, count: int = 1) -> bytes:
    """Return a batch of these bytes with a valid header."""
    rest = struct.pack(">hiqqqhii", attributes, count - 1, 0, 0, -1, -1, -1, count) + records
    return struct.pack(">qiibI", 0, len(rest) + 9, -1, 2, crc32c(rest)) + rest


def test_batch_that_expands_beyond_the_limit_is_refused() -> None:
    """KAF-1: memory is bounded, whatever data a client has compressed."""
    bomb = bytes(BYTES_MAX + 1)
    with pytest.raises(BadBatch, match="expands to more than"):
        decode(hostile(gzip.compress(bomb, 1), 1))
    with pytest.raises(BadBatch, match="expands to more than"):
        decode(hostile(zstandard.compress(bomb), 4))
    with pytest.raises(BadBatch, match="expands to more than"):
        decode(hostile(b"\xff\xff\xff\xff\x0f" + bytes(10), 2))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (hostile(b"", 5), "unknown compression codec 5"),
        (hostile(b"", 32), "control batch"),
        (hostile(b"", 0, count=0), "0 records"),
        (bytes(10), "10 bytes long"),
        (encode(RECORDS)[:-1] + b"x", "checksum"),
        (encode(RECORDS) + b"x", "declares"),
    ],
)
def test_batch_that_a_client_may_not_put_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(BadBatch, match=why):
        check(data)
