"""Test how routes bind topics to groups and look them up again at the entry."""

from __future__ import annotations

from random import Random
from typing import Any, cast

import pytest

from oncecast.client.session import routes as module
from oncecast.client.session.records import Rebound, Sweep
from oncecast.client.session.routes import Routes
from oncecast.kernel.protocol import Later, NodeId, Unwatch, Watch
from oncecast.wire.frames import Owned
from tests.client.session.standin import NODE, StandIn
from tests.dice import LowDice

A, B, C = NodeId("a:1/g"), NodeId("b:1/g"), NodeId("c:1/h")


def make(rng: Random | None = None) -> tuple[Routes, StandIn]:
    session = StandIn(rng)
    session.now = 100.0
    made = Routes(session, (NODE,), cast("Any", session), None)
    made.begin()
    assert session.drain() == [Watch(NODE)]
    return made, session


def bound(*topics: str) -> tuple[Routes, StandIn]:
    """Return routes that have bound these topics to group g."""
    made, session = make()
    for topic in topics:
        made.owned(Owned(topic, "g", A, (A, B)))
    made.timeout(Rebound())
    session.drain()
    session.resent.clear()
    return made, session


def test_session_starts_at_the_entry() -> None:
    made, _ = make()
    assert made.at == {NODE: made.entry}
    assert made.of("t") is made.bound_to("t") is made.to("") is made.entry
    assert made.to("g") is None


def test_topic_is_bound_to_its_group_and_its_requests_are_resent_at_once() -> None:
    """REP-4"""
    made, session = make()
    made.owned(Owned("t", "g", B, (A, B)))
    assert session.drain() == [Later(60.0, Sweep()), Watch(B), Later(0.0, Rebound())]
    route = made.of("t")
    assert (route.group, route.node, route.nodes) == ("g", B, (B, A))
    assert made.at == {NODE: made.entry, B: route}
    assert made.entry.nodes == (NODE, "a:1", "b:1")
    made.owned(Owned("u", "g", B, (A, B)))
    assert session.drain() == []  # one timer handles both topics
    made.timeout(Rebound())
    (about,) = session.resent
    assert [about(topic) for topic in ("t", "u", "v")] == [True, True, False]
    assert [made.whose(node) for node in (A, NODE, C)] == [route, made.entry, None]


@pytest.mark.parametrize(
    ("leader", "nodes", "node"), [("", (A, B), A), (B, (), B), (B, (A,), B), (A, (B,), A)]
)
def test_route_starts_at_the_leader_or_else_at_the_first_node(
    leader: str, nodes: tuple[str, ...], node: NodeId
) -> None:
    made, _ = make()
    made.owned(Owned("t", "g", leader, nodes))
    assert made.of("t").node == node


@pytest.mark.parametrize(
    "owned", [Owned("", "g", A, (A,)), Owned("t", "", A, (A,)), Owned("t", "g", "", ())]
)
def test_owner_answer_without_topic_group_or_node_is_dropped(owned: Owned) -> None:
    made, session = make()
    made.owned(owned)
    assert (session.drain(), made.entry.of_ring) == ([], False)


def test_new_processes_are_added_to_the_entry() -> None:
    """REP-4"""
    made, _ = bound("t")
    made.owned(Owned("u", "g", A, (A, NodeId("c:1/g"), NodeId("d"))))
    assert made.entry.nodes == (NODE, "a:1", "b:1", "c:1")


@pytest.mark.parametrize("group", ["g", "h"])
def test_lost_route_learns_new_group_nodes_from_the_entry(group: str) -> None:
    """REP-5: nodes of another group are ignored."""
    made, session = bound("t")
    route = made.of("t")
    route.astray = True
    made.owned(Owned("t", group, B, (B,)))
    assert made.of("t") is route
    assert (route.node, route.nodes) == ((B, (B,)) if group == "g" else (A, (A, B)))
    assert bool(session.drain()) == (group == "g")


