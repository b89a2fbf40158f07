"""Members of a consumer group share the partitions of a topic (PART-2)."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import oncecast
from oncecast import EARLIEST, NEW, Policy, Subscription, from_offset
from oncecast.client import group as module
from oncecast.client.group import GroupSubscription
from oncecast.errors import (
    Closed,
    InvalidArgument,
    NoSuchTopic,
    NotAssigned,
    NotSubscribed,
    Partitioned,
)
from oncecast.wire.partitions import LeaveGroup
from tests.client.serving import run, serving

KEEP = Policy(keep_all=True)
KEYS = [b"key-%d" % number for number in range(12)]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let members notice changes quickly."""
    monkeypatch.setattr(module, "LIFETIME", 1.5)


async def put(client: oncecast.Client, count: int, first: int = 0) -> None:
    numbers = range(first, first + count)
    await asyncio.gather(*[client.put("t", b"%d" % at, KEYS[at % 12]) for at in numbers])


async def joined(client: oncecast.Client, **options: Any) -> GroupSubscription:
    found = await client.subscribe("t", "g", start=EARLIEST, **options)
    assert isinstance(found, GroupSubscription)
    return found


async def values(member: Subscription, count: int) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    for _ in range(count):
        message = await member.get()
        assert message is not None
        found[message.value] += 1
    return found


async def until_shared(*members: GroupSubscription, partitions: int) -> None:
    """Wait until the members read all partitions, in equal numbers."""
    while True:
        counts = [len(each.partitions) for each in members]
        if sum(counts) == partitions and max(counts) - min(counts) <= 1:
            return
        for each in members:
            await each.get(0.05)


@pytest.mark.long
def test_only_member_gets_all_messages_in_the_order_of_their_keys(tmp_path: Path) -> None:
    """PART-2"""

    async def main() -> None:
        async with serving(tmp_path) as node, oncecast.connect(node, name="ann") as client:
            await client.create_topic("t", KEEP, partitions=4)
            await put(client, 300)
            member = await joined(client)
            assert member is await joined(client)
            assert member.partitions == (0, 1, 2, 3)
            last: dict[bytes | None, int] = {}
            seen: Counter[bytes] = Counter()
            while sum(seen.values()) < 300:
                for message in await member.get_many(7):
                    assert (message.topic, message.partition >= 0) == ("t", True)
                    assert last.get(message.key, -1) < int(message.value)
                    last[message.key] = int(message.value)
                    seen[message.value] += 1
            assert set(seen.values()) == {1}
            assert await member.get(0) is None
            await member.flush()
            view = await client.describe("t")
            assert [(each.name, each.lag) for each in view.subscriptions] == [("g", 0)]

    run(main())


@pytest.mark.long
def test_members_share_the_partitions_and_get_each_message_once(tmp_path: Path) -> None:
    """PART-2: one member joins and one leaves while messages arrive."""

    async def main() -> None:
        async with (
            serving(tmp_path) as node,
            oncecast.connect(node, name="ann") as ann,
            oncecast.connect(node, name="bob") as bob,
        ):
            await ann.create_topic("t", KEEP, partitions=4)
            first = await joined(ann)
            seen: Counter[bytes] = Counter()

            async def read(member: GroupSubscription) -> None:
                async for message in member:
                    seen[message.value] += 1

            reading = asyncio.ensure_future(read(first))
            await put(ann, 200)
            second = await joined(bob)
            more = asyncio.ensure_future(read(second))
            await put(ann, 200, 200)
            while (len(first.partitions), len(second.partitions)) != (2, 2):
                await asyncio.wait([reading, more], timeout=0.02)
            await put(ann, 200, 400)
            while len(seen) < 600:
                await asyncio.wait([reading, more], timeout=0.02)
            reading.cancel()
            await asyncio.wait([reading])
            await first.close()
            await put(ann, 200, 600)
            while len(seen) < 800:
                await asyncio.wait([reading, more], timeout=0.02)
            assert second.partitions == (0, 1, 2, 3)
            more.cancel()
            await asyncio.wait([more])
            assert set(seen.values()) == {1}

    run(main())


