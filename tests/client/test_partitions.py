"""A client creates, grows, describes and deletes topics with partitions (PART-1)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import oncecast
from oncecast import EARLIEST, Policy
from oncecast.client.partitioning import Partitions
from oncecast.errors import InvalidArgument, NoSuchTopic, Partitioned, TopicExists
from oncecast.wire import commands as do
from oncecast.wire import partitions as part
from tests.client.serving import run, serving

KEEP = Policy(keep_all=True)


async def names(client: oncecast.Client) -> list[str]:
    """Return the names of all topics that the node stores."""
    return [each.name async for each in client.parts.topics.all("")]


@pytest.mark.long
def test_topic_with_partitions_is_created_grown_and_deleted(tmp_path: Path) -> None:
    """PART-1"""

    async def main() -> None:
        async with serving(tmp_path) as node, oncecast.connect(node) as client:
            assert await client.create_topic("t", KEEP, partitions=3)
            assert not await client.create_topic("t", KEEP, partitions=3)
            assert await client.set_partitions("t", 4) == 1
            assert await client.set_partitions("t", 4) == 0
            assert await names(client) == ["t", "t#0", "t#1", "t#2", "t#3"]
            assert {each.policy for each in await client.partitions("t")} == {KEEP}
            await client.set_policy("t", Policy())
            assert {each.policy for each in await client.partitions("t")} == {Policy()}
            assert (await client.describe("t")).policy == Policy()
            assert await client.delete_topic("t")
            assert not await client.delete_topic("t")
            assert await names(client) == []

    run(main())


@pytest.mark.long
def test_views_show_a_topic_once_with_the_sums_of_its_partitions(tmp_path: Path) -> None:
    """PART-1"""

    async def main() -> None:
        async with serving(tmp_path) as node, oncecast.connect(node, name="ann") as client:
            await client.create_topic("t", KEEP, partitions=2)
            await client.parts.partitions.add_group("t", "g", EARLIEST)
            for topic in ("t#0", "t#1", "t#1", "t!", "u"):
                await client.put(topic, b"x")
            await client.create_topic("t!#5")
            listed = [(each.name, each.partitions, each.next) async for each in client.topics()]
            assert listed == [("t", 2, 3), ("t!", 0, 1), ("t!#5", 0, 0), ("u", 0, 1)]
            view = await client.describe("t")
            (group,) = view.subscriptions
            assert (view.next, group.name, group.lag) == (3, "g", 3)
            assert [each.next for each in await client.partitions("t")] == [1, 2]
            assert await client.partitions("u") == []

    run(main())


@pytest.mark.long
def test_topic_of_another_kind_is_found_before_anything_is_created(tmp_path: Path) -> None:
    """PART-1"""

    async def main() -> None:
        async with serving(tmp_path) as node, oncecast.connect(node) as client:
            await client.create_topic("plain")
            for policy, count in ((Policy(), 2), (KEEP, 2)):
                with pytest.raises(TopicExists):
                    await client.create_topic("plain", policy, partitions=count)
            with pytest.raises(InvalidArgument, match="no partitions"):
                await client.set_partitions("plain", 2)
            with pytest.raises(InvalidArgument, match="partitions is 0"):
                await client.create_topic("t", partitions=0)
            assert await names(client) == ["plain"]

    run(main())


@pytest.mark.long
def test_next_client_finishes_what_a_dead_client_has_begun(tmp_path: Path) -> None:
    """PART-1"""

    async def main() -> None:
        async with serving(tmp_path) as node, oncecast.connect(node) as client:
            call = client.parts.requests.call
            await call(do.CreateTopic("t#1", 0, partition_of="t"))
            assert await client.create_topic("t", partitions=2)
            await call(do.CreateTopic("t#2", 0, partition_of="t"))
            assert await client.set_partitions("t", 3) == 1
            await call(part.SetPartitions("t", 0, 0))
            await call(do.DeleteTopic("t#0", 0, partition_of="t"))
            with pytest.raises(NoSuchTopic):
                await client.describe("t")
            with pytest.raises(TopicExists, match="being deleted"):
                await client.create_topic("t", partitions=3)
            assert await client.delete_topic("t")
            assert await names(client) == []

    run(main())


@pytest.mark.long
def test_group_that_is_added_during_growth_gets_the_new_partitions(tmp_path: Path) -> None:
    """PART-1: a group may not miss the first messages of a new partition."""

    async def main() -> None:
        async with serving(tmp_path) as node, oncecast.connect(node) as client:
            await client.create_topic("t", partitions=1)
            await client.parts.partitions.add_group("t", "g", EARLIEST)
            added: list[bool] = []

            async def describe(topic: str) -> Any:
                view = await client.parts.topics.describe(topic)
                if not added:
                    added.append((await client.parts.partitions.add_group("t", "h", EARLIEST)).new)
                return view

            assert await Partitions(client.parts.requests, describe).grow("t", 2) == 1
            for view in await client.partitions("t"):
                assert [each.name for each in view.subscriptions] == ["g", "h"]
            assert await client.parts.partitions.remove_group("t", "g")
            assert not await client.parts.partitions.remove_group("t", "g")
            for view in await client.partitions("t"):
                assert [each.name for each in view.subscriptions] == ["h"]

    run(main())


@pytest.mark.long
def test_shared_subscription_of_a_partitioned_topic_is_refused(tmp_path: Path) -> None:
    """PART-1"""

    async def main() -> None:
        async with serving(tmp_path) as node, oncecast.connect(node) as client:
            await client.create_topic("t", partitions=2)
            with pytest.raises(Partitioned, match="2 partitions"):
                await client.work("t", "w")

    run(main())


@pytest.mark.long
def test_scan_and_arrow_read_all_partitions(tmp_path: Path) -> None:
    """PART-3"""

    async def main(node: str) -> None:
        async with oncecast.connect(node, name="ann") as client:
            await client.create_topic("t", KEEP, partitions=3)
            for number in range(30):
                client.put_nowait("t", b"%d" % number, b"key-%d" % (number % 7))
            await client.flush()
            found = [each async for page in client.scan("t") for each in page.messages()]
            assert sorted(int(each.value) for each in found) == list(range(30))
            assert {each.topic for each in found} == {"t"}
            places = [(each.partition, each.offset) for each in found]
            assert places == sorted(set(places))
            last = [each async for each in client.scan("t", oncecast.NEW)]
            assert last == []
            with pytest.raises(Partitioned, match="its own offsets"):
                [each async for each in client.scan("t", until=3)]

    async def both() -> None:
        async with serving(tmp_path) as node:
            await main(node)
            await asyncio.to_thread(arrow, node)

    run(both())


def arrow(node: str) -> None:
    table = oncecast.read_arrow("t", node).read_all()
    rows = table.to_pylist()
    assert sorted(int(each["value"]) for each in rows) == list(range(30))
    assert {each["topic"] for each in rows} == {"t"}
    for each in rows:
        assert each["partition"] == part.partition_for_key(each["key"], 3)
    only = oncecast.read_arrow("t", node, columns=["partition", "offset"], rows=4).read_all()
    assert only.column_names == ["partition", "offset"]
    assert len(only) == 30
    with pytest.raises(Partitioned, match="not available"):
        oncecast.read_arrow("t", node, follow=1.0)
