"""Test the exact effects of each input to a mover. REP-6"""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from oncecast.broker import moves as do
from oncecast.broker.answered import Answered
from oncecast.broker.events import Execute, Executed
from oncecast.broker.holdings import ActiveClaim, Frozen, Holdings, PeerGroup
from oncecast.broker.state import Moved
from oncecast.dht.identifiers import after, key_of
from oncecast.kernel.protocol import Ask, Effect, Later, NodeId, Send
from oncecast.replication.events import LeaderChanged, Missing
from oncecast.ring import exporter
from oncecast.ring.events import GroupFacts, KeyOwner, RetireGroup, WhereIs, WhoseKey
from oncecast.ring.mover import Mover, Pace
from oncecast.ring.moves import (
    Abandoned,
    Adopted,
    Export,
    Exported,
    ExportRefused,
    ImportAll,
    NotLeader,
    Pull,
    Pulled,
    PulledParts,
    PullParts,
    Released,
    StillWanted,
    Survey,
    Surveyed,
    TopicEnds,
)
from oncecast.security.access import OPEN
from oncecast.wire import commands, errors
from oncecast.wire.results import MoveStep

ME, PEER, LOOKUP = NodeId("a:1/g"), NodeId("b:1/g"), NodeId("a:1")
X, Y = NodeId("x:1/h"), NodeId("y:1/h")
OTHER = PeerGroup("h", (X, Y))
AT, LOW = key_of("g"), key_of("low")
CLAIM = ActiveClaim("m", OTHER)
FROZEN = Frozen("m", key_of("h"), OTHER)
FIRST = (1 << 48) + 1  # the first token of a mover


class Replica:
    """A mover with a fake group."""

    def __init__(self, holdings: Holdings | None, **options: Any) -> None:
        self.registry = SimpleNamespace(holdings=holdings, topics={}, level=1)
        self.sure = True
        self.service = SimpleNamespace(
            machine=SimpleNamespace(registry=self.registry),
            leading=True,
            leader=ME,
            group=SimpleNamespace(leads=lambda now: self.sure, nodes=lambda: (ME, PEER), applied=7),
            batch_at=self.batch_at,
        )
        self.missing: list[int] = []
        self.mover = Mover(
            ME, Random(1), service=cast("Any", self.service), process=LOOKUP, group="g", **options
        )
        self.mover.after = 5
        self.mover._neighbors.located(GroupFacts("h", None, X, (X, Y), 1))

    def batch_at(self, slot: int, topic: str) -> Any:
        if slot in self.missing:
            raise Missing(slot)
        return commands.Stage("source", 1, "part", "t", 1, 10, 0, b"%d" % slot)

    def pace(self, seconds: float = 0.0) -> list[Effect]:
        """Return the effects of the timer, except for its restart and report."""
        self.mover.now += seconds
        self.mover.timeout(Pace())
        timer, *effects = self.mover.drain()
        assert timer == Later(0.25, Pace())
        return [each for each in effects if not (isinstance(each, Send) and facts(each))]

    def hear(self, message: Any, sender: NodeId = X) -> list[Effect]:
        self.mover.receive(sender, message)
        return self.mover.drain()

    def done(self, token: int, done: bool = True) -> list[Effect]:
        self.mover.observe(Executed(token, MoveStep(done)))
        return self.mover.drain()


def facts(send: Send) -> bool:
    return isinstance(send.message, GroupFacts)


def holdings(**fields: Any) -> Holdings:
    made = Holdings("g", fields.pop("low", LOW))
    for name, value in fields.items():
        assert hasattr(made, name)
        setattr(made, name, value)
    return made


def execute(command: do.Move, token: int = FIRST) -> Ask:
    return Ask(Execute(token, command), 5)


def sent(to: NodeId, message: Any) -> Send:
    return Send(to, message, 5)


# -- timer --


def test_replica_reports_its_state_once_per_second() -> None:
    """REP-4: the report does not wait for the disk."""
    replica = Replica(holdings())
    replica.mover.start()
    assert replica.mover.drain() == [Later(0.25, Pace())]
    report = Send(LOOKUP, GroupFacts("g", LOW, ME, (ME, PEER), 7, False))
    for seconds, reported in ((0.0, [report]), (0.75, []), (0.25, [report])):
        replica.mover.now += seconds
        replica.mover.timeout(Pace())
        assert replica.mover.drain() == [Later(0.25, Pace()), *reported]


