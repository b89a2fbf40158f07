"""Acks, nacks and seeks decide which messages are delivered again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import oncecast
from oncecast import blocking, errors
from oncecast.client.client import Client
from oncecast.client.session.local import NEVER
from oncecast.client.subscription import Subscription
from oncecast.wire.commands import Subscribe
from tests.client.serving import run, serving
from tests.live.replicas import until


def test_next_get_acknowledges_earlier_messages(tmp_path: Path) -> None:
    """SVC-3"""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            topic = await client.subscribe("t", "s")
            await client.put_many("t", [b"a", b"b", b"c"])
            await topic.get()
            await topic.get()
            await topic.flush()
            (view,) = (await client.describe("t")).subscriptions
            assert (view.name, view.cursor, view.lag) == ("s", 1, 2)

    run(scenario())


def test_only_explicit_acks_move_the_cursor_without_auto_ack(tmp_path: Path) -> None:
    """SVC-3"""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            topic = await client.subscribe("t", "s", auto_ack=False)
            await client.put_many("t", [b"a", b"b", b"c"])
            first, _, third = await topic.get_many(3)
            await topic.flush()
            assert (await client.describe("t")).subscriptions[0].cursor == 0
            topic.ack(first)
            await topic.flush()
            assert (await client.describe("t")).subscriptions[0].cursor == 1
            await topic.close()
            again = await client.read("t", "s", auto_ack=False)
            message = await again.get()
            assert message is not None
            assert (message.offset, message.redelivered) == (1, True)
            with pytest.raises(errors.InvalidArgument):
                again.ack(third)

    run(scenario())


def test_nack_acknowledges_nothing_and_marks_redelivered_messages(tmp_path: Path) -> None:
    """SVC-3, SVC-4: a nack does not acknowledge earlier messages."""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            topic = await client.subscribe("t", "s", auto_ack=False)
            await client.put_many("t", [b"%d" % number for number in range(5)])
            messages: list[oncecast.Message] = []
            while len(messages) < 5:
                messages += await topic.get_many(5, timeout=10)
            topic.nack(messages[3])
            again = await topic.get(timeout=10)
            assert again is not None
            assert (again.offset, again.redelivered) == (3, True)
            await topic.close(ack=False)

            topic = await client.read("t", "s", auto_ack=False)
            messages = []
            while len(messages) < 5:
                messages += await topic.get_many(5, timeout=10)
            assert [message.offset for message in messages] == [0, 1, 2, 3, 4]
            assert all(message.redelivered for message in messages)

    asyncio.run(scenario())


def test_nack_redelivers_from_the_given_message(tmp_path: Path) -> None:
    """SVC-3"""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            topic = await client.subscribe("t", auto_ack=False)
            await client.put_many("t", [b"a", b"b", b"c", b"d"])
            messages = await topic.get_many(3)
            topic.nack(messages[1])
            again = [await topic.get() for _ in range(3)]
            reported = [(each.value, each.redelivered) for each in again if each is not None]
            assert reported == [(b"b", True), (b"c", True), (b"d", False)]
            topic.ack(messages[0])
            with pytest.raises(errors.InvalidArgument, match="call nack"):
                topic.nack(messages[0])

    run(scenario())


def test_nack_wakes_a_waiting_get(tmp_path: Path) -> None:
    """SVC-3: the application prefetches and acknowledges explicitly."""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            topic = await client.subscribe("t", auto_ack=False)
            await client.put_many("t", [b"a", b"b"])
            messages = [await topic.get(timeout=10), await topic.get(timeout=10)]
            for message in reversed(messages):
                assert message is not None
                waiting = asyncio.create_task(topic.get(timeout=10))
                await client.ping()
                topic.nack(message)
                again = await waiting
                assert again is not None
                assert (again.offset, again.redelivered) == (message.offset, True)

    run(scenario())


def test_late_nack_raises_an_error_with_a_remedy(tmp_path: Path) -> None:
    """SVC-3 SVC-7: the next get acknowledges the message, even if no other message arrives."""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            topic = await client.subscribe("t")
            await client.put("t", b"a")
            message = await topic.get(timeout=10)
            assert message is not None
            waiting = asyncio.create_task(topic.get(timeout=10))
            await client.ping()
            with pytest.raises(errors.InvalidArgument, match="subscribe with auto_ack=False"):
                topic.nack(message)
            await client.put("t", b"b")
            after = await waiting
            assert after is not None
            topic.nack(after)  # no later get acknowledged it
            with pytest.raises(errors.InvalidArgument, match="not been delivered yet"):
                topic.nack(after)

    run(scenario())


def test_seek_accepts_an_offset_a_time_earliest_and_new(tmp_path: Path) -> None:
    """SVC-1"""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            await client.create_topic("t", oncecast.Policy(keep_all=True))
            topic = await client.subscribe("t")
            await client.put_many("t", [b"0", b"1", b"2", b"3"])
            assert len(await topic.get_many(4)) == 4
            for start, first in (
                (oncecast.from_offset(2), 2),
                (oncecast.EARLIEST, 0),
                (oncecast.from_time(0), 0),
            ):
                await topic.seek(start)
                message = await topic.get()
                assert message is not None
                assert message.offset == first
            await topic.seek(oncecast.NEW)
            assert await topic.get(timeout=0) is None
            assert (await client.put("t", b"4")).offset == 4
            message = await topic.get()
            assert message is not None
            assert message.offset == 4

    run(scenario())


def test_another_client_can_seek_a_subscription_in_use(tmp_path: Path) -> None:
    """SVC-3"""

    async def scenario() -> None:
        async with serving(tmp_path) as node, oncecast.connect(node) as client:
            await client.create_topic("t", oncecast.Policy(keep_all=True))
            topic = await client.subscribe("t", "s")
            await client.put_many("t", [b"0", b"1", b"2"])
            assert len(await topic.get_many(3)) == 3
            async with oncecast.connect(node) as operator:
                assert await operator.seek("t", "s", oncecast.from_offset(1)) == 1
            offsets = [message.offset for message in await topic.get_many(3)]
            assert offsets == [1, 2]

    run(scenario())


def test_next_reader_sees_which_messages_are_redelivered(tmp_path: Path) -> None:
    """SVC-4 SVC-11"""

    async def scenario() -> None:
        async with serving(tmp_path) as node:
            async with oncecast.connect(node, name="me") as client:
                topic = await client.subscribe("t")
                await client.put_many("t", [b"0", b"1", b"2"])
                await topic.get()
                await topic.get()
                await topic.close(ack=False)
            async with oncecast.connect(node, name="me") as client:
                await client.put("t", b"3")
                messages = [await client.get("t") for _ in range(3)]
                reported = [
                    (each.offset, each.redelivered) for each in messages if each is not None
                ]
                assert reported == [(1, True), (2, False), (3, False)]
            async with oncecast.connect(node, name="me") as client:
                assert await client.get("t", timeout=0) is None

    run(scenario())


def test_error_in_the_application_leaves_the_last_message_unacknowledged(tmp_path: Path) -> None:
    """SVC-3"""

    async def scenario() -> None:
        async with serving(tmp_path) as node:
            with pytest.raises(KeyError):
                async with oncecast.connect(node, name="me") as client:
                    topic = await client.subscribe("t")
                    await client.put("t", b"0")
                    await topic.get()
                    raise KeyError
            async with oncecast.connect(node, name="me") as client:
                message = await client.get("t")
                assert message is not None
                assert (message.value, message.redelivered) == (b"0", True)

    run(scenario())


def test_dropped_unread_messages_are_reported_once(tmp_path: Path) -> None:
    """SVC-9"""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            await client.create_topic("t", oncecast.Policy(bytes_max=1000, drop_unread=True))
            topic = await client.subscribe("t", "s")
            await topic.close()
            for number in range(10):
                await client.put("t", b"%d" % number + bytes(300))
            topic = await client.read("t", "s")
            with pytest.raises(errors.MessagesLost) as caught:
                await topic.get()
            assert caught.value.first == 0
            message = await topic.get()
            assert message is not None
            assert message.offset == caught.value.next > 0

    run(scenario())


# Asking for the next message

Handled = asyncio.Queue[bytes]


async def lag(client: Client) -> int:
    return (await client.describe("t")).subscriptions[0].lag


async def ask_by_iterating(topic: Subscription, handled: Handled) -> None:
    async for message in topic:
        handled.put_nowait(message.value)


async def ask_by_get(topic: Subscription, handled: Handled) -> None:
    while message := await topic.get():
        handled.put_nowait(message.value)


async def ask_by_get_with_a_timeout(topic: Subscription, handled: Handled) -> None:
    while True:
        message = await topic.get(timeout=60)
        if message is not None:
            handled.put_nowait(message.value)


async def ask_by_get_many(topic: Subscription, handled: Handled) -> None:
    while True:
        for message in await topic.get_many(2):
            handled.put_nowait(message.value)


@pytest.mark.parametrize(
    "consume", [ask_by_iterating, ask_by_get, ask_by_get_with_a_timeout, ask_by_get_many]
)
def test_idle_consumer_has_no_lag(
    consume: Callable[[Subscription, Handled], Awaitable[None]], tmp_path: Path
) -> None:
    """SVC-3: a consumer that asks for the next message has finished the last one."""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            topic = await client.subscribe("t", "s")
            await client.put_many("t", [b"a", b"b", b"c"])
            handled = Handled()
            consumer = asyncio.ensure_future(consume(topic, handled))
            assert [await handled.get() for _ in range(3)] == [b"a", b"b", b"c"]
            while await lag(client):
                pass
            consumer.cancel()

    run(scenario())


def test_idle_blocking_consumer_has_no_lag(tmp_path: Path) -> None:
    """SVC-3"""
    with blocking.embedded(tmp_path) as client:
        topic = client.subscribe("t", "s")
        client.put_many("t", [b"a", b"b"])

        def consume() -> None:
            with pytest.raises(errors.Closed):
                for _ in topic:
                    pass

        consumer = threading.Thread(target=consume)
        consumer.start()
        until("lag 0", lambda: None if client.describe("t").subscriptions[0].lag else True)
        topic.close()
        consumer.join()


def test_empty_get_acknowledges_earlier_messages(tmp_path: Path) -> None:
    """SVC-3: this holds even if the get does not wait."""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            topic = await client.subscribe("t", "s")
            await client.put("t", b"a")
            assert await topic.get() is not None
            assert await topic.get(timeout=0) is None
            await topic.flush()
            assert await lag(client) == 0
            await client.put("t", b"b")
            assert len(await topic.get_many(1)) == 1
            assert await topic.get_many(1, timeout=0) == []
            await topic.flush()
            assert await lag(client) == 0

    run(scenario())


def test_message_being_processed_is_not_acknowledged(tmp_path: Path) -> None:
    """SVC-3: processing may take hours and still fail."""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            topic = await client.subscribe("t", "s")
            await client.put_many("t", [b"%d" % number for number in range(8)])
            while topic._slow == NEVER:  # until get uses the fast path
                assert await topic.get() is not None
            while topic._inbox.delivered < 8:
                assert await topic.get() is not None
            assert await topic.get(timeout=0) is None
            await client.put_many("t", [b"%d" % number for number in range(8)])
            while topic._inbox.end < 16:
                await client.ping()
            for taken in range(1, 8):
                assert await topic.get() is not None
                assert topic._inbox.ack == 8 + taken - 1
            await topic.flush()
            assert await lag(client) == 2

    run(scenario())


def test_idle_consumer_has_no_lag_after_it_is_cancelled(tmp_path: Path) -> None:
    """SVC-3: the consumer was waiting, so it had finished all delivered messages."""

    async def scenario() -> None:
        async with serving(tmp_path) as node:

            async def consume(handled: Handled) -> None:
                async with oncecast.connect(node, name="me") as client:
                    await ask_by_iterating(await client.subscribe("t"), handled)

            async with oncecast.connect(node) as writer:
                await writer.parts.requests.call(Subscribe("t", "me", oncecast.NEW, 0))
                await writer.put_many("t", [b"a", b"b"])
                handled = Handled()
                consumer = asyncio.create_task(consume(handled))
                assert [await handled.get() for _ in range(2)] == [b"a", b"b"]
                consumer.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await consumer
                assert await lag(writer) == 0

    run(scenario())
