"""Workers share a subscription, and settle its messages one by one."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import oncecast
from oncecast import blocking, errors
from oncecast.client.client import Client
from oncecast.client.jobs import Job, SharedSubscription
from oncecast.client.session.client import ClientSession
from oncecast.wire.frames import SharedView
from tests.client.serving import run, serving

FAST = oncecast.Shared(lease=30, deliveries_max=2, backoff_min=0, backoff_max=0)

Scenario = Callable[[Client, SharedSubscription], Awaitable[None]]


def play(path: Path, scenario: Scenario, *values: bytes, shared: oncecast.Shared = FAST) -> None:
    """Run `scenario` with a worker on a subscription that has these messages."""

    async def playing() -> None:
        async with oncecast.embedded(path) as client:
            jobs = await client.work("t", "s", shared=shared)
            if values:
                await client.put_many("t", values)
            await scenario(client, jobs)

    run(playing())


async def view(client: Client, topic: str = "t") -> SharedView:
    found = (await client.describe(topic)).subscriptions[0].shared
    assert found is not None
    return found


async def next_of(jobs: SharedSubscription) -> Job:
    job = await jobs.get()
    assert job is not None
    return job


async def letters(client: Client, topic: str = "{t}.dead.s") -> list[oncecast.Message]:
    return [message async for page in client.scan(topic) for message in page.messages()]


async def until(client: Client, found: Callable[[], Awaitable[object]]) -> None:
    """Ask the node until `found` returns something true."""
    while not await found():
        await client.ping()


# Settle.


def test_job_is_acknowledged_at_the_end_of_its_block(tmp_path: Path) -> None:
    """WRK-6"""

    async def scenario(client: Client, jobs: SharedSubscription) -> None:
        async for job in jobs:
            async with job:
                assert (job.value, job.offset, job.deliveries, job.topic) == (b"a", 0, 1, "t")
                assert (job.key, job.headers, job.token > 0) == (None, {}, True)
            break
        assert job.settled
        await jobs.flush()
        assert (await client.describe("t")).subscriptions[0].cursor == 1

    play(tmp_path, scenario, b"a")


def test_exception_returns_the_job_and_is_raised_again(tmp_path: Path) -> None:
    """WRK-2"""

    async def scenario(client: Client, jobs: SharedSubscription) -> None:
        first = await next_of(jobs)
        with pytest.raises(ZeroDivisionError):
            async with first:
                raise ZeroDivisionError("bad")
        again = await next_of(jobs)
        assert (again.offset, again.deliveries) == (0, 2)
        assert again.token > first.token
        assert again.message.redelivered
        with pytest.raises(ZeroDivisionError), again:
            raise ZeroDivisionError("worse")
        await jobs.flush()
        await until(client, lambda: letters(client))
        (letter,) = await letters(client)
        assert letter.value == b"a"
        assert letter.headers["oncecast-dead-detail"] == b"ZeroDivisionError: worse"

    play(tmp_path, scenario, b"a")


def test_rejected_job_becomes_a_dead_letter_at_once(tmp_path: Path) -> None:
    """WRK-2"""

    async def scenario(client: Client, jobs: SharedSubscription) -> None:
        (await next_of(jobs)).reject("not a number")
        await jobs.flush()
        await until(client, lambda: letters(client))
        (letter,) = await letters(client)
        assert letter.headers["oncecast-dead-reason"] == b"rejected"
        assert letter.headers["oncecast-dead-detail"] == b"not a number"

    play(tmp_path, scenario, b"a")


def test_returned_job_waits_for_its_delay(tmp_path: Path) -> None:
    async def scenario(client: Client, jobs: SharedSubscription) -> None:
        (await next_of(jobs)).nack(delay=3600)
        assert (await next_of(jobs)).value == b"b"
        await jobs.flush()
        assert (await view(client)).waiting == 1
        assert await jobs.get(timeout=0) is None

    play(tmp_path, scenario, b"a", b"b")


def test_job_is_settled_once(tmp_path: Path) -> None:
    async def scenario(_: Client, jobs: SharedSubscription) -> None:
        async with await next_of(jobs) as job:
            job.ack()
            with pytest.raises(errors.InvalidArgument, match="offset 0 is already settled"):
                job.nack()
        await jobs.flush()

    play(tmp_path, scenario, b"a")


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), 400 * 86400, "soon"])
def test_invalid_delay_is_refused_without_settling_the_job(tmp_path: Path, delay: Any) -> None:
    """WRK-2"""

    async def scenario(_: Client, jobs: SharedSubscription) -> None:
        job = await next_of(jobs)
        with pytest.raises(errors.InvalidArgument, match="delay is"):
            job.nack(delay=delay)
        job.ack()
        await jobs.flush()

    play(tmp_path, scenario, b"a")


def test_invalid_reason_is_refused(tmp_path: Path) -> None:
    async def scenario(_: Client, jobs: SharedSubscription) -> None:
        job = await next_of(jobs)
        with pytest.raises(errors.InvalidArgument, match="1,001 bytes long"):
            job.reject("x" * 1001)
        with pytest.raises(errors.InvalidArgument, match="not a str"):
            job.nack(reason=b"x")  # type: ignore[arg-type]

    play(tmp_path, scenario, b"a")


def test_long_handler_error_is_shortened(tmp_path: Path) -> None:
    async def scenario(client: Client, jobs: SharedSubscription) -> None:
        for _ in range(2):
            with pytest.raises(ValueError, match="é"):
                async with await next_of(jobs):
                    raise ValueError("é" * 2000)
        await until(client, lambda: letters(client))
        (letter,) = await letters(client)
        assert 990 < len(letter.headers["oncecast-dead-detail"]) <= 1000

    play(tmp_path, scenario, b"a")


def test_worker_that_stops_taking_jobs_leaves_the_rest_to_other_workers(tmp_path: Path) -> None:
    """WRK-1"""

    async def scenario() -> None:
        async with (
            serving(tmp_path) as address,
            oncecast.connect(address) as ann,
            oncecast.connect(address) as bob,
        ):
            mine = await ann.work("t", "s", prefetch=2)
            theirs = await bob.work("t", "s", prefetch=2)
            await ann.put_many("t", [b"%d" % n for n in range(8)])
            first = [await next_of(mine), await next_of(mine)]
            assert await mine.get(timeout=0) is None
            second = [await next_of(theirs) for _ in range(2)]
            assert not {job.offset for job in first} & {job.offset for job in second}

    run(scenario())


# Leases.


def steal(client: Client, job: Job) -> None:
    """Release a job for an hour without telling its application, as if its lease had expired."""
    session: ClientSession = client.parts.session
    (worker,) = session.works
    lease = (job.token, job.offset)
    worker._settlements.release.add(lease, (3_600_000_000, ""))
    worker._settlements.flush()


def test_settlement_with_an_old_token_is_refused_only_for_its_job(tmp_path: Path) -> None:
    """WRK-3"""

    async def scenario(client: Client, jobs: SharedSubscription) -> None:
        lost, kept = await next_of(jobs), await next_of(jobs)
        steal(client, lost)
        lost.ack()
        kept.ack()
        with pytest.raises(errors.LeaseLost, match="offset 0 of topic 't'"):
            await jobs.flush()
        assert (lost.lost, kept.lost) == (True, False)
        await jobs.flush()
        assert (await view(client)).waiting == 1

    play(tmp_path, scenario, b"a", b"b")


def test_leases_are_renewed_while_the_handler_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WRK-2"""
    monkeypatch.setattr("oncecast.client.session.working.RENEWALS", 300)  # 10 per second

    async def scenario(client: Client, jobs: SharedSubscription) -> None:
        job = await next_of(jobs)
        (worker,) = client.parts.session.works
        while worker._settlements.number < 4:  # each call is a renewal
            await client.ping()
        job.ack()
        await jobs.flush()
        assert (job.lost, (await view(client)).leased) == (False, 0)

    play(tmp_path, scenario, b"a")