@pytest.mark.parametrize(
    ("fields", "retired"),
    [({}, False), ({"retired": True}, True), ({"retired": True, "claim": CLAIM}, False)],
)
def test_group_with_a_claim_is_not_reported_as_retired(
    fields: dict[str, Any], retired: bool
) -> None:
    """REP-6"""
    replica = Replica(holdings(**fields))
    replica.mover.report()
    (report,) = replica.mover.drain()
    assert report == Send(LOOKUP, GroupFacts("g", LOW, ME, (ME, PEER), 7, retired))


def test_moves_have_default_size_limits() -> None:
    mover = Replica(None).mover
    assert (mover.pull_bytes, mover.little_bytes) == (1 << 20, 1 << 18)


def test_new_group_is_founded_only_once() -> None:
    """REP-6: the mover's tokens are unique across layers."""
    replica = Replica(None)
    assert replica.pace() == [execute(do.Found("g", False))]
    assert replica.pace() == []
    replica.mover.observe(Executed(FIRST + 1, MoveStep(True)))
    assert replica.pace() == []
    replica.done(FIRST)
    assert replica.pace() == [execute(do.Found("g", False), FIRST + 1)]


@pytest.mark.parametrize(
    ("fields", "effects"),
    [
        ({}, []),
        ({"low": None}, [sent(LOOKUP, WhoseKey(AT))]),
        ({"retired": True}, [sent(LOOKUP, WhoseKey(after(AT)))]),
        ({"retired": True, "low": None}, []),
        ({"retired": True, "frozen": FROZEN}, []),
        ({"claim": CLAIM, "retired": True}, [execute(do.Abandon("m"))]),
        ({"claim": CLAIM}, [sent(X, Survey("m", LOW))]),
        ({"claim": CLAIM, "low": None}, [sent(X, Survey("m", AT))]),
        ({"claim": ActiveClaim("m", OTHER, True)}, [sent(X, Adopted("m"))]),
        ({"claim": ActiveClaim("m", OTHER, True), "retired": True}, [sent(X, Adopted("m"))]),
    ],
)
def test_only_a_leader_with_a_lease_advances_a_move(
    fields: dict[str, Any], effects: list[Effect]
) -> None:
    """REP-6"""
    replica = Replica(holdings(**fields))
    assert replica.pace() == effects
    for leading, sure in ((False, True), (True, False)):
        replica = Replica(holdings(**fields))
        replica.service.leading, replica.sure = leading, sure
        assert replica.pace() == []


def test_new_leader_restarts_the_survey() -> None:
    """REP-6"""
    replica = Replica(holdings(claim=CLAIM))
    survey = [sent(X, Survey("m", LOW))]
    assert replica.pace() == survey
    assert replica.pace() == []
    replica.mover.observe(LeaderChanged(ME))
    replica.mover.drain()
    assert replica.pace() == survey


def test_new_leader_starts_from_decided_state() -> None:
    """REP-6"""
    replica = Replica(holdings(claim=CLAIM, retired=True))
    assert replica.pace() == [execute(do.Abandon("m"))]
    replica.mover.observe(LeaderChanged(PEER))
    assert replica.mover.drain() == [Send(LOOKUP, GroupFacts("g", LOW, ME, (ME, PEER), 7, False))]
    replica.registry.holdings.claim = None
    assert replica.done(FIRST) == []  # proposed before the leader changed
    replica.registry.holdings.claim = CLAIM
    assert replica.pace() == [execute(do.Abandon("m"), FIRST + 1)]


# -- messages --


@pytest.mark.parametrize("leading", [False, True])
def test_replica_without_a_lease_names_the_leader(leading: bool) -> None:
    """REP-6"""
    replica = Replica(holdings())
    replica.service.leading, replica.sure = leading, not leading
    assert replica.hear(Survey("m", AT)) == [Send(X, NotLeader("m", ME, (ME, PEER)))]
    for message in (
        RetireGroup(),
        ImportAll(OTHER),
        KeyOwner(AT, GroupFacts("h", LOW, X, (X,), 1), 3),
    ):
        assert replica.hear(message, LOOKUP) == []


