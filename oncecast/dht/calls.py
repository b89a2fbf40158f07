"""Pending calls to peers. A peer that does not answer in time counts as dead."""

from __future__ import annotations

from oncecast.dht.messages import FIRST_NUMBER_BITS, Again, Answer, Call, Silent
from oncecast.kernel.protocol import NodeId, Protocol, Value


class Counters:
    """Counts of requests and messages that Chord did not serve."""

    def __init__(self) -> None:
        self.dropped = 0  # number of invalid messages and late answers
        self.refused = 0  # number of requests that exceeded lookups_max


class Calls:
    """This node's calls that await an answer. Each call ends exactly once."""

    def __init__(self, protocol: Protocol, counters: Counters, answer_within: float) -> None:
        self._protocol, self._counters = protocol, counters
        self.answer_within = answer_within
        self.waiting: dict[int, Call] = {}
        self._last_number = protocol.rng.getrandbits(FIRST_NUMBER_BITS)

    def next_number(self) -> int:
        self._last_number += 1
        return self._last_number

    def call(self, peer: NodeId, number: int, message: Value, purpose: object) -> None:
        self.waiting[number] = Call(peer, purpose)
        self._protocol.send(peer, message)
        self._protocol.later(self.answer_within, Silent(number))

    def retry_later(self, number: int, share: float = 1.0) -> None:
        """Set the Again timer to a fraction, `share`, of `answer_within`."""
        self._protocol.later(self.answer_within * share, Again(number))

    def take_answer(self, sender: NodeId, answer: Answer) -> object:
        """End a call and return its purpose, or None if `sender` was not asked for this answer."""
        call = self.waiting.get(answer.number)
        if call is None or call.peer != sender:
            self._counters.dropped += 1
            return None
        del self.waiting[answer.number]
        self._protocol.cancel(Silent(answer.number))
        return call.purpose

    def take_late(self, number: int) -> None:
        """End a call when any of the peers that were asked under this number answers."""
        call = self.waiting.pop(number, None)
        self._protocol.cancel(Again(number) if call is None else Silent(number))

    def take_lost(self, peer: NodeId) -> list[Call]:
        """End all calls to a peer whose link broke, and return them."""
        numbers = [number for number, call in self.waiting.items() if call.peer == peer]
        for number in numbers:
            self._protocol.cancel(Silent(number))
        return [self.waiting.pop(number) for number in numbers]
