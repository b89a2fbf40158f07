"""Test the exact effects of each input to the owner lookup. REP-4"""

from __future__ import annotations

from random import Random
from typing import Any, cast

import pytest

from oncecast.dht.events import FindRoot, RootFound
from oncecast.dht.identifiers import Key, key_of
from oncecast.kernel.protocol import Ask, Cancel, Effect, Later, NodeId, Send
from oncecast.ring.events import GroupFacts, KeyOwner, Owner, WhoOwns, WhoseKey
from oncecast.ring.owner_lookup import Overdue, OwnerLookup
from oncecast.wire import commands as do
from oncecast.wire.errors import InvalidArgument
from oncecast.wire.frames import Answer, Call, Fetch, Look, Owned, Scan

ME, ROOT, ANN, BOB = NodeId("me:1"), NodeId("root:1"), NodeId("client/ann"), NodeId("client/bob")
KEY = key_of("t")
NODES = (NodeId("a:1/g"), NodeId("b:1/g"))
OWNER = GroupFacts("g", key_of("low"), NODES[1], NODES, 7)
OWNED = Owned("t", "g", NODES[1], NODES)
PUT = Call(1, do.Put("t", "p", 1, 0, 1, 1, 0, b""))


class Known:
    """A roster that knows at most one owner."""

    def __init__(self, owner: GroupFacts | None) -> None:
        self.found, self.cards = owner, {ME: None, ROOT: None}

    def owner(self, key: Key) -> GroupFacts | None:
        return self.found


def make(owner: GroupFacts | None = None) -> OwnerLookup:
    owner_lookup = OwnerLookup(ME, Random(1), roster=cast("Any", Known(owner)))
    owner_lookup._number = 0  # makes the numbers predictable
    return owner_lookup


def asked(number: int, key: Key = KEY) -> list[Effect]:
    return [Later(1.0, Overdue(key, number)), Ask(FindRoot(key))]


@pytest.mark.parametrize(
    "question",
    [PUT, Fetch("t", "s", 1, 0, 0, 1, 1), Look(1, "t"), Scan(1, "t", do.FromEarliest())],
)
def test_any_request_about_a_topic_is_answered_with_its_owner(question: Any) -> None:
    """REP-4: the process responsible for the key is a backup of the owner."""
    owner_lookup = make()
    owner_lookup.receive(ANN, question)
    assert owner_lookup.drain() == asked(1)
    owner_lookup.observe(RootFound(KEY, ROOT, 3, 0))
    assert owner_lookup.drain() == [Send(ROOT, WhoOwns(1, KEY))]
    owner_lookup.receive(ROOT, Owner(1, OWNER))
    assert owner_lookup.drain() == [Cancel(Overdue(KEY, 1)), Send(ANN, OWNED)]
    assert (owner_lookup.searched, owner_lookup.hops) == (1, 3)


def test_process_responsible_for_a_key_answers_from_its_own_directory() -> None:
    owner_lookup = make(OWNER)
    owner_lookup.receive(ANN, PUT)
    owner_lookup.drain()
    owner_lookup.observe(RootFound(KEY, ME, 0, 0))
    assert owner_lookup.drain() == [Cancel(Overdue(KEY, 1)), Send(ANN, OWNED)]


def test_requests_for_one_key_share_a_search() -> None:
    owner_lookup = make()
    for client in (ANN, BOB, ANN):
        owner_lookup.receive(client, PUT)
    owner_lookup.receive(NodeId("me:1/h"), WhoseKey(KEY))
    assert owner_lookup.drain() == asked(1)
    owner_lookup.observe(RootFound(KEY, ROOT, 3, 0))
    owner_lookup.drain()
    owner_lookup.receive(ROOT, Owner(1, OWNER))
    reported = [Send(ANN, OWNED), Send(BOB, OWNED)]
    replica = Send(NodeId("me:1/h"), KeyOwner(KEY, OWNER, 2))
    assert owner_lookup.drain() == [Cancel(Overdue(KEY, 1)), *reported, replica]