def test_group_answers_no_requests_before_it_is_founded() -> None:
    replica = Replica(None)
    assert replica.hear(Survey("m", AT)) == []
    assert replica.hear(RetireGroup(), LOOKUP) == []


@pytest.mark.parametrize(
    ("sender", "retired", "effects"),
    [
        ("a:1", False, [execute(do.Retire())]),
        ("b:1", False, [execute(do.Retire())]),
        ("c:1", False, []),
        ("a:1", True, []),
    ],
)
def test_group_retires_when_a_process_with_one_of_its_replicas_leaves(
    sender: str, retired: bool, effects: list[Effect]
) -> None:
    """REP-6"""
    assert Replica(holdings(retired=retired)).hear(RetireGroup(), NodeId(sender)) == effects


@pytest.mark.parametrize(
    ("group", "leader", "effects"),
    [
        ("h", X, [sent(X, ImportAll(PeerGroup("g", (ME, PEER))))]),
        ("h", "", []),
        ("g", ME, []),
    ],
)
def test_retired_group_asks_the_next_group_to_import_its_arc(
    group: str, leader: str, effects: list[Effect]
) -> None:
    """REP-6"""
    owner = GroupFacts(group, LOW, NodeId(leader), (X,), 1)
    replica = Replica(holdings(retired=True))
    assert replica.hear(KeyOwner(after(AT), owner, 3), LOOKUP) == effects


@pytest.mark.parametrize(
    ("fields", "owner", "processes", "claims"),
    [
        ({}, {}, 2, True),
        ({}, {}, 3, False),  # a ring of three processes needs three replicas
        ({}, {}, 9, False),
        ({"claim": CLAIM}, {}, 2, False),
        ({"low": LOW}, {}, 2, False),
        ({}, {"nodes": ()}, 2, False),
        ({}, {"group": "g"}, 2, False),
        ({}, {"key": LOW}, 2, False),
    ],
)
def test_only_a_complete_group_without_an_arc_claims_one(
    fields: dict[str, Any], owner: dict[str, Any], processes: int, claims: bool
) -> None:
    """REP-6: the claim names the owner's leader first."""
    replica = Replica(holdings(**{"low": None, **fields}))
    found = GroupFacts(owner.get("group", "h"), LOW, Y, owner.get("nodes", (X, Y)), 1)
    effects = replica.hear(KeyOwner(owner.get("key", AT), found, processes), LOOKUP)
    commands_ = [each.request.command for each in effects if isinstance(each, Ask)]  # type: ignore[attr-defined]
    assert [each.exporter for each in commands_] == ([PeerGroup("h", (Y, X))] if claims else [])


def test_group_with_three_replicas_is_complete() -> None:
    """REP-5"""
    replica = Replica(holdings(low=None))
    replica.service.group.nodes = lambda: (ME, PEER, NodeId("c:1/g"))
    assert replica.hear(KeyOwner(AT, GroupFacts("h", LOW, X, (X,), 1), 9), LOOKUP)


@pytest.mark.parametrize(
    ("fields", "claims"),
    [({}, True), ({"claim": CLAIM}, False), ({"retired": True}, False), ({"low": AT}, False)],
)
def test_only_an_idle_neighbour_imports_the_arc_from_a_leaving_group(
    fields: dict[str, Any], claims: bool
) -> None:
    """REP-6"""
    replica = Replica(holdings(**{"low": key_of("h"), **fields}))
    assert bool(replica.hear(ImportAll(OTHER))) == claims


@pytest.mark.parametrize(
    ("claim", "answer"),
    [
        (None, [Abandoned("m")]),
        (ActiveClaim("n", OTHER), [Abandoned("m")]),
        (ActiveClaim("m", OTHER), []),
        (ActiveClaim("m", OTHER, True), [Adopted("m")]),
    ],
)
def test_waiting_exporter_learns_the_result_of_the_move(
    claim: ActiveClaim | None, answer: list[Any]
) -> None:
    """REP-6"""
    replica = Replica(holdings(claim=claim))
    assert replica.hear(StillWanted("m")) == [sent(X, each) for each in answer]


# -- exporter --


