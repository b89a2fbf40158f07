"""A client puts, and acknowledges what it consumed, in one step or not at all (TXN-1)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

import oncecast
from oncecast import blocking, errors
from oncecast.client import transactions
from oncecast.client.client import Client
from oncecast.client.subscriptions import Subscriptions
from oncecast.wire import commands as do
from tests.client.serving import run, serving

Scenario = Callable[[Client, oncecast.Subscription], Awaitable[None]]


def play(path: Path, scenario: Scenario, *values: bytes) -> None:
    """Run `scenario` with a reader of the topic `in`, which has these messages."""

    async def playing() -> None:
        async with oncecast.embedded(path, name="ann") as client:
            reader = await client.subscribe("in", "s", auto_ack=False)
            await client.subscribe("out", "s")
            if values:
                await client.put_many("in", values)
            await scenario(client, reader)

    run(playing())


async def output(client: Client, topic: str = "out") -> list[bytes]:
    return [each.value async for page in client.scan(topic) for each in page.messages()]


async def cursor(client: Client, topic: str = "in") -> int:
    return (await client.describe(topic)).subscriptions[0].cursor


async def next_of(reader: oncecast.Subscription) -> oncecast.Message:
    message = await reader.get(timeout=5.0)
    assert message is not None
    return message


class Oops(Exception): ...


# -- commit and abort --


def test_messages_and_acknowledgements_take_effect_together(tmp_path: Path) -> None:
    """TXN-1"""

    async def scenario(client: Client, reader: oncecast.Subscription) -> None:
        async with client.transaction("copier") as t:
            message = await next_of(reader)
            await t.put("out", message.value * 2, key=b"k", headers={"h": b"1"})
            await t.put("out", b"second")
            t.ack(message)
            assert (await output(client), await cursor(client)) == ([], 0)
        assert (await output(client), await cursor(client)) == ([b"aa", b"second"], 1)
        assert [(each.topic, each.offset, each.count) for each in t.ranges] == [("out", 0, 2)]
        assert (await next_of(reader)).value == b"b"
        found = [each async for page in client.scan("out") for each in page.messages()]
        assert [(each.key, dict(each.headers)) for each in found] == [
            (b"k", {"h": b"1"}),
            (None, {}),
        ]
        assert {each.producer for each in found} == {"copier"}

    play(tmp_path, scenario, b"a", b"b")


def test_exception_aborts_and_redelivers(tmp_path: Path) -> None:
    """TXN-1: nothing is put or acknowledged, and the messages come again."""

    async def scenario(client: Client, reader: oncecast.Subscription) -> None:
        first, second = await next_of(reader), await next_of(reader)
        with pytest.raises(Oops):
            async with client.transaction("copier") as t:
                await t.put("out", b"lost")
                t.ack(first)
                t.ack(second)
                raise Oops
        again = await next_of(reader)
        assert (again.offset, again.redelivered) == (0, True)
        assert (await output(client), await cursor(client)) == ([], 0)
        async with client.transaction("copier") as t:
            await t.put("out", b"kept")
            t.ack(again)
        assert (await output(client), await cursor(client)) == ([b"kept"], 1)

    play(tmp_path, scenario, b"a", b"b")


def test_transaction_over_several_topics_and_subscriptions(tmp_path: Path) -> None:
    """TXN-1"""

    async def scenario(client: Client, reader: oncecast.Subscription) -> None:
        other = await client.subscribe("other", "s", auto_ack=False)
        jobs = await client.work("jobs", "w")
        await client.put("other", b"x")
        await client.put("jobs", b"y")
        job = await jobs.get()
        assert job is not None
        async with client.transaction("joiner") as t:
            t.ack(await next_of(reader))
            t.ack(await next_of(other))
            t.ack(job)
            for topic in ("out", "new"):
                await t.put(topic, b"joined")
        assert {each.topic for each in t.ranges} == {"out", "new"}
        assert [await cursor(client, each) for each in ("in", "other", "jobs")] == [1, 1, 1]

    play(tmp_path, scenario, b"a")


def test_transaction_without_content_does_nothing(tmp_path: Path) -> None:
    async def scenario(client: Client, reader: oncecast.Subscription) -> None:
        async with client.transaction() as t:
            pass
        assert t.ranges == ()
        with pytest.raises(errors.Closed, match="only once"):
            await t.put("out", b"late")
        with pytest.raises(errors.Closed, match="used before"):
            async with t:
                pass

    play(tmp_path, scenario)


def test_many_transactions_run_at_the_same_time(tmp_path: Path) -> None:
    """TXN-1"""

    async def scenario(client: Client, reader: oncecast.Subscription) -> None:
        jobs = await client.work("jobs", "w", prefetch=50)
        await client.put_many("jobs", [b"%d" % number for number in range(300)])

        async def handle(job: oncecast.Job) -> None:
            async with client.transaction("copier") as t:
                await t.put("out", job.value)
                t.ack(job)
            if job.offset == 299:
                jobs.stop()

        await jobs.run(handle, concurrency=150)
        await jobs.drain()
        found = sorted(map(int, await output(client)))
        assert found == list(range(300))
        assert await cursor(client, "jobs") == 300

    play(tmp_path, scenario)


def test_large_transaction_is_staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TXN-1: readers see its messages only after the commit."""
    monkeypatch.setattr(transactions, "STAGE_BYTES", 1000)

    async def scenario(client: Client, reader: oncecast.Subscription) -> None:
        values = [b"%03d" % number * 100 for number in range(40)]
        async with client.transaction("copier") as t:
            for value in values:
                await t.put("out", value)
                await t.put("other", value)
            assert await output(client) == []
        assert await output(client) == values
        with pytest.raises(Oops):
            async with client.transaction("copier") as t:
                for value in values:
                    await t.put("out", value)
                raise Oops
        async with client.transaction("copier") as t:
            await t.put("out", b"end")
        assert await output(client) == [*values, b"end"]

    play(tmp_path, scenario)


