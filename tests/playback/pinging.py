"""A protocol with two messages, and a simulation of two nodes that use it."""

from __future__ import annotations

from functools import partial
from random import Random

from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.kernel.stack import Stack
from oncecast.playback.recorder import RecordedSimulation, Recorder
from oncecast.playback.recording import Recording
from oncecast.simulator.latency import Fixed

ANN, BOB = NodeId("ann"), NodeId("bob")


class Call(Value, tag="test-Call"):
    peer: NodeId
    word: str


class Ping(Value, tag="test-Ping"):
    word: str


class Pong(Value, tag="test-Pong"):
    word: str


class Again(Value):
    peer: NodeId


class Pinger(Protocol):
    name = "pinger"
    Request = Call
    Message = Ping | Pong
    Timer = Again

    def request(self, call: Call) -> None:
        self.send(call.peer, Ping(call.word))
        self.later(0.5, Again(call.peer))

    def receive(self, sender: NodeId, message: Ping | Pong) -> None:
        if isinstance(message, Ping):
            self.send(sender, Pong(message.word))

    def timeout(self, timer: Again) -> None:
        self.send(timer.peer, Ping("again"))


def build(me: NodeId, rng: Random) -> Stack:
    return Stack([Pinger(me, rng)])


def recorded(*, steps_max: int = 1000) -> tuple[Recorder, RecordedSimulation]:
    """Return a recorder, and a simulation of two nodes whose messages take 0.1 s."""
    recorder = Recorder(steps_max=steps_max)
    sim = recorder.simulation(1)
    sim.weather.set(latency=Fixed(0.1))
    for node in (ANN, BOB):
        sim.add(node, build)
    return recorder, sim


def calls(words: int) -> Recording:
    """Return the recording of a run in which ann calls bob every 0.01 s."""
    recorder, sim = recorded()
    for number in range(words):
        sim.call(0.01 * number, partial(sim.ask, ANN, Call(BOB, str(number))))
    sim.run(until=2.0)
    return recorder.finished()
