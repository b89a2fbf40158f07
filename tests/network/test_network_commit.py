"""SVC-10: group commit delays only messages that depend on the disk."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from oncecast.errors import SyncFailed
from oncecast.kernel.protocol import Append, NodeId, Snapshot, Trim
from oncecast.storage.disk import OsDisk
from oncecast.storage.journal import Journal
from tests.network.raw import Raw, hello
from tests.network.talk import (
    LOOPS,
    PATIENCE,
    Heard,
    Node,
    Noted,
    Tell,
    TellDurably,
    drive,
)
from tests.network.test_transport import message

every_loop = pytest.mark.parametrize("loop", LOOPS)
INLINE, THREAD = {"inline_bytes_max": 1 << 30}, {"inline_bytes_max": 0}


class FakeFlush:
    def __init__(self, journal: FakeJournal, upto: int) -> None:
        self.journal, self.upto = journal, upto

    def run(self) -> None:
        self.journal.thread = threading.current_thread()
        if self.journal.blocked:
            assert self.journal.gate.wait(PATIENCE)
        if self.journal.broken:
            raise SyncFailed("disk: fdatasync failed")


class FakeJournal:
    """An in-memory journal whose syncs can be delayed or fail."""

    def __init__(self, *, blocked: bool = False, broken: bool = False) -> None:
        self.blocked, self.broken = blocked, broken
        self.gate = threading.Event()
        self.thread: threading.Thread | None = None
        self.taken = self.begun = self.synced = 0
        self.groups: list[int] = []
        self.flushes: list[FakeFlush] = []
        self.closed = False
        self.marks = 0

    @property
    def pending_bytes(self) -> int:
        return 100 * (self.taken - self.begun)

    @property
    def waiting_bytes(self) -> int:
        return self.pending_bytes

    @property
    def waiting(self) -> bool:
        return self.taken > self.begun

    def take(self, effect: Append | Snapshot | Trim) -> None:
        assert isinstance(effect, Append)
        self.taken += 1
        assert effect.number == self.taken

    def begin(self) -> FakeFlush:
        self.groups.append(self.taken - self.begun)
        self.begun = self.taken
        self.flushes.append(FakeFlush(self, self.taken))
        return self.flushes[-1]

    def finish(self, flush: FakeFlush) -> None:
        assert flush is self.flushes.pop(0), "an earlier flush was not finished"
        self.synced = flush.upto

    def sync(self) -> None:
        flush = self.begin()
        flush.run()
        self.finish(flush)

    def mark(self) -> None:
        self.marks += 1

    def close(self) -> None:
        self.closed = True

    def abandon(self) -> None:
        pass


def node(journal: FakeJournal, **options: Any) -> Node:
    return Node(journal=journal, **options)


@every_loop
def test_independent_messages_are_sent_while_the_disk_is_busy(loop: str) -> None:
    async def test() -> None:
        journal = FakeJournal(blocked=True)
        async with Node() as b, node(journal, **THREAD) as a:
            a.request(TellDurably(b.me, b"durable"))
            for n in range(3):
                a.request(Tell(b.me, b"free %d" % n))
                assert await b.event() == Heard(a.me, b"free %d" % n)
            assert journal.groups == [1]
            assert journal.synced == 0
            assert a.events.empty()
            journal.gate.set()
            assert await b.event() == Heard(a.me, b"durable")
            assert await a.event() == Noted(b"durable")

    drive(test(), loop)


@every_loop
@pytest.mark.parametrize("how", [INLINE, THREAD], ids=["inline", "thread"])
def test_records_from_one_loop_turn_share_a_sync(loop: str, how: dict[str, int]) -> None:
    async def test() -> None:
        journal = FakeJournal()
        async with Node() as b, node(journal, **how) as a:
            texts = [b"%d" % n for n in range(50)]
            for text in texts:
                a.request(TellDurably(b.me, text))
            assert [await a.event() for _ in texts] == [Noted(text) for text in texts]
            assert [await b.event() for _ in texts] == [Heard(a.me, text) for text in texts]
            assert journal.groups == [50]
            assert a.stats.syncs == 1
            assert a.stats.records == 50

    drive(test(), loop)


def test_records_that_arrive_during_a_sync_share_the_next_sync() -> None:
    async def test() -> None:
        journal = FakeJournal(blocked=True)
        async with Node() as b, node(journal, **THREAD) as a:
            a.request(TellDurably(a.me, b"first"))
            for n in range(20):
                a.request(Tell(b.me, b"turn"))
                await b.event()  # the event loop has run at least once more
                a.request(TellDurably(a.me, b"%d" % n))
            journal.gate.set()
            noted = [event for _ in range(42) if isinstance(event := await a.event(), Noted)]
            assert noted == [Noted(b"first"), *(Noted(b"%d" % n) for n in range(20))]
            assert journal.groups == [1, 20]

    drive(test())


def test_few_records_are_synced_inline_and_many_records_in_a_thread() -> None:
    async def test() -> None:
        journal = FakeJournal()
        async with node(journal, inline_bytes_max=1000) as a:
            for count, inline in ((10, True), (11, False)):
                for _ in range(count):
                    a.request(TellDurably(a.me, b""))
                for _ in range(2 * count):
                    await a.event()
                assert (journal.thread is threading.main_thread()) == inline

    drive(test())


@every_loop
def test_independent_messages_are_written_before_an_inline_sync(loop: str) -> None:
    """A sync is slow even for a small group."""

    async def test() -> None:
        journal = FakeJournal()
        async with Node() as b, node(journal, **INLINE) as a:
            a.request(Tell(b.me, b"connected"))
            await b.event()
            sent_before: list[int] = []
            sync = journal.sync

            def watched_sync() -> None:
                sent_before.append(a._transport._links[b.me]._connection._written)  # type: ignore[union-attr]
                sync()

            journal.sync = watched_sync  # type: ignore[method-assign]
            before = a._transport._links[b.me]._connection._written  # type: ignore[union-attr]
            a.request(TellDurably(b.me, b"durable"))
            a.request(Tell(b.me, b"free"))
            assert await b.event() == Heard(a.me, b"free")
            assert await b.event() == Heard(a.me, b"durable")
            assert sent_before == [before + len(message(b"free"))]

    drive(test(), loop)


@pytest.mark.parametrize("how", [INLINE, THREAD], ids=["inline", "thread"])
def test_failed_sync_stops_the_node_and_drops_held_messages(how: dict[str, int]) -> None:
    """SVC-10"""

    async def test() -> None:
        journal = FakeJournal(broken=True)
        async with Node() as b:
            with pytest.raises(SyncFailed, match="fdatasync failed"):
                async with node(journal, **how) as a:
                    a.request(Tell(b.me, b"connected"))
                    await b.event()
                    a.request(TellDurably(b.me, b"held"))
                    await a._ended
            assert a.events.empty()
            assert not journal.closed  # otherwise it would be marked as cleanly closed
            async with Node() as c:
                c.request(Tell(b.me, b"next"))
                assert await b.event() == Heard(c.me, b"next")

    drive(test())


@pytest.mark.parametrize("more", [[], [b"not yet begun"]])
def test_clean_stop_syncs_all_records_and_sends_all_messages(more: list[bytes]) -> None:
    async def test() -> None:
        journal = FakeJournal(blocked=True)
        async with Node() as b:
            async with node(journal, **THREAD) as a:
                a.request(Tell(b.me, b"connected"))
                await b.event()
                a.request(TellDurably(b.me, b"in the thread"))
                a.request(Tell(b.me, b"turn"))
                await b.event()
                for text in more:
                    a.request(TellDurably(b.me, text))
                # The sync ends while the node stops.
                asyncio.get_running_loop().call_later(0.01, journal.gate.set)
            for text in (b"in the thread", *more):
                assert await b.event() == Heard(a.me, text)
            assert journal.closed

    drive(test())


def test_failed_sync_during_a_clean_stop_is_raised() -> None:
    async def test() -> None:
        journal = FakeJournal(blocked=True, broken=True)
        async with Node() as b:
            with pytest.raises(SyncFailed):
                async with node(journal, **THREAD) as a:
                    a.request(TellDurably(b.me, b"held"))
                    a.request(Tell(b.me, b"turn"))
                    await b.event()
                    # The sync ends while the node stops.
                    asyncio.get_running_loop().call_later(0.01, journal.gate.set)
            assert b.events.empty()
            assert not journal.closed

    drive(test())


def test_slow_disk_pauses_reading() -> None:
    """This limits memory: the peers' kernels buffer the messages instead."""

    async def test() -> None:
        journal = FakeJournal(blocked=True)
        async with node(journal, unsynced_bytes_max=500, **THREAD) as a:
            raw = await Raw.dial(a.port)
            raw.greet(hello(a.me))
            await raw.greeting()
            a.request(TellDurably(a.me, b"in the thread"))
            raw.write(message(b"read"))
            assert isinstance(await a.event(), Heard)
            for n in range(6):
                a.request(TellDurably(a.me, b"%d" % n))
            raw.write(message(b"unread"))
            await raw.writer.drain()
            probe = await Raw.dial(a.port)  # handshakes are still answered
            probe.greet(hello(a.me, "127.0.0.1:2"))
            await probe.greeting()
            assert a.events.empty()
            journal.gate.set()
            heard = [await a.event() for _ in range(15)]
            assert Heard(NodeId("127.0.0.1:1"), b"unread") in heard
            raw.close()
            probe.close()

    drive(test())


def test_journal_on_disk_restores_records(tmp_path: Path) -> None:
    """SVC-10"""

    async def life(texts: list[bytes]) -> list[bytes]:
        """Start a node, append `texts`, and return the restored texts."""
        made, disk = Node(), OsDisk(tmp_path)
        made.journal = Journal.open(disk, made.stack)
        async with made as a:
            for text in texts:
                a.request(TellDurably(a.me, text))
                while await a.event() != Noted(text):
                    pass
        disk.close()
        return made.talk.restored

    async def test() -> None:
        assert await life([b"one", b"two"]) == []
        assert await life([b"three"]) == [b"one", b"two"]
        assert await life([]) == [b"one", b"two", b"three"]

    drive(test())


def test_node_without_a_journal_does_not_delay_effects() -> None:
    async def test() -> None:
        async with Node() as a:
            a.request(TellDurably(a.me, b"x"))
            assert {type(await a.event()) for _ in range(2)} == {Noted, Heard}

    drive(test())


def test_fake_journal_has_no_methods_that_the_real_journal_lacks() -> None:
    """Otherwise the tests above would prove nothing."""
    names = {name for name in vars(FakeJournal) if not name.startswith("_")}
    assert names <= set(dir(Journal))
