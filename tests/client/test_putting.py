"""No put is dropped before it is stored, and each outcome is reported correctly."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

import oncecast
from oncecast import errors
from oncecast.client import parcel, putting
from oncecast.client.putting import Putting
from oncecast.client.session.local import NotStored, Produce, Stored
from oncecast.kernel.protocol import Value
from oncecast.node.config import Settings
from oncecast.node.server import Server
from oncecast.wire.errors import InvalidTopic
from tests.client.serving import run


class FakeSession:
    """A session that stores batches only when a test answers them."""

    def __init__(self, left: int = 0) -> None:
        self.asked: list[Produce] = []
        self.putting = Putting(self._ask, lambda: None, left=left)

    def _ask(self, request: Value) -> None:
        assert isinstance(request, Produce)
        self.asked.append(request)

    def store(self, number: int, offset: int) -> None:
        self.putting.stored(Stored(self.asked[number].ticket, offset, kept=True))

    def refuse(self, number: int) -> None:
        self.putting.not_stored(NotStored(self.asked[number].ticket, InvalidTopic()))

    async def until(self, batches: int) -> None:
        for _ in range(100):
            if len(self.asked) < batches:
                await asyncio.sleep(0)
        assert len(self.asked) >= batches


def test_put_many_waits_for_buffer_space_and_stores_all_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SVC-2: too many bytes in flight delay the call but do not fail it."""
    monkeypatch.setattr(putting, "BUFFER_BYTES", 300_000)

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            await client.create_topic("t", oncecast.Policy(keep_all=True))
            assert await client.put_many("t", [bytes(100_000)] * 40) == (39, True)
            assert (await client.describe("t")).next == 40

    run(scenario())


def test_single_puts_are_sent_at_once() -> None:
    async def scenario() -> None:
        session = FakeSession()
        for number in range(20):
            work = asyncio.create_task(session.putting.put("t", b"x"))
            await asyncio.sleep(0)  # the task runs up to its first wait
            assert len(session.asked) == number + (number >= putting.SINGLES)
            await session.until(number + 1)
            session.store(number, number)
            assert await work == (number, True)

    run(scenario())


@pytest.mark.parametrize("before", [0, putting.SINGLES])
def test_concurrent_puts_share_a_batch(before: int) -> None:
    """After many single puts, the first concurrent put is still sent alone."""

    async def together(session: FakeSession, counts: list[int]) -> None:
        first = len(session.asked)
        works = [asyncio.create_task(session.putting.put("t", b"x")) for _ in range(sum(counts))]
        await session.until(first + len(counts))
        assert [each.count for each in session.asked[first:]] == counts
        for number in range(first, len(session.asked)):
            session.store(number, number)
        await asyncio.gather(*works)

    async def scenario() -> None:
        session = FakeSession()
        for counts in (*[[1]] * before, [1, 2] if before else [3], [3], [3]):
            await together(session, counts)

    run(scenario())


def test_concurrent_puts_share_a_batch_while_another_is_in_flight() -> None:
    async def scenario() -> None:
        session = FakeSession()
        session.putting._singles = putting.SINGLES
        works = [asyncio.create_task(session.putting.put("t", b"x"))]
        await session.until(1)
        works += [asyncio.create_task(session.putting.put("t", b"x")) for _ in range(2)]
        await session.until(2)
        assert [each.count for each in session.asked] == [1, 2]
        for number in range(2):
            session.store(number, number)
        await asyncio.gather(*works)

    run(scenario())


def test_put_many_returns_the_receipt_for_its_last_message() -> None:
    """SVC-2"""

    async def scenario() -> None:
        session = FakeSession()
        work = asyncio.create_task(session.putting.put_many("t", iter([b"x"] * 3000), None))
        asyncio.get_running_loop().call_soon(session.putting.put_nowait, "t", b"behind")
        await session.until(1)
        assert [each.count for each in session.asked] == [3001]
        session.store(0, 100)
        assert await work == (3099, True)

    run(scenario())


def test_put_many_raises_if_any_of_its_batches_is_refused() -> None:
    """SVC-7: the call raises even if the last batch is stored."""

    async def scenario() -> None:
        session = FakeSession()
        work = asyncio.create_task(session.putting.put_many("t", [bytes(200_000)] * 6, None))
        await session.until(3)
        session.store(0, 0)
        session.refuse(1)
        session.store(2, 2)
        with pytest.raises(errors.InvalidTopic):
            await work
        await session.putting.flush(None)  # the caller already got the error

    run(scenario())


@pytest.mark.parametrize("wrong", [b"abc", ["text"], [b"fine", None]])
def test_put_many_stores_nothing_if_one_value_is_invalid(wrong: list[bytes]) -> None:
    """SVC-7"""

    async def scenario() -> None:
        session = FakeSession()
        with pytest.raises(TypeError, match="not bytes"):
            await session.putting.put_many("t", wrong, None)
        with pytest.raises(errors.PayloadTooLarge):
            await session.putting.put_many("t", [b"x", bytes(putting.PAYLOAD_BYTES_MAX + 1)], None)
        await session.putting.flush(None)
        assert session.asked == []

    run(scenario())


