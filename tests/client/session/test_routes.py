"""Test that requests about a topic go to the group that owns it."""

from __future__ import annotations

from random import Random

import pytest

from oncecast.client.session import routes
from oncecast.client.session.local import (
    Do,
    Finished,
    Group,
    NoAnswer,
    Positioned,
    Produce,
    Read,
    Show,
    Stored,
    Survey,
)
from oncecast.client.session.route import ROUNDS
from oncecast.kernel.protocol import NodeId, Unwatch, Value, Watch
from oncecast.wire import commands as do
from oncecast.wire import errors, results
from oncecast.wire.frames import Call, Elsewhere, Look, LookGroup, Owned, Scan
from tests.client.session.lone import NODE, Lone, packed

A, B, C = NodeId("a:1/g"), NodeId("b:1/g"), NodeId("c:1/h")
DONE = results.TopicCreated(1, False)
NOWHERE = errors.NotHere("t")


def of_g(topic: str = "t", leader: str = A) -> Owned:
    return Owned(topic, "g", leader, (A, B))


def of_h(topic: str = "u") -> Owned:
    return Owned(topic, "h", C, (C,))


def create(topic: str, ticket: int = 1, timeout: float = 1000.0) -> Do:
    return Do(ticket, do.CreateTopic(topic, 0), timeout)


def shown(lone: Lone, owned: Owned) -> Lone:
    """Let the entry name the owner of a topic, then fire the timer that this sets."""
    return lone.hear(owned).wait(0.0)


def bound(*owned: Owned) -> Lone:
    """Return an idle session that has found these topics."""
    lone = Lone().start()
    for each in owned:
        call = lone.ask(create(each.topic)).call
        shown(lone, each)
        lone.answer(call, DONE, sender=NodeId(each.leader))
    return lone


def asked(lone: Lone, kind: type[Value]) -> list[NodeId]:
    return [to for to, message in lone.addressed if isinstance(message, kind)]


# Finding


def test_request_goes_to_the_group_that_owns_its_topic() -> None:
    """SVC-13"""
    lone = Lone().start().ask(create("t"))
    call = lone.call
    assert lone.addressed == [(NODE, call)]
    assert lone.hear(of_g()).outputs == [Watch(A)]
    assert lone.wait(0.0).addressed == [(A, call)]
    assert lone.answer(call, DONE, sender=A).events == [Finished(1, DONE)]


def test_only_requests_about_the_topic_go_to_its_group() -> None:
    lone = Lone().start()
    for ask in (
        create("t", 1),
        create("u", 2),
        Show(3, "t"),
        Survey(4, Scan(0, "t", do.FromNew())),
    ):
        lone.ask(ask)
    lone.ask(Show(5, prefix="t")).ask(Group(6))
    lone.ask(Produce(7, "t", 1, packed(b"a"))).ask(Read("t", "s"))
    shown(lone, of_g())
    kinds = [
        type(message.command if isinstance(message, Call) else message) for message in lone.sent
    ]
    assert kinds == [do.CreateTopic, Look, Scan, do.OpenProducer, do.Attach]
    assert {to for to, _ in lone.addressed} == {A}


def test_later_requests_go_directly_to_the_owning_group() -> None:
    lone = bound(of_g("t"), of_h("u"))
    assert asked(lone.ask(create("t")), Call) == [A]
    assert asked(lone.ask(create("u")), Call) == [C]
    assert asked(lone.ask(create("new")), Call) == [NODE]
    assert asked(lone.ask(Show(1, "t")), Look) == [A]
    assert asked(lone.ask(Show(1, prefix="t")), Look) == [NODE]
    assert asked(lone.ask(Group(1)), LookGroup) == [NODE]


def test_topics_in_the_same_group_share_a_link() -> None:
    lone = bound(of_g("t"))
    lone.ask(create("t2"))
    assert shown(lone, of_g("t2")).links == []
    assert asked(lone, Call) == [A]


def test_any_node_in_the_group_is_asked_if_its_leader_is_unknown() -> None:
    lone = Lone().start().ask(create("t"))
    call = lone.call
    assert shown(lone, of_g(leader="")).addressed == [(A, call)]
    assert lone.hear(Elsewhere(B, (A, B)), A).wait(0.1).addressed == [(B, call)]


