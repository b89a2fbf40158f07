"""Directories from an earlier version are read; those in a newer format are refused.

data/old-data.tar.xz contains the directories of a node and a client that were killed. Commit
a63641d wrote them.

- The node has a snapshot and a log after it. Topic `kept` keeps all its messages, and `aged` keeps
  them for 100 years. Topic `news` has two subscriptions: `reader` has acknowledged three messages
  and `other` one. Subscription `worker` of `orders` has read nothing. Two parts are staged.
- Client `ann` has put seven letters. Subscription `reader` of `letters` begins at the third. The
  node was killed after the fourth.
"""

from __future__ import annotations

import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

import oncecast
from oncecast import errors
from tests.client.serving import run, serving

ARCHIVE = Path(__file__).parent / "data" / "old-data.tar.xz"
LATER = datetime(2026, 11, 18, 3, 36, tzinfo=UTC)  # soon after the data was written


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory with the `node` and `client` directories of the earlier version."""
    # A week later, the records of idle producers and staged parts would be deleted.
    now_us = int(LATER.timestamp() * 1e6)
    monkeypatch.setattr("oncecast.node.replica.wall_us", lambda: now_us)
    with tarfile.open(ARCHIVE) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # new in Python 3.11.4
        archive.extractall(tmp_path)
    return tmp_path


def values(name: str, *numbers: int) -> list[bytes]:
    return [f"{name} {number}".encode() for number in numbers]


async def unread(client: oncecast.Client, topic: str, name: str) -> list[oncecast.Message]:
    """Read and acknowledge all messages for a subscription."""
    found: list[oncecast.Message] = []
    async with await client.read(topic, name) as subscription:
        while messages := await subscription.get_many(100, timeout=0):
            found += messages
    return found


async def scanned(client: oncecast.Client, topic: str) -> list[bytes]:
    return [each.value async for some in client.scan(topic) for each in some.messages()]


@asynccontextmanager
async def client_of(path: Path, name: str = "bob") -> AsyncIterator[oncecast.Client]:
    async with serving(path) as node, oncecast.connect(node, name=name) as client:
        yield client


def test_old_messages_and_cursors_are_kept(old: Path) -> None:
    """SVC-10: the second start reads what this version has written."""

    async def scenario() -> None:
        async with client_of(old) as bob:
            news = await unread(bob, "news", "reader")
            assert [each.value for each in news] == values("news", *range(3, 10))
            assert [each.offset for each in news] == list(range(3, 10))
            assert [each.key for each in news] == values("key", *range(3, 10))
            assert news[0].headers == {"n": b"3"}
            assert (await bob.put("news", b"news 10")).offset == 10
        async with client_of(old) as bob:
            assert [each.value for each in await unread(bob, "news", "reader")] == [b"news 10"]
            other = [each.value for each in await unread(bob, "news", "other")]
            assert other == values("news", *range(1, 11))

    run(scenario())


def test_old_topics_keep_their_policies(old: Path) -> None:
    """SVC-9"""

    async def scenario() -> None:
        async with client_of(old) as bob:
            kept = await scanned(bob, "kept")
            assert kept == [*values("kept", *range(8)), b"published"]
            assert (await bob.describe("kept")).policy.keep_all
            assert await scanned(bob, "aged") == [b"aged 0"]

    run(scenario())


def test_old_staged_parts_are_published_once(old: Path) -> None:
    """SVC-2"""

    async def scenario() -> None:
        async with client_of(old) as bob:
            for _ in range(2):
                (found,) = await bob.publish_staged("source", 1, ["part b", "part a"], "orders")
                assert (found.offset, found.count) == (60, 3)
            await bob.publish_staged("other source", 7, ["part"], "kept")
            orders = [each.value for each in await unread(bob, "orders", "worker")]
            fillers = [b"filler %d " % number + bytes(100) for number in range(60)]
            assert orders == fillers + values("staged", 2, 0, 1)
            assert len(await scanned(bob, "kept")) == 9

    run(scenario())


def test_old_client_continues_its_puts(old: Path) -> None:
    """SVC-2: letters in the state directory are stored once, in order, before new ones."""

    async def scenario() -> None:
        async with serving(old) as node:
            async with oncecast.connect(node, state=old / "client") as ann:
                assert ann.name == "ann"
                await ann.flush()
                assert (await ann.put("letters", b"letter 7")).offset == 7
            async with oncecast.connect(node, state=old / "client") as ann:
                await ann.flush()
                letters = await unread(ann, "letters", "reader")
            assert [each.offset for each in letters] == list(range(2, 8))
            assert [each.value for each in letters] == values("letter", *range(2, 8))
            assert {each.producer for each in letters} == {"ann"}

    run(scenario())


def test_node_refuses_a_directory_in_a_newer_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SVC-7"""

    async def scenario() -> None:
        with monkeypatch.context() as later:
            later.setattr("oncecast.storage.segment.VERSION", 2)
            async with client_of(tmp_path) as bob:
                await bob.put("topic", b"x")
        with pytest.raises(errors.WrongFormat, match=r"format version 2.* reads 1"):
            async with serving(tmp_path):
                pass

    run(scenario())


def test_unknown_snapshot_version_is_refused(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SVC-7"""
    monkeypatch.setattr("oncecast.broker.state.VERSION", 3)

    async def scenario() -> None:
        with pytest.raises(errors.WrongFormat, match=r"snapshot has version 2.* reads 3"):
            async with serving(old):
                pass

    run(scenario())


def test_client_refuses_a_state_directory_in_a_newer_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SVC-7"""

    async def scenario() -> None:
        async with serving(tmp_path) as node:
            with monkeypatch.context() as later:
                later.setattr("oncecast.storage.segment.VERSION", 2)
                async with oncecast.connect(node, state=tmp_path / "client") as ann:
                    await ann.put("topic", b"x")
            with pytest.raises(errors.StateUnusable, match=r"format version 2.* reads 1"):
                async with oncecast.connect(node, state=tmp_path / "client"):
                    pass

    run(scenario())
