"""Send mutated requests to the front end, which answers them or closes the connection."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from oncecast.client.session import local
from oncecast.kafka import messages as m
from oncecast.kafka.events import Connected, Handled, Hangup, Received, Reply
from oncecast.kafka.frontend import FrontEnd
from oncecast.kernel.protocol import Ask, Emit, Later, NodeId
from oncecast.wire.errors import Denied, Overloaded
from tests.kafka.bodies import random_body, request_bytes
from tests.seeds import seeds

PER_SEED = 1000
HUGE = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00", b"\x00\xff\xff\xff")


def mutated(data: bytes, rng: Random) -> bytes:
    """Change a request in some places, as a broken or hostile client may."""
    found = bytearray(data)
    for _ in range(rng.choice((0, 1, 1, 2, 5))):
        at = rng.randrange(len(found)) if found else 0
        match rng.randrange(5):
            case 0 if found:
                found[at] = rng.getrandbits(8)
            case 1:
                del found[at:]
            case 2:
                found[at:at] = rng.randbytes(rng.randint(1, 8))
            case 3:
                found[at : at + 4] = rng.choice(HUGE)
            case _:
                found[at:at] = found[: rng.randint(0, 64)]
    return bytes(found)


class Fuzzer:
    def __init__(self, seed: int) -> None:
        self.rng = Random(f"kafka/{seed}")
        self.front = FrontEnd(NodeId("front"), Random(seed), host="127.0.0.1", port=9092)
        self.number = self.replies = self.hangups = 0
        self._connect()

    def _connect(self) -> None:
        self.number += 1
        self.front.request(Connected(self.number, "127.0.0.1"))

    def send(self) -> None:
        api = self.rng.choice(m.APIS)
        version = self.rng.randint(api.first, api.last)
        body = random_body(api.request, version, self.rng)
        data = mutated(request_bytes(api, version, body), self.rng)
        self.front.request(Received(self.number, data))
        self._drain()

    def _drain(self) -> None:
        effects = self.front.drain()
        while effects:
            for effect in effects:
                self._handle(effect)
            effects = self.front.drain()

    def _handle(self, effect: Any) -> None:
        match effect:
            case Ask(asked):
                request: Any = asked
                outcome = self.rng.choice((local.NoAnswer(1.0), Denied(), Overloaded("busy")))
                if isinstance(request, local.Produce):
                    why = Overloaded("busy")
                    self.front.observe(local.NotStored(request.ticket, why))
                else:
                    self.front.observe(local.Finished(request.ticket, outcome))
            case Emit(Reply(_, data)):
                assert int.from_bytes(data[:4], "big") == len(data) - 4
                self.replies += 1
            case Emit(Hangup(number)):
                assert number == self.number
                self.hangups += 1
                self._connect()
            case Emit(Handled()) | Later():
                pass
            case _:
                raise AssertionError(effect)


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(1, 1000))
def test_mutated_request_is_answered_or_ends_its_connection(seed: int) -> None:
    """KAF-1: `make soak` sends 1,000,000 requests."""
    fuzzer = Fuzzer(seed)
    for _ in range(PER_SEED):
        fuzzer.send()
    assert fuzzer.replies > PER_SEED / 20
    assert fuzzer.hangups > PER_SEED / 20
