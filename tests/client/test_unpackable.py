"""The application's next call reports messages that cannot be encoded."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import oncecast
from oncecast import blocking, errors
from oncecast.client import putting
from oncecast.client.parcel import Parcel
from oncecast.client.portal import Gathering, Portal
from oncecast.client.putting import Putting
from oncecast.client.session.local import Produce
from oncecast.errors import SyncFailed
from tests.client.serving import run, serving
from tests.client.test_putting import FakeSession

OPENERS: dict[str, Callable[..., object]] = {
    "connect": lambda path, **options: oncecast.connect("127.0.0.1:1", **options),
    "blocking.connect": lambda path, **options: blocking.connect("127.0.0.1:1", **options),
    "embedded": oncecast.embedded,
    "blocking.embedded": blocking.embedded,
}


@pytest.mark.parametrize("opener", OPENERS)
@pytest.mark.parametrize("level", [23, 99, "3", 2.5])
def test_connect_rejects_an_invalid_zstd_level(opener: str, level: object, tmp_path: Path) -> None:
    """SVC-7"""
    with pytest.raises(errors.InvalidArgument, match=r"zstd level is .* from 1 to 22"):
        OPENERS[opener](tmp_path, zstd=level)


@pytest.mark.parametrize("opener", OPENERS)
def test_connect_rejects_compression_without_the_zstandard_package(
    opener: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SVC-7"""
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(errors.InvalidArgument, match="zstandard is not installed"):
        OPENERS[opener](tmp_path, zstd=3)
    OPENERS[opener](tmp_path)


def fail_to_build(monkeypatch: pytest.MonkeyPatch, topic: str) -> None:
    build = Parcel.build

    def refuse(self: Parcel, zstd: int | None) -> bytes:
        if self.topic == topic:
            raise MemoryError("no memory for this batch")
        return build(self, zstd)

    monkeypatch.setattr(Parcel, "build", refuse)


def test_flush_raises_if_a_batch_cannot_be_built() -> None:
    """SVC-2 SVC-7"""

    async def scenario() -> None:
        session = FakeSession()
        session.putting.put_nowait("bad", b"x")
        session.putting.put_nowait("good", b"y")
        await session.until(1)
        session.store(0, 0)
        with pytest.raises(errors.OncecastError, match="'bad': cannot pack 1 messages"):
            await session.putting.flush(None)
        await session.putting.flush(None)
        assert [each.topic for each in session.asked] == ["good"]

    with pytest.MonkeyPatch.context() as patch:
        fail_to_build(patch, "bad")
        run(scenario())


def test_put_raises_if_its_batch_cannot_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """SVC-2 SVC-7"""
    fail_to_build(monkeypatch, "bad")

    async def scenario() -> None:
        session = FakeSession()
        for work in (
            session.putting.put("bad", b"x"),
            session.putting.put_many("bad", [b"x"], None),
        ):
            with pytest.raises(errors.OncecastError, match="cannot pack"):
                await work
        await session.putting.flush(None)  # both callers already got the error

    run(scenario())


def test_batch_that_cannot_be_built_does_not_block_other_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SVC-2: the messages were waiting while other batches were in flight."""
    fail_to_build(monkeypatch, "bad")

    async def scenario() -> None:
        session = FakeSession()
        for number in range(putting.IN_FLIGHT):
            session.putting.put_nowait(f"busy {number}", b"x")
        await session.until(putting.IN_FLIGHT)
        session.putting.put_nowait("bad", b"x")
        session.putting.put_nowait("good", b"x")
        await asyncio.sleep(0)
        session.store(0, 0)
        assert session.asked[-1].topic == "good"
        for number in range(1, putting.IN_FLIGHT + 1):
            session.store(number, 0)
        with pytest.raises(errors.OncecastError, match="cannot pack"):
            await session.putting.flush(None)

    run(scenario())


class Unreadable(Mapping[str, bytes]):
    """Headers that raise an error when they are read."""

    def __getitem__(self, name: str) -> bytes:
        raise RuntimeError("these headers cannot be read")

    def __iter__(self) -> Iterator[str]:
        return iter(["h"])

    def __len__(self) -> int:
        return 1


def test_flush_raises_errors_from_the_headers_of_a_queued_message() -> None:
    """SVC-7"""

    async def scenario() -> None:
        session = FakeSession()
        given: deque[tuple[Any, ...]] = deque(
            [("t", b"x", None, Unreadable()), ("t", b"y", None, None)]
        )
        assert session.putting.put_gathered(given)
        await session.until(1)
        session.store(0, 0)
        with pytest.raises(RuntimeError, match="cannot be read"):
            await session.putting.flush(None)
        assert [each.count for each in session.asked] == [1]

    run(scenario())


def test_close_raises_if_puts_in_flight_failed(tmp_path: Path) -> None:
    """SVC-7 SVC-8: the client was fenced while messages from put_nowait were in flight."""

    async def scenario() -> None:
        async with serving(tmp_path) as node:
            client = await oncecast.connect(node)
            client.put_nowait("t", b"x")
            client.parts.fail(errors.Fenced())
            with pytest.raises(errors.Fenced):
                await client.close()
            await client.close()

    run(scenario())


def test_close_does_not_repeat_a_failure_that_flush_has_raised(tmp_path: Path) -> None:
    """SVC-7"""

    async def scenario() -> None:
        async with serving(tmp_path) as node:
            client = await oncecast.connect(node)
            client.put_nowait("t", b"x")
            client.parts.fail(errors.Fenced())
            with pytest.raises(errors.Fenced):
                await client.parts.putting.flush(None)
            await client.close()

    run(scenario())


@pytest.mark.parametrize("flushed", [True, False])
def test_close_raises_if_the_state_directory_has_failed(tmp_path: Path, flushed: bool) -> None:
    """SVC-7 SVC-12: the error is an OncecastError, as for every other call."""

    async def scenario() -> None:
        async with serving(tmp_path) as node:
            client = await oncecast.connect(node, state=tmp_path / "me")
            client.put_nowait("t", b"x")
            client.parts.runtime.fail(SyncFailed("the disk is gone"))
            if flushed:
                with pytest.raises(errors.StateUnusable, match="the disk is gone"):
                    await client.flush()
            with pytest.raises(errors.StateUnusable, match="the disk is gone"):
                await client.close()

    run(scenario())


def test_put_nowait_during_a_close_raises() -> None:
    """SVC-2: the thread that closes the client may have already checked for new puts."""

    async def scenario() -> None:
        asked: list[Produce] = []
        there = SimpleNamespace(loop=asyncio.get_running_loop())
        storing = Putting(lambda request: asked.append(cast(Produce, request)), lambda: None)
        gathering = Gathering(cast(Portal, there), storing)
        gathering.put("t", b"before", None, None)
        await gathering.close(1.0)
        with pytest.raises(errors.Closed):
            gathering.put("t", b"after", None, None)

    run(scenario())
