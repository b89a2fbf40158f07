"""The connected workers of a node, without a dispatcher (WRK-1)."""

from __future__ import annotations

import pytest

from oncecast.broker.crews import Crews, Hand
from oncecast.broker.endings import Grant
from oncecast.kernel.protocol import NodeId

ANN, BOB = NodeId("client/ann"), NodeId("client/bob")
WHERE, OTHER = ("topic", "sub"), ("other", "sub")


def grants(*tokens: int) -> list[Grant]:
    return [Grant("w", token, 0, [0]) for token in tokens]


@pytest.mark.parametrize(("sizes", "held", "kept"), [(2, 1, 2), (3, 1, 1), (16, 8, 16), (17, 9, 9)])
def test_sizes_of_settled_messages_are_forgotten_if_they_may_be_many(
    sizes: int, held: int, kept: int
) -> None:
    hand = Hand(ANN, "w")
    hand.sizes = dict.fromkeys(range(sizes), 10)
    hand.keep(grants(*range(held)))
    assert (len(hand.sizes), hand.bytes) == (kept, 10 * kept)


def test_worker_at_another_connection_replaces_the_earlier_one() -> None:
    crews = Crews()
    first, new = crews.join(WHERE, "w", ANN)
    assert new
    assert crews.join(WHERE, "w", ANN) == (first, False)
    second, new = crews.join(WHERE, "w", BOB)
    assert (second is first, new) == (False, True)
    assert (crews.of_client(ANN), crews.of_client(BOB)) == ([], [(WHERE, second)])
    assert crews.clients() == [BOB]


def test_worker_that_returns_is_not_gone() -> None:
    crews = Crews()
    crews.make(WHERE).gone["w"] = 5.0
    crews.join(WHERE, "w", ANN)
    assert crews.make(WHERE).gone == {}


def test_worker_that_leaves_gets_no_messages_that_are_read_later() -> None:
    crews = Crews()
    hand, _ = crews.join(WHERE, "w", ANN)
    crews.join(WHERE, "x", ANN)
    crews.make(WHERE).unsent["w"] = None
    crews.leave(WHERE, hand)
    assert (crews.make(WHERE).unsent, list(crews.make(WHERE).hands)) == ({}, ["x"])
    assert crews.clients() == [ANN]  # it has another worker


def test_removed_subscription_leaves_no_trace() -> None:
    crews = Crews()
    crews.join(WHERE, "w", ANN)
    other, _ = crews.join(OTHER, "w", ANN)
    crews.drop(WHERE)
    crews.drop(("unknown", "sub"))
    assert (crews.get(WHERE), crews.of_client(ANN)) == (None, [(OTHER, other)])
    assert (crews.places(), crews.places("other"), crews.places("topic")) == ([OTHER], [OTHER], [])
    crews.clear()
    assert (crews.clients(), crews.places()) == ([], [])


def test_crew_is_kept_while_it_has_something_to_do() -> None:
    crews = Crews()
    hand, _ = crews.join(WHERE, "w", ANN)
    crews.tidy(WHERE)
    crew = crews.get(WHERE)
    assert crew is not None
    crews.leave(WHERE, hand)
    for field, busy, idle in (
        ("gone", {"w": 1.0}, {}),
        ("leasing", True, False),
        ("burying", True, False),
        ("refusals", 1, 0),
    ):
        setattr(crew, field, busy)
        crews.tidy(WHERE)
        assert crews.get(WHERE) is crew, field
        setattr(crew, field, idle)
    crews.tidy(WHERE)
    assert crews.get(WHERE) is None
