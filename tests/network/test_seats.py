"""At the connection limit, owners with many connections make space for owners with few."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from oncecast.errors import Absent
from oncecast.network.connection import Connection, Wires
from oncecast.network.handshake import CLIENT, PEER
from oncecast.network.options import Options, Stats
from oncecast.network.seats import Seats, owner_of
from tests.network.talk import drive
from tests.network.test_connection import FakeTransport, Listens

ANN, BOB, HOST = "user ann", "user bob", "host 10.0.0.1"


class Hall:
    """Seats, and connections that take them."""

    def __init__(self, **limits: int) -> None:
        self.stats, self.options = Stats(), Options(**limits)  # type: ignore[arg-type]
        self.seats = Seats(self.options, self.stats)
        self._wires = Wires(self.options, self.stats)

    def enter(self, owner: str) -> Connection:
        self.seats.make_space(owner)
        return self.take(CLIENT, owner)

    def take(self, role: str, owner: str = "") -> Connection:
        made = Connection(self._wires, Listens(), owner)
        made.connection_made(FakeTransport())
        self.seats.take(made, role, owner)
        return made


def in_hall(check: Callable[[Hall], None], **limits: int) -> None:
    async def test() -> None:
        check(Hall(**limits))

    drive(test())


def test_connection_owner_is_the_user_or_the_host_network() -> None:
    assert owner_of("ann", "10.0.0.1:7") == ANN
    assert owner_of("", "10.0.0.1:7") == HOST
    assert owner_of("", "2001:db8::1:2:7") == owner_of("", "2001:db8::f:8")


def test_owner_with_the_most_connections_loses_its_newest_connection() -> None:
    """SEC-3: otherwise a host with many connections would lock out every other client."""

    def check(hall: Hall) -> None:
        many = [hall.enter(HOST) for _ in range(4)]
        ann = hall.enter(ANN)
        assert [bool(each.ended) for each in many] == [False, False, False, True]
        assert not ann.ended
        assert hall.stats.crowded == 1
        assert len(hall.seats) == 4

    in_hall(check, connections_max=4)


def test_owner_cannot_displace_the_only_connection_of_another_owner() -> None:
    """SEC-3"""

    def check(hall: Hall) -> None:
        taken = [hall.enter(each) for each in (ANN, BOB, ANN)]
        with pytest.raises(Absent, match=r"from clients \(limit 3\); .*connections_max"):
            hall.enter(BOB)
        hall.enter(HOST)  # closes the newest connection of ann
        assert [bool(each.ended) for each in taken] == [False, False, True]
        with pytest.raises(Absent):
            hall.enter("host 10.0.0.2")
        assert len(hall.seats) == 3

    in_hall(check, connections_max=3)


def test_users_and_hosts_have_separate_connection_limits() -> None:
    """SEC-3"""

    def check(hall: Hall) -> None:
        first = hall.enter(ANN)
        with pytest.raises(
            Absent, match=r"from one user \(limit 1\); .*raise user_connections_max"
        ):
            hall.enter(ANN)
        for _ in range(2):
            hall.enter(HOST)
        with pytest.raises(
            Absent, match=r"from one host \(limit 2\); .*raise host_connections_max"
        ):
            hall.enter(HOST)
        assert hall.stats.crowded == 2
        assert not first.ended

    in_hall(check, user_connections_max=1, host_connections_max=2)


def test_closed_connection_frees_its_seat() -> None:
    async def test() -> None:
        hall = Hall(connections_max=1, peers_max=1)
        peer, ann = hall.take(PEER), hall.enter(ANN)
        with pytest.raises(Absent, match=r"from peers \(limit 1\); .*raise peers_max"):
            hall.seats.check_peers()
        for each in (peer, ann):
            each.connection_lost(None)
            await each.over
        await asyncio.sleep(0)
        hall.seats.check_peers()
        hall.enter(BOB)
        assert len(hall.seats) == 1

    drive(test())