def test_process_without_a_known_owner_does_not_answer() -> None:
    owner_lookup = make(OWNER)
    owner_lookup.receive(ROOT, WhoOwns(5, KEY))
    assert owner_lookup.drain() == [Send(ROOT, Owner(5, OWNER))]
    owner_lookup = make()
    owner_lookup.receive(ROOT, WhoOwns(5, KEY))
    assert owner_lookup.drain() == []


def test_unanswered_search_falls_back_to_the_local_directory() -> None:
    owner_lookup = make(OWNER)
    owner_lookup.receive(ANN, PUT)
    owner_lookup.drain()
    owner_lookup.timeout(Overdue(KEY, 1))
    assert owner_lookup.drain() == [Cancel(Overdue(KEY, 1)), Send(ANN, OWNED)]


def test_search_without_a_result_can_be_repeated() -> None:
    owner_lookup = make()
    owner_lookup.receive(ANN, PUT)
    owner_lookup.drain()
    owner_lookup.timeout(Overdue(KEY, 1))
    assert owner_lookup.drain() == [Cancel(Overdue(KEY, 1))]
    owner_lookup.receive(ANN, PUT)
    assert owner_lookup.drain() == asked(2)


def test_answer_to_an_earlier_search_is_ignored() -> None:
    owner_lookup = make()
    owner_lookup.receive(ANN, PUT)
    owner_lookup.timeout(Overdue(KEY, 1))
    owner_lookup.receive(ANN, PUT)
    owner_lookup.drain()
    owner_lookup.receive(ROOT, Owner(1, OWNER))
    owner_lookup.receive(ROOT, Owner(9, OWNER))
    owner_lookup.timeout(Overdue(KEY, 1))
    owner_lookup.timeout(Overdue(key_of("other"), 1))
    owner_lookup.observe(RootFound(key_of("other"), ROOT, 1, 0))
    assert owner_lookup.drain() == []


@pytest.mark.parametrize(
    "question",
    [Look(1, prefix="a"), Scan(1, "", do.FromEarliest()), Call(1, do.DropStaged("source", 1))],
)
def test_request_without_a_topic_is_refused(question: Any) -> None:
    """SVC-7"""
    owner_lookup = make()
    owner_lookup.receive(ANN, question)
    fact = "me:1 is a ring process; name a topic, or ask each group"
    assert owner_lookup.drain() == [Send(ANN, Answer(1, InvalidArgument(fact)))]
    owner_lookup.receive(ANN, Fetch("", "s", 1, 0, 0, 1, 1))
    assert owner_lookup.drain() == []


def test_waiting_clients_and_searches_are_bounded() -> None:
    owner_lookup = make()
    for number in range(1001):
        owner_lookup.receive(NodeId(f"client/{number}"), PUT)
    assert owner_lookup.drain() == asked(1)
    owner_lookup.observe(RootFound(KEY, ROOT, 3, 0))
    owner_lookup.drain()
    owner_lookup.receive(ROOT, Owner(1, OWNER))
    assert len(owner_lookup.drain()) == 1 + 1000
    for number in range(10_001):
        owner_lookup.receive(ANN, Look(1, f"t{number}"))
    assert len([each for each in owner_lookup.drain() if isinstance(each, Ask)]) == 10_000


def test_owner_answer_is_accepted_only_from_the_queried_process() -> None:
    """SEC-1: another process could redirect all clients to its own node."""
    owner_lookup = make()
    owner_lookup.receive(ANN, PUT)
    owner_lookup.observe(RootFound(KEY, ROOT, 3, 0))
    owner_lookup.drain()
    owner_lookup.receive(NodeId("ghost:1"), Owner(1, OWNER))
    assert owner_lookup.drain() == []
    owner_lookup.receive(ROOT, Owner(1, OWNER))
    assert Send(ANN, OWNED) in owner_lookup.drain()


def test_only_local_replicas_can_search_by_key() -> None:
    """SEC-1"""
    owner_lookup = make()
    owner_lookup.receive(NodeId("ghost:1/g"), WhoseKey(KEY))
    assert owner_lookup.drain() == []
