"""Calls: messages that are answered in time, or whose receiver counts as dead."""

from __future__ import annotations

from random import Random
from typing import Any

from oncecast.dht.events import FIRST_NUMBER_BITS, Answer
from oncecast.kernel.protocol import NodeId, Protocol, Value


class Silent(Value):
    """Timer: a call has not been answered."""

    number: int


class Call:
    """Who was called and what for."""

    __slots__ = ("peer", "what")

    def __init__(self, peer: NodeId, what: Any) -> None:
        self.peer, self.what = peer, what


class Caller(Protocol):
    """What the parts of Chord have in common: numbered calls, each ended once."""

    def __init__(self, me: NodeId, rng: Random, answer_within: float) -> None:
        super().__init__(me, rng)
        self.answer_within = answer_within
        self.calls: dict[int, Call] = {}
        # An answer to an earlier life of this node must not be taken for one to a call of ours.
        self._last_number = rng.getrandbits(FIRST_NUMBER_BITS)
        self.dropped = 0  # messages that make no sense, or come too late

    def next_number(self) -> int:
        self._last_number += 1
        return self._last_number

    def call(self, peer: NodeId, number: int, message: Value, what: Any) -> None:
        self.calls[number] = Call(peer, what)
        self.send(peer, message)
        self.later(self.answer_within, Silent(number))

    def take_answer(self, sender: NodeId, answer: Answer) -> Any:
        """What the call was for; None if it has been given up, or was never made."""
        call = self.calls.get(answer.number)
        if call is None or call.peer != sender:
            self.dropped += 1
            return None
        del self.calls[answer.number]
        self.cancel(Silent(answer.number))
        return call.what

    def take_silence(self, number: int) -> Call:
        return self.calls.pop(number)

    def fail_calls_to(self, peer: NodeId) -> list[Call]:
        """A link says sooner than a timer that nobody will answer."""
        numbers = [number for number, call in self.calls.items() if call.peer == peer]
        for number in numbers:
            self.cancel(Silent(number))
        return [self.calls.pop(number) for number in numbers]
