"""Whereabouts, rule by rule: these inputs, exactly these effects."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncecast.client.session.whereabouts import AskAround, Redial, Whereabouts
from oncecast.kernel.protocol import Later, NodeId, Send
from oncecast.wire.frames import Elsewhere, LookGroup
from tests.client.session.standin import StandIn
from tests.dice import LowDice

A, B, C, D = map(NodeId, "abcd")


def make(*nodes: NodeId, group: str = "g", **options: Any) -> tuple[Whereabouts, StandIn]:
    session = StandIn(**options)
    session.now = 100.0
    return Whereabouts(cast("Any", session), group, nodes or (A, B, C)), session


def view(node: str, leader: str) -> Any:
    return SimpleNamespace(node=node, leader=leader)


def redial(seconds: float, group: str = "g") -> list[Later]:
    return [Later(cast("Any", pytest.approx(seconds)), Redial(group))]


def test_pause_grows_each_time_it_is_sent_on_until_a_node_answers() -> None:
    """REP-5"""
    way, session = make(group="")
    for _ in range(2):
        for pause in (0.01, 0.1, 0.2, 0.3, 0.4, 0.4):
            way.gone(way.node)
            assert session.drain() == redial(pause, "")
        assert way.astray
        way.found()
        assert not way.astray


@pytest.mark.parametrize("found", [False, True])
def test_group_is_given_up_when_each_node_failed_twice_and_one_more_time(found: bool) -> None:
    """REP-5: home is asked where the group is."""
    way, session = make()
    if found:
        for _ in range(6):
            way.gone(way.node)
        way.found()
    for _ in range(6):
        way.gone(way.node)
    assert session.given_up == []
    session.drain()
    way.gone(way.node)
    assert (session.given_up, session.drain()) == ([way], [])


def test_home_is_never_given_up() -> None:
    way, session = make(A, group="")
    for _ in range(20):
        way.gone(A)
    assert (session.given_up, way.node) == ([], A)


@pytest.mark.parametrize(("one", "other"), [(C, D), (D, C)])
def test_node_that_was_left_longest_ago_is_next(one: NodeId, other: NodeId) -> None:
    """REP-5: nodes that were never tried come first, in the order in which they are named."""
    way, session = make()
    way.gone(A)
    way.learn((A, B, one, other))
    visited = [way.node]
    for _ in range(5):
        way.gone(way.node)
        visited.append(way.node)
    assert visited == [B, one, other, A, B, one]
    assert session.left == [A, B, one, other, A, B]


def test_node_that_becomes_known_is_tried_before_one_that_failed() -> None:
    way, _ = make(A, B)
    way.gone(A)
    way.learn((A, B, D))
    way.gone(B)
    assert way.node == D


def test_node_that_was_away_and_comes_back_counts_as_new() -> None:
    way, _ = make()
    way.gone(A)
    way.learn((B, C))
    way.gone(B)
    way.learn((C, A, D))
    way.gone(C)
    assert way.node == A


@pytest.mark.parametrize(
    ("group", "named", "known"),
    [
        ("g", (D, B), (D, B)),
        ("g", (), (A, B, C)),
        ("", (D, B), (D, B, A, C)),
        ("g", tuple(f"n{number}" for number in range(65)), tuple(f"n{n}" for n in range(64))),
    ],
)
def test_group_knows_the_nodes_named_last_and_home_all_of_them(
    group: str, named: tuple[str, ...], known: tuple[str, ...]
) -> None:
    way, _ = make(group=group)
    way.learn(named)
    assert way.nodes == known


def test_node_names_the_leader_and_the_replicas() -> None:
    """REP-5"""
    way, session = make()
    way.told(A, Elsewhere("d", ("a", "d")))
    assert (way.node, way.nodes, way.led) == (D, (A, D), True)
    assert session.drain() == redial(0.01)


def test_word_of_another_node_counts_only_while_it_is_astray() -> None:
    way, session = make()
    way.told(B, Elsewhere("c", ("b", "c")))
    assert (way.node, way.nodes, session.drain()) == (A, (A, B, C), [])
    way.astray = True
    way.told(B, Elsewhere("", ("b", "c")))
    assert (way.node, way.nodes, way.led, session.drain()) == (A, (B, C), False, [])
    way.told(B, Elsewhere("c", ("b", "c")))
    assert (way.node, way.led) == (C, True)


def test_node_that_leads_after_all_is_asked_again_at_once() -> None:
    way, session = make()
    way.told(A, Elsewhere("a", ("a", "b")))
    assert session.drain() == redial(0.0)


def test_lost_leader_is_tried_once_more_when_it_is_named() -> None:
    """REP-5: then it waits for news instead."""
    way, session = make()
    way.gone(A)
    assert way.node == B
    session.drain()
    way.told(B, Elsewhere("a", ("a", "b", "c")))
    assert way.node == A
    way.gone(A)
    assert way.node == C
    session.drain()
    way.told(C, Elsewhere("a", ("a", "b", "c")))
    assert (way.node, session.drain()) == (C, redial(0.6))
    way.timeout(Redial("g"))
    assert (way.node, session.redialed) == (B, [way])


ALL = ("a", "b", "c")


def lost_twice() -> Whereabouts:
    """Return a client at c that lost a, went there once more, and lost it again."""
    way, _ = make()
    way.gone(A)
    way.told(B, Elsewhere("a", ALL))
    way.gone(A)
    assert way.node == C
    return way


def test_node_that_was_lost_since_is_tried_once_more() -> None:
    way = lost_twice()
    way.gone(C)
    way.told(B, Elsewhere("c", ALL))
    assert way.node == C


def test_lost_node_is_tried_again_when_another_one_was_tried_meanwhile() -> None:
    way = lost_twice()
    way.told(C, Elsewhere("b", ALL))
    way.told(B, Elsewhere("a", ALL))
    assert way.node == A


def test_answer_shows_that_somebody_leads() -> None:
    way, _ = make()
    assert way.led
    way.told(A, Elsewhere("", ALL))
    assert not way.led
    way.found()
    assert way.led


@pytest.mark.parametrize(("dice", "pause"), [(None, 0.6), (LowDice(), 0.3)])
def test_without_a_leader_it_waits_where_it_is(dice: Any, pause: float) -> None:
    way, session = make(rng=dice)
    way.told(A, Elsewhere("", ("a", "b", "c")))
    assert (way.node, way.astray, session.drain()) == (A, True, redial(pause))


@pytest.mark.parametrize(
    ("astray", "leader", "node"),
    [(False, "d", B), (True, "", B), (True, "b", B), (True, "a", B), (True, "d", D)],
)
def test_hint_of_home_counts_while_nobody_of_the_group_is_found(
    astray: bool, leader: str, node: NodeId
) -> None:
    way, session = make()
    way.gone(A)
    session.drain()
    way.astray = astray
    way.hint(leader, (B, D))
    assert (way.node, way.nodes) == (node, (B, D) if astray else (A, B, C))
    assert session.drain() == (redial(0.1) if node == D else [])


@pytest.mark.parametrize("of_ring", [False, True])
@pytest.mark.parametrize("astray", [False, True])
@pytest.mark.parametrize("owes", [False, True])
@pytest.mark.parametrize("silence", [0.125, 0.25])
def test_silence_of_a_node_that_owes_an_answer_is_noticed(
    of_ring: bool, astray: bool, owes: bool, silence: float
) -> None:
    """REP-5: one without a leader waits for news; a process of a ring should answer."""
    way, session = make()
    way.of_ring, way.astray = of_ring, astray
    session.now += silence
    timer = [Later(2.0 if of_ring else 0.25, AskAround("g"))]
    noticed = owes and silence == 0.25 and (of_ring or not astray)
    way.look(owes=owes)
    assert session.drain() == (timer if noticed else [])
    way.look(owes=owes)
    assert session.drain() == []


def silent(*nodes: NodeId, of_ring: bool = False) -> tuple[Whereabouts, StandIn]:
    way, session = make(*nodes)
    way.of_ring = of_ring
    session.now += 1.0
    session.owed.append(way)
    way.look(owes=True)
    session.drain()
    return way, session


def test_others_are_asked_ten_times_a_second() -> None:
    """REP-5"""
    way, session = silent()
    asked = [Send(node, LookGroup(0)) for node in (B, C)]
    for _ in range(2):
        way.timeout(AskAround("g"))
        assert session.drain() == [*asked, Later(0.1, AskAround("g"))]


@pytest.mark.parametrize("heard", [False, True])
def test_nobody_is_asked_when_the_node_was_heard_or_owes_nothing(heard: bool) -> None:
    way, session = silent()
    if heard:
        way.heard = session.now
    else:
        session.owed.clear()
    way.timeout(AskAround("g"))
    assert session.drain() == []
    way.seen(view("b", "c"))
    assert (way.node, session.drain()) == (A, [])


@pytest.mark.parametrize(
    ("node", "leader", "moved"), [("b", "c", True), ("a", "c", False), ("b", "", False)]
)
def test_leader_that_another_node_follows_is_gone_to(node: str, leader: str, moved: bool) -> None:
    """REP-5"""
    way, session = silent()
    way.seen(view(node, leader))
    assert (way.node, session.drain()) == ((C, redial(0.01)) if moved else (A, []))


def test_silent_process_of_a_ring_is_left_and_the_next_given_its_time() -> None:
    """REP-4"""
    way, session = silent(A, B, of_ring=True)
    way.timeout(AskAround("g"))
    assert (way.node, way.heard, session.drain()) == (B, session.now, redial(0.01))
    way, session = silent(A, of_ring=True)
    way.timeout(AskAround("g"))
    assert (way.node, way.heard, session.drain()) == (A, 100.0, [])
    way.look(owes=True)
    assert session.drain() == [Later(2.0, AskAround("g"))]  # and it is noticed again
