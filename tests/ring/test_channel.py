"""A channel keeps the recent batches of a topic in a process. NET-6"""

from __future__ import annotations

import pytest

from oncecast.ring.channel import Channel
from oncecast.wire import batch
from oncecast.wire.frames import Chunk

ALL = 1 << 30


def chunk(offset: int, count: int = 1, size: int = 10) -> Chunk:
    packed = batch.encode([b"x" * size] * count, timestamps=1)
    return Chunk(offset, 0, count, "p", offset, packed)


def make(*chunks: Chunk, next_: int = 100, bytes_max: int = ALL) -> Channel:
    channel = Channel("t", bytes_max, 0.0)
    channel.reaches(1, next_)
    channel.add(1, chunks)
    return channel


def offsets(channel: Channel, start: int, messages: int = ALL, size: int = ALL) -> list[int]:
    found = channel.chunks(start, messages, size)
    return [offset for each in found for offset in range(each.offset, each.offset + each.count)]


def test_new_channel_is_empty() -> None:
    channel = Channel("t", 10, 5.0)
    assert (channel.topic_id, channel.first, channel.next, channel.fenced) == (0, 0, 0, 0)
    assert (channel.heard, channel.checked) == (5.0, 5.0)
    assert (channel.checking, channel.asking) == (False, False)


def test_chunks_are_returned_in_order_up_to_the_first_gap() -> None:
    """NET-6"""
    channel = make(chunk(4, 2), chunk(0, 2), chunk(2, 1))
    assert offsets(channel, 0) == [0, 1, 2]
    assert offsets(channel, 4) == [4, 5]
    assert offsets(channel, 6) == []


def test_batch_is_trimmed_to_the_requested_offsets() -> None:
    channel = make(chunk(0, 10))
    (found,) = channel.chunks(3, 4, ALL)
    assert (found.offset, found.skip, found.count, found.sequence) == (3, 3, 4, 3)
    assert offsets(channel, 3, messages=4) == [3, 4, 5, 6]
    assert offsets(channel, 7) == [7, 8, 9]


def test_first_chunk_may_exceed_the_byte_limit() -> None:
    small = batch.opened_bytes(chunk(0).batch)
    channel = make(chunk(0), chunk(1), chunk(2))
    assert offsets(channel, 0, size=0) == [0]
    assert offsets(channel, 0, size=1) == [0]
    assert offsets(channel, 0, size=small) == [0]
    assert offsets(channel, 0, size=small + 1) == [0, 1]


def test_gap_ends_at_the_next_known_chunk() -> None:
    channel = make(chunk(0, 2), chunk(5, 2), next_=9)
    assert [offset for offset in range(12) if channel.lacks(offset)] == [2, 3, 4, 7, 8]
    assert channel.gap_end(2) == 5
    assert channel.gap_end(7) == -1


def test_messages_dropped_by_the_owner_do_not_count_as_missing() -> None:
    channel = make()
    channel.first = 50
    assert not channel.lacks(49)
    assert channel.lacks(50)


def test_larger_chunk_replaces_a_smaller_one_from_the_same_batch() -> None:
    channel = make(chunk(0, 2))
    channel.add(1, (chunk(0, 5),))
    channel.add(1, (chunk(0, 1), chunk(5)))
    assert offsets(channel, 0) == [0, 1, 2, 3, 4, 5]


def test_new_topic_id_clears_the_channel() -> None:
    """NET-6: the topic was deleted and created again."""
    channel = make(chunk(0, 5))
    channel.reaches(2, 3)
    assert (channel.topic_id, channel.first, channel.next, channel.fenced) == (2, 0, 3, 0)
    assert offsets(channel, 0) == []
    channel.add(1, (chunk(0, 5),))
    channel.reaches(1, 99)
    assert offsets(channel, 0) == []
    assert channel.next == 3


def test_trim_drops_the_oldest_chunks_but_keeps_the_newest() -> None:
    size = len(chunk(0).batch)
    channel = make(*map(chunk, range(10)), bytes_max=3 * size)
    assert offsets(channel, 0) == list(range(10))
    channel.trim()
    assert offsets(channel, 7) == [7, 8, 9]
    assert channel.lacks(6)
    channel = make(chunk(0), chunk(1), bytes_max=1)
    channel.trim()
    assert (offsets(channel, 0), offsets(channel, 1)) == ([], [1])
    channel = make(chunk(0, 50), bytes_max=10)
    channel.trim()
    assert offsets(channel, 0) == list(range(50))


@pytest.mark.parametrize("spare", [0, -1])
def test_channel_counts_its_bytes_exactly(spare: int) -> None:
    """NET-6: the count stays exact after a batch is replaced or a topic is created again."""
    kept = (chunk(0, 5), chunk(5))
    size = sum(len(each.batch) for each in kept)
    channels = [make(*kept, bytes_max=size + spare) for _ in range(3)]
    channels[1] = make(chunk(0, 2), bytes_max=size + spare)
    channels[1].add(1, kept)
    channels[2].reaches(2, 100)
    channels[2].add(2, kept)
    for channel in channels:
        channel.trim()
        assert offsets(channel, 0) == ([0, 1, 2, 3, 4, 5] if spare == 0 else [])
        assert offsets(channel, 5) == [5]
