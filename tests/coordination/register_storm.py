"""Processes that sign in and out of one register at the same time, one call of a client at a time.

A seed decides which call takes effect next. A process may stop at any call, as in a crash.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from oncecast.coordination import register
from oncecast.coordination.register import Register
from oncecast.errors import MessagesLost
from oncecast.kernel.protocol import NodeId
from oncecast.simulator.checkers import Violation
from oncecast.wire.commands import FromOffset, Start
from oncecast.wire.message import Message
from oncecast.wire.retention import DEFAULT

STEPS = 400
SETTLED = 12  # turns of the event loop after which every process waits for its next call
SLACK = 2  # so that a Roll is due after a few entries
NOW = 1 << 60  # so late that no process ever counts as expired


class Topic:
    """The topic of a register. The cursor of its subscription drops messages."""

    def __init__(self) -> None:
        self.first = 0
        self.messages: list[Message] = []

    @property
    def next(self) -> int:
        return self.first + len(self.messages)

    def put(self, value: bytes) -> int:
        self.messages.append(Message("t", self.next, None, value, {}, NOW, "", 0, False))
        return self.next - 1

    def seek(self, offset: int) -> None:
        kept = min(max(offset, self.first), self.next)
        del self.messages[: kept - self.first]
        self.first = kept


class StormClient:
    """The calls of a client that a register uses. Each waits until the storm lets it happen."""

    def __init__(self, storm: Storm) -> None:
        self._storm = storm

    async def create_subscription(self, topic: str, name: str, *, start: Start) -> None:
        await self._storm.turn()

    async def describe(self, topic: str) -> Any:
        await self._storm.turn()
        return SimpleNamespace(policy=DEFAULT)

    async def put(self, topic: str, value: bytes) -> Any:
        await self._storm.turn()
        return SimpleNamespace(offset=self._storm.topic.put(value))

    async def seek(self, topic: str, name: str, start: FromOffset) -> None:
        await self._storm.turn()
        self._storm.topic.seek(start.offset)

    async def scan(self, topic: str, start: Start) -> AsyncIterator[Any]:
        """Yield the messages in parts of one or two."""
        await self._storm.turn()
        kept = self._storm.topic
        at = kept.first
        while at < kept.next:
            if at < kept.first:
                raise MessagesLost(topic, at, kept.first)
            some = kept.messages[at - kept.first :][: self._storm.rng.randint(1, 2)]
            yield SimpleNamespace(messages=lambda some=some: some)
            at += len(some)
            if self._storm.rng.random() < 0.5:
                await self._storm.turn()


class Storm:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.topic = Topic()
        self._waiting: list[asyncio.Future[None]] = []
        self._processes = self.rng.choice((2, 3, 4))
        self._founders = self.rng.randint(1, self._processes - 1)
        self._longest = self.rng.choice((2, 6, 12))  # most turns between two calls of a process
        self._inside: dict[NodeId, tuple[NodeId, ...]] = {}  # the founders that a process uses
        self.lives = 0

    async def turn(self) -> None:
        """Wait until the storm lets the next call happen."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting

    async def run(self) -> None:
        tasks = [asyncio.create_task(self._process(number)) for number in range(self._processes)]
        try:
            for _ in range(STEPS):
                for _ in range(SETTLED):
                    await asyncio.sleep(0)
                for task in tasks:
                    if task.done():
                        task.result()
                waiting = self._waiting.pop(self.rng.randrange(len(self._waiting)))
                waiting.set_result(None)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _process(self, number: int) -> None:
        """Sign in, stay for a while and sign out, again and again."""
        while True:
            for _ in range(self.rng.randrange(self._longest)):
                await self.turn()
            self.lives += 1
            me = NodeId(f"host:{number}")
            signed: Any = Register(StormClient(self), "")  # type: ignore[arg-type]
            roster = await signed.sign_in(me, self._founders)
            self._enter(me, roster.founders, roster.present)
            for _ in range(self.rng.randrange(self._longest)):
                await self.turn()
            del self._inside[me]
            await signed.sign_out(me)

    def _enter(self, me: NodeId, founders: tuple[NodeId, ...], present: tuple[NodeId, ...]) -> None:
        if me not in present:
            raise Violation(f"{me} signed in, but only {present} are present")
        for other, theirs in self._inside.items():
            if theirs != founders:
                raise Violation(f"{me} uses the founders {founders}, but {other} uses {theirs}")
        self._inside[me] = founders


def storm(seed: int) -> Storm:
    """Run a storm, and raise Violation if two present processes disagree on the founders."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(register, "PAUSE", 0.0)
        patch.setattr(register, "SLACK", SLACK)
        patch.setattr(register, "network_id", lambda: "")
        made = Storm(seed)
        asyncio.run(made.run())
    return made