def test_repeated_owner_answer_changes_nothing() -> None:
    lone = bound(of_g()).ask(create("t"))
    assert shown(lone, of_g()).outputs == []
    assert (
        shown(lone, Owned("t", "h", C, (C,))).outputs == []
    )  # only its current group can report a move
    assert asked(lone.ask(create("t")), Call) == [A]


@pytest.mark.parametrize(
    "owned",
    [Owned("", "g", A, (A,)), Owned("t", "", A, (A,)), Owned("t", "g", "", ())],
    ids=("no topic", "no group", "no node"),
)
def test_empty_owner_answer_is_dropped(owned: Owned) -> None:
    lone = Lone().start().ask(create("t"))
    assert shown(lone, owned).outputs == []


def test_owners_are_accepted_only_from_the_entry() -> None:
    lone = bound(of_g("t")).ask(create("u"))
    assert lone.hear(of_h(), A).wait(0.0).outputs == []
    assert lone.hear(of_h(), NodeId("stranger")).wait(0.0).outputs == []


# Groups change independently


def test_leader_change_does_not_affect_other_groups() -> None:
    """REP-3"""
    lone = bound(of_g("t"), of_h("u"))
    first = lone.ask(create("t")).call
    lone.ask(create("u")).ask(create("v"))
    lone.hear(Elsewhere(B, (A, B)), A)
    assert lone.outputs == [Unwatch(A)]
    assert lone.wait(0.1).addressed == [(B, first)]
    assert lone.links == [Watch(B)]


@pytest.mark.parametrize(("lost", "topic", "then"), [(A, "t", B), (C, "u", C), (NODE, "v", "a:1")])
def test_only_requests_on_the_lost_link_are_resent(lost: NodeId, topic: str, then: str) -> None:
    """SVC-13"""
    lone = bound(of_g("t"), of_h("u"))
    calls = {each: lone.ask(create(each)).call for each in "tuv"}
    assert lone.down(lost).addressed == [(then, calls[topic])]


def test_bound_topics_work_while_the_entry_is_down() -> None:
    """SVC-13"""
    lone = bound(of_g())
    for _ in range(5):
        assert lone.down(NODE).addressed == []
    call = lone.ask(create("t", 9)).call
    assert lone.answer(call, DONE, sender=A).events == [Finished(9, DONE)]


def test_only_nodes_in_a_silent_group_are_asked() -> None:
    lone = bound(of_g("t"), Owned("u", "h", C, (C, "d:1/h"))).ask(create("t"))
    assert set(asked(lone.wait(1.0), LookGroup)) == {B}


def test_missing_leader_is_reported_for_the_right_group() -> None:
    """SVC-7"""
    lone = bound(of_g("t"), of_h("u"))
    lone.ask(create("t", 1, timeout=0.1)).ask(create("u", 2, timeout=0.1))
    lone.hear(Elsewhere("", (A, B)), A)
    assert lone.wait(0.2).events == [
        Finished(1, NoAnswer(0.1, led=False)),
        Finished(2, NoAnswer(0.1, led=True)),
    ]


def test_bytes_on_other_links_do_not_extend_the_wait() -> None:
    lone = bound(of_g("t"), of_h("u")).ask(create("t"))
    lone.measure(lambda node: int(1000 * lone.now) if node == C else 0)
    assert A in asked(lone.wait(2.0), Call)


def test_entry_is_asked_again_if_a_group_is_unreachable() -> None:
    """The topics of the group may have moved, or all its nodes may have been replaced."""
    lone = bound(of_g())
    call = lone.ask(create("t")).call
    for _ in range(ROUNDS * 2):
        lone.down(lone.session.routes.of("t").node).wait(0.5)
        assert NODE not in asked(lone, Call)
    lone.down(lone.session.routes.of("t").node)
    assert (NODE, call) in lone.addressed
    new = NodeId("d:1/g")
    assert lone.hear(Owned("t", "g", new, (new,))).links == [Watch(new)]
    assert lone.wait(0.0).addressed == [(new, call)]


def test_unreachable_group_gets_new_nodes_from_the_entry() -> None:
    lone = bound(of_g()).ask(create("t"))
    lone.down(A)
    lone.ask(create("t2"))
    new = NodeId("d:1/g")
    assert Watch(new) in shown(lone, Owned("t2", "g", new, (new,))).wait(0.5).links
    assert lone.session.routes.of("t").nodes == (new,)


