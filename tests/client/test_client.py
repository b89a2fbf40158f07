"""The asynchronous client against a real node, in one process and over real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import oncecast
from oncecast import errors
from oncecast.client import putting
from oncecast.node.config import Settings
from oncecast.node.server import Server
from tests.client.rooms import run, serving


def test_what_is_put_is_got_as_it_was(tmp_path: Path) -> None:
    """SVC-1 SVC-12"""

    async def story() -> None:
        async with oncecast.embedded(tmp_path) as client:
            data = await client.subscribe("my data")
            receipt = await client.put("my data", b"v", key=b"k", headers={"h": b"x"})
            assert receipt == (0, True)
            message = await data.get()
            assert message is not None
            assert (message.topic, message.offset, message.redelivered) == ("my data", 0, False)
            assert (message.value, message.key, message.headers) == (b"v", b"k", {"h": b"x"})
            assert message.producer == client.name

    run(story())


def test_empty_topic_is_none_or_an_empty_list(tmp_path: Path) -> None:
    """SVC-4 SVC-7"""

    async def story() -> None:
        async with oncecast.embedded(tmp_path) as client:
            topic = await client.subscribe("t")
            assert await topic.get(timeout=0) is None
            assert await topic.get(timeout=0.01) is None
            assert await topic.get_many(10, timeout=0) == []
            assert await client.get("t", timeout=0) is None
            assert await client.get_many("t", 3, timeout=0.01) == []

    run(story())


def test_get_that_does_not_wait_sees_all_that_was_stored_before(tmp_path: Path) -> None:
    """SVC-4"""

    async def story() -> None:
        async with (
            serving(tmp_path) as node,
            oncecast.connect(node) as writer,
            oncecast.connect(node) as reader,
        ):
            topic = await reader.subscribe("t")
            for number in range(50):
                await writer.put("t", b"%d" % number)
                message = await topic.get(timeout=0)
                assert message is not None
                assert message.value == b"%d" % number

    run(story())


def test_waiting_subscriber_is_served_when_something_comes(tmp_path: Path) -> None:
    """SVC-4"""

    async def story() -> None:
        async with oncecast.embedded(tmp_path) as client:
            topic = await client.subscribe("t")
            waiting = asyncio.create_task(topic.get())
            await asyncio.sleep(0)
            await client.put("t", b"x")
            message = await waiting
            assert message is not None
            assert message.value == b"x"

    run(story())


def test_puts_of_one_turn_share_a_batch_and_keep_their_order(tmp_path: Path) -> None:
    """SVC-2"""

    async def story() -> None:
        async with oncecast.embedded(tmp_path) as client:
            topic = await client.subscribe("t")
            values = [b"%d" % number for number in range(500)]
            receipts = await asyncio.gather(*(client.put("t", value) for value in values))
            assert [receipt.offset for receipt in receipts] == list(range(500))
            got: list[bytes] = []
            while len(got) < 500:
                got += [message.value for message in await topic.get_many(100)]
            assert got == values

    run(story())


def test_mixed_puts_keep_their_order(tmp_path: Path) -> None:
    """SVC-1 SVC-2"""

    async def story() -> None:
        async with oncecast.embedded(tmp_path) as client:
            topic = await client.subscribe("t")
            client.put_nowait("t", b"0")
            client.put_nowait("t", b"1", key=b"k")
            client.put_nowait("t", bytearray(b"2"))  # type: ignore[arg-type]
            client.put_nowait("t", b"3", headers={"h": b"v"})
            client.put_nowait("t", b"4")
            receipt = await client.put_many("t", [b"5", b"6", b"7"])
            assert receipt == (7, True)
            messages = await topic.get_many(100)
            assert [message.value for message in messages] == [b"%d" % each for each in range(8)]
            assert [message.key for message in messages[:3]] == [None, b"k", None]

    run(story())


def test_many_large_puts_are_cut_into_batches(tmp_path: Path) -> None:
    """SVC-2 SVC-3"""

    async def story() -> None:
        values = [bytes([each % 256]) * 100_000 for each in range(300)]
        async with oncecast.embedded(tmp_path) as client:
            topic = await client.subscribe("t")
            await client.put_many("t", values)
            got: list[bytes] = []
            async for message in topic:
                got.append(message.value)
                if len(got) == len(values):
                    break
            assert got == values

    run(story())


def test_next_get_acknowledges_what_was_got_before(tmp_path: Path) -> None:
    """SVC-3"""

    async def story() -> None:
        async with oncecast.embedded(tmp_path) as client:
            topic = await client.subscribe("t", "s")
            await client.put_many("t", [b"a", b"b", b"c"])
            await topic.get()
            await topic.get()
            await topic.flush()
            (view,) = (await client.describe("t")).subscriptions
            assert (view.name, view.cursor, view.lag) == ("s", 1, 2)

    run(story())


def test_explicit_acks_only(tmp_path: Path) -> None:
    """SVC-3"""

    async def story() -> None:
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

    run(story())


def test_nack_acknowledges_nothing_and_what_was_handed_out_stays_marked(tmp_path: Path) -> None:
    """SVC-3, SVC-4: what lies before a nack is no more acknowledged than it was."""

    async def story() -> None:
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

    asyncio.run(story())


def test_nack_hands_out_again_from_there(tmp_path: Path) -> None:
    """SVC-3"""

    async def story() -> None:
        async with oncecast.embedded(tmp_path) as client:
            topic = await client.subscribe("t", auto_ack=False)
            await client.put_many("t", [b"a", b"b", b"c", b"d"])
            messages = await topic.get_many(3)
            topic.nack(messages[1])
            again = [await topic.get() for _ in range(3)]
            told = [(each.value, each.redelivered) for each in again if each is not None]
            assert told == [(b"b", True), (b"c", True), (b"d", False)]
            topic.ack(messages[0])
            with pytest.raises(errors.InvalidArgument):
                topic.nack(messages[0])

    run(story())


def test_seek_by_offset_to_the_earliest_and_to_what_is_new(tmp_path: Path) -> None:
    """SVC-1"""

    async def story() -> None:
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

    run(story())


def test_somebody_else_may_move_a_subscription_that_is_read(tmp_path: Path) -> None:
    """SVC-3"""

    async def story() -> None:
        async with serving(tmp_path) as node, oncecast.connect(node) as client:
            await client.create_topic("t", oncecast.Policy(keep_all=True))
            topic = await client.subscribe("t", "s")
            await client.put_many("t", [b"0", b"1", b"2"])
            assert len(await topic.get_many(3)) == 3
            async with oncecast.connect(node) as operator:
                assert await operator.seek("t", "s", oncecast.from_offset(1)) == 1
            offsets = [message.offset for message in await topic.get_many(3)]
            assert offsets == [1, 2]

    run(story())


def test_subscription_outlives_its_reader_and_says_what_may_have_been_seen(tmp_path: Path) -> None:
    """SVC-4 SVC-11"""

    async def story() -> None:
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
                told = [(each.offset, each.redelivered) for each in messages if each is not None]
                assert told == [(1, True), (2, False), (3, False)]
            async with oncecast.connect(node, name="me") as client:
                assert await client.get("t", timeout=0) is None

    run(story())


def test_error_in_the_loop_leaves_the_last_message_unacknowledged(tmp_path: Path) -> None:
    """SVC-3"""

    async def story() -> None:
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

    run(story())


def test_client_without_a_name_leaves_nothing_behind(tmp_path: Path) -> None:
    """SVC-8 SVC-9"""

    async def story() -> None:
        async with serving(tmp_path) as node, oncecast.connect(node) as observer:
            async with oncecast.connect(node) as client:
                await client.subscribe("t")
                await client.put("t", b"0")
                assert [view.name async for view in observer.topics()] == ["t"]
                assert client.name != observer.name
            assert [view.name async for view in observer.topics()] == []

    run(story())


def test_repeated_subscribe_and_unsubscribe_change_nothing(tmp_path: Path) -> None:
    """SVC-5 SVC-6"""

    async def story() -> None:
        async with oncecast.embedded(tmp_path) as client:
            topic = await client.subscribe("t", "s")
            assert await client.subscribe("t", "s") is topic
            await client.put("t", b"0")
            assert await client.unsubscribe("t", "s")
            assert not await client.unsubscribe("t", "s")
            with pytest.raises(errors.OncecastError):
                await topic.get(timeout=0)
            with pytest.raises(errors.NotSubscribed):
                await client.read("t", "s")
            fresh = await client.subscribe("t", "s")
            assert await fresh.get(timeout=0) is None

    run(story())


def test_receipt_says_if_anybody_can_ever_get_it(tmp_path: Path) -> None:
    """SVC-5"""

    async def story() -> None:
        async with oncecast.embedded(tmp_path) as client:
            assert await client.put("nobody", b"0") == (0, False)
            await client.subscribe("nobody")
            assert await client.put("nobody", b"1") == (1, True)

    run(story())


def test_topics_are_created_described_listed_and_deleted(tmp_path: Path) -> None:
    """SVC-1"""

    async def story() -> None:
        async with oncecast.embedded(tmp_path) as client:
            assert await client.create_topic("b/1", oncecast.Policy(keep_all=True))
            assert not await client.create_topic("b/1", oncecast.Policy(keep_all=True))
            assert await client.create_topic("a")
            await client.set_policy("a", oncecast.Policy(bytes_max=10))
            assert (await client.describe("a")).policy.bytes_max == 10
            assert [view.name async for view in client.topics()] == ["a", "b/1"]
            assert [view.name async for view in client.topics("b")] == ["b/1"]
            assert await client.delete_topic("a")
            assert not await client.delete_topic("a")
            assert (await client.ping()).version == oncecast.__version__

    run(story())


async def seek_far(client: oncecast.Client) -> None:
    topic = await client.subscribe("far")
    await topic.seek(oncecast.from_offset(2**70))


async def seek_by_name(client: oncecast.Client) -> None:
    topic = await client.subscribe("far")
    await topic.seek("earliest")  # type: ignore[arg-type]


REFUSED: dict[str, tuple[type[errors.OncecastError], Any]] = {
    "empty topic": (errors.InvalidTopic, lambda client: client.put("", b"x")),
    "long topic": (errors.InvalidTopic, lambda client: client.put("x" * 256, b"x")),
    "topic that is no text": (errors.InvalidTopic, lambda client: client.subscribe("\ud800")),
    "empty subscription": (errors.InvalidName, lambda client: client.subscribe("t", "")),
    "large message": (
        errors.PayloadTooLarge,
        lambda client: client.put("t", bytes(putting.PAYLOAD_BYTES_MAX + 1)),
    ),
    "large key": (errors.PayloadTooLarge, lambda client: client.put("t", b"x", key=bytes(70_000))),
    "unknown topic": (errors.NoSuchTopic, lambda client: client.describe("nowhere")),
    "topic that is read and not there": (errors.NoSuchTopic, lambda client: client.get("nowhere")),
    "policy of another kind": (
        errors.InvalidArgument,
        lambda client: client.create_topic("t", oncecast.Policy(drop_unread=True)),
    ),
    "prefix that is no text": (
        errors.InvalidArgument,
        lambda client: anext(client.topics("\ud800")),
    ),
    "offset that is no offset": (
        errors.InvalidArgument,
        lambda client: client.subscribe("t", start=oncecast.from_offset(2**70)),
    ),
    "time that will never come": (
        errors.InvalidArgument,
        lambda client: client.seek("t", "s", oncecast.from_time(1e30)),
    ),
    "offset to go to that is no offset": (errors.InvalidArgument, seek_far),
    "place of one's own that is no offset": (
        errors.InvalidArgument,
        lambda client: client.subscribe("t", "s", start_at=2**70),
    ),
    "place that is no place": (errors.InvalidArgument, seek_by_name),
    "place of one's own that is no number": (
        errors.InvalidArgument,
        lambda client: client.subscribe("t", "s", start_at="5"),
    ),
    "place of one's own before the first": (
        errors.InvalidArgument,
        lambda client: client.subscribe("t", "s", start_at=-3),
    ),
    "time in microseconds": (
        errors.InvalidArgument,
        lambda client: client.seek("t", "s", oncecast.from_time(1_700_000_000_000_000)),
    ),
    "time that is no number": (
        errors.InvalidArgument,
        lambda client: client.seek("t", "s", oncecast.from_time("now")),  # type: ignore[arg-type]
    ),
    "age that is no number of microseconds": (
        errors.InvalidArgument,
        lambda client: client.create_topic("t", oncecast.Policy(age_us=1.5)),  # type: ignore[arg-type]
    ),
    "no topic": (errors.InvalidTopic, lambda client: client.put(None, b"x")),
    "topic of bytes": (errors.InvalidTopic, lambda client: client.subscribe(b"t")),
    "subscription that is a number": (errors.InvalidName, lambda client: client.read("t", 5)),
    "offset that is not there": (
        errors.OutOfRange,
        lambda client: client.subscribe("t", "s", start_at=7),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_a_clear_error_and_the_client_goes_on(case: str, tmp_path: Path) -> None:
    """SVC-7"""
    kind, ask = REFUSED[case]

    async def story() -> None:
        async with oncecast.embedded(tmp_path) as client:
            with pytest.raises(kind) as caught:
                await ask(client)
            assert caught.value.code in kind.code
            topic = await client.subscribe("fine")
            await client.put("fine", b"x")
            assert await topic.get() is not None

    run(story())


def test_put_nowait_refuses_what_is_no_message(tmp_path: Path) -> None:
    """SVC-7"""

    async def story() -> None:
        async with oncecast.embedded(tmp_path) as client:
            with pytest.raises(TypeError):
                client.put_nowait("t", "text")  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="headers"):
                client.put_nowait("t", b"x", None, [("h", b"v")])  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="header name"):
                client.put_nowait("t", b"x", None, {1: b"v"})  # type: ignore[dict-item]
            with pytest.raises(errors.PayloadTooLarge):
                client.put_nowait("t", bytes(putting.PAYLOAD_BYTES_MAX + 1))
            with pytest.raises(errors.InvalidTopic):
                client.put_nowait("", b"x")
            client.put_nowait("t", b"x")
            await client.flush()
            assert (await client.describe("t")).next == 1

    run(story())


def test_full_buffer_refuses_put_nowait_and_lets_put_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SVC-7"""
    monkeypatch.setattr(putting, "BUFFER_BYTES", 1000)

    async def story() -> None:
        async with oncecast.embedded(tmp_path) as client:
            topic = await client.subscribe("t")
            client.put_nowait("t", bytes(putting.CUT_BYTES))
            with pytest.raises(errors.Overloaded):
                client.put_nowait("t", b"x")
            await client.put("t", b"y")
            await client.flush()
            assert len(await topic.get_many(10)) >= 1
            assert (await client.describe("t")).next == 2

    run(story())


