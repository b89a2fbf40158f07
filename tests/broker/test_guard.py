"""A node with users refuses requests that no rule allows, and reveals nothing (SEC-2)."""

from __future__ import annotations

from typing import Any

import pytest

from oncecast.broker.events import AccessApplied
from oncecast.kernel.protocol import NodeId
from oncecast.replication.events import HandOver
from oncecast.security.values import Rule
from oncecast.wire import commands as do
from oncecast.wire import results as done
from oncecast.wire.errors import Denied, InvalidArgument, NoSuchTopic
from oncecast.wire.frames import (
    AccessView,
    Answer,
    Call,
    Delivery,
    Elsewhere,
    Fetch,
    FlowEnded,
    Govern,
    GroupView,
    Look,
    LookAccess,
    LookGroup,
    Scan,
    Scanned,
    TokenView,
    View,
)
from tests.broker.desk import ANN, BOB, ME, packed
from tests.broker.guarded_desk import KEYS, ROOT, STRANGER, GuardedDesk

DENIED = Denied()


def put(epoch: int, sequence: int, *values: bytes, topic: str = "t", producer: str = "") -> do.Put:
    data = packed(*values)
    return do.Put(topic, producer or "bob", epoch, sequence, len(values), len(data), 0, data)


def fetch(epoch: int, offset: int = 0, ack: int = 0) -> Fetch:
    return Fetch("t", "ann", epoch, offset, ack, 100, 1 << 20)


def prepared() -> GuardedDesk:
    """Return a node where bob may put into `t`, and ann may read it."""
    desk = GuardedDesk()
    desk.secure()
    desk.allow("bob", "put", topic="t")
    desk.allow("ann", "read", topic="t")
    return desk


desk = pytest.fixture(prepared)


def opened(desk: GuardedDesk) -> int:
    return int(desk.call(BOB, do.OpenProducer("t", "bob", "inc", 0)).epoch)


def attached(desk: GuardedDesk) -> int:
    desk.call(ANN, do.Subscribe("t", "ann", do.FromEarliest(), 0))
    return int(desk.call(ANN, do.Attach("t", "ann", "inc")).epoch)


def test_all_requests_are_allowed_without_users() -> None:
    desk = GuardedDesk()
    assert isinstance(desk.call(STRANGER, do.CreateTopic("t", 0)), done.TopicCreated)
    assert isinstance(desk.send(STRANGER, LookAccess(1))[0], AccessView)
    assert not desk.denials


def test_allowed_requests_work_and_others_are_denied(desk: GuardedDesk) -> None:
    epoch = opened(desk)
    assert isinstance(desk.call(BOB, put(epoch, 0, b"a")), done.Appended)
    (delivery,) = desk.send(ANN, fetch(attached(desk)))
    assert isinstance(delivery, Delivery)
    assert desk.call(ANN, do.OpenProducer("t", "ann", "inc", 0)) == DENIED
    assert desk.call(BOB, do.Subscribe("t", "bob", do.FromNew(), 0)) == DENIED
    assert desk.call(BOB, do.DeleteTopic("t", 0)) == DENIED
    assert desk.call(STRANGER, put(epoch, 1, b"b")) == DENIED
    assert [(each.principal, each.request) for each in desk.denials] == [
        ("ann", "OpenProducer"),
        ("bob", "Subscribe"),
        ("bob", "DeleteTopic"),
        ("", "Put"),
    ]


def test_missing_topic_gets_the_same_refusal_as_an_existing_topic(desk: GuardedDesk) -> None:
    """SEC-2: a refusal does not reveal whether a topic exists."""
    desk.call(ROOT, do.CreateTopic("secret", 0))
    for topic in ("secret", "missing", "", "x" * 300):
        assert desk.call(ANN, do.DeleteTopic(topic, 0)) == DENIED
        assert desk.call(ANN, do.Attach(topic, "ann", "inc")) == DENIED
        assert desk.send(ANN, Scan(1, topic, do.FromNew())) == [Answer(1, DENIED)]
    assert desk.send(ANN, Look(1, "secret")) == desk.send(ANN, Look(1, "missing"))
    for name in ("secret", "missing"):
        asked = Fetch(name, "ann", 5, 0, 0, 1, 1)
        assert desk.send(ANN, asked) == [FlowEnded(name, "ann", 5, DENIED)]
    assert desk.call(ROOT, do.Attach("missing", "root", "inc")) == NoSuchTopic("missing")