# -- jobs --


def test_job_is_settled_by_its_transaction(tmp_path: Path) -> None:
    """TXN-1 WRK-3"""

    async def scenario(client: Client, reader: oncecast.Subscription) -> None:
        shared = oncecast.Shared(backoff_min=0, backoff_max=0)
        jobs = await client.work("jobs", "w", shared=shared)
        await client.put("jobs", b"a")
        job = await jobs.get()
        assert job is not None
        with pytest.raises(Oops):
            async with job, client.transaction("copier") as t:
                t.ack(job)
                with pytest.raises(errors.InvalidArgument, match="part of a transaction"):
                    job.ack()
                raise Oops
        again = await jobs.get(timeout=5.0)
        assert again is not None
        assert again.deliveries == 2
        async with again, client.transaction("copier") as t:
            await t.put("out", again.value)
            t.ack(again)
        assert (again.settled, again.lost) == (True, False)
        await jobs.flush()
        await jobs.drain()
        assert (await output(client), await cursor(client, "jobs")) == ([b"a"], 1)

    play(tmp_path, scenario)


def test_lost_job_aborts_the_transaction(tmp_path: Path) -> None:
    """TXN-1: the error names the job."""

    async def scenario(client: Client, reader: oncecast.Subscription) -> None:
        jobs = await client.work("jobs", "w")
        await client.put("jobs", b"a")
        job = await jobs.get()
        assert job is not None
        await client.seek("jobs", "w", oncecast.EARLIEST)
        with pytest.raises(errors.NotAcknowledged, match=r"offset 0 .*'w', .*lease has ended"):
            async with client.transaction("copier") as t:
                await t.put("out", b"lost")
                t.ack(job)
        assert await output(client) == []

    play(tmp_path, scenario)


# -- fencing --


def test_newer_process_fences_the_older_one(tmp_path: Path) -> None:
    """TXN-1"""

    async def work() -> None:
        async with serving(tmp_path) as node, oncecast.connect(node, name="old") as old:
            async with old.transaction("copier") as t:
                await t.put("out", b"1")
            async with oncecast.connect(node, name="new") as new:
                async with new.transaction("copier") as t:
                    await t.put("out", b"2")
                for _ in range(2):
                    with pytest.raises(errors.Fenced, match="transactions of 'copier'"):
                        async with old.transaction("copier") as t:
                            await t.put("out", b"3")
                async with old.transaction("another") as t:
                    await t.put("out", b"4")
                async with new.transaction("copier") as t:
                    await t.put("out", b"5")
                ranges = (await new.describe("out")).next
        assert ranges == 4

    run(work())


