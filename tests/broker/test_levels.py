"""OPS-2: a group decides its feature level, and refuses commands above it."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from oncecast.broker import moves
from oncecast.broker.events import Execute, Executed
from oncecast.broker.holdings import PeerGroup
from oncecast.broker.machine import Machine
from oncecast.broker.service import Service
from oncecast.dht.identifiers import key_of
from oncecast.errors import Outdated
from oncecast.kernel.protocol import Ask, Emit
from oncecast.replication.events import Decided, LeaderChanged, LevelRaised, Propose
from oncecast.wire import commands as do
from oncecast.wire import errors, levels
from oncecast.wire.limits import LIMITS, Limits
from oncecast.wire.results import LimitsSet, MoveStep
from oncecast.wire.retention import Policy
from tests.broker.desk import ME, Alone

NEW = do.SetPolicy("t", 0, Policy())


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make SetPolicy a command of level 2."""
    monkeypatch.setattr(do.SetPolicy, "feature_level", 2, raising=False)


def leader(group: Alone | None = None, **options: Any) -> Service:
    service = Service(ME, Random(0), group=group or Alone(), level=2, **options)
    service.observe(LeaderChanged(ME))
    return service


def proposed(service: Service) -> list[Any]:
    asks = [each.request for each in service.drain() if isinstance(each, Ask)]
    values = [each.value for each in asks if isinstance(each, Propose)]
    return [msgspec.msgpack.decode(value, type=moves.AnyCommand) for value in values]


def decide(service: Service, slot: int, command: do.Command) -> list[Any]:
    service.observe(Decided(slot, msgspec.msgpack.encode(command)))
    return [each.event for each in service.drain() if isinstance(each, Emit)]


# The machine


def test_machine_level_never_decreases() -> None:
    machine = Machine()
    found = [machine.registry.level]
    for slot, level in enumerate((2, 1, 3, 2), 1):
        assert machine.apply(slot, do.SetLimits(Limits(), level)) == LimitsSet()
        found.append(machine.registry.level)
    assert found == [1, 2, 2, 3, 3]


def test_snapshot_includes_the_level() -> None:
    machine = Machine()
    machine.apply(1, do.SetLimits(Limits(), 3))
    again = Machine.restore(machine.state())
    assert (again.registry.level, again.checksum()) == (3, machine.checksum())


def test_limits_without_a_level_leave_the_level_unchanged() -> None:
    machine = Machine()
    machine.apply(1, do.SetLimits(Limits(), 2))
    old = msgspec.msgpack.decode(
        msgspec.msgpack.encode(["SetLimits", Limits()]), type=moves.AnyCommand
    )
    machine.apply(2, old)
    assert machine.registry.level == 2


@pytest.mark.parametrize(("level", "done"), [(1, True), (2, False)])
def test_group_does_not_adopt_topics_from_a_group_at_a_higher_level(level: int, done: bool) -> None:
    machine = Machine()
    machine.apply(1, moves.Found("g", False))
    machine.apply(2, moves.Claim("m", PeerGroup("other", (ME,))))
    rows = msgspec.msgpack.encode([])
    facts = (key_of("low"), key_of("g"), 0, 0, 0, rows, 0, level)
    assert machine.apply(3, moves.Adopt("m", *facts)) == MoveStep(done)
    machine.apply(4, do.SetLimits(Limits(), 2))
    assert machine.apply(5, moves.Adopt("m", *facts)) == MoveStep(True)


# The service


@pytest.mark.usefixtures("newer")
def test_leader_refuses_a_command_above_its_group_level() -> None:
    service = leader()
    service.drain()
    service.request(Execute(7, NEW))
    assert service.drain() == [Emit(Executed(7, errors.LevelTooLow(2, 1)))]


@pytest.mark.usefixtures("newer")
def test_leader_proposes_the_command_once_the_level_is_decided() -> None:
    service = leader()
    decide(service, 1, do.SetLimits(LIMITS, 2))
    service.request(Execute(7, NEW))
    assert [type(each) for each in proposed(service)] == [do.SetPolicy]


def test_leader_raises_the_level_to_one_that_all_members_know() -> None:
    group = Alone()
    service = leader(group)
    assert proposed(service) == [do.SetLimits(LIMITS, 1)]
    decide(service, 1, do.SetLimits(LIMITS, 1))
    group.level = 2
    service.observe(LevelRaised(2))
    assert proposed(service) == [do.SetLimits(LIMITS, 2)]
    decide(service, 2, do.SetLimits(LIMITS, 2))
    service.observe(LevelRaised(2))
    assert proposed(service) == []


def test_new_leader_raises_the_level_if_its_predecessor_did_not() -> None:
    group = Alone()
    service = leader(group)
    decide(service, 1, do.SetLimits(LIMITS, 1))
    group.level = 2
    service.observe(LeaderChanged(ME))
    assert proposed(service) == [do.SetLimits(LIMITS, 2)]


def test_error_for_a_snapshot_above_the_known_level_names_both_levels() -> None:
    machine = Machine()
    machine.apply(1, do.SetLimits(Limits(), 3))
    service = leader()
    with pytest.raises(Outdated, match=r"level 3.* up to 2; upgrade oncecast"):
        service.install(1, (b"", *machine.state()))


def test_no_command_needs_an_unknown_level() -> None:
    from oncecast.broker.service import KINDS

    assert levels.above(levels.KNOWN, KINDS) == frozenset()
    assert max(map(levels.level_of, KINDS)) <= levels.KNOWN
