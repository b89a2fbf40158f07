"""Clients with the same account share its budget of calls and bytes."""

from __future__ import annotations

from oncecast.broker.accounts import Accounts, Budget
from oncecast.broker.guard import anonymous
from oncecast.kernel.protocol import NodeId
from oncecast.wire.errors import Overloaded
from oncecast.wire.frames import Answer, Call
from tests.broker.desk import ANN, BOB, Desk, producing, put

CALLS = Overloaded("calls in flight from one client")
BYTES = Overloaded("bytes in flight from one client")


def team(client: NodeId) -> str:
    return "team"


def test_clients_with_the_same_account_share_its_budget() -> None:
    """SEC-3"""
    accounts = Accounts(Budget(calls=3, bytes=100), team)
    (_, ann), (_, bob) = accounts.join(ANN, 0.0), accounts.join(BOB, 0.0)
    assert ann is bob
    accounts.begin(ann, 60)
    assert accounts.refusal(bob, 41, 0.0) == BYTES
    assert accounts.refusal(bob, 40, 0.0) is None
    accounts.begin(bob, 0)
    accounts.begin(bob, 0)
    assert accounts.refusal(ann, 0, 0.0) == CALLS
    accounts.leave("@team", 2, 0)
    assert accounts.refusal(ann, 0, 0.0) is None
    accounts.leave("@team", 1, 60)
    assert (accounts.bytes, accounts._accounts) == (0, {})


def test_account_can_always_send_a_first_batch() -> None:
    accounts = Accounts(Budget(bytes=100, total_bytes=100), anonymous)
    (_, ann), (_, bob) = accounts.join(ANN, 0.0), accounts.join(BOB, 0.0)
    assert accounts.refusal(ann, 1000, 0.0) is None
    accounts.begin(ann, 1000)
    assert accounts.refusal(bob, 1000, 0.0) is None


def test_accounts_share_a_total_byte_limit() -> None:
    """SEC-3: many clients together must not fill the node's memory."""
    accounts = Accounts(Budget(bytes=100, total_bytes=150), anonymous)
    (_, ann), (_, bob) = accounts.join(ANN, 0.0), accounts.join(BOB, 0.0)
    accounts.begin(ann, 90)
    accounts.begin(bob, 50)
    assert accounts.refusal(bob, 20, 0.0) == Overloaded("bytes in flight from all clients")
    accounts.end(ann, 1, 90)
    assert accounts.refusal(bob, 20, 0.0) is None


def test_rate_limit_allows_a_burst_of_one_second() -> None:
    """SEC-3: a batch that exceeds the remaining bytes is accepted, and delays the next batch."""
    accounts = Accounts(Budget(rate=100.0), anonymous)
    _, ann = accounts.join(ANN, 10.0)
    full = Overloaded("bytes per second from one client")
    assert accounts.refusal(ann, 150, 10.0) is None
    accounts.begin(ann, 150)
    accounts.end(ann, 1, 150)
    assert accounts.refusal(ann, 1, 10.5) == full
    assert accounts.refusal(ann, 0, 10.5) is None  # other calls are not delayed
    assert accounts.refusal(ann, 1, 10.6) is None
    assert accounts.refusal(ann, 1, 99.0) is None
    assert ann.left == 100.0  # unused bytes do not accumulate


def test_only_calls_in_flight_use_the_budget() -> None:
    """SEC-3"""
    desk = Desk(gateway={"budget": Budget(bytes=200), "principal_of": team})
    epoch = producing(desk)
    accounts = desk.gateway.accounts
    desk.waiting = True
    first, second = put(epoch, 0, b"x" * 50), put(epoch, 1, b"x" * 150)
    desk.send(BOB, Call(1, first))
    assert desk.send(ANN, Call(1, second)) == [Answer(1, BYTES)]
    assert (accounts.bytes, accounts._accounts["@team"].calls) == (first.size, 1)
    desk.sync()
    assert (accounts.bytes, accounts._accounts["@team"].calls) == (0, 0)
    desk.waiting = True
    desk.send(BOB, Call(2, second))
    desk.leave(BOB)
    assert (accounts.bytes, accounts._accounts["@team"].clients) == (0, 1)
    desk.leave(ANN)
    desk.sync()
    assert (accounts.bytes, accounts._accounts) == (0, {})