def test_other_reader_aborts_the_transaction(tmp_path: Path) -> None:
    """TXN-1: the other reader gets the message, so only its output counts."""

    async def work() -> None:
        async with serving(tmp_path) as node, oncecast.connect(node) as old:
            reader = await old.subscribe("in", "s", auto_ack=False)
            await old.put("in", b"a")
            message = await next_of(reader)
            async with oncecast.connect(node) as new:
                with pytest.raises(errors.NotAcknowledged, match="another reader"):
                    async with old.transaction("one") as t:
                        await t.put("out", b"lost")
                        t.ack(message)
                        taken = await new.subscribe("in", "s", auto_ack=False)
                with pytest.raises(errors.Fenced):
                    await reader.get()
                with pytest.raises(errors.Fenced):
                    async with old.transaction("one") as t:
                        t.ack(message)
                async with new.transaction("two") as t:
                    await t.put("out", b"kept")
                    t.ack(await next_of(taken))
                assert (await new.describe("out")).next == 1

    run(work())


def test_deleted_source_is_opened_again(tmp_path: Path) -> None:
    """TXN-1: the next transaction succeeds."""

    async def scenario(client: Client, reader: oncecast.Subscription) -> None:
        async with client.transaction("copier") as t:
            await t.put("out", b"1")
        assert await client.close_source("copier")
        with pytest.raises(errors.Fenced, match="start the transaction again"):
            async with client.transaction("copier") as t:
                await t.put("out", b"2")
        async with client.transaction("copier") as t:
            await t.put("out", b"3")
        assert await output(client) == [b"1", b"3"]

    play(tmp_path, scenario)


def test_source_with_an_assigned_name_is_closed_with_the_client(tmp_path: Path) -> None:
    """SVC-8: a temporary client leaves no record."""

    async def work() -> None:
        async with serving(tmp_path) as node:
            async with oncecast.connect(node) as client:
                name = client.name
                async with client.transaction() as t:
                    assert t.source == f"{name}.transactions"
                    await t.put("out", b"1")
                async with client.transaction("kept") as t:
                    await t.put("out", b"2")
            async with oncecast.connect(node) as client:
                assert not await client.close_source(f"{name}.transactions")
                assert await client.close_source("kept")

    run(work())


# -- the outcome is known --


def test_cancelled_commit_still_ends(tmp_path: Path) -> None:
    """TXN-1: the message is acknowledged, and not delivered again."""

    async def scenario(client: Client, reader: oncecast.Subscription) -> None:
        async def commit() -> None:
            async with client.transaction("copier") as t:
                await t.put("out", b"1")
                t.ack(await next_of(reader))
                asyncio.current_task().cancel()  # type: ignore[union-attr]

        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(commit())
        await client.parts.transactions.finish()
        assert (await output(client), await cursor(client)) == ([b"1"], 1)
        assert (await next_of(reader)).value == b"b"

    play(tmp_path, scenario, b"a", b"b")


def test_closing_the_client_waits_for_commits(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path) as node:
            async with oncecast.connect(node) as client:
                transaction = await client.transaction("copier").__aenter__()
                await transaction.put("out", b"1")
                ending = asyncio.create_task(transaction.__aexit__(None, None, None))
                await asyncio.sleep(0)
            await ending
            async with oncecast.connect(node) as client:
                assert (await client.describe("out")).next == 1

    run(work())


Commit = Callable[..., Awaitable[object]]


def doubt(
    patch: pytest.MonkeyPatch, error: errors.OncecastError, *, committed: bool = True
) -> None:
    """Let the next commit end with `error`, before or after the node executes it."""
    real: Commit = transactions.Transaction._end

    async def end(self: transactions.Transaction, *args: object, **inputs: object) -> None:
        patch.undo()
        if committed:
            await real(self, *args, **inputs)
        raise error

    patch.setattr(transactions.Transaction, "_end", end)


async def try_to_bill(client: Client, message: oncecast.Message, why: type[Exception]) -> None:
    with pytest.raises(why):
        async with client.transaction("copier") as t:
            await t.put("out", b"bill")
            t.ack(message)