@pytest.mark.long
def test_new_partitions_are_picked_up(tmp_path: Path) -> None:
    """PART-1 PART-2"""

    async def main() -> None:
        async with serving(tmp_path) as node, oncecast.connect(node, name="ann") as client:
            await client.create_topic("t", partitions=1)
            member = await joined(client)
            await put(client, 20)
            await client.set_partitions("t", 3)
            await until_shared(member, partitions=3)
            async with oncecast.connect(node) as other:
                await put(other, 40, 20)
            view = await client.describe("t")
            while view.subscriptions[0].lag:
                await member.get(0.1)
                await member.flush()
                view = await client.describe("t")
            assert view.next == 60
            assert member.partitions == (0, 1, 2)

    run(main())


@pytest.mark.long
def test_messages_of_a_dead_member_go_to_another_one(tmp_path: Path) -> None:
    """PART-2: and the late member cannot acknowledge them any more."""

    async def main() -> None:
        async with (
            serving(tmp_path) as node,
            oncecast.connect(node, name="ann") as ann,
            oncecast.connect(node, name="bob") as bob,
        ):
            await ann.create_topic("t", KEEP, partitions=2)
            await put(ann, 20)
            late = await joined(ann, auto_ack=False)
            held = [await late.get() for _ in range(5)]
            assert late._enlisting is not None
            late._enlisting.cancel()  # the process is stopped, but not dead
            member = await joined(bob)
            assert set((await values(member, 20)).values()) == {1}
            assert member.partitions == (0, 1)
            assert held[0] is not None
            assert await late.get(0.05) is None
            with pytest.raises(NotAssigned):
                while True:
                    late.ack(held[0])
                    await late._enlist()

    run(main())


@pytest.mark.long
def test_acknowledged_messages_are_not_delivered_again(tmp_path: Path) -> None:
    """PART-2: without auto_ack, a partition moves when all its messages are acknowledged."""

    async def main() -> None:
        async with (
            serving(tmp_path) as node,
            oncecast.connect(node, name="ann") as ann,
            oncecast.connect(node, name="bob") as bob,
        ):
            await ann.create_topic("t", KEEP, partitions=2)
            await put(ann, 30)
            first = await joined(ann, auto_ack=False)
            taken = [await first.get() for _ in range(30)]
            assert await first.get(0) is None
            second = await joined(bob)
            assert second.partitions == ()
            assert await second.get(0.5) is None
            for message in taken:
                assert message is not None
                first.ack(message)
            while len(second.partitions) < 1:
                assert await second.get(0.02) is None
            assert await second.get(0) is None

    run(main())


@pytest.mark.long
def test_group_is_removed_with_its_subscriptions(tmp_path: Path) -> None:
    """PART-2"""

    async def main() -> None:
        async with serving(tmp_path) as node, oncecast.connect(node, name="ann") as client:
            await client.create_topic("t", KEEP, partitions=2)
            created = await client.create_subscription("t", "g", start=EARLIEST)
            assert created == (0, True)
            assert await client.create_subscription("t", "g") == (0, False)
            member = await client.read("t", "g")
            assert await client.unsubscribe("t", "g")
            assert not await client.unsubscribe("t", "g")
            with pytest.raises(Closed):
                await member.get(0)
            with pytest.raises(NotSubscribed):
                await client.read("t", "g")
            for view in await client.partitions("t"):
                assert view.subscriptions == ()

    run(main())