def test_refused_call_is_not_replicated(desk: GuardedDesk) -> None:
    before = desk.service.machine.registry.last_slot
    desk.call(STRANGER, do.CreateTopic("t", 0))
    assert desk.service.machine.registry.last_slot == before


def test_client_cannot_use_another_users_name(desk: GuardedDesk) -> None:
    """SEC-2: a user cannot fence the producer or take over the subscription of another user."""
    epoch = opened(desk)
    desk.allow("ann", "put", topic="t")
    assert desk.call(ANN, do.OpenProducer("t", "bob", "evil", 0)) == DENIED
    assert desk.call(ANN, put(epoch, 0, b"forged")) == DENIED
    attached(desk)
    desk.allow("bob", "read", topic="t")
    assert desk.call(BOB, do.Attach("t", "ann", "evil")) == DENIED
    assert desk.call(BOB, do.Unsubscribe("t", "ann", 0)) == DENIED
    desk.allow("bob", name="ann")
    assert isinstance(desk.call(BOB, do.Attach("t", "ann", "shared")), done.Attached)


def test_list_contains_only_visible_topics(desk: GuardedDesk) -> None:
    for name in ("a", "t", "z"):
        desk.call(ROOT, do.CreateTopic(name, 0))
    desk.allow("bob", "manage", topic="z")

    def listed(client: NodeId) -> list[str]:
        (view,) = desk.send(client, Look(1))
        assert isinstance(view, View)
        return [topic.name for topic in view.topics]

    assert listed(ROOT) == ["a", "t", "z"]
    assert listed(ANN) == ["t"]
    assert listed(BOB) == ["z"]
    assert desk.send(STRANGER, Look(1)) == [Answer(1, DENIED)]


def test_list_limit_counts_only_visible_topics(desk: GuardedDesk) -> None:
    for name in ("a", "b", "t", "tt"):
        desk.call(ROOT, do.CreateTopic(name, 0))
    desk.allow("ann", "read", topic="tt")
    (view,) = desk.send(ANN, Look(1, limit=1))
    assert isinstance(view, View)
    assert ([topic.name for topic in view.topics], view.more) == (["t"], True)


def test_scan_requires_the_read_right(desk: GuardedDesk) -> None:
    opened(desk)
    assert isinstance(desk.send(ANN, Scan(1, "t", do.FromNew()))[0], Scanned)
    assert desk.send(BOB, Scan(1, "t", do.FromNew())) == [Answer(1, DENIED)]


def test_ack_requires_the_ack_right(desk: GuardedDesk) -> None:
    sequence = opened(desk)
    epoch = attached(desk)
    desk.call(BOB, put(sequence, 0, b"a", b"b"))
    assert desk.call(ANN, do.Ack("t", "ann", epoch, 1)) == DENIED
    assert isinstance(desk.send(ANN, fetch(epoch))[0], Delivery)
    assert desk.send(ANN, fetch(epoch, 2, ack=1)) == [FlowEnded("t", "ann", epoch, DENIED)]
    desk.allow("ann", "ack", topic="t")
    assert desk.call(ANN, do.Ack("t", "ann", epoch, 1)) == done.Acked(1)
    desk.disallow("ann", "ack", topic="t")
    # A Fetch that repeats the cursor moves nothing, so a reader without `ack` can continue.
    assert isinstance(desk.send(ANN, fetch(epoch, 1, ack=1))[0], Delivery)


def test_removed_rule_ends_open_flows(desk: GuardedDesk) -> None:
    """SEC-2: the flow ends even if credit remains."""
    sequence, epoch = opened(desk), attached(desk)
    desk.send(ANN, fetch(epoch))
    desk.disallow("ann", "read", topic="t")
    assert desk.took(ANN) == [FlowEnded("t", "ann", epoch, DENIED)]
    desk.call(BOB, put(sequence, 0, b"a"))
    assert desk.took(ANN) == []
    version = desk.service.machine.registry.access.version
    assert desk.events[-1] == AccessApplied(version)