ALREADY = errors.NotAcknowledged("in", "s", 0, "it is already acknowledged")


@pytest.mark.parametrize("error", [errors.Revoked(), errors.Fenced(), ALREADY])
def test_message_of_a_commit_with_an_unknown_outcome_is_not_delivered_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: errors.OncecastError
) -> None:
    """TXN-1: the node has committed, so the reader continues after the message."""

    async def scenario(client: Client, reader: oncecast.Subscription) -> None:
        doubt(monkeypatch, error)
        await try_to_bill(client, await next_of(reader), type(error))
        assert (await next_of(reader)).offset == 1
        assert (await output(client), await cursor(client)) == ([b"bill"], 1)

    play(tmp_path, scenario, b"a", b"b")


def test_message_is_delivered_again_if_the_commit_was_not_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TXN-1"""

    async def scenario(client: Client, reader: oncecast.Subscription) -> None:
        doubt(monkeypatch, errors.Revoked(), committed=False)
        await try_to_bill(client, await next_of(reader), errors.Revoked)
        again = await next_of(reader)
        assert (again.offset, again.redelivered) == (0, True)
        async with client.transaction("copier") as t:
            t.ack(again)
        assert (await output(client), await cursor(client)) == ([], 1)

    play(tmp_path, scenario, b"a", b"b")


@pytest.mark.parametrize("committed", [False, True])
def test_reader_ends_if_the_outcome_of_its_commit_stays_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    """TXN-1: the next reader starts at the cursor."""

    async def scenario(client: Client, reader: oncecast.Subscription) -> None:
        async def refused(self: Subscriptions, topic: str, name: str) -> int:
            raise errors.Denied

        doubt(monkeypatch, errors.Revoked(), committed=committed)
        message = await next_of(reader)
        with monkeypatch.context() as patch:
            patch.setattr(Subscriptions, "cursor", refused)
            await try_to_bill(client, message, errors.Revoked)
        with pytest.raises(errors.Revoked):
            await reader.get()
        reader = await client.subscribe("in", "s", auto_ack=False)
        found = await next_of(reader)
        assert (found.offset, found.redelivered) == (committed, not committed)

    play(tmp_path, scenario, b"a", b"b")


# -- wrong use --


def test_wrong_acknowledgements_are_refused(tmp_path: Path) -> None:
    async def scenario(client: Client, reader: oncecast.Subscription) -> None:
        first, second = await next_of(reader), await next_of(reader)
        auto = await client.subscribe("auto", "s")
        await client.put("auto", b"x")
        automatic = await next_of(auto)
        stranger = msgspec.structs.replace(first, topic="nowhere")
        async with client.transaction("one") as one:
            one.ack(first)
            async with client.transaction("two") as two:
                wrong = [
                    (two, second, "in a transaction that has not ended"),
                    (one, automatic, "auto_ack=False"),
                    (one, stranger, "no open exclusive subscription of topic 'nowhere'"),
                    (one, b"bytes", "neither a message nor a job"),
                ]
                for transaction, consumed, fact in wrong:
                    with pytest.raises(errors.InvalidArgument, match=fact):
                        transaction.ack(consumed)  # type: ignore[arg-type]
            with pytest.raises(errors.InvalidArgument, match="has not ended"):
                reader.ack(second)
            with pytest.raises(errors.InvalidArgument, match="has not ended"):
                reader.nack(first)
            with pytest.raises(errors.InvalidArgument, match="no open exclusive subscription 'x'"):
                one.ack(second, subscription="x")
        with pytest.raises(errors.InvalidArgument, match="not waiting"):
            async with client.transaction("one") as one:
                one.ack(first)

    play(tmp_path, scenario, b"a", b"b")


def test_message_of_two_subscriptions_needs_a_name(tmp_path: Path) -> None:
    async def scenario(client: Client, reader: oncecast.Subscription) -> None:
        await client.subscribe("in", "second", start=oncecast.EARLIEST, auto_ack=False)
        message = await next_of(reader)
        async with client.transaction("copier") as t:
            with pytest.raises(errors.InvalidArgument, match="pass the name"):
                t.ack(message)
            t.ack(message, subscription="s")
        assert await cursor(client) == 1

    play(tmp_path, scenario, b"a")


def test_seek_during_a_transaction_aborts_it(tmp_path: Path) -> None:
    """TXN-1"""

    async def scenario(client: Client, reader: oncecast.Subscription) -> None:
        message = await next_of(reader)
        with pytest.raises(errors.NotAcknowledged, match="the subscription was moved"):
            async with client.transaction("copier") as t:
                await t.put("out", b"lost")
                t.ack(message)
                await reader.seek(oncecast.EARLIEST)
        assert await output(client) == []
        assert (await next_of(reader)).offset == 0

    play(tmp_path, scenario, b"a")


def test_limits_name_the_value_the_limit_and_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TXN-1 SVC-7"""
    monkeypatch.setattr(transactions, "TOPICS_MAX", 2)
    monkeypatch.setattr(transactions, "JOBS_MAX", 1)
    monkeypatch.setattr(transactions, "SUBSCRIPTIONS_MAX", 1)
    monkeypatch.setattr(transactions, "STAGED_MAX", 1)
    monkeypatch.setattr(transactions, "STAGE_BYTES", 100)

    async def scenario(client: Client, reader: oncecast.Subscription) -> None:
        jobs = await client.work("jobs", "w")
        await client.put_many("jobs", [b"1", b"2"])
        one, two = await jobs.get(), await jobs.get()
        assert one is not None
        assert two is not None
        async with client.transaction("copier") as t:
            for topic in ("a", "b"):
                await t.put(topic, b"")
            with pytest.raises(errors.TooMany, match=r"puts to 3 topics \(limit 2\); use several"):
                await t.put("c", b"")
            t.ack(one)
            with pytest.raises(errors.TooMany, match=r"acknowledges 2 jobs \(limit 1\)"):
                t.ack(two)
            with pytest.raises(errors.TooMany, match=r"acknowledges 2 subscriptions \(limit 1\)"):
                t.ack(await next_of(reader))
        with pytest.raises(errors.TooMany, match=r"needs 2 staged parts .* \(limit 1\)"):
            async with client.transaction("copier") as t:
                await t.put("a", bytes(200))
                await t.put("a", bytes(200))
        with pytest.raises(errors.PayloadTooLarge):
            async with client.transaction("copier") as t:
                await t.put("a", bytes(61 << 20))
        two.ack()

    play(tmp_path, scenario, b"a")