@pytest.mark.long
def test_group_seeks_in_all_partitions(tmp_path: Path) -> None:
    """PART-2"""

    async def main() -> None:
        async with serving(tmp_path) as node, oncecast.connect(node, name="ann") as client:
            await client.create_topic("t", KEEP, partitions=2)
            await put(client, 10)
            assert await client.hold("t", "g", NEW) == 10
            assert await client.seek("t", "g", EARLIEST) == 0
            member = await client.read("t", "g")
            assert len(await values(member, 10)) == 10
            await member.seek(EARLIEST)
            assert len(await values(member, 10)) == 10
            with pytest.raises(InvalidArgument, match="no meaning"):
                await client.seek("t", "g", from_offset(1))
            with pytest.raises(InvalidArgument, match="t#0"):
                await client.read("t", "h", start_at=1)
            with pytest.raises(InvalidArgument, match="t#0"):
                await client.read("t", "h", push=True)

    run(main())


@pytest.mark.long
def test_temporary_group_ends_with_its_client(tmp_path: Path) -> None:
    """PART-2"""

    async def main() -> None:
        async with serving(tmp_path) as node, oncecast.connect(node, name="ann") as client:
            await client.create_topic("t", partitions=2)
            async with oncecast.connect(node) as guest:
                await guest.subscribe("t")
                await client.put("t", b"x", b"tea")
                message = await guest.get("t")
                assert message is not None
                assert message.value == b"x"
            assert (await client.describe("t")).subscriptions == ()

    run(main())


@pytest.mark.long
def test_member_of_a_deleted_topic_gets_an_error(tmp_path: Path) -> None:
    """PART-2"""

    async def main() -> None:
        async with serving(tmp_path) as node, oncecast.connect(node, name="ann") as client:
            await client.create_topic("t", partitions=2)
            member = await joined(client)
            await client.delete_topic("t")
            with pytest.raises((NoSuchTopic, NotSubscribed)):
                while True:
                    await member.get(0.2)

    run(main())


@pytest.mark.long
def test_member_that_the_group_dropped_reads_again_under_new_terms(tmp_path: Path) -> None:
    """PART-2"""

    async def main() -> None:
        async with serving(tmp_path) as node, oncecast.connect(node, name="ann") as client:
            await client.create_topic("t", partitions=2)
            member = await joined(client)
            await client.parts.requests.call(LeaveGroup("t", "g", member.member, 0))
            await client.put("t", b"x", b"tea")
            message = await member.get()
            assert message is not None
            assert message.value == b"x"
            terms = dict(member._membership.terms)
            while member._membership.terms == terms or len(member.partitions) < 2:
                await member.get(0.05)

    run(main())


@pytest.mark.long
def test_blocking_client_reads_as_a_member(tmp_path: Path) -> None:
    """PART-2"""
    with oncecast.blocking.embedded(tmp_path) as client:
        client.create_topic("t", partitions=3)
        member = client.subscribe("t", "g")
        for number in range(30):
            client.put_nowait("t", b"%d" % number, KEYS[number % 12])
        client.flush()
        found: list[int] = []
        while len(found) < 30:
            message = member.get(5)
            assert message is not None
            found.append(int(message.value))
        assert sorted(found) == list(range(30))
        member.close()


@pytest.mark.long
def test_transaction_acknowledges_messages_of_a_group(tmp_path: Path) -> None:
    """PART-2: and puts to a partition by its name."""

    async def main() -> None:
        async with serving(tmp_path) as node, oncecast.connect(node, name="ann") as client:
            await client.create_topic("t", KEEP, partitions=2)
            await put(client, 10)
            member = await joined(client, auto_ack=False)
            for _ in range(10):
                message = await member.get()
                assert message is not None
                async with client.transaction() as transaction:
                    transaction.ack(message)
                    await transaction.put("out", message.value)
            assert (await client.describe("t")).subscriptions[0].lag == 0
            with pytest.raises(Partitioned, match="t#0"):
                async with client.transaction() as transaction:
                    await transaction.put("t", b"x")
            async with client.transaction() as transaction:
                await transaction.put("t#0", b"x")
            message = await member.get()
            assert message is not None
            assert (message.topic, message.partition, message.value) == ("t", 0, b"x")

    run(main())