def waiting(to: NodeId) -> list[Send]:
    return [sent(to, StillWanted("m")), sent(LOOKUP, WhereIs("h"))]


def test_silent_importer_replicas_are_reminded_in_turn_every_two_seconds() -> None:
    """REP-6"""
    z = NodeId("z:1/h")
    replica = Replica(holdings(frozen=Frozen("m", LOW, PeerGroup("h", (X, Y, z)))))
    for seconds, effects in (
        (1.75, []),
        (0.25, waiting(Y)),
        (1.75, []),
        (0.25, waiting(z)),
        (2.0, waiting(X)),
    ):
        assert replica.pace(seconds) == effects


def test_reminders_go_to_new_importer_replicas() -> None:
    """REP-6"""
    z = NodeId("z:1/h")
    found = GroupFacts("h", None, z, (z,), 1)
    replica = Replica(holdings(frozen=FROZEN))
    for message, sender in (
        (found, X),  # only the ring stack is trusted
        (GroupFacts("i", None, z, (z,), 1), LOOKUP),
        (GroupFacts("h", None, z, (), 1), LOOKUP),
    ):
        assert replica.hear(message, sender) == []
    assert replica.pace(2.0) == waiting(Y)
    assert replica.hear(found, LOOKUP) == []
    assert replica.pace(2.0) == waiting(z)


def test_part_is_thawed_when_its_importer_disappears() -> None:
    """REP-6"""
    replica = Replica(holdings(frozen=FROZEN))
    gone = GroupFacts("h", None, NodeId(""), (), 9, retired=True)
    assert replica.hear(gone, LOOKUP) == [execute(do.Thaw("m"))]


def test_reminder_follows_only_one_redirect_to_the_leader() -> None:
    """REP-6: two replicas may name each other as the leader."""
    replica = Replica(holdings(frozen=FROZEN))
    assert replica.hear(NotLeader("n", X, (X,))) == []
    assert replica.hear(NotLeader("m", NodeId(""), (X,))) == []
    for _ in range(2):
        assert replica.hear(NotLeader("m", X, (X,))) == [sent(X, StillWanted("m"))]
        assert replica.hear(NotLeader("m", Y, (Y,))) == []
        replica.pace(2.0)
    assert Replica(holdings()).hear(NotLeader("m", X, (X,))) == []
    assert Replica(None).hear(NotLeader("m", X, (X,))) == []


def given(monkeypatch: pytest.MonkeyPatch, frozen: Frozen | None, rows_max: int = 10) -> Replica:
    """Return an exporter whose metadata is ten bytes long."""
    assert exporter.ROWS_BYTES_MAX == 16 << 20
    monkeypatch.setattr(exporter, "ROWS_BYTES_MAX", rows_max)
    monkeypatch.setattr("oncecast.broker.state.moved_out", lambda *_: b"x" * 10)
    replica = Replica(holdings(frozen=frozen))
    replica.registry.clock = SimpleNamespace(trusted=1, now=2)
    replica.registry.last_topic_id, replica.registry.last_epoch = 3, 4
    replica.registry.answered, replica.registry.access = Answered(), OPEN
    return replica


def test_part_that_is_being_thawed_is_not_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    """REP-6: a late copy of the request arrives after the importer has abandoned the move."""
    replica = given(monkeypatch, FROZEN)
    assert replica.hear(Abandoned("m")) == [execute(do.Thaw("m"))]
    assert replica.hear(GIVE) == [sent(X, ExportRefused("m"))]


GIVE = Export("m", FROZEN.until, OTHER)
GIVEN = Exported("m", LOW, FROZEN.until, 1, 3, 4, b"x" * 10, 2)
ADOPT = do.Adopt("m", LOW, FROZEN.until, 1, 3, 4, b"x" * 10, 2)
REPORT = Send(LOOKUP, GroupFacts("g", LOW, ME, (ME, PEER), 7, False))


@pytest.mark.parametrize(
    ("rows_max", "effects"),
    [(10, [sent(X, GIVEN)]), (9, [sent(X, ExportRefused("m"))])],
)
def test_oversized_frozen_part_is_not_exported(
    rows_max: int, effects: list[Effect], monkeypatch: pytest.MonkeyPatch
) -> None:
    """REP-6"""
    assert given(monkeypatch, FROZEN, rows_max).hear(GIVE) == effects


