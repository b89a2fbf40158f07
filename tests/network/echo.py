"""A protocol for simulator tests that appends each message and echoes it."""

from __future__ import annotations

from random import Random

from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.kernel.stack import Stack


class Call(Value):
    text: str


class Reply(Value):
    text: str


class Shout(Value):
    """Request: send a message to a node."""

    to: NodeId
    text: str


class Watchful(Value):
    """Request: watch a node."""

    peer: NodeId


class AlarmIn(Value):
    """Request: set a timer in seconds."""

    delay: float


class Ring(Value):
    pass


class Written(Value):
    text: str


class Heard(Value):
    text: str


class Gone(Value):
    peer: NodeId


class Rang(Value):
    at: float


class Echo(Protocol):
    name = "echo"
    Request = Shout | Watchful | AlarmIn
    Message = Call | Reply
    Timer = Ring
    Record = Written

    def __init__(self, me: NodeId, rng: Random) -> None:
        super().__init__(me, rng)
        self.written: list[str] = []

    def restore(self, record: Written) -> None:
        self.written.append(record.text)

    def request(self, request: Shout | Watchful | AlarmIn) -> None:
        match request:
            case Shout(to, text):
                self.send(to, Call(text))
            case Watchful(peer):
                self.watch(peer)
            case AlarmIn(delay):
                self.later(delay, Ring())

    def receive(self, sender: NodeId, message: Call | Reply) -> None:
        if isinstance(message, Call):
            self.written.append(message.text)
            self.append(Written(message.text))
        self.emit(Heard(message.text))
        if isinstance(message, Call):
            self.send(sender, Reply(message.text))

    def timeout(self, timer: Ring) -> None:
        self.emit(Rang(self.now))

    def down(self, peer: NodeId) -> None:
        self.emit(Gone(peer))


def build(me: NodeId, rng: Random) -> Stack:
    return Stack([Echo(me, rng)])
