"""Transactions across the groups of a ring of three processes (TXN-2)."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterator

import pytest

import oncecast
from oncecast.client.client import Client
from oncecast.client.starts import EARLIEST
from oncecast.dht.identifiers import distance, key_of, key_of_topic
from tests.live.replicas import PATIENCE
from tests.live.test_ring_server import RingReplicas, own_group
from tools.check_docs import ROOT

pytestmark = pytest.mark.long

JOBS = 40
SOURCE = "copier"


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RingReplicas]:
    made = RingReplicas(tmp_path_factory.mktemp("ring"), 3)
    try:
        made.start()
        made.whole()
        yield made
    finally:
        made.close()


def topics_of(ring: RingReplicas, name: str) -> list[str]:
    """Return a topic of each group."""
    groups = [own_group(process) for process in ring.all]

    def owner(topic: str) -> str:
        return min(groups, key=lambda each: distance(key_of_topic(topic), key_of(each)))

    names = [f"{name}-{number}" for number in range(200)]
    return [next(each for each in names if owner(each) == group) for group in groups]


def connect(ring: RingReplicas) -> Client:
    return oncecast.connect(",".join(ring.addresses), timeout=PATIENCE)


async def values(client: Client, topic: str) -> list[bytes]:
    return [each.value async for page in client.scan(topic) for each in page.messages()]


async def copy(client: Client, reader: oncecast.Subscription, outputs: list[str]) -> None:
    """Copy a message to all outputs, in one transaction."""
    message = await reader.get(timeout=PATIENCE)
    assert message is not None
    async with client.transaction(SOURCE) as t:
        for topic in outputs:
            await t.put(topic, message.value)
        t.ack(message)
    assert sorted(each.topic for each in t.ranges) == sorted(outputs)


def test_each_message_is_copied_once_to_all_groups_while_a_process_is_killed(
    ring: RingReplicas,
) -> None:
    """TXN-2: the groups that the process led continue under another leader."""
    source, *outputs = topics_of(ring, "killed")

    async def scenario() -> None:
        async with connect(ring) as client:
            for topic in outputs:
                await client.create_subscription(topic, "keeper", start=EARLIEST)
            reader = await client.subscribe(source, "s", start=EARLIEST, auto_ack=False)
            await client.put_many(source, [b"%d" % number for number in range(JOBS)])
            for number in range(JOBS):
                if number == JOBS // 4:
                    ring.all[1].end(signal.SIGKILL)
                if number == JOBS // 2:
                    ring.all[1].start()
                await copy(client, reader, outputs)
            for topic in outputs:
                assert await values(client, topic) == [b"%d" % number for number in range(JOBS)]
            cursors = (await client.describe(source)).subscriptions
            assert [each.cursor for each in cursors] == [JOBS]

    asyncio.run(scenario())
    ring.whole()


def test_client_that_dies_between_the_phases_leaves_nothing_undecided(
    ring: RingReplicas,
) -> None:
    """TXN-2: the leaders abort the transaction, and the message is delivered again."""
    source, *outputs = topics_of(ring, "dead")
    program = [sys.executable, "-m", "tests.live.preparing", ring.addresses[0], source, *outputs]

    async def scenario() -> None:
        async with connect(ring) as client:
            for topic in outputs:
                await client.create_subscription(topic, "keeper", start=EARLIEST)
            await client.create_subscription(source, "s", start=EARLIEST)
            await client.put(source, b"a")
            dying = await asyncio.create_subprocess_exec(*program, stdout=PIPE, cwd=ROOT)
            assert dying.stdout is not None
            assert await dying.stdout.readline() == b"prepared\n"
            dying.kill()
            await dying.wait()
            reader = await client.subscribe(source, "s", auto_ack=False)
            await copy(client, reader, outputs)
            for topic in outputs:
                assert await values(client, topic) == [b"a"]

    asyncio.run(scenario())