@pytest.mark.parametrize(
    ("now", "effects"),
    [
        (holdings(frozen=FROZEN), [sent(X, GIVEN)]),
        (holdings(frozen=Frozen("n", LOW, OTHER)), []),
        (holdings(), []),
        (None, []),
    ],
)
def test_part_is_exported_only_if_it_is_frozen_for_this_move(
    now: Holdings | None, effects: list[Effect], monkeypatch: pytest.MonkeyPatch
) -> None:
    """REP-6"""
    replica = given(monkeypatch, None)
    monkeypatch.setattr(Holdings, "may_export", lambda *_: True)
    assert replica.hear(GIVE) == [execute(do.Freeze("m", FROZEN.until, OTHER))]
    replica.registry.holdings = now
    assert replica.done(FIRST) == effects


@pytest.mark.parametrize("frozen", [None, Frozen("n", LOW, OTHER), FROZEN])
def test_part_is_released_only_if_it_is_frozen_for_this_move(frozen: Frozen | None) -> None:
    """REP-6"""
    replica = Replica(holdings(frozen=frozen))
    gone = [sent(X, Released("m"))]
    if frozen is FROZEN:
        assert replica.hear(Adopted("m")) == [execute(do.Release("m"))]
        assert replica.done(FIRST) == gone
    else:
        assert replica.hear(Adopted("m")) == gone


def test_staged_parts_are_pulled_while_readable_and_within_the_limit() -> None:
    """REP-6"""
    parts = {
        name: SimpleNamespace(slot=at, topic="t", count=at, size=100, time=50 + at)
        for at, name in enumerate("abcd", 1)
    }
    source = SimpleNamespace(staged={1: parts})
    replica = Replica(holdings(), pull_bytes=200)
    replica.mover.holdings.sources["s"] = cast("Any", source)  # type: ignore[union-attr]

    def pulled(names: str, key: str = "s", number: int = 1) -> list[str]:
        pull = PullParts("m", tuple((key, number, name) for name in names))
        effects = replica.hear(pull)
        if not effects:
            return []
        batches = tuple(
            do.Import("m", "t", 0, -1, at, 100, 50 + at, 0, -1, replica.batch_at(at, "t"))
            for at in (1 + "abcd".index(name) for name in names[:2])
            if at not in replica.missing
        )
        (only,) = effects
        assert isinstance(only, Send)
        assert isinstance(only.message, PulledParts)
        batches = batches[: len(only.message.batches)]
        assert effects == [sent(X, PulledParts("m", batches))]
        return list(names[: len(batches)])

    assert pulled("a") == ["a"]
    assert pulled("abcd") == ["a", "b"]
    assert pulled("xa") == pulled("a", key="r") == pulled("a", number=2) == []
    replica.mover.pull_bytes = 101
    assert pulled("abc") == ["a", "b"]
    replica.missing.append(2)
    assert pulled("ba") == []
    assert pulled("abd") == ["a"]


# -- importer --


def test_importer_asks_another_exporter_replica_after_a_second_of_silence() -> None:
    """REP-6"""
    replica = Replica(holdings(claim=CLAIM))
    survey = Survey("m", LOW)
    assert replica.pace() == [sent(X, survey)]
    for seconds, to in ((0.75, None), (0.25, Y), (0.75, None), (0.25, X)):
        asked = [] if to is None else [sent(to, survey), sent(LOOKUP, WhereIs("h"))]
        assert replica.pace(seconds) == asked


def test_importer_follows_a_redirect_and_remembers_the_replicas() -> None:
    """REP-6"""
    replica = Replica(holdings(claim=CLAIM))
    survey, z = Survey("m", LOW), NodeId("z:1/h")
    replica.pace()
    assert replica.hear(NotLeader("n", Y, (Y,))) == []
    assert replica.hear(NotLeader("m", NodeId(""), (z, X))) == []
    assert replica.hear(NotLeader("m", X, (z, X))) == []  # X is the current contact
    assert replica.hear(NotLeader("m", Y, (z, X))) == [sent(Y, survey)]
    asked = [replica.pace(1.0)[0] for _ in range(3)]
    assert asked == [sent(z, survey), sent(X, survey), sent(Y, survey)]


