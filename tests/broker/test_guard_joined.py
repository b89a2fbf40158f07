"""SEC-2: a process that joins a ring refuses administrative requests until it knows the rules."""

from __future__ import annotations

import pytest

from oncecast.broker.guard import Checked, guard_of_process
from oncecast.broker.holdings import Holdings
from oncecast.dht.identifiers import key_of
from oncecast.kernel.protocol import NodeId, Value
from oncecast.node.assemble import RingMembership
from oncecast.replication.events import HandOver
from oncecast.security.access import OPEN, Access, access_of
from oncecast.security.values import Rule, User
from oncecast.wire import commands as do
from oncecast.wire.errors import RULES, Denied, NotHere, Overloaded
from oncecast.wire.frames import (
    AccessView,
    Answer,
    Call,
    Govern,
    GroupView,
    LeaveRing,
    Look,
    LookAccess,
    LookGroup,
    LookRing,
)
from tests.broker.guarded_desk import KEYS, STRANGER, GuardedDesk

ADMINISTRATIVE = (
    LeaveRing(7),
    Govern(7, HandOver(NodeId("127.0.0.1:2"))),
    LookAccess(7),
    Call(7, do.AddUser("eve", KEYS, admin=True)),
    Call(7, do.Allow(Rule("*", ("admin",), "*"))),
)
OTHERS = (LookRing(7), LookGroup(7), Look(7, "t"), Call(7, do.CreateTopic("t", 0)))
TRY_AGAIN = (Answer(7, Overloaded(RULES)),)
SECURED = access_of((User("root", KEYS), Rule("root", ("admin",), "*")), 2)


class Joined:
    """A process that has joined a ring started by another process."""

    def __init__(self) -> None:
        self.access, self.knows = OPEN, False
        self.reported: list[Checked] = []
        self.guard = guard_of_process(
            self._access, report=self.reported.append, unsettled=lambda: not self.knows
        )

    def _access(self) -> Access:
        return self.access


@pytest.mark.parametrize("audits_open", [False, True])
@pytest.mark.parametrize("request_", ADMINISTRATIVE, ids=lambda each: type(each).__name__)
def test_new_ring_process_accepts_admin_requests_once_it_knows_the_rules(
    request_: Value, audits_open: bool
) -> None:
    process = Joined()
    process.guard.audits_open = audits_open
    if not isinstance(request_, Call):  # a process redirects only calls
        assert process.guard(STRANGER, request_) == TRY_AGAIN
    assert process.reported == []
    process.knows = True
    assert process.guard(STRANGER, request_) is None


def test_new_ring_process_serves_other_requests_at_once() -> None:
    process = Joined()
    assert [process.guard(STRANGER, each) for each in OTHERS] == [None] * len(OTHERS)
    assert process.reported == []


def test_new_ring_process_applies_rules_as_soon_as_it_gets_them() -> None:
    process = Joined()
    process.access = SECURED
    assert process.guard(STRANGER, LeaveRing(7)) == (Answer(7, Denied()),)


class JoinedDesk(GuardedDesk):
    """A replica of the empty group in a process that has joined a ring."""

    membership = RingMembership("g-1", NodeId("127.0.0.1:9"))


def test_empty_ring_group_refuses_administrative_requests() -> None:
    desk = JoinedDesk()
    for each in ADMINISTRATIVE[1:]:
        moved_on = [Answer(7, NotHere(""))]  # the client looks for a group with topics
        expected = moved_on if isinstance(each, Call) else list(TRY_AGAIN)
        assert desk.send(STRANGER, each) == expected
    assert desk.service.machine.registry.access is OPEN
    (view,) = desk.send(STRANGER, LookGroup(7))
    assert isinstance(view, GroupView)


def test_group_with_topics_and_no_users_accepts_administrative_requests() -> None:
    desk, position = JoinedDesk(), key_of("g-1")
    registry = desk.service.machine.registry
    registry.holdings = Holdings("g-1", None)
    assert desk.send(STRANGER, LookAccess(7)) == list(TRY_AGAIN)
    registry.holdings = Holdings("g-1", position)
    (view,) = desk.send(STRANGER, LookAccess(7))
    assert isinstance(view, AccessView)