# Run handlers.


def test_run_handles_jobs_concurrently_and_continues_after_a_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """WRK-6"""

    async def scenario(client: Client, jobs: SharedSubscription) -> None:
        both = asyncio.Barrier(2)
        seen: list[bytes] = []

        async def handle(job: Job) -> None:
            seen.append(job.value)
            if len(seen) == 4:
                jobs.stop()
            if job.value == b"bad":
                raise ValueError("no")
            await both.wait()

        await jobs.run(handle, concurrency=2)
        assert sorted(seen) == [b"a", b"b", b"bad", b"bad"]
        await jobs.drain()
        await until(client, lambda: letters(client))

    with caplog.at_level(logging.WARNING, "oncecast.worker"):
        play(tmp_path, scenario, b"bad", b"a", b"b")
    assert caplog.text.count("failed: no") == 2


def test_plain_function_runs_in_a_thread(tmp_path: Path) -> None:
    async def scenario(client: Client, jobs: SharedSubscription) -> None:
        threads = set()

        def handle(job: Job) -> None:
            threads.add(threading.get_ident())
            if job.value == b"b":
                job.reject("no")
                jobs._requests.loop.call_soon_threadsafe(jobs.stop)

        await jobs.run(handle)
        assert threading.get_ident() not in threads
        await jobs.drain()
        assert len(await letters(client)) == 1
        assert (await client.describe("t")).subscriptions[0].cursor == 2

    play(tmp_path, scenario, b"a", b"b")


