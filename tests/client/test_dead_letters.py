"""List, retry and drop dead letters (WRK-6)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import oncecast
from oncecast import DeadLetters, blocking, errors
from oncecast.client.client import Client
from oncecast.wire.retention import DEFAULT
from tests.client.serving import run

DEAD = "{t}.dead.s"

Scenario = Callable[[Client, DeadLetters], Awaitable[None]]


def play(path: Path, scenario: Scenario, count: int = 3) -> None:
    """Run `scenario` with dead letters 0 to `count` - 1, whose values are their numbers."""

    async def playing() -> None:
        async with oncecast.embedded(path) as client:
            async with await client.work("t", "s") as jobs:
                for n in range(count):
                    await client.put("t", b"%d" % n, b"key", {"own": b"x"})
                for _ in range(count):
                    job = await jobs.get()
                    assert job is not None
                    job.reject(f"no {job.offset}")
                await jobs.flush()
            letters = client.dead_letters("t", "s")
            while await letters.count() < count:
                await client.ping()
            await scenario(client, letters)

    run(playing())


async def values(letters: DeadLetters, count: int = 100) -> list[bytes]:
    return [each.value for each in await letters.first(count)]


async def again(client: Client, count: int) -> list[oncecast.Job]:
    """Return the jobs that the topic's workers get next."""
    jobs = await client.work("t", "s")
    found = []
    for _ in range(count):
        job = await jobs.get()
        assert job is not None
        job.ack()
        found.append(job)
    assert await jobs.get(timeout=0) is None
    return found


def test_dead_letters_contain_their_reason(tmp_path: Path) -> None:
    async def scenario(_: Client, letters: DeadLetters) -> None:
        first, second = await letters.first(2)
        assert (first.offset, first.origin, first.deliveries) == (0, 0, 1)
        assert (second.reason, second.detail) == ("rejected", "no 1")
        assert (await letters.show(2)).value == b"2"
        assert first.headers == {"own": b"x"}
        with pytest.raises(errors.OutOfRange):
            await letters.show(3)

    play(tmp_path, scenario)


def test_dropped_letters_free_their_disk_space(tmp_path: Path) -> None:
    async def scenario(client: Client, letters: DeadLetters) -> None:
        assert await letters.drop([1]) == 1
        assert (await values(letters), await letters.count()) == ([b"0", b"2"], 2)
        assert await letters.drop() == 2
        assert (await values(letters), await letters.count()) == ([], 0)
        view = await client.describe(DEAD)
        assert (view.policy, view.first, view.next) == (DEFAULT, 3, 3)
        assert await letters.drop() == 0

    play(tmp_path, scenario)


def test_retried_letters_keep_their_own_headers(tmp_path: Path) -> None:
    async def scenario(client: Client, letters: DeadLetters) -> None:
        assert await letters.retry([2]) == 1
        (job,) = await again(client, 1)
        assert (job.value, job.key, job.headers, job.deliveries) == (b"2", b"key", {"own": b"x"}, 1)
        assert await values(letters) == [b"0", b"1"]
        assert await letters.retry() == 2
        assert [each.value for each in await again(client, 2)] == [b"0", b"1"]
        assert await values(letters) == []

    play(tmp_path, scenario)


