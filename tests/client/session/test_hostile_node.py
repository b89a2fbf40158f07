"""A node that sends more than requested cannot exhaust the memory of a client."""

from __future__ import annotations

import pytest

from oncecast.client.session import reading
from oncecast.client.session.credit import WINDOW_BYTES, Credit
from oncecast.client.session.local import Arrived, Ended, Want
from oncecast.wire import batch, errors
from oncecast.wire.batch_layout import BYTES_MAX
from oncecast.wire.frames import Chunk
from tests.client.session.lone import Lone, chunk
from tests.client.session.test_client_reading import attached

WINDOW = 100  # window size in messages


def arrived(lone: Lone) -> int:
    return sum(len(each.messages) for each in lone.events if isinstance(each, Arrived))


def test_credit_limits_messages_and_bytes() -> None:
    """SEC-3: the last batch may exceed the bytes, because a node sends whole batches."""
    credit = Credit(WINDOW)
    credit.grant(0, 0)
    assert credit.allows(WINDOW)
    assert not credit.allows(WINDOW + 1)
    credit.arrived(1, WINDOW_BYTES - 1)
    assert credit.allows(2)
    credit.arrived(2, 1)
    assert not credit.allows(3)
    credit.taken(1)
    credit.grant(2, 1)
    assert credit.allows(3)


def test_messages_beyond_the_credit_are_dropped() -> None:
    """SEC-3: a hostile node once used 700 MB of memory despite an 8 MiB credit."""
    lone = attached(cursor=0)
    assert arrived(lone.deliver(3, chunk(0, *[b"x"] * WINDOW))) == WINDOW
    for _ in range(3):
        assert arrived(lone.deliver(3, chunk(WINDOW, b"x"))) == 0
    lone.ask(Want("t", "s", WINDOW, WINDOW))
    assert lone.fetch.messages == WINDOW
    assert arrived(lone.deliver(3, chunk(WINDOW, b"x"))) == 1


def test_reader_fails_if_the_node_keeps_exceeding_the_credit() -> None:
    """SEC-3"""
    lone = attached(cursor=0)
    lone.deliver(3, chunk(0, *[b"x"] * WINDOW))
    for _ in range(reading.EXCESSES_MAX):
        lone.deliver(3, chunk(WINDOW, b"x"))
        assert lone.events == []
    lone.ask(Want("t", "s", WINDOW, WINDOW))  # the application has taken all good messages
    (ended,) = [each for each in lone.events if isinstance(each, Ended)]
    assert isinstance(ended.why, errors.BadBatch)
    assert "offset 100 of topic 't' cannot be read: the node sent more" in ended.why.fact


def test_delivery_of_compressed_batches_does_not_exceed_the_credit() -> None:
    """SEC-3: a delivery of 196 KiB once expanded to 3.8 GB."""
    data = batch.encode([bytes(WINDOW_BYTES)], timestamps=0, zstd=3)
    assert len(data) < 4096
    bombs = [Chunk(offset, 0, 1, "p", offset, data) for offset in range(50)]
    assert arrived(attached(cursor=0).deliver(3, *bombs)) == 1


def test_declared_size_is_checked_before_a_batch_is_decompressed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SEC-3"""
    data = batch.encode([bytes(100_000)], timestamps=0, zstd=3)
    monkeypatch.setattr("oncecast.wire.batch_layout.BYTES_MAX", 100_003)
    monkeypatch.setattr("oncecast.wire.batch_layout._zstandard", lambda: pytest.fail("opened"))
    with pytest.raises(batch.BadBatch, match="batch columns take 100,004 bytes"):
        batch.values(data)
    assert BYTES_MAX == 64 << 20