def test_run_ends_when_its_subscription_is_removed(tmp_path: Path) -> None:
    async def scenario(client: Client, jobs: SharedSubscription) -> None:
        async with oncecast.connect(str(client.node_of("t"))) as other:
            await client.set_policy("t", oncecast.Policy(keep_all=True))
            running = asyncio.ensure_future(jobs.run(lambda job: None))
            await other.unsubscribe("t", "s")
            with pytest.raises(errors.NotSubscribed):
                await running

    play(tmp_path, scenario)


def test_concurrency_must_be_positive(tmp_path: Path) -> None:
    async def scenario(_: Client, jobs: SharedSubscription) -> None:
        with pytest.raises(errors.InvalidArgument):
            await jobs.run(lambda job: None, concurrency=0)

    play(tmp_path, scenario)


def test_decorated_function_can_still_be_called(tmp_path: Path) -> None:
    """WRK-6"""

    @oncecast.worker("t", "s")
    def double(job: Job) -> bytes:
        return 2 * job.value

    async def scenario(_: Client, jobs: SharedSubscription) -> None:
        with await next_of(jobs) as job:
            assert double(job) == b"aa"

    play(tmp_path, scenario, b"a")


# The end.


def test_drain_waits_for_started_jobs_and_returns_all_others(tmp_path: Path) -> None:
    """WRK-6"""

    async def scenario(client: Client, jobs: SharedSubscription) -> None:
        job = await next_of(jobs)
        draining = asyncio.ensure_future(jobs.drain())
        await until(client, lambda: gave_back(client))
        assert not draining.done()
        assert await jobs.get() is None
        job.ack()
        await draining
        found = await view(client)
        assert (found.leased, found.waiting, found.workers) == (0, 2, 0)
        again = await client.work("t", "s")
        assert [(await next_of(again)).deliveries for _ in range(2)] == [1, 1]

    async def gave_back(client: Client) -> bool:
        return (await view(client)).leased == 1

    play(tmp_path, scenario, b"a", b"b", b"c")


def test_drain_gives_up_on_slow_jobs(tmp_path: Path) -> None:
    async def scenario(client: Client, jobs: SharedSubscription) -> None:
        job = await next_of(jobs)
        with pytest.raises(errors.TimedOut, match=r"not all jobs ended within 0 s \(1 left\)"):
            await jobs.drain(timeout=0)
        with pytest.raises(errors.Closed):
            job.ack()
        assert (await view(client)).leased == 0

    play(tmp_path, scenario, b"a")


def test_closing_the_client_returns_all_jobs(tmp_path: Path) -> None:
    """WRK-6"""

    async def scenario() -> None:
        async with serving(tmp_path) as address, oncecast.connect(address) as other:
            async with oncecast.connect(address) as client:
                jobs = await client.work("t", "s", shared=FAST)
                await client.put_many("t", [b"a", b"b", b"c"])
                (await next_of(jobs)).ack()
                await next_of(jobs)
            again = await other.work("t", "s", create=False)
            found = sorted([(await next_of(again)).deliveries for _ in range(2)])
            assert found == [1, 2]  # the started job counts as delivered

    run(scenario())


def test_waiting_get_ends_when_the_client_closes(tmp_path: Path) -> None:
    async def scenario(client: Client, jobs: SharedSubscription) -> None:
        waiting = asyncio.ensure_future(jobs.get())
        await jobs.flush()
        await jobs.close()
        await jobs.close()
        assert await waiting is None
        assert await jobs.get() is None
        with pytest.raises(errors.Closed):
            await jobs.flush()

    play(tmp_path, scenario)


# Invalid requests.


def test_shared_and_exclusive_subscriptions_have_separate_calls(tmp_path: Path) -> None:
    async def scenario(client: Client, jobs: SharedSubscription) -> None:
        await client.subscribe("t", "plain")
        with pytest.raises(errors.WrongKind, match="'s' of topic 't' is shared"):
            await client.subscribe("t", "s")
        with pytest.raises(errors.WrongKind, match="'plain' of topic 't' is exclusive"):
            await client.work("t", "plain")
        with pytest.raises(errors.WrongKind, match="'plain' of topic 't' is exclusive"):
            await client.work("t", "plain", create=False)
        async with oncecast.connect(str(client.node_of("t"))) as other:
            with pytest.raises(errors.WrongKind, match="'s' of topic 't' is shared"):
                await other.subscribe("t", "s")
            wrong = await other.work("t", "plain", create=False)
            with pytest.raises(errors.WrongKind, match="exclusive"):
                await wrong.get()
        job = await next_of(jobs)  # no message is lost
        job.ack()

    play(tmp_path, scenario, b"a")