def test_interrupted_retry_puts_no_message_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The letter is put again, but the process dies before it marks the letter as handled."""

    async def scenario(client: Client, letters: DeadLetters) -> None:
        acknowledge = oncecast.Job.ack

        def die(_: oncecast.Job) -> None:
            raise KeyError("dead")

        monkeypatch.setattr(oncecast.Job, "ack", die)
        with pytest.raises(KeyError):
            await letters.retry([0])
        monkeypatch.setattr(oncecast.Job, "ack", acknowledge)
        assert await letters.count() == 3
        assert await letters.retry([0]) == 1
        (job,) = await again(client, 1)
        assert job.value == b"0"

    play(tmp_path, scenario)


def test_retry_is_refused_if_other_subscriptions_would_get_the_letters(tmp_path: Path) -> None:
    async def scenario(client: Client, letters: DeadLetters) -> None:
        await client.create_subscription("t", "other")
        with pytest.raises(errors.InvalidArgument, match="'t' has 2 subscriptions"):
            await letters.retry()
        assert await letters.retry([0], to="t") == 1
        await client.create_subscription("retries", "s")
        assert await letters.retry(to="retries") == 2
        with pytest.raises(errors.InvalidArgument, match="is not an open dead letter"):
            await letters.retry([0], to="t")

    play(tmp_path, scenario)


def test_retry_into_a_topic_that_drops_the_messages_keeps_the_letter(tmp_path: Path) -> None:
    async def scenario(client: Client, letters: DeadLetters) -> None:
        await client.create_topic("nobody")
        with pytest.raises(errors.NotKept):
            await letters.retry([0], to="nobody")
        assert await letters.count() == 3

    play(tmp_path, scenario)


def test_changed_policy_is_kept(tmp_path: Path) -> None:
    async def scenario(client: Client, letters: DeadLetters) -> None:
        policy = oncecast.Policy(age_us=3_600_000_000)
        await client.set_policy(DEAD, policy)
        await letters.drop([0])
        assert (await client.describe(DEAD)).policy == policy

    play(tmp_path, scenario)


def test_letter_held_by_another_command_is_not_available(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(client: Client, letters: DeadLetters) -> None:
        await letters.drop([0])
        async with oncecast.connect(str(client.node_of("t"))) as other:
            holding = await other.work(DEAD, "dead", create=False)
            assert await holding.get() is not None
            monkeypatch.setattr("oncecast.client.dead_letters.QUIET", 0.1)
            with pytest.raises(errors.TimedOut, match="1 of the dead letters are not available"):
                await letters.drop([1])

    play(tmp_path, scenario)


def test_subscription_without_dead_letters_lists_none(tmp_path: Path) -> None:
    async def scenario(client: Client, letters: DeadLetters) -> None:
        assert (await letters.first(10), await letters.count()) == ([], 0)
        await client.delete_topic(DEAD)
        assert (await letters.first(10), await letters.count()) == ([], 0)
        await client.subscribe("t", "plain")
        with pytest.raises(errors.WrongKind):
            await client.dead_letters("t", "plain").first(1)
        with pytest.raises(errors.NotSubscribed):
            await client.dead_letters("t", "nothing").first(1)

    play(tmp_path, scenario, count=0)


def test_concurrent_calls_handle_their_own_letters(tmp_path: Path) -> None:
    async def scenario(client: Client, letters: DeadLetters) -> None:
        others = client.dead_letters("t", "s")
        dropped, retried = await asyncio.gather(letters.drop([0]), others.retry([1, 2]))
        assert (dropped, retried) == (1, 2)
        assert [job.value for job in await again(client, 2)] == [b"1", b"2"]
        assert await letters.count() == 0

    play(tmp_path, scenario)


def test_invalid_arguments_are_refused(tmp_path: Path) -> None:
    async def scenario(client: Client, letters: DeadLetters) -> None:
        with pytest.raises(errors.InvalidArgument, match="count is 0"):
            await letters.first(0)
        with pytest.raises(errors.InvalidArgument, match="is not an open dead letter"):
            await letters.drop([9])
        with pytest.raises(errors.InvalidTopic):
            await letters.retry(to="")
        with pytest.raises(errors.InvalidTopic):
            client.dead_letters("", "s")
        with pytest.raises(errors.InvalidName):
            client.dead_letters("t", "")
        assert await letters.count() == 1

    play(tmp_path, scenario, count=1)


def test_message_that_a_client_put_into_the_dead_letter_topic_is_a_letter_without_a_reason(
    tmp_path: Path,
) -> None:
    async def scenario(client: Client, letters: DeadLetters) -> None:
        await client.put(DEAD, b"own", headers={"oncecast-dead-offset": b"x"})
        (letter,) = await letters.first()
        assert (letter.value, letter.reason, letter.detail) == (b"own", "", "")
        assert (letter.origin, letter.deliveries, letter.key) == (None, 0, None)
        assert await letters.drop([letter.offset]) == 1

    play(tmp_path, scenario, count=0)


def test_blocking_client_handles_dead_letters(tmp_path: Path) -> None:
    """WRK-6"""
    with blocking.embedded(tmp_path) as client:
        jobs = client.work("t", "s")
        client.put_many("t", [b"a", b"b"])
        for _ in range(2):
            job = jobs.get()
            assert job is not None
            job.reject("no")
        jobs.flush()
        letters = client.dead_letters("t", "s")
        while letters.count() < 2:
            client.ping()
        assert [(each.offset, each.value) for each in letters.first()] == [(0, b"a"), (1, b"b")]
        assert letters.show(1).detail == "no"
        assert (letters.drop([0]), letters.retry(), letters.count()) == (1, 1, 0)
        job = jobs.get()
        assert job is not None
        assert job.value == b"b"
        job.ack()
        assert repr(letters) == "<DeadLetters of subscription 's' of topic 't'>"
