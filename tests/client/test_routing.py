"""Messages go to the partition of their key, once and in order (PART-1)."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

import oncecast
from oncecast import Policy
from oncecast.client.putting import Putting
from oncecast.client.routing import REFRESH, Router, Routers
from oncecast.client.session.local import NotStored, Produce, Stored
from oncecast.errors import NoSuchTopic
from oncecast.wire import batch, errors
from oncecast.wire.partitions import partition_for_key
from tests.client.serving import run, serving

KEEP = Policy(keep_all=True)

# From librdkafka's consistent_random, as computed with confluent-kafka.
KEYS = [(b"tea", 8, 2), (b"coffee", 3, 1), (b"\x00\xff", 1000, 594)]


def values(data: bytes) -> list[bytes]:
    found = batch.messages(data, topic="", offset=0, producer="", sequence=0)
    return [each.value for each in found]


class Node:
    """Records what a Putting sends, and answers like a node whose topic `t` has 2 partitions."""

    def __init__(self, count: int = 2) -> None:
        self.count = count
        self.sent: list[Produce] = []
        self.refreshed: list[str] = []
        self.putting = Putting(
            self.take, lambda: None, routers=Routers(lambda topic: self.refreshed.append(topic))
        )

    def take(self, request: Any) -> None:
        self.sent.append(request)

    def refuse(self) -> None:
        """Refuse all batches that were put to the topic itself, in order."""
        again = [each for each in self.sent if each.topic == "t"]
        self.sent = [each for each in self.sent if each.topic != "t"]
        why = errors.Partitioned("t", self.count)
        for each in again:
            self.putting.not_stored(NotStored(each.ticket, why, each.batch, each.timing))

    def store(self) -> None:
        sent, self.sent = self.sent, []
        for each in sent:
            self.putting.stored(Stored(each.ticket, 10, True))

    def by_topic(self) -> dict[str, list[bytes]]:
        found: dict[str, list[bytes]] = {}
        for each in self.sent:
            found.setdefault(each.topic, []).extend(values(each.batch))
        return found


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


@pytest.mark.parametrize(("key", "count", "partition"), KEYS)
def test_key_decides_the_partition_as_in_librdkafka(key: bytes, count: int, partition: int) -> None:
    """PART-1"""
    assert partition_for_key(key, count) == partition


def test_messages_without_a_key_stay_in_one_partition_until_their_batch_is_sent() -> None:
    """PART-1"""
    router = Router("t", 8, Random(1))
    first = router.choose(None)
    assert {router.choose(None) for _ in range(20)} == {first}
    router.sent((first + 1) % 8)
    assert router.choose(None) == router.choose(b"") == first
    chosen = set()
    for _ in range(100):
        chosen.add(router.choose(None))
        router.sent(router.choose(None))
    assert chosen == set(range(8))


def test_refused_messages_go_to_their_partitions_in_order() -> None:
    """PART-1: messages that are put in the meantime do not overtake them."""

    async def main() -> None:
        node = Node()
        keys = [b"tea", b"coffee", b"milk"]
        receipts = []
        for number in range(30):
            key = keys[number % 3]
            receipts.append(asyncio.ensure_future(node.putting.put("t", b"%d" % number, key)))
            if number % 7 == 0:
                await turn()
        await turn()
        node.putting.put_nowait("t", b"30", b"tea")
        assert {each.topic for each in node.sent} == {"t"}
        node.refuse()
        node.putting.put_nowait("t", b"31", b"tea")
        await turn()
        found = node.by_topic()
        expected: dict[str, list[bytes]] = {}
        for number in range(32):
            key = keys[number % 3] if number < 30 else b"tea"
            topic = f"t#{partition_for_key(key, 2)}"
            expected.setdefault(topic, []).append(b"%d" % number)
        assert found == expected
        assert not any(each.create for each in node.sent)
        node.store()
        done = await asyncio.gather(*receipts)
        assert [each.partition for each in done[:3]] == [partition_for_key(key, 2) for key in keys]
        await node.putting.flush(5)

    run(main())


def test_messages_wait_until_all_batches_of_the_topic_are_refused() -> None:
    """PART-1"""

    async def main() -> None:
        node = Node()
        for number in range(3):
            node.putting.put_nowait("t", b"%d" % number, b"tea")
            await turn()
        first, *rest = node.sent
        node.sent.clear()
        why = errors.Partitioned("t", 2)
        node.putting.not_stored(NotStored(first.ticket, why, first.batch))
        node.putting.put_nowait("t", b"3", b"tea")
        flushed = asyncio.ensure_future(node.putting.flush(5))
        await turn()
        assert not node.sent
        assert node.putting.left
        for each in rest:
            node.putting.not_stored(NotStored(each.ticket, why, each.batch))
        assert node.by_topic() == {f"t#{partition_for_key(b'tea', 2)}": [b"0", b"1", b"2", b"3"]}
        await turn()
        assert not flushed.done()
        node.store()
        await flushed

    run(main())


def test_put_many_waits_for_all_its_messages() -> None:
    """PART-1"""

    async def main() -> None:
        node = Node()
        done = asyncio.ensure_future(node.putting.put_many("t", [b"a", b"b", b"c"], None))
        await turn()
        node.refuse()
        await turn()
        (sent,) = node.sent
        assert values(sent.batch) == [b"a", b"b", b"c"]
        node.store()
        receipt = await done
        assert receipt is not None
        assert (receipt.offset, f"t#{receipt.partition}") == (12, sent.topic)

    run(main())


def test_batch_of_an_earlier_process_goes_to_the_partitions() -> None:
    """PART-1"""

    async def main() -> None:
        node = Node()
        node.putting = Putting(node.take, lambda: None, left=1)
        builder = batch.Builder(1000)
        builder.add(b"x", b"tea", None, 0)
        data = builder.build()
        node.putting.not_stored(NotStored(0, errors.Partitioned("t", 2), data))
        flushed = asyncio.ensure_future(node.putting.flush(5))
        await turn()
        assert node.by_topic() == {f"t#{partition_for_key(b'tea', 2)}": [b"x"]}
        assert not flushed.done()
        node.store()
        await flushed

    run(main())


def test_deleted_topic_is_forgotten() -> None:
    """PART-1: the error names the topic, not the partition."""

    async def main() -> None:
        node = Node()
        node.putting.routers.learn("t", 2)
        receipt = asyncio.ensure_future(node.putting.put("t", b"x", b"tea"))
        await turn()
        (sent,) = node.sent
        node.putting.not_stored(NotStored(sent.ticket, errors.NoSuchTopic(sent.topic)))
        with pytest.raises(NoSuchTopic, match="'t' does not exist"):
            await receipt
        node.putting.put_nowait("t", b"y")
        await turn()
        assert node.sent[-1].topic == "t"

    run(main())


def test_number_of_partitions_is_refreshed() -> None:
    """PART-1: a client notices that a topic has grown."""

    async def main() -> None:
        node, now = Node(), [1000.0]
        routers = Routers(lambda topic: node.refreshed.append(topic), lambda: now[0])
        node.putting = Putting(node.take, lambda: None, routers=routers)
        node.putting.routers.learn("t", 1)
        for later in (0.0, REFRESH - 1, REFRESH, REFRESH + 1):
            now[0] = 1000.0 + later
            node.putting.put_nowait("t", b"x", b"coffee")
        assert node.refreshed == ["t"]
        node.putting.routers.update("t", 3)
        node.putting.put_nowait("t", b"y", b"coffee")
        await turn()
        assert node.by_topic() == {"t#0": [b"x"] * 4, "t#1": [b"y"]}
        node.putting.routers.update("u", 3)
        assert node.putting.routers.get("u") is None
        node.putting.routers.update("t", 0)
        assert node.putting.routers.get("t") is None

    run(main())


def test_failed_client_fails_messages_that_wait_for_their_partition() -> None:
    async def main() -> None:
        node = Node()
        receipt = asyncio.ensure_future(node.putting.put("t", b"x"))
        await turn()
        node.putting.put_nowait("t", b"y")
        await turn()
        first = node.sent[0]
        node.putting.not_stored(NotStored(first.ticket, errors.Partitioned("t", 2), first.batch))
        node.putting.fail(NoSuchTopic("gone"))
        with pytest.raises(NoSuchTopic):
            await receipt

    run(main())


@pytest.mark.long
def test_concurrent_puts_are_stored_once_in_their_partitions(tmp_path: Path) -> None:
    """PART-1: with a live node, from the first put on."""

    async def main() -> None:
        async with serving(tmp_path) as node, oncecast.connect(node, name="ann") as client:
            await client.create_topic("t", KEEP, partitions=3)
            keys = [b"key-%d" % (number % 10) for number in range(300)]
            puts = [client.put("t", b"%d" % at, key) for at, key in enumerate(keys)]
            receipts = await asyncio.gather(*puts)
            await client.put_many("t", [b"plain"] * 20)
            for _ in range(20):
                client.put_nowait("t", b"plain")
            await client.flush()
            found: Counter[bytes] = Counter()
            for number in range(3):
                last: dict[bytes | None, int] = {}
                async for page in client.scan(f"t#{number}"):
                    for each in page.messages():
                        found[each.value] += 1
                        if each.key is not None:
                            assert partition_for_key(each.key, 3) == number
                            assert receipts[int(each.value)] == (each.offset, True)
                            assert receipts[int(each.value)].partition == number
                            assert last.get(each.key, -1) < int(each.value)
                            last[each.key] = int(each.value)
            assert found == Counter({b"%d" % at: 1 for at in range(300)}) + Counter({b"plain": 40})

    run(main())


@pytest.mark.long
def test_next_process_continues_the_outbox_of_a_topic_with_partitions(tmp_path: Path) -> None:
    """PART-1"""

    async def main() -> None:
        state = tmp_path / "state"
        async with serving(tmp_path) as node, oncecast.connect(node) as admin:
            await admin.create_topic("t", KEEP, partitions=2)
            for number in range(3):
                async with oncecast.connect(node, name="ann", state=state) as client:
                    await client.put("t", b"%d" % number, b"tea")
            view = await admin.describe("t")
            assert (view.next, view.producers) == (3, 1)

    run(main())


@pytest.mark.long
def test_next_process_puts_what_an_earlier_one_left(tmp_path: Path) -> None:
    """PART-1: the first process did not know that the topic has partitions."""

    async def main() -> None:
        state, listen = tmp_path / "state", "127.0.0.1:0"
        async with serving(tmp_path) as node:
            listen = node
            client = await oncecast.connect(node, name="ann", state=state)
        client.put_nowait("t", b"left", b"tea")  # the node is gone
        with pytest.raises(oncecast.errors.OncecastError):
            await client.close(timeout=0.2)
        async with serving(tmp_path, listen) as node, oncecast.connect(node) as admin:
            await admin.create_topic("t", KEEP, partitions=2)
            async with oncecast.connect(node, name="ann", state=state) as again:
                await again.flush(10)
            view = await admin.describe("t")
            assert (view.next, view.producers) == (1, 1)

    run(main())
