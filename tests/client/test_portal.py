"""Puts from any thread reach the event loop, and none is dropped."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import oncecast
from oncecast import blocking, errors
from oncecast.client import portal, putting
from oncecast.client.portal import Gathering, Portal
from oncecast.client.putting import Putting


def test_put_nowait_waits_for_buffer_space_and_drops_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SVC-2"""
    monkeypatch.setattr(putting, "BUFFER_BYTES", 300_000)
    monkeypatch.setattr(portal, "GATHERED_BYTES", 100_000)
    with blocking.embedded(tmp_path) as client:
        client.create_topic("t", oncecast.Policy(keep_all=True))
        for _ in range(300):
            client.put_nowait("t", bytes(10_000), headers={"h": b"v"})
        assert client.put("t", b"last").offset == 300
        client.flush()
        assert client.describe("t").next == 301


def test_put_nowait_preserves_the_order_while_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SVC-2"""
    monkeypatch.setattr(putting, "BUFFER_BYTES", 100)
    with blocking.embedded(tmp_path) as client:
        topic = client.subscribe("t")
        for number in range(0, 50, 2):
            client.put_nowait("t", b"%d" % number)
            client.put_many("t", [b"%d" % (number + 1)])
        got: list[int] = []
        while len(got) < 50:
            got += [int(message.value) for message in topic.get_many(50)]
        assert got == list(range(50))


def test_put_from_any_thread_wakes_an_idle_event_loop() -> None:
    """SVC-2: a put after the loop has run must wake the loop again."""
    calls: list[Callable[[], None]] = []
    put: list[Any] = []

    def put_gathered(messages: Any) -> bool:
        put.extend(messages)
        messages.clear()
        return True

    there = SimpleNamespace(loop=SimpleNamespace(call_soon_threadsafe=calls.append))
    gathering = Gathering(
        cast(Portal, there), cast(Putting, SimpleNamespace(put_gathered=put_gathered))
    )
    for expected in (1, 1, 1):
        gathering.put("t", b"x", None, None)
        assert len(calls) == expected
    calls.pop()()
    assert len(put) == 3
    gathering.put("t", b"x", None, None)
    calls.pop()()
    assert len(put) == 4


FORKED = """
import os, sys
from oncecast import blocking, errors
with blocking.embedded(sys.argv[1]) as client:
    topic = client.subscribe("t")
    client.put("t", b"1")
    child = os.fork()
    if not child:
        for ask in (lambda: client.put("t", b"2"), lambda: client.put_nowait("t", b"2"), topic.get):
            try:
                ask()
            except errors.Closed as error:
                assert "open a new one" in str(error)
            else:
                os._exit(1)
        client.close()
        os._exit(42)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
    client.put("t", b"3")
    assert client.describe("t").next == 2
"""


def test_inherited_client_raises_closed_in_a_forked_child(tmp_path: Path) -> None:
    """SVC-7: the thread that would answer exists only in the parent process."""
    command = [sys.executable, "-W", "ignore", "-c", FORKED, str(tmp_path)]
    subprocess.run(command, check=True, timeout=60)


def test_flush_raises_the_error_caused_by_an_invalid_message(tmp_path: Path) -> None:
    """SVC-7"""
    with blocking.embedded(tmp_path) as client:
        client.put_nowait("t", cast(bytes, "text"))
        with pytest.raises(TypeError, match="encode it first"):
            client.flush()
        client.put_nowait("t", b"x")
        client.flush()
    with pytest.raises(errors.Closed, match="open a new one"):
        client.put_nowait("t", b"x")


class Interrupt:
    """Sends SIGINT until it is handled.

    A signal that arrives just before a thread waits is handled late.
    """

    def __init__(self) -> None:
        self.heard = False

    def hear(self, number: int, frame: object) -> None:
        if not self.heard:
            self.heard = True
            raise KeyboardInterrupt

    async def send(self) -> None:
        while not self.heard:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            await asyncio.sleep(0.01)
        await asyncio.Event().wait()


def test_interrupted_get_does_not_consume_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SVC-3 SVC-7"""
    with blocking.embedded(tmp_path) as client:
        topic = client.subscribe("t")
        interrupt = Interrupt()
        before = signal.signal(signal.SIGINT, interrupt.hear)
        with monkeypatch.context() as patch:
            patch.setattr(topic._inner, "_message", interrupt.send)
            with pytest.raises(KeyboardInterrupt):
                topic.get()
        signal.signal(signal.SIGINT, before)
        client.put("t", b"x")
        message = topic.get()
        assert message is not None
        assert (message.value, message.redelivered) == (b"x", False)
    for ask in (topic.get, topic.flush, client.ping):
        with pytest.raises(errors.Closed):
            ask()