def test_entry_and_a_group_may_use_the_same_node() -> None:
    """The application may have named a replica. The link stays open while either uses it."""
    lone = Lone().start().ask(create("t"))
    call = lone.call
    assert shown(lone, Owned("t", "g", NODE, (NODE, B))).addressed == [(NODE, call)]
    lone.hear(Elsewhere(B, (NODE, B)), NODE)
    assert lone.links == []
    assert lone.wait(0.1).addressed == [(B, call)]


# The processes of a ring


def test_any_ring_process_can_be_the_entry() -> None:
    """SVC-13"""
    lone = bound(of_g())
    assert lone.session.entry.nodes == (NODE, "a:1", "b:1")
    call = lone.ask(create("u")).call
    assert lone.down(NODE).addressed == [("a:1", call)]


def test_client_moves_from_a_silent_process_to_the_next_process() -> None:
    lone = bound(of_g()).wait(10.0)
    call = lone.ask(create("u")).call
    lone.wait(3.0)
    assert asked(lone, LookGroup) == []
    assert [to for to, message in lone.addressed if message == call][-1] != NODE
    assert Unwatch(NODE) in lone.links


# Unused state


def test_unused_bindings_are_deleted_with_the_link_to_their_group() -> None:
    lone = bound(of_g("t"))
    assert lone.wait(routes.SWEEP_EVERY).links == []  # the binding was used in between
    assert lone.wait(routes.SWEEP_EVERY).links == [Unwatch(A)]
    assert asked(lone.ask(create("t")), Call) == [NODE]


def test_bindings_in_use_are_kept() -> None:
    lone = bound(of_g("t"), of_h("u"))
    call = lone.ask(Read("t", "s")).call
    lone.answer(call, results.Attached(3, 5, 0, 9, 0, 1), A)
    assert lone.events == [Positioned("t", "s", 5, 9, epoch=3)]
    lone.measure(lambda node: int(lone.now * 1000))  # so no request is sent again
    lone.ask(create("u")).wait(3 * routes.SWEEP_EVERY)
    assert lone.links == []
    assert asked(lone.ask(create("t")), Call) == [A]


def test_unused_bindings_and_links_are_dropped_above_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routes, "BOUND_MAX", 3)
    lone = bound(of_h("u"))
    waiting = lone.ask(create("u")).call
    for number in range(20):
        call = lone.ask(create(f"t{number}")).call
        shown(lone, Owned(f"t{number}", f"g{number}", f"n{number}", (f"n{number}",)))
        lone.answer(call, DONE, NodeId(f"n{number}"))
    assert len(lone.session.watched) <= 1 + 3
    assert asked(lone.ask(create("u")), Call) == [C]
    assert lone.answer(waiting, DONE, C).events == [Finished(1, DONE)]


def test_put_looks_up_the_group_again_after_its_binding_was_deleted() -> None:
    """SVC-2"""
    lone = bound(of_g("t"))
    opening = lone.ask(Produce(1, "t", 1, packed(b"a"))).call
    put = lone.answer(opening, results.Opened(4, 0, 1, (0, 0)), A).call
    assert lone.answer(put, results.Appended(0, 1, True), A).events == [Stored(1, 0, True)]
    lone.wait(2 * routes.SWEEP_EVERY)
    put = lone.ask(Produce(2, "t", 1, packed(b"b"))).call
    assert lone.addressed == [(NODE, put)]
    again = shown(lone, of_g()).call
    assert lone.addressed == [(A, Call(again.id, put.command))]
    assert lone.answer(again, results.Appended(1, 1, True), A).events == [Stored(2, 1, True)]


def scans(lone: Lone) -> list[Scan]:
    return [message for _, message in lone.addressed if isinstance(message, Scan)]


def test_scan_from_any_replica_starts_at_a_random_one_and_follows_a_redirect() -> None:
    """PIPE-1"""
    begun = set()
    for seed in range(20):
        lone = Lone(any_replica=True, rng=Random(seed)).start()
        lone.ask(Survey(1, Scan(0, "t", do.FromOffset(0), 5, 100, 7), 1000.0))
        assert [message.any_replica for message in scans(lone)] == [True]
        shown(lone, of_g())
        begun |= set(asked(lone, Scan))
        (first,) = asked(lone, Scan)
        leader = A if first == B else B
        lone.hear(Elsewhere(leader, (A, B)), first).wait(1.0)
        assert set(asked(lone, Scan)) == {leader}
    assert begun == {A, B}