def test_other_flows_survive_a_rule_change(desk: GuardedDesk) -> None:
    sequence, epoch = opened(desk), attached(desk)
    desk.send(ANN, fetch(epoch))
    desk.allow("bob", "read", topic="x")
    desk.call(BOB, put(sequence, 0, b"a"))
    assert isinstance(desk.took(ANN)[0], Delivery)


def test_publish_requires_the_put_right_on_every_topic_it_writes(desk: GuardedDesk) -> None:
    data = packed(b"a")
    stage = do.Stage("bob", 0, "part", "t", 1, len(data), 0, data)
    assert isinstance(desk.call(BOB, stage), done.Staged)
    desk.disallow("bob", "put", topic="t")
    publish = do.PublishStaged("bob", 0, ("part",), 0)
    assert desk.call(BOB, publish) == DENIED
    assert desk.call(ANN, publish) == DENIED
    desk.allow("bob", "put", topic="t")
    assert isinstance(desk.call(BOB, publish), done.Published)


def test_publish_through_another_topic_requires_rights_on_its_parts(desk: GuardedDesk) -> None:
    """SEC-2: outside a ring, a publish may name a topic other than those of its parts."""
    data = packed(b"a")
    desk.call(BOB, do.Stage("bob", 0, "part", "t", 1, len(data), 0, data))
    desk.allow("ann", name="bob")
    desk.allow("ann", "put", topic="other")
    for topic in ("other", ""):
        publish = do.PublishStaged("bob", 0, ("part",), 0, topic)
        assert desk.call(ANN, publish) == DENIED
    assert isinstance(desk.call(BOB, do.PublishStaged("bob", 0, ("part",), 0)), done.Published)


@pytest.mark.parametrize("name", ["", "ann", "anonymous", "0123456789abcdef"])
def test_client_without_the_put_right_cannot_create_a_source(desk: GuardedDesk, name: str) -> None:
    """SEC-2 SEC-3: otherwise empty publishes could fill the table of sources."""
    slot = desk.service.machine.registry.last_slot
    for command in (
        do.PublishStaged(name, 0, (), 0),
        do.DropStaged(name, 0),
        do.CloseSource(name, 0),
        do.Stage(name, 0, "part", "", 1, 1, 0, b"x"),
    ):
        assert desk.call(ANN, command) == DENIED
        assert desk.call(STRANGER, command) == DENIED
    registry = desk.service.machine.registry
    assert registry.last_slot == slot
    assert not registry.staging.sources


def test_only_administrators_change_users_and_groups(desk: GuardedDesk) -> None:
    rule = Rule("ann", ("admin",), "*")
    for command in (
        do.AddUser("x", KEYS),
        do.RemoveUser("root"),
        do.CreateToken("i", "ann", b"s", bytes(32), 0),
        do.RevokeToken("i"),
        do.Allow(rule),
        do.Disallow(Rule("root", ("admin",), "*")),
    ):
        assert desk.call(ANN, command) == DENIED
    assert desk.send(ANN, Govern(1, HandOver(ME))) == [Answer(1, DENIED)]
    assert desk.send(ANN, LookAccess(2)) == [Answer(2, DENIED)]
    assert isinstance(desk.send(ANN, LookGroup(3))[0], GroupView)
    assert desk.send(STRANGER, LookGroup(4)) == [Answer(4, DENIED)]


def test_invalid_user_is_refused_before_it_is_replicated(desk: GuardedDesk) -> None:
    before = desk.service.machine.registry.last_slot
    assert isinstance(desk.call(ROOT, do.AddUser("x" * 1000, KEYS)), InvalidArgument)
    assert desk.service.machine.registry.last_slot == before


def test_users_tokens_and_rules_are_listed_in_pages(desk: GuardedDesk) -> None:
    desk.secure_more(do.CreateToken("i", "ann", b"s", bytes(32), 0, lifetime_us=5))
    first: Any = desk.send(ROOT, LookAccess(1))[0]
    registry = desk.service.machine.registry
    assert first.users == ("root", "ann", "bob")
    assert first.tokens == (TokenView("i", "ann", registry.clock.now + 5),)
    assert first.rules == tuple(registry.access.rules.values())
    assert (first.version, first.next) == (registry.access.version, 0)
    for number in range(1000):
        desk.allow("ann" if number % 2 else "bob", "put", topic=f"more-{number}")
    first = desk.send(ROOT, LookAccess(1))[0]
    second: Any = desk.send(ROOT, LookAccess(2, first.next))[0]
    assert first.rules + second.rules == tuple(registry.access.rules.values())
    assert second.next == 0