def test_two_clients_with_one_name_the_older_is_told(tmp_path: Path) -> None:
    """SVC-8"""

    async def story() -> None:
        async with serving(tmp_path) as node, oncecast.connect(node, name="me") as older:
            topic = await older.subscribe("t")
            await older.put("t", b"0")
            waiting = asyncio.create_task(topic.get_many(10))
            assert len(await waiting) == 1
            waiting = asyncio.create_task(topic.get_many(10))
            async with oncecast.connect(node, name="me") as newer:
                with pytest.raises(errors.Fenced):
                    await waiting
                with pytest.raises(errors.Fenced):
                    await older.put("t", b"1")
                assert (await newer.put("t", b"2")).offset == 1
                message = await newer.get("t")
                assert message is not None
                assert (message.offset, message.redelivered) == (0, True)

    run(story())


def test_fenced_client_does_not_come_back_and_take_its_name(tmp_path: Path) -> None:
    """SVC-8"""

    async def story() -> None:
        settings = Settings(data=str(tmp_path), listen="127.0.0.1:0")
        async with Server(settings) as server, oncecast.connect(server.me, name="me") as older:
            topic = await older.subscribe("t")
            async with oncecast.connect(server.me, name="me") as newer:
                with pytest.raises(errors.Fenced):
                    await topic.get()
                older._runtime._transport.watch(server.me)
                for number in range(10):
                    assert (await newer.put("t", b"x")).offset == number
            assert server.runtime.stats.accepted == 2

    run(story())


