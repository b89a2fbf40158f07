"""REP-2 REP-4: while a silent member is replaced, any one disk may be lost."""

from __future__ import annotations

import pytest

from oncecast.kernel.protocol import NodeId
from oncecast.lab.scenarios.paxos import Campaign
from oncecast.lab.scenarios.paxos_ledger import Ledgers
from oncecast.simulator.simulated import Simulation


def lose_disk(campaign: Campaign, node: NodeId) -> None:
    sim = campaign.sim
    sim.crash(node)
    disk = sim.nodes[node].disk
    assert disk is not None
    disk.wipe()
    campaign.wiped[node] = None
    sim.note(node, "wipe")
    sim.restart(node)


@pytest.mark.long
@pytest.mark.parametrize("after", [0.0, 0.05])
@pytest.mark.parametrize("victim", ["leader", "other", "newcomer"])
def test_group_survives_a_lost_disk_while_a_silent_member_is_replaced_and_returns(
    victim: str, after: float
) -> None:
    """Two of the three founders keep their disks."""
    sim, top = Simulation(1), Ledgers()
    campaign = Campaign(sim, 3, top)
    assert campaign.founders.nodes() == campaign.names
    storm = campaign.begin()
    top.begin(sim, storm.leaders, 5.0)
    sim.run(until=2.0)
    (leader,) = storm.leaders()
    silent, other = (node for node in campaign.names if node != leader)
    fronts = sim.isolate(silent)
    while len(campaign.history.configs) == 1:
        sim.run(until=sim.now + 0.01)
    sim.run(until=sim.now + after)
    left = {
        "leader": leader,
        "other": other,
        "newcomer": campaign.history.configs[1][1].nodes()[-1],
    }
    lose_disk(campaign, left[victim])
    sim.run(until=sim.now + 1.0)
    sim.repair(fronts)
    sim.run(until=sim.now + 8.0)
    campaign.due = campaign.history.last
    sim.run(until=sim.now + 1.0)
    sim.finish()