def test_buffer_limit_covers_many_partly_filled_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SVC-7: while the node is down, one limit covers the pending bytes of all topics."""
    monkeypatch.setattr(putting, "BUFFER_BYTES", 1_000_000)

    async def scenario() -> None:
        session, put = FakeSession(), 0
        for number in range(putting.IN_FLIGHT):  # enough to make later puts wait in batches
            session.putting.put_nowait(f"busy {number}", b"x")
        await session.until(putting.IN_FLIGHT)
        with pytest.raises(errors.Overloaded):
            for put in range(3_000):
                session.putting.put_nowait(f"topic {put}", bytes(1000))
                await asyncio.sleep(0)
        assert 1_000_000 < put * 1000 < 2_000_000
        assert sum(each.count for each in session.asked) <= put + putting.IN_FLIGHT

    run(scenario())


def test_put_that_times_out_stays_in_flight_until_flush_reports_it() -> None:
    """SVC-2: putting it again would store a second message, and the error warns about it."""

    async def scenario() -> None:
        session = FakeSession()
        with pytest.raises(errors.TimedOut, match="don't resend") as caught:
            await session.putting.put("t", b"x", timeout=0.001)
        assert "flush" in caught.value.remedy
        assert caught.value.in_flight
        with pytest.raises(errors.TimedOut, match="don't resend"):
            await session.putting.put_many("t", [b"y", b"z"], 0.001)
        with pytest.raises(errors.TimedOut, match="don't resend"):
            await session.putting.flush(0.001)
        session.refuse(0)
        session.store(1, 0)
        with pytest.raises(errors.InvalidTopic):
            await session.putting.flush(None)

    run(scenario())


def test_put_that_times_out_without_buffer_space_is_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SVC-7: the error names the messages that may be put again."""
    monkeypatch.setattr(putting, "BUFFER_BYTES", 1000)
    monkeypatch.setattr(parcel, "CHUNK", 2)

    async def scenario() -> None:
        session = FakeSession()
        with pytest.raises(
            errors.TimedOut, match=r"the first 2 messages are still in flight.* only the rest"
        ):
            await session.putting.put_many("t", [bytes(putting.CUT_BYTES // 2)] * 3, 0.001)
        with pytest.raises(errors.TimedOut, match="nothing was put; try again later"):
            await session.putting.put("t", b"x", timeout=0.001)
        assert [each.count for each in session.asked] == [2]

    run(scenario())


def test_batches_respect_the_node_size_limit(tmp_path: Path) -> None:
    """SVC-2 SVC-7: the client knows the limit before the first message."""
    most = 20_000
    large = most - 100

    async def scenario() -> None:
        settings = Settings(data=str(tmp_path), listen="127.0.0.1:0", batch_bytes_max=most)
        async with Server(settings) as server, oncecast.connect(server.me) as client:
            sizes = [1000] * 100 + [large, 10, large, large]
            await client.put_many("t", [bytes(size) for size in sizes])
            for size in (10, large, 10, large):
                client.put_nowait("t", bytes(size))
                client.put_nowait("t", bytes(size), key=b"k" if size == large else b"k" * 1000)
            for refused in (bytes(most), bytearray(most)):
                with pytest.raises(errors.PayloadTooLarge):
                    await client.put("t", cast(bytes, refused))
                with pytest.raises(errors.PayloadTooLarge):
                    client.put_nowait("t", cast(bytes, refused))
            await client.flush()
            assert (await client.describe("t")).next == len(sizes) + 8

    run(scenario())


def test_flush_waits_only_for_earlier_puts() -> None:
    """SVC-2"""

    async def scenario() -> None:
        session = FakeSession()
        session.putting.put_nowait("t", b"0")
        session.putting.put_nowait("u", b"1")
        flushing = asyncio.create_task(session.putting.flush(None))
        await session.until(2)
        session.putting.put_nowait("t", b"2")
        later = asyncio.create_task(session.putting.flush(None))
        await session.until(3)
        session.store(1, 0)
        await asyncio.sleep(0)
        assert not flushing.done()
        session.store(0, 0)
        await flushing
        assert not later.done()
        session.store(2, 1)
        await later

    run(scenario())


def test_flush_waits_for_batches_from_an_earlier_process() -> None:
    """SVC-2"""

    async def scenario() -> None:
        session = FakeSession(left=2)
        flushing = asyncio.create_task(session.putting.flush(None))
        session.putting.stored(Stored(0, -1, kept=None))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not flushing.done()
        session.putting.not_stored(NotStored(0, InvalidTopic()))
        with pytest.raises(errors.InvalidTopic):
            await flushing

    run(scenario())