def test_importer_asks_the_first_known_replica_after_an_unknown_replica() -> None:
    replica = Replica(holdings(claim=CLAIM))
    replica.pace()
    replica.hear(NotLeader("m", NodeId("stranger"), ()))
    assert replica.pace(1.0)[0] == sent(X, Survey("m", LOW))


def test_importer_pulls_batches_after_the_last_survey_page() -> None:
    """REP-6"""
    replica = Replica(holdings(claim=CLAIM))
    replica.pace()
    topics = (TopicEnds("a", 1, 0, 0), TopicEnds("b", 2, 3, 9))
    assert replica.hear(Surveyed("n", "", topics, True)) == []  # the answer is from another move
    assert replica.hear(Surveyed("m", "x", topics, True)) == []  # the answer is for another request
    assert replica.hear(Surveyed("m", "", topics, True)) == [sent(X, Survey("m", LOW, "b"))]
    assert replica.hear(Surveyed("m", "b", (), True)) == [sent(X, Pull("m", "b", 2, 3))]
    assert replica.hear(Surveyed("m", "b", (), False)) == []
    assert Replica(holdings()).hear(Surveyed("m", "", topics, True)) == []
    assert Replica(holdings(claim=CLAIM)).hear(Surveyed("m", "", topics, True)) == []


def test_abandoned_move_is_reported_to_the_replica_asked_last() -> None:
    """REP-6"""
    replica = Replica(holdings(claim=CLAIM))
    replica.pace()
    replica.pace(1.0)
    gone = GroupFacts("h", None, NodeId(""), (), 9, retired=True)
    assert replica.hear(GroupFacts("i", None, NodeId(""), (), 9, retired=True), LOOKUP) == []
    assert replica.hear(gone, LOOKUP) == [execute(do.Abandon("m"))]
    replica.registry.holdings.claim = None
    assert replica.done(FIRST) == [sent(Y, Abandoned("m"))]


@pytest.mark.parametrize(
    ("now", "reported"), [(None, True), (ActiveClaim("n", OTHER), True), (CLAIM, False)]
)
def test_exporter_learns_of_an_abandoned_move_only_after_the_decision(
    now: ActiveClaim | None, reported: bool
) -> None:
    """REP-6"""
    replica = Replica(holdings(claim=CLAIM, retired=True))
    assert replica.pace() == [execute(do.Abandon("m"))]
    replica.registry.holdings.claim = now
    assert replica.done(FIRST) == ([sent(X, Abandoned("m"))] if reported else [])


def imported(size: int, topic: str = "a") -> do.Import:
    stage = commands.Stage("source", 1, "part", topic, 1, size, 0, b"")
    return do.Import("m", topic, 1, 0, 1, size, 50, 0, -1, stage)


@pytest.mark.parametrize(
    ("sizes", "rounds"), [([10], 0), ([11, 10], 1), ([11, 11, 0], 2), ([11] * 9, 8)]
)
def test_importer_copies_in_rounds_until_few_bytes_are_new(sizes: list[int], rounds: int) -> None:
    """REP-6: the importer takes at most eight rounds while clients put messages."""
    replica = Replica(holdings(claim=CLAIM), little_bytes=10)
    survey, pull = sent(X, Survey("m", LOW)), sent(X, Pull("m", "a", 1, 0))
    effects = replica.pace()
    for number, size in enumerate(sizes):
        assert effects == [survey]
        assert replica.hear(Surveyed("m", "", (TopicEnds("a", 1, 0, 1),), False)) == [pull]
        batch, token = imported(size), FIRST + number
        assert replica.hear(Pulled("m", "a", 0, (batch,))) == [execute(batch, token)]
        assert replica.hear(Pulled("m", "a", 0, (batch,))) == []  # the pull is answered
        assert replica.hear(NotLeader("m", Y, (Y,))) == []
        assert replica.done(token) == [pull]
        effects = replica.hear(Pulled("m", "a", 0, ()))
    assert effects == [sent(X, Export("m", LOW, PeerGroup("g", (ME, PEER))))]
    assert len(sizes) == rounds + 1


