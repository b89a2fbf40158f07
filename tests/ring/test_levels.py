"""OPS-2 REP-6: topics do not move to a group at a lower feature level."""

from __future__ import annotations

from typing import Any

from oncecast.broker.holdings import PeerGroup
from oncecast.kernel.protocol import Emit
from oncecast.ring.events import MoveWaits
from oncecast.ring.moves import Export, Exported, Survey, Surveyed
from oncecast.wire.commands import SetLimits
from oncecast.wire.limits import LIMITS
from tests.ring.pair import GIVER, MINE, TAKER, World
from tests.ring.test_mover import ASKER, AT, begin, decided
from tests.ring.test_mover_rules import CLAIM, LOW, Replica, X, holdings, sent

RAISE = SetLimits(LIMITS, 2)


def rounds(world: World, count: int) -> None:
    """Run until the importer has asked this many more times."""
    before = len(world.sent)
    world.run(lambda: sum(isinstance(each[2], Survey) for each in world.sent[before:]) >= count)


def test_importer_waits_until_it_reaches_the_exporter_level() -> None:
    world = begin()
    exporter, importer = world.groups[GIVER], world.groups[TAKER]
    exporter.apply(RAISE)
    rounds(world, 5)
    assert decided(exporter) == ["Found"]
    assert decided(importer) == ["Found", "Claim"]
    assert exporter.holdings.owns(MINE)
    importer.apply(RAISE)
    world.run(lambda: world.settled)
    assert decided(importer) == ["Found", "Claim", "Adopt", "Finish"]


def test_topics_move_to_a_group_at_a_higher_level() -> None:
    world = begin()
    world.groups[TAKER].apply(RAISE)
    world.run(lambda: world.settled)
    assert decided(world.groups[TAKER]) == ["Found", "Claim", "Adopt", "Finish"]


def test_exporter_does_not_freeze_a_part_for_a_group_at_a_lower_level() -> None:
    """An importer with an older version sends no level."""
    world = begin()
    exporter = world.groups[GIVER]
    world.run(lambda: TAKER in world.known_facts)
    world.spoil = lambda sender, to, message: int(not isinstance(message, Survey))
    exporter.apply(RAISE)
    peer = PeerGroup(TAKER, (ASKER,))
    exporter.leader.mover._neighbors.located(world.known_facts[TAKER])
    for level, steps in ((1, ["Found"]), (2, ["Found", "Freeze"])):
        export: Any = Export("m", AT, peer, level)
        world.hear(exporter.leader, ASKER, export)
        while exporter.proposed:
            exporter.decide()
        assert decided(exporter) == steps
    answers = [each[2] for each in world.sent if isinstance(each[2], Exported)]
    assert [each.level for each in answers] == [2]


def test_importer_reports_once_that_it_waits() -> None:
    replica = Replica(holdings(claim=CLAIM))
    replica.registry.level = 1
    replica.pace()
    waits = replica.hear(Surveyed("m", "", (), False, 3))
    assert [each.event for each in waits if isinstance(each, Emit)] == [MoveWaits("h", 3, 1)]
    assert replica.hear(Surveyed("m", "", (), False, 3)) == []
    replica.registry.level = 3
    (asked,) = replica.hear(Surveyed("m", "", (), False, 3))
    importer = PeerGroup("g", tuple(replica.service.group.nodes()))
    assert asked == sent(X, Export("m", LOW, importer, 3))
