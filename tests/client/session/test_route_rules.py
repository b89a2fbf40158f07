"""Test the rules of a route: the exact effects of each input."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncecast.client.session.records import AskAround, Redial
from oncecast.client.session.route import Route
from oncecast.kernel.protocol import Later, NodeId, Send
from oncecast.wire.frames import Elsewhere, LookGroup
from tests.client.session.standin import StandIn
from tests.dice import LowDice

A, B, C, D = map(NodeId, "abcd")


def make(*nodes: NodeId, group: str = "g", **options: Any) -> tuple[Route, StandIn]:
    session = StandIn(**options)
    session.now = 100.0
    return Route(session, group, nodes or (A, B, C), session.routes, cast("Any", session)), session


def view(node: str, leader: str) -> Any:
    return SimpleNamespace(node=node, leader=leader)


def redial(seconds: float, group: str = "g") -> list[Later]:
    return [Later(cast("Any", pytest.approx(seconds)), Redial(group))]


def test_pause_grows_with_each_lost_link_until_a_node_answers() -> None:
    """REP-5"""
    route, session = make(group="")
    for _ in range(2):
        for pause in (0.01, 0.1, 0.2, 0.3, 0.4, 0.4):
            route.gone(route.node)
            assert session.drain() == redial(pause, "")
        assert route.astray
        route.found()
        assert not route.astray


@pytest.mark.parametrize("found", [False, True])
def test_group_is_abandoned_after_its_nodes_fail_more_than_twice_each(found: bool) -> None:
    """REP-5: the client then looks up the group again, through the route `entry`."""
    route, session = make()
    if found:
        for _ in range(6):
            route.gone(route.node)
        route.found()
    for _ in range(6):
        route.gone(route.node)
    assert session.given_up == []
    session.drain()
    route.gone(route.node)
    assert (session.given_up, session.drain()) == ([route], [])


def test_entry_is_never_abandoned() -> None:
    route, session = make(A, group="")
    for _ in range(20):
        route.gone(A)
    assert (session.given_up, route.node) == ([], A)


@pytest.mark.parametrize(("one", "other"), [(C, D), (D, C)])
def test_least_recently_tried_node_is_tried_next(one: NodeId, other: NodeId) -> None:
    """REP-5: untried nodes come first, in the order in which they were named."""
    route, session = make()
    route.gone(A)
    route.learn((A, B, one, other))
    visited = [route.node]
    for _ in range(5):
        route.gone(route.node)
        visited.append(route.node)
    assert visited == [B, one, other, A, B, one]
    assert session.left == [A, B, one, other, A, B]


def test_new_node_is_tried_before_a_failed_node() -> None:
    route, _ = make(A, B)
    route.gone(A)
    route.learn((A, B, D))
    route.gone(B)
    assert route.node == D


def test_node_that_returns_counts_as_new() -> None:
    route, _ = make()
    route.gone(A)
    route.learn((B, C))
    route.gone(B)
    route.learn((C, A, D))
    route.gone(C)
    assert route.node == A


@pytest.mark.parametrize(
    ("group", "named", "known"),
    [
        ("g", (D, B), (D, B)),
        ("g", (), (A, B, C)),
        ("", (D, B), (D, B, A, C)),
        ("g", tuple(f"n{number}" for number in range(65)), tuple(f"n{n}" for n in range(64))),
    ],
)
def test_group_keeps_the_latest_node_list_and_the_entry_keeps_all_nodes(
    group: str, named: tuple[str, ...], known: tuple[str, ...]
) -> None:
    route, _ = make(group=group)
    route.learn(named)
    assert route.nodes == known


def test_route_follows_a_redirect_and_learns_the_replicas() -> None:
    """REP-5"""
    route, session = make()
    route.elsewhere(A, Elsewhere("d", ("a", "d")))
    assert (route.node, route.nodes, route.led) == (D, (A, D), True)
    assert session.drain() == redial(0.01)


def test_hint_from_another_node_is_followed_only_while_the_route_is_lost() -> None:
    route, session = make()
    route.elsewhere(B, Elsewhere("c", ("b", "c")))
    assert (route.node, route.nodes, session.drain()) == (A, (A, B, C), [])
    route.astray = True
    route.elsewhere(B, Elsewhere("", ("b", "c")))
    assert (route.node, route.nodes, route.led, session.drain()) == (A, (B, C), False, [])
    route.elsewhere(B, Elsewhere("c", ("b", "c")))
    assert (route.node, route.led) == (C, True)


def test_node_that_becomes_leader_is_asked_again_at_once() -> None:
    route, session = make()
    route.elsewhere(A, Elsewhere("a", ("a", "b")))
    assert session.drain() == redial(0.0)


def test_lost_leader_is_tried_once_more_if_a_node_names_it() -> None:
    """REP-5: after that, the client waits for another leader."""
    route, session = make()
    route.gone(A)
    assert route.node == B
    session.drain()
    route.elsewhere(B, Elsewhere("a", ("a", "b", "c")))
    assert route.node == A
    route.gone(A)
    assert route.node == C
    session.drain()
    route.elsewhere(C, Elsewhere("a", ("a", "b", "c")))
    assert (route.node, session.drain()) == (C, redial(0.6))
    route.timeout(Redial("g"))
    assert (route.node, session.redialed) == (B, [route])


ALL = ("a", "b", "c")


def lost_twice() -> Route:
    """Return a route to node c that has lost its link to node a twice."""
    route, _ = make()
    route.gone(A)
    route.elsewhere(B, Elsewhere("a", ALL))
    route.gone(A)
    assert route.node == C
    return route


def test_node_lost_for_the_first_time_is_tried_once_more() -> None:
    route = lost_twice()
    route.gone(C)
    route.elsewhere(B, Elsewhere("c", ALL))
    assert route.node == C


def test_twice_lost_node_is_tried_again_after_another_node() -> None:
    route = lost_twice()
    route.elsewhere(C, Elsewhere("b", ALL))
    route.elsewhere(B, Elsewhere("a", ALL))
    assert route.node == A


def test_answer_implies_that_the_group_has_a_leader() -> None:
    route, _ = make()
    assert route.led
    route.elsewhere(A, Elsewhere("", ALL))
    assert not route.led
    route.found()
    assert route.led


@pytest.mark.parametrize(("dice", "pause"), [(None, 0.6), (LowDice(), 0.3)])
def test_route_without_a_leader_waits_at_its_node(dice: Any, pause: float) -> None:
    route, session = make(rng=dice)
    route.elsewhere(A, Elsewhere("", ("a", "b", "c")))
    assert (route.node, route.astray, session.drain()) == (A, True, redial(pause))


@pytest.mark.parametrize(
    ("astray", "leader", "node"),
    [(False, "d", B), (True, "", B), (True, "b", B), (True, "a", B), (True, "d", D)],
)
def test_hint_from_the_entry_is_followed_until_the_group_answers(
    astray: bool, leader: str, node: NodeId
) -> None:
    route, session = make()
    route.gone(A)
    session.drain()
    route.astray = astray
    route.hint(leader, (B, D))
    assert (route.node, route.nodes) == (node, (B, D) if astray else (A, B, C))
    assert session.drain() == (redial(0.1) if node == D else [])


@pytest.mark.parametrize("of_ring", [False, True])
@pytest.mark.parametrize("astray", [False, True])
@pytest.mark.parametrize("owes", [False, True])
@pytest.mark.parametrize("silence", [0.125, 0.25])
def test_unresponsive_node_is_detected(
    of_ring: bool, astray: bool, owes: bool, silence: float
) -> None:
    """REP-5: a client without a leader waits, but any ring process must answer."""
    route, session = make()
    route.of_ring, route.astray = of_ring, astray
    session.now += silence
    timer = [Later(2.0 if of_ring else 0.25, AskAround("g"))]
    noticed = owes and silence == 0.25 and (of_ring or not astray)
    route.look(owes=owes)
    assert session.drain() == (timer if noticed else [])
    route.look(owes=owes)
    assert session.drain() == []


def silent(*nodes: NodeId, of_ring: bool = False) -> tuple[Route, StandIn]:
    route, session = make(*nodes)
    route.of_ring = of_ring
    session.now += 1.0
    session.owed.append(route)
    route.look(owes=True)
    session.drain()
    return route, session


def test_other_nodes_are_asked_ten_times_per_second() -> None:
    """REP-5"""
    route, session = silent()
    asked = [Send(node, LookGroup(0)) for node in (B, C)]
    for _ in range(2):
        route.timeout(AskAround("g"))
        assert session.drain() == [*asked, Later(0.1, AskAround("g"))]


@pytest.mark.parametrize("heard", [False, True])
def test_other_nodes_are_not_asked_if_no_answer_is_missing(heard: bool) -> None:
    route, session = silent()
    if heard:
        route.heard = session.now
    else:
        session.owed.clear()
    route.timeout(AskAround("g"))
    assert session.drain() == []
    route.seen(view("b", "c"))
    assert (route.node, session.drain()) == (A, [])


@pytest.mark.parametrize(
    ("node", "leader", "moved"), [("b", "c", True), ("a", "c", False), ("b", "", False)]
)
def test_client_moves_to_the_leader_that_another_node_follows(
    node: str, leader: str, moved: bool
) -> None:
    """REP-5"""
    route, session = silent()
    route.seen(view(node, leader))
    assert (route.node, session.drain()) == ((C, redial(0.01)) if moved else (A, []))


def test_client_moves_on_from_a_silent_process() -> None:
    """REP-4"""
    route, session = silent(A, B, of_ring=True)
    route.timeout(AskAround("g"))
    assert (route.node, route.heard, session.drain()) == (B, session.now, redial(0.01))
    route, session = silent(A, of_ring=True)
    route.timeout(AskAround("g"))
    assert (route.node, route.heard, session.drain()) == (A, 100.0, [])
    route.look(owes=True)
    assert session.drain() == [Later(2.0, AskAround("g"))]  # the silence is detected again