@pytest.mark.parametrize(("topic_id", "offset"), [(2, 5), (9, 3)])
def test_copies_with_another_topic_id_are_pulled_again(topic_id: int, offset: int) -> None:
    """REP-6"""
    replica = Replica(holdings(claim=CLAIM))
    replica.registry.holdings.incoming["b"] = SimpleNamespace(
        id=topic_id, index=SimpleNamespace(next=5)
    )
    replica.pace()
    surveyed = Surveyed("m", "", (TopicEnds("b", 2, 3, 9),), False)
    assert replica.hear(surveyed) == [sent(X, Pull("m", "b", 2, offset))]


def test_staged_parts_are_pulled_64_at_a_time_before_the_adoption(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """REP-6: the importer adopts nothing while one of its own parts is frozen."""
    names = [("s", 1, f"{each:02}") for each in range(66)]
    monkeypatch.setattr("oncecast.broker.state.moved_in", lambda *_: Moved([], {}, (), OPEN))
    monkeypatch.setattr("oncecast.ring.importer.names_of_parts", lambda *_: names)
    monkeypatch.setattr(Holdings, "may_export", lambda *_: True)
    replica = Replica(holdings(claim=CLAIM))
    own = replica.registry.holdings
    own.parts = {names[0]: None}
    replica.pace()
    replica.hear(Surveyed("m", "", (), False))
    assert replica.hear(GIVEN) == [sent(X, PullParts("m", tuple(names[1:65])))]
    batch = imported(10)
    assert replica.hear(PulledParts("m", (batch,))) == [execute(batch)]
    own.parts = dict.fromkeys(names)
    assert replica.hear(Export("n", FROZEN.until, OTHER))[0] == execute(
        do.Freeze("n", FROZEN.until, OTHER), FIRST + 1
    )
    assert replica.done(FIRST) == []
    replica.done(FIRST + 1)
    own.frozen = Frozen("n", LOW, OTHER)
    assert replica.pace() == []
    own.frozen = None
    assert replica.pace() == [execute(ADOPT, FIRST + 2)]


def test_answers_for_an_abandoned_claim_are_dropped() -> None:
    """REP-6"""
    replica = Replica(holdings(claim=CLAIM))
    replica.pace()
    replica.hear(Surveyed("m", "", (TopicEnds("a", 1, 0, 1),), False))
    replica.hear(Pulled("m", "a", 0, (imported(1),)))
    replica.registry.holdings.claim = None
    assert replica.hear(Surveyed("m", "", (), False)) == []
    assert replica.done(FIRST) == []


def test_import_decided_without_holdings_sends_no_request() -> None:
    replica = Replica(holdings(claim=CLAIM))
    replica.pace()
    replica.hear(Surveyed("m", "", (TopicEnds("a", 1, 0, 1),), False))
    replica.hear(Pulled("m", "a", 0, (imported(1),)))
    replica.registry.holdings = None
    assert replica.done(FIRST) == []


def test_abandoned_second_move_is_reported_to_the_first_replica_in_its_exporter() -> None:
    """REP-6: the contact of the earlier move is forgotten."""
    replica = Replica(holdings(claim=CLAIM))
    replica.pace()
    replica.pace(1.0)
    replica.registry.holdings.claim = ActiveClaim("n", OTHER)
    gone = GroupFacts("h", None, NodeId(""), (), 9, retired=True)
    assert replica.hear(gone, LOOKUP) == [execute(do.Abandon("n"))]
    replica.registry.holdings.claim = None
    assert replica.done(FIRST) == [sent(X, Abandoned("n"))]


def test_refused_move_command_is_proposed_again() -> None:
    """REP-6"""
    replica = Replica(None)
    assert replica.pace() == [execute(do.Found("g", False))]
    replica.mover.observe(Executed(FIRST, errors.NotHere("t")))
    replica.mover.drain()
    assert replica.pace() == [execute(do.Found("g", False), FIRST + 1)]


def test_exporter_ignores_a_redirect_for_the_claim() -> None:
    """REP-6"""
    replica = Replica(holdings(claim=CLAIM, frozen=FROZEN))
    replica.pace()
    assert (
        replica.hear(NotLeader("m", X, (X,))) == []
    )  # X is the contact of the importer; the exporter sends no reminder


@pytest.mark.parametrize(("space", "pulled"), [(100, 1), (101, 2), (200, 2), (201, 3)])
def test_batches_are_pulled_up_to_the_byte_limit(space: int, pulled: int) -> None:
    """REP-6: the last batch may exceed it."""
    entries = [
        SimpleNamespace(slot=at, offset=at, messages=1, size=100, time=50, skip=0, sequence=at)
        for at in range(4)
    ]
    replica = Replica(holdings(), pull_bytes=space)
    index = SimpleNamespace(entries=lambda offset: entries[offset:])
    replica.registry.topics["t"] = SimpleNamespace(id=2, index=index)
    batches = tuple(
        do.Import("m", "t", 2, at, 1, 100, 50, 0, at, replica.batch_at(at, "t"))
        for at in range(pulled)
    )
    assert replica.hear(Pull("m", "t", 2, 0)) == [sent(X, Pulled("m", "t", 0, batches))]
    assert replica.hear(Pull("m", "t", 3, 0)) == [sent(X, Pulled("m", "t", 0, ()))]


@pytest.mark.parametrize(
    ("now", "done", "effects"),
    [
        (CLAIM, True, [REPORT]),
        (CLAIM, False, [execute(do.Abandon("m"), FIRST + 1), REPORT]),
        (ActiveClaim("n", OTHER), False, [REPORT]),
        (None, False, [REPORT]),
    ],
)
def test_part_that_cannot_be_adopted_is_abandoned(
    now: ActiveClaim | None, done: bool, effects: list[Effect], monkeypatch: pytest.MonkeyPatch
) -> None:
    """REP-6: the copies have a gap."""
    monkeypatch.setattr("oncecast.broker.state.moved_in", lambda *_: Moved([], {}, (), OPEN))
    replica = Replica(holdings(claim=CLAIM))
    replica.pace()
    replica.hear(Surveyed("m", "", (), False))
    assert replica.hear(GIVEN) == [execute(ADOPT)]
    assert replica.pace() == []
    replica.registry.holdings.claim = now
    assert replica.done(FIRST, done) == effects


def test_import_from_an_earlier_move_sends_no_request() -> None:
    """REP-6"""
    replica = Replica(holdings(claim=CLAIM))
    replica.pace()
    replica.hear(Surveyed("m", "", (TopicEnds("a", 1, 0, 1),), False))
    replica.hear(Pulled("m", "a", 0, (imported(1),)))
    replica.registry.holdings.claim = ActiveClaim("n", OTHER)
    assert replica.pace() == [sent(X, Survey("n", LOW))]
    assert replica.done(FIRST) == []


# -- exporters that send invalid data (SEC-1) --


@pytest.mark.parametrize("rows", [b"", b"\xff" * 30, b"\x91\x91\xa1x"])
def test_unreadable_metadata_aborts_the_move(rows: bytes) -> None:
    """SEC-1: otherwise it would crash the leader at every restart."""
    replica = Replica(holdings(claim=CLAIM))
    replica.pace()
    replica.hear(Surveyed("m", "", (), False))
    assert replica.hear(Exported("m", LOW, AT, 1, 3, 4, rows)) == [execute(do.Abandon("m"))]


@pytest.mark.parametrize(
    "change",
    [
        {"offset": 2**64 - 1},
        {"offset": -2},
        {"count": -1},
        {"size": 2**63},
        {"time": 2**64 - 1},
        {"topic_id": -1},
        {"skip": -1},
        {"sequence": -(2**63)},
        {"move": "n"},
    ],
)
def test_impossible_entries_are_not_imported(change: dict[str, Any]) -> None:
    """SEC-1: the index holds unsigned numbers."""
    entry = do.Import(
        "m", "b", 2, 3, 1, 100, 50, 0, 3, commands.Stage("s", 1, "p", "b", 1, 1, 0, b"")
    )
    replica = Replica(holdings(claim=CLAIM))
    replica.pace()
    replica.hear(Surveyed("m", "", (TopicEnds("b", 2, 3, 9),), False))
    forged = msgspec.structs.replace(entry, **change)
    effects = replica.hear(Pulled("m", "b", 3, (forged,)))
    assert not any(isinstance(each, Ask) for each in effects)
    assert entry.possible
