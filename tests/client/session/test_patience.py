"""Test how long a client waits before it retries a request."""

from __future__ import annotations

from random import Random

import pytest

from oncecast.client.session.local import NEVER
from oncecast.client.session.patience import Patience
from tests.client.session.standin import NODE, StandIn

MANY = 256 << 20  # bytes that may move before an answer arrives


class NoChance(Random):
    def random(self) -> float:
        return 0.0


def patience(rng: Random | None = None) -> tuple[Patience, StandIn]:
    session = StandIn(rng)
    session.now = 100.0
    return Patience(session, session.alarm, session.routes, "t"), session


def test_wait_is_jittered_and_doubles_with_each_attempt() -> None:
    """SVC-3"""
    waits = [0.5, 1.0, 2.0, 4.0, 8.0, 8.0]
    for rng, share in ((None, 1.0), (NoChance(), 0.5)):
        waiting, session = patience(rng)
        for attempts, longest in enumerate(waits):
            waiting.attempts = attempts
            waiting.begin()
            assert waiting.due == session.dues[-1] == 100.0 + share * longest


def test_wait_grows_with_the_size_of_the_messages() -> None:
    """SVC-3: the wait grows by one second per 64 KiB until the node answers."""
    waiting, session = patience()
    waiting.begin(128 << 10)
    assert waiting.due == 102.5
    waiting.pause()
    assert waiting.due == 100.5
    waiting.begin(64 << 10)
    waiting.begin()
    assert waiting.due == session.dues[-1] == 100.5


def test_wait_ends_at_its_deadline() -> None:
    waiting, session = patience()
    assert not waiting.over(100.0)
    assert session.dues == [NEVER]
    waiting.begin()
    assert not waiting.over(100.4)
    assert session.dues == [NEVER, 100.5, 100.5]
    assert waiting.over(100.5)


@pytest.mark.parametrize(("moved", "over"), [(MANY - 1, False), (MANY, True)])
@pytest.mark.parametrize("before", [0, 7])
def test_moving_bytes_extend_the_wait_up_to_a_limit(before: int, moved: int, over: bool) -> None:
    """SVC-3: the bytes may contain the answer, but the node may have dropped the request."""
    waiting, session = patience()
    counts = {NODE: before}
    session.moved = counts.__getitem__
    waiting.begin()
    session.now = 100.5
    assert not waiting.over(100.5)  # this is the first check
    assert waiting.due == session.dues[-1] == 101.0
    session.now = 101.0
    counts[NODE] = before + moved
    assert waiting.over(101.0) == over
    session.now = 102.0
    assert waiting.over(102.0)  # no more bytes have moved


def test_busy_node_is_asked_again_even_while_bytes_are_moving() -> None:
    waiting, session = patience()
    session.moved = {NODE: 7}.__getitem__
    waiting.begin()
    waiting.pause()
    assert waiting.over(100.5)
