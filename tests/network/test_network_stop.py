"""SVC-10: test a clean stop and the state of the disk afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.kernel.stack import Stack
from oncecast.network.network import Runtime, run
from oncecast.network.options import Options
from oncecast.storage.disk import OsDisk
from oncecast.storage.journal import Journal
from oncecast.storage.log import Log
from tests.network.talk import port_of, reserve


class Begin(Value):
    steps: int


class Next(Value):
    left: int


class Step(Value):
    left: int


class Arrived(Value):
    pass


class Walker(Protocol):
    """Append a step, then send the next step to this node."""

    name = "walker"
    Request = Begin
    Message = Next
    Record = Step

    def __init__(self, me: NodeId, rng: Random) -> None:
        super().__init__(me, rng)
        self.restored: list[int] = []

    def restore(self, record: Step) -> None:
        self.restored.append(record.left)

    def request(self, request: Begin) -> None:
        self._walk(request.steps)

    def receive(self, sender: NodeId, message: Next) -> None:
        self._walk(message.left)

    def _walk(self, left: int) -> None:
        self.append(Step(left))
        if left > 0:
            self.send(self.me, Next(left - 1))
        else:
            self.emit(Arrived())


def open_walker(path: Path, me: NodeId) -> tuple[Stack, Journal]:
    stack = Stack([Walker(me, Random(1))])
    return stack, Journal.open(OsDisk(path), stack)


def test_clean_stop_delivers_messages_that_the_node_sends_to_itself(tmp_path: Path) -> None:
    events: list[Value] = []

    async def walk() -> None:
        socket = reserve()
        me = NodeId(f"127.0.0.1:{port_of(socket)}")
        stack, journal = open_walker(tmp_path, me)
        async with Runtime(
            stack, me=me, listen=socket, journal=journal, on_event=events.append
        ) as node:
            node.request(Begin(5))

    run(walk())
    assert events == [Arrived()]


def test_exception_in_an_event_handler_during_a_stop_is_raised(
    tmp_path: Path,
) -> None:
    async def walk() -> None:
        socket = reserve()
        me = NodeId(f"127.0.0.1:{port_of(socket)}")
        stack, journal = open_walker(tmp_path, me)

        def fail(event: Value) -> None:
            raise RuntimeError("the application's own")

        async with Runtime(stack, me=me, listen=socket, journal=journal, on_event=fail) as node:
            node.request(Begin(5))

    with pytest.raises(RuntimeError, match="the application's own"):
        run(walk())


@pytest.mark.long
def test_idle_node_marks_its_log_as_synced(tmp_path: Path) -> None:
    """After a kill, a flipped bit in the last record is then reported as damage."""

    async def walk() -> bytes:
        socket = reserve()
        me = NodeId(f"127.0.0.1:{port_of(socket)}")
        stack, journal = open_walker(tmp_path / "log", me)
        options = Options(idle_after=0.0)
        marked = asyncio.get_running_loop().create_future()
        mark = journal.log.mark

        def noted() -> bool:
            done = mark()
            if not marked.done():
                marked.set_result(None)
            return done

        journal.log.mark = noted  # type: ignore[method-assign]
        runtime = Runtime(stack, me=me, listen=socket, journal=journal, options=options)
        async with runtime as node:
            node.request(Begin(0))
            await marked
            return (tmp_path / "log" / "00000001.log").read_bytes()

    left_by_kill = run(walk())
    place = left_by_kill.index(b"Step")
    damaged = bytearray(left_by_kill)
    damaged[place] ^= 1
    (tmp_path / "after").mkdir()
    (tmp_path / "after" / "00000001.log").write_bytes(damaged)
    recovery = Log.open(OsDisk(tmp_path / "after")).recovery
    assert [damage.first for damage in recovery.damage] == [1]