def test_entry_is_asked_with_backoff_if_the_ring_is_inconsistent() -> None:
    """REP-6"""
    for rng, share in ((None, 1.0), (LowDice(), 0.5)):
        made, session = make(rng)
        pauses = []
        for _ in range(9):
            made.owned(Owned("t", "g", A, (A, B)))
            session.now += 8.0
            made.timeout(Rebound())
            session.drain()
            made.not_here("t", made.of("t"))
            (later,) = session.drain()
            assert isinstance(later, Later)
            pauses.append(later.delay)
            assert made.of("t") is made.entry
            session.now += later.delay
            made.timeout(Rebound())
            session.now -= later.delay
            session.drain()
        longest = [0.0, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 8.0, 8.0]
        assert pauses == pytest.approx([share * each for each in longest])


@pytest.mark.parametrize(("later", "pause"), [(15.0, 0.2), (16.0, 0.0)])
def test_old_lookup_miss_causes_no_backoff(later: float, pause: float) -> None:
    made, session = bound("t")
    made.not_here("t", made.of("t"))
    session.now += later
    made.timeout(Rebound())
    made.owned(Owned("t", "g", A, (A, B)))
    made.timeout(Rebound())
    session.drain()
    made.not_here("t", made.of("t"))
    assert session.drain() == [Later(cast("Any", pytest.approx(pause)), Rebound())]


def test_entry_is_asked_at_once_on_the_first_miss() -> None:
    made, session = bound("t")
    session.now = 1.0
    made.not_here("t", made.of("t"))
    assert session.drain() == [Later(0.0, Rebound())]


def test_not_here_answer_from_an_earlier_group_is_ignored() -> None:
    """REP-6"""
    made, session = bound("t")
    route = made.of("t")
    made.not_here("t", made.entry)
    assert made.of("t") is route
    made.not_here("t", route)
    session.drain()
    session.now += 1.0
    made.not_here("t", made.entry)  # the entry is being asked
    assert (session.drain(), made._misses["t"]) == ([], (100.0, 0))


def test_lookups_that_are_not_due_wait_for_the_next_timer() -> None:
    made, session = bound("t", "u")
    made._ask_again("t", 2.0)
    made._ask_again("u", 1.0)
    made._ask_again("v", 3.0)
    assert session.drain() == [Later(2.0, Rebound()), Later(1.0, Rebound())]
    session.now += 1.0
    made.timeout(Rebound())
    (about,) = session.resent
    assert [about(topic) for topic in ("t", "u", "v")] == [False, True, False]
    assert session.drain() == [Later(1.0, Rebound())]


def test_topics_in_an_unreachable_group_are_looked_up_again() -> None:
    """REP-5"""
    made, session = bound("t", "u")
    made.give_up(made.of("t"))
    assert session.drain() == [Later(0.0, Rebound()), Unwatch(A)]
    assert (made.of("t"), made.of("u"), list(made)) == (made.entry, made.entry, [made.entry])


def test_bindings_unused_for_a_minute_are_deleted() -> None:
    made, session = bound("t", "u", "v")
    session.used.add("u")
    made.timeout(Sweep())
    assert session.drain() == [Later(60.0, Sweep())]
    route = made.of("t")
    made.bound_to("v")  # a lookup does not count as a use
    made.timeout(Sweep())
    assert session.drain() == [Later(60.0, Sweep())]
    assert [made.bound_to(topic) for topic in ("t", "u", "v")] == [route, route, made.entry]
    session.used.clear()
    made.timeout(Sweep())
    assert session.drain() == [Unwatch(A)]
    assert session.resent == []


def test_old_lookup_misses_are_forgotten() -> None:
    made, session = bound("t", "u")
    made.not_here("t", made.of("t"))
    session.now += 1.0
    made.not_here("u", made.of("u"))
    session.now += 15.0
    made.timeout(Sweep())
    assert list(made._misses) == ["u"]


@pytest.mark.parametrize("limit", ["BOUND_MAX", "GROUPS_MAX"])
def test_unused_bindings_and_links_are_evicted(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If all bindings are in use, the limit is doubled until the next check."""
    assert (module.BOUND_MAX, module.GROUPS_MAX) == (10_000, 128)
    monkeypatch.setattr(module, limit, 3)
    made, session = make()
    counts = []
    for number in range(16):
        if number == 4:
            session.used.update(f"t{each}" for each in range(3, 13))
        made.owned(Owned(f"t{number}", f"g{number}", f"n{number}", (f"n{number}",)))
        counts.append(len(list(made)) - 1)
    assert counts == [1, 2, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 11]