@pytest.mark.parametrize("first", [2**63 - 1, 2**64 - 1, -1, -(2**63)])
def test_access_list_accepts_an_extreme_start_index(desk: GuardedDesk, first: int) -> None:
    """SEC-3: such a request once crashed the node."""
    view: Any = desk.send(ROOT, LookAccess(1, first))[0]
    assert (view.id, view.users) == (1, ("root", "ann", "bob") if first < 0 else ())
    assert view.next == 0


# Leaders.


def test_follower_redirects_a_request_instead_of_refusing_it(desk: GuardedDesk) -> None:
    """The follower may not know the latest rules. The leader checks the request."""
    desk.service.leader = NodeId("other")
    elsewhere = [Elsewhere("other", (ME,))]
    for message in (
        Call(1, do.DeleteTopic("t", 0)),
        Fetch("t", "ann", 1, 0, 0, 1, 1),
        Look(1, "t"),
        Scan(1, "t", do.FromNew()),
        LookAccess(1),
    ):
        assert desk.send(STRANGER, message) == elsewhere, message
    assert desk.send(STRANGER, LookGroup(1)) == [Answer(1, DENIED)]


def test_leader_without_a_lease_drops_a_denied_request(
    desk: GuardedDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next leader may have rules that allow the request. The client resends it."""
    monkeypatch.setattr(type(desk.service.group), "leads", lambda self, now: False)
    assert desk.send(STRANGER, Call(1, do.DeleteTopic("t", 0))) == []
    assert desk.send(STRANGER, Scan(1, "t", do.FromNew())) == []
    assert not desk.denials


def test_waiting_reads_are_dropped_when_rules_change(
    desk: GuardedDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = attached(desk)
    with monkeypatch.context() as patch:
        patch.setattr(type(desk.service.group), "leads", lambda self, now: False)
        assert desk.send(ANN, fetch(epoch)) == []
        assert desk.send(ANN, Scan(1, "t", do.FromNew())) == []
        desk.disallow("ann", "read", topic="t")
    desk.pass_time(1.0)
    assert desk.took(ANN) == []


def test_rules_survive_a_restart(desk: GuardedDesk) -> None:
    opened(desk)
    desk.restart()
    assert desk.call(ANN, do.DeleteTopic("t", 0)) == DENIED
    assert isinstance(desk.call(BOB, do.OpenProducer("t", "bob", "inc", 0)), done.Opened)


def test_executed_administrative_requests_are_reported(
    desk: GuardedDesk,
) -> None:
    """SEC-4"""
    desk.acts.clear()
    desk.call(ROOT, do.CreateTopic("t", 0))
    desk.call(ROOT, do.CreateToken("id", "bob", b"s" * 16, b"h" * 32, 0))
    desk.call(ROOT, do.RevokeToken("id"))
    desk.disallow("bob", "put", topic="t")
    desk.allow("bob", name="jobs*")
    desk.call(ROOT, do.RemoveUser("bob"))
    desk.send(ROOT, Govern(1, HandOver(NodeId("b:1"))))
    desk.send(ROOT, LookAccess(1))
    desk.call(ANN, do.Subscribe("t", "ann", do.FromEarliest(), 0))
    assert [(each.request, each.object or each.topic) for each in desk.acts] == [
        ("CreateTopic", "t"),
        ("CreateToken", "token id of bob"),
        ("RevokeToken", "token id"),
        ("Disallow", "rule bob put topics t"),
        ("Allow", "rule bob names jobs*"),
        ("RemoveUser", "user bob"),
        ("Govern", "leader b:1"),
    ]
    assert {(each.client, each.principal) for each in desk.acts} == {(ROOT, "root")}


def test_administrative_requests_without_users_are_reported_only_if_enabled() -> None:
    """SEC-4"""
    desk = GuardedDesk()
    desk.call(STRANGER, do.CreateTopic("t", 0))
    assert desk.acts == []
    desk.parts.guard.audits_open = True
    desk.call(STRANGER, do.DeleteTopic("t", 0))
    assert [(each.principal, each.request) for each in desk.acts] == [("", "DeleteTopic")]
