"""Puts with a delay, a due time or a time to live (WRK-5)."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

import oncecast
from oncecast import blocking, errors
from oncecast.client import timing as times_of_put
from oncecast.client.timing import SECONDS_MAX
from oncecast.wire.timing import Timing
from tests.client.serving import run
from tests.client.test_putting import FakeSession

S = 1_000_000
NOW = 1_800_000_000.0


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW)


def times(delay: Any = None, at: Any = None, ttl: Any = None) -> Timing | None:
    return times_of_put.timing_of(delay, at, ttl)


@pytest.mark.usefixtures("still")
def test_times_become_microseconds() -> None:
    assert times() is None
    assert times(delay=0) is None
    assert times(at=0) is None
    assert times(delay=1.5) == Timing(delay_us=1_500_000)
    assert times(delay=SECONDS_MAX, ttl=None) == Timing(delay_us=SECONDS_MAX * S)
    assert times(at=NOW + 60) == Timing(due_us=int(NOW + 60) * S)
    assert times(at=NOW - 60) == Timing(due_us=int(NOW - 60) * S)
    assert times(at=datetime.fromtimestamp(NOW + 1, UTC)) == Timing(due_us=int(NOW + 1) * S)
    assert times(ttl=1e-9) == Timing(ttl_us=1)
    assert times(delay=1, ttl=2) == Timing(delay_us=S, ttl_us=2 * S)
    assert times(at=NOW + 1, ttl=2) == Timing(due_us=int(NOW + 1) * S, ttl_us=2 * S)


@pytest.mark.usefixtures("still")
@pytest.mark.parametrize(
    ("given", "fact", "remedy"),
    [
        ({"delay": -1}, "delay is -1", "0 to 31,622,400 (366 days)"),
        ({"delay": nan}, "delay is nan", "number of seconds"),
        ({"delay": inf}, "delay is inf", "(366 days)"),
        ({"delay": SECONDS_MAX + 1}, "delay is 31622401", "(366 days)"),
        ({"delay": "5"}, "delay is '5'", "number of seconds"),
        ({"delay": True}, "delay is True", "number of seconds"),
        ({"ttl": 0}, "ttl is 0", "above 0, up to 31,622,400 (366 days)"),
        ({"ttl": -3}, "ttl is -3", "above 0"),
        ({"ttl": nan}, "ttl is nan", "above 0"),
        ({"ttl": SECONDS_MAX + 1}, "ttl is 31622401", "(366 days)"),
        ({"delay": 1, "at": NOW}, "the put has both delay and at", "only one"),
        ({"delay": 5, "ttl": 5}, "ttl is 5 s, but the message is due in 5 s", "longer"),
        ({"at": NOW + 9, "ttl": 8}, "ttl is 8 s, but the message is due in 9 s", "longer"),
        ({"at": -1}, "at is -1", "within the next 366 days"),
        ({"at": nan}, "at is nan", "within the next 366 days"),
        ({"at": NOW * 1000}, "at is 1800000000000.0", "in seconds since 1970"),
        ({"at": "tomorrow"}, "at is 'tomorrow'", "within the next 366 days"),
        ({"at": datetime(2030, 1, 31)}, "at is 2030-01-31T00:00:00, without", "time zone"),
    ],
)
def test_invalid_times_are_refused(given: dict[str, Any], fact: str, remedy: str) -> None:
    with pytest.raises(errors.InvalidArgument) as caught:
        times(**given)
    assert str(caught.value).startswith(fact)
    assert remedy in caught.value.remedy


# Batches.


def test_puts_with_the_same_delay_share_a_batch() -> None:
    """Plain puts to the topic keep their own batch."""

    async def scenario() -> None:
        session = FakeSession()
        delayed = Timing(delay_us=5 * S)
        work = [
            asyncio.create_task(session.putting.put("t", b"x", timing=timing))
            for timing in (delayed, None, delayed, None, Timing(delay_us=6 * S))
        ]
        await session.until(3)
        found = [(each.count, each.timing) for each in session.asked]
        assert found == [(2, delayed), (2, None), (1, Timing(delay_us=6 * S))]
        session.store(0, -1)
        session.store(1, 7)
        session.store(2, -1)
        assert await asyncio.gather(*work) == [
            (-1, True),
            (7, True),
            (-1, True),
            (8, True),
            (-1, True),
        ]

    run(scenario())


def test_messages_with_a_time_to_live_keep_their_order() -> None:
    """SVC-2: each change of the time to live begins a batch."""

    async def scenario() -> None:
        session = FakeSession()
        short, long, late = Timing(ttl_us=S), Timing(ttl_us=9 * S), Timing(delay_us=S, ttl_us=9 * S)
        for timing in (None, short, late, short, long, long, None, None, late, short):
            asyncio.create_task(session.putting.put("t", b"x", timing=timing))  # noqa: RUF006
        await session.until(6)
        found = [(each.count, each.timing) for each in session.asked]
        ordered = [each for each in found if each[1] != late]
        assert ordered == [(1, None), (2, short), (2, long), (2, None), (1, short)]
        assert (2, late) in found

    run(scenario())


def test_full_batch_continues_with_the_same_timing() -> None:
    async def scenario() -> None:
        session = FakeSession()
        session.putting.limit(100_000)
        timing = Timing(ttl_us=S)
        work = [
            asyncio.create_task(session.putting.put("t", bytes(size), timing=timing))
            for size in (45_000, 60_000, 10)
        ]
        await session.until(3)
        assert [(each.count, each.timing) for each in session.asked] == [(1, timing)] * 3
        for number in range(3):
            session.store(number, number)
        assert await asyncio.gather(*work) == [(0, True), (1, True), (2, True)]

    run(scenario())


def test_many_values_share_their_times() -> None:
    async def scenario() -> None:
        session = FakeSession()
        timing = Timing(ttl_us=S)
        work = asyncio.create_task(session.putting.put_many("t", [b"x"] * 9, None, timing))
        await session.until(1)
        assert [(each.count, each.timing) for each in session.asked] == [(9, timing)]
        session.store(0, 0)
        assert await work == (8, True)

    run(scenario())


# The client.


def test_delayed_message_is_visible_when_it_is_due(tmp_path: Path) -> None:
    """WRK-5: to workers and to ordered readers, and others overtake it."""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            jobs = await client.work("t", "workers")
            news = await client.subscribe("t", "ordered")
            begin = time.monotonic()
            late = await client.put("t", b"late", delay=0.3)
            assert late == (-1, True)
            assert (await client.describe("t")).delayed == 1
            assert await client.put("t", b"now") == (0, True)
            assert await client.put_many("t", [b"later"], at=time.time() + 0.4) == (-1, True)
            for take in (news, jobs):
                found = [await take.get() for _ in range(3)]
                assert [each.value for each in found if each] == [b"now", b"late", b"later"]
                assert [each.offset for each in found if each] == [0, 1, 2]
            assert time.monotonic() - begin >= 0.3
            assert (await client.describe("t")).delayed == 0

    run(scenario())


def test_expired_message_becomes_a_dead_letter(tmp_path: Path) -> None:
    """WRK-5"""
    with blocking.embedded(tmp_path) as client:
        jobs = client.work("t", "workers", prefetch=1)
        client.put_many("t", [b"first", b"second"], ttl=60)
        job = jobs.get()
        assert job is not None
        client.put("t", b"old", ttl=0.001)
        job.ack()
        second = jobs.get()
        assert second is not None
        assert second.value == b"second"
        second.ack()
        jobs.flush()
        letters = client.dead_letters("t", "workers")
        found = letters.first(1)
        while not found:
            found = letters.first(1)
        assert [(each.value, each.reason, each.deliveries) for each in found] == [
            (b"old", "expired", 0)
        ]
        client.set_policy("t", oncecast.Policy(drop_expired=True))
        assert client.describe("t").policy.drop_expired


def test_delayed_put_of_a_killed_client_is_stored_once(tmp_path: Path) -> None:
    """WRK-5 SVC-2: the outbox keeps the times of a put."""
    node, state = tmp_path / "node", tmp_path / "state"
    with blocking.embedded(node, name="ann", state=state) as client:
        client.subscribe("t")
        client.put("t", b"late", delay=3600)
        client.flush()
        assert client.describe("t").delayed == 1
    with blocking.embedded(node, name="ann", state=state) as client:
        client.flush()
        assert client.describe("t").delayed == 1
        assert client.describe("t").next == 0


def test_invalid_times_of_a_put_raise_an_error(tmp_path: Path) -> None:
    with blocking.embedded(tmp_path) as client:
        with pytest.raises(errors.InvalidArgument, match="delay is -1"):
            client.put("t", b"x", delay=-1)
        with pytest.raises(errors.InvalidArgument, match="ttl is 0"):
            client.put_many("t", [b"x"], ttl=0)
        assert client.put("t", b"x", at=datetime.now(UTC) + timedelta(hours=1)).offset == -1
