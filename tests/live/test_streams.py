"""Test the wiring, not the logic, of streams over loopback."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import oncecast
from oncecast.coordination import (
    KEEP_ALL,
    BadName,
    BadQoS,
    CacheFull,
    Durability,
    NoCluster,
    Node,
    NotMatched,
    NotOpen,
    NotReached,
    NotReceived,
    QoS,
    Reliability,
    Stopped,
    blocking,
    join,
    register,
)
from oncecast.coordination.register import Members
from oncecast.streams.persistent import reader_name
from oncecast.streams.protocols.events import (
    DeadlineMissed,
    Liveliness,
    Matched,
    Mismatched,
    Unmatched,
)
from tests.live.test_coordination import FAST, within

pytestmark = pytest.mark.long

CALM: dict[str, Any] = {
    **FAST,
    "suspect_after": 10.0,
}  # a busy machine must not look like a failure
EVERY = QoS(reliability=Reliability.RELIABLE, history=KEEP_ALL)
PERSISTENT = msgspec.structs.replace(EVERY, durability=Durability.PERSISTENT)


@asynccontextmanager
async def two() -> AsyncIterator[tuple[Node, Node]]:
    async with (
        join("127.0.0.1:0", **CALM) as one,
        join("127.0.0.1:0", peers=[one.me], **CALM) as other,
    ):
        yield one, other


def test_all_values_arrive_in_order() -> None:
    """DDS-2"""

    async def scenario() -> None:
        async with two() as (one, other):
            reader = other.stream("s", EVERY).reader()
            async with one.stream("s", EVERY).writer() as writer:
                await writer.wait_for_readers()
                for number in range(20_000):
                    await writer.write(b"%d" % number)
                await writer.flush(20.0)
            numbers = []
            async for sample in reader:
                numbers.append(int(sample.value))
                if len(numbers) == 20_000:
                    break
            assert numbers == list(range(20_000))
            assert sample.writer == one.me

    within(60.0, scenario())


def test_read_keeps_values_and_take_removes_them_with_a_history_per_key() -> None:
    """DDS-1"""

    async def scenario() -> None:
        qos = QoS(reliability=Reliability.RELIABLE, history=2)
        async with two() as (one, other):
            reader, writer = other.stream("s", qos).reader(), one.stream("s", qos).writer()
            assert await writer.wait_for_readers() == (other.me,) == writer.readers
            assert await reader.wait(0.01) is False
            for number in range(5):
                await writer.write(b"%d" % number, key=b"tea")
            await writer.write(b"9", key=b"milk")
            await writer.flush(10.0)
            assert await reader.wait(10.0)
            assert [each.value for each in reader.read(b"tea")] == [b"3", b"4"]
            assert [each.value for each in reader.read(unread=True)] == [b"9"]
            assert not await reader.wait(0.01)
            assert [each.value for each in reader.take()] == [b"3", b"4", b"9"]
            assert len(reader) == 0

    within(30.0, scenario())


def test_quality_mismatch_is_reported_to_writer_and_reader() -> None:
    """DDS-1"""

    async def scenario() -> None:
        async with two() as (one, other):
            writer = one.stream("s").writer()
            reader = other.stream("s", EVERY).reader()
            less = ("reliability",)
            assert await writer.next_event(10.0) == Mismatched("s", "writer", other.me, less)
            assert await reader.next_event(10.0) == Mismatched("s", "reader", one.me, less)
            with pytest.raises(NotMatched, match=f"the reader requests: {one.me} .reliability"):
                await reader.wait_for_writers(timeout=0.05)
            stray = other.stream("t", EVERY).reader()
            with pytest.raises(NotMatched, match=r"'t': waited .* have opened these streams: s; "):
                await stray.wait_for_writers(timeout=0.05)

    within(30.0, scenario())


def test_matches_missed_deadlines_and_silent_writers_are_reported_as_events() -> None:
    """DDS-1"""

    async def scenario() -> None:
        qos = msgspec.structs.replace(EVERY, deadline=0.1, liveliness=0.3)
        async with two() as (one, other):
            reader, writer = other.stream("s", qos).reader(), one.stream("s", qos).writer()
            assert await reader.next_event(10.0) == Matched("s", "reader", one.me)
            assert await writer.next_event(10.0) == Matched("s", "writer", other.me)
            await writer.write(b"v", key=b"k")
            assert await reader.next_event(10.0) == DeadlineMissed("s", "reader", b"k")
            assert await writer.next_event(10.0) == DeadlineMissed("s", "writer", b"k")
            one._parts.streams.writers["s"].beat = lambda: None  # type: ignore[method-assign]
            async for event in reader.events():
                if isinstance(event, Liveliness):
                    assert event == Liveliness("s", one.me, False)
                    break
            await writer.close()
            async for event in reader.events():
                if isinstance(event, Unmatched):
                    break

    within(30.0, scenario())


def test_write_to_a_full_cache_times_out_and_names_the_slow_reader() -> None:
    """DDS-1"""

    async def scenario() -> None:
        tight = msgspec.structs.replace(EVERY, samples_max=4, blocking_max=0.1)
        async with two() as (one, other):
            reader, writer = other.stream("s", tight).reader(), one.stream("s", tight).writer()
            await writer.wait_for_readers()
            for number in range(8):  # the reader and the writer hold four values each
                await writer.write(b"%d" % number)
            with pytest.raises(
                CacheFull, match=rf"'s': .* full .*values: 4.*; slow readers: {other.me}\)"
            ):
                await writer.write(b"8")
            with pytest.raises(NotReceived, match="readers have not acknowledged 4 values"):
                await writer.flush(0.05)
            assert [each.value for each in reader.take()] == [b"0", b"1", b"2", b"3"]
            await writer.write(b"9")
            found = [sample.value for sample in await reader.take_some(9)]
            while len(found) < 5:
                found += [sample.value for sample in await reader.take_some(9)]
            assert found == [b"4", b"5", b"6", b"7", b"9"]

    within(30.0, scenario())


def test_invalid_input_is_rejected_with_a_remedy() -> None:
    """DDS-1"""

    async def scenario() -> None:
        async with join("127.0.0.1:0", **CALM) as node:
            with pytest.raises(BadQoS, match="history is 0; keep 1 to 1048576 values, or all"):
                node.stream("s", QoS(history=0))
            for named in (node.stream, node.lock, node.queue):
                for name in ("", "x" * 256, "\udc80"):
                    with pytest.raises(
                        BadName, match=r"is not a valid name \(1 to 255 bytes of UTF-8\)"
                    ):
                        named(name)
            writer = node.stream("s").writer()
            with pytest.raises(NotOpen, match="this process already has a writer; use that"):
                node.stream("s").writer()
            with pytest.raises(TypeError, match="values and keys must be bytes; encode them"):
                await writer.write("text")  # type: ignore[arg-type]
            with pytest.raises(CacheFull, match=r"limit 16,777,216\); split the value"):
                await writer.write(bytes((16 << 20) + 1))
            with pytest.raises(NoCluster, match="join with through='HOST:PORT'"):
                node.stream("s", PERSISTENT).reader()
            await writer.close()
            with pytest.raises(NotOpen, match="this writer is closed; open another one"):
                await writer.write(b"late")
            reader = node.stream("s").reader()
            waiting = asyncio.create_task(reader.wait())
            await asyncio.sleep(0)
            reader.close()
            with pytest.raises(NotOpen, match="this reader is closed"):
                await waiting
            last = node.stream("u").writer()
        with pytest.raises(Stopped):
            await last.write(b"late")

    within(30.0, scenario())


def test_blocking_streams_can_be_used_from_several_threads() -> None:
    """DDS-1"""
    tight = msgspec.structs.replace(EVERY, samples_max=100, blocking_max=10.0)
    with (
        blocking.join("127.0.0.1:0", **CALM) as one,
        blocking.join("127.0.0.1:0", peers=[one.me], **CALM) as other,
    ):
        reader = other.stream("s", tight).reader()
        with one.stream("s", tight).writer() as writer:
            assert writer.wait_for_readers() == (other.me,) == writer.readers

            def produce(name: bytes) -> None:
                for number in range(400):
                    writer.write(b"%d" % number, key=name)

            threads = [threading.Thread(target=produce, args=(name,)) for name in (b"a", b"b")]
            for thread in threads:
                thread.start()
            taken: dict[bytes, list[int]] = {b"a": [], b"b": []}
            for count, sample in enumerate(reader, 1):
                taken[sample.key].append(int(sample.value))
                if count == 800:
                    break
            for thread in threads:
                thread.join()
            assert taken == {b"a": list(range(400)), b"b": list(range(400))}
            writer.write(b"last")
            writer.flush(10.0)
            assert reader.wait(10.0)
            assert reader.keys() == [b""]
            assert [each.value for each in reader.read()] == [b"last"]
            assert [each.value for each in reader.take()] == [b"last"]
            assert reader.wait_for_writers() == reader.writers == (one.me,)
            assert isinstance(writer.next_event(1.0), Matched)
            assert isinstance(reader.next_event(1.0), Matched)
            assert len(reader) == 0
            with pytest.raises(TypeError):
                writer.write("text")  # type: ignore[arg-type]
        reader.close()


def test_leaving_a_read_loop_early_keeps_the_remaining_values() -> None:
    """DDS-1"""
    with blocking.join("127.0.0.1:0", **CALM) as node:
        reader = node.stream("s", EVERY).reader()
        with node.stream("s", EVERY).writer() as writer:
            writer.wait_for_readers()
            for number in range(6):
                writer.write(b"%d" % number, key=b"ab"[number % 2 :][:1])
            writer.flush(10.0)
            assert next(iter(reader)).value == b"0"
            assert reader.wait(0.0)
            assert sorted(reader.keys()) == [b"a", b"b"]
            assert [each.value for each in reader.read(b"a")] == [b"2", b"4"]
            assert [each.value for each in reader.take(b"b")] == [b"1", b"3", b"5"]
            assert [each.value for each in reader.take()] == [b"2", b"4"]
            assert len(reader) == 0
            assert not reader.wait(0.0)


# -- with a cluster --


def test_persistent_values_outlive_their_writers(tmp_path: Path) -> None:
    """DDS-1"""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as cluster:
            async with join("127.0.0.1:0", through=cluster, **CALM) as one:
                writer = one.stream("prices", PERSISTENT).writer()
                for price in (b"10", b"11"):
                    await writer.write(price, key=b"tea")
            few = msgspec.structs.replace(PERSISTENT, samples_max=1)
            async with join("127.0.0.1:0", through=cluster, **CALM) as other:
                reader = other.stream("prices", few).reader()
                found = [await anext(aiter(reader)) for _ in range(2)]
                assert [(each.number, each.key, each.value) for each in found] == [
                    (1, b"tea", b"10"),
                    (2, b"tea", b"11"),
                ]
                await cluster.delete_topic("prices")
                with pytest.raises(oncecast.errors.OncecastError):
                    await reader.wait(10.0)

    within(30.0, scenario())


def test_persistent_reader_takes_over_from_a_killed_reader(tmp_path: Path) -> None:
    """DDS-1 SVC-9: the new reader starts at the beginning, and leaves no subscription behind."""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as cluster:
            async with join("127.0.0.1:0", through=cluster, **CALM) as one:
                writer = one.stream("prices", PERSISTENT).writer()
                for price in (b"10", b"11"):
                    await writer.write(price)
                address = one.me
            async with oncecast.connect(cluster.node_of("prices")) as killed:
                left = await killed.subscribe("prices", reader_name(killed, address))
                await left.seek(oncecast.NEW)
            await cluster.put("prices", b"12")
            assert len((await cluster.describe("prices")).subscriptions) == 1
            async with join(address, through=cluster, **CALM) as again:
                reader = again.stream("prices", PERSISTENT).reader()
                for price in (b"10", b"11", b"12"):
                    assert (await anext(aiter(reader))).value == price
                assert len((await cluster.describe("prices")).subscriptions) == 1
            assert (await cluster.describe("prices")).subscriptions == ()

    within(30.0, scenario())


def test_error_for_a_stored_persistent_value_warns_against_writing_it_again(
    tmp_path: Path,
) -> None:
    """DDS-1"""

    async def scenario() -> None:
        few = {"samples_max": 1, "blocking_max": 0.0}
        async with (
            oncecast.embedded(tmp_path) as cluster,
            join("127.0.0.1:0", through=cluster, **CALM) as one,
            join("127.0.0.1:0", through=cluster, **CALM) as other,
        ):
            writer = one.stream("s", msgspec.structs.replace(PERSISTENT, **few)).writer()
            other.stream("s", msgspec.structs.replace(EVERY, **few)).reader()
            await writer.wait_for_readers()
            with pytest.raises(
                CacheFull, match="don't write the value again; it is already in the topic"
            ):
                for number in range(10):
                    await writer.write(b"%d" % number)
            assert (await cluster.describe("s")).next == number + 1
            writer.abandon()

    within(30.0, scenario())


def test_processes_find_each_other_through_a_cluster(tmp_path: Path) -> None:
    """DDS-4"""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as cluster:
            options = {"through": cluster, "founders": 2, **CALM}
            one, other = join("127.0.0.1:0", **options), join("127.0.0.1:0", **options)
            await asyncio.gather(one.__aenter__(), other.__aenter__())
            assert one.acceptors == other.acceptors == tuple(sorted((one.me, other.me)))
            async with join("127.0.0.1:0", **options) as third:
                await third.group.wait_for_view_size(3)
                async with third.lock("door") as lock:
                    assert lock.token == 1
            for node in (one, other):
                await node.__aexit__(None, None, None)

    within(30.0, scenario())


def test_missing_founders_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DDS-4"""
    monkeypatch.setattr(register, "PATIENCE", 0.1)

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as cluster:
            with pytest.raises(NotReached, match="the group has 1 of 3 members"):
                async with join("127.0.0.1:0", through=cluster, founders=3, **CALM):
                    pass

    within(30.0, scenario())


def test_node_that_stops_waiting_for_founders_is_not_a_founder(tmp_path: Path) -> None:
    """DDS-4"""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as cluster:
            node = join("127.0.0.1:0", through=cluster, founders=2, **CALM)
            joining = asyncio.create_task(node.__aenter__())
            await cluster.subscribe("members/default", "a test")
            entries = register.Register(cluster, "").entries
            # No event reports this, so poll.
            while node.me not in Members(await entries()).present:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            joining.cancel()
            with pytest.raises(asyncio.CancelledError):
                await joining
            assert not Members(await entries()).present

    within(30.0, scenario())