def test_wrong_names_are_refused(tmp_path: Path) -> None:
    async def scenario(client: Client, reader: oncecast.Subscription) -> None:
        with pytest.raises(errors.InvalidName, match="transaction name is empty"):
            client.transaction("")
        with pytest.raises(errors.NameInUse):
            async with client.transaction("ann") as t:
                await t.put("in", b"x")
        with pytest.raises(errors.InvalidTopic):
            async with client.transaction("x") as t:
                await t.put("", b"x")
        assert await client.parts.requests.call(do.DropStaged("x", 0, renew=True))

    play(tmp_path, scenario, b"a")


# -- without an event loop --


def test_blocking_transaction(tmp_path: Path) -> None:
    """TXN-1"""
    with blocking.embedded(tmp_path) as client:
        reader = client.subscribe("in", "s", auto_ack=False)
        jobs = client.work("jobs", "w")
        client.subscribe("out", "s")
        client.put_many("in", [b"a", b"b"])
        client.put("jobs", b"j")
        job = jobs.get()
        assert job is not None
        with pytest.raises(Oops), client.transaction("copier") as t:
            message = reader.get()
            assert message is not None
            t.put("out", b"lost")
            t.ack(message)
            raise Oops
        with client.transaction("copier") as t:
            message = reader.get()
            assert message is not None
            t.put("out", message.value, key=b"k")
            t.ack(message, subscription="s")
            t.ack(job)
        assert [(each.topic, each.offset) for each in t.ranges] == [("out", 0)]
        assert repr(t) == "<Transaction of 'copier'>"
        found = [each for page in client.scan("out") for each in page.messages()]
        assert [(each.value, each.key) for each in found] == [(b"a", b"k")]
        assert client.describe("in").subscriptions[0].cursor == 1
