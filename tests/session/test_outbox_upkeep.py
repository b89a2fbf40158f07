"""How a durable client keeps its outbox small: these inputs, exactly these effects."""

from __future__ import annotations

from random import Random

import pytest

from oncecast.kernel.protocol import Append, Effect, Later, NodeId, Snapshot, Trim, Watch
from oncecast.session.client import (
    OUTBOX_BYTES,
    READ_AHEAD,
    ClientSession,
    ClientState,
    Named,
    Tick,
)

ME, NODE = NodeId("client/me"), NodeId("node")
NAMED = Append(Named("p", "life"), 1)
TIDIED = [Snapshot(ClientState("p", "life", ()), 1), Trim("client", 2)]


def started(*, durable: bool = True) -> ClientSession:
    made = ClientSession(
        ME, Random(1), node=NODE, producer="p", life="life", durable=durable, outbox_bytes=100
    )
    made.start()
    assert made.drain() == [*([NAMED] if durable else []), Watch(NODE)]
    return made


def kept(effects: list[Effect]) -> list[Effect]:
    return [each for each in effects if not isinstance(each, Later)]


def test_restarted_client_goes_by_the_name_in_its_state_directory() -> None:
    """SVC-8"""
    made = ClientSession(ME, Random(1), node=NODE, producer="p", life="new", durable=True)
    made.restore(Named("q", "first life"))
    made.start()
    assert made.drain() == [Watch(NODE)]
    assert (made.producer, made.books) == ("q", "first life")


def test_limits_of_a_session() -> None:
    assert (READ_AHEAD, OUTBOX_BYTES) == (16_384, 4 << 20)


@pytest.mark.parametrize(("settled", "tidied"), [(130, []), (131, TIDIED)])
def test_outbox_is_tidied_when_much_more_is_settled_than_not(
    settled: int, tidied: list[Effect]
) -> None:
    """SVC-12: 100 bytes and four times what is unsettled may be written before."""
    made = started()
    for _ in range(2):
        made.wrote(settled)
        made.settled(settled)
        assert kept(made.drain()) == []
        made.wrote(10)
        assert kept(made.drain()) == tidied
        made.settled(10)
        made.tidy()
        made.drain()


def test_idle_outbox_is_tidied_after_half_a_second() -> None:
    """SVC-12"""
    made = started()
    for _ in range(2):
        made.wrote(10)
        made.settled(5)
        made.settled(5)
        assert made.drain() == [Later(0.5, Tick())]
        made.now += 0.5
        made.timeout(Tick())
        assert made.drain() == TIDIED


def test_client_without_a_state_directory_tidies_nothing() -> None:
    made = started(durable=False)
    made.settled(5)
    assert made.drain() == []


def test_timer_is_set_again_only_if_something_is_due_sooner() -> None:
    made = started()
    for at in (3.0, 3.0, 4.0, 2.0):
        made.due(at)
    assert made.drain() == [Later(3.0, Tick()), Later(2.0, Tick())]
    made.now = 5.0
    made.due(1.0)
    assert made.drain() == [Later(0.0, Tick())]