def test_worker_on_an_unknown_subscription_gets_an_error(tmp_path: Path) -> None:
    async def scenario(client: Client, _: SharedSubscription) -> None:
        missing = await client.work("t", "other", create=False)
        with pytest.raises(errors.NotSubscribed):
            await missing.get()
        with pytest.raises(errors.NoSuchTopic):
            await (await client.work("nowhere", "s", create=False)).get()

    play(tmp_path, scenario)


def test_order_setting_cannot_change_while_messages_are_in_flight(tmp_path: Path) -> None:
    async def scenario(client: Client, jobs: SharedSubscription) -> None:
        await next_of(jobs)
        slow = oncecast.Shared(lease=60)
        assert not (await client.create_subscription("t", "s", shared=slow)).new
        assert (await view(client)).settings == slow.wire
        await client.work("t", "s")
        assert (await view(client)).settings == slow.wire
        with pytest.raises(errors.InvalidArgument, match="by_key cannot change while 1 messages"):
            await client.create_subscription("t", "s", shared=oncecast.Shared(by_key=True))

    play(tmp_path, scenario, b"a")


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"lease": 0}, "the lease is 0 s"),
        ({"lease": "x"}, "lease is 'x'"),
        ({"backoff_min": -1}, "backoff_min is -1"),
        ({"backoff_min": 5, "backoff_max": 1}, "the backoff is 5 to 1 s"),
        ({"deliveries_max": -1}, "the maximum of deliveries is -1"),
        ({"deliveries_max": 1.5}, "deliveries_max is 1.5"),
        ({"in_flight_max": 0}, "the in-flight maximum is 0"),
        ({"by_key": 1}, "by_key is 1"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any], fault: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=fault):
        oncecast.Shared(**settings)


def test_invalid_dead_letter_topic_name_is_refused() -> None:
    with pytest.raises(errors.InvalidName, match="dead-letter topic name is empty"):
        oncecast.Shared(dead_letters="")


def test_invalid_work_arguments_are_refused(tmp_path: Path) -> None:
    async def scenario(client: Client, jobs: SharedSubscription) -> None:
        assert await client.work("t", "s") is jobs
        for prefetch in (0, 10_001, "x"):
            with pytest.raises(errors.InvalidArgument, match="prefetch is"):
                await client.work("t", "new", prefetch=prefetch)  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidArgument, match="open with prefetch=16"):
            await client.work("t", "s", prefetch=1)
        with pytest.raises(errors.InvalidArgument, match="use oncecast"):
            await client.work("t", "s", shared={"lease": 3})  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidTopic):
            await client.work("", "s", create=False)
        assert len((await client.describe("t")).subscriptions) == 1

    play(tmp_path, scenario)


# The blocking client.


def test_blocking_worker(tmp_path: Path) -> None:
    """WRK-6"""
    with blocking.embedded(tmp_path) as client:
        jobs = client.work("t", "s", shared=FAST)
        client.create_subscription("t", "other", shared=FAST)
        client.put_many("t", [b"a", b"b", b"c"])
        for job in jobs:
            with job:
                assert job.value in (b"a", b"b", b"c")
            if job.value == b"b":
                break
        jobs.flush()
        view = {each.name: each for each in client.describe("t").subscriptions}
        assert view["s"].cursor == 2
        last = jobs.get(timeout=5)
        assert last is not None
        with last:
            pass
        done: list[bytes] = []

        def handle(job: Job) -> None:
            done.append(job.value)
            jobs.stop()

        client.put("t", b"d")
        jobs.run(handle)
        assert (done, list(jobs)) == ([b"d"], [])
        jobs.drain()
        view = {each.name: each for each in client.describe("t").subscriptions}
        assert (view["s"].cursor, view["other"].cursor) == (4, 0)
        assert repr(jobs) == "<SharedSubscription 's' of topic 't'>"
        assert repr(job).startswith("<Job 1 of topic 't', token ")


def test_blocking_worker_closes_at_the_end_of_its_block(tmp_path: Path) -> None:
    with blocking.embedded(tmp_path) as client:
        with client.work("t", "s") as jobs:
            assert jobs.get(timeout=0) is None
        assert list(jobs) == []
