"""Partitions on a ring of three groups, with members in several processes (PART-1, PART-2)."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncecast import EARLIEST, Policy, blocking
from oncecast.dht.identifiers import Key, key_of_topic, up_to
from oncecast.wire.frames import RingView
from tests.live.replicas import until
from tests.live.test_ring_server import RingReplicas
from tests.live.test_ring_server import ring as ring

pytestmark = pytest.mark.long

PARTITIONS, KEYS = 9, 12

# Reads as a member, and writes each message after the node has stored its acknowledgement.
MEMBER = """
import sys
from oncecast import blocking
with blocking.connect(sys.argv[1]) as client:
    member = client.read("orders", "billing", auto_ack=False)
    print("joined", flush=True)
    while True:
        message = member.get()
        member.ack(message)
        member.flush()
        key = message.key.decode()
        print(message.partition, message.offset, key, message.value.decode(), flush=True)
"""


@contextmanager
def member(server: str, path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with path.open("wb") as out:
        command = [sys.executable, "-c", MEMBER, server]
        process = subprocess.Popen(command, stdout=out)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def rows(*paths: Path) -> list[list[str]]:
    found = []
    for path in paths:
        lines = path.read_text().splitlines() if path.exists() else []
        found += [line.split() for line in lines if line.count(" ") == 3]
    return found


def test_members_on_a_ring_share_partitions_of_several_groups(
    ring: RingReplicas, tmp_path: Path
) -> None:
    """PART-1 PART-2: one of the members is killed, and no acknowledged message is read again."""
    ring.whole()
    servers = ring.addresses
    one, two = tmp_path / "one", tmp_path / "two"
    with blocking.connect(servers[0]) as client:
        until("all groups own an arc", lambda: whole(client.ring()))
        assert client.create_topic("orders", Policy(keep_all=True), partitions=PARTITIONS)
        assert client.create_subscription("orders", "billing", start=EARLIEST).new
        put_more(client)
        until("partitions are at their owners", lambda: spread(client))
        assert sum(each.chunk.count for each in client.scan("orders")) == KEYS
        with member(servers[1], one) as killed, member(servers[2], two):
            until("both members read", lambda: put_more(client) and both(one, two))
            killed.send_signal(signal.SIGKILL)
            assert client.set_partitions("orders", PARTITIONS + 1) == 1
            assert client.put("orders#9", b"last", b"last").offset == 0
            until("all are read", lambda: all_read(client))
        check(rows(one), rows(two), client.describe("orders").next)
        assert client.delete_topic("orders")
        assert [each.name for each in client.topics("orders")] == []


def whole(ring: RingView) -> bool | None:
    return all(each.low for each in ring.groups) or None


def spread(client: blocking.Client) -> bool | None:
    """Return whether the owners of all partitions have answered this client."""
    names = [each.name for each in client.partitions("orders")]
    groups = {client.node_of(name).partition("/")[2] for name in names}
    return groups == owners(client.ring()) or None


def owners(ring: RingView) -> set[str]:
    """Return the groups that own the partitions by the hashes of their names."""
    keys = [key_of_topic(f"orders#{number}") for number in range(PARTITIONS)]
    return {
        each.group
        for each in ring.groups
        for key in keys
        if up_to(Key(bytes.fromhex(each.low)), key, Key(bytes.fromhex(each.position)))
    }


def put_more(client: blocking.Client) -> bool:
    """Put a message with each key."""
    for number in range(KEYS):
        client.put_nowait("orders", b"value", b"key-%d" % number)
    client.flush()
    return True


def both(one: Path, two: Path) -> bool | None:
    return (bool(rows(one)) and bool(rows(two))) or None


def all_read(client: blocking.Client) -> bool | None:
    return client.describe("orders").subscriptions[0].lag == 0 or None


def check(first: list[list[str]], second: list[list[str]], messages: int) -> None:
    """Check that each message is read once, in the order of its partition.

    The killed member may have acknowledged one message without printing it.
    """
    places = Counter((row[0], row[1]) for row in first + second)
    assert set(places.values()) == {1}
    assert len(places) in (messages, messages - 1)
    for read in (first, second):
        for partition in {row[0] for row in read}:
            offsets = [int(row[1]) for row in read if row[0] == partition]
            assert offsets == sorted(offsets)