def test_one_subscription_read_by_two_clients_the_older_is_told(tmp_path: Path) -> None:
    """SVC-8"""

    async def story() -> None:
        async with (
            serving(tmp_path) as node,
            oncecast.connect(node) as older,
            oncecast.connect(node) as newer,
        ):
            old = await older.subscribe("t", "s")
            waiting = asyncio.create_task(old.get())
            new = await newer.subscribe("t", "s")
            with pytest.raises(errors.Fenced):
                await waiting
            await newer.put("t", b"0")
            assert await new.get() is not None

    run(story())


def test_empty_name_is_no_name() -> None:
    """SVC-7 SVC-8: whoever wants none gives none."""
    for name in ("", "x" * 256):
        with pytest.raises(errors.InvalidName, match="client"):
            oncecast.connect(name=name)


def test_nobody_there_is_said_so(tmp_path: Path) -> None:
    """SVC-7"""

    async def story() -> None:
        async with serving(tmp_path) as node:
            pass
        with pytest.raises(errors.NotConnected, match=node):
            async with oncecast.connect(node, connect_timeout=0.01):
                pass

    run(story())


def test_client_of_another_cluster_is_refused(tmp_path: Path) -> None:
    """SVC-7"""

    async def story() -> None:
        async with serving(tmp_path) as node:
            with pytest.raises(errors.NotConnected, match="cluster 'other'"):
                async with oncecast.connect(node, cluster="other"):
                    pass

    run(story())


def test_closed_client_says_so(tmp_path: Path) -> None:
    """SVC-7"""

    async def story() -> None:
        client = oncecast.connect()
        with pytest.raises(errors.Closed):
            await client.put("t", b"x")
        with pytest.raises(errors.Closed):
            client.put_nowait("t", b"x")
        async with serving(tmp_path) as node, oncecast.connect(node) as client:
            topic = await client.subscribe("t")
        for ask in (client.put("t", b"x"), client.flush(), topic.get(), client.ping()):
            with pytest.raises(errors.Closed):
                await ask

    run(story())


def test_messages_that_went_unread_are_reported_once(tmp_path: Path) -> None:
    """SVC-9"""

    async def story() -> None:
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

    run(story())
