"""A protocol for testing runtimes, and nodes that run it on loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import uvloop

from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.kernel.stack import Stack
from oncecast.network.network import Runtime
from oncecast.network.options import Options

PATIENCE = 20.0  # seconds to wait for an event

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


class Word(Value):
    """A message with a text."""

    text: bytes


class Note(Value):
    """A record with a text."""

    text: bytes


class Tell(Value):
    """Request: send a text to a node."""

    to: NodeId
    text: bytes


class TellDurably(Value):
    """Request: append a text, then send it to a node."""

    to: NodeId
    text: bytes


class Keep(Value):
    """Request: watch this peer."""

    peer: NodeId


class Leave(Value):
    """Request: stop watching this peer."""

    peer: NodeId


class Ring(Value):
    """Request: set a timer."""

    delay: float


class Bell(Value):
    """A timer that was set with this delay."""

    delay: float


class Break(Value):
    """Request: raise an exception."""


class Heard(Value):
    sender: NodeId
    text: bytes


class Noted(Value):
    text: bytes


class Gone(Value):
    peer: NodeId


class Rang(Value):
    late: float


class Talk(Protocol):
    name = "talk"
    Request = Tell | TellDurably | Keep | Leave | Ring | Break
    Message = Word
    Timer = Bell
    Record = Note

    def __init__(self, me: NodeId) -> None:
        super().__init__(me, Random(me))
        self.restored: list[bytes] = []
        self.set_at = 0.0

    def restore(self, record: Note) -> None:
        self.restored.append(record.text)

    def request(self, request: Value) -> None:
        match request:
            case Tell(to, text):
                self.send(to, Word(text), after=0)
            case TellDurably(to, text):
                self.append(Note(text))
                self.send(to, Word(text))
                self.emit(Noted(text))
            case Keep(peer):
                self.watch(peer)
            case Leave(peer):
                self.unwatch(peer)
            case Ring(delay):
                self.set_at = self.now
                self.later(delay, Bell(delay))
            case _:
                raise ZeroDivisionError("a bug in a protocol")

    def receive(self, sender: NodeId, message: Word) -> None:
        self.emit(Heard(sender, message.text), after=0)

    def timeout(self, timer: Bell) -> None:
        self.emit(Rang(self.now - self.set_at - timer.delay))

    def down(self, peer: NodeId) -> None:
        self.emit(Gone(peer), after=0)


class Node(Runtime):
    """A runtime with its own port and a queue of events."""

    def __init__(self, sock: socket.socket | None = None, **options: Any) -> None:
        runtime = {
            name: options.pop(name)
            for name in ("journal", "tls", "trace", "secret", "insecure", "logins")
            if name in options
        }
        sock = sock or reserve()
        self.port = port_of(sock)
        self.events: asyncio.Queue[Value] = asyncio.Queue()
        me = NodeId(f"127.0.0.1:{self.port}")
        self.talk = Talk(me)
        super().__init__(
            Stack([self.talk]),
            me=me,
            listen=sock,
            on_event=self.events.put_nowait,
            options=Options(**options),
            **runtime,
        )

    async def event(self) -> Value:
        return await self.events.get()


def listening(address: str, **how: Any) -> Runtime:
    me = NodeId("127.0.0.1:1")
    return Runtime(Stack([Talk(me)]), me=me, listen=address, **how)


def reserve(host: str = "127.0.0.1") -> socket.socket:
    """Return a bound socket that does not listen, so that its port is refused and stays free."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((host, 0))
    return sock


def port_of(sock: socket.socket) -> int:
    return int(sock.getsockname()[1])


def drive(test: Coroutine[Any, Any, None], loop: str = "uvloop") -> None:
    """Run a test with a timeout that shows where it hangs."""

    async def patiently() -> None:
        async with asyncio.timeout(PATIENCE):
            await test

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(patiently())
