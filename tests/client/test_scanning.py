"""PIPE-1: a scan reads any offset range of a topic without a subscription."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator, Iterator
from functools import wraps
from pathlib import Path

import pytest

import oncecast
from oncecast import EARLIEST, blocking, errors, from_offset, from_time
from oncecast.client.portal import check_open
from oncecast.client.scanning import Slice
from oncecast.wire.retention import Policy
from tests.client.serving import PATIENCE, run

KEEP = Policy(age_us=3_600_000_000)


def embedded(scenario: Callable[[oncecast.Client], Awaitable[None]]) -> Callable[[Path], None]:
    """Return a test that runs `scenario` with its own embedded node."""

    async def tell(path: Path) -> None:
        async with oncecast.embedded(path) as client:
            await scenario(client)

    @wraps(scenario)
    def test(tmp_path: Path) -> None:
        run(tell(tmp_path))

    del test.__wrapped__  # pytest would mistake its arguments for fixtures
    return test


async def filled(client: oncecast.Client, count: int = 10) -> None:
    await client.create_topic("t", KEEP)
    for number in range(count):
        await client.put("t", b"%d" % number)


async def values(client: oncecast.Client, *where: object, **how: object) -> list[bytes]:
    found = []
    async for each in client.scan("t", *where, **how):  # type: ignore[arg-type]
        messages = each.messages()
        assert (each.offset, each.end) == (messages[0].offset, messages[-1].offset + 1)
        found += [message.value for message in messages]
    return found


def numbers(first: int, until: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, until)]


@embedded
async def test_scan_returns_all_messages_in_order_for_any_page_size(
    client: oncecast.Client,
) -> None:
    await filled(client)
    for size in (1, 60, 1 << 20):
        assert await values(client, size=size) == numbers(0, 10)
    assert await values(client, from_offset(3), 7) == numbers(3, 7)
    assert await values(client, from_offset(10)) == []
    assert await values(client, from_offset(4), 4) == []


@embedded
async def test_scan_splits_batches_at_both_ends(client: oncecast.Client) -> None:
    await client.create_topic("t", KEEP)
    for first in (0, 100, 200):
        await client.put_many("t", numbers(first, first + 100))
    for first, until in ((0, 300), (50, 51), (99, 201), (150, 250)):
        assert await values(client, from_offset(first), until) == numbers(first, until)


@embedded
async def test_scan_moves_no_cursor_and_sees_unread_messages(
    client: oncecast.Client,
) -> None:
    await client.create_topic("t", KEEP)
    news = await client.subscribe("t", "s")
    await client.put_many("t", numbers(0, 5))
    assert await values(client) == numbers(0, 5)
    view = await client.describe("t")
    assert [each.lag for each in view.subscriptions] == [5]
    message = await news.get(1)
    assert message is not None
    assert (message.value, message.redelivered) == (b"0", False)


@embedded
async def test_locate_finds_offsets_by_time_and_at_both_ends(client: oncecast.Client) -> None:
    """PIPE-3"""
    await filled(client, 3)
    message = (await anext(aiter(client.scan("t", from_offset(1))))).messages()[0]
    assert (await client.locate("t", from_time(message.timestamp / 1e6))).offset <= 1
    assert (await client.locate("t", from_time(4e9))).offset == 3
    found = await client.locate("t", EARLIEST)
    assert (found.offset, found.first, found.next) == (0, 0, 3)
    assert (await client.locate("t", oncecast.NEW)).offset == 3


@embedded
async def test_scanning_a_missing_topic_or_offset_raises(
    client: oncecast.Client,
) -> None:
    """SVC-7"""
    with pytest.raises(errors.NoSuchTopic):
        await values(client)
    with pytest.raises(errors.InvalidTopic):
        await client.locate("", EARLIEST)
    await filled(client, 3)
    for first, until in ((0, 4), (4, None), (5, 6)):
        with pytest.raises(errors.OutOfRange, match="next offset 3"):
            await values(client, from_offset(first), until)
    with pytest.raises(errors.InvalidArgument, match="size is 0"):
        await values(client, size=0)


@embedded
async def test_scan_reports_deleted_messages(client: oncecast.Client) -> None:
    await client.subscribe("t", "s", auto_ack=False)
    for number in range(3):
        await client.put("t", b"%d" % number)
    await client.seek("t", "s", from_offset(2))
    with pytest.raises(errors.MessagesLost, match="offsets 0 to 1"):
        await values(client, from_offset(0))
    assert await values(client) == [b"2"]


@embedded
async def test_scan_stops_if_the_topic_is_recreated(client: oncecast.Client) -> None:
    await filled(client)
    topic_id = (await client.locate("t", EARLIEST)).topic_id
    scan = client.scan("t", size=1)
    await anext(scan)
    await anext(scan)
    await client.delete_topic("t")
    await filled(client)
    with pytest.raises(errors.TopicReplaced):
        async for _ in scan:
            await asyncio.sleep(0)
    with pytest.raises(errors.TopicReplaced):
        await values(client, topic_id=topic_id)


def test_blocking_scan_returns_all_messages_and_can_be_abandoned(tmp_path: Path) -> None:
    with blocking.embedded(tmp_path) as client:
        client.create_topic("t", KEEP)
        client.put_many("t", numbers(0, 10))
        found = [message.value for each in client.scan("t") for message in each.messages()]
        assert found == numbers(0, 10)
        for each in client.scan("t", size=1):
            assert each.to_arrow().column("value")[0].as_py() == b"0"
            break
        assert client.locate("t", EARLIEST).next == 10


def test_unfinished_scan_can_be_garbage_collected_in_any_thread_at_any_time(tmp_path: Path) -> None:
    """SVC-12: the garbage collector may run at any point, and must not deadlock."""
    with blocking.embedded(tmp_path) as client:
        client.create_topic("t", KEEP)
        client.put_many("t", numbers(0, 10))
        in_loop, too_late = client.scan("t", size=1), client.scan("t", size=1)
        assert (next(in_loop).offset, next(too_late).offset) == (0, 0)
        dropped, loop = threading.Event(), check_open(client._portal).loop
        loop.call_soon_threadsafe(drop, in_loop)
        loop.call_soon_threadsafe(dropped.set)
        assert dropped.wait(PATIENCE)
        assert client.describe("t").next == 10
    drop(too_late)


def drop(scan: Iterator[Slice]) -> None:
    assert isinstance(scan, Generator)
    scan.close()
