"""Test the exact effects of each input to a resolver (TXN-2)."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any, cast

from oncecast.broker.events import Execute, Executed
from oncecast.kernel.protocol import Ask, Later, NodeId, Send
from oncecast.replication.events import LeaderChanged
from oncecast.ring import resolver as module
from oncecast.ring.events import WhoseTopic
from oncecast.ring.resolver import (
    ASK_AFTER_US,
    EVERY,
    TOKENS,
    AskOutcomes,
    AskSettled,
    Outcome,
    Outcomes,
    Question,
    Resolver,
    Resume,
    Settled,
    Settlement,
)
from oncecast.wire.errors import NotHere
from oncecast.wire.frames import Owned
from oncecast.wire.results import MoveStep
from oncecast.wire.ring_transactions import (
    HOLD_US,
    Confirmed,
    ConfirmTransactions,
    ExpireTransaction,
    ResolveTransaction,
    Share,
)
from tests.broker.ring_desk import ELSEWHERE, SOURCE, RingDesk

ME, PROCESS = NodeId("a:1/g"), NodeId("a:1")
X, Y, STRANGER = NodeId("x:1/h"), NodeId("y:1/h"), NodeId("z:1/h")
U = Share("u", 9, 0)


class Replica:
    """A resolver on a machine that owns the tag `t`, and the effects of its last input."""

    def __init__(self) -> None:
        self.desk = RingDesk()
        self.owned = ["t"]
        registry = self.desk.machine.registry
        registry.elsewhere = lambda name: None if name in self.owned else NotHere(name)  # type: ignore[method-assign]
        self.leads, self.time = True, self.desk.now
        service = SimpleNamespace(
            machine=self.desk.machine,
            leading=True,
            group=SimpleNamespace(leads=lambda now: self.leads),
            expected_time=lambda: self.time,
        )
        self.resolver = Resolver(ME, Random(0), service=cast("Any", service), process=PROCESS)
        self.resolver.start()
        assert self.resolver.drain() == [Later(EVERY, Resume())]

    def turn(self) -> list[Any]:
        self.resolver.timeout(Resume())
        first, *rest = self.resolver.drain()
        assert first == Later(EVERY, Resume())
        return rest

    def hear(self, sender: NodeId, message: Any) -> list[Any]:
        self.resolver.receive(sender, message)
        return self.resolver.drain()

    def locate(self, tag: str = "orders", sender: NodeId = PROCESS) -> list[Any]:
        return self.hear(sender, Owned(tag, "h", X, (X, Y)))

    def question(self, *, late: bool = False) -> AskOutcomes:
        return AskOutcomes((Question(SOURCE, ELSEWHERE, "t", late),))

    @property
    def mine(self) -> Share:
        """Return the transaction 0 of this group as a coordinator."""
        return Share("t", self.desk.epoch, 0)


def holding(waited: int = ASK_AFTER_US) -> Replica:
    """Return a replica whose group has held a share for `waited` microseconds."""
    replica = Replica()
    replica.desk.prepare(outputs=replica.desk.output())
    replica.time += waited
    return replica


def deciding(*participants: Share) -> Replica:
    replica = Replica()
    replica.desk.decide(participants=participants or (U,))
    return replica


def execute(command: Any, token: int = TOKENS + 1) -> Ask:
    return Ask(Execute(token, command))


# Participants


def test_idle_group_asks_nothing() -> None:
    assert Replica().turn() == []


def test_group_looks_for_the_coordinator_of_a_share_that_it_holds() -> None:
    """TXN-2: a dead client leaves nothing undecided."""
    assert holding(ASK_AFTER_US - 1).turn() == []
    replica = holding()
    assert replica.turn() == [Send(PROCESS, WhoseTopic("orders"))]
    assert replica.locate() == [Send(X, replica.question())]


def test_question_is_late_once_the_share_was_held_for_the_limit() -> None:
    replica = holding(HOLD_US - 1)
    replica.turn()
    assert replica.locate() == [Send(X, replica.question())]
    replica = holding(HOLD_US)
    replica.turn()
    assert replica.locate() == [Send(X, replica.question(late=True))]


def test_replicas_are_asked_in_turn_while_the_owner_has_no_known_leader() -> None:
    replica, asked = holding(), []
    for _ in range(2):
        replica.turn()
        (sent,) = replica.hear(PROCESS, Owned("orders", "h", "", (X, Y)))
        asked.append(sent.to)
    assert sorted(asked) == [X, Y]
    assert replica.hear(PROCESS, Owned("orders", "h", "", ())) == []


def test_only_the_own_process_names_the_owner_of_a_tag() -> None:
    replica = holding()
    replica.turn()
    assert replica.locate(sender=STRANGER) == []
    assert replica.hear(X, Outcomes((Outcome(SOURCE, ELSEWHERE, True),))) == []


def test_share_is_resolved_as_its_coordinator_has_decided() -> None:
    """TXN-2"""
    for committed in (True, False):
        replica = holding()
        replica.turn()
        replica.locate()
        resolve = ResolveTransaction(SOURCE, "t", replica.desk.epoch, 0, 0, committed)
        told = Outcomes((Outcome(SOURCE, ELSEWHERE, committed),))
        assert replica.hear(Y, told) == [execute(resolve)]
        assert replica.hear(X, told) == []  # in flight
        replica.resolver.observe(Executed(TOKENS + 1, MoveStep(True)))
        assert replica.hear(X, told) == [execute(resolve, TOKENS + 2)]
        replica.resolver.observe(LeaderChanged(ME))
        assert replica.hear(X, told) == [execute(resolve, TOKENS + 3)]


def test_outcome_counts_only_from_the_owner_and_for_this_share() -> None:
    """TXN-2: another node cannot publish or drop a share."""
    replica = holding()
    replica.turn()
    replica.locate()
    right = Outcome(SOURCE, ELSEWHERE, True)
    assert replica.hear(STRANGER, Outcomes((right,))) == []
    for wrong in (Share("orders", 8, 3), Share("orders", 7, 4), Share("other", 7, 3)):
        assert replica.hear(X, Outcomes((Outcome(SOURCE, wrong, True),))) == []
    assert replica.hear(X, Outcomes((Outcome("other", ELSEWHERE, True),))) == []
    replica.turn()  # the owner may have changed since
    assert replica.hear(X, Outcomes((right,))) == []


def test_replica_without_a_lease_is_silent() -> None:
    replica = holding()
    replica.turn()
    replica.locate()
    replica.leads = False
    assert replica.turn() == []
    assert replica.locate() == []
    assert replica.hear(X, Outcomes((Outcome(SOURCE, ELSEWHERE, True),))) == []
    assert replica.hear(X, AskSettled((Settlement(SOURCE, ELSEWHERE, replica.mine),))) == []
    assert replica.hear(X, replica.question()) == []


def test_group_tells_which_shares_it_has_settled() -> None:
    replica = holding()
    desk = replica.desk
    held = Settlement(SOURCE, ELSEWHERE, Share("t", desk.epoch, 0))
    older = Settlement(SOURCE, ELSEWHERE, Share("t", desk.epoch - 1, 0))
    other = Settlement(SOURCE, ELSEWHERE, Share("t", desk.epoch, 1))
    unknown = Settlement("other", ELSEWHERE, Share("t", 1, 0))
    elsewhere = Settlement(SOURCE, ELSEWHERE, Share("u", 1, 0))
    asked = AskSettled((held, older, other, unknown, elsewhere))
    assert replica.hear(X, asked) == [Send(X, Settled((older, other, unknown)))]
    assert replica.hear(X, AskSettled((held,))) == []
    desk.resolve(commit=True)
    assert replica.hear(X, AskSettled((held,))) == [Send(X, Settled((held,)))]


# Coordinator


def test_coordinator_tells_what_it_has_decided() -> None:
    replica = deciding()
    ask = AskOutcomes((Question(SOURCE, replica.mine, "u", late=True),))
    told = Outcomes((Outcome(SOURCE, replica.mine, True),))
    assert replica.hear(X, ask) == [Send(X, told)]
    replica.owned.clear()  # the tag is moving to another group
    assert replica.hear(X, ask) == []


def test_coordinator_tells_that_a_transaction_can_no_longer_commit() -> None:
    replica = Replica()
    gone = Share("t", replica.desk.epoch, 0)
    replica.desk.begin("inc-2")
    ask = AskOutcomes((Question(SOURCE, gone, "u", late=False), Question("x", gone, "u", False)))
    told = Outcomes((Outcome(SOURCE, gone, False), Outcome("x", gone, False)))
    assert replica.hear(X, ask) == [Send(X, told)]


def test_undecided_transaction_expires_at_the_late_question_of_a_participant() -> None:
    """TXN-2: an undecided transaction ends after a time limit."""
    replica = Replica()
    soon = AskOutcomes((Question(SOURCE, replica.mine, "u", late=False),))
    assert replica.hear(X, soon) == []
    late = AskOutcomes((Question(SOURCE, replica.mine, "u", late=True),))
    assert replica.hear(X, late) == [Send(PROCESS, WhoseTopic("u"))]
    expire = ExpireTransaction(SOURCE, "t", replica.desk.epoch, 0, 0)
    assert replica.locate("u") == [execute(expire)]


def test_stranger_cannot_expire_a_transaction() -> None:
    replica = Replica()
    late = AskOutcomes((Question(SOURCE, replica.mine, "u", late=True),))
    assert replica.hear(STRANGER, late) == [Send(PROCESS, WhoseTopic("u"))]
    assert replica.locate("u") == []
    assert replica.hear(STRANGER, late) == [Send(PROCESS, WhoseTopic("u"))]
    assert replica.hear(X, late) == [
        execute(ExpireTransaction(SOURCE, "t", replica.desk.epoch, 0, 0))
    ]


def test_decision_is_confirmed_by_the_owners_of_its_participants() -> None:
    """TXN-2: a decision is kept until all participants have published."""
    replica = deciding(U, Share("v", 9, 1))
    assert replica.turn() == [Send(PROCESS, WhoseTopic("u")), Send(PROCESS, WhoseTopic("v"))]
    asked = Settlement(SOURCE, replica.mine, U)
    assert replica.locate("u") == [Send(X, AskSettled((asked,)))]
    other = Settlement(SOURCE, replica.mine, Share("v", 9, 1))
    assert replica.hear(STRANGER, Settled((asked,))) == []
    confirmed = Confirmed(replica.desk.epoch, 0, ("u",))
    confirm = ConfirmTransactions(SOURCE, "t", (confirmed,))
    assert replica.hear(Y, Settled((asked, other))) == [execute(confirm)]


def test_group_that_owns_both_tags_needs_no_messages() -> None:
    replica = holding()
    replica.owned.append("orders")
    resolve = ResolveTransaction(SOURCE, "t", replica.desk.epoch, 0, 0, commit=False)
    assert replica.turn() == [execute(resolve)]  # the source is unknown at the coordinator
    replica = deciding()
    replica.owned.append("u")
    confirm = ConfirmTransactions(SOURCE, "t", (Confirmed(replica.desk.epoch, 0, ("u",)),))
    assert replica.turn() == [execute(confirm)]


def test_questions_and_turns_are_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "QUESTIONS_MAX", 2)
    monkeypatch.setattr(module, "TAGS_MAX", 1)
    replica = Replica()
    for number in range(3):
        replica.desk.decide(number, participants=(Share("u", 9, number), Share("v", 9, number)))
    found = [replica.turn(), replica.turn()]
    assert sorted(each[0].message.topic for each in found) == ["u", "v"]
    assert [len(each) for each in found] == [1, 1]
    (sent,) = replica.locate(found[1][0].message.topic)
    assert len(sent.message.settlements) == 2
